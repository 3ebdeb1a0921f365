// Simulated engines as members of a group: whatever the cut, they compute what one engine computes, and nothing else than the right contributions does.
#include "base/bytes.h"
#include "base/rng.h"
#include "sim/sim_chain.h"
#include "sim/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LAYERS 3
#define CTX 16
#define CHUNK 5
#define SLOTS 2
#define MEMBERS_MAX 8

struct group {
	struct sim_model model;
	int32_t n;
	struct sim_engine *alone, *members[MEMBERS_MAX];
	uint8_t own[MEMBERS_MAX][CHUNK * CHAIN_UNITS * CHAIN_UNITS * CHAIN_ROW];
	struct sim_exchange at[MEMBERS_MAX];
	uint8_t rows[MEMBERS_MAX + 1][CHUNK * CHAIN_ROW]; // states of each, the last ones of the engine alone
	int32_t spoil; // the exchange in which member 0 reads another's contribution as that of the last; -1: none
};

static void open_group(struct group *g, enum split_mode mode, const uint32_t *shares, int32_t n)
{
	const struct sim_model_config config = {.n_layers = LAYERS, .hidden_dim = 2, .vocab_size = 50, .is_shared = true};
	const struct layer_spans layers = layer_spans_one(0, LAYERS);
	struct errmsg em;
	*g = (struct group){.n = n, .spoil = -1};
	assert_int_equal(sim_model_open(&g->model, &config, WIRE_F32, CTX, CHUNK, &em), OK);
	assert_true(sim_engine_part_bytes(&g->model) <= sizeof g->own[0]);
	assert_int_equal(sim_engine_open(&g->model, &layers, SLOTS, &g->alone, &em), OK);
	for (int32_t i = 0; i < n; i++) {
		assert_int_equal(sim_engine_open(&g->model, &layers, SLOTS, &g->members[i], &em), OK);
		assert_int_equal(sim_engine_share(g->members[i], mode, shares, n, i, &em), OK);
	}
}

static void close_group(struct group *g)
{
	sim_engine_close(g->alone);
	for (int32_t i = 0; i < g->n; i++)
		sim_engine_close(g->members[i]);
	sim_model_close(&g->model);
}

// part_for returns what member `from` has for member `to`, and checks that both think it as long.
static const uint8_t *part_for(struct group *g, int32_t from, int32_t to)
{
	const struct split_sent *s = &g->at[from].to[to];
	assert_int_equal(s->len, g->at[to].bytes[from]);
	assert_true(s->at + s->len <= sim_engine_part_bytes(&g->model));
	return g->own[from] + s->at;
}

// go_on gives each member everybody's contributions. Returns whether there is another exchange.
static bool go_on(struct group *g, int32_t exchange)
{
	static uint8_t copies[MEMBERS_MAX][MEMBERS_MAX][CHUNK * CHAIN_UNITS * CHAIN_UNITS * CHAIN_ROW];
	bool waits = false;
	for (int32_t i = 0; i < g->n; i++)
		for (int32_t k = 0; k < g->n; k++)
			memcpy(copies[i][k], part_for(g, k, i), g->at[i].bytes[k]);
	for (int32_t i = 0; i < g->n; i++) {
		const uint8_t *parts[MEMBERS_MAX];
		for (int32_t k = 0; k < g->n; k++)
			parts[k] = copies[i][k];
		if (i == 0 && exchange == g->spoil)
			parts[g->n - 1] = parts[0];
		bool next = sim_engine_continue(g->members[i], 0, 0, parts, g->own[i], &g->at[i]);
		assert_true(i == 0 || next == waits);
		waits = next;
	}
	return waits;
}

