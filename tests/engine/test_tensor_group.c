// Groups whose members are threads: whatever the cut of heads, rows and experts, the bits of one engine, and the bytes that the rules name.
#include "engine/tensor_group.h"

#include "base/rng.h"
#include "kernels/lanes.h"
#include "tests/support/gguf_build.h"
#include "tests/support/instrumented.h"
#include "tests/support/made_model.h"
#include "tests/support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SMOLLM2 "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define MIXTRAL "layers=2,hidden=256,heads=4,kv_heads=2,ffn=256,experts=5,experts_used=2"
#define QWEN "arch=qwen3moe,layers=2,hidden=256,heads=4,kv_heads=2,head_dim=64,ffn=256,experts=24,experts_used=5"
#define CTX 64
#define CHUNK 19
#define N_PROMPT 29 // in chunks of CHUNK, then single tokens
#define N_TOKENS 35
#define TRIALS_PER_MODEL (IS_INSTRUMENTED ? 3 : 18)

// How often a kind of split was tried.
struct tally {
	int n_splits, modes[N_SPLIT_MODES], nodes_apart, members[GROUP_MEMBERS_MAX + 1], no_head, no_column, shared_block, split_kv, experts, biases, types[DTYPE_ID_MAX + 1];
};

static struct model *open_file(const char *path)
{
	struct model *m = NULL;
	struct errmsg em = {{0}};
	if (model_open(path, &m, &em) != OK)
		fail_msg("%s", em.text);
	return m;
}

static struct model *open_tiny(const struct tiny_llama *t)
{
	char dir[SCRATCH_CAP], path[SCRATCH_CAP + 32];
	assert_true(scratch_open(dir));
	snprintf(path, sizeof path, "%s/tiny.gguf", dir);
	gguf_build_tiny_llama_file(path, t);
	struct model *m = open_file(path); // it stays mapped
	scratch_remove(dir);
	return m;
}

// ---- one engine, or a group

struct computed {
	struct engine *whole;
	struct tensor_group *group;
	struct pool *pool;
	int32_t hidden_dim;
	float *hidden; // (N_TOKENS, hidden_dim)
};

static struct engine_config config_of(const struct model *m, struct pool *pool, const struct tensor_split *split)
{
	return (struct engine_config){.model = m, .kernels = kernels_find(NULL, NULL), .pool = pool, .layers = layer_spans_one(0, model_hparams(m)->n_layers),
		.n_slots = 2, .ctx_len = CTX, .batch_max = CHUNK, .wire = WIRE_BF16, .split = split};
}

static void forward(struct computed *c, struct engine_item *items, int32_t n)
{
	struct errmsg em = {{0}};
	int32_t end = engine_hparams(c->group ? tensor_group_first(c->group) : c->whole)->n_layers;
	enum err err = c->group ? tensor_group_forward_layers(c->group, 0, end, items, n, &em) : engine_forward_layers(c->whole, 0, end, items, n, &em);
	if (err != OK)
		fail_msg("%s", em.text);
}

// compute feeds the same made-up states to either: a prompt in chunks, then tokens, another sequence in the last batch's company.
static void compute(struct computed *c)
{
	size_t dim = (size_t)c->hidden_dim;
	struct rng r;
	rng_init(&r, 5);
	for (size_t i = 0; i < N_TOKENS * dim; i++)
		c->hidden[i] = (float)(int32_t)rng_below(&r, 2001) / 1000.0f - 1.0f;
	for (int32_t pos = 0; pos < N_TOKENS - 1;) {
		int32_t left = N_PROMPT - pos, n = left <= 0 ? 1 : left < CHUNK ? left : CHUNK;
		struct engine_item items[2] = {
			{.slot = 1, .pos_begin = pos, .n_tokens = n, .hidden = c->hidden + (size_t)pos * dim},
			{.slot = 0, .pos_begin = 0, .n_tokens = 1, .hidden = c->hidden + (N_TOKENS - 1) * dim},
		};
		pos += n;
		forward(c, items, pos == N_TOKENS - 1 ? 2 : 1);
	}
}

