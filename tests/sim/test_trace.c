// Trace files: the four formats, what is wrong with them and where, and looking things up.
#include "sim/trace_set.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S INT64_C(1000000000)

struct file {
	struct arena arena;
	struct trace t;
	struct errmsg em;
	enum err e;
};

// read_bytes reads a copy that ends where the text does, so that a sanitizer sees a byte too many.
static struct file read_bytes(const char *text, size_t len, enum trace_format f)
{
	struct file x = {.e = OK};
	char *copy = malloc(len + (len == 0));
	assert_non_null(copy);
	memcpy(copy, text, len);
	x.e = trace_open("home.txt", copy, len, f, &x.arena, &x.t, &x.em);
	if (x.e == OK) {
		assert_true(x.arena.used == x.arena.cap);
		assert_true(x.t.n >= 1);
	} else {
		assert_true(x.em.text[0] != '\0');
		assert_null(x.arena.data);
	}
	free(copy);
	return x;
}

static struct file read_text(const char *text, enum trace_format want)
{
	struct file x = read_bytes(text, strlen(text), TRACE_AUTO);
	if (x.e != OK)
		print_error("%s\n", x.em.text);
	assert_int_equal(x.e, OK);
	assert_int_equal(x.t.format, want);
	return x;
}

static void assert_refused(enum trace_format f, const char *text, const char *message)
{
	struct file x = read_bytes(text, strlen(text), f);
	assert_int_not_equal(x.e, OK);
	assert_string_equal(x.em.text, message);
}

static void assert_sample(const struct trace *t, size_t i, int64_t t_ns, int64_t rtt_ns, uint64_t rate_bps)
{
	assert_true(i < t->n);
	assert_int_equal(t->samples[i].t_ns, t_ns);
	assert_int_equal(t->samples[i].rtt_ns, rtt_ns);
	assert_int_equal(t->samples[i].rate_bps, rate_bps);
}

// CSV

static void a_csv_has_its_columns_in_any_order_and_others_beside(void **state)
{
	(void)state;
	struct file x = read_text("# made by hand\r\n\r\n lost , note,t_s,rate_mbit,rtt_ms\r\n0,a,10.5,,2.25\r\n# between\r\n1,b,10.75,40,\r\n,c,11,0.5,1e-3\r\n", TRACE_CSV);
	assert_int_equal(x.t.n, 3);
	assert_int_equal(x.t.n_lost, 1);
	assert_sample(&x.t, 0, 0, 2250 * US, 0);
	assert_sample(&x.t, 1, 250 * MS, -1, 40000000);
	assert_sample(&x.t, 2, 500 * MS, 1 * US, 500000);
	assert_int_equal(x.t.period_ns, 750 * MS);
	arena_close(&x.arena);
	x = read_text("oneway_ms,t_s\n1.5,0", TRACE_CSV);
	assert_sample(&x.t, 0, 0, 3 * MS, 0);
	assert_int_equal(x.t.period_ns, 1 * S);
	arena_close(&x.arena);
}

static void decimals_are_exact_to_the_nanosecond(void **state)
{
	(void)state;
	struct file x = read_text("t_s,rtt_ms\n0,0.0000005\n1e0,.1\n1.000000001,2.\n1.0000000014999,12345.678901\n"
				  "1.0000000015,00000000000000000000000000000.00000100000000000000000000000000000000001\n20e-1,5E+2\n"
				  "123456789.123456789,0.00000000000000000000000000001\n1.23456789123456789e9,0\n", TRACE_CSV);
	static const int64_t t[] = {0, 1 * S, 1 * S + 1, 1 * S + 1, 1 * S + 2, 2 * S, 123456789123456789, 1234567891234567890};
	static const int64_t rtt[] = {1, 100 * US, 2 * MS, 12345678901, 1, 500 * MS, 0, 0};
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		assert_sample(&x.t, i, t[i], rtt[i], 0);
	arena_close(&x.arena);
}

