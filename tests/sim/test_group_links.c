// Groups whose members do not all have links: the simulated cluster takes as long as the cost model says, and answers what one machine answers.
#include "base/arena.h"
#include "partition/cost.h"
#include "partition/plan_best.h"
#include "partition/solve.h"
#include "sim/network.h"
#include "sim/quantity.h"
#include "sim/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000000)
#define N 5 // the coordinator, who holds nothing, and four members
#define LAYERS 6
#define TOKENS 12
#define CABLE_S 30e-6
#define WIFI_S 4e-3
#define RATE 40e9
#define LAYER_BYTES UINT64_C(500000000)

static const int32_t members[] = {1, 3, 2, 4}; // in the order of their cables

// A world of four machines of which each has a cable to the next, or to all others, and the same of the cost model.
struct bench {
	struct arena arena;
	struct network network;
	struct sim_machine machines[N];
	struct cluster_device devices[N];
	struct cluster_link links[N * N];
	struct cluster cluster;
	struct model_shape shape;
	struct cost_plan plan;
	struct group_work work;
	int32_t n_stretches[N][2]; // that each has computed of a token, and of the one before it, which others may have ended earlier
};

static bool is_cut(int32_t a, int32_t b, bool is_mesh)
{
	return !is_mesh && a > 0 && b > 0 && (a + b == 3 || a + b == 7); // opposite ones
}

static void put_links(struct bench *b, bool is_mesh)
{
	struct network_limits limits = {.machines_max = N, .access_points_max = 1, .links_max = N * N, .flows_max = 256};
	struct errmsg em = {""};
	assert_int_equal(arena_open(network_arena_bytes(&limits), &b->arena), OK);
	assert_int_equal(network_init(&b->network, &b->arena, &limits, 7), OK);
	for (int32_t i = 0; i < N; i++) {
		for (int32_t j = 0; j < N; j++) {
			double delay_s = i == 0 || j == 0 ? WIFI_S : CABLE_S;
			struct network_link_params p = {.base_ns = quantity_ns(delay_s)};
			b->links[i * N + j] = (struct cluster_link){.delay_s = delay_s, .rate = CLUSTER_RATE_MAX};
			if (i < j)
				assert_int_equal(network_link(&b->network, i, j, &p, &em), OK);
			if (i < j && is_cut(i, j, is_mesh))
				assert_int_equal(network_cut(&b->network, i, j, NETWORK_CUT_RESET), OK);
		}
	}
	for (int32_t i = 1; i < N; i++)
		for (int32_t j = 1; j < N; j++)
			if (i != j && is_cut(i, j, is_mesh))
				b->links[i * N + j] = cluster_link_via(&b->links[i * N], &b->links[j], 0);
}

static void make(struct bench *b, const struct cost_group *form, bool is_mesh)
{
	memset(b, 0, sizeof *b);
	put_links(b, is_mesh);
	for (int32_t i = 0; i < N; i++) {
		b->machines[i] = (struct sim_machine){.is_enrolled = true};
		snprintf(b->machines[i].name, NAME_CAP, "m%d", (int)i);
		b->devices[i] = (struct cluster_device){.cap_bytes = UINT64_C(1) << 40, .cpu_rate = RATE};
		snprintf(b->devices[i].name, NAME_CAP, "m%d", (int)i);
	}
	b->cluster = (struct cluster){.devices = b->devices, .n_devices = N, .links = b->links};
	b->shape = (struct model_shape){.n_layers = LAYERS, .layer_bytes = LAYER_BYTES, .hop_bytes = 32,
		.split = {.n_heads = 32, .n_kv_heads = 32, .head_dim = 128, .hidden_dim = 4096, .ffn_dim = 16384, .o_lanes = 4, .down_lanes = 4, .o_block = 256, .down_block = 256}};
	b->plan = (struct cost_plan){.n_rounds = 1, .n_stages = 1, .n_groups = 1, .stages = {{.device = members[0], .n_layers = LAYERS}}, .groups = {*form}};
	struct cost_group *g = &b->plan.groups[0];
	g->n_members = 4;
	for (int32_t i = 0; i < 4; i++) {
		g->devices[i] = members[i];
		g->shares[i] = 1;
		g->n_streamed[i] = COST_STREAM_LEAST;
	}
}

static double predicted_s(struct bench *b)
{
	struct cost_case c = {.cluster = &b->cluster, .shape = &b->shape, .plan = &b->plan, .params = {.units_per_layer = 1}};
	struct cost_verdict v;
	struct errmsg em = {""};
	struct arena a;
	if (cluster_check(&b->cluster, &em) != OK || cost_check(&c, &em) != OK)
		fail_msg("%s", em.text);
	assert_int_equal(arena_open(cost_judge_bytes(&c), &a), OK);
	assert_int_equal(cost_judge(&c, &a, &v), OK);
	arena_close(&a);
	return v.token_s;
}

