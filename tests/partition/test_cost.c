// The cost model against a simulation by events that knows nothing of its recursion, against examples computed by hand, and against
// published figures.
#include "partition/cost.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICES 5
#define ARENA_BYTES (4 << 20)

// A case with its own storage.
struct fixture {
	struct cluster_device devices[DEVICES];
	struct cluster_link links[DEVICES * DEVICES];
	uint64_t bytes_of_layer[LAYERS_MAX];
	struct cluster cluster;
	struct model_shape shape;
	struct cost_plan plan;
	struct cost_case c;
};

static void fixture_init(struct fixture *f, int32_t n_devices)
{
	memset(f, 0, sizeof *f);
	for (int32_t i = 0; i < n_devices; i++) {
		snprintf(f->devices[i].name, NAME_CAP, "m%d", i);
		f->devices[i].cap_bytes = UINT64_C(1) << 40;
		f->devices[i].cpu_rate = 10e9;
		for (int32_t j = 0; j < n_devices; j++)
			f->links[i * n_devices + j] = (struct cluster_link){.delay_s = 0.001, .rate = 100e6};
	}
	f->cluster = (struct cluster){.devices = f->devices, .n_devices = n_devices, .links = f->links};
	f->shape = (struct model_shape){.n_layers = 8, .layer_bytes = 1000000000, .head_bytes = 0, .hop_bytes = 1000};
	f->plan = (struct cost_plan){.n_rounds = 1};
	f->c = (struct cost_case){.cluster = &f->cluster, .shape = &f->shape, .plan = &f->plan, .params = {.units_per_layer = 8}};
}

static void add_stage(struct fixture *f, int32_t device, int32_t n_layers, int32_t n_streamed)
{
	f->plan.stages[f->plan.n_stages++] = (struct cost_stage){
		.device = device, .n_layers = n_layers, .n_streamed = n_streamed};
}

static struct cost_verdict judge(const struct fixture *f)
{
	struct errmsg em = {""};
	struct arena a;
	struct cost_verdict v;
	if (cost_check(&f->c, &em) != OK)
		fail_msg("%s", em.text);
	assert_int_equal(arena_open(cost_judge_bytes(&f->c), &a), OK);
	assert_int_equal(cost_judge(&f->c, &a, &v), OK);
	assert_int_equal(a.used, 0);
	arena_close(&a);
	return v;
}

static bool is_near(double a, double b, double tolerance)
{
	return fabs(a / b - 1) <= tolerance;
}

static void assert_near_at(double got, double want, int line)
{
	if (!is_near(got, want, 1e-9))
		fail_msg("line %d: got %.17g, want %.17g", line, got, want);
}

#define assert_near(got, want) assert_near_at((got), (want), __LINE__)

// ---- A simulation by events

enum event_kind { EVENT_ARRIVE, EVENT_BEGIN, EVENT_COMPUTED, EVENT_READ };

struct event {
	double t;
	enum event_kind kind;
	int32_t stage;
};

struct item {
	double compute_s, read_s;
	bool streamed;
};

struct actor {
	struct item *items;                 // of all rounds
	int32_t first[COST_ROUNDS_MAX + 1]; // of each round
	double *reads;                      // of streamed items, in order
	int32_t n_streamed, window;
	int64_t started, done, computed;
	bool reading;
	double visit_s;
};

struct events {
	const struct fixture *f;
	struct actor actors[STAGES_MAX];
	struct event heap[4 * STAGES_MAX + 8];
	int32_t n;
	int32_t round, stage, item; // where the token is
	bool waiting;               // for a read
	double end_s;               // of the token
	bool ended;
};

