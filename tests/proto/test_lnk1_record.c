// The record layer under an enemy who owns the wire, and under a host that slips.
#include "proto/lnk1.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "tests/support/lnk1_fixture.h"

#define MAX_RECORD (4096 + LNK1_RECORD_EXTRA)

struct ends {
	struct lnk1_fixture f;
	struct lnk1_talk t;
	struct lnk1_stream *tx, *rx;   // client to server
	struct lnk1_stream *stx, *crx; // server to client
};

static void make_ends(struct ends *e)
{
	lnk1_fixture_init(&e->f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_whole(&e->t, &e->f, 0);
	e->tx = &e->t.client_link.tx;
	e->rx = &e->t.server_link.rx;
	e->stx = &e->t.server_link.tx;
	e->crx = &e->t.client_link.rx;
}

// open_record: head and body in one go.
static enum err open_record(struct lnk1_stream *rx, const uint8_t *record, uint8_t *plain, uint32_t *len)
{
	size_t body_len;
	*len = 0;
	enum err e = lnk1_open_head(rx, record, &body_len);
	return e == OK ? lnk1_open_body(rx, record + LNK1_RECORD_HEAD, plain, len) : e;
}

static void seal_text(struct lnk1_stream *tx, const char *text, uint8_t *record)
{
	assert_int_equal(lnk1_seal(tx, (const uint8_t *)text, (uint32_t)strlen(text), record), OK);
}

static void both_directions_carry_records(void **state)
{
	(void)state;
	struct ends e;
	uint8_t record[MAX_RECORD], plain[4096];
	uint32_t len;
	make_ends(&e);
	for (int i = 0; i < 100; i++) {
		seal_text(e.tx, "there", record);
		assert_int_equal(open_record(e.rx, record, plain, &len), OK);
		assert_int_equal(len, 5);
		assert_memory_equal(plain, "there", 5);
		seal_text(e.stx, "back", record);
		assert_int_equal(open_record(e.crx, record, plain, &len), OK);
		assert_memory_equal(plain, "back", 4);
	}
}

static void a_record_is_sealed_and_opened_in_place(void **state)
{
	(void)state;
	struct ends a, b;
	uint8_t record[MAX_RECORD], in_place[MAX_RECORD], plain[4000];
	size_t body_len;
	uint32_t len;
	make_ends(&a);
	make_ends(&b);
	lnk1_fill(plain, sizeof plain, 3);
	assert_int_equal(lnk1_seal(a.tx, plain, sizeof plain, record), OK);
	memcpy(in_place + LNK1_RECORD_PLAIN_AT, plain, sizeof plain);
	assert_int_equal(lnk1_seal(b.tx, in_place + LNK1_RECORD_PLAIN_AT, sizeof plain, in_place), OK);
	assert_memory_equal(in_place, record, sizeof plain + LNK1_RECORD_EXTRA);
	assert_int_equal(lnk1_open_head(b.rx, in_place, &body_len), OK);
	assert_int_equal(body_len, sizeof plain + 17);
	assert_int_equal(lnk1_open_body(b.rx, in_place + LNK1_RECORD_HEAD, in_place + LNK1_RECORD_PLAIN_AT, &len), OK);
	assert_int_equal(len, sizeof plain);
	assert_memory_equal(in_place + LNK1_RECORD_PLAIN_AT, plain, sizeof plain);
}

// Every bit of a record, the length's included, and the output untouched each time.
static void a_flipped_bit_closes_and_releases_no_plaintext(void **state)
{
	(void)state;
	struct ends e;
	uint8_t record[64], canary[64], plain[64];
	uint32_t len;
	make_ends(&e);
	seal_text(e.tx, "a hidden state, say", record);
	size_t record_len = 19 + LNK1_RECORD_EXTRA;
	memset(canary, 0xc5, sizeof canary);
	for (size_t bit = 0; bit < 8 * record_len; bit++) {
		struct lnk1_stream rx = *e.rx;
		rx.record_max = 40; // a longer length is refused by its head, so that the body stays within this buffer
		memcpy(plain, canary, sizeof plain);
		record[bit / 8] ^= (uint8_t)(1 << (bit % 8));
		enum err err = open_record(&rx, record, plain, &len);
		record[bit / 8] ^= (uint8_t)(1 << (bit % 8));
		assert_true(err == ERR_AUTH || err == ERR_LIMIT);
		assert_memory_equal(plain, canary, sizeof plain);
		assert_int_equal(len, 0);
		// The untouched record does not bring the link back.
		assert_int_equal(open_record(&rx, record, plain, &len), ERR_CLOSED);
		assert_true(sodium_is_zero((const uint8_t *)&rx.secret, sizeof rx.secret));
	}
	assert_int_equal(open_record(e.rx, record, plain, &len), OK);
}

// The tag covers the length: a cut record under its true, shorter length does not open, nor do two halves.
static void the_length_is_inside_the_associated_data(void **state)
{
	(void)state;
	struct ends e;
	uint8_t record[64], plain[64];
	uint32_t len;
	make_ends(&e);
	seal_text(e.tx, "twelve bytes", record);
	for (uint32_t claimed = 0; claimed < 24; claimed++) {
		if (claimed == 12)
			continue;
		struct lnk1_stream rx = *e.rx;
		store_u32(record, claimed);
		assert_int_equal(open_record(&rx, record, plain, &len), ERR_AUTH);
	}
	// The right ciphertext and length, but other associated data.
	store_u32(record, 12);
	for (size_t i = LNK1_RECORD_HEAD; i < sizeof e.rx->ad; i++) {
		struct lnk1_stream rx = *e.rx;
		rx.ad[i] ^= 1;
		assert_int_equal(open_record(&rx, record, plain, &len), ERR_AUTH);
	}
}

static void the_length_is_checked_before_anything_else(void **state)
{
	(void)state;
	static const uint32_t too_long[] = {0x40001, 0x40000 + 17, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
	struct ends e;
	uint8_t head[LNK1_RECORD_HEAD];
	size_t body_len;
	make_ends(&e);
	for (size_t i = 0; i < ARRAY_LEN(too_long); i++) {
		struct lnk1_stream rx = *e.rx;
		store_u32(head, too_long[i]);
		assert_int_equal(lnk1_open_head(&rx, head, &body_len), ERR_LIMIT);
		assert_int_equal(body_len, 0);
		assert_int_equal(rx.state, LNK1_STREAM_DEAD);
	}
	store_u32(head, 0x40000);
	assert_int_equal(lnk1_open_head(e.rx, head, &body_len), OK);
	assert_int_equal(body_len, 0x40000 + 17);
}

static void the_longest_record_passes_and_one_more_byte_does_not(void **state)
{
	(void)state;
	struct ends e;
	uint32_t max = 0x40000, len;
	make_ends(&e);
	uint8_t *plain = calloc(1, max + 1), *record = calloc(1, max + 1 + LNK1_RECORD_EXTRA);
	assert_non_null(plain);
	assert_non_null(record);
	assert_int_equal(lnk1_seal(e.tx, plain, max + 1, record), ERR_RANGE);
	assert_int_equal(lnk1_seal(e.tx, plain, 0, record), ERR_RANGE);
	assert_true(sodium_is_zero(record, max + 1));
	assert_int_equal(lnk1_seal(e.tx, plain, max, record), OK);
	assert_int_equal(open_record(e.rx, record, plain, &len), OK);
	assert_int_equal(len, max);
	free(plain);
	free(record);
}

static void replay_reorder_and_loss_close(void **state)
{
	(void)state;
	struct ends e;
	uint8_t one[64], two[64], plain[64];
	uint32_t len;
	make_ends(&e);
	seal_text(e.tx, "one", one);
	seal_text(e.tx, "two", two);
	struct lnk1_stream rx = *e.rx;
	assert_int_equal(open_record(&rx, two, plain, &len), ERR_AUTH); // the first was dropped
	rx = *e.rx;
	assert_int_equal(open_record(&rx, one, plain, &len), OK);
	assert_int_equal(open_record(&rx, one, plain, &len), ERR_AUTH); // replayed
}

static void a_record_sent_back_to_its_sender_closes(void **state)
{
	(void)state;
	struct ends e;
	uint8_t record[64], plain[64];
	uint32_t len;
	make_ends(&e);
	assert_memory_not_equal(e.tx->secret.k, e.crx->secret.k, sizeof e.tx->secret.k);
	seal_text(e.tx, "mirror", record);
	assert_int_equal(open_record(e.crx, record, plain, &len), ERR_AUTH);
	// Even had both directions one key, the direction byte would tell them apart.
	make_ends(&e);
	e.crx->secret = e.tx->secret;
	seal_text(e.tx, "mirror", record);
	assert_int_equal(open_record(e.crx, record, plain, &len), ERR_AUTH);
}

static void a_record_of_another_link_closes(void **state)
{
	(void)state;
	struct ends a, b;
	uint8_t record[64], plain[64];
	uint32_t len;
	make_ends(&a);
	lnk1_fixture_init(&b.f, LNK1_MEMBER, LNK1_DATA);
	lnk1_talk_whole(&b.t, &b.f, 1);
	seal_text(a.tx, "elsewhere", record);
	assert_int_equal(open_record(&b.t.server_link.rx, record, plain, &len), ERR_AUTH);
}

static void final_is_the_only_orderly_end(void **state)
{
	(void)state;
	struct ends e;
	uint8_t record[64], final[LNK1_RECORD_EXTRA], plain[64];
	uint32_t len = 99;
	size_t body_len;
	make_ends(&e);
	seal_text(e.tx, "last", record);
	assert_int_equal(open_record(e.rx, record, plain, &len), OK);
	assert_false(lnk1_ended_well(e.rx)); // an end of stream here is a failure
	assert_int_equal(lnk1_seal_final(e.tx, final), OK);
	assert_int_equal(load_u32(final), 0);
	assert_int_equal(lnk1_open_head(e.rx, final, &body_len), OK);
	assert_int_equal(body_len, 17);
	assert_false(lnk1_ended_well(e.rx)); // nor is half of it an end
	assert_int_equal(lnk1_open_body(e.rx, final + LNK1_RECORD_HEAD, plain, &len), OK);
	assert_int_equal(len, 0);
	assert_true(lnk1_ended_well(e.rx));
	// Nothing goes after it, either way.
	assert_int_equal(lnk1_seal(e.tx, plain, 1, record), ERR_CLOSED);
	assert_int_equal(lnk1_seal_final(e.tx, final), ERR_CLOSED);
	assert_int_equal(lnk1_open_head(e.rx, final, &body_len), ERR_CLOSED);
	assert_true(lnk1_ended_well(e.rx));
}

// What a member with the right keys but a foreign program might send.
static void seal_with_tag(struct lnk1_stream *tx, const uint8_t *plain, uint32_t len, uint8_t tag, uint8_t *record)
{
	store_u32(tx->ad, len);
	memcpy(record, tx->ad, LNK1_RECORD_HEAD);
	assert_int_equal(crypto_secretstream_xchacha20poly1305_push(
				 &tx->secret, record + LNK1_RECORD_HEAD, NULL, plain, len, tx->ad, sizeof tx->ad, tag),
		0);
}

static void other_tags_close_and_release_nothing(void **state)
{
	(void)state;
	for (unsigned tag = 0; tag < 256; tag++) {
		for (uint32_t len = 0; len < 12; len += 11) {
			bool allowed = len == 0 ? tag == 3 : tag == 0 || tag == 2;
			struct ends e;
			uint8_t record[64], plain[11];
			uint32_t got;
			make_ends(&e);
			seal_with_tag(e.tx, (const uint8_t *)"hello world", len, (uint8_t)tag, record);
			memset(plain, 0, sizeof plain);
			assert_int_equal(open_record(e.rx, record, plain, &got), allowed ? OK : ERR_AUTH);
			assert_int_equal(e.rx->state == LNK1_STREAM_DEAD, !allowed);
			if (!allowed)
				assert_true(sodium_is_zero(plain, sizeof plain));
		}
	}
}

// carries_rekey opens the next record at the other end and says whether it had TAG_REKEY.
static bool carries_rekey(struct lnk1_stream *rx, const uint8_t *record, uint32_t want_len)
{
	uint8_t key[32], plain[4096];
	uint32_t len;
	memcpy(key, rx->secret.k, sizeof key);
	assert_int_equal(open_record(rx, record, plain, &len), OK);
	assert_int_equal(len, want_len);
	return memcmp(key, rx->secret.k, sizeof key) != 0;
}

static void the_record_that_reaches_the_count_rekeys(void **state)
{
	(void)state;
	struct ends e;
	uint8_t record[MAX_RECORD], plain[1] = {7};
	make_ends(&e);
	assert_int_equal(e.tx->rekey_records, 65536);
	assert_true(e.tx->rekey_bytes == UINT64_C(1) << 30);
	e.tx->rekey_records = 5;
	for (int i = 1; i <= 20; i++) {
		assert_int_equal(lnk1_seal(e.tx, plain, 1, record), OK);
		assert_int_equal(carries_rekey(e.rx, record, 1), i % 5 == 0);
	}
}

static void the_record_that_reaches_the_bytes_rekeys(void **state)
{
	(void)state;
	struct ends e;
	uint8_t record[MAX_RECORD], plain[1000] = {0};
	make_ends(&e);
	e.tx->rekey_bytes = 3000;
	for (int i = 1; i <= 9; i++) {
		assert_int_equal(lnk1_seal(e.tx, plain, 1000, record), OK);
		assert_int_equal(carries_rekey(e.rx, record, 1000), i % 3 == 0);
	}
	// 2,999 do not reach it; both counters begin again after the tag.
	assert_int_equal(lnk1_seal(e.tx, plain, 1000, record), OK);
	assert_false(carries_rekey(e.rx, record, 1000));
	assert_int_equal(lnk1_seal(e.tx, plain, 1000, record), OK);
	assert_false(carries_rekey(e.rx, record, 1000));
	assert_int_equal(lnk1_seal(e.tx, plain, 999, record), OK);
	assert_false(carries_rekey(e.rx, record, 999));
	assert_int_equal(lnk1_seal(e.tx, plain, 1, record), OK);
	assert_true(carries_rekey(e.rx, record, 1));
	assert_int_equal(e.tx->n_records, 0);
	assert_true(e.tx->n_bytes == 0);
}

static void the_default_count_is_kept_for_two_to_the_sixteen_records(void **state)
{
	(void)state;
	struct ends e;
	uint8_t record[64], plain[1] = {7};
	make_ends(&e);
	for (int i = 1; i <= 65537; i++) {
		assert_int_equal(lnk1_seal(e.tx, plain, 1, record), OK);
		assert_int_equal(carries_rekey(e.rx, record, 1), i == 65536);
	}
}

static void steps_out_of_order_close(void **state)
{
	(void)state;
	struct ends e;
	uint8_t record[64], plain[64];
	uint32_t len;
	size_t body_len;
	make_ends(&e);
	seal_text(e.tx, "x", record);
	struct lnk1_stream rx = *e.rx;
	assert_int_equal(lnk1_open_body(&rx, record + LNK1_RECORD_HEAD, plain, &len), ERR_CLOSED); // no head before it
	rx = *e.rx;
	assert_int_equal(lnk1_open_head(&rx, record, &body_len), OK);
	assert_int_equal(lnk1_open_head(&rx, record, &body_len), ERR_CLOSED); // two heads
	assert_int_equal(body_len, 0);
	lnk1_stream_deinit(e.rx);
	assert_int_equal(lnk1_open_head(e.rx, record, &body_len), ERR_CLOSED);
	lnk1_stream_deinit(e.tx);
	assert_int_equal(lnk1_seal(e.tx, plain, 1, record), ERR_CLOSED);
}

// Two threads on one stream would use one nonce twice. A call that finds another inside aborts: it is our own bug.
static void one_stream_in_two_threads_aborts(void **state)
{
	(void)state;
	for (int which = 0; which < 2; which++) {
		struct ends e;
		make_ends(&e);
		fflush(NULL);
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			uint8_t record[64] = {0};
			size_t body_len;
			struct rlimit none = {0};
			setrlimit(RLIMIT_CORE, &none);
			close(2);
			atomic_store(which ? &e.rx->busy : &e.tx->busy, true);
			enum err err = which ? lnk1_open_head(e.rx, record, &body_len)
					     : lnk1_seal(e.tx, (const uint8_t *)"x", 1, record);
			_exit(err == OK ? 3 : 4);
		}
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGABRT);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_directions_carry_records),
		cmocka_unit_test(a_record_is_sealed_and_opened_in_place),
		cmocka_unit_test(a_flipped_bit_closes_and_releases_no_plaintext),
		cmocka_unit_test(the_length_is_inside_the_associated_data),
		cmocka_unit_test(the_length_is_checked_before_anything_else),
		cmocka_unit_test(the_longest_record_passes_and_one_more_byte_does_not),
		cmocka_unit_test(replay_reorder_and_loss_close),
		cmocka_unit_test(a_record_sent_back_to_its_sender_closes),
		cmocka_unit_test(a_record_of_another_link_closes),
		cmocka_unit_test(final_is_the_only_orderly_end),
		cmocka_unit_test(other_tags_close_and_release_nothing),
		cmocka_unit_test(the_record_that_reaches_the_count_rekeys),
		cmocka_unit_test(the_record_that_reaches_the_bytes_rekeys),
		cmocka_unit_test(the_default_count_is_kept_for_two_to_the_sixteen_records),
		cmocka_unit_test(steps_out_of_order_close),
		cmocka_unit_test(one_stream_in_two_threads_aborts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