static void a_csv_error_names_file_and_line(void **state)
{
	(void)state;
	static const struct {
		const char *text, *message;
	} bad[] = {
		{"rtt_ms\n1\n", "home.txt:1: no column t_s (want t_s, and rtt_ms or oneway_ms)"},
		{"# x\n\nt_s,x\n", "home.txt:3: want one of the columns rtt_ms and oneway_ms, got neither"},
		{"t_s,rtt_ms,oneway_ms\n", "home.txt:1: want one of the columns rtt_ms and oneway_ms, got both"},
		{"t_s,rtt_ms,t_s\n", "home.txt:1: column t_s stands here twice"},
		{"t_s,rtt_ms\n0,1\n1\n", "home.txt:3: 1 field, want 2 as in the header"},
		{"t_s,rtt_ms\n0,1,2\n", "home.txt:2: 3 fields, want 2 as in the header"},
		{"t_s,rtt_ms\n0,abc\n", "home.txt:2: rtt_ms \"abc\" is not a number"},
		{"t_s,rtt_ms\n0,1e\n", "home.txt:2: rtt_ms \"1e\" is not a number"},
		{"t_s,rtt_ms\n0,.\n", "home.txt:2: rtt_ms \".\" is not a number"},
		{"t_s,rtt_ms\n0,1.2.3\n", "home.txt:2: rtt_ms \"1.2.3\" is not a number"},
		{"t_s,rtt_ms\n0,0x10\n", "home.txt:2: rtt_ms \"0x10\" is not a number"},
		{"t_s,rtt_ms\n0,nan\n", "home.txt:2: rtt_ms \"nan\" is not a number"},
		{"t_s,rtt_ms\n0,inf\n", "home.txt:2: rtt_ms \"inf\" is not a number"},
		{"t_s,rtt_ms\n0,-1\n", "home.txt:2: rtt_ms \"-1\" is negative"},
		{"t_s,rtt_ms\n0,600000.000001\n", "home.txt:2: rtt_ms \"600000.000001\" is too large"},
		{"t_s,rtt_ms\n0,1e999999999999\n", "home.txt:2: rtt_ms \"1e999999999999\" is too large"},
		{"t_s,rtt_ms\n99999999999999999999999999,1\n", "home.txt:2: t_s \"99999999999999999999999999\" is too large"},
		{"t_s,rtt_ms\n0,\n", "home.txt:2: no delay, and lost is not 1"},
		{"t_s,rtt_ms,lost\n,1,0\n", "home.txt:2: t_s is missing"},
		{"t_s,rtt_ms,lost\n0,1,2\n", "home.txt:2: lost \"2\" is too large"},
		{"t_s,rtt_ms\n2,1\n1,1\n", "home.txt:3: t_s goes back"},
		{"t_s,rtt_ms,lost\n0,,1\n", "home.txt:2: no sample with a delay"},
		{"t_s,rtt_ms\n", "home.txt:1: no sample with a delay"},
		{"t_s,rtt_ms\n0,\x1b[31m\xff\n", "home.txt:2: rtt_ms \"?[31m?\" is not a number"},
	};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_refused(TRACE_AUTO, bad[i].text, bad[i].message);
	assert_refused(TRACE_CSV, "# nothing\n", "home.txt:1: no line of column names (want t_s, and rtt_ms or oneway_ms)");
}

static void both_sides_of_each_limit(void **state)
{
	(void)state;
	struct file x = read_text("t_s,rtt_ms,rate_mbit\n4e9,600000,1099511.627776\n", TRACE_CSV);
	assert_sample(&x.t, 0, 0, TRACE_DELAY_MAX_NS, UINT64_C(1) << 40);
	arena_close(&x.arena);
	assert_refused(TRACE_AUTO, "t_s,rtt_ms,rate_mbit\n0,1,1099511.627777\n", "home.txt:2: rate_mbit \"1099511.627777\" is too large");
	assert_refused(TRACE_AUTO, "t_s,rtt_ms\n4000000000.000000001,1\n", "home.txt:2: t_s \"4000000000.000000001\" is too large");
}

