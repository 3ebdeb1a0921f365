#include "proto/msg.h"

#include "base/window_layout.h"
#include "proto/frame.h"
#include "tests/support/msg_samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static size_t sample(enum msg_type type, struct msg *m, uint8_t frame[MSG_ENCODED_MAX])
{
	msg_sample(type, m);
	return msg_encode(m, frame);
}

static void every_message_comes_back_as_it_went(void **state)
{
	(void)state;
	for (int t = MSG_HELLO; t <= MSG_PREPARED; t++) {
		struct msg m, got;
		struct errmsg em;
		uint8_t frame[MSG_ENCODED_MAX];
		size_t len = sample((enum msg_type)t, &m, frame);
		assert_int_equal(msg_decode(frame, len, &got, &em), OK);
		assert_memory_equal(&m, &got, sizeof m);
		assert_string_not_equal(msg_name((enum msg_type)t), "unknown");
	}
}

static void a_cut_message_is_refused_or_shorter_never_read_past_its_end(void **state)
{
	(void)state;
	for (int t = MSG_HELLO; t <= MSG_PREPARED; t++) {
		struct msg m, got;
		uint8_t frame[MSG_ENCODED_MAX];
		size_t len = sample((enum msg_type)t, &m, frame);
		for (size_t cut = 0; cut < len; cut++) {
			uint8_t *exact = malloc(cut ? cut : 1); // so that a sanitizer sees one byte too many
			memcpy(exact, frame, cut);
			(void)!msg_decode(exact, cut, &got, NULL);
			free(exact);
		}
	}
}

