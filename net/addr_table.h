// What a listener remembers of each address it heard from: connections that have not authenticated, and a token bucket of failed
// handshakes. Pure: the time is given. Bounded: with the table full, the address that has no connection and whose bucket is fullest is
// forgotten, so somebody with many addresses makes us forget failures, never makes us grow.
// An IPv6 address counts as its /64, which is what one household or one rented machine has.
#ifndef HEARTH_NET_ADDR_TABLE_H
#define HEARTH_NET_ADDR_TABLE_H

#include "base/err.h"
#include "net/stream.h"

#include <stdbool.h>
#include <stdint.h>

struct addr_entry {
	uint8_t key[16];
	bool is_used;
	uint32_t n_conns;
	int64_t full_ns; // when the bucket will be full again, if nothing more is taken
};

struct addr_table {
	struct addr_entry *entries; // (cap), owned
	uint32_t cap;
	int64_t token_ns; // one token's time
	int64_t burst_ns; // the bucket's
};

// addr_table_open: a bucket holds `burst` >= 1 tokens and gains per_s >= 1 a second. ERR_NOMEM.
MUST_USE enum err addr_table_open(struct addr_table *t, uint32_t cap, uint32_t per_s, uint32_t burst);
void addr_table_close(struct addr_table *t);

// addr_table_find returns the entry of `peer`, or NULL.
struct addr_entry *addr_table_find(struct addr_table *t, const struct stream_peer *peer);
// addr_table_enter counts a connection of `peer`; the entry stays until addr_table_leave. NULL: every entry has connections.
struct addr_entry *addr_table_enter(struct addr_table *t, const struct stream_peer *peer, int64_t now_ns);
void addr_table_leave(struct addr_entry *e);

// addr_take takes a token, if there is one.
bool addr_take(const struct addr_table *t, struct addr_entry *e, int64_t now_ns);
void addr_give_back(const struct addr_table *t, struct addr_entry *e);
// addr_next_ns returns when addr_take will succeed.
int64_t addr_next_ns(const struct addr_table *t, const struct addr_entry *e);

#endif
