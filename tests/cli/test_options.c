#include "cli/options.h"

#include "base/suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ARGS(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static struct options opts;
static struct errmsg em;

static enum err parse(uint32_t command, const char *name, const char *const *args, size_t n)
{
	char *argv[160];
	assert_true(n < 160);
	for (size_t i = 0; i < n; i++)
		memcpy(&argv[i], &args[i], sizeof argv[i]); // options_parse takes argv as main has it
	options_deinit(&opts);
	options_init(&opts);
	em.text[0] = '\0';
	return options_parse(&opts, command, name, (int)n, argv, &em);
}

static void assert_refused(uint32_t command, const char *name, const char *message, const char *const *args, size_t n)
{
	assert_int_equal(parse(command, name, args, n), ERR_USAGE);
	assert_string_equal(em.text, message);
}

static void defaults_are_those_of_the_table(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m.gguf")), OK);
	assert_string_equal(opts.model, "m.gguf");
	assert_int_equal(opts.prefill_chunk, 512);
	assert_int_equal(opts.prefill_chunk, CHUNK_TOKENS_MAX);
	assert_int_equal(opts.slots, SLOTS_DEFAULT);
	assert_int_equal(opts.max_tokens, 128);
	assert_int_equal(opts.threads, 0);
	assert_int_equal(opts.ctx, 0);
	assert_int_equal(opts.log, LOG_INFO);
	assert_int_equal(opts.wire, WIRE_F32);
	assert_true(opts.temp == 0 && opts.top_p == 1 && opts.min_p == 0 && opts.top_k == 0);
	assert_null(opts.simd);
	assert_null(opts.state);
	assert_null(opts.name);
	assert_int_equal(opts.split.n, 0);
	assert_string_equal(opts.listen.host, "0.0.0.0");
	assert_int_equal(opts.listen.port, PORT_NODES_DEFAULT);
	assert_string_equal(opts.http.host, "127.0.0.1");
	assert_int_equal(opts.http.port, PORT_HTTP_DEFAULT);
	assert_int_equal(opts.link.port, PORT_LINKS_DEFAULT);
	assert_false(options_given(&opts, offsetof(struct options, seed)));
	assert_true(options_given(&opts, offsetof(struct options, model)));
	assert_true(options_n_threads(&opts) >= 1 && options_n_threads(&opts) <= THREADS_MAX);
}

static void values_stand_apart_or_after_an_equals_sign_or_a_letter(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_RUN, "run", ARGS("--temp", "0.5", "m", "--top-k=40", "-n5", "-p", "hi", "--threads", "3")), OK);
	assert_true(opts.temp == 0.5f);
	assert_int_equal(opts.top_k, 40);
	assert_int_equal(opts.max_tokens, 5);
	assert_int_equal(options_n_threads(&opts), 3);
	assert_string_equal(opts.prompt, "hi");
	assert_string_equal(opts.model, "m");
	// A value may look like an option: it is the value that was asked for.
	assert_int_equal(parse(FOR_RUN, "run", ARGS("m", "-p", "--chat", "-n", "+7")), OK);
	assert_string_equal(opts.prompt, "--chat");
	assert_false(opts.chat);
	assert_int_equal(opts.max_tokens, 7);
	assert_int_equal(parse(FOR_RUN, "run", ARGS("m", "--prompt=a=b")), OK);
	assert_string_equal(opts.prompt, "a=b");
}

static void switches_take_no_value_but_true_or_false(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_RUN, "run", ARGS("--chat", "m", "--json=true", "--no-logits-hash=false")), OK);
	assert_true(opts.chat && opts.json && !opts.no_logits_hash);
	assert_true(options_given(&opts, offsetof(struct options, no_logits_hash)));
	assert_refused(FOR_RUN, "run", "--chat: got yes, want true or false", ARGS("m", "--chat=yes"));
	assert_refused(FOR_RUN, "run", "--chat: got an empty text, want true or false", ARGS("m", "--chat="));
}

static void two_dashes_end_the_options(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_RUN, "run", ARGS("--chat", "--", "--json")), OK);
	assert_string_equal(opts.model, "--json");
	assert_false(opts.json);
	assert_int_equal(parse(FOR_REVOKE, "revoke", ARGS("--", "--")), OK);
	assert_string_equal(opts.node, "--");
}