static void push(struct events *s, double t, enum event_kind kind, int32_t stage)
{
	assert_true(s->n < (int32_t)ARRAY_LEN(s->heap));
	int32_t i = s->n++;
	for (; i > 0 && s->heap[(i - 1) / 2].t > t; i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = (struct event){t, kind, stage};
}

static struct event pop(struct events *s)
{
	struct event top = s->heap[0], last = s->heap[--s->n];
	int32_t i = 0;
	for (;;) {
		int32_t child = 2 * i + 1;
		if (child >= s->n)
			break;
		if (child + 1 < s->n && s->heap[child + 1].t < s->heap[child].t)
			child++;
		if (s->heap[child].t >= last.t)
			break;
		s->heap[i] = s->heap[child];
		i = child;
	}
	s->heap[i] = last;
	return top;
}

static double hop(const struct fixture *f, int32_t from, int32_t to)
{
	const struct cluster_link *l = &f->links[from * f->cluster.n_devices + to];
	return from == to ? 0 : l->delay_s + (double)f->shape.hop_bytes / l->rate + l->software_s;
}

static void start_read(struct events *s, int32_t stage, double t)
{
	struct actor *a = &s->actors[stage];
	if (a->n_streamed == 0 || a->reading || a->started - a->computed >= a->window)
		return;
	a->reading = true;
	push(s, t + a->reads[a->started++ % a->n_streamed], EVENT_READ, stage);
}

static void leave(struct events *s, double t)
{
	const struct cost_plan *p = &s->f->plan;
	int32_t here = p->stages[s->stage].device;
	if (s->stage + 1 == p->n_stages && s->round + 1 == p->n_rounds) {
		const struct cluster_device *head = &s->f->devices[p->head];
		double rate = p->head_on_accel ? head->accel_rate : head->cpu_rate;
		s->end_s = t + hop(s->f, here, p->head) + (double)s->f->shape.head_bytes / rate;
		s->ended = true;
		return;
	}
	if (++s->stage == p->n_stages) {
		s->stage = 0;
		s->round++;
	}
	push(s, t + hop(s->f, here, p->stages[s->stage].device), EVENT_ARRIVE, s->stage);
}

static void next_item(struct events *s, double t)
{
	struct actor *a = &s->actors[s->stage];
	if (s->item == a->first[s->round + 1]) {
		leave(s, t);
		return;
	}
	s->waiting = a->items[s->item].streamed && a->done <= a->computed;
	if (!s->waiting)
		push(s, t + a->items[s->item].compute_s, EVENT_COMPUTED, s->stage);
}

static void handle(struct events *s, const struct event *e)
{
	struct actor *a = &s->actors[e->stage];
	switch (e->kind) {
	case EVENT_ARRIVE:
		push(s, e->t + a->visit_s, EVENT_BEGIN, e->stage);
		break;
	case EVENT_BEGIN:
		s->item = a->first[s->round];
		next_item(s, e->t);
		break;
	case EVENT_COMPUTED:
		if (a->items[s->item++].streamed) {
			a->computed++;
			start_read(s, e->stage, e->t);
		}
		next_item(s, e->t);
		break;
	case EVENT_READ:
		a->reading = false;
		a->done++;
		start_read(s, e->stage, e->t);
		if (s->waiting && s->stage == e->stage)
			next_item(s, e->t);
		break;
	}
}

// build_actor writes down the items of a stage by the words of cost-model.md, section 2.
static void build_actor(const struct fixture *f, int32_t stage, struct actor *a)
{
	const struct cost_stage *st = &f->plan.stages[stage];
	const struct cluster_device *d = &f->devices[st->device];
	int32_t U = f->c.params.units_per_layer, k = f->plan.n_rounds, l = st->n_layers;
	double b = (double)f->shape.layer_bytes, v = (double)f->shape.kv_bytes * (double)f->c.params.kv_read;
	double v_alloc = (double)f->shape.kv_bytes * (double)f->c.params.kv_alloc;
	double h_accel = st->device == f->plan.head && f->plan.head_on_accel ? (double)f->shape.head_bytes : 0;
	double h_ram = st->device == f->plan.head && !f->plan.head_on_accel ? (double)f->shape.head_bytes : 0;
	int32_t g = (int32_t)fmin(l, floor(((double)d->accel_bytes - h_accel) / (b + v_alloc)));
	int32_t N = (l - g) * U;
	int64_t Q = (int64_t)floor(((double)d->cap_bytes - (double)d->reserved_bytes - h_ram - (l - g) * v_alloc) / (b / U));
	int32_t n = N <= Q ? 0 : st->n_streamed;
	*a = (struct actor){.items = calloc((size_t)(l * U) + 1, sizeof *a->items),
		.reads = calloc((size_t)n + 1, sizeof *a->reads),
		.n_streamed = n,
		.window = n > 0 ? (int32_t)(Q - (N - n)) : 0,
		.visit_s = d->visit_s};
	int32_t n_items = 0, n_reads = 0, cpu = 0;
	for (int32_t r = 0, layer = 0; r < k; r++) {
		a->first[r] = n_items;
		for (int32_t m = 0; m < f->plan.n_stages; m++) {
			int32_t lm = f->plan.stages[m].n_layers;
			for (int32_t i = r * lm / k; i < (r + 1) * lm / k; i++, layer++) {
				if (m != stage)
					continue;
				double bytes = f->shape.bytes_of_layer ? (double)f->shape.bytes_of_layer[layer] : b;
				if ((int64_t)(i + 1) * g / l > (int64_t)i * g / l) {
					a->items[n_items++] = (struct item){.compute_s = (bytes + v) / d->accel_rate};
					continue;
				}
				for (int32_t u = 0; u < U; u++, cpu++) {
					bool streamed = (int64_t)(cpu + 1) * n / N > (int64_t)cpu * n / N;
					a->items[n_items] = (struct item){
						.compute_s = (bytes / U + v / U) / d->cpu_rate, .streamed = streamed};
					if (streamed)
						a->reads[n_reads++] = bytes / U / d->disk_rate;
					n_items++;
				}
			}
		}
	}
	a->first[k] = n_items;
	assert_int_equal(n_reads, n);
}

static double by_events(const struct fixture *f)
{
	struct events *s = calloc(1, sizeof *s);
	s->f = f;
	for (int32_t i = 0; i < f->plan.n_stages; i++) {
		build_actor(f, i, &s->actors[i]);
		start_read(s, i, 0);
	}
	double warm = 0;
	for (int32_t token = 0; token < 44; token++) {
		if (token == 20)
			warm = s->end_s;
		s->round = s->stage = 0;
		s->ended = s->waiting = false;
		push(s, s->end_s + hop(f, f->plan.head, f->plan.stages[0].device), EVENT_ARRIVE, 0);
		while (!s->ended) {
			struct event e = pop(s);
			handle(s, &e);
		}
	}
	double period = (s->end_s - warm) / 24;
	for (int32_t i = 0; i < f->plan.n_stages; i++) {
		free(s->actors[i].items);
		free(s->actors[i].reads);
	}
	free(s);
	return period;
}

// ---- Random cases

static double between(struct rng *r, double min, double max)
{
	return min + (max - min) * rng_u01(r);
}

static void draw_device(struct rng *r, struct fixture *f, int32_t i, double layers)
{
	struct cluster_device *d = &f->devices[i];
	double b = (double)f->shape.layer_bytes, kv = (double)f->shape.kv_bytes * (double)f->c.params.kv_alloc;
	d->cpu_rate = between(r, 3e9, 80e9);
	d->disk_rate = between(r, 0.2e9, 7e9);
	d->visit_s = rng_below(r, 2) ? between(r, 0, 0.002) : 0;
	if (rng_below(r, 3) == 0) {
		d->accel_bytes = (uint64_t)(between(r, 0, layers) * (b + kv)) + 1;
		d->accel_rate = between(r, 50e9, 900e9);
	}
	d->reserved_bytes = 1000;
	d->cap_bytes = 1001 + (uint64_t)f->shape.head_bytes + (uint64_t)(layers * kv + between(r, 0.05, 1.3) * layers * b);
}

// draw_case makes a plan of n_layers; false when it cannot be (a device too small for a window).
static bool draw_case(struct rng *r, struct fixture *f, int32_t n_layers, int32_t units_min, bool equal_layers)
{
	int32_t n = 1 + (int32_t)rng_below(r, 4);
	fixture_init(f, n);
	f->shape.n_layers = n_layers;
	f->shape.layer_bytes = 100000000 + rng_below(r, 900000000);
	f->shape.head_bytes = rng_below(r, 2) ? rng_below(r, 1000000000) : 0;
	f->shape.kv_bytes = 4096;
	f->c.params.kv_alloc = rng_below(r, 5000);
	f->c.params.kv_read = rng_below(r, f->c.params.kv_alloc + 1);
	f->c.params.units_per_layer = units_min + (int32_t)rng_below(r, 5);
	if (!equal_layers)
		f->shape.bytes_of_layer = f->bytes_of_layer;
	for (int32_t i = 0; i < n_layers; i++)
		f->bytes_of_layer[i] = f->shape.layer_bytes - rng_below(r, f->shape.layer_bytes / 3);
	f->plan.n_rounds = n > 1 ? 1 + (int32_t)rng_below(r, 4) : 1;
	f->plan.head = (int32_t)rng_below(r, (uint64_t)n);
	int32_t left = n_layers;
	for (int32_t i = 0; i < n && left > 0; i++) {
		int32_t l = i + 1 == n ? left
				       : 1 + (int32_t)rng_below(r, (uint64_t)(left - (n - 1 - i) > 0 ? left - (n - 1 - i) : 1));
		draw_device(r, f, i, l);
		add_stage(f, i, l, COST_STREAM_LEAST);
		left -= l;
	}
	for (int32_t i = 0; i < n * n; i++)
		f->links[i] = (struct cluster_link){
			.delay_s = between(r, 0, 0.01), .rate = between(r, 1e6, 1e9), .software_s = between(r, 0, 0.0005)};
	if (cost_check(&f->c, NULL) != OK)
		return false;
	for (int32_t i = 0; i < f->plan.n_stages; i++) {
		struct cost_layout l;
		assert_int_equal(cost_layout_of(&f->c, i, &l, NULL), OK);
		f->plan.stages[i].n_streamed = l.n_streamed +
			(l.n_streamed > 0 ? (int32_t)rng_below(r, (uint64_t)(l.n_units - l.n_streamed + 1)) : 0);
	}
	return true;
}

static void the_judge_equals_a_simulation_by_events(void **state)
{
	(void)state;
	struct rng r;
	struct fixture f;
	int32_t n_judged = 0, n_streaming = 0, n_rounds = 0, n_accel = 0;
	rng_init(&r, 1);
	while (n_judged < 1500) {
		if (!draw_case(&r, &f, 4 + (int32_t)rng_below(&r, 20), 1, rng_below(&r, 2)))
			continue;
		double got = judge(&f).token_s, want = by_events(&f);
		if (got != want)
			fail_msg("case %d: judge %.17g, events %.17g", n_judged, got, want);
		n_judged++;
		n_rounds += f.plan.n_rounds > 1;
		for (int32_t i = 0; i < f.plan.n_stages; i++) {
			struct cost_layout l;
			assert_int_equal(cost_layout_of(&f.c, i, &l, NULL), OK);
			n_streaming += l.n_streamed > 0;
			n_accel += l.n_accel > 0;
		}
	}
	assert_true(n_streaming > 500);
	assert_true(n_rounds > 500);
	assert_true(n_accel > 300);
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

// deviations fills (judge - closed) / judge of n random plans, sorted.
static void deviations(
	uint64_t seed, int32_t layers_min, int32_t layers_span, int32_t units_min, int32_t n, bool corrected, double *out)
{
	struct rng r;
	struct fixture f;
	rng_init(&r, seed);
	for (int32_t i = 0; i < n;) {
		if (!draw_case(&r, &f, layers_min + (int32_t)rng_below(&r, (uint64_t)layers_span), units_min, true))
			continue;
		struct cost_closed closed;
		cost_closed(&f.c, &closed);
		double exact = judge(&f).token_s, t = corrected ? cost_closed_corrected(&f.c) : closed.token_s;
		assert_true(cost_closed_corrected(&f.c) >= closed.token_s);
		out[i++] = (exact - t) / exact;
	}
	qsort(out, (size_t)n, sizeof *out, compare_doubles);
}

// cost-model.md, section 9. The bare form is what a solver minimises; the correction is for plans whose rounds are unequal, which these
// draws (up to four rounds over as few as one layer) nearly all are.
static void the_closed_form_is_within_its_tolerances(void **state)
{
	(void)state;
	enum { N = 1000 };
	static double d[N];
	deviations(2, 80, 1, 4, N, false, d);
	assert_true(d[0] > -0.02); // a lower bound up to 2 %
	assert_true(fabs(d[N / 2]) < 1e-6);
	assert_true(d[N * 99 / 100] <= 0.006);
	assert_true(d[N - 1] <= 0.09);
	deviations(2, 80, 1, 4, N, true, d);
	assert_true(d[0] > -0.02);
	assert_true(d[N * 99 / 100] <= 0.0045);
	assert_true(d[N - 1] <= 0.02);
	deviations(3, 4, 12, 2, N, true, d);
	assert_true(d[0] > -0.02);
	assert_true(fabs(d[N / 2]) < 1e-6);
	assert_true(d[N * 99 / 100] <= 0.033);
	assert_true(d[N - 1] <= 0.09);
}

// ---- By hand

static void what_fits_takes_its_bytes_over_its_rate(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 1);
	add_stage(&f, 0, 8, 0);
	assert_near(judge(&f).token_s, 0.8);
	f.shape.kv_bytes = 1000000; // 100 positions: 0.1 GB more in each layer
	f.c.params.kv_alloc = 200;
	f.c.params.kv_read = 100;
	assert_near(judge(&f).token_s, 0.88);
	f.shape.head_bytes = 500000000;
	assert_near(judge(&f).token_s, 0.93);
	f.devices[0].visit_s = 0.003;
	assert_near(judge(&f).token_s, 0.933);
	f.devices[0].cpu_rate_of[DTYPE_Q4_K] = 20e9;
	f.shape.type = DTYPE_Q4_K;
	assert_near(judge(&f).token_s, 0.468);
}

static void an_accelerator_takes_the_layers_that_fit_it(void **state)
{
	(void)state;
	struct fixture f;
	struct cost_layout l;
	fixture_init(&f, 1);
	add_stage(&f, 0, 8, 0);
	f.devices[0].accel_bytes = 3999999999;
	f.devices[0].accel_rate = 100e9;
	assert_int_equal(cost_layout_of(&f.c, 0, &l, NULL), OK);
	assert_int_equal(l.n_accel, 3);
	assert_int_equal(l.n_units, 40);
	assert_near(judge(&f).token_s, 0.53);
	f.shape.head_bytes = 1000000000;
	f.plan.head_on_accel = true; // takes a layer's place
	assert_near(judge(&f).token_s, 0.02 + 0.6 + 0.01);
}

static void hops_are_paid_once_a_round(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 3);
	add_stage(&f, 0, 3, 0);
	add_stage(&f, 1, 5, 0);
	double one = 0.001 + 1000 / 100e6;
	assert_near(judge(&f).token_s, 0.8 + 2 * one);
	f.plan.n_rounds = 2;
	assert_near(judge(&f).token_s, 0.8 + 4 * one);
	f.plan.head = 2; // holds nothing
	assert_near(judge(&f).token_s, 0.8 + 5 * one);
	assert_near(judge(&f).hop_s, 5 * one);
}

