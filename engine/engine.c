#include "engine/engine.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "engine/engine_state.h"
#include "engine/lane_sums.h"
#include "engine/member.h"
#include "engine/member_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_DIM_MAX 512 // what kernels_attention takes

// Memory is laid out twice by the same function: without an arena it only adds up, with one it carves. So the sum cannot differ from
// what is carved.
struct carver {
	struct arena *arena; // NULL: measure
	size_t need;
	bool overflow;
};

static void *carve(struct carver *c, size_t n, size_t size)
{
	if (c->arena != NULL) {
		void *p = arena_alloc_raw(c->arena, n, size);
		ASSERT(p != NULL);
		return p;
	}
	size_t bytes;
	if (!mul_size(n, size, &bytes) || !add_size(bytes, 63, &bytes) || !add_size(c->need, bytes & ~(size_t)63, &c->need))
		c->overflow = true;
	return NULL;
}

static float *carve_floats(struct carver *c, int32_t rows, int32_t cols)
{
	return carve(c, (size_t)rows * (size_t)cols, sizeof(float)); // two int32_t never wrap a size_t
}

static struct weight shape_of(const struct tensor_view *t)
{
	return (struct weight){.type = t->type, .rows = t->rows, .cols = t->cols, .row_bytes = t->row_bytes};
}

// carve_vector carves room for an f32 vector, unless a file may leave it out and does.
static float *carve_vector(struct carver *c, const struct tensor_view *t)
{
	return t->cols > 0 ? carve(c, (size_t)t->cols, sizeof(float)) : NULL;
}

// carve_bias carves room for the bias of the heads that are its own.
static float *carve_bias(const struct engine *e, struct carver *c, const struct tensor_view *t, int32_t n_heads)
{
	return t->cols > 0 ? carve_floats(c, n_heads, e->hp.head_dim) : NULL;
}

// pack_columns leaves the columns of its lanes to a matrix, and returns how many they are.
static int32_t pack_columns(struct weight *w, struct split_range lanes)
{
	w->cols = lanes_cols(w->type, w->cols, split_mask(lanes, kernels_lanes(w->type)));
	bool ok = dtype_row_bytes(w->type, (uint64_t)w->cols, &w->row_bytes);
	ASSERT(ok);
	return w->cols;
}

static void *carve_packed(struct engine *e, struct carver *c, const struct weight *w)
{
	size_t bytes = (size_t)w->rows * w->row_bytes;
	e->packed_bytes += bytes;
	return carve(c, bytes, 1);
}

static void lay_out_layer(struct engine *e, struct carver *c, int32_t layer)
{
	struct layer_weights w;
	engine_layer_part(e, layer, &w);
	struct engine_layer l = {
		.q = shape_of(&w.q), .k = shape_of(&w.k), .v = shape_of(&w.v), .o = shape_of(&w.o),
		.gate = shape_of(&w.gate), .up = shape_of(&w.up), .down = shape_of(&w.down), .router = shape_of(&w.router),
		.experts = w.experts, .gated_cols = e->hp.ffn_dim,
	};
	l.attended_cols = e->hp.n_heads * e->hp.head_dim;
	if (split_has_o_lanes(e->split.mode))
		l.attended_cols = pack_columns(&l.o, e->part.o_lanes);
	if (split_has_lanes(e->split.mode))
		l.gated_cols = pack_columns(&l.down, e->part.lanes);
	l.attn_norm = carve_vector(c, &w.attn_norm);
	l.ffn_norm = carve_vector(c, &w.ffn_norm);
	l.q_bias = carve_bias(e, c, &w.q_bias, e->n_own_heads);
	l.k_bias = carve_bias(e, c, &w.k_bias, e->n_own_kv);
	l.v_bias = carve_bias(e, c, &w.v_bias, e->n_own_kv);
	l.q_norm = carve_vector(c, &w.q_norm);
	l.k_norm = carve_vector(c, &w.k_norm);
	if (split_has_o_lanes(e->split.mode))
		l.o.data = l.o_packed = carve_packed(e, c, &l.o);
	if (split_has_lanes(e->split.mode))
		l.down.data = l.down_packed = carve_packed(e, c, &l.down);
	l.router.data = l.router_bytes = carve(c, (size_t)w.router.rows * w.router.row_bytes, 1);
	if (c->arena != NULL)
		e->layers[layer_spans_find(&e->c.layers, layer)] = l;
}