// part_at returns which part of a layer begins after so many exchanges of it; -1: none does.
static int32_t part_at(const struct cost_group *g, int32_t n_passed)
{
	enum group_exchange list[GROUP_PARTS_MAX];
	int32_t n = group_exchanges(&(struct split_shape){.n_experts = 0}, g->mode, list);
	for (int32_t k = 0, at = 0; k < n; k++) {
		bool is_sum = list[k] == GROUP_O_SUM || list[k] == GROUP_DOWN_SUM;
		if (at == n_passed)
			return k;
		at += is_sum ? group_steps(g, list[k]) : 1;
	}
	return -1;
}

// duration_ns: members compute their parts as fast as in the cost model; nothing else takes time.
static int64_t duration_ns(void *ctx, const struct sim_work *w)
{
	struct bench *b = ctx;
	const struct cost_group *g = &b->plan.groups[0];
	if (w->kind != SIM_FORWARD)
		return 1;
	int32_t *k_at = &b->n_stretches[w->machine][w->n_past % 2], k = *k_at = w->goes_on ? *k_at + 1 : 0;
	int32_t n_exchanges = split_exchanges(plan_best_mode(g), g->n_members, false), part = k < LAYERS * n_exchanges ? part_at(g, k % n_exchanges) : -1, member = 0;
	while (g->devices[member] != w->machine)
		member++;
	return part < 0 ? 1 : quantity_ns(b->work.part[part][member] * (double)b->shape.layer_bytes / RATE);
}

// simulated_s is the time of a token after the first.
static double simulated_s(struct bench *b)
{
	const struct cost_group *g = &b->plan.groups[0];
	struct group_split split;
	struct placed_member placed[4];
	struct placed_stage stage = {.n_layers = LAYERS, .n_members = 4, .members = placed};
	struct placed_chain chain = {.n_stages = 1, .stages = &stage};
	struct sim_config c = {.seed = 7, .n_machines = N, .machines = b->machines, .network = &b->network,
		.model = {.n_layers = LAYERS, .hidden_dim = 2, .vocab_size = 50, .is_shared = true}, .wire = WIRE_F32, .n_slots = 1, .ctx_len = 64, .chunk_max = 4,
		.hop_credits = 4, .n_nodes_min = N - 1, .placement = &chain, .n_chains = 1, .group_mode = plan_best_mode(g), .check_each = true,
		.duration_ctx = b, .duration_ns = duration_ns};
	struct sim_request q = {.at_ns = 30 * S, .n_prompt = 1, .n_predict = TOKENS, .hash_logits = true, .must_succeed = true, .sampling = {.top_p = 1}};
	struct sim_request_view v;
	struct sim_world *w;
	struct errmsg em = {""};
	for (int32_t i = 0; i < 4; i++) {
		placed[i] = (struct placed_member){.share = g->shares[i]};
		memcpy(placed[i].name, b->machines[g->devices[i]].name, NAME_CAP);
	}
	assert_int_equal(group_split_make(&b->shape.split, g->mode, g->shares, 4, &split, NULL), OK);
	group_work_of(&b->shape.split, &split, &b->work);
	if (sim_world_open(&c, &w, &em) != OK)
		fail_msg("%s", em.text);
	int32_t request = sim_world_submit(w, &q);
	if (!sim_world_run(w, 60 * S))
		fail_msg("%s", sim_world_failure(w)); // also of another hash than one machine's
	sim_world_request(w, request, &v);
	assert_int_equal(v.state, SIM_REQ_ENDED);
	assert_int_equal(v.end, COORD_END_LENGTH);
	assert_int_equal(v.n_tokens, TOKENS);
	sim_world_close(w);
	return (double)(v.last_ns - v.first_ns) / 1e9 / (TOKENS - 1);
}

static const struct cost_group forms[] = {
	{.mode = GROUP_REDUCE, .sum_form = GROUP_RING},
	{.mode = GROUP_REDUCE, .sum_form = GROUP_ALL},
	{.mode = GROUP_REDUCE, .sum_form = GROUP_DIRECT},
	{.mode = GROUP_REDUCE, .sum_form = GROUP_HUB},
	{.mode = GROUP_MIXED, .sum_form = GROUP_RING},
	{.mode = GROUP_MIXED, .sum_form = GROUP_ALL},
	{.mode = GROUP_MIXED, .sum_form = GROUP_DIRECT},
	{.mode = GROUP_MIXED, .sum_form = GROUP_HUB},
	{.mode = GROUP_GATHER},
};

