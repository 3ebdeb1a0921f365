// Worlds without faults, or with one: the answers are those of one machine, whatever computes them and however they travel.
#include "base/arena.h"
#include "kernels/kernels.h"
#include "model/model.h"
#include "sim/network.h"
#include "sim/world.h"
#include "tests/support/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MS INT64_C(1000000)
#define S (1000 * MS)
#define N_MACHINES 4

struct bench {
	struct arena arena;
	struct network network;
	struct sim_machine machines[SIM_MACHINES_MAX];
	struct sim_config config;
	struct sim_world *w;
};

static void make_with(struct bench *b, uint64_t seed, const char *profile)
{
	struct network_limits limits = {.machines_max = N_MACHINES, .access_points_max = 1, .links_max = 32, .flows_max = 256};
	struct errmsg em;
	*b = (struct bench){0};
	assert_int_equal(arena_open(network_arena_bytes(&limits), &b->arena), OK);
	assert_int_equal(network_init(&b->network, &b->arena, &limits, seed), OK);
	for (int32_t i = 0; i < N_MACHINES; i++) {
		struct network_station_params p = {.access_point = i > 0 ? 0 : NETWORK_WIRED, .air_bps = 100000000,
			.delay = {.kind = i > 0 ? NETWORK_DELAY_PROFILE : NETWORK_DELAY_NONE, .profile = profile_find(profile)}};
		assert_int_equal(network_station(&b->network, i, &p, &em), OK);
		b->machines[i] = (struct sim_machine){.is_enrolled = true,
			.speed = {.visit_ns = MS / 2, .layer_ns = MS, .token_layer_ns = MS / 10, .head_ns = MS, .load_layer_ns = 20 * MS, .store_ns = 5 * MS}};
		snprintf(b->machines[i].name, NAME_CAP, "m%d", (int)i);
	}
	b->config = (struct sim_config){.seed = seed, .n_machines = N_MACHINES, .machines = b->machines, .network = &b->network,
		.model = {.n_layers = 7, .hidden_dim = 2, .vocab_size = 50}, .wire = WIRE_F32, .n_slots = 3, .ctx_len = 48, .chunk_max = 4, .hop_credits = 4,
		.n_nodes_min = N_MACHINES - 1, .check_each = true, .recovery = true, .events_max = 10000000};
}

static void make(struct bench *b, uint64_t seed)
{
	make_with(b, seed, "W2");
}

static void start(struct bench *b)
{
	struct errmsg em;
	if (sim_world_open(&b->config, &b->w, &em) != OK)
		fail_msg("%s", em.text);
}

static void run(struct bench *b, int64_t until_ns)
{
	if (!sim_world_run(b->w, until_ns))
		fail_msg("seed %d at %.6f s: %s", (int)b->config.seed, (double)sim_world_now_ns(b->w) / 1e9, sim_world_failure(b->w));
}

static void end(struct bench *b)
{
	sim_world_close(b->w);
	arena_close(&b->arena);
}

static void submit_some(struct bench *b, int n, bool must_succeed)
{
	struct rng r;
	rng_init(&r, b->config.seed);
	for (int i = 0; i < n; i++) {
		struct sim_request q = {.at_ns = sim_world_now_ns(b->w) + (int64_t)rng_below(&r, 2000) * MS, .n_prompt = 1 + (int32_t)rng_below(&r, 20),
			.n_predict = 1 + (int32_t)rng_below(&r, 20), .hash_logits = rng_below(&r, 3) == 0, .must_succeed = must_succeed};
		q.sampling.top_p = 1;
		if (rng_below(&r, 2) == 0)
			q.sampling = (struct sampling){.temperature = 0.8f, .top_p = 1, .seed = rng_u64(&r)};
		sim_world_submit(b->w, &q);
	}
}

// expect_all: every request has ended well, with all its tokens, and nothing is left over.
static void expect_all(struct bench *b)
{
	assert_int_equal(sim_world_n_open(b->w), 0);
	for (int32_t i = 0; i < sim_world_n_requests(b->w); i++) {
		struct sim_request_view v;
		sim_world_request(b->w, i, &v);
		assert_int_equal(v.state, SIM_REQ_ENDED);
		if (v.end != COORD_END_LENGTH && v.end != COORD_END_STOP)
			fail_msg("request %d ended with %s", (int)i, err_words(v.err));
		if (v.n_tokens > 0)
			assert_true(v.first_ns >= v.submit_ns && v.last_ns >= v.first_ns && v.end_ns >= v.last_ns);
	}
	assert_true(sim_world_is_quiet(b->w));
	sim_world_expect_rest(b->w);
	if (sim_world_failure(b->w) != NULL)
		fail_msg("%s", sim_world_failure(b->w));
}