static void one_access_point_adds_both_ways(void **state)
{
	(void)state;
	struct fixture f;
	const struct cluster_link attach[] = {
		{.delay_s = 0.002, .rate = 1e6}, {.delay_s = 0.0005, .rate = 1e9, .software_s = 0.0001}};
	double s;
	fixture_init(&f, 2);
	f.cluster.links = NULL;
	f.cluster.attach = attach;
	assert_true(cluster_hop(&f.cluster, 0, 1, 1000, &s));
	assert_near(s, 0.002 + 0.001 + 0.0005 + 0.000001 + 0.0001);
	assert_true(cluster_hop(&f.cluster, 1, 1, 1000, &s));
	assert_true(s == 0);
}

static void a_disk_that_never_rests_sets_the_pace(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 1);
	f.devices[0].cap_bytes = 5000000000; // 40 units of 64
	f.devices[0].disk_rate = 1e9;
	add_stage(&f, 0, 8, COST_STREAM_LEAST);
	struct cost_verdict v = judge(&f);
	assert_near(v.token_s, 26 * 0.125); // 24 that do not fit, and the window of two
	assert_near(v.stages[0].read_s, 26 * 0.125);
	assert_near(v.stages[0].busy_s, 0.8);
	assert_near(v.stages[0].stall_s, 26 * 0.125 - 0.8);
}