static void every_flipped_bit_is_survived_and_what_decodes_is_valid(void **state)
{
	(void)state;
	for (int t = MSG_HELLO; t <= MSG_PREPARED; t++) {
		struct msg m, got;
		uint8_t frame[MSG_ENCODED_MAX], again[MSG_ENCODED_MAX];
		size_t len = sample((enum msg_type)t, &m, frame);
		for (size_t bit = 0; bit < 8 * len; bit++) {
			frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
			if (msg_decode(frame, len, &got, NULL) == OK)
				assert_true(msg_encode(&got, again) <= MSG_ENCODED_MAX);
			frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
}

// refused encodes what no honest peer sends, and expects the decoder to name the field.
static void refused(const struct msg *m, const char *field)
{
	uint8_t frame[MSG_ENCODED_MAX];
	struct msg got;
	struct errmsg em;
	size_t len = msg_encode(m, frame);
	assert_int_equal(msg_decode(frame, len, &got, &em), ERR_FORMAT);
	assert_non_null(strstr(em.text, field));
}

static void a_plan_may_have_no_part_for_a_node(void **state)
{
	(void)state;
	struct msg m = {.type = MSG_PLAN, .u.plan.epoch = {12}}, got;
	struct errmsg em;
	uint8_t frame[MSG_ENCODED_MAX];
	size_t len = msg_encode(&m, frame);
	assert_int_equal(msg_decode(frame, len, &got, &em), OK);
	assert_int_equal(got.u.plan.epoch.v, 12);
	assert_int_equal(got.u.plan.n_stages, 0);
	msg_sample(MSG_PLAN, &m); // what else it says is not kept
	m.u.plan.n_stages = 0;
	len = msg_encode(&m, frame);
	assert_int_equal(msg_decode(frame, len, &got, &em), OK);
	assert_int_equal(got.u.plan.n_slots, 0);
	assert_false(got.u.plan.prev.present);
}

static void values_outside_their_range_are_refused_by_name(void **state)
{
	(void)state;
	struct msg m;
	msg_sample(MSG_PLAN, &m);
	m.u.plan.epoch.v = 0;
	refused(&m, "plan_epoch");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.stage = m.u.plan.n_stages;
	refused(&m, "stage");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.layers = layer_spans_one(7, 7);
	refused(&m, "span_ends");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.layers.at[1].end = m.u.plan.layers.at[1].begin - 1;
	refused(&m, "span_ends");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.layers.at[1].begin = m.u.plan.layers.at[0].end - 1;
	refused(&m, "span_begins");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.layers.n = 0;
	refused(&m, "span_begins");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.n_stages = 1; // one machine has one round
	m.u.plan.stage = 0;
	refused(&m, "span_begins");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.hop_credits = HOP_CREDITS_MAX / 2 + 1; // in each of two rounds
	refused(&m, "hop_credits");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.chunk_max = CHUNK_TOKENS_MAX + 1;
	refused(&m, "chunk_max");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.n_slots = SESSIONS_MAX + 1;
	refused(&m, "n_slots");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.wire = (enum wire_type)N_WIRE_TYPES;
	refused(&m, "wire");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.stream_share = WINDOW_SHARE_WHOLE + 1;
	refused(&m, "stream_share");
	m.u.plan.stream_share = UINT32_MAX;
	refused(&m, "stream_share");
	msg_sample(MSG_HELLO, &m);
	m.u.hello.n_threads = 0;
	refused(&m, "n_threads");
	msg_sample(MSG_HELLO, &m);
	m.u.hello.name[0] = '\0';
	refused(&m, "name");
	msg_sample(MSG_STEP_FAILED, &m);
	m.u.step_failed.code = (enum step_failure)5;
	refused(&m, "code");
}

// A protobuf length-delimited field.
static size_t put_field(uint8_t *out, uint32_t number, const uint8_t *data, size_t len)
{
	size_t n = 0;
	out[n++] = (uint8_t)(number << 3 | 2);
	for (size_t v = len; ; v >>= 7) {
		out[n++] = (uint8_t)(v >= 0x80 ? (v & 0x7f) | 0x80 : v);
		if (v < 0x80)
			break;
	}
	memcpy(out + n, data, len);
	return n + len;
}

static void a_group_that_does_not_fit_together_is_refused_by_name(void **state)
{
	(void)state;
	struct msg m;
	msg_sample(MSG_PLAN, &m);
	m.u.plan.group.mode = (enum split_mode)77;
	refused(&m, "group mode");
	msg_sample(MSG_PLAN, &m);
	m.u.plan.group.hub = 4;
	refused(&m, "group hub");
	msg_sample(MSG_PLAN, &m);
	memset(m.u.plan.group.shares, 0, sizeof m.u.plan.group.shares);
	refused(&m, "group shares");
	msg_sample(MSG_PLAN, &m); // a fellow beside the ring's neighbours
	m.u.plan.group.self = 1;
	m.u.plan.group.members[0] = m.u.plan.group.members[1];
	m.u.plan.group.members[1].present = false;
	memset(&m.u.plan.group.members[1], 0, sizeof m.u.plan.group.members[1]);
	refused(&m, "neighbour");
}

static void put_varint_field(uint8_t *out, size_t *n, uint32_t number, uint8_t value)
{
	out[(*n)++] = (uint8_t)(number << 3);
	out[(*n)++] = value;
}

// decode_group puts a group that no encoder of ours would write into a valid plan.
static enum err decode_group(const uint8_t *group, size_t group_len, struct errmsg *em)
{
	struct msg m, got;
	uint8_t frame[MSG_ENCODED_MAX], plan[MSG_ENCODED_MAX], out[MSG_ENCODED_MAX];
	msg_sample(MSG_PLAN, &m);
	memset(&m.u.plan.group, 0, sizeof m.u.plan.group);
	size_t len = msg_encode(&m, frame), at = 2;
	while (frame[at++] & 0x80) // behind the length of the one field, Plan
		;
	memcpy(plan, frame + at, len - at);
	size_t n = len - at;
	n += put_field(plan + n, 13, group, group_len);
	out[0] = FRAME_CONTROL;
	return msg_decode(out, 1 + put_field(out + 1, 4, plan, n), &got, em);
}

static void a_group_has_a_share_and_a_peer_for_each_member(void **state)
{
	(void)state;
	struct errmsg em;
	for (size_t n_shares = 0; n_shares <= GROUP_MEMBERS_MAX + 1; n_shares++) {
		uint8_t group[64], shares[GROUP_MEMBERS_MAX + 1];
		memset(shares, 1, sizeof shares);
		size_t n = put_field(group, 2, shares, n_shares);
		assert_int_equal(decode_group(group, n, &em), ERR_FORMAT); // without peers
		assert_non_null(strstr(em.text, n_shares < 2 || n_shares > GROUP_MEMBERS_MAX ? "group shares" : "group others"));
	}
	uint8_t group[16];
	size_t n = put_field(group, 2, (const uint8_t *)"\1\1", 2);
	put_varint_field(group, &n, 1, 2); // of two
	assert_int_equal(decode_group(group, n, &em), ERR_FORMAT);
	assert_non_null(strstr(em.text, "group member"));
}

static void text_with_control_characters_or_bad_utf8_is_refused(void **state)
{
	(void)state;
	static const char *const bad[] = {"a\x1b[2J", "a\x7f", "\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xc2\x85"};
	struct msg m;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		msg_sample(MSG_REFUSED, &m);
		strcpy(m.u.refused.reason, bad[i]);
		refused(&m, "reason");
		msg_sample(MSG_HELLO, &m);
		strcpy(m.u.hello.name, bad[i]);
		refused(&m, "name");
	}
}

static void addresses_are_host_and_port_and_nothing_else(void **state)
{
	(void)state;
	static const char *const bad[] = {"", "a", ":7433", "a:", "a:0", "a:65536", "a:999999", "a:1x", "a b:1", "tcp://a:1", "a/b:1", "$(x):1"};
	struct msg m;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		msg_sample(MSG_HELLO, &m);
		strcpy(m.u.hello.addresses.at[1], bad[i]);
		refused(&m, "addresses");
	}
}