static void answers_are_those_of_one_machine(void **state)
{
	(void)state;
	uint32_t n_batched = 0;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct bench b;
		make(&b, seed);
		b.config.has_local_node = seed % 2 == 0;
		b.config.has_stop = seed % 3 == 0;
		start(&b);
		run(&b, 10 * S);
		submit_some(&b, 12, true);
		run(&b, 100 * S);
		expect_all(&b);
		n_batched += sim_world_counts(b.w).n_batched;
		end(&b);
	}
	assert_true(n_batched > 0);
}

static void encryption_changes_no_token(void **state)
{
	(void)state;
	struct bench b;
	make(&b, 5);
	b.config.encrypt = true;
	start(&b);
	run(&b, 10 * S);
	submit_some(&b, 12, true);
	run(&b, 100 * S);
	expect_all(&b);
	assert_true(sim_world_counts(b.w).n_handshakes >= 2 * (N_MACHINES - 1));
	end(&b);
}

static void a_coordinator_alone_answers(void **state)
{
	(void)state;
	struct bench b;
	make(&b, 6);
	b.config.n_machines = 1;
	b.config.has_local_node = true;
	b.config.n_nodes_min = 0;
	start(&b);
	submit_some(&b, 12, true);
	run(&b, 60 * S);
	expect_all(&b);
	end(&b);
}

static void renewed_links_lose_nothing(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct bench b;
		make_with(&b, seed, "W1"); // a tail of over a second, as W2 has them, makes the end of an old link doubtful
		b.config.link_age_ns = 5 * S; // every pause of five seconds renews them all
		start(&b);
		run(&b, 10 * S);
		uint32_t n_plans = sim_world_counts(b.w).n_plans;
		for (int round = 0; round < 8; round++) {
			submit_some(&b, 3, true);
			run(&b, sim_world_now_ns(b.w) + 20 * S);
		}
		expect_all(&b);
		assert_true(sim_world_counts(b.w).n_handshakes > 30);
		assert_int_equal(sim_world_counts(b.w).n_plans, n_plans);
		end(&b);
	}
}

static void an_answer_outlives_each_of_its_machines(void **state)
{
	(void)state;
	for (int32_t victim = 1; victim < N_MACHINES; victim++) {
		for (int power = 0; power < 2; power++) {
			struct bench b;
			make(&b, 40 + (uint64_t)victim);
			b.config.n_nodes_min = 2;
			start(&b);
			run(&b, 10 * S);
			struct sim_request q = {.at_ns = 10 * S, .n_prompt = 9, .n_predict = 39};
			q.sampling.top_p = 1;
			int32_t request = sim_world_submit(b.w, &q);
			struct sim_request_view v;
			do {
				run(&b, sim_world_now_ns(b.w) + 10 * MS);
				sim_world_request(b.w, request, &v);
			} while (v.n_tokens < 17);
			sim_world_crash(b.w, victim, power);
			run(&b, 100 * S);
			expect_all(&b);
			sim_world_request(b.w, request, &v);
			assert_int_equal(v.n_tokens, 39);
			assert_int_equal(sim_world_counts(b.w).n_recovered, 1);
			end(&b);
		}
	}
}

// fault does one thing to the world: a crash with a restart, broken connections, a request that is cancelled.
static void fault(struct bench *b, struct rng *r, int32_t *down)
{
	int32_t victim = 1 + (int32_t)rng_below(r, N_MACHINES - 1);
	switch (rng_below(r, 3)) {
	case 0:
		if (*down > 0)
			sim_world_start(b->w, *down);
		*down = victim;
		sim_world_crash(b->w, victim, rng_below(r, 2) == 0);
		break;
	case 1: sim_world_reset(b->w, victim, rng_u64(r)); break;
	default: sim_world_stall(b->w, victim, rng_u64(r), 20 * MS + (int64_t)rng_below(r, 500) * MS); break;
	}
}

// Losses come faster than answers end: each goes on, to the token, and only what was lost is computed again.
static void answers_survive_a_hail_of_faults_to_the_token(void **state)
{
	(void)state;
	uint32_t n_recovered = 0, n_partial = 0, n_fetched = 0;
	for (uint64_t seed = 1; seed <= 100; seed++) {
		struct bench b;
		struct rng r;
		int32_t down = 0;
		make_with(&b, seed, "W1");
		b.config.keep_bytes = seed % 5 == 0 ? 200 : 1 << 20;
		b.config.n_nodes_min = 2;
		for (int32_t i = 0; i < N_MACHINES; i++)
			b.machines[i].speed.layer_ns = 8 * MS;
		start(&b);
		rng_init(&r, seed);
		run(&b, S + (int64_t)rng_below(&r, 3000) * MS);
		for (int i = 0; i < 12; i++) {
			submit_some(&b, 1, false);
			run(&b, sim_world_now_ns(b.w) + (int64_t)rng_below(&r, 800) * MS);
			if (rng_below(&r, 2) == 0)
				fault(&b, &r, &down);
		}
		for (int32_t i = 1; i < N_MACHINES; i++)
			sim_world_start(b.w, i);
		run(&b, sim_world_now_ns(b.w) + 100 * S);
		expect_all(&b);
		n_recovered += sim_world_counts(b.w).n_recovered;
		n_partial += sim_world_counts(b.w).n_partial;
		n_fetched += sim_world_counts(b.w).n_fetched;
		end(&b);
	}
	print_message("%u answers recovered, %u batches of lost layers, %u states fetched\n", n_recovered, n_partial, n_fetched);
	assert_true(n_recovered > 100);
	assert_true(n_partial > 50);
	assert_true(n_fetched > 50);
}

