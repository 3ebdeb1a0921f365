#include "net/found_list.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum place { PLACE_IPV4, PLACE_IPV6, PLACE_LINK_LOCAL, N_PLACES };

static bool is_mapped(const uint8_t a[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(a, prefix, sizeof prefix) == 0;
}

static enum place place_of(const uint8_t a[16])
{
	if (is_mapped(a))
		return PLACE_IPV4;
	return a[0] == 0xfe && (a[1] & 0xc0) == 0x80 ? PLACE_LINK_LOCAL : PLACE_IPV6;
}

// is_reachable: unicast, and of another machine unless the announcement is our own. To dial where a stranger says is harmless only as far as this.
static bool is_reachable(const struct found *f)
{
	static const uint8_t zero[15];
	const uint8_t *a = f->addr;
	if (f->port == 0)
		return false;
	if (is_mapped(a))
		return a[12] != 0 && a[12] < 224 && (a[12] != 127 || f->is_own);
	if (memcmp(a, zero, sizeof zero) == 0) // :: and ::1
		return a[15] == 1 && f->is_own;
	if (place_of(a) == PLACE_LINK_LOCAL && f->interface_name[0] == '\0')
		return false;
	return a[0] != 0xff && memcmp(a, zero, 10) != 0; // no multicast, none of the old ways to write IPv4
}

static bool is_same(const struct found_key *a, const struct found_key *b)
{
	return a->interface == b->interface && a->is_ipv6 == b->is_ipv6 && strncmp(a->instance, b->instance, sizeof a->instance) == 0;
}

static struct found *find(struct found_list *l, const struct found_key *key)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (is_same(&l->at[i].key, key))
			return &l->at[i];
	return NULL;
}

bool found_list_put(struct found_list *l, const struct found *f)
{
	struct found *old = find(l, &f->key);
	if (!is_reachable(f) || (old == NULL && l->n == FOUND_MAX)) {
		l->n_refused++;
		return false;
	}
	*(old != NULL ? old : &l->at[l->n++]) = *f;
	return true;
}

bool found_list_remove(struct found_list *l, const struct found_key *key)
{
	struct found *f = find(l, key);
	if (f == NULL)
		return false;
	size_t behind = (size_t)(l->at + l->n - (f + 1));
	memmove(f, f + 1, behind * sizeof *f);
	l->n--;
	return true;
}

static void format(const struct found *f, char out[ADDR_CAP])
{
	char text[INET6_ADDRSTRLEN] = "";
	enum place place = place_of(f->addr);
	if (place == PLACE_IPV4) {
		inet_ntop(AF_INET, f->addr + 12, text, sizeof text);
		snprintf(out, ADDR_CAP, "%s:%u", text, f->port);
		return;
	}
	inet_ntop(AF_INET6, f->addr, text, sizeof text);
	if (place == PLACE_LINK_LOCAL)
		snprintf(out, ADDR_CAP, "[%s%%%.*s]:%u", text, FOUND_INTERFACE_CAP - 1, f->interface_name, f->port);
	else
		snprintf(out, ADDR_CAP, "[%s]:%u", text, f->port);
}

static bool has_address(char (*addrs)[ADDR_CAP], uint32_t n, const char *text)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(addrs[i], text) == 0)
			return true;
	return false;
}

uint32_t found_list_addresses(const struct found_list *l, const struct node_id *id, char (*addrs)[ADDR_CAP], uint32_t cap)
{
	uint32_t n = 0;
	for (int place = 0; place < N_PLACES; place++)
		for (uint32_t i = 0; i < l->n && n < cap; i++) {
			char text[ADDR_CAP];
			const struct found *f = &l->at[i];
			if ((int)place_of(f->addr) != place || memcmp(f->txt.id.b, id->b, NODE_ID_BYTES) != 0)
				continue;
			format(f, text);
			if (!has_address(addrs, n, text))
				memcpy(addrs[n++], text, sizeof text);
		}
	return n;
}

static int by_name(const void *a, const void *b)
{
	const struct found_coordinator *x = a, *y = b;
	int c = strcmp(x->txt.name, y->txt.name);
	return c != 0 ? c : memcmp(x->id.b, y->id.b, NODE_ID_BYTES);
}

static bool has_id(const struct found_coordinator *all, uint32_t n, const struct node_id *id)
{
	for (uint32_t i = 0; i < n; i++)
		if (memcmp(all[i].id.b, id->b, NODE_ID_BYTES) == 0)
			return true;
	return false;
}

uint32_t found_list_coordinators(const struct found_list *l, struct found_coordinator out[FOUND_SHOWN_MAX])
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < l->n && n < FOUND_SHOWN_MAX; i++) {
		const struct found *f = &l->at[i];
		if (has_id(out, n, &f->txt.id))
			continue;
		out[n] = (struct found_coordinator){.id = f->txt.id, .txt = f->txt};
		out[n].n_addrs = found_list_addresses(l, &f->txt.id, out[n].addrs, ADDRS_MAX);
		n++;
	}
	if (n > 0)
		qsort(out, n, sizeof *out, by_name);
	return n;
}
