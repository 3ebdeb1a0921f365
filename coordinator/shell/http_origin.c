#include "coordinator/shell/http_origin.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#define HOST_CAP 64 // longer ones are no loopback address

static bool is_port(const char *s)
{
	size_t digits = strspn(s, "0123456789");
	return digits >= 1 && digits <= 5 && s[digits] == '\0';
}

static bool is_loopback_name(const char *name)
{
	struct in_addr a4;
	if (strcasecmp(name, "localhost") == 0)
		return true;
	return inet_pton(AF_INET, name, &a4) == 1 && ntohl(a4.s_addr) >> 24 == 127;
}

static bool is_loopback_bracketed(const char *host, const char *end)
{
	static const struct in6_addr loopback = IN6ADDR_LOOPBACK_INIT;
	char name[HOST_CAP];
	struct in6_addr a6;
	size_t len = (size_t)(end - host) - 1;
	if (len >= sizeof name)
		return false;
	memcpy(name, host + 1, len);
	name[len] = '\0';
	return inet_pton(AF_INET6, name, &a6) == 1 && memcmp(&a6, &loopback, sizeof a6) == 0;
}

bool http_host_is_loopback(const char *host)
{
	char name[HOST_CAP];
	if (host[0] == '[') {
		const char *end = strchr(host, ']');
		return end != NULL && is_loopback_bracketed(host, end) && (end[1] == '\0' || (end[1] == ':' && is_port(end + 2)));
	}
	size_t len = strcspn(host, ":");
	if (len >= sizeof name || (host[len] == ':' && !is_port(host + len + 1)))
		return false;
	memcpy(name, host, len);
	name[len] = '\0';
	return is_loopback_name(name);
}

bool http_origin_is_loopback(const char *origin)
{
	static const char *const schemes[] = {"http://", "https://"};
	for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
		if (strncasecmp(origin, schemes[i], strlen(schemes[i])) == 0)
			return http_host_is_loopback(origin + strlen(schemes[i]));
	return false;
}