static void open_computed(struct computed *c, const struct model *m, const struct tensor_split *split)
{
	struct errmsg em = {{0}};
	*c = (struct computed){.hidden_dim = model_hparams(m)->hidden_dim};
	assert_int_equal(pool_open(1, &c->pool), OK);
	c->hidden = malloc(N_TOKENS * (size_t)c->hidden_dim * sizeof *c->hidden);
	struct engine_config config = config_of(m, c->pool, split);
	if ((split != NULL ? tensor_group_open(&config, &c->group, &em) : engine_open(&config, &c->whole, &em)) != OK)
		fail_msg("%s", em.text);
}

static void close_computed(struct computed *c)
{
	engine_close(c->whole);
	tensor_group_close(c->group);
	pool_close(c->pool);
	free(c->hidden);
}

// ---- splits

// draw_cuts cuts n things at any places among the members: whatever comes, empty parts too.
static void draw_cuts(struct rng *r, int32_t n, int32_t n_members, int32_t *cuts)
{
	cuts[0] = 0;
	for (int32_t i = 1; i < n_members; i++) {
		int32_t at = (int32_t)rng_below(r, (uint64_t)n + 1), k = i;
		for (; k > 1 && cuts[k - 1] > at; k--)
			cuts[k] = cuts[k - 1];
		cuts[k] = at;
	}
	cuts[n_members] = n;
}

static struct tensor_split draw_any(struct rng *r, const struct split_shape *s, enum split_mode mode, int32_t n)
{
	struct tensor_split t = {.mode = mode, .n_members = n};
	int32_t heads[GROUP_MEMBERS_MAX + 1], ffn[GROUP_MEMBERS_MAX + 1], o[GROUP_MEMBERS_MAX + 1], down[GROUP_MEMBERS_MAX + 1], experts[GROUP_MEMBERS_MAX + 1],
		lanes[GROUP_MEMBERS_MAX + 1], o_lanes[GROUP_MEMBERS_MAX + 1];
	draw_cuts(r, s->n_heads, n, heads);
	draw_cuts(r, s->ffn_dim, n, ffn);
	draw_cuts(r, s->hidden_dim, n, o);
	draw_cuts(r, s->hidden_dim, n, down);
	draw_cuts(r, s->n_experts, n, experts);
	draw_cuts(r, split_has_lanes(mode) ? s->down_lanes : 0, n, lanes);
	int32_t unit = s->head_dim > s->o_block ? s->head_dim / s->o_block : 1; // lanes of one head
	draw_cuts(r, split_has_o_lanes(mode) ? s->o_lanes / unit : 0, n, o_lanes);
	int32_t token = s->vocab_size / s->n_heads;
	for (int32_t i = 0; i < n; i++) {
		t.parts[i] = (struct split_part){.vocab_rows = {heads[i] * token, i + 1 == n ? s->vocab_size : heads[i + 1] * token}, .heads = {heads[i], heads[i + 1]}, .ffn = {ffn[i], ffn[i + 1]}, .o_rows = {o[i], o[i + 1]},
			.down_rows = {down[i], down[i + 1]}, .experts = {experts[i], experts[i + 1]}};
		if (split_has_lanes(mode))
			t.parts[i].lanes = (struct split_range){lanes[i] * SPLIT_LANES / s->down_lanes, lanes[i + 1] * SPLIT_LANES / s->down_lanes};
		if (split_is_star(mode))
			t.parts[i].down_rows = (struct split_range){i == 0 ? 0 : s->hidden_dim, s->hidden_dim};
		if (split_has_o_lanes(mode)) {
			t.parts[i].heads = (struct split_range){0, s->n_heads};
			t.parts[i].o_lanes = (struct split_range){o_lanes[i] * unit * SPLIT_LANES / s->o_lanes, o_lanes[i + 1] * unit * SPLIT_LANES / s->o_lanes};
			if (split_is_star(mode))
				t.parts[i].o_rows = t.parts[i].down_rows;
		}
		if (s->n_experts > 0 || split_has_lanes(mode))
			t.parts[i].ffn = (struct split_range){0, s->ffn_dim};
	}
	return t;
}