static void lay_out_kv(struct engine *e, struct carver *c)
{
	size_t n = (size_t)layer_spans_count(&e->c.layers);
	const int32_t dims[] = {e->c.n_slots, e->n_own_kv, e->c.ctx_len, e->hp.head_dim};
	for (size_t i = 0; i < ARRAY_LEN(dims); i++) {
		if (!mul_size(n, (size_t)dims[i], &n)) {
			c->overflow = true;
			return;
		}
	}
	if (n > SIZE_MAX / (2 * sizeof *e->keys)) {
		c->overflow = true;
		return;
	}
	e->keys = carve(c, n, sizeof *e->keys);
	e->values = carve(c, n, sizeof *e->values);
	e->kv_bytes = 2 * n * sizeof *e->keys;
}

// lay_out_inputs carves the float inputs, and one storage per activation kind: only one input of a kind is in use at a time.
static void lay_out_inputs(struct engine *e, struct carver *c)
{
	struct engine_input *inputs[] = {&e->normed, &e->attended, &e->picked, &e->gated};
	for (size_t i = 0; i < ARRAY_LEN(inputs); i++)
		inputs[i]->x = carve_floats(c, inputs[i]->n_cap, inputs[i]->cols);
	for (int kind = 0; kind < N_ACT_KINDS; kind++) {
		size_t bytes = 0;
		for (size_t i = 0; i < ARRAY_LEN(inputs); i++) {
			size_t b = inputs[i]->used[kind] ? acts_bytes((enum act_kind)kind, inputs[i]->n_cap, inputs[i]->cols) : 0;
			bytes = b > bytes ? b : bytes;
		}
		void *storage = e->acts_storage[kind] = carve(c, bytes, 1);
		for (size_t i = 0; i < ARRAY_LEN(inputs); i++) {
			if (inputs[i]->used[kind] && storage != NULL)
				acts_init(&inputs[i]->acts[kind], (enum act_kind)kind, inputs[i]->n_cap, inputs[i]->cols, storage);
		}
	}
}

static void lay_out_experts(struct engine *e, struct carver *c)
{
	int32_t n = e->c.batch_max, n_experts = e->hp.n_experts;
	e->router_logits = carve_floats(c, n, n_experts);
	e->expert_tokens = carve(c, (size_t)n_experts, sizeof *e->expert_tokens);
	e->expert_next = carve(c, (size_t)n_experts, sizeof *e->expert_next);
	e->expert_parts = carve(c, (size_t)n_experts, sizeof *e->expert_parts);
	e->pair_tokens = carve(c, (size_t)e->pairs_cap, sizeof *e->pair_tokens);
	e->expert_out = carve_floats(c, e->pairs_cap, e->hp.hidden_dim);
	e->expert_held = carve(c, (size_t)n_experts, sizeof *e->expert_held);
	e->ahead_x = carve_floats(c, 1, e->hp.hidden_dim);
	e->ahead_logits = carve_floats(c, 1, n_experts);
	e->ahead_choices = carve(c, (size_t)e->hp.n_experts_used, sizeof *e->ahead_choices);
}

// lay_out_run carves what each forward under way has of its own (struct engine_run).
static void lay_out_run(struct engine *e, struct carver *c)
{
	const struct hparams *hp = &e->hp;
	int32_t n = e->c.batch_max;
	e->tokens = carve(c, (size_t)n, sizeof *e->tokens);
	e->tiles = carve(c, (size_t)n, sizeof *e->tiles);
	lay_out_inputs(e, c);
	if (layer_spans_count(&e->c.layers) == 0)
		return;
	if (hp->n_experts > 0)
		e->choices = carve(c, (size_t)n * (size_t)hp->n_experts_used, sizeof *e->choices);
	if (hp->n_experts > 0 && e->c.split != NULL)
		e->chosen_out = carve(c, (size_t)n * (size_t)hp->n_experts_used, (size_t)hp->hidden_dim * sizeof *e->chosen_out);
	if (split_has_lanes(e->split.mode)) {
		size_t nodes;
		if (!mul_size((size_t)n * (size_t)hp->hidden_dim, (size_t)lane_sum_nodes_max(e), &nodes))
			c->overflow = true;
		else
			e->nodes = carve(c, nodes, sizeof *e->nodes);
	}
	e->delta = carve_floats(c, n, hp->hidden_dim);
	e->rope_cos = carve_floats(c, n, hp->rope_dim / 2);
	e->rope_sin = carve_floats(c, n, hp->rope_dim / 2);
}

