// Architectures like llama: one batch through a range of layers.
//
// h += o(attention(norm(h))); h += down(silu(gate(norm(h))) * up(norm(h))), or experts (engine/expert_ffn.h); round to the wire type. Each product's weights are read once for
// all tokens of the batch, and K and V once for a few tokens and the query heads that share them.
#include "base/assert.h"
#include "engine/expert_ffn.h"
#include "engine/layer_parts.h"

#include <string.h>

#define F16_EXP_MASK 0x7c00

static void fail_token(struct engine_token *t, struct engine_fault f)
{
	if (t->fault.err == OK) // the first fault is the cause of the later ones
		t->fault = f;
}

static void normalise(struct hand *h, int32_t begin, int32_t end, const float *w)
{
	struct engine *e = h->crew->e;
	size_t n = (size_t)e->hp.hidden_dim;
	for (int32_t t = begin; t < end; t++)
		kernels_rmsnorm(e->c.kernels, e->tokens[t].hidden, w, e->hp.hidden_dim, e->hp.norm_eps, e->normed.x + (size_t)t * n);
	crew_quantise(h, &e->normed, begin, end);
}

void layer_add(struct hand *h)
{
	struct engine *e = h->crew->e;
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	for (int32_t t = begin; t < end; t++)
		kernels_add(e->c.kernels, e->tokens[t].hidden, e->delta + (size_t)t * (size_t)e->hp.hidden_dim, e->hp.hidden_dim);
}

void layer_end(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	for (int32_t t = begin; t < end; t++) {
		struct engine_token *tok = &e->tokens[t];
		int32_t bad;
		if (wire_round(e->c.wire, tok->hidden, e->hp.hidden_dim, &bad) != OK)
			fail_token(tok, (struct engine_fault){ERR_NON_FINITE, layer, tok->pos, false, tok->hidden[bad]});
	}
}

// store_f16 puts one head's key or value into the cache; a value that f16 cannot hold fails the token.
static void store_f16(struct engine *e, struct engine_token *tok, int32_t layer, const float *x, uint16_t *to)
{
	int32_t n = e->hp.head_dim;
	kernels_f32_to_f16(e->c.kernels, x, n, to);
	uint32_t bad = 0;
	for (int32_t i = 0; i < n; i++)
		bad |= (to[i] & F16_EXP_MASK) == F16_EXP_MASK;
	if (!bad)
		return;
	int32_t i = 0;
	while ((to[i] & F16_EXP_MASK) != F16_EXP_MASK)
		i++;
	fail_token(tok, (struct engine_fault){ERR_NON_FINITE, layer, tok->pos, true, x[i]});
}

static void add_bias(struct engine *e, float *y, const float *bias, int32_t n)
{
	if (bias != NULL)
		kernels_add(e->c.kernels, y, bias, n);
}

// finish_heads norms and turns n_heads heads of q or k in place.
static void finish_heads(struct engine *e, float *x, int32_t n_heads, const float *norm, const float *cos, const float *sin)
{
	const struct hparams *hp = &e->hp;
	for (int32_t i = 0; i < n_heads; i++, x += hp->head_dim) {
		if (norm != NULL)
			kernels_rmsnorm(e->c.kernels, x, norm, hp->head_dim, hp->norm_eps, x);
		if (arch_rope_is_halves(hp->arch))
			kernels_rope_halves(e->c.kernels, x, hp->rope_dim / 2, cos, sin);
		else
			kernels_rope_pairs(e->c.kernels, x, hp->rope_dim / 2, cos, sin);
	}
}

// place_token finishes q, k and v of one token: bias, norm, rotation by its position, and into the KV cache.
static void place_token(struct engine *e, const struct engine_layer *l, int32_t layer, int32_t t)
{
	const struct hparams *hp = &e->hp;
	struct engine_token *tok = &e->tokens[t];
	int32_t n_heads = e->n_own_heads, n_kv_heads = e->n_own_kv;
	int32_t n_q = n_heads * hp->head_dim, n_kv = n_kv_heads * hp->head_dim, n_pairs = hp->rope_dim / 2;
	float *q = e->q + (size_t)t * (size_t)n_q, *k = e->k + (size_t)t * (size_t)n_kv, *v = e->v + (size_t)t * (size_t)n_kv;
	const float *cos = e->rope_cos + (size_t)t * (size_t)n_pairs, *sin = e->rope_sin + (size_t)t * (size_t)n_pairs;
	add_bias(e, q, l->q_bias, n_q);
	add_bias(e, k, l->k_bias, n_kv);
	add_bias(e, v, l->v_bias, n_kv);
	finish_heads(e, q, n_heads, l->q_norm, cos, sin);
	finish_heads(e, k, n_kv_heads, l->k_norm, cos, sin);
	for (int32_t i = 0; i < n_kv_heads; i++) {
		size_t at = engine_kv_at(e, layer, tok->slot, i) + (size_t)tok->pos * (size_t)hp->head_dim;
		float *head = k + (size_t)i * (size_t)hp->head_dim;
		store_f16(e, tok, layer, head, e->keys + at);
		store_f16(e, tok, layer, v + (size_t)i * (size_t)hp->head_dim, e->values + at);
	}
}