// forward computes n tokens in everybody. Returns how many exchanges that took.
static int32_t forward(struct group *g, int32_t slot, int32_t pos, int32_t n_tokens)
{
	int32_t n = 0;
	for (int32_t i = 0; i <= g->n; i++) {
		uint8_t *rows = g->rows[i < g->n ? i : MEMBERS_MAX];
		struct sim_rows it = {.data = rows, .slot = slot, .pos = pos, .n_tokens = n_tokens};
		for (int32_t k = 0; k < n_tokens; k++)
			store_u64(rows + CHAIN_ROW * k, chain_embed(pos + k));
		if (i == g->n)
			sim_engine_forward(g->alone, 0, LAYERS, &it, 1);
		else
			assert_true(sim_engine_begin(g->members[i], 0, false, 0, LAYERS, &it, 1, g->own[i], &g->at[i]));
		assert_int_equal(it.err, OK);
	}
	while (go_on(g, n++))
		;
	return n;
}

static bool are_same(const struct group *g, int32_t n_tokens)
{
	for (int32_t i = 0; i < g->n; i++)
		if (memcmp(g->rows[i], g->rows[MEMBERS_MAX], (size_t)n_tokens * CHAIN_ROW) != 0)
			return false;
	return true;
}

static void a_group_computes_what_one_engine_does(void **state)
{
	(void)state;
	struct group *g = malloc(sizeof *g);
	struct rng r;
	rng_init(&r, 7);
	for (int32_t i = 0; i < 40 * N_SPLIT_MODES; i++) {
		uint32_t shares[MEMBERS_MAX] = {1};
		int32_t n = 2 + (int32_t)rng_below(&r, MEMBERS_MAX - 1);
		for (int32_t k = 1; k < n; k++)
			shares[k] = (uint32_t)rng_below(&r, 5);
		enum split_mode mode = (enum split_mode)(i % N_SPLIT_MODES);
		open_group(g, mode, shares, n);
		for (int32_t pos = 0, n_tokens; pos < CTX - CHUNK; pos += n_tokens) {
			n_tokens = 1 + (int32_t)rng_below(&r, CHUNK);
			assert_int_equal(forward(g, 1, pos, n_tokens), LAYERS * split_exchanges(mode, n, false));
			assert_true(are_same(g, n_tokens));
		}
		close_group(g);
	}
	free(g);
}

static void a_contribution_of_another_member_gives_something_else(void **state)
{
	(void)state;
	static const uint32_t shares[] = {1, 1, 1};
	struct group *g = malloc(sizeof *g);
	for (int32_t m = 0; m < N_SPLIT_MODES; m++) {
		for (int32_t x = 0; x < LAYERS * split_exchanges((enum split_mode)m, 3, false); x++) {
			open_group(g, (enum split_mode)m, shares, 3);
			g->spoil = x;
			(void)forward(g, 0, 0, 1);
			bool is_nothing = split_is_star((enum split_mode)m); // where only the first sends, the last one's is empty
			if (!is_nothing)
				assert_false(are_same(g, 1));
			close_group(g);
		}
	}
	free(g);
}

static void positions_that_were_never_computed_are_told(void **state)
{
	(void)state;
	static const uint32_t shares[] = {1, 1};
	struct group *g = malloc(sizeof *g);
	open_group(g, SPLIT_GATHER, shares, 2);
	struct sim_rows it = {.data = g->rows[0], .pos = 3, .n_tokens = 1};
	assert_false(sim_engine_begin(g->members[0], 0, false, 0, LAYERS, &it, 1, g->own[0], &g->at[0]));
	assert_int_equal(it.err, ERR_RANGE);
	it.pos = 0;
	assert_true(sim_engine_begin(g->members[0], 0, false, 0, LAYERS, &it, 1, g->own[0], &g->at[0])); // and given up
	it.pos = 1;
	assert_false(sim_engine_begin(g->members[0], 0, false, 0, LAYERS, &it, 1, g->own[0], &g->at[0]));
	close_group(g);
	free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_group_computes_what_one_engine_does),
		cmocka_unit_test(a_contribution_of_another_member_gives_something_else),
		cmocka_unit_test(positions_that_were_never_computed_are_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