static int32_t n_forwards(const struct engine_config *c)
{
	return c->split != NULL && c->n_forwards > 1 ? c->n_forwards : 1;
}

void engine_store_run(const struct engine *e, struct engine_run *to)
{
	*to = (struct engine_run){.tokens = e->tokens, .tiles = e->tiles, .normed = e->normed, .attended = e->attended, .picked = e->picked,
		.gated = e->gated, .choices = e->choices, .nodes = e->nodes, .chosen_out = e->chosen_out, .delta = e->delta, .rope_cos = e->rope_cos,
		.rope_sin = e->rope_sin};
	memcpy(to->acts_storage, e->acts_storage, sizeof to->acts_storage);
}

void engine_fetch_run(struct engine *e, const struct engine_run *from)
{
	e->tokens = from->tokens;
	e->tiles = from->tiles;
	e->normed = from->normed;
	e->attended = from->attended;
	e->picked = from->picked;
	e->gated = from->gated;
	e->choices = from->choices;
	e->nodes = from->nodes;
	e->chosen_out = from->chosen_out;
	e->delta = from->delta;
	e->rope_cos = from->rope_cos;
	e->rope_sin = from->rope_sin;
	memcpy(e->acts_storage, from->acts_storage, sizeof e->acts_storage);
}

// find_heads counts the query heads that are its own and the KV heads that they use, and lists them where there is room.
static void find_heads(struct engine *e)
{
	int32_t per_kv = e->hp.n_heads / e->hp.n_kv_heads, last_kv = -1;
	e->n_own_heads = e->n_own_kv = 0;
	for (int32_t i = 0; i < e->hp.n_heads; i++) {
		if (!split_owns_head(&e->shape, e->split.mode, &e->part, i))
			continue;
		if (i / per_kv != last_kv && e->heads != NULL) {
			e->kv_first[e->n_own_kv] = e->n_own_heads;
			e->kv_heads[e->n_own_kv] = i / per_kv;
		}
		if (e->heads != NULL)
			e->heads[e->n_own_heads] = i;
		e->n_own_kv += i / per_kv != last_kv;
		e->n_own_heads++;
		last_kv = i / per_kv;
	}
	if (e->heads != NULL)
		e->kv_first[e->n_own_kv] = e->n_own_heads;
}

static void lay_out_heads(struct engine *e, struct carver *c)
{
	e->heads = carve(c, (size_t)e->n_own_heads, sizeof *e->heads);
	e->kv_heads = carve(c, (size_t)e->n_own_kv, sizeof *e->kv_heads);
	e->kv_first = carve(c, (size_t)e->n_own_kv + 1, sizeof *e->kv_first);
	find_heads(e);
}

static void lay_out(struct engine *e, struct carver *c)
{
	const struct hparams *hp = &e->hp;
	int32_t n = e->c.batch_max;
	e->packed_bytes = 0;
	for (int32_t i = n_forwards(&e->c); i-- > 0;) { // the first one's stays in place
		lay_out_run(e, c);
		engine_store_run(e, &e->runs[i]);
	}
	if (engine_has_output(e)) {
		struct tensor_view norm = model_output_norm(e->c.model);
		e->output_norm = carve_vector(c, &norm);
	}
	if (e->c.has_head)
		e->embd_row = carve(c, e->embd.row_bytes, 1);
	size_t n_layers = (size_t)layer_spans_count(&e->c.layers);
	if (n_layers == 0)
		return;
	lay_out_heads(e, c);
	e->layers = carve(c, n_layers, sizeof *e->layers);
	for (int32_t i = 0; i < hp->n_layers; i++)
		if (layer_spans_find(&e->c.layers, i) >= 0)
			lay_out_layer(e, c, i);
	lay_out_kv(e, c);
	e->computed = carve(c, n_layers * (size_t)e->c.n_slots, sizeof *e->computed);
	e->q = carve_floats(c, n, e->n_own_heads * hp->head_dim);
	e->k = carve_floats(c, n, e->n_own_kv * hp->head_dim);
	e->v = carve_floats(c, n, e->n_own_kv * hp->head_dim);
	e->up = carve_floats(c, e->gated.n_cap, hp->ffn_dim);
	if (hp->n_experts > 0)
		lay_out_experts(e, c);
	e->rope_freq = carve_floats(c, 1, hp->rope_dim / 2);
	int32_t n_queries = TILE_TOKENS_MAX * (hp->n_heads / hp->n_kv_heads);
	e->attn_scratch_len = (kernels_attention_group_scratch(e->c.ctx_len, hp->head_dim, n_queries) + 15) & ~(size_t)15; // threads share no cache line
	size_t floats;
	if (!mul_size(e->attn_scratch_len, (size_t)pool_n_threads(e->c.pool), &floats))
		c->overflow = true;
	else
		e->attn_scratch = carve(c, floats, sizeof(float));
}

