// What a host solves for COORD_FX_PLAN: who may hold layers, and which later questions need no new answer.
#include "coordinator/plan_solve.h"

#include "tests/support/coord_host.h"

#define GB UINT64_C(1000000000)

static struct plan_solve first, second; // too large for a small stack

static const struct model_shape shape = {.n_layers = 6, .layer_bytes = 1000000000, .head_bytes = 1000000, .hop_bytes = 100, .type = DTYPE_Q4_K};

static void tell_profile(struct host *h, int32_t i, uint64_t decode_bps)
{
	struct msg m = {.type = MSG_PROFILE, .u.profile = {.n_threads = 1, .n_cpus = 1, .memory_bytes = 16 * GB, .available_bytes = 8 * GB, .cap_bytes = 8 * GB,
		.reserved_bytes = GB / 10, .disk_mmap_bps = GB, .n_rates = 1, .rates = {{DTYPE_Q4_K, decode_bps, 100 * GB}}}};
	message(h, h->control[i], &m);
}

static void tell_way(struct host *h, int32_t mean_us, uint64_t rate_bps)
{
	struct msg m = {.type = MSG_LINK_RTT, .u.link_rtt = {.peer = record(2).id, .rtt_us = 1, .figures = {.n = 9, .mean_us = mean_us, .rate_bps = rate_bps}}};
	message(h, h->control[1], &m);
}

static void start_two(struct host *h)
{
	struct coordinator_config config = patient_config();
	start(h, &config, 3);
	arrive(h, 1);
	arrive(h, 2);
	tell_profile(h, 1, 10 * GB);
	tell_profile(h, 2, 10 * GB);
	tell_way(h, 2000, GB / 10);
}

// ask copies a question about the first n members.
static void ask(struct host *h, int32_t n, const struct plan *current, struct plan_solve *out)
{
	const struct node_id nodes[] = {record(1).id, record(2).id, record(3).id};
	struct coord_effect f = {.type = COORD_FX_PLAN, .u.plan = {.id = 1, .n = n, .nodes = nodes, .current = current}};
	struct errmsg em;
	memset(out, 0, sizeof *out);
	assert_int_equal(plan_solve_begin(h->c, &f, &shape, out, &em), OK);
}

static bool is_news(struct host *h)
{
	ask(h, 2, NULL, &second);
	return plan_solve_is_news(&first, &second);
}

static void who_was_not_asked_about_holds_nothing(void **state)
{
	(void)state;
	struct host h;
	start_two(&h);
	arrive(&h, 3);
	tell_profile(&h, 3, 10 * GB);
	ask(&h, 2, NULL, &first);
	assert_int_equal(first.view.cluster.n_devices, 4); // the head first
	assert_int_equal(first.limits[0].layers_max, 0);
	assert_int_equal(first.limits[1].layers_max, LAYERS_MAX);
	assert_int_equal(first.limits[3].layers_max, 0);
	stop(&h);
}

static void figures_that_hardly_move_are_no_news(void **state)
{
	(void)state;
	struct host h;
	start_two(&h);
	ask(&h, 2, NULL, &first);
	assert_false(is_news(&h));
	tell_profile(&h, 1, 10 * GB + GB / 5); // 2 %
	tell_way(&h, 2090, GB / 10 - GB / 200); // 45 microseconds, and 5 %
	assert_false(is_news(&h));
	tell_profile(&h, 1, 10 * GB + GB / 2); // they creep on
	assert_true(is_news(&h));
	tell_profile(&h, 1, 10 * GB);
	tell_way(&h, 3000, GB / 10);
	assert_true(is_news(&h));
	tell_way(&h, 2000, GB / 5);
	assert_true(is_news(&h));
	tell_way(&h, 2000, GB / 10);
	assert_false(is_news(&h));
	stop(&h);
}

static void other_members_or_another_plan_are_news(void **state)
{
	(void)state;
	struct host h;
	struct plan a = {.n_layers = 6, .n_stages = 1, .n_rounds = 1, .stages = {{.who = plan_group_one(record(1).id), .layers = layer_spans_one(0, 6)}}}, b = a;
	start_two(&h);
	ask(&h, 2, NULL, &first);
	ask(&h, 1, NULL, &second);
	assert_true(plan_solve_is_news(&first, &second)); // one of them may hold nothing now
	ask(&h, 2, &a, &second);
	assert_true(plan_solve_is_news(&first, &second));
	ask(&h, 2, &a, &first);
	b.epoch.v = 7; // the same layers
	ask(&h, 2, &b, &second);
	assert_false(plan_solve_is_news(&first, &second));
	b.stages[0].who = plan_group_one(record(2).id);
	ask(&h, 2, &b, &second);
	assert_true(plan_solve_is_news(&first, &second));
	arrive(&h, 3);
	tell_profile(&h, 3, 10 * GB);
	ask(&h, 2, &a, &second);
	assert_true(plan_solve_is_news(&first, &second));
	stop(&h);
}

static void groups_are_allowed_as_the_operator_says(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	for (int may = 0; may < 2; may++) {
		config.may_group = may;
		start(&h, &config, 3);
		arrive(&h, 1);
		arrive(&h, 2);
		tell_profile(&h, 1, 10 * GB);
		tell_profile(&h, 2, 10 * GB);
		ask(&h, 2, NULL, &first);
		assert_int_equal(first.ask.want.allow_groups, may);
		stop(&h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_was_not_asked_about_holds_nothing),
		cmocka_unit_test(figures_that_hardly_move_are_no_news),
		cmocka_unit_test(other_members_or_another_plan_are_news),
		cmocka_unit_test(groups_are_allowed_as_the_operator_says),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
