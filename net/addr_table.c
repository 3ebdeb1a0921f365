#include "net/addr_table.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_S INT64_C(1000000000)

enum err addr_table_open(struct addr_table *t, uint32_t cap, uint32_t per_s, uint32_t burst)
{
	ASSERT(per_s >= 1);
	ASSERT(burst >= 1);
	*t = (struct addr_table){.cap = cap, .token_ns = NS_PER_S / per_s};
	t->burst_ns = t->token_ns * burst;
	t->entries = calloc(cap, sizeof *t->entries);
	return t->entries != NULL ? OK : ERR_NOMEM;
}

void addr_table_close(struct addr_table *t)
{
	free(t->entries);
	*t = (struct addr_table){0};
}

static void make_key(const struct stream_peer *peer, uint8_t key[16])
{
	static const uint8_t v4_prefix[12] = {[10] = 0xff, [11] = 0xff};
	memset(key, 0, 16);
	if (!peer->is_ip)
		return;
	bool is_v4 = memcmp(peer->addr, v4_prefix, sizeof v4_prefix) == 0;
	memcpy(key, peer->addr, is_v4 ? 16 : 8);
}

static struct addr_entry *find_key(struct addr_table *t, const uint8_t key[16])
{
	for (uint32_t i = 0; i < t->cap; i++)
		if (t->entries[i].is_used && memcmp(t->entries[i].key, key, 16) == 0)
			return &t->entries[i];
	return NULL;
}

struct addr_entry *addr_table_find(struct addr_table *t, const struct stream_peer *peer)
{
	uint8_t key[16];
	make_key(peer, key);
	return find_key(t, key);
}

// forgettable returns a free entry, else the one without connections whose bucket is fullest, else NULL.
static struct addr_entry *forgettable(struct addr_table *t)
{
	struct addr_entry *best = NULL;
	for (uint32_t i = 0; i < t->cap; i++) {
		struct addr_entry *e = &t->entries[i];
		if (!e->is_used)
			return e;
		if (e->n_conns == 0 && (best == NULL || e->full_ns < best->full_ns))
			best = e;
	}
	return best;
}

struct addr_entry *addr_table_enter(struct addr_table *t, const struct stream_peer *peer, int64_t now_ns)
{
	uint8_t key[16];
	make_key(peer, key);
	struct addr_entry *e = find_key(t, key);
	if (e == NULL) {
		e = forgettable(t);
		if (e == NULL)
			return NULL;
		*e = (struct addr_entry){.is_used = true, .full_ns = now_ns};
		memcpy(e->key, key, 16);
	}
	e->n_conns++;
	return e;
}

void addr_table_leave(struct addr_entry *e)
{
	ASSERT(e->n_conns > 0);
	e->n_conns--;
}

bool addr_take(const struct addr_table *t, struct addr_entry *e, int64_t now_ns)
{
	int64_t full_ns = e->full_ns > now_ns ? e->full_ns : now_ns;
	if (full_ns + t->token_ns - now_ns > t->burst_ns)
		return false;
	e->full_ns = full_ns + t->token_ns;
	return true;
}

void addr_give_back(const struct addr_table *t, struct addr_entry *e)
{
	e->full_ns -= t->token_ns;
}

int64_t addr_next_ns(const struct addr_table *t, const struct addr_entry *e)
{
	return e->full_ns + t->token_ns - t->burst_ns;
}