static void sixty_four_kilobytes_of_tiny_fields_cost_bounded_memory(void **state)
{
	(void)state;
	uint8_t *hello = calloc(1, CONTROL_RECORD_MAX), *frame = calloc(1, CONTROL_RECORD_MAX + 16);
	size_t n = 0;
	while (n + 4 < CONTROL_RECORD_MAX - 16)
		n += put_field(hello + n, 6, (const uint8_t *)"", 0); // 32,000 empty addresses
	frame[0] = FRAME_CONTROL;
	size_t len = 1 + put_field(frame + 1, 1, hello, n);
	struct msg got;
	struct errmsg em;
	assert_true(len <= CONTROL_RECORD_MAX);
	assert_int_equal(msg_decode(frame, len, &got, &em), ERR_FORMAT);
	assert_int_equal(msg_decode(frame, CONTROL_RECORD_MAX + 1, &got, &em), ERR_FORMAT);
	free(hello);
	free(frame);
}

// Every text that the samples hold, in messages of all types: a NUL in the place of a character keeps all lengths as they are.
static void a_nul_in_any_text_is_refused_by_name(void **state)
{
	(void)state;
	static const struct {
		enum msg_type type;
		const char *text, *field;
	} texts[] = {
		{MSG_HELLO, "attic-pi", "name"},
		{MSG_HELLO, "avx2", "simd"},
		{MSG_HELLO, "192.0.2.7:7434", "addresses"},
		{MSG_HELLO, "[2001:db8::1]:7434", "addresses"},
		{MSG_WELCOME, "attic-pi", "name"},
		{MSG_REFUSED, "another model file", "reason"},
		{MSG_PLAN, "k\xc3\xbc" "che", "peer name"},
		{MSG_PLAN, "192.0.2.7:7434", "addresses"},
		{MSG_LOADED, "no memory", "error"},
		{MSG_STEP_FAILED, "layer 3: not finite", "error"},
		{MSG_PROFILE, "Imaginary i9", "cpu"},
		{MSG_JOIN_GRANT, "node-0a0b0c0d", "name"},
		{MSG_JOIN_GRANT, "[2001:db8::1]:7434", "addresses"},
	};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct msg m, got;
		uint8_t frame[MSG_ENCODED_MAX];
		size_t len = sample(texts[i].type, &m, frame), text_len = strlen(texts[i].text), n_found = 0;
		for (uint8_t *at = frame; (at = memmem(at, len - (size_t)(at - frame), texts[i].text, text_len)) != NULL; at += text_len) {
			n_found++;
			const size_t places[] = {0, text_len / 2, text_len - 1}; // cut there, what is left might pass
			for (size_t k = 0; k < ARRAY_LEN(places); k++) {
				struct errmsg em;
				uint8_t old = at[places[k]];
				at[places[k]] = '\0';
				assert_int_equal(msg_decode(frame, len, &got, &em), ERR_FORMAT);
				assert_non_null(strstr(em.text, texts[i].field));
				at[places[k]] = old;
			}
		}
		assert_int_equal(n_found, texts[i].type == MSG_PLAN ? 4 : 1); // both neighbours, both other members
		assert_int_equal(msg_decode(frame, len, &got, NULL), OK);
	}
}