static struct tensor_split draw_shares(struct rng *r, const struct split_shape *s, enum split_mode mode, int32_t n)
{
	struct tensor_split t;
	struct errmsg em = {{0}};
	uint32_t shares[GROUP_MEMBERS_MAX];
	for (int32_t i = 0; i < n; i++)
		shares[i] = (uint32_t)rng_below(r, 5);
	shares[rng_below(r, (uint64_t)n)] = 3;
	if (tensor_split_make(s, mode, shares, n, &t, &em) != OK)
		fail_msg("%s", em.text);
	return t;
}

static bool has_shared_block(struct split_range columns, int32_t block)
{
	return split_len(columns) > 0 && columns.end % block != 0;
}

static void count(struct tally *t, const struct model *m, const struct split_shape *s, const struct tensor_split *split)
{
	bool no_head = false, no_column = false, shared = false, split_kv = false, apart = false;
	struct layer_weights w;
	bool seen[DTYPE_ID_MAX + 1] = {false};
	for (int32_t i = 0; i < split->n_members; i++) {
		const struct split_part *p = &split->parts[i];
		bool has_o_lanes = split_has_o_lanes(split->mode);
		no_head = no_head || split_len(has_o_lanes ? p->o_lanes : p->heads) == 0;
		no_column = no_column || (s->n_experts == 0 && split_len(split_has_lanes(split->mode) ? p->lanes : p->ffn) == 0);
		apart = apart || split_nodes(8, split_mask(p->lanes, 8)) > 1;
		shared = shared || (!split_has_lanes(split->mode) && has_shared_block(p->ffn, s->down_block)) ||
			has_shared_block((struct split_range){p->heads.begin * s->head_dim, p->heads.end * s->head_dim}, s->o_block);
		split_kv = split_kv || (!has_o_lanes && split_len(p->heads) > 0 && p->heads.end % (s->n_heads / s->n_kv_heads) != 0);
	}
	t->n_splits++;
	t->members[split->n_members]++;
	t->modes[split->mode]++;
	t->nodes_apart += apart;
	t->no_head += no_head;
	t->no_column += no_column;
	t->shared_block += shared && s->n_experts == 0;
	t->split_kv += split_kv;
	t->experts += s->n_experts > 0;
	for (int32_t i = 0; i < model_hparams(m)->n_layers; i++) {
		model_layer(m, i, &w);
		seen[w.q.type] = seen[w.o.type] = true;
		if (w.down.rows > 0)
			seen[w.gate.type] = seen[w.down.type] = true;
		else
			seen[w.experts[0].down.type] = true;
	}
	for (int i = 0; i <= DTYPE_ID_MAX; i++)
		t->types[i] += seen[i];
	model_layer(m, 0, &w);
	t->biases += w.q_bias.cols > 0;
}

// ring_bytes: of the outputs that member c completes, 4 for each node not joined yet that reaches this one on its way from c + 1; then those of
// all others, completed.
static uint64_t ring_bytes(int32_t n_lanes, const struct tensor_split *split, bool of_o, int32_t self)
{
	uint64_t bytes = 0;
	int32_t n = split->n_members;
	for (int32_t c = 0; c < n; c++) {
		const struct split_part *p = &split->parts[c];
		uint64_t rows = (uint64_t)split_len(of_o ? p->o_rows : p->down_rows);
		uint32_t mask = 0;
		for (int32_t i = (c + 1) % n; i != self; i = (i + 1) % n)
			mask |= split_mask(of_o ? split->parts[i].o_lanes : split->parts[i].lanes, n_lanes);
		if ((c + 1) % n != self) // begins there
			bytes += 4 * rows * (uint64_t)split_nodes(n_lanes, mask);
		if (c != self)
			bytes += 4 * rows;
	}
	return bytes;
}