// Some of the engine's query heads, which share a KV head.
struct head_group {
	int32_t begin, n; // of e->heads
	int32_t kv;       // place of the KV head
};

// attend_tile computes them for the tokens of one tile. Where columns of o are dealt along lanes, a member's lie side by side.
static void attend_tile(struct hand *h, int32_t layer, const struct engine_tile *tile, struct head_group heads)
{
	struct engine *e = h->crew->e;
	const struct hparams *hp = &e->hp;
	const struct engine_token *tok = &e->tokens[tile->begin];
	size_t kv = engine_kv_at(e, layer, tok->slot, heads.kv);
	size_t dim = (size_t)hp->head_dim, own = (size_t)e->n_own_heads * dim, width = (size_t)layer_of(e, layer)->attended_cols;
	size_t col = (size_t)(split_has_o_lanes(e->split.mode) ? heads.begin : e->heads[heads.begin]) * dim;
	struct attention_group g = {
		.q = e->q + (size_t)tile->begin * own + (size_t)heads.begin * dim,
		.q_stride = own,
		.k = e->keys + kv,
		.v = e->values + kv,
		.stride = dim,
		.n_tokens = tile->n_tokens,
		.n_heads = heads.n,
		.n_pos = tok->pos + 1,
		.head_dim = hp->head_dim,
		.out = e->attended.x + (size_t)tile->begin * width + col,
		.out_stride = width,
	};
	kernels_attention_group(e->c.kernels, &g, e->attn_scratch + (size_t)h->idx * e->attn_scratch_len);
}

// attend hands out KV heads of tiles, or single query heads where those would leave threads without work.
static void attend(struct hand *h, int32_t layer)
{
	const struct engine *e = h->crew->e;
	int32_t n_tiles = h->crew->n_tiles, unit;
	bool single = n_tiles * e->n_own_kv < h->n_hands;
	while (crew_take(h, n_tiles * (single ? e->n_own_heads : e->n_own_kv), &unit)) {
		int32_t at = unit / n_tiles, kv = 0;
		while (single && e->kv_first[kv + 1] <= at)
			kv++;
		struct head_group g = {at, 1, kv};
		if (!single)
			g = (struct head_group){e->kv_first[at], e->kv_first[at + 1] - e->kv_first[at], at};
		attend_tile(h, layer, &e->tiles[unit % n_tiles], g);
	}
}

static void products_qkv(struct hand *h, const void *ctx, int32_t unit)
{
	struct engine *e = h->crew->e;
	const struct engine_layer *l = ctx;
	size_t dim = (size_t)e->hp.head_dim, own = (size_t)e->n_own_heads * dim, own_kv = (size_t)e->n_own_kv * dim;
	const struct product p[] = {
		{&l->q, &e->normed, e->q, own}, {&l->k, &e->normed, e->k, own_kv}, {&l->v, &e->normed, e->v, own_kv},
	};
	crew_products(h, unit, p, ARRAY_LEN(p));
}

static void product_o(struct hand *h, const void *ctx, int32_t unit)
{
	struct engine *e = h->crew->e;
	const struct engine_layer *l = ctx;
	crew_products(h, unit, &(struct product){&l->o, &e->attended, e->delta + e->part.o_rows.begin, (size_t)e->hp.hidden_dim}, 1);
}

static void product_down(struct hand *h, const void *ctx, int32_t unit)
{
	struct engine *e = h->crew->e;
	const struct engine_layer *l = ctx;
	crew_products(h, unit, &(struct product){&l->down, &e->gated, e->delta + e->part.down_rows.begin, (size_t)e->hp.hidden_dim}, 1);
}

