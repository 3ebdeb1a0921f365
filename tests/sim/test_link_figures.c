// What a simulated cluster learns of its links, against how they were made: round trips of both ends, rates from the very steps of answers.
#include "base/arena.h"
#include "sim/network.h"
#include "sim/profiles.h"
#include "sim/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000)
#define S INT64_C(1000000000)
#define N_MACHINES 3 // the coordinator, and two nodes with half of the layers each
#define WAIT_S 30    // in which nobody asks for anything

struct made {
	int64_t base_ns;     // one way
	uint64_t bps;        // bits/s
	const char *profile; // whose round trips come on top; NULL: none
};

struct fixture {
	struct arena arena;
	struct network network;
	struct sim_world *w;
	struct coord_member_status members[N_MACHINES];
};

static void open_network(const struct made *made, uint64_t seed, struct arena *arena, struct network *network)
{
	struct network_limits limits = {.machines_max = N_MACHINES, .access_points_max = 1, .links_max = 64, .flows_max = 1024};
	struct network_link_params link = {.base_ns = made->base_ns, .rate_bps = made->bps, .rate_back_bps = made->bps};
	struct errmsg em;
	if (made->profile != NULL)
		link.delay = (struct network_delay){.kind = NETWORK_DELAY_PROFILE, .profile = profile_find(made->profile)};
	assert_int_equal(arena_open(network_arena_bytes(&limits), arena), OK);
	assert_int_equal(network_init(network, arena, &limits, seed), OK);
	assert_int_equal(network_default_link(network, &link, &em), OK);
}

// one_way_ms is the mean of half round trips on a link of this kind on which nothing else is: what it was made of, whatever its distribution.
static double one_way_ms(const struct made *made)
{
	const int32_t n = 4000;
	struct arena arena;
	struct network network;
	int32_t flow;
	double sum_ns = 0;
	open_network(made, 99, &arena, &network);
	assert_int_equal(network_open_flow(&network, 0, 1, &flow), OK);
	for (int32_t i = 1; i <= n; i++) {
		int64_t there = 0, back = 0;
		assert_int_equal(network_send(&network, flow, NETWORK_FORWARD, 40, i * S, &there), NETWORK_ARRIVES);
		assert_int_equal(network_send(&network, flow, NETWORK_BACK, 40, there, &back), NETWORK_ARRIVES);
		sum_ns += (double)(back - i * S);
	}
	arena_close(&arena);
	return sum_ns / n / 2e6;
}

static void open_world(struct fixture *f, const struct made *made)
{
	struct sim_machine machines[N_MACHINES] = {0};
	struct errmsg em;
	open_network(made, 11, &f->arena, &f->network);
	for (int32_t i = 0; i < N_MACHINES; i++) {
		machines[i].is_enrolled = true;
		machines[i].speed = (struct sim_speed){.layer_ns = MS, .token_layer_ns = MS / 20, .store_ns = MS};
		machines[i].profile = (struct device_profile){.n_threads = 1, .cap_bytes = 1 << 30, .available_bytes = 1 << 30, .n_rates = 1,
			.rates = {{DTYPE_Q4_K, 1000000000, 0}}};
		snprintf(machines[i].name, NAME_CAP, "m%d", (int)i);
	}
	struct sim_config c = {.seed = 11, .n_machines = N_MACHINES, .machines = machines, .network = &f->network,
		.model = {.n_layers = 8, .hidden_dim = 4096, .vocab_size = 1000}, .wire = WIRE_F32, .n_slots = 2, .ctx_len = 600, .chunk_max = 64, .hop_credits = 8,
		.n_nodes_min = 2, .keep_bytes = 1 << 26, .recovery = true, .events_max = 100000000};
	if (sim_world_open(&c, &f->w, &em) != OK)
		fail_msg("%s", em.text);
}

static void run_to(struct fixture *f, int64_t ns)
{
	if (!sim_world_run(f->w, ns))
		fail_msg("%s", sim_world_failure(f->w));
}

// live asks for answers, some of them to long prompts, for minutes.
static void live(struct fixture *f)
{
	run_to(f, WAIT_S * S);
	for (int32_t i = 0; i < 20; i++) {
		struct sim_request q = {.at_ns = (WAIT_S + 10 * i) * S, .n_prompt = 32 + 16 * (i % 20), .n_predict = 40, .sampling = {.top_p = 1}};
		(void)sim_world_submit(f->w, &q);
	}
	run_to(f, (WAIT_S + 220) * S);
	assert_int_equal(sim_world_n_open(f->w), 0);
	struct coord_status st = {.members = f->members, .members_cap = N_MACHINES};
	sim_world_status(f->w, &st);
	assert_int_equal(st.n_members, 2);
}

static void close_world(struct fixture *f)
{
	sim_world_close(f->w);
	arena_close(&f->arena);
}

// assert_like: may_be_unsure: nothing but single hidden states goes there, and the link's own noise is as large.
static void assert_like(const struct link_figures *f, const struct made *made, const char *which, bool may_be_unsure)
{
	double got_ms = (double)f->mean_us / 2e3, want_ms = one_way_ms(made), rate = (double)f->rate_bps, want = (double)made->bps / 8;
	print_message("%s: %d round trips, %.3f ms one way (made %.3f), %.2f MB/s (made %.2f)\n", which, (int)f->n, got_ms, want_ms, rate / 1e6, want / 1e6);
	assert_true(f->n >= 100);
	assert_true(fabs(got_ms / want_ms - 1) <= 0.1);
	if (may_be_unsure && f->rate_bps == 0)
		assert_true(f->rate_least_bps > 0 && (double)f->rate_least_bps <= 1.25 * want); // its noise has longer tails than any
	else
		assert_true(fabs(rate / want - 1) <= 0.2);
}

static void figures_approach_what_links_were_made_of(void **state)
{
	(void)state;
	static const struct made cases[] = {{2 * MS, 100000000, NULL}, {MS / 2, 1000000000, NULL}, {10 * MS, 20000000, NULL}, {0, 50000000, "W1"}};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct fixture f;
		open_world(&f, &cases[i]);
		live(&f);
		for (int32_t k = 0; k < 2; k++) {
			const struct coord_member_status *m = &f.members[k];
			bool is_first = m->stage == 0;
			assert_like(is_first ? &m->to_node : &m->from_node, &cases[i], is_first ? "to the first stage" : "from the last stage",
				!is_first && cases[i].profile != NULL);
			if (is_first)
				assert_like(&m->next_link_figures, &cases[i], "between the stages", false);
			assert_int_equal(m->profile.n_threads, 1); // what it was made with, as it told
			assert_true(m->profile.rates[0].decode_bps == 1000000000);
		}
		close_world(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figures_approach_what_links_were_made_of),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