// The prediction lets everybody begin each exchange together. Who is told by the coordinator what to compute begins later, and has heard the others by then:
// where each exchange takes that way, what it sends in the next one goes that much earlier.
static void simulated_groups_take_what_is_predicted(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		for (int is_mesh = 0; is_mesh < 2; is_mesh++) {
			struct bench b;
			make(&b, &forms[i], is_mesh);
			double want = predicted_s(&b), got = simulated_s(&b);
			const struct cost_group *g = &b.plan.groups[0];
			print_message("%s %s, %s: %.3f ms, predicted %.3f\n", group_mode_words(g->mode), group_form_words(g->sum_form), is_mesh ? "all linked" : "a ring of links",
				got * 1e3, want * 1e3);
			bool goes_round = g->mode == GROUP_REDUCE && g->sum_form == GROUP_RING;
			double earlier_s = is_mesh || goes_round ? 0 : 2 * WIFI_S;
			if (!(got > want * 0.99 - earlier_s && got < want * 1.01))
				fail_msg("%.1f %% apart", 100 * (got / want - 1));
			arena_close(&b.arena);
		}
	}
}

// Nobody waits for a slow hop but who comes behind it, and then goes on: of four hops one is 1 ms, and each takes a quarter of that.
static void a_slow_link_of_a_ring_is_passed_once_a_round(void **state)
{
	static const enum group_mode modes[] = {GROUP_REDUCE, GROUP_MIXED};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		struct cost_group form = {.mode = modes[i], .sum_form = GROUP_RING};
		struct network_link_params slow = {.base_ns = 1000000};
		struct errmsg em = {""};
		struct bench b;
		make(&b, &form, true);
		assert_int_equal(network_link(&b.network, members[1], members[2], &slow, &em), OK);
		b.links[members[1] * N + members[2]].delay_s = b.links[members[2] * N + members[1]].delay_s = 1e-3;
		double want = predicted_s(&b), got = simulated_s(&b);
		print_message("%s: %.3f ms, predicted %.3f\n", group_mode_words(modes[i]), got * 1e3, want * 1e3);
		assert_true(got > want * 0.9 && got < want * 1.01); // less, where who came late to the ring is not late for what all send
		arena_close(&b.arena);
	}
}

// In the order of the cables, which the solver has to find; in another one two hops of four go by the coordinator.
static void the_solver_plans_the_ring_there_is(void **state)
{
	struct bench b;
	struct solve_limit limits[N] = {{.is_trusted = true}};
	struct solve_want want = {.cluster = &b.cluster, .shape = &b.shape, .params = {.units_per_layer = 1}, .limits = limits, .allow_groups = true};
	struct solve_result r = {0};
	struct errmsg em = {""};
	struct arena a;
	(void)state;
	make(&b, &forms[0], false);
	b.shape.layer_bytes = 6 * LAYER_BYTES; // of less, three of them through a hub take as long as the ring waits for the coordinator
	for (int32_t i = 1; i < N; i++)
		limits[i] = (struct solve_limit){.layers_max = LAYERS, .is_trusted = true};
	assert_int_equal(arena_open(solve_scratch_bytes(&want), &a), OK);
	if (solve(&want, &a, &r, &em) != OK)
		fail_msg("%s", em.text);
	arena_close(&a);
	const struct cost_group *g = &r.plan.groups[0];
	assert_int_equal(r.plan.n_stages, 1);
	assert_int_equal(r.plan.n_groups, 1);
	assert_int_equal(g->n_members, 4);
	assert_int_equal(plan_best_mode(g), SPLIT_REDUCE_RING);
	for (int32_t i = 0; i < 4; i++)
		assert_int_equal(b.links[g->devices[i] * N + g->devices[(i + 1) % 4]].via, 0);
	b.plan = r.plan;
	double got = simulated_s(&b);
	print_message("planned: %.3f ms, predicted %.3f, %.3f without groups\n", got * 1e3, r.value * 1e3, r.groups.plain_s * 1e3);
	assert_true(got > r.value * 0.99 && got < r.value * 1.01);
	assert_true(got < r.groups.plain_s * 0.7);
	arena_close(&b.arena);
	make(&b, &forms[0], false);
	b.shape.layer_bytes = 6 * LAYER_BYTES;
	for (int32_t i = 0; i < 4; i++)
		b.plan.groups[0].devices[i] = i + 1;
	double other_s = simulated_s(&b), predicted = predicted_s(&b);
	print_message("in another order: %.1f ms, predicted %.1f\n", other_s * 1e3, predicted * 1e3);
	assert_true(other_s > 2.5 * got && other_s < predicted * 1.01 && other_s > predicted * 0.96);
	arena_close(&b.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(simulated_groups_take_what_is_predicted),
		cmocka_unit_test(a_slow_link_of_a_ring_is_passed_once_a_round),
		cmocka_unit_test(the_solver_plans_the_ring_there_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
