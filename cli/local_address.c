#include "cli/local_address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void local_name(char out[NAME_CAP])
{
	char name[NAME_CAP] = "";
	size_t n = 0;
	if (gethostname(name, sizeof name - 1) != 0)
		name[0] = '\0';
	for (const char *c = name; *c != '\0' && *c != '.'; c++)
		out[n++] = isalnum((unsigned char)*c) || *c == '-' || *c == '_' ? *c : '-';
	out[n] = '\0';
	if (n == 0)
		text_copy(out, NAME_CAP, "node");
}

static bool format(const struct sockaddr *sa, uint16_t port, char out[ADDR_CAP])
{
	char text[INET6_ADDRSTRLEN];
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sa;
		inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
		snprintf(out, ADDR_CAP, "%s:%u", text, port);
		return true;
	}
	if (sa->sa_family != AF_INET6)
		return false;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)sa;
	if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		return false;
	inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
	snprintf(out, ADDR_CAP, "[%s]:%u", text, port);
	return true;
}

static void add(const struct ifaddrs *all, uint16_t port, int family, bool loopback, struct address_list *out)
{
	for (const struct ifaddrs *i = all; i != NULL && out->n < ADDRS_MAX; i = i->ifa_next) {
		bool is_loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != family || (i->ifa_flags & IFF_UP) == 0 || is_loopback != loopback)
			continue;
		if (format(i->ifa_addr, port, out->at[out->n]))
			out->n++;
	}
}

void local_addresses(uint16_t port, struct address_list *out)
{
	struct ifaddrs *all = NULL;
	if (getifaddrs(&all) != 0)
		return;
	add(all, port, AF_INET, false, out);
	add(all, port, AF_INET6, false, out);
	if (out->n == 0)
		add(all, port, AF_INET, true, out);
	freeifaddrs(all);
}

static bool has_host(const struct sockaddr *sa, const char *host)
{
	char text[INET6_ADDRSTRLEN] = "";
	if (sa == NULL)
		return false;
	if (sa->sa_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, text, sizeof text);
	else if (sa->sa_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, text, sizeof text);
	return strcmp(text, host) == 0;
}

int32_t local_interface_of(const char *host)
{
	struct ifaddrs *all = NULL;
	unsigned index = 0;
	if (getifaddrs(&all) != 0)
		return 0;
	for (const struct ifaddrs *i = all; i != NULL && index == 0; i = i->ifa_next)
		if (has_host(i->ifa_addr, host))
			index = if_nametoindex(i->ifa_name);
	freeifaddrs(all);
	return (int32_t)index;
}

enum err local_address_check(const char *host, struct errmsg *em)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
	bool is_v6 = inet_pton(AF_INET6, host, &in6.sin6_addr) == 1;
	if (!is_v6 && inet_pton(AF_INET, host, &in.sin_addr) != 1)
		return errmsg_fail(em, ERR_FORMAT, "%s: no address", host);
	int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && bind(fd, is_v6 ? (const struct sockaddr *)(const void *)&in6 : (const struct sockaddr *)(const void *)&in, is_v6 ? sizeof in6 : sizeof in) == 0;
	int error = errno;
	if (fd >= 0)
		close(fd);
	return ok ? OK : errmsg_fail(em, ERR_NOT_FOUND, "cannot connect from %s: %s", host, error == EADDRNOTAVAIL ? "it is no address of this machine" : strerror(error));
}
