// The failure table of Petals (arXiv 2312.08361): four stages, 1,024 tokens, each transfer fails with chance p. Then its link is reset, the
// receiver has lost its cache, and another holder of the same layers, which has them loaded, takes its place. Here: the receiver's process
// ends and starts again at once, without what it had computed, and to load costs nothing. For silent failures the receiver stands still, is
// noticed after 8 s, and a spare machine takes its place.
//
// Fault-free speed 10.7 steps/s and hidden states of 4,096 f16, as published. Assumed: a position that is computed again costs 1/20 of a
// decode step of its stage (printed for 1/5, too), links as wired at home (0.25 ms round trip), 1 Gbit/s.
#include "base/arena.h"
#include "base/rng.h"
#include "sim/network.h"
#include "sim/profiles.h"
#include "sim/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000)
#define S (1000 * MS)
#define N_STAGES 4
#define N_MACHINES (2 + N_STAGES) // the client's, four stages, a spare
#define LAYERS_PER_STAGE 8
#define N_TOKENS 1024
#define N_SEEDS 5
#define LAYER_NS 2855000 // one token in one layer: 10.7 steps/s

struct run {
	struct sim_world *w;
	struct rng rng;
	double p;
	bool silent;
	int32_t victim; // of the transfer that failed just now; -1: none
	int32_t n_failures;
};

// on_record draws whether a transfer of hidden states fails.
static void on_record(void *ctx, const struct sim_record *r)
{
	struct run *run = ctx;
	if (r->type != SIM_REC_SEND || !r->is_step || run->victim >= 0 || run->p == 0)
		return;
	if ((double)rng_below(&run->rng, 1u << 30) < run->p * (1u << 30))
		run->victim = r->peer == 0 ? r->machine : r->peer; // the client itself loses nothing: the link's other end stands for it
}

static void fail_transfer(struct run *r)
{
	int32_t m = r->victim;
	r->n_failures++;
	if (r->silent) {
		sim_world_pause(r->w, m, sim_world_now_ns(r->w) + 9 * S);
	} else {
		sim_world_crash(r->w, m, false);
		sim_world_start(r->w, m);
	}
	r->victim = -1;
}

// measure returns steps per second of one answer; *n_failures is added to.
static double measure(uint64_t seed, double p, int replay_cost, bool silent, int32_t *n_failures)
{
	struct network_limits limits = {.machines_max = N_MACHINES, .access_points_max = 1, .links_max = 64, .flows_max = 1024};
	struct arena arena;
	struct network network;
	struct errmsg em;
	struct sim_machine machines[N_MACHINES] = {0};
	struct run r = {.p = p, .silent = silent, .victim = -1};
	rng_init(&r.rng, seed);
	assert_int_equal(arena_open(network_arena_bytes(&limits), &arena), OK);
	assert_int_equal(network_init(&network, &arena, &limits, seed), OK);
	for (int32_t i = 0; i < N_MACHINES; i++) {
		struct network_station_params station = {.access_point = NETWORK_WIRED, .air_bps = 1000000000,
			.delay = {.kind = NETWORK_DELAY_PROFILE, .profile = profile_find("W0")}};
		assert_int_equal(network_station(&network, i, &station, &em), OK);
		machines[i].is_enrolled = true;
		machines[i].speed.layer_ns = LAYER_NS - LAYER_NS / replay_cost;
		machines[i].speed.token_layer_ns = LAYER_NS / replay_cost;
		machines[i].speed.store_ns = MS;
		snprintf(machines[i].name, NAME_CAP, "m%d", (int)i);
	}
	struct sim_config c = {.seed = seed, .n_machines = N_MACHINES, .machines = machines, .network = &network,
		.model = {.n_layers = N_STAGES * LAYERS_PER_STAGE, .hidden_dim = 4096, .vocab_size = 1000}, .wire = WIRE_F16, .n_slots = 1,
		.ctx_len = N_TOKENS + 32, .chunk_max = 128, .hop_credits = 8, .n_nodes_min = N_MACHINES - 1, .n_split = N_STAGES,
		.split = {LAYERS_PER_STAGE, LAYERS_PER_STAGE, LAYERS_PER_STAGE, LAYERS_PER_STAGE}, .keep_bytes = 1 << 30, .recovery = true,
		.events_max = 100000000, .observer = {.ctx = &r, .on = on_record}};
	if (sim_world_open(&c, &r.w, &em) != OK)
		fail_msg("%s", em.text);
	assert_true(sim_world_run(r.w, 5 * S));
	struct sim_request q = {.at_ns = 5 * S, .n_prompt = 16, .n_predict = N_TOKENS, .sampling = {.top_p = 1}};
	int32_t request = sim_world_submit(r.w, &q);
	struct sim_request_view v = {0};
	for (int64_t t = 5 * S; v.state != SIM_REQ_ENDED; t += MS) {
		assert_true(t < 7200 * S);
		if (!sim_world_run(r.w, t))
			fail_msg("seed %d: %s", (int)seed, sim_world_failure(r.w));
		if (r.victim >= 0)
			fail_transfer(&r);
		sim_world_request(r.w, request, &v);
	}
	assert_int_equal(v.end, COORD_END_LENGTH);
	assert_int_equal(v.n_tokens, N_TOKENS);
	*n_failures += r.n_failures;
	sim_world_close(r.w);
	arena_close(&arena);
	return (N_TOKENS - 1) / ((double)(v.last_ns - v.first_ns) / 1e9);
}

static double mean(double p, int replay_cost, bool silent)
{
	double seconds = 0;
	int32_t n_failures = 0;
	for (uint64_t seed = 1; seed <= N_SEEDS; seed++)
		seconds += 1 / measure(seed, p, replay_cost, silent, &n_failures);
	double speed = N_SEEDS / seconds;
	print_message("p %.0e, %s, a position again costs 1/%-2d of a step: %5.2f steps/s (%.0f failures an answer)\n", p,
		silent ? "silent" : "reset ", replay_cost, speed, (double)n_failures / N_SEEDS);
	return speed;
}

static void failed_transfers_cost_less_than_in_petals(void **state)
{
	(void)state;
	double whole = mean(0, 20, false);
	assert_true(whole > 10.7 * 0.99 && whole < 10.7 * 1.01);
	assert_true(mean(1e-3, 20, false) >= 0.85 * whole); // Petals keeps 72 %
	assert_true(mean(1e-2, 20, false) >= 0.35 * whole); // Petals keeps 20 %
	double whole_5 = mean(0, 5, false);
	assert_true(whole_5 > 10.7 * 0.99 && whole_5 < 10.7 * 1.01);
	// Not published: floors a little under what was measured (0.88, 0.29; 0.73, 0.12).
	assert_true(mean(1e-3, 5, false) >= 0.8 * whole_5);
	assert_true(mean(1e-2, 5, false) >= 0.2 * whole_5);
	assert_true(mean(1e-3, 20, true) >= 0.6 * whole);
	assert_true(mean(1e-2, 20, true) >= 0.08 * whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failed_transfers_cost_less_than_in_petals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
