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

static const struct model_shape large = {.n_layers = 12, .layer_bytes = 1000000000, .head_bytes = 1000000, .hop_bytes = 16384, .type = DTYPE_Q4_K,
	.split = {.n_heads = 32, .n_kv_heads = 32, .head_dim = 128, .hidden_dim = 4096, .ffn_dim = 16384, .o_lanes = 4, .down_lanes = 4, .o_block = 256, .down_block = 256}};

static const int32_t cabled[] = {1, 3, 2, 4}; // four nodes by their cables

static void tell_way_to(struct host *h, int32_t from, struct node_id to, int32_t mean_us, uint64_t rate_bps)
{
	struct msg m = {.type = MSG_LINK_RTT, .u.link_rtt = {.peer = to, .rtt_us = 1, .figures = {.n = 99, .mean_us = mean_us, .rate_bps = rate_bps}}};
	message(h, h->control[from], &m);
}

// plan_cabled plans for four nodes of which `n_cables` are neighbours that have measured their cable; the coordinator is on Wi-Fi, and all nodes to it.
static void plan_cabled(struct host *h, int32_t n_cables, struct plan_answer *out)
{
	const struct node_id nodes[] = {record(1).id, record(2).id, record(3).id, record(4).id};
	const struct coord_effect f = {.type = COORD_FX_PLAN, .u.plan = {.id = 1, .n = 4, .nodes = nodes}};
	struct coordinator_config config = patient_config();
	struct errmsg em = {""};
	struct arena a;
	config.may_group = true;
	start(h, &config, 4);
	for (int32_t i = 1; i <= 4; i++) {
		arrive(h, i);
		tell_profile(h, i, 10 * GB);
		tell_way_to(h, i, h->config.self, 8000, GB / 50);
	}
	for (int32_t k = 0; k < n_cables; k++)
		tell_way_to(h, cabled[k], record(cabled[(k + 1) % 4]).id, 100, GB);
	memset(&first, 0, sizeof first);
	assert_int_equal(plan_solve_begin(h->c, &f, &large, &first, &em), OK);
	assert_int_equal(arena_open(plan_solve_scratch_bytes(&first), &a), OK);
	if (plan_solve_run(&first, &a, out, &em) != OK)
		fail_msg("%s", em.text);
	arena_close(&a);
	print_message("%d cables: %.1f ms; %s\n", (int)n_cables, out->token_s * 1e3, out->groups);
}

static bool are_cabled(struct node_id a, struct node_id b)
{
	for (int32_t k = 0; k < 4; k++) {
		struct node_id one = record(cabled[k]).id, next = record(cabled[(k + 1) % 4]).id;
		if ((node_id_is(a, one) && node_id_is(b, next)) || (node_id_is(a, next) && node_id_is(b, one)))
			return true;
	}
	return false;
}

static void nodes_whose_cables_make_a_ring_sum_round_it(void **state)
{
	(void)state;
	static struct plan_answer out;
	struct host h;
	plan_cabled(&h, 4, &out);
	assert_int_equal(out.plan.n_stages, 1);
	const struct plan_group *g = &out.plan.stages[0].who;
	assert_int_equal(g->n, 4);
	assert_int_equal(g->mode, SPLIT_REDUCE_RING);
	for (int32_t i = 0; i < 4; i++)
		assert_true(are_cabled(g->nodes[i], g->nodes[(i + 1) % 4]));
	double ring_s = out.token_s;
	stop(&h);
	plan_cabled(&h, 3, &out); // the fourth link is the coordinator's: three of them do better through the one in the middle
	for (int32_t i = 0; i < out.plan.n_stages; i++)
		assert_false(split_is_ring(out.plan.stages[i].who.mode));
	assert_true(out.token_s > ring_s);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_was_not_asked_about_holds_nothing),
		cmocka_unit_test(figures_that_hardly_move_are_no_news),
		cmocka_unit_test(other_members_or_another_plan_are_news),
		cmocka_unit_test(groups_are_allowed_as_the_operator_says),
		cmocka_unit_test(nodes_whose_cables_make_a_ring_sum_round_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