static void seeds_use_all_64_bits(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_RUN, "run", ARGS("m", "--seed", "18446744073709551615")), OK);
	assert_true(opts.seed == UINT64_MAX);
	assert_true(options_given(&opts, offsetof(struct options, seed)));
	static const char *const wrong[] = {"18446744073709551616", "-1", "", "0x1", " 1", "1 ", "1.0"};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(parse(FOR_RUN, "run", ARGS("m", "--seed", wrong[i])), ERR_USAGE);
}

static void both_ends_of_each_range_are_where_they_are_said_to_be(void **state)
{
	(void)state;
	static const struct {
		const char *flag, *value;
		enum err e;
	} cases[] = {
		{"--prefill-chunk", "0", ERR_USAGE}, {"--prefill-chunk", "1", OK}, {"--prefill-chunk", "512", OK},
		{"--prefill-chunk", "513", ERR_USAGE}, {"--threads", "0", ERR_USAGE}, {"--threads", "256", OK}, {"--threads", "257", ERR_USAGE},
		{"-n", "0", ERR_USAGE}, {"-n", "1", OK}, {"-n", "2147483647", OK}, {"-n", "2147483648", ERR_USAGE}, {"-n", "-1", ERR_USAGE},
		{"-n", "99999999999999999999", ERR_USAGE}, {"-n", "1e3", ERR_USAGE}, {"-n", "", ERR_USAGE}, {"-n", "-", ERR_USAGE},
		{"--top-p", "0", OK}, {"--top-p", "1", OK}, {"--top-p", "1.0001", ERR_USAGE}, {"--top-p", "-0.1", ERR_USAGE},
		{"--temp", "nan", ERR_USAGE}, {"--temp", "inf", ERR_USAGE}, {"--temp", "0x1p2", ERR_USAGE}, {"--temp", "1e1", OK},
		{"--temp", "1e999", ERR_USAGE}, {"--temp", ".5", OK}, {"--temp", "1e", ERR_USAGE}, {"--temp", "", ERR_USAGE},
		{"--ctx", "0", ERR_USAGE}, {"--ctx", "16777216", OK}, {"--ctx", "16777217", ERR_USAGE}, {"--simd", "avx2", OK},
		{"--simd", "avx", ERR_USAGE}, {"--wire", "q8", OK}, {"--wire", "Q8", ERR_USAGE}, {"--wire", "", ERR_USAGE},
		{"--state", "", ERR_USAGE}, {"--log", "debug", OK}, {"--log", "3", ERR_USAGE},
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (parse(FOR_RUN, "run", ARGS("m", cases[i].flag, cases[i].value)) != cases[i].e)
			fail_msg("%s %s: %s", cases[i].flag, cases[i].value, em.text);
}

static void words_become_what_the_engine_takes(void **state)
{
	(void)state;
	static const char *const names[] = {"f32", "bf16", "f16", "q8"};
	for (int i = 0; i < N_WIRE_TYPES; i++) {
		assert_int_equal(parse(FOR_RUN, "run", ARGS("m", "--wire", names[i])), OK);
		assert_string_equal(wire_type_name(opts.wire), names[i]);
	}
	assert_int_equal(parse(FOR_RUN, "run", ARGS("m", "--simd", "portable", "--log=error")), OK);
	assert_string_equal(opts.simd, "portable");
	assert_int_equal(opts.log, LOG_ERROR);
}

static void a_message_says_what_was_got_and_what_is_wanted(void **state)
{
	(void)state;
	assert_refused(FOR_RUN, "run", "--prefill-chunk: got 0, want an integer from 1 to 512", ARGS("m", "--prefill-chunk", "0"));
	assert_refused(FOR_RUN, "run", "--top-p: got 2, want a number from 0 to 1", ARGS("m", "--top-p=2"));
	assert_refused(FOR_RUN, "run", "--wire: got f64, want one of f32, bf16, f16, q8", ARGS("m", "--wire", "f64"));
	assert_refused(FOR_RUN, "run", "--temp wants a value: --temp T", ARGS("m", "--temp"));
	assert_refused(FOR_RUN, "run", "--temp is given twice", ARGS("m", "--temp", "1", "--temp=1"));
	assert_refused(FOR_RUN, "run", "--max-tokens is given twice", ARGS("m", "-n", "1", "--max-tokens", "1"));
	assert_refused(FOR_RUN, "run", "--chat is given twice", ARGS("m", "--chat", "--chat"));
	assert_refused(FOR_RUN, "run", "unknown option --treads, did you mean --threads?", ARGS("m", "--treads", "1"));
	assert_refused(FOR_RUN, "run", "unknown option --treads, did you mean --threads?", ARGS("m", "--treads=1"));
	assert_refused(FOR_RUN, "run", "unknown option --xyzzyx", ARGS("m", "--xyzzyx"));
	assert_refused(FOR_RUN, "run", "unknown option -x", ARGS("m", "-x"));
	assert_refused(FOR_RUN, "run", "unknown option -hn", ARGS("m", "-hn"));
	assert_refused(FOR_RUN, "run", "`hearth run` has no option --split: it belongs to `hearth serve`", ARGS("m", "--split", "1"));
	assert_refused(FOR_RUN, "run", "MODEL is missing: the model, a GGUF file", ARGS("--chat"));
	assert_refused(FOR_RUN, "run", "MODEL: got an empty text, want a file name", ARGS(""));
	assert_refused(FOR_RUN, "run", "one argument too many: b", ARGS("a", "b"));
	assert_refused(FOR_STATUS, "status", "one argument too many: x", ARGS("x"));
	assert_int_equal(parse(FOR_STATUS, "status", NULL, 0), OK);
}

static void a_split_is_a_list_of_layers(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--split", "10,12,8")), OK);
	assert_int_equal(opts.split.n, 3);
	assert_int_equal(opts.split.at[0], 10);
	assert_int_equal(opts.split.at[2], 8);
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--split=30")), OK);
	static const char *const wrong[] = {"", ",", "1,", ",1", "1,,2", "1,a", "1 ,2", "0,1", "1,-1", "1025", "1;2", "1,2,"};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--split", wrong[i])), ERR_USAGE);
	assert_refused(FOR_SERVE, "serve", "--split: got 0 for stage 1, want 1 to 64 numbers of layers, each from 1 to 1024",
		ARGS("m", "--split", "10,0,8"));
	char many[2 * STAGES_MAX + 3] = "1";
	for (int i = 1; i < STAGES_MAX; i++)
		strcat(many, ",1");
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--split", many)), OK);
	assert_int_equal(opts.split.n, STAGES_MAX);
	strcat(many, ",1");
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--split", many)), ERR_USAGE);
}

static void streams_are_percentages(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--streams", "0,45,100")), OK);
	assert_int_equal(opts.streams.n, 3);
	assert_int_equal(opts.streams.at[0], 0);
	assert_int_equal(opts.streams.at[2], 100);
	assert_refused(FOR_SERVE, "serve", "--streams: got 101 for stage 1, want 1 to 64 percentages, each from 0 to 100", ARGS("m", "--streams", "10,101"));
	assert_refused(FOR_SERVE, "serve", "--streams: got 45%, want 1 to 64 percentages, each from 0 to 100", ARGS("m", "--streams", "45%"));
}

static void addresses_are_a_host_and_a_port(void **state)
{
	(void)state;
	static const char *const right[] = {"127.0.0.1:80", "[::1]:80", "[fe80::1%eth0]:7433", "kitchen-pi.local:1", "h:0", "h:65535"};
	for (size_t i = 0; i < ARRAY_LEN(right); i++) {
		assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--listen", right[i])), OK);
		char text[HOST_PORT_TEXT_CAP];
		host_port_format(&opts.listen, text);
		assert_string_equal(text, right[i]);
	}
	static const char *const wrong[] = {"", ":", "h", "h:", ":80", "80", "h:65536", "h:99999999999", "h:-1", "h:+1", "h: 1", "h:1 ", "h :1",
		"::1:80", "[::1]", "[::1]80", "[]:80", "[h]:80", "[127.0.0.1]:80", "300.1.1.1:80", "10.0.0:80", "-h:80", ".h:80", "h/x:80",
		"http://h:80", "[fe80::1%]:80", "[fe80::1%a/b]:80", "[::g]:80", "h\n:80"};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		if (parse(FOR_SERVE, "serve", ARGS("m", "--listen", wrong[i])) != ERR_USAGE)
			fail_msg("%s passes", wrong[i]);
	char host[ADDR_CAP + 4];
	memset(host, 'h', sizeof host);
	memcpy(host + ADDR_CAP - 1, ":80", 4);
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--listen", host)), OK);
	memcpy(host + ADDR_CAP - 1, "h:8", 4);
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--listen", host)), ERR_USAGE);
}

static void the_same_flag_means_what_its_command_says(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_JOIN, "join", ARGS("--listen", "1.2.3.4:5", "--model", "m")), OK);
	assert_int_equal(opts.link.port, 5);
	assert_int_equal(opts.listen.port, PORT_NODES_DEFAULT);
	assert_string_equal(opts.model, "m");
}

