#include "engine/crew.h"

#define ROW_TILE 32 // rows a kernel may work on at once; a unit is a multiple of it
#define UNITS_PER_HAND 4 // enough to even out cores of different speed, few enough that taking one costs nothing

bool crew_take(struct hand *h, int32_t n_units, int32_t *unit)
{
	*unit = atomic_fetch_add_explicit(&h->crew->next[h->phase & 1], 1, memory_order_relaxed);
	return *unit < n_units;
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

void crew_tokens(const struct hand *h, int32_t *begin, int32_t *end)
{
	int64_t n = h->crew->n_tokens;
	*begin = (int32_t)(n * h->idx / h->n_hands);
	*end = (int32_t)(n * (h->idx + 1) / h->n_hands);
}

int32_t crew_rows_per_unit(const struct hand *h, int32_t rows)
{
	if (h->n_hands == 1)
		return rows;
	int32_t n = rows / (h->n_hands * UNITS_PER_HAND);
	return (n / ROW_TILE + 1) * ROW_TILE;
}

static int32_t n_units(int32_t rows, int32_t per_unit)
{
	return rows / per_unit + (rows % per_unit != 0);
}

static void compute_unit(const struct hand *h, const struct product *p, int32_t row_begin, int32_t per_unit)
{
	const struct weight *w = p->w;
	int32_t row_end = w->rows - row_begin > per_unit ? row_begin + per_unit : w->rows;
	kernels_matmul(h->crew->e->c.kernels, w, &p->in->acts[kernels_act_kind(w->type)], row_begin, row_end, p->y, (size_t)w->rows);
}

void crew_products(struct hand *h, const struct product *p, int32_t n)
{
	int32_t rows = 0, total = 0, unit;
	for (int32_t i = 0; i < n; i++)
		rows = p[i].w->rows > rows ? p[i].w->rows : rows;
	int32_t per_unit = crew_rows_per_unit(h, rows);
	for (int32_t i = 0; i < n; i++)
		total += n_units(p[i].w->rows, per_unit);
	while (crew_take(h, total, &unit)) {
		const struct product *at = p;
		for (; unit >= n_units(at->w->rows, per_unit); at++)
			unit -= n_units(at->w->rows, per_unit);
		compute_unit(h, at, unit * per_unit, per_unit);
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
