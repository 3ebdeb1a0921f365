// An engine's weights: the table of their units, and the vectors it copies.
#include "base/assert.h"
#include "engine/engine_state.h"
#include "engine/lane_sums.h"

#include <stdlib.h>
#include <string.h>

#define UNITS_PER_LAYER 8             // where they do not all fit (cost-model.md, section 2)
#define UNIT_BYTES_GOOD (1024 * 1024) // below, fixed costs of a unit show
#define UNIT_BYTES_LEAST (256 * 1024) // as small as units are planned with
#define UNITS_IN_CAP 12               // that fit the memory for weights at least
#define EXPERT_TOKENS_REMEMBERED 64   // tokens after which the use of an expert counts half

// rows_of takes some rows of a matrix; what a file leaves out stays so.
static void rows_of(struct tensor_view *t, struct split_range r)
{
	if (t->rows == 0)
		return;
	t->rows = split_len(r);
	t->at += (uint64_t)r.begin * t->row_bytes;
	t->data = (const uint8_t *)t->data + (size_t)r.begin * t->row_bytes;
}

static struct split_range times(struct split_range r, int32_t n)
{
	return (struct split_range){r.begin * n, r.end * n};
}

void engine_layer_part(const struct engine *e, int32_t layer, struct layer_weights *w)
{
	model_layer(e->c.model, layer, w);
	if (e->split.n_members == 1)
		return;
	// With lanes rows of q, k, v, gate and up lie apart: their matrices stay whole here (add_layer).
	if (!split_has_o_lanes(e->split.mode)) {
		struct split_range q = times(e->part.heads, e->hp.head_dim), kv = times(split_kv_heads(&e->shape, &e->part), e->hp.head_dim);
		rows_of(&w->q, q);
		rows_of(&w->k, kv);
		rows_of(&w->v, kv);
		rows_of(&w->o, e->part.o_rows);
	}
	rows_of(&w->gate, e->part.ffn);
	rows_of(&w->up, e->part.ffn);
	if (!split_has_lanes(e->split.mode))
		rows_of(&w->down, e->part.down_rows);
}

// place_rows tells the units of a run which rows of the packed matrices they have.
static void place_rows(struct engine *e, struct unit_run run, int32_t packed)
{
	for (int32_t i = run.begin; i < run.end; i++) {
		for (int32_t k = 0; k < e->units.units[i].n_parts; k++) {
			e->units.units[i].parts[k].row_begin += packed;
			e->units.units[i].parts[k].row_end += packed;
		}
	}
}

bool engine_owns_head(const struct engine *e, bool is_kv, int32_t head)
{
	int32_t n = is_kv ? e->hp.n_heads / e->hp.n_kv_heads : 1;
	bool owns = false;
	for (int32_t i = head * n; i < (head + 1) * n; i++)
		owns = owns || split_owns_head(&e->shape, e->split.mode, &e->part, i);
	return owns;
}

// add_head_rows puts the rows of q, or of k and v, that belong to lanes of o into the table: a unit at least for each run of neighbouring heads.
static enum err add_head_rows(struct engine *e, int32_t layer, const struct layer_weights *w, bool kv, uint64_t unit_max, struct unit_run *all)
{
	int32_t n = kv ? e->hp.n_kv_heads : e->hp.n_heads, dim = e->hp.head_dim, packed = 0, end;
	enum err err = OK;
	for (int32_t begin = 0; begin < n && err == OK; begin = end + 1) {
		for (end = begin; end < n && engine_owns_head(e, kv, end); end++)
			;
		if (begin == end)
			continue;
		struct split_range rows = {begin * dim, end * dim}, none = {0, 0};
		struct tensor_view q = w->q, k = w->k, v = w->v;
		struct unit_run part = {0};
		rows_of(&q, kv ? none : rows);
		rows_of(&k, kv ? rows : none);
		rows_of(&v, kv ? rows : none);
		err = unit_table_add(&e->units, layer, UNIT_QKV, (const struct tensor_view *const[]){&q, &k, &v}, 3, unit_max, &part);
		if (err == OK)
			place_rows(e, part, packed);
		packed += split_len(rows);
	}
	all->end = e->units.n;
	return err;
}

// add_lane_rows puts the rows of gate and up that belong to lanes into the table, as many units as there are runs of them at least.
static enum err add_lane_rows(struct engine *e, int32_t layer, const struct layer_weights *w, uint64_t unit_max, struct unit_run *all)
{
	struct lane_run run = {0};
	enum err err = OK;
	*all = (struct unit_run){e->units.n, e->units.n};
	while (err == OK && lane_run_next(&e->part, w->down.type, e->hp.ffn_dim, &run)) {
		struct tensor_view gate = w->gate, up = w->up;
		struct unit_run part = {0};
		rows_of(&gate, (struct split_range){run.row_begin, run.row_end});
		rows_of(&up, (struct split_range){run.row_begin, run.row_end});
		err = unit_table_add(&e->units, layer, UNIT_GATE_UP, (const struct tensor_view *const[]){&gate, &up}, 2, unit_max, &part);
		if (err == OK)
			place_rows(e, part, run.packed);
	}
	all->end = e->units.n;
	return err;
}

