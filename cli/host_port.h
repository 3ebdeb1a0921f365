// "HOST:PORT" as people type it: a name, an IPv4 address, or an IPv6 address in brackets. Resolves nothing.
#ifndef HEARTH_CLI_HOST_PORT_H
#define HEARTH_CLI_HOST_PORT_H

#include "base/err.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct host_port {
	char host[ADDR_CAP]; // name or address, without the brackets of IPv6
	uint16_t port;       // 0 where the option allows it: any free port
};

#define HOST_PORT_TEXT_CAP (ADDR_CAP + 8)

// host_port_parse reads `text` as a whole; false when it is not HOST:PORT.
bool host_port_parse(const char *text, struct host_port *out);
// host_port_format writes it as host_port_parse reads it.
void host_port_format(const struct host_port *hp, char text[HOST_PORT_TEXT_CAP]);
// host_port_is_loopback: 127.0.0.0/8, ::1 or "localhost".
bool host_port_is_loopback(const struct host_port *hp);
// host_port_explain adds to an error of listening which option takes another port, where that helps; returns `e`.
MUST_USE enum err host_port_explain(enum err e, const char *flag, struct errmsg *em);

#endif
