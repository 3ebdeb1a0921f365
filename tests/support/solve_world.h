// Small random clusters for the solver, and brute force over every plan of them. Unprefixed and inline, as cost_fixture.h.
#ifndef HEARTH_TESTS_SUPPORT_SOLVE_WORLD_H
#define HEARTH_TESTS_SUPPORT_SOLVE_WORLD_H

#include "base/rng.h"
#include "partition/plan.h"
#include "partition/solve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORLD_DEVICES 300

struct world {
	struct cluster_device devices[WORLD_DEVICES];
	struct cluster_link links[WORLD_DEVICES * WORLD_DEVICES];
	struct cluster_link attach[WORLD_DEVICES];
	uint64_t bytes_of_layer[LAYERS_MAX];
	struct solve_limit limits[WORLD_DEVICES];
	struct solve_device_fate fates[WORLD_DEVICES];
	struct cluster cluster;
	struct model_shape shape;
	struct solve_want want;
};

static inline double draw(struct rng *r, double min, double max)
{
	return min + (max - min) * rng_u01(r);
}

// world_init is n equal devices with room for everything, 1 ms apart.
static inline void world_init(struct world *w, int32_t n, bool by_attach)
{
	memset(w, 0, sizeof *w);
	for (int32_t i = 0; i < n; i++) {
		snprintf(w->devices[i].name, NAME_CAP, "m%d", i);
		w->devices[i].cap_bytes = UINT64_C(1) << 40;
		w->devices[i].cpu_rate = 10e9;
		w->limits[i] = (struct solve_limit){.layers_max = LAYERS_MAX, .is_trusted = true};
		w->attach[i] = (struct cluster_link){.delay_s = 0.0005, .rate = 200e6};
		for (int32_t j = 0; j < n; j++)
			w->links[i * n + j] = (struct cluster_link){.delay_s = 0.001, .rate = 100e6};
	}
	w->cluster = (struct cluster){.devices = w->devices, .n_devices = n};
	if (by_attach)
		w->cluster.attach = w->attach;
	else
		w->cluster.links = w->links;
	w->shape = (struct model_shape){.n_layers = 8, .layer_bytes = 1000000000, .hop_bytes = 1000};
	w->want = (struct solve_want){.cluster = &w->cluster, .shape = &w->shape, .params = {.units_per_layer = 8}};
}

static inline enum err solve_world(struct world *w, struct solve_result *out, struct errmsg *em)
{
	struct arena a;
	size_t bytes = solve_scratch_bytes(&w->want);
	assert_int_equal(arena_open(bytes > 0 ? bytes : 1, &a), OK);
	out->fates = w->fates;
	enum err e = solve(&w->want, &a, out, em);
	assert_int_equal(a.used, 0);
	arena_close(&a);
	return e;
}

static inline void solve_ok(struct world *w, struct solve_result *out)
{
	struct errmsg em = {""};
	if (solve_world(w, out, &em) != OK)
		fail_msg("%s", em.text);
}