static void what_the_writer_wrote_reads_back_to_the_same_samples(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 3);
	static char text[400000];
	static struct trace_sample want[4000];
	char line[TRACE_CSV_LINE_CAP];
	for (int with_rate = 0; with_rate < 2; with_rate++) {
		size_t len = trace_csv_header(with_rate, line);
		memcpy(text, line, len);
		int64_t t = 0;
		for (int i = 0; i < 4000; i++) {
			want[i] = (struct trace_sample){t, rng_below(&r, 10) ? (int64_t)rng_below(&r, TRACE_DELAY_MAX_NS + 1) : -1,
				with_rate && rng_below(&r, 3) ? rng_below(&r, UINT64_C(1) << 40) : 0};
			t += (int64_t)rng_below(&r, 3 * S) >> rng_below(&r, 40);
			size_t n = trace_csv_line(&want[i], with_rate, line);
			assert_true(n < TRACE_CSV_LINE_CAP && line[n] == '\0');
			memcpy(text + len, line, n);
			len += n;
		}
		struct file x = read_bytes(text, len, TRACE_AUTO);
		assert_int_equal(x.e, OK);
		assert_int_equal(x.t.n, 4000);
		for (size_t i = 0; i < 4000; i++)
			assert_sample(&x.t, i, want[i].t_ns, want[i].rtt_ns, want[i].rate_bps);
		arena_close(&x.arena);
	}
	(void)trace_csv_line(&(struct trace_sample){1500 * MS, 2250 * US, 0}, false, line);
	assert_string_equal(line, "1.5,2.25,0\n");
	(void)trace_csv_line(&(struct trace_sample){10 * S, -1, 40000000}, true, line);
	assert_string_equal(line, "10,,40,1\n");
	(void)trace_csv_line(&(struct trace_sample){INT64_MAX, INT64_MAX, INT64_MAX}, true, line);
}

// ping

static void ping_output_becomes_samples_with_the_times_of_sending(void **state)
{
	(void)state;
	struct file x = read_text("PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n"
				  "[1700000000.500000] 64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=500 ms\n"
				  "[1700000001.002340] 64 bytes from pi.home (10.0.0.1): icmp_seq=2 ttl=64 time=2.34 ms\n"
				  "[1700000002.000450] 64 bytes from 10.0.0.1: icmp_seq=3 ttl=64 time=0.450 ms\n\n"
				  "--- 10.0.0.1 ping statistics ---\n3 packets transmitted, 3 received, 0% packet loss, time 2002ms\n"
				  "rtt min/avg/max/mdev = 0.450/167.597/500.000/235.1 ms\n", TRACE_PING);
	assert_int_equal(x.t.n, 3);
	assert_int_equal(x.t.n_lost, 0);
	assert_sample(&x.t, 0, 0, 500 * MS, 0);
	assert_sample(&x.t, 1, 1 * S, 2340 * US, 0);
	assert_sample(&x.t, 2, 2 * S, 450 * US, 0);
	arena_close(&x.arena);
}

static void a_gap_in_icmp_seq_is_a_loss_at_the_times_between(void **state)
{
	(void)state;
	struct file x = read_text("[100.001] 64 bytes from h: icmp_seq=7 ttl=64 time=1 ms\n"
				  "[101.001] no answer yet for icmp_seq=8\n"
				  "[104.002] 64 bytes from h: icmp_seq=11 ttl=64 time=2 ms\n"
				  "[105.9] From 10.0.0.5 icmp_seq=12 Destination Host Unreachable\n", TRACE_PING);
	assert_int_equal(x.t.n, 6);
	assert_int_equal(x.t.n_lost, 4);
	assert_sample(&x.t, 0, 0, 1 * MS, 0);
	for (size_t i = 1; i < 4; i++)
		assert_sample(&x.t, i, (int64_t)i * S, -1, 0);
	assert_sample(&x.t, 4, 4 * S, 2 * MS, 0);
	assert_sample(&x.t, 5, 5900 * MS, -1, 0);
	arena_close(&x.arena);
}

static void a_late_reply_fills_its_gap_and_a_duplicate_changes_nothing(void **state)
{
	(void)state;
	struct file x = read_text("[1.01] 64 bytes from h: icmp_seq=1 ttl=64 time=10 ms\n"
				  "[3.01] 64 bytes from h: icmp_seq=3 ttl=64 time=10 ms\n"
				  "[3.01] 64 bytes from h: icmp_seq=3 ttl=64 time=11 ms (DUP!)\n"
				  "[3.02] 64 bytes from h: icmp_seq=2 ttl=64 time=1020 ms\n"
				  "[3.5] 64 bytes from h: icmp_seq=0 ttl=64 time=1 ms\n"
				  "[3.6] From gw icmp_seq=2 Redirect Host(New nexthop: 10.0.0.2)\n", TRACE_PING);
	assert_int_equal(x.t.n, 3);
	assert_int_equal(x.t.n_lost, 0);
	assert_int_equal(x.t.n_duplicates, 2);
	assert_sample(&x.t, 1, 1 * S, 1020 * MS, 0);
	assert_sample(&x.t, 2, 2 * S, 10 * MS, 0);
	arena_close(&x.arena);
}