// gate_and_up computes the same rows of both and joins them at once, while they are in the cache.
static void gate_and_up(struct hand *h, const void *ctx, int32_t unit)
{
	struct engine *e = h->crew->e;
	const struct engine_layer *l = ctx;
	int32_t first, same, share;
	struct weight gate = crew_unit_weight(h, unit, 0, &l->gate, &first), up = crew_unit_weight(h, unit, 1, &l->up, &same);
	int32_t rows = gate.rows, per_share = crew_rows_per_share(h, rows), col = e->part.ffn.begin + first;
	size_t stride = (size_t)l->gated_cols;
	const struct acts *gate_in = &e->normed.acts[kernels_act_kind(gate.type)], *up_in = &e->normed.acts[kernels_act_kind(up.type)];
	ASSERT(up.rows == rows);
	while (crew_take(h, rows / per_share + (rows % per_share != 0), &share)) {
		int32_t begin = share * per_share, end = rows - begin > per_share ? begin + per_share : rows;
		kernels_matmul(e->c.kernels, &gate, gate_in, begin, end, e->gated.x + col, stride);
		kernels_matmul(e->c.kernels, &up, up_in, begin, end, e->up + col, stride);
		for (int32_t t = 0; t < h->crew->n_tokens; t++) {
			size_t at = (size_t)t * stride + (size_t)(col + begin);
			kernels_swiglu(e->c.kernels, e->gated.x + at, e->up + at, end - begin, e->gated.x + at);
		}
	}
}

static bool run_units(struct hand *h, const struct engine_layer *l, enum unit_kind kind, crew_unit_fn *fn)
{
	return crew_begin_units(h, &l->units[kind]) && crew_run_units(h, &l->units[kind], fn, l);
}

bool layer_attend(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	const struct engine_layer *l = layer_of(e, layer);
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	normalise(h, begin, end, l->attn_norm);
	if (!run_units(h, l, UNIT_QKV, products_qkv))
		return false;
	for (int32_t t = begin; t < end; t++)
		place_token(e, l, layer, t);
	crew_end_phase(h);
	attend(h, layer);
	crew_end_phase(h);
	return true;
}

bool layer_o(struct hand *h, int32_t layer)
{
	return run_units(h, layer_of(h->crew->e, layer), UNIT_O, product_o);
}

void layer_norm_ffn(struct hand *h, int32_t layer)
{
	int32_t begin, end;
	crew_tokens(h, &begin, &end);
	normalise(h, begin, end, layer_of(h->crew->e, layer)->ffn_norm);
}

bool layer_gate_up(struct hand *h, int32_t layer)
{
	return run_units(h, layer_of(h->crew->e, layer), UNIT_GATE_UP, gate_and_up);
}

bool layer_down(struct hand *h, int32_t layer)
{
	return run_units(h, layer_of(h->crew->e, layer), UNIT_DOWN, product_down);
}

// ffn computes what the second half of a layer adds, into delta.
static bool ffn(struct hand *h, int32_t layer)
{
	struct engine *e = h->crew->e;
	int32_t begin, end;
	layer_norm_ffn(h, layer);
	if (e->hp.n_experts > 0)
		return expert_ffn_block(h, layer);
	if (!layer_gate_up(h, layer))
		return false;
	crew_tokens(h, &begin, &end);
	crew_quantise(h, &e->gated, begin, end);
	return layer_down(h, layer);
}

static bool run_layer(struct hand *h, int32_t layer)
{
	int32_t begin, end;
	if (!layer_attend(h, layer))
		return false;
	crew_tokens(h, &begin, &end);
	crew_quantise(h, &h->crew->e->attended, begin, end);
	if (!layer_o(h, layer))
		return false;
	layer_add(h);
	if (!ffn(h, layer))
		return false;
	// The next layer begins with the same tokens on the same thread: no phase ends here.
	layer_add(h);
	layer_end(h, layer);
	return true;
}

void layer_rope(struct hand *h)
{
	struct engine *e = h->crew->e;
	int32_t begin, end, n_pairs = e->hp.rope_dim / 2;
	crew_tokens(h, &begin, &end);
	for (int32_t t = begin; t < end; t++) {
		size_t at = (size_t)t * (size_t)n_pairs;
		rope_table(e->rope_freq, n_pairs, e->tokens[t].pos, e->rope_cos + at, e->rope_sin + at);
	}
}

static void run_layers(void *ctx, int32_t thread_idx, int32_t n_threads)
{
	struct hand h = {.crew = ctx, .idx = thread_idx, .n_hands = n_threads};
	layer_rope(&h);
	for (int32_t layer = h.crew->layer_begin; layer < h.crew->layer_end; layer++)
		if (!run_layer(&h, layer))
			return;
}