static void keys_of_another_length_are_refused(void **state)
{
	(void)state;
	for (size_t key_len = 0; key_len <= 64; key_len++) {
		uint8_t key[64] = {0}, revoked[80], frame[128];
		size_t n = put_field(revoked, 2, key, key_len);
		frame[0] = FRAME_CONTROL;
		size_t len = 1 + put_field(frame + 1, 9, revoked, n);
		struct msg got;
		assert_int_equal(msg_decode(frame, len, &got, NULL), key_len == NODE_ID_BYTES ? OK : ERR_FORMAT);
	}
}

static void an_empty_or_unknown_body_is_refused(void **state)
{
	(void)state;
	const uint8_t empty[] = {FRAME_CONTROL}, unknown[] = {FRAME_CONTROL, 0xfa, 1, 0} /* field 31 */, other[] = {FRAME_STEP};
	struct msg got;
	assert_int_equal(msg_decode(empty, sizeof empty, &got, NULL), ERR_FORMAT);
	assert_int_equal(msg_decode(unknown, sizeof unknown, &got, NULL), ERR_FORMAT);
	assert_int_equal(msg_decode(other, sizeof other, &got, NULL), ERR_FORMAT);
	assert_int_equal(msg_decode(empty, 0, &got, NULL), ERR_FORMAT);
}

static void counts_of_a_report_are_bounded_and_agree(void **state)
{
	(void)state;
	static const struct {
		struct msg_node_report r;
		enum err want;
	} cases[] = {
		{{.disk_written = (UINT64_C(1) << 62) - 1, .next_heard = 7, .next_late = 7}, OK},
		{{.disk_written = UINT64_C(1) << 62}, ERR_FORMAT},
		{{.disk_read = UINT64_MAX}, ERR_FORMAT},
		{{.n_tokens = UINT64_C(1) << 63}, ERR_FORMAT},
		{{.next_heard = UINT64_C(1) << 62}, ERR_FORMAT},
		{{.next_heard = 7, .next_late = 8}, ERR_FORMAT},
		{{.weights = {.reader = 1, .read = (UINT64_C(1) << 62) - 1}}, OK},
		{{.weights = {.reader = 2, .stall_us = UINT64_C(1) << 62}}, ERR_FORMAT},
		{{.weights = {.reader = 2, .pinned = UINT64_MAX}}, ERR_FORMAT},
		{{.weights = {.reader = 2, .withheld = UINT64_C(1) << 62}}, ERR_FORMAT},
		{{.weights = {.reader = 3}}, ERR_FORMAT},
		{{.decode_bytes = (UINT64_C(1) << 62) - 1}, OK},
		{{.decode_us = UINT64_C(1) << 62}, ERR_FORMAT},
		{{.prefill_flop = UINT64_MAX}, ERR_FORMAT},
		{{.n_visits = UINT64_C(1) << 62}, ERR_FORMAT},
		{{.group = {.n_forwards = 1, .part_bytes = (UINT64_C(1) << 62) - 1}}, OK},
		{{.group = {.n_forwards = 1, .overhead = UINT64_C(1) << 62}}, ERR_FORMAT},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint8_t frame[MSG_ENCODED_MAX];
		struct msg m = {.type = MSG_NODE_REPORT, .u.node_report = cases[i].r}, got;
		assert_int_equal(msg_decode(frame, msg_encode(&m, frame), &got, NULL), cases[i].want);
	}
}

