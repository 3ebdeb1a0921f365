// The services that were found on the local network, bounded, and what a person or `hearth join` makes of them.
//
// Whoever is on the network can announce anything, thousands of times. So: a fixed number of entries; the same announcement heard twice is one;
// what does not fit is counted and dropped; addresses that no other machine can have are refused; texts are fit for a terminal. An entry is only
// ever a place to try: the handshake with the key that an invite pins decides who is there. Pure; the caller owns the memory.
#ifndef HEARTH_NET_FOUND_LIST_H
#define HEARTH_NET_FOUND_LIST_H

#include "base/ids.h"
#include "base/limits.h"
#include "net/service_txt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FOUND_MAX 64           // announcements: each coordinator has one for each interface and IP version
#define FOUND_SHOWN_MAX 16     // coordinators that a person is shown
#define FOUND_INSTANCE_CAP 64  // a DNS label has at most 63 bytes
#define FOUND_INTERFACE_CAP 16 // IFNAMSIZ

// Which announcement it is: what the end of one (its TTL, or a goodbye) names.
struct found_key {
	int32_t interface;
	bool is_ipv6; // the protocol it was heard over
	char instance[FOUND_INSTANCE_CAP];
};

struct found {
	struct found_key key;
	struct service_txt txt;
	uint8_t addr[16]; // IPv6, or IPv4 mapped into it
	uint16_t port;
	bool is_own; // of this machine: its loopback address is fine
	char interface_name[FOUND_INTERFACE_CAP]; // for link-local addresses
};

struct found_list {
	uint32_t n;
	uint64_t n_refused; // for want of room, or because nobody can be there
	struct found at[FOUND_MAX];
};

// A coordinator: everything announced with one fingerprint.
struct found_coordinator {
	struct node_id id;
	struct service_txt txt; // of the first address
	uint32_t n_addrs;
	char addrs[ADDRS_MAX][ADDR_CAP]; // the best first, as found_list_addresses
};

// found_list_put adds an announcement, or replaces the one with its key; false: refused.
bool found_list_put(struct found_list *l, const struct found *f);
// found_list_remove: false when it was not there.
bool found_list_remove(struct found_list *l, const struct found_key *key);

// found_list_addresses writes where the coordinator with this fingerprint may be, at most `cap`, without repetitions: IPv4 first, then IPv6, then
// link-local IPv6, which carries its interface ("[fe80::1%wlan0]:7433"); within each the order in which they were found. Returns their number.
uint32_t found_list_addresses(const struct found_list *l, const struct node_id *id, char (*addrs)[ADDR_CAP], uint32_t cap);
// found_list_coordinators groups by fingerprint, sorted by name and then fingerprint, at most FOUND_SHOWN_MAX. Returns their number.
uint32_t found_list_coordinators(const struct found_list *l, struct found_coordinator out[FOUND_SHOWN_MAX]);

#endif
