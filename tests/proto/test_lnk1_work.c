// What an enemy can measure: the work a message costs. This program stands between the code and libsodium and counts each
// call that costs time, with its bytes.
#include "proto/lnk1.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/lnk1_fixture.h"

struct work {
	uint64_t n_kx, n_base, n_open, open_bytes, n_seal, n_hashes, n_updates, hash_bytes, n_wipes, wipe_bytes;
};

// The one place of this tree where counting needs a static: the interposed functions have no context argument.
static struct work work;

static void *next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);
	if (!f)
		abort();
	return f;
}

typedef int kx_fn(unsigned char *, unsigned char *, const unsigned char *, const unsigned char *, const unsigned char *);

int crypto_kx_server_session_keys(unsigned char rx[32], unsigned char tx[32], const unsigned char s_pk[32],
	const unsigned char s_sk[32], const unsigned char c_pk[32])
{
	work.n_kx++;
	return ((kx_fn *)next("crypto_kx_server_session_keys"))(rx, tx, s_pk, s_sk, c_pk);
}

int crypto_scalarmult_base(unsigned char *q, const unsigned char *n)
{
	work.n_base++;
	return ((int (*)(unsigned char *, const unsigned char *))next("crypto_scalarmult_base"))(q, n);
}

int crypto_secretbox_open_easy(
	unsigned char *m, const unsigned char *c, unsigned long long len, const unsigned char *n, const unsigned char *k)
{
	typedef int open_fn(
		unsigned char *, const unsigned char *, unsigned long long, const unsigned char *, const unsigned char *);
	work.n_open++;
	work.open_bytes += len;
	return ((open_fn *)next("crypto_secretbox_open_easy"))(m, c, len, n, k);
}

int crypto_secretbox_easy(
	unsigned char *c, const unsigned char *m, unsigned long long len, const unsigned char *n, const unsigned char *k)
{
	typedef int seal_fn(
		unsigned char *, const unsigned char *, unsigned long long, const unsigned char *, const unsigned char *);
	work.n_seal++;
	return ((seal_fn *)next("crypto_secretbox_easy"))(c, m, len, n, k);
}

int crypto_generichash_update(crypto_generichash_state *st, const unsigned char *in, unsigned long long len)
{
	typedef int update_fn(crypto_generichash_state *, const unsigned char *, unsigned long long);
	work.n_updates++;
	work.hash_bytes += len;
	return ((update_fn *)next("crypto_generichash_update"))(st, in, len);
}

int crypto_generichash_final(crypto_generichash_state *st, unsigned char *out, const size_t len)
{
	typedef int final_fn(crypto_generichash_state *, unsigned char *, size_t);
	work.n_hashes++;
	return ((final_fn *)next("crypto_generichash_final"))(st, out, len);
}

void sodium_memzero(void *const p, const size_t len)
{
	typedef void wipe_fn(void *, size_t);
	work.n_wipes++;
	work.wipe_bytes += len;
	((wipe_fn *)next("sodium_memzero"))(p, len);
}

// m3_work: the work of refusing this fixture's M3.
static struct work m3_work(struct lnk1_fixture *f)
{
	struct lnk1_talk t;
	lnk1_talk_to_m3(&t, f, 0);
	f->n_member_asked = 0;
	work = (struct work){0};
	assert_int_equal(lnk1_feed_server(&t.server, t.m3, LNK1_M3_LEN), LNK1_FAILED);
	assert_int_equal(f->n_member_asked, 1);
	return work;
}

static void unknown_revoked_and_wrong_psk_cost_the_same(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.client.psk[0] ^= 1;
	struct work wrong_psk = m3_work(&f);
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	f.has_member = false;
	struct work revoked = m3_work(&f);
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	memset(f.member_pk, 9, LNK1_KEY_LEN);
	struct work unknown = m3_work(&f);
	assert_memory_equal(&revoked, &wrong_psk, sizeof revoked);
	assert_memory_equal(&unknown, &wrong_psk, sizeof unknown);
	// And it is the whole work: the exchange, and both opens.
	assert_int_equal(wrong_psk.n_kx, 1);
	assert_int_equal(wrong_psk.n_open, 2);
	assert_int_equal(wrong_psk.open_bytes, LNK1_M3_LEN);
	assert_true(wrong_psk.wipe_bytes >= sizeof(struct lnk1_server));
}

static struct work m1_work(struct lnk1_talk *t, enum lnk1_step want)
{
	work = (struct work){0};
	assert_int_equal(lnk1_feed_server(&t->server, t->m1, LNK1_M1_LEN), want);
	return work;
}

static void another_protocol_costs_no_arithmetic(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_begin(&t, &f, 0);
	memcpy(t.m1, "GET / HT", 8);
	struct work w = m1_work(&t, LNK1_FAILED);
	assert_int_equal(w.n_kx + w.n_base + w.n_open + w.n_hashes, 0);
}

static void a_stranger_costs_one_key_exchange(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_begin(&t, &f, 0);
	t.m1[LNK1_M1_LEN - 1] ^= 1;
	struct work w = m1_work(&t, LNK1_FAILED);
	assert_int_equal(w.n_kx, 1);
	assert_int_equal(w.n_base, 0);
	assert_int_equal(w.n_seal, 0);
	assert_int_equal(f.n_member_asked + f.n_token_asked, 0);
}

static void a_replayed_m1_costs_three_scalar_multiplications(void **state)
{
	(void)state;
	struct lnk1_fixture f;
	struct lnk1_talk t;
	lnk1_fixture_init(&f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_begin(&t, &f, 0);
	struct work w = m1_work(&t, LNK1_SEND);
	assert_int_equal(w.n_kx + w.n_base, 3);
	assert_int_equal(w.n_seal, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unknown_revoked_and_wrong_psk_cost_the_same),
		cmocka_unit_test(another_protocol_costs_no_arithmetic),
		cmocka_unit_test(a_stranger_costs_one_key_exchange),
		cmocka_unit_test(a_replayed_m1_costs_three_scalar_multiplications),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
