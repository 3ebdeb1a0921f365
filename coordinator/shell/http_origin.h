// Whom a request comes from, by its Host and Origin headers: the API has no password, so a page in a browser must not reach it.
//
// A foreign page's requests carry its Origin. One that made its own name point to 127.0.0.1 (DNS rebinding) is same-origin for the browser, but
// its name is in Host. Programs send a loopback Host and no Origin. Pure.
#ifndef HEARTH_COORDINATOR_SHELL_HTTP_ORIGIN_H
#define HEARTH_COORDINATOR_SHELL_HTTP_ORIGIN_H

#include <stdbool.h>

// http_host_is_loopback takes "localhost", an address in 127.0.0.0/8 or [::1], each with or without a port. Any port: a tunnel changes it.
bool http_host_is_loopback(const char *host);
// http_origin_is_loopback takes http:// or https:// in front of that, and nothing behind. "null" is no such origin.
bool http_origin_is_loopback(const char *origin);

#endif