// draw_world makes a small instance; about two thirds of them are short of memory.
static inline void draw_world(struct rng *r, struct world *w, bool equal_layers)
{
	int32_t n = 2 + (int32_t)rng_below(r, 3), layers = 4 + (int32_t)rng_below(r, 7);
	world_init(w, n, rng_below(r, 3) == 0);
	w->shape.n_layers = layers;
	w->shape.layer_bytes = 100000000 + rng_below(r, 900000000);
	w->shape.head_bytes = rng_below(r, 2) ? rng_below(r, 500000000) : 0;
	w->shape.kv_bytes = 4096;
	w->want.params.kv_alloc = rng_below(r, 5000);
	w->want.params.kv_read = rng_below(r, w->want.params.kv_alloc + 1);
	w->want.params.units_per_layer = 2 + (int32_t)rng_below(r, 3);
	for (int32_t i = 0; i < layers; i++)
		w->bytes_of_layer[i] = w->shape.layer_bytes - rng_below(r, w->shape.layer_bytes / 3);
	w->bytes_of_layer[0] = w->shape.layer_bytes;
	if (!equal_layers)
		w->shape.bytes_of_layer = w->bytes_of_layer;
	w->want.head = (int32_t)rng_below(r, (uint64_t)n);
	double memory = draw(r, 0.25, 1.3), far = draw(r, 0.0005, 0.03), parts[4], sum = 0;
	for (int32_t i = 0; i < n; i++)
		sum += parts[i] = draw(r, 0.2, 1.5);
	for (int32_t i = 0; i < n; i++) {
		struct cluster_device *d = &w->devices[i];
		double kv = (double)w->shape.kv_bytes * (double)w->want.params.kv_alloc;
		d->cpu_rate = draw(r, 3e9, 60e9);
		d->disk_rate = rng_below(r, 6) ? draw(r, 0.3e9, 7e9) : 0;
		d->visit_s = rng_below(r, 2) ? draw(r, 0, 0.002) : 0;
		d->reserved_bytes = 1000;
		d->cap_bytes = 1001 + w->shape.head_bytes +
			(uint64_t)(parts[i] / sum * memory * layers * (double)w->shape.layer_bytes + layers * kv);
		if (rng_below(r, 4) == 0) {
			d->accel_bytes = (uint64_t)(draw(r, 0, 4) * (double)w->shape.layer_bytes) + 1;
			d->accel_rate = draw(r, 50e9, 400e9);
		}
		w->attach[i] = (struct cluster_link){.delay_s = draw(r, 0, far / 2), .rate = draw(r, 1e6, 1e9)};
	}
	bool symmetric = rng_below(r, 2);
	for (int32_t i = 0; i < n; i++)
		for (int32_t j = 0; j < n; j++)
			w->links[i * n + j] = symmetric && j < i ? w->links[j * n + i]
							   : (struct cluster_link){.delay_s = draw(r, 0, far),
								     .rate = rng_below(r, 20) ? draw(r, 1e6, 1e9) : 0,
								     .software_s = draw(r, 0, 0.0003)};
}

// ---- Brute force

struct brute {
	const struct world *w;
	struct cost_plan plan;
	struct arena *arena;
	double best_s;         // only plans below it are looked for
	struct cost_plan best; // when found
	bool is_found;
	bool prunes; // skips what the bound rules out
	int64_t n_judged;
};

static inline void brute_judge(struct brute *b)
{
	struct cost_case c = {.cluster = &b->w->cluster, .shape = &b->w->shape, .plan = &b->plan, .params = b->w->want.params};
	struct cost_verdict v;
	if (b->prunes && cost_bound(&c) >= b->best_s)
		return;
	b->n_judged++;
	assert_int_equal(cost_judge(&c, b->arena, &v), OK);
	assert_true(cost_bound(&c) <= v.token_s * (1 + 1e-9));
	if (v.token_s < b->best_s) {
		b->best_s = v.token_s;
		b->best = b->plan;
		b->is_found = true;
	}
}

// brute_streams goes through every number of streamed units of every stage.
static inline void brute_streams(struct brute *b, int32_t stage)
{
	struct cost_case c = {.cluster = &b->w->cluster, .shape = &b->w->shape, .plan = &b->plan, .params = b->w->want.params};
	struct cost_layout l;
	if (stage == b->plan.n_stages) {
		brute_judge(b);
		return;
	}
	struct cost_stage *s = &b->plan.stages[stage];
	s->n_streamed = COST_STREAM_LEAST;
	assert_int_equal(cost_layout_of(&c, stage, &l, NULL), OK);
	int32_t least = l.n_streamed, most = l.n_streamed > 0 ? l.n_units : 0;
	double read_s = l.n_streamed > 0 ? l.unit_bytes / b->w->devices[s->device].disk_rate * 2 / 3 : 0; // layers differ by a third
	for (int32_t n = least; n <= most; n++) {
		if (b->prunes && n * read_s * 23 / 24 >= b->best_s)
			break;
		s->n_streamed = n;
		brute_streams(b, stage + 1);
	}
	s->n_streamed = COST_STREAM_LEAST;
}

