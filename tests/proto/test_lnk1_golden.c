// Byte for byte what the independent implementation (tests/lnk1/lnk1.py) makes of the same inputs: tests/golden/lnk1_transcript.txt,
// one "MODE NAME HEX" per line.
#include "proto/lnk1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/lnk1_symmetric.h"
#include "tests/support/lnk1_fixture.h"

#define GOLDEN "tests/golden/lnk1_transcript.txt"
#define N_LINES 60

static const uint32_t record_lens[] = {1, 15, 16, 17, 63, 64, 65, 300, 5, 128, 250};

struct transcript {
	FILE *file;
	const char *mode;
	int n_lines;
};

static void expect(struct transcript *t, const char *name, const uint8_t *bytes, size_t len)
{
	char want[1024], got[1024], hex[900];
	assert_non_null(fgets(want, sizeof want, t->file));
	assert_true(2 * len < sizeof hex);
	sodium_bin2hex(hex, sizeof hex, bytes, len);
	snprintf(got, sizeof got, "%s %s %s\n", t->mode, name, hex);
	assert_string_equal(got, want);
	t->n_lines++;
}

static void check_messages(struct transcript *t, const struct lnk1_talk *talk)
{
	expect(t, "m1", talk->m1, sizeof talk->m1);
	expect(t, "m2", talk->m2, sizeof talk->m2);
	expect(t, "m3", talk->m3, sizeof talk->m3);
	expect(t, "m4", talk->m4, sizeof talk->m4);
	uint8_t key[LNK1_KEY_LEN];
	lnk1_derive(&talk->server.sym, "c2s", key);
	expect(t, "key_c2s", key, sizeof key);
	lnk1_derive(&talk->server.sym, "s2c", key);
	expect(t, "key_s2c", key, sizeof key);
}

// Seals what the golden file holds, and opens it at the other end.
static void check_direction(struct transcript *t, const char *dir, unsigned fill, struct lnk1_stream *tx, struct lnk1_stream *rx)
{
	uint8_t plain[300], record[300 + LNK1_RECORD_EXTRA], opened[300];
	char name[32];
	tx->rekey_records = 3;
	tx->rekey_bytes = 300;
	for (unsigned i = 0; i <= ARRAY_LEN(record_lens); i++) {
		uint32_t len = i < ARRAY_LEN(record_lens) ? record_lens[i] : 0, opened_len;
		size_t body_len;
		lnk1_fill(plain, len, fill + i);
		assert_int_equal(len > 0 ? lnk1_seal(tx, plain, len, record) : lnk1_seal_final(tx, record), OK);
		snprintf(name, sizeof name, "%s_%u", dir, i);
		expect(t, name, record, len + LNK1_RECORD_EXTRA);
		assert_int_equal(lnk1_open_head(rx, record, &body_len), OK);
		assert_int_equal(lnk1_open_body(rx, record + LNK1_RECORD_HEAD, opened, &opened_len), OK);
		assert_int_equal(opened_len, len);
		assert_memory_equal(opened, plain, len);
	}
	assert_true(lnk1_ended_well(rx));
}

static void check_mode(struct transcript *t, enum lnk1_mode mode, enum lnk1_kind kind)
{
	struct lnk1_fixture f;
	struct lnk1_talk talk;
	lnk1_fixture_init(&f, mode, kind);
	lnk1_talk_to_m4(&talk, &f, 0);
	check_messages(t, &talk);
	assert_int_equal(lnk1_feed_client(&talk.client, talk.m4, sizeof talk.m4), LNK1_DONE);
	lnk1_client_finish(&talk.client, &talk.client_link);
	lnk1_server_finish(&talk.server, &talk.server_link);
	check_direction(t, "c2s", 20, &talk.client_link.tx, &talk.server_link.rx);
	check_direction(t, "s2c", 120, &talk.server_link.tx, &talk.client_link.rx);
}

static void every_byte_is_that_of_the_independent_implementation(void **state)
{
	(void)state;
	struct transcript t = {.file = fopen(GOLDEN, "r"), .mode = "member"};
	assert_non_null(t.file);
	check_mode(&t, LNK1_MEMBER, LNK1_DATA);
	t.mode = "join";
	check_mode(&t, LNK1_JOIN, LNK1_CONTROL);
	assert_int_equal(t.n_lines, N_LINES);
	assert_int_equal(fgetc(t.file), EOF);
	fclose(t.file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_is_that_of_the_independent_implementation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
