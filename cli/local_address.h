// What this machine calls itself: its name and the addresses others may reach it at.
#ifndef HEARTH_CLI_LOCAL_ADDRESS_H
#define HEARTH_CLI_LOCAL_ADDRESS_H

#include "base/limits.h"
#include "proto/msg.h"

// local_name writes the host name, cut to what a name may hold; "node" when it has none.
void local_name(char out[NAME_CAP]);
// local_addresses adds "address:port" for each interface that is up: private and public addresses first, loopback only when there is nothing
// else. Link-local IPv6 is left out: its scope means nothing on another machine.
void local_addresses(uint16_t port, struct address_list *out);

// local_interface_of returns the index of the interface that has the address `host`; 0: none has.
int32_t local_interface_of(const char *host);
// local_address_check: ERR_NOT_FOUND when `host`, a numeric address, is none of this machine's.
MUST_USE enum err local_address_check(const char *host, struct errmsg *em);

#endif
