#include "cli/host_port.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static bool is_one_of(const char *set, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (s[i] == '\0' || strchr(set, s[i]) == NULL)
			return false;
	return n > 0;
}

static bool is_host_name(const char *s, size_t n)
{
	return is_one_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", s, n) && s[0] != '-' && s[0] != '.';
}

// A name made of digits and dots only must be an address: "300.1.1.1" and "10.0.0" are slips, not names.
static bool is_ipv4_or_name(const char *host)
{
	struct in_addr a;
	if (is_one_of("0123456789.", host, strlen(host)))
		return inet_pton(AF_INET, host, &a) == 1;
	return true;
}

// fe80::1%eth0: the zone is an interface name, which inet_pton does not read.
static bool is_ipv6(const char *host)
{
	const char *zone = strchr(host, '%');
	char addr[ADDR_CAP];
	size_t n = zone ? (size_t)(zone - host) : strlen(host);
	memcpy(addr, host, n);
	addr[n] = '\0';
	struct in6_addr a;
	return inet_pton(AF_INET6, addr, &a) == 1 && (zone == NULL || is_host_name(zone + 1, strlen(zone + 1)));
}

static bool parse_port(const char *s, uint16_t *port)
{
	size_t n = strlen(s);
	if (n > 5 || !is_one_of("0123456789", s, n))
		return false;
	uint32_t v = 0;
	for (; *s; s++)
		v = v * 10 + (uint32_t)(*s - '0');
	if (v > UINT16_MAX)
		return false;
	*port = (uint16_t)v;
	return true;
}

bool host_port_parse(const char *text, struct host_port *out)
{
	const char *colon = strrchr(text, ':');
	if (colon == NULL || colon == text || !parse_port(colon + 1, &out->port))
		return false;
	bool bracketed = text[0] == '[' && colon[-1] == ']';
	const char *host = text + (bracketed ? 1 : 0);
	size_t n = (size_t)(colon - text) - (bracketed ? 2 : 0);
	if (n == 0 || n >= sizeof out->host || (!bracketed && !is_host_name(host, n)))
		return false;
	memcpy(out->host, host, n);
	out->host[n] = '\0';
	return bracketed ? is_ipv6(out->host) : is_ipv4_or_name(out->host);
}

void host_port_format(const struct host_port *hp, char text[HOST_PORT_TEXT_CAP])
{
	snprintf(text, HOST_PORT_TEXT_CAP, strchr(hp->host, ':') ? "[%s]:%u" : "%s:%u", hp->host, (unsigned)hp->port);
}

bool host_port_is_loopback(const struct host_port *hp)
{
	struct in_addr a4;
	struct in6_addr a6;
	if (inet_pton(AF_INET, hp->host, &a4) == 1)
		return ntohl(a4.s_addr) >> 24 == 127;
	if (inet_pton(AF_INET6, hp->host, &a6) == 1)
		return memcmp(&a6, &in6addr_loopback, sizeof a6) == 0;
	return strcmp(hp->host, "localhost") == 0;
}

enum err host_port_explain(enum err e, const char *flag, struct errmsg *em)
{
	struct errmsg why = *em;
	return e == ERR_EXISTS ? errmsg_fail(em, e, "%s: is Hearth running already? %s HOST:PORT takes another port", why.text, flag) : e;
}