static enum err check_item(const struct crew *crew, const struct engine_item *items, int32_t i, struct errmsg *em)
{
	const struct engine *e = crew->e;
	const struct engine_item *it = &items[i];
	if (it->slot < 0 || it->slot >= e->c.n_slots)
		return errmsg_fail(em, ERR_RANGE, "engine: KV slot %d, want 0 to %d", (int)it->slot, (int)e->c.n_slots - 1);
	if (it->n_tokens < 1 || it->pos_begin < 0 || it->pos_begin > e->c.ctx_len - it->n_tokens)
		return errmsg_fail(em, ERR_RANGE, "engine: %d tokens at position %d do not fit a context of %d", (int)it->n_tokens,
			(int)it->pos_begin, (int)e->c.ctx_len);
	for (int32_t layer = crew->layer_begin; layer < crew->layer_end; layer++) {
		int32_t n = *engine_computed(e, layer, it->slot);
		if (it->pos_begin > n)
			return errmsg_fail(em, ERR_RANGE, "engine: position %d of slot %d, but layer %d has computed only %d", (int)it->pos_begin,
				(int)it->slot, (int)layer, (int)n);
	}
	for (int32_t j = 0; j < i; j++) {
		if (items[j].slot == it->slot)
			return errmsg_fail(em, ERR_RANGE, "engine: KV slot %d twice in one batch", (int)it->slot);
	}
	return OK;
}

enum err layer_take_batch(struct crew *crew, struct engine_item *items, int32_t n_items, struct errmsg *em)
{
	struct engine *e = crew->e;
	int32_t n = 0;
	for (int32_t i = 0; i < n_items; i++) {
		enum err err = check_item(crew, items, i, em);
		if (err != OK)
			return err;
		if (items[i].n_tokens > e->c.batch_max - n)
			return errmsg_fail(em, ERR_RANGE, "engine: more than %d tokens in one batch", (int)e->c.batch_max);
		for (int32_t t = 0; t < items[i].n_tokens; t++) {
			if (t % TILE_TOKENS_MAX == 0)
				e->tiles[crew->n_tiles++] = (struct engine_tile){.begin = n};
			e->tiles[crew->n_tiles - 1].n_tokens++;
			e->tokens[n++] = (struct engine_token){
				.slot = items[i].slot,
				.pos = items[i].pos_begin + t,
				.hidden = items[i].hidden + (size_t)t * (size_t)e->hp.hidden_dim,
			};
		}
	}
	crew->n_tokens = n;
	crew_set_input(&e->normed, n);
	crew_set_input(&e->attended, n);
	if (e->hp.n_experts == 0)
		crew_set_input(&e->gated, n);
	return OK;
}

// settle_computed: of a failed item what was there before it, which is less where that has failed as well.
static void settle_computed(int32_t *n, const struct engine_item *it)
{
	if (it->fault.err == OK)
		*n = it->pos_begin + it->n_tokens;
	else if (*n > it->pos_begin)
		*n = it->pos_begin;
}

// settle_item gives an item the fault of its earliest token, which is the one that a smaller chunk would have met too.
static void settle_item(const struct crew *crew, struct engine_item *it, const struct engine_token *tokens)
{
	const struct engine *e = crew->e;
	it->fault = (struct engine_fault){0};
	for (int32_t t = 0; t < it->n_tokens && it->fault.err == OK; t++)
		it->fault = tokens[t].fault;
	if (crew->err != OK)
		it->fault = (struct engine_fault){.err = crew->err};
	for (int32_t layer = crew->layer_begin; layer < crew->layer_end; layer++)
		settle_computed(engine_computed(e, layer, it->slot), it);
}

enum err layer_settle_batch(struct crew *crew, struct engine_item *items, int32_t n_items, struct errmsg *em)
{
	const struct engine_token *at = crew->e->tokens;
	enum err err = crew->err; // and em tells why
	for (int32_t i = 0; i < n_items; at += items[i].n_tokens, i++) {
		settle_item(crew, &items[i], at);
		if (items[i].fault.err != OK && err == OK)
			err = engine_fault_describe(crew->e, &items[i].fault, em);
	}
	return err;
}

bool engine_runs(const struct engine *e, int32_t layer_begin, int32_t layer_end)
{
	for (int32_t i = 0; i < e->c.layers.n; i++)
		if (e->c.layers.at[i].begin <= layer_begin && layer_end <= e->c.layers.at[i].end)
			return true;
	return false;
}

enum err engine_forward_layers(struct engine *e, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n_items,
	struct errmsg *em)
{
	ASSERT(layer_begin < layer_end);
	ASSERT(e->member == NULL);
	ASSERT(engine_runs(e, layer_begin, layer_end));
	struct crew crew = {.e = e, .layer_begin = layer_begin, .layer_end = layer_end, .em = em};
	enum err err = layer_take_batch(&crew, items, n_items, em);
	if (err != OK || crew.n_tokens == 0)
		return err;
	pool_run(e->c.pool, run_layers, &crew);
	return layer_settle_batch(&crew, items, n_items, em);
}

enum err engine_forward(struct engine *e, struct engine_item *items, int32_t n_items, struct errmsg *em)
{
	ASSERT(e->c.layers.n == 1);
	return engine_forward_layers(e, e->c.layers.at[0].begin, e->c.layers.at[0].end, items, n_items, em);
}