static void reading_hides_behind_what_others_compute(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 2);
	f.devices[0].cap_bytes = 3750000000; // 30 units of 32
	f.devices[0].disk_rate = 1e9;
	add_stage(&f, 0, 4, COST_STREAM_LEAST);
	add_stage(&f, 1, 4, 0);
	double hops = 2 * (0.001 + 1000 / 100e6);
	// Four units streamed, every eighth of 32. Two wait in the window; of the others one is read while the first eight are computed.
	struct cost_closed closed;
	cost_closed(&f.c, &closed);
	double y = (0.4 - 4 * 0.0125) / 4, z = y + 2 * 0.0125 + 2 * 0.125;
	assert_true(z < 0.4);
	assert_near(closed.token_s, 0.8 + hops);
	assert_near(judge(&f).token_s, 0.8 + hops);
	f.devices[0].disk_rate = 0.5e9; // rho 0.25: now two of the reads are waited for
	z = y + 2 * 0.0125 + 2 * 0.25;
	cost_closed(&f.c, &closed);
	assert_true(z > 0.4);
	assert_near(closed.token_s, z + 0.4 + hops);
	assert_near(judge(&f).token_s, z + 0.4 + hops);
	assert_true(closed.disk_stage == 0);
}

static void the_page_cache_reads_everything_for_one_unit_too_many(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 1);
	f.devices[0].disk_rate = 1e9;
	f.c.params.policy = COST_LRU;
	f.devices[0].cap_bytes = 8000000000; // exactly all
	add_stage(&f, 0, 8, 0);
	assert_near(judge(&f).token_s, 0.8);
	f.devices[0].cap_bytes = 7900000000;
	struct cost_verdict v = judge(&f);
	assert_near(v.token_s, 64 * 0.125 + 0.0125);
	struct cost_closed closed;
	cost_closed(&f.c, &closed);
	assert_near(closed.token_s, 8.0);
}