static enum err check_type(const struct tensor_view *t, const char *name, struct engine_input *in, struct errmsg *em)
{
	if (!kernels_has_type(t->type))
		return errmsg_fail(em, ERR_UNSUPPORTED, "tensor %s: type %s has no kernels", name, dtype_find(t->type)->name);
	in->used[kernels_act_kind(t->type)] = true;
	return OK;
}

static enum err check_experts(struct engine *e, int32_t layer, const struct expert_weights *experts, struct errmsg *em)
{
	enum err err = OK;
	for (int32_t i = 0; experts != NULL && i < e->hp.n_experts && err == OK; i++) {
		char name[64];
		snprintf(name, sizeof name, "blk.%d, expert %d", (int)layer, (int)i);
		err = check_type(&experts[i].gate, name, &e->picked, em);
		if (err == OK)
			err = check_type(&experts[i].up, name, &e->picked, em);
		if (err == OK)
			err = check_type(&experts[i].down, name, &e->gated, em);
	}
	return err;
}

// check_layer refuses weights without kernels and notes which forms each input is needed in.
static enum err check_layer(struct engine *e, int32_t layer, struct errmsg *em)
{
	struct layer_weights w;
	model_layer(e->c.model, layer, &w);
	const struct {
		const struct tensor_view *t;
		const char *name;
		struct engine_input *in;
	} parts[] = {
		{&w.q, "attn_q", &e->normed}, {&w.k, "attn_k", &e->normed}, {&w.v, "attn_v", &e->normed}, {&w.o, "attn_output", &e->attended},
		{&w.gate, "ffn_gate", &e->normed}, {&w.up, "ffn_up", &e->normed}, {&w.down, "ffn_down", &e->gated}, {&w.router, "ffn_gate_inp", &e->normed},
	};
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		char name[64];
		snprintf(name, sizeof name, "blk.%d.%s.weight", (int)layer, parts[i].name);
		enum err err = parts[i].t->rows > 0 ? check_type(parts[i].t, name, parts[i].in, em) : OK;
		if (err != OK)
			return err;
	}
	return check_experts(e, layer, w.experts, em);
}

static enum err check_embedding(struct engine *e, struct errmsg *em)
{
	struct tensor_view embd = model_token_embd(e->c.model);
	e->embd = shape_of(&embd);
	e->embd_at = embd.at;
	if (kernels_has_type(embd.type))
		return OK;
	return errmsg_fail(em, ERR_UNSUPPORTED, "tensor token_embd.weight: type %s has no kernels", dtype_find(embd.type)->name);
}

static enum err check_output(struct engine *e, struct errmsg *em)
{
	struct tensor_view output = model_output(e->c.model);
	e->output = shape_of(&output);
	return check_type(&output, e->hp.tied_embeddings ? "token_embd.weight" : "output.weight", &e->normed, em);
}

static void check_spans(const struct layer_spans *s, int32_t n_layers)
{
	ASSERT(s->n >= 0 && s->n <= ROUNDS_MAX);
	for (int32_t i = 0; i < s->n; i++) {
		ASSERT(s->at[i].begin >= (i > 0 ? s->at[i - 1].end : 0));
		ASSERT(s->at[i].begin <= s->at[i].end);
		ASSERT(s->at[i].end <= n_layers);
	}
}