static void icmp_seq_wraps_at_sixteen_bits_and_a_clock_set_back_is_smoothed(void **state)
{
	(void)state;
	struct file x = read_text("[10.001] 64 bytes from h: icmp_seq=65534 ttl=64 time=1 ms\n"
				  "[13.001] 64 bytes from h: icmp_seq=1 ttl=64 time=1 ms\n"
				  "[5.001] 64 bytes from h: icmp_seq=2 ttl=64 time=1 ms\n", TRACE_PING);
	assert_int_equal(x.t.n, 5);
	assert_int_equal(x.t.n_lost, 2);
	assert_sample(&x.t, 2, 2 * S, -1, 0);
	assert_sample(&x.t, 3, 3 * S, 1 * MS, 0);
	assert_sample(&x.t, 4, 3 * S, 1 * MS, 0);
	arena_close(&x.arena);
}

static void a_ping_error_names_file_and_line(void **state)
{
	(void)state;
	assert_refused(TRACE_AUTO, "PING h\n64 bytes from h: icmp_seq=1 ttl=64 time=1 ms\n", "home.txt:2: no [time stamp] (ping writes them with -D)");
	assert_refused(TRACE_AUTO, "[12 64 bytes from h: icmp_seq=1 time=1 ms\n", "home.txt:1: the time stamp has no end: [12 64 bytes from h: icmp_seq=1 time=1 ms");
	assert_refused(TRACE_AUTO, "[x] 64 bytes from h: icmp_seq=1 time=1 ms\n", "home.txt:1: the time stamp is not a number: [x] 64 bytes from h: icmp_seq=1 time=1 ms");
	assert_refused(TRACE_AUTO, "[1] 64 bytes from h: icmp_seq=70000 time=1 ms\n", "home.txt:1: icmp_seq is too large: [1] 64 bytes from h: icmp_seq=70000 time=1 ms");
	assert_refused(TRACE_AUTO, "[1] 8 bytes from h: icmp_seq=1 ttl=64\n", "home.txt:1: time is missing: [1] 8 bytes from h: icmp_seq=1 ttl=64");
	assert_refused(TRACE_AUTO, "PING h\n\n--- h ping statistics ---\n", "home.txt:3: no reply in this ping output");
	assert_refused(TRACE_AUTO, "[1] no answer yet for icmp_seq=5\n[2] 64 bytes from h: icmp_seq=3 time=1 ms\n", "home.txt:2: no reply in this ping output");
}

static void a_few_lines_cannot_ask_for_much_memory(void **state)
{
	(void)state;
	enum { LINES = 300 };
	static char text[LINES * 64];
	size_t len = 0;
	for (int i = 0; i < LINES; i++)
		len += (size_t)sprintf(text + len, "[%d] 64 bytes from h: icmp_seq=%d time=1 ms\n", i, i * 32000 % 65536);
	struct file x = read_bytes(text, len, TRACE_AUTO);
	assert_int_equal(x.e, ERR_LIMIT);
	assert_string_equal(x.em.text, "home.txt:264: more than 8388608 samples");
}

// mahimahi, netem

static void a_mahimahi_trace_is_a_list_of_opportunities(void **state)
{
	(void)state;
	struct file x = read_text("0\n3\n3\n12\n", TRACE_MAHIMAHI);
	assert_int_equal(x.t.kind, TRACE_DELIVERIES);
	assert_int_equal(x.t.n, 4);
	assert_int_equal(x.t.opportunities_ms[2], 3);
	assert_int_equal(x.t.period_ns, 12 * MS);
	arena_close(&x.arena);
	assert_refused(TRACE_AUTO, "5\n4\n", "home.txt:2: 4 ms after 5 ms: time goes back");
	assert_refused(TRACE_AUTO, "0\n0\n", "home.txt:2: the last opportunity, which is the period, comes at 0 ms");
	assert_refused(TRACE_AUTO, "1\n2.5\n", "home.txt:2: \"2.5\" is no whole number (want one millisecond a line, from 0 to 4294967295)");
	assert_refused(TRACE_AUTO, "1\n4294967296\n", "home.txt:2: \"4294967296\" is too large (want one millisecond a line, from 0 to 4294967295)");
	assert_refused(TRACE_MAHIMAHI, "", "home.txt:0: no opportunity to deliver");
	x = read_text("4294967295\n", TRACE_MAHIMAHI);
	arena_close(&x.arena);
}