static void a_batch_reads_weights_once_and_a_prompt_is_bound_by_arithmetic(void **state)
{
	(void)state;
	struct fixture f;
	struct cost_runner r;
	struct cost_use use;
	fixture_init(&f, 1);
	add_stage(&f, 0, 8, 0);
	f.shape.layer_flops = 1e9;
	f.devices[0].cpu_flops = 1e12;
	cost_runner_init(&r, &f.c, 0, 0, NULL);
	struct cost_batch four = {.n_tokens = 4};
	assert_near(cost_runner_visit(&r, 0, 1, &four, &use), 1.8);
	struct cost_batch many = cost_chunk(0, 500);
	assert_near(cost_runner_visit(&r, 0, 2, &many, &use), 2 + 8 * 0.5);
	assert_near(use.busy_s, 4);
	f.devices[0].cpu_flops = 0; // not known: as many decode steps
	assert_near(cost_runner_visit(&r, 0, 7, &four, &use), 7 + 4 * 0.8);
}

static void chunks_of_a_prompt_follow_each_other_through_the_stages(void **state)
{
	(void)state;
	struct fixture f;
	struct arena a;
	double ttft;
	fixture_init(&f, 2);
	f.shape.layer_flops = 1e9;
	f.devices[0].cpu_flops = f.devices[1].cpu_flops = 1e12;
	add_stage(&f, 0, 4, 0);
	add_stage(&f, 1, 4, 0);
	assert_int_equal(arena_open(ARENA_BYTES, &a), OK);
	assert_int_equal(cost_check(&f.c, NULL), OK);
	assert_int_equal(cost_ttft(&f.c, 600, 200, &a, &ttft), OK); // 0.8 s per chunk and stage, 3 ms per hop
	assert_near(ttft, 4 * 0.8 + 2 * 0.003);
	assert_int_equal(cost_ttft(&f.c, 200, 200, &a, &ttft), OK);
	assert_near(ttft, 2 * 0.8 + 2 * 0.003);
	arena_close(&a);
}