// node_bytes: of each output that a member completes, 4 for each node of the others', and the other outputs when they are complete.
static uint64_t node_bytes(enum dtype type, const struct split_shape *s, const struct tensor_split *split, bool of_o, int32_t self)
{
	int32_t n_lanes = dtype_find(type)->block_len == 1 ? 32 : dtype_find(type)->block_len == 32 ? 8 : 4, n_nodes = 0;
	bool all = split->mode == SPLIT_MIXED || split->mode == SPLIT_REDUCE;
	if (split_is_ring(split->mode))
		return ring_bytes(n_lanes, split, of_o, self);
	int32_t rows = all ? s->hidden_dim : split_len(of_o ? split->parts[self].o_rows : split->parts[self].down_rows);
	for (int32_t i = 0; i < split->n_members; i++)
		n_nodes += i == self ? 0 : split_nodes(n_lanes, split_mask(of_o ? split->parts[i].o_lanes : split->parts[i].lanes, n_lanes));
	return 4 * (uint64_t)n_nodes * (uint64_t)rows + 4 * (uint64_t)(s->hidden_dim - rows);
}

// expected_bytes is what a member receives for one token in a layer of a dense model, written from the specification's rules.
static uint64_t expected_bytes(const struct model *m, const struct split_shape *s, const struct tensor_split *split, int32_t self)
{
	uint64_t bytes = 0;
	struct layer_weights w;
	for (int32_t layer = 0; layer < model_hparams(m)->n_layers; layer++) {
		model_layer(m, layer, &w);
		int32_t block_of[2] = {(int32_t)dtype_find(w.o.type)->block_len, (int32_t)dtype_find(w.down.type)->block_len};
		for (int32_t k = split_has_o_lanes(split->mode) ? 1 : 0; k < (split_has_lanes(split->mode) ? 1 : 2); k++) {
			int32_t n = k == 0 ? s->n_heads * s->head_dim : s->ffn_dim, block = block_of[k];
			for (int32_t at = 0; at < n; at += block) {
				int32_t owners = 0, of_others = 0;
				for (int32_t i = 0; i < split->n_members; i++) {
					const struct split_part *p = &split->parts[i];
					int32_t begin = k == 0 ? p->heads.begin * s->head_dim : p->ffn.begin, end = k == 0 ? p->heads.end * s->head_dim : p->ffn.end;
					begin = begin > at ? begin : at;
					end = end < at + block ? end : at + block;
					owners += begin < end;
					of_others += i != self && begin < end ? end - begin : 0;
				}
				if (of_others > 0)
					bytes += owners == 1 && block > 1 ? (uint64_t)block + 4 : 4 * (uint64_t)of_others;
			}
		}
		bytes += split_has_o_lanes(split->mode) ? node_bytes(w.o.type, s, split, true, self) : 4 * (uint64_t)(s->hidden_dim - split_len(split->parts[self].o_rows));
		bytes += split_has_lanes(split->mode) ? node_bytes(w.down.type, s, split, false, self) :
			4 * (uint64_t)(s->hidden_dim - split_len(split->parts[self].down_rows));
	}
	return bytes;
}

static void check_bytes(const struct computed *c, const struct model *m, const struct split_shape *s, const struct tensor_split *split)
{
	struct tensor_group_stats stats;
	tensor_group_stats_get(c->group, &stats);
	for (int32_t i = 0; i < split->n_members && s->n_experts == 0; i++)
		assert_int_equal(stats.received[i], expected_bytes(m, s, split, i) * N_TOKENS);
	int32_t n_forwards = 2 + N_TOKENS - 1 - N_PROMPT, per_layer = split->mode == SPLIT_REDUCE ? 2 : s->n_experts > 0 || split->mode == SPLIT_MIXED ? 3 : 4,
			hops = 2 * (split->n_members - 1);
	if (split_is_ring(split->mode))
		per_layer = split->mode == SPLIT_REDUCE_RING ? 2 * hops : 2 + hops;
	assert_int_equal(stats.n_exchanges, n_forwards * per_layer * model_hparams(m)->n_layers);
}