static void figures_that_no_machine_has_are_refused_by_name(void **state)
{
	(void)state;
	struct msg m;
#define REFUSED(field, value, words)                                                                                                                            \
	msg_sample(MSG_PROFILE, &m);                                                                                                                            \
	m.u.profile.field = (value);                                                                                                                            \
	refused(&m, words)
	REFUSED(rates[1].decode_bps, PROFILE_RATE_MAX + 1, "rate");
	REFUSED(rates[0].prefill_flops, UINT64_MAX, "rate");
	REFUSED(rates[0].type, (enum dtype)5, "unknown type"); // a hole
	REFUSED(rates[0].type, (enum dtype)(DTYPE_ID_MAX + 1), "unknown type");
	REFUSED(rates[1].type, m.u.profile.rates[0].type, "one type");
	REFUSED(memory_bytes, UINT64_C(1) << 60, "memory");
	REFUSED(cap_bytes, UINT64_MAX, "memory");
	REFUSED(visit_ns, PROFILE_VISIT_NS_MAX + 1, "visit_ns");
	REFUSED(n_threads, THREADS_MAX + 1, "n_threads");
	REFUSED(n_threads, 0, "n_threads"); // then nothing was measured
	REFUSED(reader, 3, "reader");
	REFUSED(disk_direct_bps, UINT64_C(1) << 62, "disk");
	REFUSED(at.battery_percent, 101, "battery");
	REFUSED(at.heat_mc, PROFILE_HEAT_MAX + 1, "heat");
	REFUSED(at.load_milli, UINT32_MAX, "load");
	REFUSED(at.cpu_pressure, 10001, "pressure");
	REFUSED(at.has, PROFILE_CONDITIONS + 1, "conditions");
	REFUSED(at.has, 0, "conditions"); // and yet figures
#undef REFUSED
}

static void the_list_of_rates_must_be_whole(void **state)
{
	(void)state;
	uint8_t body[300], frame[320];
	struct msg got;
	struct errmsg em;
	const uint8_t types[] = {2, 3}, decodes[] = {7};
	size_t n = put_field(body, 13, types, 2);
	n += put_field(body + n, 14, decodes, 1);
	frame[0] = FRAME_CONTROL;
	frame[1] = 0x82; // field 16: its tag takes two bytes
	frame[2] = 1;
	frame[3] = (uint8_t)n;
	memcpy(frame + 4, body, n);
	assert_int_equal(msg_decode(frame, 4 + n, &got, &em), ERR_FORMAT);
	assert_non_null(strstr(em.text, "rates"));
}

static void figures_of_a_link_are_in_order(void **state)
{
	(void)state;
	struct msg m;
	msg_sample(MSG_LINK_RTT, &m);
	m.u.link_rtt.figures.p90_us = m.u.link_rtt.figures.p50_us - 1;
	refused(&m, "p90_us");
	msg_sample(MSG_LINK_RTT, &m);
	m.u.link_rtt.figures.p99_us = LINK_RTT_MAX_US + 1;
	refused(&m, "p99_us");
	msg_sample(MSG_LINK_RTT, &m);
	m.u.link_rtt.figures.rate_bps = UINT64_MAX;
	refused(&m, "rate");
	msg_sample(MSG_LINK_RTT, &m);
	m.u.link_rtt.figures.n = UINT64_C(1) << 62;
	refused(&m, "rate");
}

static void text_copy_cuts_before_a_character_that_does_not_fit(void **state)
{
	(void)state;
	char out[4];
	text_copy(out, sizeof out, "ab\xc3\xbc");
	assert_string_equal(out, "ab");
	text_copy(out, sizeof out, "abc");
	assert_string_equal(out, "abc");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_comes_back_as_it_went),
		cmocka_unit_test(a_cut_message_is_refused_or_shorter_never_read_past_its_end),
		cmocka_unit_test(every_flipped_bit_is_survived_and_what_decodes_is_valid),
		cmocka_unit_test(a_plan_may_have_no_part_for_a_node),
		cmocka_unit_test(values_outside_their_range_are_refused_by_name),
		cmocka_unit_test(a_group_that_does_not_fit_together_is_refused_by_name),
		cmocka_unit_test(a_group_has_a_share_and_a_peer_for_each_member),
		cmocka_unit_test(text_with_control_characters_or_bad_utf8_is_refused),
		cmocka_unit_test(addresses_are_host_and_port_and_nothing_else),
		cmocka_unit_test(sixty_four_kilobytes_of_tiny_fields_cost_bounded_memory),
		cmocka_unit_test(a_nul_in_any_text_is_refused_by_name),
		cmocka_unit_test(keys_of_another_length_are_refused),
		cmocka_unit_test(an_empty_or_unknown_body_is_refused),
		cmocka_unit_test(counts_of_a_report_are_bounded_and_agree),
		cmocka_unit_test(figures_that_no_machine_has_are_refused_by_name),
		cmocka_unit_test(the_list_of_rates_must_be_whole),
		cmocka_unit_test(figures_of_a_link_are_in_order),
		cmocka_unit_test(text_copy_cuts_before_a_character_that_does_not_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