static void streams_are_chosen_no_worse_than_the_fewest(void **state)
{
	(void)state;
	struct rng r;
	struct fixture f;
	int32_t n = 0, n_better = 0;
	rng_init(&r, 9);
	while (n < 200) {
		if (!draw_case(&r, &f, 16, 4, true))
			continue;
		for (int32_t i = 0; i < f.plan.n_stages; i++)
			f.plan.stages[i].n_streamed = COST_STREAM_LEAST;
		struct cost_closed least, chosen;
		cost_closed(&f.c, &least);
		assert_int_equal(cost_choose_streams(&f.c, &f.plan, NULL), OK);
		assert_int_equal(cost_check(&f.c, NULL), OK);
		cost_closed(&f.c, &chosen);
		assert_true(chosen.token_s <= least.token_s * (1 + 1e-9));
		n_better += chosen.token_s < least.token_s * 0.99;
		n++;
	}
	assert_true(n_better > 10);
}

// ---- Published (published-results.md, prima.cpp's testbed A): llama.cpp on D3 alone, Llama 70B Q4_K, 42.52 GB, 10,120 ms per token.
// The RAM has 9.7 GiB, the GPU 11 GiB, the disk reads 3.17 GB/s. Assumed: 1 GiB of the GPU for context and buffers, 365 GB/s there, 45 GB/s here.
static void llama_cpp_reads_its_whole_cpu_part_for_each_token(void **state)
{
	(void)state;
	struct fixture f;
	const double published = 10.120;
	fixture_init(&f, 1);
	f.shape = (struct model_shape){.n_layers = 80, .layer_bytes = 514000000, .head_bytes = 862000000, .hop_bytes = 32768};
	f.devices[0].cap_bytes = (uint64_t)(9.7 * (1 << 30));
	f.devices[0].cpu_rate = 45e9;
	f.devices[0].accel_bytes = UINT64_C(10) << 30;
	f.devices[0].accel_rate = 365e9;
	f.devices[0].disk_rate = 3.17e9;
	f.c.params.policy = COST_LRU;
	add_stage(&f, 0, 80, COST_STREAM_LEAST);
	double whole = judge(&f).token_s;
	assert_true(is_near(whole, published, 0.06));
	f.c.params.policy = COST_WINDOW; // only the overflow
	assert_true(judge(&f).token_s < 0.75 * published);
}