// mode_of returns one of the modes that the model can have, in turns.
static enum split_mode mode_of(const struct split_shape *s, int i)
{
	static const enum split_mode modes[] = {SPLIT_GATHER, SPLIT_MIXED, SPLIT_MIXED_STAR, SPLIT_MIXED_SCATTER, SPLIT_MIXED_RING, SPLIT_REDUCE,
		SPLIT_REDUCE_STAR, SPLIT_REDUCE_SCATTER, SPLIT_REDUCE_RING};
	return modes[s->n_experts > 0 ? 0 : i % (s->o_lanes > 0 ? N_SPLIT_MODES : 5)];
}

// try_splits compares so many random groups with one engine.
static void try_splits(struct tally *t, const struct model *m, uint64_t seed, int n_trials, int32_t n_members)
{
	struct rng r;
	struct computed one, all;
	struct split_shape s = engine_split_shape(m);
	rng_init(&r, seed);
	open_computed(&one, m, NULL);
	compute(&one);
	for (int i = 0; i < n_trials; i++) {
		int32_t n = n_members > 0 ? n_members : 2 + (int32_t)rng_below(&r, 7);
		enum split_mode mode = mode_of(&s, i / 2);
		struct tensor_split split = i % 2 == 0 ? draw_any(&r, &s, mode, n) : draw_shares(&r, &s, mode, n);
		open_computed(&all, m, &split);
		compute(&all);
		if (memcmp(one.hidden, all.hidden, N_TOKENS * (size_t)one.hidden_dim * sizeof *one.hidden) != 0)
			fail_msg("model seed %llu, trial %d: %d members in mode %d give other bits", (unsigned long long)seed, i, (int)n, (int)mode);
		check_bytes(&all, m, &s, &split);
		count(t, m, &s, &split);
		close_computed(&all);
	}
	close_computed(&one);
}

static void any_split_gives_the_bits_of_one_engine(void **state)
{
	(void)state;
	static const enum dtype narrow[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0, DTYPE_F32, DTYPE_F16, DTYPE_BF16};
	static const enum dtype wide[] = {DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};
	struct tally t = {0};
	for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
		struct tiny_llama shape = tiny_llama_default(i + 1);
		shape.n_layers = 2;
		shape.types[0] = narrow[i];
		shape.biases = i % 2 == 1;
		struct model *m = open_tiny(&shape);
		try_splits(&t, m, i + 1, TRIALS_PER_MODEL, 0);
		model_close(m);
	}
	for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
		struct tiny_llama shape = tiny_llama_default(i + 20);
		shape.n_layers = 2;
		shape.hidden_dim = 256;
		shape.ffn_dim = 768;
		shape.n_heads = 8;
		shape.n_kv_heads = i % 2 == 0 ? 2 : 4;
		shape.types[0] = wide[i];
		shape.types[1] = DTYPE_Q4_0;
		shape.types[2] = DTYPE_F32;
		shape.n_types = i == 3 ? 3 : 1;
		struct model *m = open_tiny(&shape);
		try_splits(&t, m, i + 20, TRIALS_PER_MODEL, 0);
		model_close(m);
	}
	static const struct {
		const char *shape, *type;
	} made[] = {{MIXTRAL, "Q4_0"}, {QWEN, "Q4_K_M"}, {QWEN, "F32"}};
	for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
		char dir[SCRATCH_CAP], path[MADE_PATH_CAP];
		assert_true(scratch_open(dir));
		made_model(dir, made[i].shape, made[i].type, "", path);
		struct model *m = open_file(path);
		try_splits(&t, m, i + 40, TRIALS_PER_MODEL, 0);
		model_close(m);
		scratch_remove(dir);
	}
	print_message("%d splits: %d without a head, %d without a column, %d with a shared block, %d that split KV heads, %d with experts across members, %d with biases; %d gathered; %d, %d, %d, %d mixed and %d, %d, %d, %d reduced (each, star, scatter, ring); "
		"%d with nodes apart\n",
		t.n_splits, t.no_head, t.no_column, t.shared_block, t.split_kv, t.experts, t.biases, t.modes[SPLIT_GATHER], t.modes[SPLIT_MIXED],
		t.modes[SPLIT_MIXED_STAR], t.modes[SPLIT_MIXED_SCATTER], t.modes[SPLIT_MIXED_RING], t.modes[SPLIT_REDUCE], t.modes[SPLIT_REDUCE_STAR],
		t.modes[SPLIT_REDUCE_SCATTER], t.modes[SPLIT_REDUCE_RING], t.nodes_apart);
	if (IS_INSTRUMENTED)
		return; // fewer splits, for what a sanitizer sees
	for (int i = 0; i < N_SPLIT_MODES; i++)
		assert_true(t.modes[i] >= 10);
	assert_true(t.nodes_apart >= 10);
	assert_true(t.no_head >= 10 && t.no_column >= 10 && t.shared_block >= 10 && t.split_kv >= 10 && t.experts >= 10 && t.biases >= 10);
	for (int32_t n = 2; n <= 8; n++)
		assert_true(t.members[n] >= 10);
	for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
		assert_true(t.types[narrow[i]] >= 10);
	for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
		assert_true(t.types[wide[i]] >= 10);
}