// add_layer puts a layer's matrices into the table, in the order of forward.c.
static enum err add_layer(struct engine *e, int32_t layer, uint64_t unit_max)
{
	struct layer_weights w;
	engine_layer_part(e, layer, &w);
	struct unit_run runs[N_UNIT_KINDS] = {{0}};
	const struct {
		enum unit_kind kind;
		const struct tensor_view *matrices[UNIT_PARTS_MAX];
		int32_t n;
	} phases[] = {
		{UNIT_QKV, {&w.q, &w.k, &w.v}, 3}, {UNIT_O, {&w.o}, 1}, {UNIT_GATE_UP, {&w.gate, &w.up}, 2}, {UNIT_DOWN, {&w.down}, 1},
	};
	for (size_t i = 0; i < ARRAY_LEN(phases); i++) {
		enum unit_kind kind = phases[i].kind;
		bool is_packed = (kind == UNIT_DOWN && split_has_lanes(e->split.mode)) || (kind == UNIT_O && split_has_o_lanes(e->split.mode));
		if (phases[i].matrices[0]->rows == 0 || is_packed) // experts, or others'
			continue;
		if (kind == UNIT_QKV && split_has_o_lanes(e->split.mode)) {
			runs[kind] = (struct unit_run){e->units.n, e->units.n};
			if (add_head_rows(e, layer, &w, false, unit_max, &runs[kind]) != OK || add_head_rows(e, layer, &w, true, unit_max, &runs[kind]) != OK)
				return ERR_NOMEM;
			continue;
		}
		if (kind == UNIT_GATE_UP && split_has_lanes(e->split.mode)) {
			if (add_lane_rows(e, layer, &w, unit_max, &runs[kind]) != OK)
				return ERR_NOMEM;
			continue;
		}
		if (unit_table_add(&e->units, layer, kind, phases[i].matrices, phases[i].n, unit_max, &runs[kind]) != OK)
			return ERR_NOMEM;
	}
	if (e->layers != NULL) // NULL while it is measured
		memcpy(e->layers[layer_spans_find(&e->c.layers, layer)].units, runs, sizeof runs);
	return OK;
}

static enum err add_units(struct engine *e, uint64_t unit_max)
{
	enum err err = OK;
	e->units.n = 0;
	for (int32_t i = 0; i < e->hp.n_layers && err == OK; i++)
		err = layer_spans_find(&e->c.layers, i) >= 0 ? add_layer(e, i, unit_max) : OK;
	e->output_units = (struct unit_run){e->units.n, e->units.n};
	if (err == OK && split_len(engine_output_rows(e)) > 0) {
		struct tensor_view output = model_output(e->c.model);
		rows_of(&output, engine_output_rows(e));
		err = unit_table_add(&e->units, e->hp.n_layers, UNIT_OUTPUT, &(const struct tensor_view *){&output}, 1, unit_max, &e->output_units);
	}
	return err;
}

// unit_limit returns how large a unit may be, given the uncut table: an eighth of a layer is as good as anything finer (cost-model.md, 9),
// and a few must fit the cap; small ones cost more per byte.
static uint64_t unit_limit(const struct engine *e)
{
	const struct residency_limits *l = &e->c.weights;
	uint64_t cap = l->anon_bytes < l->bytes && l->anon_bytes > 0 ? l->anon_bytes : l->bytes, total = unit_table_bytes(&e->units);
	bool fits = residency_whole(&e->units) <= (l->reader == READER_DIRECT ? l->anon_bytes : l->bytes);
	if (!l->is_capped || fits)
		return UNIT_UNCUT;
	int32_t n_layers = layer_spans_count(&e->c.layers);
	uint64_t unit = total / (uint64_t)(n_layers > 0 ? n_layers : 1) / UNITS_PER_LAYER;
	unit = unit > UNIT_BYTES_GOOD ? unit : UNIT_BYTES_GOOD;
	return unit < cap / UNITS_IN_CAP ? unit : cap / UNITS_IN_CAP;
}

static enum err no_table(struct errmsg *em)
{
	return errmsg_fail(em, ERR_NOMEM, "engine: no memory for the table of weights");
}

static enum err build_units(struct engine *e, struct errmsg *em)
{
	enum err err = add_units(e, UNIT_UNCUT);
	uint64_t limit = err == OK ? unit_limit(e) : UNIT_UNCUT;
	if (limit != UNIT_UNCUT)
		err = add_units(e, limit);
	return err == OK ? OK : no_table(em);
}