static void a_netem_table_is_signed_sixteen_bit_numbers_and_comments(void **state)
{
	(void)state;
	struct file x = read_text("# This is the distribution table for a test.\n-32768 -28307\t-26871\n\n  5 32767 -0\n#end\n", TRACE_NETEM);
	static const int16_t want[] = {-32768, -28307, -26871, 5, 32767, 0};
	assert_int_equal(x.t.n, ARRAY_LEN(want));
	assert_memory_equal(x.t.table, want, sizeof want);
	arena_close(&x.arena);
	assert_refused(TRACE_AUTO, "1 2\n3 32768\n", "home.txt:2: \"32768\" is too large (want -32768 to 32767)");
	assert_refused(TRACE_AUTO, "-1\n-32769\n", "home.txt:2: \"-32769\" is too large (want -32768 to 32767)");
	assert_refused(TRACE_AUTO, "-1\n1.5\n", "home.txt:2: \"1.5\" is no whole number (want -32768 to 32767)");
	assert_refused(TRACE_AUTO, "-1 -\n", "home.txt:1: \"-\" is missing (want -32768 to 32767)");
	assert_refused(TRACE_NETEM, "#\n", "home.txt:1: no number in this table");
	static char many[3 * (TRACE_TABLE_MAX + 1) + 1];
	for (size_t i = 0; i <= TRACE_TABLE_MAX; i++)
		memcpy(many + 3 * i, i % 16 ? "12 " : "12\n", 3);
	x = read_bytes(many, 3 * TRACE_TABLE_MAX, TRACE_NETEM);
	assert_int_equal(x.e, OK);
	arena_close(&x.arena);
	x = read_bytes(many, 3 * (TRACE_TABLE_MAX + 1), TRACE_NETEM);
	assert_int_equal(x.e, ERR_LIMIT);
}

static void what_is_no_trace_is_said_to_be_none(void **state)
{
	(void)state;
	static const char *const none[] = {"", "\n\n", "# only a comment\n", "hello\n", "GGUF\3\n", "\xff\xfe\n"};
	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		assert_refused(TRACE_AUTO, none[i], "home.txt: no trace we know (want a CSV with columns t_s and rtt_ms, ping -D output, a mahimahi trace or a tc-netem table)");
	assert_refused(TRACE_AUTO, "<a>,b\n", "home.txt:1: no column t_s (want t_s, and rtt_ms or oneway_ms)");
	struct file x = read_bytes("t_s,rtt_ms\n0,1\0,2\n", 18, TRACE_AUTO);
	assert_int_equal(x.e, ERR_FORMAT);
}

static void a_text_cut_at_any_byte_is_read_or_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {"# c\nt_s,rtt_ms,lost\n0,1.5e1,0\n1,,1\n", "PING x\n[1.5] 64 bytes from h: icmp_seq=1 ttl=64 time=1.25 ms\n[2] no answer yet for icmp_seq=2\n",
		"1\n20\n300\n", "# t\n-12 13\n14 -15\n"};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		for (size_t len = 0; len <= strlen(texts[i]); len++)
			for (int f = TRACE_AUTO; f <= TRACE_NETEM; f++) {
				struct file x = read_bytes(texts[i], len, (enum trace_format)f);
				arena_close(&x.arena);
			}
}

// Looking up

