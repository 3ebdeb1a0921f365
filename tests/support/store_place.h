// A coordinator's store in a directory of its own, records made of numbers, and files filled with them. Unprefixed and inline: a test file
// includes it once and reads as if it were its own.
#ifndef HEARTH_TESTS_SUPPORT_STORE_PLACE_H
#define HEARTH_TESTS_SUPPORT_STORE_PLACE_H

#include "coordinator/shell/coord_store.h"
#include "proto/lnk1.h"
#include "tests/support/scratch.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PATIENCE_NS INT64_C(20000000000)
#define DONES_MAX 256

struct place {
	char dir[SCRATCH_CAP], path[SCRATCH_CAP + 32];
	struct loop loop;
	struct coord_store *store;
	struct coord_restored restored;
	struct errmsg em;
	int n_dones;
	uint32_t ids[DONES_MAX];
	enum err errs[DONES_MAX];
	char text[ERRMSG_CAP]; // of the last
	int n_wanted;
};

static const uint8_t cluster_id[CLUSTER_ID_BYTES] = "a cluster's name";

static inline void on_done(void *ctx, uint32_t id, enum err err, const char *text)
{
	struct place *p = ctx;
	assert_true(p->n_dones < DONES_MAX);
	p->ids[p->n_dones] = id;
	p->errs[p->n_dones++] = err;
	snprintf(p->text, sizeof p->text, "%s", text);
}

static inline int make_place(void **state)
{
	struct place *p = calloc(1, sizeof *p);
	if (p == NULL || sodium_init() < 0 || loop_open(&p->loop, NULL) != OK)
		return -1;
	if (!scratch_open(p->dir))
		return -1;
	snprintf(p->path, sizeof p->path, "%s/cluster.db", p->dir);
	*state = p;
	return 0;
}

static inline int drop_place(void **state)
{
	struct place *p = *state;
	coord_store_close(p->store);
	loop_close(&p->loop);
	int rc = scratch_remove(p->dir);
	free(p);
	return rc;
}

static inline enum err try_open(struct place *p)
{
	memset(&p->em, 0, sizeof p->em);
	return coord_store_open(p->path, cluster_id, &p->loop, on_done, p, &p->store, &p->restored, &p->em);
}

static inline void opened(struct place *p)
{
	enum err e = try_open(p);
	if (e != OK)
		print_message("%s\n", p->em.text);
	assert_int_equal(e, OK);
	assert_memory_equal(p->restored.cluster_id, cluster_id, CLUSTER_ID_BYTES);
}

static inline void closed(struct place *p)
{
	coord_store_close(p->store);
	p->store = NULL;
}

static inline bool has_dones(void *ctx)
{
	struct place *p = ctx;
	return p->n_dones >= p->n_wanted;
}

static inline void wait_dones(struct place *p, int n)
{
	p->n_wanted = n;
	assert_true(loop_run_until(&p->loop, has_dones, p, loop_clock_ns() + PATIENCE_NS));
}

static inline enum err written(struct place *p, const struct coord_write *w)
{
	int n = p->n_dones;
	coord_store_submit(p->store, w);
	wait_dones(p, n + 1);
	assert_int_equal(p->ids[n], w->id);
	return p->errs[n];
}

// ---- records

static inline void fill(uint8_t *out, size_t len, uint32_t seed, uint8_t what)
{
	for (size_t i = 0; i < len; i += 32) {
		uint8_t block[32], key[5] = {(uint8_t)seed, (uint8_t)(seed >> 8), (uint8_t)(seed >> 16), what, (uint8_t)i};
		crypto_generichash(block, sizeof block, key, sizeof key, NULL, 0);
		memcpy(out + i, block, len - i < 32 ? len - i : 32);
	}
}