// add_experts makes a unit of each expert of the layers that run.
static enum err add_experts(struct engine *e)
{
	enum err err = OK;
	struct layer_weights w;
	struct unit_run run;
	e->expert_units.n = 0;
	for (int32_t i = 0; i < e->hp.n_layers && e->hp.n_experts > 0; i++) {
		if (layer_spans_find(&e->c.layers, i) < 0)
			continue;
		model_layer(e->c.model, i, &w);
		for (int32_t x = e->part.experts.begin; x < e->part.experts.end && err == OK; x++) {
			const struct tensor_view *const matrices[] = {&w.experts[x].gate, &w.experts[x].up, &w.experts[x].down}; // as enum expert_matrix
			err = unit_table_add(&e->expert_units, i, UNIT_EXPERT, matrices, ARRAY_LEN(matrices), UNIT_UNCUT, &run);
		}
	}
	return err;
}

// experts_least returns how many experts must fit: those of one token in one layer, and as many being read for the next.
static int32_t experts_least(const struct engine *e)
{
	int32_t least = 2 * e->hp.n_experts_used, own = split_len(e->part.experts);
	return least < own ? least : own;
}

enum err engine_list_units(struct engine *e)
{
	enum err err = add_units(e, UNIT_UNCUT);
	return err == OK ? add_experts(e) : err;
}

enum err engine_measure_weights(struct engine *e, struct engine_size *out, struct errmsg *em)
{
	enum err err = add_units(e, UNIT_UNCUT);
	out->weight_bytes = residency_whole(&e->units);
	if (err == OK)
		err = add_units(e, UNIT_BYTES_LEAST);
	out->weight_least = residency_least(&e->units);
	if (err == OK)
		err = add_experts(e);
	if (err == OK && e->expert_units.n > 0) {
		out->weight_bytes += expert_cache_least(&e->expert_units, e->expert_units.n);
		out->weight_least += expert_cache_least(&e->expert_units, experts_least(e));
	}
	unit_table_deinit(&e->units);
	unit_table_deinit(&e->expert_units);
	return err == OK ? OK : no_table(em);
}

// part_for_others returns what weights that every token needs get of `have`: all they want, unless experts are left with too little.
static uint64_t part_for_others(uint64_t have, uint64_t whole, uint64_t experts)
{
	uint64_t left = have > experts ? have - experts : 0;
	return whole < left ? whole : left;
}

// open_experts: the others' weights have been opened, which decided how to read.
static enum err open_experts(struct engine *e, uint64_t bytes, uint64_t anon_bytes, struct errmsg *em)
{
	struct residency_stats s;
	residency_get_stats(e->residency, &s);
	enum weight_way way = e->c.weights.reader != READER_AUTO ? e->c.weights.reader : s.reader != READER_AUTO ? s.reader : READER_MMAP;
	if (e->files->n_extents != 1)
		way = READER_DIRECT;
	const struct expert_cache_config c = {
		.files = e->files, .units = &e->expert_units, .reader = way, .bytes = way == READER_DIRECT ? anon_bytes : bytes,
		.n_slots_min = experts_least(e), .steps_remembered = EXPERT_TOKENS_REMEMBERED * layer_spans_count(&e->c.layers),
	};
	enum err err = expert_cache_open(&c, &e->expert_cache, em);
	if (err != OK)
		return err;
	int32_t at_once = expert_cache_n_slots(e->expert_cache) / 2;
	at_once = at_once > e->hp.n_experts_used ? at_once : e->hp.n_experts_used;
	e->experts_at_once = at_once < e->hp.n_experts ? at_once : e->hp.n_experts;
	return OK;
}

enum err engine_load_weights(struct engine *e, const struct residency_limits *limits, struct errmsg *em)
{
	ASSERT(e->residency == NULL);
	e->c.weights = *limits;
	enum err err = add_experts(e);
	if (err == OK)
		err = add_units(e, UNIT_UNCUT);
	if (err != OK)
		return no_table(em);
	bool reads_experts = e->expert_units.n > 0 && (limits->is_capped || e->files->map == NULL);
	if (reads_experts && limits->is_capped) {
		uint64_t least = expert_cache_least(&e->expert_units, experts_least(e)), whole = residency_whole(&e->units);
		e->c.weights.bytes = part_for_others(limits->bytes, whole, least);
		e->c.weights.anon_bytes = part_for_others(limits->anon_bytes, whole, least);
	}
	err = build_units(e, em);
	if (err != OK)
		return err;
	const struct residency_config rc = {.files = e->files, .units = &e->units, .limits = e->c.weights};
	err = residency_open(&rc, &e->residency, em);
	if (err != OK || !reads_experts)
		return err;
	if (!limits->is_capped)
		return open_experts(e, UINT64_MAX, UINT64_MAX, em);
	return open_experts(e, limits->bytes - e->c.weights.bytes, limits->anon_bytes - e->c.weights.anon_bytes, em);
}

