#include "engine/crew.h"

#define ROW_TILE UNIT_ROWS // rows a kernel may work on at once; a share is a multiple of it
#define SHARES_PER_HAND 4 // enough to even out cores of different speed, few enough that taking one costs nothing

bool crew_take(struct hand *h, int32_t n, int32_t *share)
{
	*share = atomic_fetch_add_explicit(&h->crew->next[h->phase & 1], 1, memory_order_relaxed);
	return *share < n;
}

void crew_end_phase(struct hand *h)
{
	// Everybody has left the previous phase, so its counter, which the next phase uses, is free.
	if (h->idx == 0)
		atomic_store_explicit(&h->crew->next[(h->phase + 1) & 1], 0, memory_order_relaxed);
	if (h->n_hands > 1)
		pool_barrier(h->crew->e->c.pool);
	h->phase++;
}

// The first hand may be phases ahead when another looks whether this one can begin; hence the number.
bool crew_end_phase_if(struct hand *h, enum err err)
{
	struct crew *c = h->crew;
	if (h->idx == 0 && err != OK) {
		c->err = err;
		atomic_store_explicit(&c->failed_phase, h->phase + 1, memory_order_relaxed);
	}
	crew_end_phase(h);
	return atomic_load_explicit(&c->failed_phase, memory_order_relaxed) != h->phase;
}

static bool acquire_and_end(struct hand *h, int32_t unit)
{
	if (h->idx > 0)
		return crew_end_phase_if(h, OK);
	struct engine *e = h->crew->e;
	pool_rest(e->c.pool); // and reading goes on
	enum err err = residency_acquire(e->residency, unit, h->crew->em);
	pool_resume(e->c.pool);
	return crew_end_phase_if(h, err);
}

bool crew_begin_units(struct hand *h, const struct unit_run *run)
{
	if (run->begin == run->end) {
		crew_end_phase(h);
		return true;
	}
	return acquire_and_end(h, run->begin);
}

bool crew_run_units(struct hand *h, const struct unit_run *run, crew_unit_fn *fn, const void *ctx)
{
	bool more = true;
	for (int32_t unit = run->begin; unit < run->end && more; unit++) {
		fn(h, ctx, unit);
		if (unit + 1 < run->end)
			more = acquire_and_end(h, unit + 1);
		else
			crew_end_phase(h);
		if (h->idx == 0)
			residency_release(h->crew->e->residency, unit);
	}
	return more;
}

struct weight crew_unit_weight(const struct hand *h, int32_t unit, int32_t part, const struct weight *shape, int32_t *row_begin)
{
	const struct engine *e = h->crew->e;
	const struct unit_part *p = &e->units.units[unit].parts[part];
	struct weight w = *shape;
	w.data = residency_view(e->residency, unit, part);
	w.rows = p->row_end - p->row_begin;
	*row_begin = p->row_begin;
	return w;
}

void crew_tokens(const struct hand *h, int32_t *begin, int32_t *end)
{
	int64_t n = h->crew->n_tokens;
	*begin = (int32_t)(n * h->idx / h->n_hands);
	*end = (int32_t)(n * (h->idx + 1) / h->n_hands);
}

int32_t crew_rows_per_share(const struct hand *h, int32_t rows)
{
	if (h->n_hands == 1)
		return rows;
	int32_t n = rows / (h->n_hands * SHARES_PER_HAND);
	return (n / ROW_TILE + 1) * ROW_TILE;
}

static int32_t n_shares(int32_t rows, int32_t per_share)
{
	return rows / per_share + (rows % per_share != 0);
}

static void compute_share(const struct hand *h, const struct product *p, const struct weight *w, float *y, int32_t row_begin, int32_t per_share)
{
	int32_t row_end = w->rows - row_begin > per_share ? row_begin + per_share : w->rows;
	kernels_matmul(h->crew->e->c.kernels, w, &p->in->acts[kernels_act_kind(w->type)], row_begin, row_end, y, p->y_stride);
}

void crew_products(struct hand *h, int32_t unit, const struct product *p, int32_t n)
{
	struct weight w[UNIT_PARTS_MAX];
	int32_t first[UNIT_PARTS_MAX], rows = 0, total = 0, share;
	for (int32_t i = 0; i < n; i++) {
		w[i] = crew_unit_weight(h, unit, i, p[i].w, &first[i]);
		rows = w[i].rows > rows ? w[i].rows : rows;
	}
	int32_t per_share = crew_rows_per_share(h, rows);
	for (int32_t i = 0; i < n; i++)
		total += n_shares(w[i].rows, per_share);
	while (crew_take(h, total, &share)) {
		int32_t at = 0;
		for (; share >= n_shares(w[at].rows, per_share); at++)
			share -= n_shares(w[at].rows, per_share);
		compute_share(h, &p[at], &w[at], p[at].y + first[at], share * per_share, per_share);
	}
}

void crew_quantise(struct hand *h, struct engine_input *in, int32_t begin, int32_t end)
{
	for (int kind = 0; kind < N_ACT_KINDS && begin < end; kind++) {
		if (in->used[kind])
			acts_quantise(h->crew->e->c.kernels, &in->acts[kind], begin, end);
	}
}

void crew_set_input(struct engine_input *in, int32_t n_tokens)
{
	for (int kind = 0; kind < N_ACT_KINDS; kind++) {
		if (in->used[kind])
			acts_set(&in->acts[kind], in->x, n_tokens);
	}
}