static void the_demo_model_is_split_among_five_and_seven(void **state)
{
	(void)state;
	struct tally t = {0};
	if (access(SMOLLM2, R_OK) != 0) {
		print_message("no %s: run `make model`\n", SMOLLM2);
		skip();
	}
	struct model *m = open_file(SMOLLM2);
	try_splits(&t, m, 60, IS_INSTRUMENTED ? 2 : 14, 5);
	try_splits(&t, m, 61, IS_INSTRUMENTED ? 2 : 14, 7);
	model_close(m);
	assert_true(IS_INSTRUMENTED || t.split_kv >= 10); // three KV heads
}

// next_token computes the position behind compute's sequence, and leaves its states at the beginning of c->hidden.
static void next_token(struct computed *c)
{
	struct engine_item it = {.slot = 1, .pos_begin = N_TOKENS - 1, .n_tokens = 1, .hidden = c->hidden};
	for (int32_t i = 0; i < c->hidden_dim; i++)
		c->hidden[i] = (float)(i % 7) - 3;
	forward(c, &it, 1);
}

static void keys_and_values_stay_where_sums_travel_otherwise(void **state)
{
	(void)state;
	static const enum split_mode modes[] = {SPLIT_MIXED_SCATTER, SPLIT_MIXED_RING, SPLIT_MIXED_STAR, SPLIT_GATHER, SPLIT_REDUCE, SPLIT_REDUCE_STAR, SPLIT_REDUCE_RING};
	static const uint32_t shares[] = {1, 1};
	struct tiny_llama shape = tiny_llama_default(3);
	shape.n_layers = 2;
	shape.types[0] = DTYPE_Q8_0;
	struct model *m = open_tiny(&shape);
	struct split_shape s = engine_split_shape(m);
	struct computed one, all[2];
	open_computed(&one, m, NULL);
	compute(&one);
	next_token(&one);
	for (size_t i = 0; i + 1 < sizeof modes / sizeof *modes; i++) {
		if (modes[i] == SPLIT_GATHER)
			continue; // reduced, heads are others'
		for (size_t k = 0; k < 2; k++) {
			struct tensor_split split;
			assert_int_equal(tensor_split_make(&s, modes[i + k], shares, 2, &split, NULL), OK);
			open_computed(&all[k], m, &split);
		}
		compute(&all[0]);
		tensor_group_take_kv(all[1].group, all[0].group);
		next_token(&all[1]);
		assert_memory_equal(all[1].hidden, one.hidden, (size_t)one.hidden_dim * sizeof *one.hidden);
		close_computed(&all[0]);
		close_computed(&all[1]);
	}
	close_computed(&one);
	model_close(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_split_gives_the_bits_of_one_engine),
		cmocka_unit_test(the_demo_model_is_split_among_five_and_seven),
		cmocka_unit_test(keys_and_values_stay_where_sums_travel_otherwise),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