static void join_connects_from_a_bare_address(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_JOIN, "join", ARGS("--model", "m", "--from", "127.77.0.2", "--advertise", "pi.example:7434")), OK);
	assert_string_equal(opts.from, "127.77.0.2");
	assert_int_equal(opts.node_advertise.n, 1);
	assert_string_equal(opts.node_advertise.at[0].host, "pi.example");
	assert_int_equal(opts.advertise.n, 0);
	assert_int_equal(parse(FOR_JOIN, "join", ARGS("--model", "m", "--from", "fe80::1")), OK);
	assert_refused(FOR_JOIN, "join", "--from: got 127.0.0.1:80, want an IPv4 or IPv6 address", ARGS("--model", "m", "--from", "127.0.0.1:80"));
	assert_refused(FOR_JOIN, "join", "--from: got pi, want an IPv4 or IPv6 address", ARGS("--model", "m", "--from", "pi"));
}

static void advertised_addresses_are_at_most_eight_with_real_ports(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--advertise", "a:1,[::1]:2")), OK);
	assert_int_equal(opts.advertise.n, 2);
	assert_string_equal(opts.advertise.at[1].host, "::1");
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--advertise", "a:0")), ERR_USAGE);
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--advertise", "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8")), OK);
	assert_int_equal(opts.advertise.n, ADDRS_MAX);
	assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--advertise", "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9")), ERR_USAGE);
}