void engine_drop_weights(struct engine *e)
{
	expert_cache_close(e->expert_cache);
	e->expert_cache = NULL;
	residency_close(e->residency);
	e->residency = NULL;
	unit_table_deinit(&e->units);
	unit_table_deinit(&e->expert_units);
	e->experts_at_once = e->hp.n_experts;
}

static enum err read_vector(struct engine *e, const struct tensor_view *t, float *to, struct errmsg *em)
{
	return to != NULL ? weight_files_read(e->files, t->at, (uint64_t)t->cols * sizeof *to, to, em) : OK;
}

// read_columns packs the columns of a matrix that are its lanes', into `to`.
static enum err read_columns(struct engine *e, const struct tensor_view *t, struct split_range lanes, const struct weight *packed, uint8_t *to,
	struct errmsg *em)
{
	enum err err = OK;
	if (to == NULL || packed->cols == 0)
		return OK;
	uint8_t *row = malloc(t->row_bytes);
	if (row == NULL)
		return errmsg_fail(em, ERR_NOMEM, "engine: no memory for a row");
	for (int32_t i = 0; i < t->rows && err == OK; i++) {
		err = weight_files_read(e->files, t->at + (uint64_t)i * t->row_bytes, t->row_bytes, row, em);
		if (err == OK)
			lanes_pack_row(t->type, row, t->cols, split_mask(lanes, kernels_lanes(t->type)), to + (size_t)i * packed->row_bytes);
	}
	free(row);
	return err;
}

static enum err read_packed(struct engine *e, int32_t layer, struct errmsg *em)
{
	struct layer_weights w;
	const struct engine_layer *l = &e->layers[layer_spans_find(&e->c.layers, layer)];
	model_layer(e->c.model, layer, &w);
	enum err err = read_columns(e, &w.o, e->part.o_lanes, &l->o, l->o_packed, em);
	return err == OK ? read_columns(e, &w.down, e->part.lanes, &l->down, l->down_packed, em) : err;
}

// read_bias reads the values of heads, which a file has for all of them.
static enum err read_bias(struct engine *e, const struct tensor_view *t, const int32_t *heads, int32_t n, float *to, struct errmsg *em)
{
	enum err err = OK;
	size_t dim = (size_t)e->hp.head_dim;
	for (int32_t i = 0; t->cols > 0 && i < n && err == OK; i++)
		err = weight_files_read(e->files, t->at + (uint64_t)heads[i] * dim * sizeof *to, dim * sizeof *to, to + (size_t)i * dim, em);
	return err;
}

static enum err read_layer_vectors(struct engine *e, int32_t layer, struct errmsg *em)
{
	struct layer_weights w;
	model_layer(e->c.model, layer, &w);
	const struct engine_layer *l = &e->layers[layer_spans_find(&e->c.layers, layer)];
	const struct {
		const struct tensor_view *from;
		float *to;
	} vectors[] = {
		{&w.attn_norm, l->attn_norm}, {&w.ffn_norm, l->ffn_norm}, {&w.q_norm, l->q_norm}, {&w.k_norm, l->k_norm},
	};
	enum err err = read_bias(e, &w.q_bias, e->heads, e->n_own_heads, l->q_bias, em);
	if (err == OK)
		err = read_bias(e, &w.k_bias, e->kv_heads, e->n_own_kv, l->k_bias, em);
	if (err == OK)
		err = read_bias(e, &w.v_bias, e->kv_heads, e->n_own_kv, l->v_bias, em);
	for (size_t i = 0; i < ARRAY_LEN(vectors) && err == OK; i++)
		err = read_vector(e, vectors[i].from, vectors[i].to, em);
	if (err == OK && w.router.rows > 0)
		err = weight_files_read(e->files, w.router.at, (uint64_t)w.router.rows * w.router.row_bytes, l->router_bytes, em);
	return err;
}

enum err engine_read_vectors(struct engine *e, struct errmsg *em)
{
	enum err err = OK;
	for (int32_t i = 0; i < e->hp.n_layers && err == OK; i++)
		if (layer_spans_find(&e->c.layers, i) >= 0) {
			err = read_layer_vectors(e, i, em);
			err = err == OK ? read_packed(e, i, em) : err;
		}
	if (err == OK && engine_has_output(e)) {
		struct tensor_view norm = model_output_norm(e->c.model);
		err = read_vector(e, &norm, e->output_norm, em);
	}
	return err;
}
