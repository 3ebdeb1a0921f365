// A swarm in small: placement, volunteers who go and are replaced, answers that survive it, the same figures twice.
#include "sim/swarm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MODEL "[model]\nname = 'm'\nlayers = 12\nhidden = 64\nlayer_bytes = '100 MB'\nhead_bytes = '50 MB'\n"
#define DEVICE(name, rate) "[[device]]\nname = '" name "'\nmemory = '16 GiB'\ncpu_read = '" rate "'\ndisk_read = '1 GB/s'\n"
#define MACHINES DEVICE("hub", "50 GB/s") DEVICE("fast", "40 GB/s") DEVICE("slow", "10 GB/s")
#define SERVING "[serving]\nslots = 2\nctx = 128\nchunk = 16\n[network]\ndelay = '5 ms'\n"
#define PLACEMENT "[placement]\nchains = 3\nmembers = 40\nof = { fast = 1, slow = 2 }\nhold = { fast = 4, slow = 2 }\n"
#define TRAFFIC "[traffic]\nevery = '2 s'\nprompt = 8\npredict = 12\n"
#define SMALL "name = 'small'\nseed = 3\nduration = '300 s'\n" MODEL SERVING MACHINES PLACEMENT TRAFFIC

static struct scenario open_it(const char *text)
{
	struct scenario s;
	struct errmsg em = {""};
	if (scenario_open("x.toml", text, strlen(text), NULL, &s, &em) != OK)
		fail_msg("%s", em.text);
	return s;
}

static struct swarm_result run(const char *text)
{
	struct scenario s = open_it(text);
	struct swarm_result r;
	struct errmsg em = {""};
	if (swarm_run(&s, &r, &em) != OK)
		fail_msg("%s", em.text);
	scenario_close(&s);
	return r;
}

static void assert_refused(const char *text, const char *words)
{
	struct scenario s;
	struct errmsg em = {""};
	assert_int_not_equal(scenario_open("x.toml", text, strlen(text), NULL, &s, &em), OK);
	if (strstr(em.text, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", em.text, words);
}

static void a_calm_swarm_answers_everything_in_three_chains(void **state)
{
	(void)state;
	struct swarm_result r = run(SMALL);
	assert_int_equal(r.n_chains, 3);
	assert_in_range(r.n_standing_by, 20, 31);
	assert_in_range(r.n_requests, 110, 190); // 150 in the mean
	assert_int_equal(r.n_failed, 0);
	assert_in_range(r.n_answered, r.n_requests - 6, r.n_requests);
	assert_int_equal(r.counts.n_plans, 3);
	for (int i = 0; i < 3; i++) {
		assert_in_range(r.chains[i].n_stages, 3, 6);
		assert_true(r.chains[i].ready == 1 && r.chains[i].n_tokens > 0 && r.chains[i].n_active > 0);
	}
	assert_true(r.tpot.p50 > 0 && r.tpot.p50 <= r.tpot.p90 && r.tpot.p90 <= r.tpot.p99 && r.ttft.p50 > 0);
	assert_true(r.e2e.p50 > r.ttft.p50 + 10 * r.tpot.p50);
	// Who is not answered came at the end: nobody starves.
	assert_int_equal(r.n_open, r.n_requests - r.n_answered);
	assert_true(r.n_open == 0 ? r.oldest_open_s == 0 : r.oldest_open_s > 0 && r.oldest_open_s < 2 * r.e2e.p99);
}

static void volunteers_who_go_take_no_answer_with_them(void **state)
{
	(void)state;
	struct swarm_result r = run(SMALL "[volunteers]\nstay = '200 s'\naway = '60 s'\norderly = 0.5\n");
	assert_in_range(r.n_left, 20, 120);
	assert_in_range(r.n_left_orderly, 1, r.n_left - 1);
	assert_true(r.n_returned > 0 && r.counts.n_node_losses > 0 && r.counts.n_plans > 6);
	assert_true(r.n_recovered > 0);
	assert_int_equal(r.n_failed, 0);
	assert_true(r.longest_gap.p99 > 1.25 * r.tpot.p99);
}

static void the_same_swarm_twice_is_the_same(void **state)
{
	(void)state;
	const char *text = SMALL "[volunteers]\nstay = '200 s'\naway = '60 s'\n";
	struct swarm_result a = run(text), b = run(text);
	assert_true(a.history == b.history);
	assert_true(a.tpot.p50 == b.tpot.p50);
}

static void a_placement_that_the_members_cannot_fill_is_refused(void **state)
{
	(void)state;
	struct scenario s = open_it("name = 'few'\n" MODEL SERVING MACHINES
		"[placement]\nchains = 3\nmembers = 8\nof = { slow = 1 }\nhold = { slow = 2 }\n" TRAFFIC);
	struct swarm_result r;
	struct errmsg em = {""};
	assert_int_equal(swarm_run(&s, &r, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "8 members hold the model's 12 layers fewer than 3 times"));
	scenario_close(&s);
}

static void mistakes_in_a_swarm_are_named(void **state)
{
	(void)state;
	assert_refused("name = 'x'\n" MODEL MACHINES TRAFFIC, "x.toml:");
	assert_refused("name = 'x'\n" MODEL MACHINES TRAFFIC, "placement, which is missing");
	assert_refused("name = 'x'\n" MODEL MACHINES PLACEMENT, "[traffic] is missing");
	assert_refused("name = 'x'\n" MODEL MACHINES "[placement]\nchains = 1\nmembers = 5\nof = { fast = 1 }\nhold = { slow = 2 }\n" TRAFFIC,
		"fast is missing: how many layers has it room for?");
	assert_refused("name = 'x'\n" MODEL MACHINES "[placement]\nchains = 1\nmembers = 5\nof = { fst = 1 }\nhold = { fast = 2 }\n" TRAFFIC, "fast");
	assert_refused("name = 'x'\n" MODEL MACHINES PLACEMENT "[traffic]\nevery = '1 s'\nprompt = 4000\npredict = 100\n", "more than serving.ctx");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_calm_swarm_answers_everything_in_three_chains),
		cmocka_unit_test(volunteers_who_go_take_no_answer_with_them),
		cmocka_unit_test(the_same_swarm_twice_is_the_same),
		cmocka_unit_test(a_placement_that_the_members_cannot_fill_is_refused),
		cmocka_unit_test(mistakes_in_a_swarm_are_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