static void the_api_listens_on_loopback_only_and_says_why(void **state)
{
	(void)state;
	static const char *const inside[] = {"127.0.0.1:1", "127.8.9.1:1", "[::1]:1", "localhost:1"};
	for (size_t i = 0; i < ARRAY_LEN(inside); i++)
		assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--http", inside[i])), OK);
	static const char *const outside[] = {"0.0.0.0:1", "[::]:1", "192.168.1.2:1", "128.0.0.1:1", "[::ffff:127.0.0.1]:1", "localhost.evil:1"};
	for (size_t i = 0; i < ARRAY_LEN(outside); i++) {
		assert_int_equal(parse(FOR_SERVE, "serve", ARGS("m", "--http", outside[i])), ERR_USAGE);
		assert_non_null(strstr(em.text, "the API has no passwords"));
	}
}

static void an_invite_as_an_argument_is_refused_and_not_repeated(void **state)
{
	(void)state;
	static const char *const invites[] = {"hearth:SECRET", "SECRET", "SECRETSECRETSECRETSECRETSECRETSECRETSECRETSECRETSECRET"};
	for (size_t i = 0; i < ARRAY_LEN(invites); i++) {
		assert_int_equal(parse(FOR_JOIN, "join", ARGS("--model", "m", invites[i])), ERR_USAGE);
		assert_non_null(strstr(em.text, "every user of this machine can read the arguments"));
		assert_null(strstr(em.text, "SECRET"));
		assert_int_equal(parse(FOR_JOIN, "join", ARGS("-", invites[i])), ERR_USAGE);
		assert_null(strstr(em.text, "SECRET"));
	}
	assert_int_equal(parse(FOR_JOIN, "join", ARGS("--invite=SECRET")), ERR_USAGE);
	assert_null(strstr(em.text, "SECRET"));
	assert_int_equal(parse(FOR_JOIN, "join", ARGS("-", "--model", "m")), OK);
	assert_true(opts.invite_stdin);
}

static void help_wins_over_what_is_wrong_behind_it(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_RUN, "run", ARGS("--help", "--nonsense")), OK);
	assert_true(opts.help);
	assert_int_equal(parse(FOR_RUN, "run", ARGS("-h")), OK);
	assert_true(opts.help);
}