// ---- What cannot be

static void assert_refused(const struct fixture *f, const char *words)
{
	struct errmsg em = {""};
	assert_int_equal(cost_check(&f->c, &em), ERR_RANGE);
	if (strstr(em.text, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", em.text, words);
}

static void figures_that_no_machine_has_are_refused_by_name(void **state)
{
	(void)state;
	struct fixture good, f;
	fixture_init(&good, 2);
	add_stage(&good, 0, 4, 0);
	add_stage(&good, 1, 4, 0);
	assert_int_equal(cost_check(&good.c, NULL), OK);
#define BROKEN(change, words) \
	do { \
		f = good; \
		f.cluster.devices = f.devices; \
		f.cluster.links = f.links; \
		f.c.cluster = &f.cluster; \
		f.c.shape = &f.shape; \
		f.c.plan = &f.plan; \
		change; \
		assert_refused(&f, words); \
	} while (0)
	BROKEN(f.devices[1].cap_bytes = 0, "m1: memory is 0 bytes");
	BROKEN(f.devices[1].cap_bytes = UINT64_C(1) << 60, "m1: memory is 1152921504606846976 bytes");
	BROKEN(f.devices[0].cpu_rate = NAN, "m0: cpu rate is nan");
	BROKEN(f.devices[0].cpu_rate = 0, "m0: cpu rate is 0");
	BROKEN(f.devices[0].cpu_rate_of[DTYPE_Q4_0] = -1, "cpu rate of q4_0 is -1");
	BROKEN(f.devices[0].disk_rate = INFINITY, "m0: disk rate is inf");
	BROKEN(f.devices[0].accel_bytes = 1, "m0: accelerator rate is 0");
	BROKEN(f.devices[0].visit_s = -1, "m0: cost of a visit is -1");
	BROKEN(f.devices[1].name[1] = '0', "two devices are called m0");
	BROKEN(f.devices[0].reserved_bytes = f.devices[0].cap_bytes, "leaves nothing for weights");
	BROKEN(f.links[1].rate = 0, "m0 must send to m1, and no link leads there");
	BROKEN(f.links[2].delay_s = NAN, "link delay is nan");
	BROKEN(f.shape.n_layers = 0, "0 layers");
	BROKEN(f.shape.layer_bytes = 0, "a layer is 0 bytes");
	BROKEN(f.shape.hop_bytes = 0, "hidden state on the wire is 0 bytes");
	BROKEN(f.plan.stages[1].n_layers = 5, "2 stages hold 9 layers, the model has 8");
	BROKEN(f.plan.stages[1].device = 0, "m0 is in the ring twice");
	BROKEN(f.plan.stages[1].device = 2, "stage 1 is on device 2 of 2");
	BROKEN(f.plan.n_rounds = 0, "0 rounds");
	BROKEN(f.plan.head = 7, "the head is device 7 of 2");
	BROKEN(f.devices[1].cap_bytes = 3000000000, "m1: its layers in memory are 4.000 GB, 3.000 GB fit, and it has no disk");
	BROKEN((f.devices[1].cap_bytes = 200000000, f.devices[1].disk_rate = 1e9), "no window of two units");
	BROKEN((f.devices[1].cap_bytes = 3000000000, f.devices[1].disk_rate = 1e9), "0 units streamed, want 10 to 32");
	BROKEN((f.shape.kv_bytes = 1000000, f.c.params.kv_alloc = UINT64_C(1) << 49), "leave no room");
	BROKEN(f.shape.head_bytes = UINT64_C(1) << 41, "m0: 1099.512 GB of memory");
	BROKEN(f.c.params.units_per_layer = 0, "0 units per layer");
#undef BROKEN
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_judge_equals_a_simulation_by_events),
		cmocka_unit_test(the_closed_form_is_within_its_tolerances),
		cmocka_unit_test(what_fits_takes_its_bytes_over_its_rate),
		cmocka_unit_test(an_accelerator_takes_the_layers_that_fit_it),
		cmocka_unit_test(hops_are_paid_once_a_round),
		cmocka_unit_test(one_access_point_adds_both_ways),
		cmocka_unit_test(a_disk_that_never_rests_sets_the_pace),
		cmocka_unit_test(reading_hides_behind_what_others_compute),
		cmocka_unit_test(the_page_cache_reads_everything_for_one_unit_too_many),
		cmocka_unit_test(a_batch_reads_weights_once_and_a_prompt_is_bound_by_arithmetic),
		cmocka_unit_test(chunks_of_a_prompt_follow_each_other_through_the_stages),
		cmocka_unit_test(streams_are_chosen_no_worse_than_the_fewest),
		cmocka_unit_test(llama_cpp_reads_its_whole_cpu_part_for_each_token),
		cmocka_unit_test(figures_that_no_machine_has_are_refused_by_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