static enum err check_config(struct engine *e, struct errmsg *em)
{
	const struct engine_config *c = &e->c;
	const struct hparams *hp = &e->hp;
	check_spans(&c->layers, hp->n_layers);
	if (c->batch_max < 1 || (layer_spans_count(&c->layers) > 0 && (c->n_slots < 1 || c->ctx_len < 1)))
		return errmsg_fail(em, ERR_RANGE, "engine: %d slots of %d tokens, %d tokens at once: each must be at least 1", (int)c->n_slots,
			(int)c->ctx_len, (int)c->batch_max);
	if (hp->head_dim % 8 != 0 || hp->head_dim > HEAD_DIM_MAX)
		return errmsg_fail(em, ERR_UNSUPPORTED, "head_dim %d unsupported (want a multiple of 8, at most %d)", (int)hp->head_dim, HEAD_DIM_MAX);
	for (int32_t i = 0; i < hp->n_layers; i++) {
		enum err err = layer_spans_find(&c->layers, i) >= 0 ? check_layer(e, i, em) : OK;
		if (err != OK)
			return err;
	}
	enum err err = c->has_head ? check_embedding(e, em) : OK;
	return err == OK && engine_has_output(e) ? check_output(e, em) : err;
}

static enum err measure(struct engine *e, size_t *need, struct errmsg *em)
{
	struct carver carver = {0};
	lay_out(e, &carver);
	*need = carver.need;
	if (carver.overflow)
		return errmsg_fail(em, ERR_NOMEM, "engine: %d slots of %d tokens need more memory than this machine can address", (int)e->c.n_slots,
			(int)e->c.ctx_len);
	return OK;
}

static enum err allocate(struct engine *e, struct errmsg *em)
{
	size_t need;
	enum err err = measure(e, &need, em);
	if (err != OK)
		return err;
	if (arena_open(need, &e->arena) != OK)
		return errmsg_fail(em, ERR_NOMEM, "engine: cannot allocate %zu MiB (%llu MiB of it KV cache, %d slots of %d tokens)",
			need >> 20, (unsigned long long)(e->kv_bytes >> 20), (int)e->c.n_slots, (int)e->c.ctx_len);
	lay_out(e, &(struct carver){.arena = &e->arena});
	return OK;
}

// set_inputs decides how much scratch each input of products takes. A group of experts has at least the pairs of one token, or of one expert
// that every token of a batch chose.
static void set_inputs(struct engine *e, bool has_layers)
{
	const struct hparams *hp = &e->hp;
	int32_t n = e->c.batch_max;
	e->normed = (struct engine_input){.n_cap = n, .cols = hp->hidden_dim};
	if (!has_layers)
		return;
	e->attended = (struct engine_input){.n_cap = n, .cols = hp->n_heads * hp->head_dim};
	e->gated = (struct engine_input){.n_cap = n, .cols = hp->ffn_dim};
	if (hp->n_experts == 0)
		return;
	e->experts_at_once = hp->n_experts;
	e->pairs_cap = n > hp->n_experts_used ? n : hp->n_experts_used;
	e->picked = (struct engine_input){.n_cap = e->pairs_cap, .cols = hp->hidden_dim};
	e->gated.n_cap = e->pairs_cap;
}

struct split_shape engine_split_shape(const struct model *m)
{
	const struct hparams *hp = model_hparams(m);
	struct split_shape s = {.n_heads = hp->n_heads, .n_kv_heads = hp->n_kv_heads, .head_dim = hp->head_dim, .hidden_dim = hp->hidden_dim,
		.ffn_dim = hp->ffn_dim, .n_experts = hp->n_experts, .vocab_size = hp->vocab_size};
	for (int32_t i = 0; i < hp->n_layers; i++) {
		struct layer_weights w;
		model_layer(m, i, &w);
		split_shape_add(&s, w.o.type, w.down.type);
	}
	return s;
}