static void names_are_plain_words(void **state)
{
	(void)state;
	assert_int_equal(parse(FOR_JOIN, "join", ARGS("--model", "m", "--name", "kitchen-pi_2.home")), OK);
	static const char *const wrong[] = {"", "a b", "a/b", "-a", "é", "a\n",
		"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(parse(FOR_JOIN, "join", ARGS("--model", "m", "--name", wrong[i])), ERR_USAGE);
	assert_int_equal(parse(FOR_JOIN, "join", ARGS("--model", "m", "--name", wrong[6] + 1)), OK);
}

static void sizes_are_bytes_in_steps_of_1024(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint64_t bytes; // 0: refused
	} sizes[] = {
		{"3G", UINT64_C(3) << 30}, {"900M", UINT64_C(900) << 20}, {"1.5g", UINT64_C(1536) << 20}, {"16M", 16 << 20}, {"64MiB", 64 << 20}, {"64MB", 64 << 20},
		{"20000k", UINT64_C(20000) << 10}, {"33554432", 33554432}, {"1P", UINT64_C(1) << 50}, {"0.5T", UINT64_C(1) << 39},
		{"", 0}, {"G", 0}, {"-1G", 0}, {"+3G", 0}, {" 3G", 0}, {"3 G", 0}, {"3GG", 0}, {"3X", 0}, {"1.G", 0}, {".5G", 0}, {"1.5", 0}, {"nan", 0}, {"0x1000000", 0},
		{"15M", 0}, {"16777215", 0}, {"2P", 0}, {"99999999999999999999", 0}, {"9999999999999999P", 0}, {"3e9", 0}, {"3Gi", 0},
	};
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		enum err e = parse(FOR_RUN, "run", ARGS("m", "--mem", sizes[i].text));
		if ((e == OK) != (sizes[i].bytes > 0) || (e == OK && opts.mem != sizes[i].bytes))
			fail_msg("%s: %llu, %s", sizes[i].text, (unsigned long long)opts.mem, em.text);
	}
	assert_refused(FOR_RUN, "run", "--mem: got 15M, want a size such as 3G or 900M, from 16M to 1P", ARGS("m", "--mem", "15M"));
}

static void edits_are_counted_with_swaps(void **state)
{
	(void)state;
	assert_int_equal(suggest_distance("", ""), 0);
	assert_int_equal(suggest_distance("", "abc"), 3);
	assert_int_equal(suggest_distance("abc", ""), 3);
	assert_int_equal(suggest_distance("kitten", "sitting"), 3);
	assert_int_equal(suggest_distance("stauts", "status"), 1);
	assert_int_equal(suggest_distance("ca", "abc"), 3); // optimal alignment, not Damerau's two
	char a[80];
	memset(a, 'a', sizeof a);
	a[63] = '\0';
	assert_int_equal(suggest_distance(a, ""), 63);
	a[63] = 'a';
	a[64] = '\0';
	assert_true(suggest_distance(a, "") == SIZE_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_those_of_the_table),
		cmocka_unit_test(sizes_are_bytes_in_steps_of_1024),
		cmocka_unit_test(values_stand_apart_or_after_an_equals_sign_or_a_letter),
		cmocka_unit_test(switches_take_no_value_but_true_or_false),
		cmocka_unit_test(two_dashes_end_the_options),
		cmocka_unit_test(seeds_use_all_64_bits),
		cmocka_unit_test(both_ends_of_each_range_are_where_they_are_said_to_be),
		cmocka_unit_test(words_become_what_the_engine_takes),
		cmocka_unit_test(a_message_says_what_was_got_and_what_is_wanted),
		cmocka_unit_test(a_split_is_a_list_of_layers),
		cmocka_unit_test(streams_are_percentages),
		cmocka_unit_test(addresses_are_a_host_and_a_port),
		cmocka_unit_test(the_same_flag_means_what_its_command_says),
		cmocka_unit_test(join_connects_from_a_bare_address),
		cmocka_unit_test(advertised_addresses_are_at_most_eight_with_real_ports),
		cmocka_unit_test(the_api_listens_on_loopback_only_and_says_why),
		cmocka_unit_test(an_invite_as_an_argument_is_refused_and_not_repeated),
		cmocka_unit_test(help_wins_over_what_is_wrong_behind_it),
		cmocka_unit_test(names_are_plain_words),
		cmocka_unit_test(edits_are_counted_with_swaps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