// brute_is_possible is cost_check for a plan of a cluster that is known to be sound.
static inline bool brute_is_possible(const struct brute *b, const struct cost_case *c)
{
	const struct cost_plan *p = &b->plan;
	const struct cluster_device *head = &b->w->devices[p->head];
	double t;
	if (!p->head_on_accel && head->cap_bytes - head->reserved_bytes < b->w->shape.head_bytes)
		return false;
	for (int32_t i = 0; i < p->n_stages; i++) {
		struct cost_layout l;
		int32_t from = i > 0 ? p->stages[i - 1].device : p->head;
		if (cost_layout_of(c, i, &l, NULL) != OK || !cluster_hop(&b->w->cluster, from, p->stages[i].device, 1, &t))
			return false;
	}
	int32_t first = p->stages[0].device, last = p->stages[p->n_stages - 1].device;
	return (p->n_rounds == 1 || cluster_hop(&b->w->cluster, last, first, 1, &t)) && cluster_hop(&b->w->cluster, last, p->head, 1, &t);
}

// brute_cut goes through every way to cut the layers.
static inline void brute_cut(struct brute *b, int32_t stage, int32_t left)
{
	if (stage + 1 < b->plan.n_stages) {
		for (int32_t l = 1; l <= left - (b->plan.n_stages - 1 - stage); l++) {
			b->plan.stages[stage] = (struct cost_stage){b->plan.stages[stage].device, l, COST_STREAM_LEAST};
			brute_cut(b, stage + 1, left - l);
		}
		return;
	}
	b->plan.stages[stage] = (struct cost_stage){b->plan.stages[stage].device, left, COST_STREAM_LEAST};
	struct cost_case c = {.cluster = &b->w->cluster, .shape = &b->w->shape, .plan = &b->plan, .params = b->w->want.params};
	for (int32_t k = 1; k <= (b->plan.n_stages > 1 ? SOLVE_ROUNDS_MAX : 1); k++) {
		b->plan.n_rounds = k;
		if (brute_is_possible(b, &c))
			brute_streams(b, 0);
	}
}

// brute_ring goes through every order of every subset: the head, when it holds layers, first.
static inline void brute_ring(struct brute *b, uint32_t used)
{
	if (b->plan.n_stages > 0)
		brute_cut(b, 0, b->w->shape.n_layers);
	for (int32_t i = 0; i < b->w->cluster.n_devices; i++) {
		if ((used >> i & 1) || (i == b->plan.head && b->plan.n_stages > 0))
			continue;
		if (b->plan.n_stages + 1 > b->w->shape.n_layers)
			continue;
		b->plan.stages[b->plan.n_stages++] = (struct cost_stage){.device = i};
		brute_ring(b, used | UINT32_C(1) << i);
		b->plan.n_stages--;
	}
}

// brute_force looks for a plan below best_s; it returns its time, or best_s.
static inline double brute_force(const struct world *w, double best_s, bool prunes, struct cost_plan *best)
{
	struct arena a;
	struct brute b = {.w = w, .best_s = best_s, .arena = &a, .prunes = prunes};
	assert_int_equal(arena_open(1 << 20, &a), OK);
	for (int32_t on_accel = 0; on_accel < 2; on_accel++) {
		b.plan = (struct cost_plan){.head = w->want.head, .head_on_accel = on_accel};
		if (on_accel && (w->devices[w->want.head].accel_bytes < w->shape.head_bytes || w->shape.head_bytes == 0))
			continue;
		brute_ring(&b, 0);
	}
	arena_close(&a);
	if (best)
		*best = b.best;
	return b.best_s;
}

#endif