// set_part decides what of a layer this engine computes.
static enum err set_part(struct engine *e, struct errmsg *em)
{
	e->shape = engine_split_shape(e->c.model);
	enum err err;
	if (e->c.split == NULL) {
		err = tensor_split_make(&e->shape, SPLIT_GATHER, &(uint32_t){1}, 1, &e->split, em);
	} else {
		ASSERT(!e->c.has_head);
		ASSERT(e->c.member >= 0);
		ASSERT(e->c.member < e->c.split->n_members);
		e->split = *e->c.split;
		err = tensor_split_check(&e->shape, &e->split, em);
	}
	if (err != OK)
		return err;
	e->part = e->split.parts[e->c.split != NULL ? e->c.member : 0];
	e->output.rows = split_len(engine_output_rows(e));
	find_heads(e);
	return OK;
}

struct split_range engine_output_rows(const struct engine *e)
{
	return engine_has_output(e) ? e->part.vocab_rows : (struct split_range){0, 0};
}

// prepare fills what the config alone decides.
static enum err prepare(struct engine *e, const struct engine_config *c, struct errmsg *em)
{
	e->c = *c;
	e->hp = *model_hparams(c->model);
	e->files = c->files != NULL ? c->files : model_files(c->model);
	set_inputs(e, layer_spans_count(&c->layers) > 0);
	enum err err = check_config(e, em);
	return err == OK ? set_part(e, em) : err;
}

struct weight engine_expert_weight(const struct engine *e, int32_t layer, int32_t expert, enum expert_matrix matrix)
{
	const struct expert_weights *x = &e->layers[layer_spans_find(&e->c.layers, layer)].experts[expert];
	const struct tensor_view *t = matrix == EXPERT_GATE ? &x->gate : matrix == EXPERT_UP ? &x->up : &x->down;
	struct weight w = shape_of(t);
	w.data = e->expert_cache != NULL ? expert_cache_view(e->expert_cache, engine_expert_unit(e, layer, expert), matrix) : e->files->map + t->at;
	return w;
}

enum err engine_open(const struct engine_config *c, struct engine **out, struct errmsg *em)
{
	struct engine *e = calloc(1, sizeof *e);
	if (e == NULL)
		return errmsg_fail(em, ERR_NOMEM, "engine: cannot allocate %zu bytes", sizeof *e);
	size_t n_layers = (size_t)layer_spans_count(&c->layers);
	enum err err = prepare(e, c, em);
	if (err == OK)
		err = allocate(e, em);
	for (int32_t i = 0; i < n_forwards(c) && err == OK && c->split != NULL; i++)
		if ((e->members[i] = member_run_open(e)) == NULL)
			err = errmsg_fail(em, ERR_NOMEM, "engine: no memory for a member of a group");
	e->member = e->members[0];
	if (err == OK)
		err = engine_read_vectors(e, em);
	if (err == OK && !c->defer_weights)
		err = engine_load_weights(e, &c->weights, em);
	if (err != OK) {
		errmsg_prefix(em, err, "%s", model_path(c->model));
		engine_close(e);
		return err;
	}
	if (n_layers > 0) {
		memset(e->computed, 0, n_layers * (size_t)c->n_slots * sizeof *e->computed);
		rope_freqs(e->hp.rope_theta, e->hp.rope_dim, e->rope_freq);
	}
	*out = e;
	return OK;
}

enum err engine_measure(const struct engine_config *c, struct engine_size *out, struct errmsg *em)
{
	struct engine e = {0}; // without memory: nothing is carved
	size_t need = 0;
	enum err err = prepare(&e, c, em);
	if (err == OK)
		err = measure(&e, &need, em);
	*out = (struct engine_size){.bytes = sizeof e + need, .kv_bytes = e.kv_bytes, .packed_bytes = e.packed_bytes};
	if (err == OK && c->split != NULL)
		out->part_bytes = member_bytes_max(&e, c->batch_max);
	if (err == OK)
		err = engine_measure_weights(&e, out, em);
	return err == OK ? OK : errmsg_prefix(em, err, "%s", model_path(c->model));
}

enum err weight_ranges_list(const struct engine_config *c, struct weight_ranges *out, struct errmsg *em)
{
	struct engine e = {0}; // likewise
	enum err err = prepare(&e, c, em);
	if (err == OK && weight_ranges_of(&e, out) != OK)
		err = errmsg_fail(em, ERR_NOMEM, "no memory for a list of weights");
	return err == OK ? OK : errmsg_prefix(em, err, "%s", model_path(c->model));
}