static void a_sample_holds_until_the_next_and_the_whole_repeats(void **state)
{
	(void)state;
	struct file x = read_text("t_s,rtt_ms\n5,1\n6,2\n6,3\n8,4\n", TRACE_CSV); // 3 s and a mean step of 1: a period of 4 s
	static const struct {
		int64_t at_ns, rtt_ms;
	} want[] = {{0, 1}, {999999999, 1}, {1 * S, 3}, {2999999999, 3}, {3 * S, 4}, {4 * S - 1, 4}, {4 * S, 1}, {5 * S - 1, 1}, {9 * S, 3}, {11 * S - 1, 3}, {11 * S, 4}};
	for (size_t i = 0; i < ARRAY_LEN(want); i++)
		assert_int_equal(trace_sample_at(&x.t, want[i].at_ns)->rtt_ns, want[i].rtt_ms * MS);
	arena_close(&x.arena);
}

static void the_next_opportunity_is_the_first_one_not_before(void **state)
{
	(void)state;
	static const char *const texts[] = {"0\n3\n3\n12\n", "5\n", "1\n2\n3\n4\n5\n"};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct file x = read_text(texts[i], TRACE_MAHIMAHI);
		for (int64_t t = 0; t < 50 * MS; t += 500 * US) {
			uint64_t k = 0;
			while (trace_opportunity_ns(&x.t, k) < t)
				k++;
			assert_int_equal(trace_opportunity_from(&x.t, t), k);
		}
		arena_close(&x.arena);
	}
}

static void a_summary_counts_quantiles_by_nearest_rank(void **state)
{
	(void)state;
	static char text[20000] = "t_s,rtt_ms,rate_mbit,lost\n";
	size_t len = strlen(text);
	for (int i = 0; i < 1000; i++) // 1 to 1000 ms, not in order
		len += (size_t)sprintf(text + len, "%d,%d,%s,0\n", i, i * 7 % 1000 + 1, i == 3 ? "8" : i == 4 ? "4" : "");
	len += (size_t)sprintf(text + len, "1000,,,1\n");
	struct file x = read_bytes(text, len, TRACE_AUTO);
	static int64_t scratch[1001];
	struct trace_summary s;
	trace_summarise(&x.t, scratch, &s);
	assert_int_equal(s.n, 1001);
	assert_int_equal(s.n_lost, 1);
	assert_int_equal(s.duration_ns, 1001 * S);
	assert_int_equal(s.min_ns, 1 * MS);
	assert_int_equal(s.p50_ns, 500 * MS);
	assert_int_equal(s.p90_ns, 900 * MS);
	assert_int_equal(s.p99_ns, 990 * MS);
	assert_int_equal(s.p999_ns, 999 * MS);
	assert_int_equal(s.max_ns, 1000 * MS);
	assert_int_equal(s.mean_ns, 500500 * US);
	assert_int_equal(s.mean_bps, 6000000);
	arena_close(&x.arena);
	x = read_text("4\n5\n10\n", TRACE_MAHIMAHI);
	trace_summarise(&x.t, NULL, &s);
	assert_int_equal(s.mean_bps, 3600000);
	arena_close(&x.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_csv_has_its_columns_in_any_order_and_others_beside),
		cmocka_unit_test(decimals_are_exact_to_the_nanosecond),
		cmocka_unit_test(a_csv_error_names_file_and_line),
		cmocka_unit_test(both_sides_of_each_limit),
		cmocka_unit_test(what_the_writer_wrote_reads_back_to_the_same_samples),
		cmocka_unit_test(ping_output_becomes_samples_with_the_times_of_sending),
		cmocka_unit_test(a_gap_in_icmp_seq_is_a_loss_at_the_times_between),
		cmocka_unit_test(a_late_reply_fills_its_gap_and_a_duplicate_changes_nothing),
		cmocka_unit_test(icmp_seq_wraps_at_sixteen_bits_and_a_clock_set_back_is_smoothed),
		cmocka_unit_test(a_ping_error_names_file_and_line),
		cmocka_unit_test(a_few_lines_cannot_ask_for_much_memory),
		cmocka_unit_test(a_mahimahi_trace_is_a_list_of_opportunities),
		cmocka_unit_test(a_netem_table_is_signed_sixteen_bit_numbers_and_comments),
		cmocka_unit_test(what_is_no_trace_is_said_to_be_none),
		cmocka_unit_test(a_text_cut_at_any_byte_is_read_or_refused),
		cmocka_unit_test(a_sample_holds_until_the_next_and_the_whole_repeats),
		cmocka_unit_test(the_next_opportunity_is_the_first_one_not_before),
		cmocka_unit_test(a_summary_counts_quantiles_by_nearest_rank),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