static void a_machine_joins_and_another_is_revoked_during_answers(void **state)
{
	(void)state;
	struct bench b;
	make(&b, 8);
	b.config.n_nodes_min = 2;
	b.machines[3].is_enrolled = false;
	start(&b);
	run(&b, 5 * S);
	assert_false(sim_world_is_member(b.w, 3));
	submit_some(&b, 6, false);
	run(&b, 6 * S);
	sim_world_invite(b.w, 3);
	run(&b, 30 * S);
	assert_true(sim_world_is_member(b.w, 3));
	submit_some(&b, 6, false);
	run(&b, sim_world_now_ns(b.w) + S);
	sim_world_revoke(b.w, 1);
	run(&b, 120 * S);
	assert_false(sim_world_is_member(b.w, 1));
	expect_all(&b);
	end(&b);
}

// The same world twice, and once with another observer: the history knows nothing of who looks.
static void count_records(void *ctx, const struct sim_record *r)
{
	(void)r;
	++*(int *)ctx;
}

static void a_history_depends_on_the_seed_alone(void **state)
{
	(void)state;
	uint64_t history[4];
	int n_records = 0;
	for (int i = 0; i < 4; i++) {
		struct bench b;
		make(&b, i < 3 ? 9 : 10);
		if (i == 2)
			b.config.observer = (struct sim_observer){.ctx = &n_records, .on = count_records};
		start(&b);
		run(&b, 10 * S);
		submit_some(&b, 6, true);
		run(&b, 60 * S);
		history[i] = sim_world_history(b.w);
		end(&b);
	}
	assert_true(history[0] == history[1]);
	assert_true(history[0] == history[2]);
	assert_true(history[0] != history[3]);
	assert_true(n_records > 1000);
}

// ---- a model that really computes

struct computing {
	char path[64];
	struct model *model;
	struct pool *pool;
};

static void open_model(struct computing *c)
{
	struct errmsg em;
	strcpy(c->path, "/tmp/hearth-sim-XXXXXX");
	int fd = mkstemp(c->path);
	assert_true(fd >= 0);
	close(fd);
	struct tiny_llama t = tiny_llama_default(3);
	gguf_build_tiny_llama_file(c->path, &t);
	if (model_open(c->path, &c->model, &em) != OK)
		fail_msg("%s", em.text);
	assert_int_equal(pool_open(1, &c->pool), OK);
}

static void close_model(struct computing *c)
{
	pool_close(c->pool);
	model_close(c->model);
	unlink(c->path);
}

static void a_real_model_gives_its_own_tokens_under_faults(void **state)
{
	(void)state;
	struct computing c;
	struct errmsg em;
	open_model(&c);
	for (int t = 0; t < N_WIRE_TYPES; t++) {
		struct bench b;
		make(&b, 20 + (uint64_t)t);
		b.config.model = (struct sim_model_config){.real = c.model, .kernels = kernels_find(NULL, &em), .pool = c.pool};
		b.config.wire = (enum wire_type)t;
		b.config.n_nodes_min = 1;
		b.config.encrypt = t % 2 == 0;
		start(&b);
		run(&b, 10 * S);
		submit_some(&b, 6, false);
		run(&b, 11 * S);
		sim_world_reset(b.w, 1, 0);
		run(&b, 11500 * MS);
		sim_world_crash(b.w, 2, true);
		run(&b, 120 * S);
		expect_all(&b);
		assert_true(sim_world_counts(b.w).n_recovered > 0);
		end(&b);
	}
	close_model(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_are_those_of_one_machine),
		cmocka_unit_test(encryption_changes_no_token),
		cmocka_unit_test(a_coordinator_alone_answers),
		cmocka_unit_test(renewed_links_lose_nothing),
		cmocka_unit_test(an_answer_outlives_each_of_its_machines),
		cmocka_unit_test(answers_survive_a_hail_of_faults_to_the_token),
		cmocka_unit_test(a_machine_joins_and_another_is_revoked_during_answers),
		cmocka_unit_test(a_history_depends_on_the_seed_alone),
		cmocka_unit_test(a_real_model_gives_its_own_tokens_under_faults),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