// take_slot copies what is computed and no more: pages that nobody wrote take no memory.
static void take_slot(struct engine *e, const struct engine *from, int32_t layer, int32_t slot)
{
	int32_t n = *engine_computed(from, layer, slot);
	size_t bytes = (size_t)n * (size_t)e->hp.head_dim * sizeof *e->keys;
	*engine_computed(e, layer, slot) = n;
	for (int32_t head = 0; n > 0 && head < e->n_own_kv; head++) {
		size_t to_at = engine_kv_at(e, layer, slot, head), from_at = engine_kv_at(from, layer, slot, head);
		memcpy(e->keys + to_at, from->keys + from_at, bytes);
		memcpy(e->values + to_at, from->values + from_at, bytes);
	}
}

// has_same_kv: keys and values are those of the same KV heads, whatever else of a layer is whose.
static bool has_same_kv(const struct engine *e, const struct engine *from)
{
	return e->n_own_kv == from->n_own_kv && (e->n_own_kv == 0 || memcmp(e->kv_heads, from->kv_heads, (size_t)e->n_own_kv * sizeof *e->kv_heads) == 0);
}

void engine_take_kv(struct engine *e, const struct engine *from)
{
	ASSERT(e->c.model == from->c.model);
	ASSERT(e->c.wire == from->c.wire);
	if (e->c.n_slots != from->c.n_slots || e->c.ctx_len != from->c.ctx_len || !has_same_kv(e, from))
		return;
	for (int32_t layer = 0; layer < e->hp.n_layers; layer++)
		if (layer_spans_find(&e->c.layers, layer) >= 0 && layer_spans_find(&from->c.layers, layer) >= 0)
			for (int32_t slot = 0; slot < e->c.n_slots; slot++)
				take_slot(e, from, layer, slot);
}

void engine_close(struct engine *e)
{
	if (e == NULL)
		return;
	engine_drop_weights(e);
	for (int32_t i = 0; i < MEMBER_FORWARDS_MAX; i++)
		member_run_close(e->members[i]);
	arena_close(&e->arena);
	free(e);
}

uint64_t engine_bytes(const struct engine *e)
{
	return sizeof *e + e->arena.cap;
}

uint64_t engine_kv_bytes(const struct engine *e)
{
	return e->kv_bytes;
}

bool engine_expert_stats(struct engine *e, struct expert_cache_stats *out)
{
	*out = (struct expert_cache_stats){0};
	if (e->expert_cache != NULL)
		expert_cache_get_stats(e->expert_cache, out);
	return e->expert_cache != NULL;
}

void engine_weight_stats(struct engine *e, struct residency_stats *out)
{
	struct expert_cache_stats x;
	residency_get_stats(e->residency, out);
	if (!engine_expert_stats(e, &x))
		return;
	out->read_bytes += x.read_bytes;
	out->wasted_bytes += x.wasted_bytes;
	out->read_ns += x.read_ns;
	out->stall_ns += x.stall_ns;
}

const struct hparams *engine_hparams(const struct engine *e)
{
	return &e->hp;
}

const struct engine_config *engine_config_of(const struct engine *e)
{
	return &e->c;
}

enum err engine_fault_describe(const struct engine *e, const struct engine_fault *f, struct errmsg *em)
{
	char where[48];
	if (f->layer < 0)
		snprintf(where, sizeof where, "embedding");
	else if (f->layer == e->hp.n_layers)
		snprintf(where, sizeof where, "logits");
	else
		snprintf(where, sizeof where, "layer %d", (int)f->layer);
	if (f->err == OK)
		return OK;
	if (f->in_kv)
		return errmsg_fail(em, f->err, "%s: a key or value of position %d is out of f16's range (got %g, at most 65504)", where,
			(int)f->pos, (double)f->value);
	if (f->err == ERR_RANGE)
		return errmsg_fail(em, f->err, "%s: what position %d builds on has failed", where, (int)f->pos);
	if (f->layer < e->hp.n_layers && e->c.wire == WIRE_F16)
		return errmsg_fail(em, f->err, "%s: output of position %d is out of f16's range (got %g, at most 65504): use another wire type",
			where, (int)f->pos, (double)f->value);
	return errmsg_fail(em, f->err, "%s: output of position %d is not finite (got %g)", where, (int)f->pos, (double)f->value);
}