static inline struct member_record member(uint32_t n)
{
	struct member_record r = {0};
	fill(r.public_key, KEY_BYTES, n, 'k');
	fill(r.psk, KEY_BYTES, n, 'p');
	lnk1_node_id(r.public_key, r.id.b);
	snprintf(r.name, sizeof r.name, "k\xc3\xbc" "che-%u", n);
	return r;
}

static inline struct invite_record invite(uint32_t n)
{
	struct invite_record r = {.expires_s = 1700000000 + n, .n_failures = (int32_t)(n % 5)};
	fill(r.token_id, TOKEN_ID_BYTES, n, 't');
	fill(r.secret, KEY_BYTES, n, 's');
	return r;
}

static inline struct coord_write put_invite(uint32_t id, struct invite_record r)
{
	return (struct coord_write){.id = id, .op = STORE_INVITE, .invite = r};
}

// bind makes member n by invite n.
static inline struct coord_write bind_to(uint32_t id, uint32_t n)
{
	struct coord_write w = {.id = id, .op = STORE_BIND, .member = member(n), .invite = invite(n)};
	w.invite.bound = true;
	w.invite.bound_to = w.member.id;
	return w;
}

static inline struct coord_write used_up(uint32_t id, uint32_t n)
{
	return (struct coord_write){.id = id, .op = STORE_INVITE_DELETE, .invite = invite(n)};
}

static inline struct coord_write revocation(uint32_t id, uint32_t n, uint64_t epoch)
{
	return (struct coord_write){.id = id, .op = STORE_REVOKE, .member = {.id = member(n).id}, .member_epoch = {epoch}};
}

static inline void same_member(const struct member_record *a, const struct member_record *b)
{
	assert_memory_equal(a->id.b, b->id.b, NODE_ID_BYTES);
	assert_memory_equal(a->public_key, b->public_key, KEY_BYTES);
	assert_memory_equal(a->psk, b->psk, KEY_BYTES);
	assert_string_equal(a->name, b->name);
}

static const struct invite_record *find_invite(const struct coord_restored *r, const struct invite_record *want)
{
	for (int32_t i = 0; i < r->n_invites; i++)
		if (memcmp(r->invites[i].token_id, want->token_id, TOKEN_ID_BYTES) == 0)
			return &r->invites[i];
	return NULL;
}

static inline void same_invite(const struct coord_restored *r, const struct invite_record *want)
{
	const struct invite_record *got = find_invite(r, want);
	assert_non_null(got);
	assert_memory_equal(got->secret, want->secret, KEY_BYTES);
	assert_int_equal(got->expires_s, want->expires_s);
	assert_int_equal(got->n_failures, want->n_failures);
	assert_int_equal(got->bound, want->bound);
	assert_memory_equal(got->bound_to.b, want->bound_to.b, NODE_ID_BYTES);
}

// filled makes a file with members 1 to n, and invites 100 and 101, closed.
static inline void filled(struct place *p, uint32_t n)
{
	opened(p);
	for (uint32_t i = 1; i <= n; i++) {
		struct coord_write w = bind_to(i, i), u = used_up(i, i);
		assert_int_equal(written(p, &w), OK);
		assert_int_equal(written(p, &u), OK);
	}
	struct coord_write a = put_invite(100, invite(100)), b = put_invite(101, invite(101));
	assert_int_equal(written(p, &a), OK);
	assert_int_equal(written(p, &b), OK);
	closed(p);
}

static inline void still_filled(struct place *p, uint32_t n)
{
	assert_int_equal(p->restored.n_members, n);
	for (uint32_t i = 1; i <= n; i++) {
		struct member_record want = member(i);
		same_member(&p->restored.members[i - 1], &want);
	}
	assert_int_equal(p->restored.n_invites, 2);
	struct invite_record a = invite(100), b = invite(101);
	same_invite(&p->restored, &a);
	same_invite(&p->restored, &b);
}

#define IN_PLACE(f) cmocka_unit_test_setup_teardown(f, make_place, drop_place)

#endif
