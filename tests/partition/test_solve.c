// What the solver promises: wants are kept, nothing is slower than one machine, everybody left out is told why, and errors do the sums.
// Against brute force: test_solve_brute.c.
#include "partition/solve.h"

#include "tests/support/solve_world.h"

#include <math.h>

static int32_t layers_on(const struct solve_result *r, int32_t device)
{
	for (int32_t i = 0; i < r->plan.n_stages; i++)
		if (r->plan.stages[i].device == device)
			return r->plan.stages[i].n_layers;
	return 0;
}

static bool is_near(double a, double b, double tolerance)
{
	return fabs(a / b - 1) <= tolerance;
}

// ---- Choices

static void one_machine_that_holds_all_is_the_plan(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r;
	world_init(&w, 3, false);
	w.devices[1].cpu_rate = 20e9;
	w.want.head = 1;
	solve_ok(&w, &r);
	assert_int_equal(r.plan.n_stages, 1);
	assert_int_equal(layers_on(&r, 1), 8);
	assert_true(is_near(r.value, 0.4, 1e-12));
	assert_true(r.single == 1 && r.single_s == r.value);
	assert_int_equal(w.fates[1].fate, SOLVE_USED);
	assert_int_equal(w.fates[0].fate, SOLVE_SLOWER);
	assert_true(w.fates[0].with_s > r.value); // a layer there, and two hops
	assert_true(is_near(w.fates[0].with_s, 0.4 - 0.05 + 0.1 + 2 * 0.00101, 1e-9));
	assert_true(r.gap < 1e-6);
}

static void a_faster_machine_elsewhere_is_worth_two_hops(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r;
	world_init(&w, 2, true);
	w.devices[1].cpu_rate = 20e9;
	solve_ok(&w, &r); // the head is m0
	assert_int_equal(layers_on(&r, 1), 8);
	assert_true(is_near(r.value, 0.4 + 2 * (2 * 0.0005 + 2 * 1000 / 200e6), 1e-12));
	assert_int_equal(r.plan.head, 0);
}

static void a_model_too_big_for_each_is_split_by_speed(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r;
	world_init(&w, 3, true);
	for (int i = 0; i < 3; i++)
		w.devices[i].cap_bytes = 5000000000;
	w.devices[2].cpu_rate = 5e9;
	solve_ok(&w, &r);
	assert_int_equal(layers_on(&r, 0) + layers_on(&r, 1), 8);
	assert_int_equal(layers_on(&r, 2), 0);
	assert_int_equal(r.single, -1);
	assert_int_equal(w.fates[2].fate, SOLVE_SLOWER);
	w.devices[2].cap_bytes = 100; // nothing fits there
	solve_ok(&w, &r);
	assert_int_equal(w.fates[2].fate, SOLVE_NO_ROOM);
}

static void several_rounds_hide_reading(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result once, r;
	world_init(&w, 2, false);
	for (int i = 0; i < 2; i++) {
		w.devices[i].cap_bytes = 2000000000;
		w.devices[i].disk_rate = 3e9;
	}
	w.want.rounds_max = 1;
	solve_ok(&w, &once);
	w.want.rounds_max = 0;
	solve_ok(&w, &r);
	assert_true(r.plan.n_rounds > 1);
	assert_true(r.value < once.value * 0.95);
	assert_true(r.verdict.stages[0].read_s > 0);
	w.want.rounds_min = 3;
	w.want.rounds_max = 3;
	solve_ok(&w, &r);
	assert_int_equal(r.plan.n_rounds, 3);
}

static void the_output_head_goes_where_the_plan_is_faster(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r;
	world_init(&w, 1, false);
	w.shape.head_bytes = 1000000000;
	w.devices[0].accel_bytes = 4000000000;
	w.devices[0].accel_rate = 100e9;
	solve_ok(&w, &r); // three layers and the head there: what the head leaves out is a layer, and as slow here
	assert_true(is_near(r.value, 5 * 0.1 + 4 * 0.01, 1e-12));
	w.shape.head_bytes = 100000000; // takes a layer's place for a tenth of its work
	solve_ok(&w, &r);
	assert_true(!r.plan.head_on_accel);
	w.devices[0].accel_bytes = 4100000000;
	solve_ok(&w, &r);
	assert_true(r.plan.head_on_accel);
}

static void nothing_streams_under_the_page_cache_that_need_not(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result window, r;
	world_init(&w, 2, false);
	w.devices[0].cap_bytes = 7900000000;
	w.devices[0].disk_rate = w.devices[1].disk_rate = 1e9;
	w.devices[1].cap_bytes = 2000000000;
	w.links[1].delay_s = w.links[2].delay_s = 0.5;
	solve_ok(&w, &window);
	w.want.params.policy = COST_LRU;
	solve_ok(&w, &r);
	assert_int_equal(window.plan.n_stages, 1); // a few units, hidden behind computing
	assert_int_equal(r.plan.n_stages, 2);      // one unit too many would read all
	assert_true(r.verdict.stages[0].read_s + r.verdict.stages[1].read_s == 0);
}

// ---- Wants

static void limits_are_kept(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r;
	for (int by_attach = 0; by_attach < 2; by_attach++) {
		world_init(&w, 4, by_attach);
		w.want.limits = w.limits;
		w.limits[2].layers_min = 3;
		solve_ok(&w, &r);
		assert_true(layers_on(&r, 2) >= 3);
		w.limits[0].layers_max = 0;
		solve_ok(&w, &r);
		assert_int_equal(layers_on(&r, 0), 0);
		assert_int_equal(w.fates[0].fate, SOLVE_FORBIDDEN);
		w.limits[1].layers_min = w.limits[1].layers_max = 2; // by hand
		w.limits[2].layers_min = w.limits[2].layers_max = 5;
		w.limits[3].layers_min = w.limits[3].layers_max = 1;
		solve_ok(&w, &r);
		assert_int_equal(layers_on(&r, 1), 2);
		assert_int_equal(layers_on(&r, 2), 5);
		assert_int_equal(layers_on(&r, 3), 1);
	}
}

static void no_more_devices_than_wanted(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r;
	for (int n = 6; n <= 30; n += 24) {
		for (int by_attach = 0; by_attach < 2; by_attach++) {
			world_init(&w, n, by_attach);
			w.shape.n_layers = 12;
			for (int i = 0; i < n; i++) {
				w.devices[i].cap_bytes = 2100000000 + 1000000000u * (uint64_t)(i % 4);
				w.devices[i].disk_rate = i % 2 ? 1e9 : 0;
				w.devices[i].cpu_rate = 20e9 / (1 + i % 4);
			}
			w.want.devices_max = 3;
			solve_ok(&w, &r);
			assert_true(r.plan.n_stages <= 3);
			assert_true(r.value >= r.bound);
			w.want.devices_max = 0;
			struct solve_result free;
			solve_ok(&w, &free);
			assert_true(free.value <= r.value * (1 + 1e-9));
		}
	}
}

static void the_ring_keeps_the_order_it_is_given(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r;
	const int32_t order[] = {3, 1, 0, 4};
	world_init(&w, 5, false);
	for (int i = 0; i < 5; i++)
		w.devices[i].cap_bytes = 2500000000;
	w.want.order = order;
	w.want.n_order = 4;
	solve_ok(&w, &r);
	assert_int_equal(r.plan.n_stages, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(r.plan.stages[i].device, order[i]);
	assert_int_equal(w.fates[2].fate, SOLVE_FORBIDDEN);
}

static void outer_layers_stay_on_trusted_machines(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r;
	for (int n = 4; n <= 20; n += 16) {
		for (int by_attach = 0; by_attach < 2; by_attach++) {
			world_init(&w, n, by_attach);
			for (int i = 0; i < n; i++) {
				w.devices[i].cap_bytes = i < 2 ? 2000000001 : 4000000001;
				w.devices[i].cpu_rate = i < 2 ? 5e9 : 20e9 + i * 1e9;
				w.limits[i].is_trusted = i < 2;
			}
			w.want.limits = w.limits;
			w.want.head_layers = 2;
			w.want.rounds_max = 1;
			solve_ok(&w, &r);
			int32_t first = r.plan.stages[0].device, last = r.plan.stages[r.plan.n_stages - 1].device;
			assert_true(first < 2 && last < 2);
			assert_int_equal(layers_on(&r, 0), 2);
			assert_int_equal(layers_on(&r, 1), 2);
			w.want.rounds_max = 0;
			solve_ok(&w, &r);
		}
	}
}

static void the_incumbent_stays_unless_something_is_better(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r, again;
	world_init(&w, 3, false);
	for (int i = 0; i < 3; i++) {
		w.devices[i].cap_bytes = 3500000000;
		w.devices[i].cpu_rate = (i + 1) * 10e9;
	}
	solve_ok(&w, &r);
	struct cost_plan worse = r.plan, broken = r.plan;
	w.want.incumbent = &r.plan;
	solve_ok(&w, &again);
	assert_true(again.incumbent_s == again.value && again.value == r.value);
	worse.stages[0].n_layers--;
	worse.stages[1].n_layers++;
	for (int i = 0; i < worse.n_stages; i++) // still fits
		w.devices[worse.stages[i].device].cap_bytes += 1000000000;
	w.want.incumbent = &worse;
	solve_ok(&w, &again);
	assert_true(again.incumbent_s >= again.value);
	broken.stages[0].n_layers = 100;
	w.want.incumbent = &broken;
	solve_ok(&w, &again);
	assert_true(again.incumbent_s == -1);
}

// ---- Goals

// goal_value is what a plan is worth by another goal: as the incumbent, alone allowed.
static void a_goal_finds_no_worse_than_the_plan_for_another(void **state)
{
	(void)state;
	static struct world w;
	struct rng r;
	int32_t n_streams_better = 0, n_ttft_better = 0;
	rng_init(&r, 5);
	for (int i = 0; i < 20;) {
		struct solve_result tpot, streams, ttft;
		draw_world(&r, &w, true);
		w.shape.layer_flops = 2e9;
		for (int d = 0; d < w.cluster.n_devices; d++)
			w.devices[d].cpu_flops = draw(&r, 50e9, 2e12);
		if (solve_world(&w, &tpot, NULL) != OK)
			continue;
		i++;
		w.want.goal = (struct solve_goal){.streams_weight = 1, .n_streams = 4};
		w.want.incumbent = NULL;
		solve_ok(&w, &streams);
		assert_true(streams.value >= streams.bound && streams.value == streams.stream_s);
		w.want.incumbent = &tpot.plan;
		struct solve_result with;
		solve_ok(&w, &with);
		n_streams_better += streams.value < with.incumbent_s * 0.999;
		assert_true(streams.value <= with.incumbent_s * 1.02);
		w.want.goal = (struct solve_goal){.ttft_weight = 1, .n_prompt = 256, .chunk = 64};
		w.want.incumbent = NULL;
		solve_ok(&w, &ttft);
		w.want.incumbent = &tpot.plan;
		solve_ok(&w, &with);
		n_ttft_better += ttft.value < with.incumbent_s * 0.999;
		assert_true(ttft.value >= ttft.bound && ttft.value <= with.incumbent_s * 1.02);
	}
	assert_true(n_streams_better > 3);
	assert_true(n_ttft_better > 3);
}

// ---- Any machines

static void the_numbers_of_the_devices_do_not_matter(void **state)
{
	(void)state;
	static struct world w, other;
	struct rng r;
	rng_init(&r, 31);
	for (int i = 0; i < 25;) {
		struct solve_result a, b;
		draw_world(&r, &w, true);
		if (solve_world(&w, &a, NULL) != OK)
			continue;
		i++;
		other = w;
		int32_t n = w.cluster.n_devices, to[8];
		for (int32_t d = 0; d < n; d++)
			to[d] = (d + 1) % n;
		other.cluster.devices = other.devices;
		other.cluster.links = w.cluster.links ? other.links : NULL;
		other.cluster.attach = w.cluster.attach ? other.attach : NULL;
		other.want.cluster = &other.cluster;
		other.want.shape = &other.shape;
		other.want.head = to[w.want.head];
		for (int32_t d = 0; d < n; d++) {
			other.devices[to[d]] = w.devices[d];
			other.attach[to[d]] = w.attach[d];
			for (int32_t e = 0; e < n; e++)
				other.links[to[d] * n + to[e]] = w.links[d * n + e];
		}
		solve_ok(&other, &b);
		if (!is_near(a.value, b.value, 1e-9))
			fail_msg("instance %d: %.12f s, and %.12f s with other numbers", i, a.value, b.value);
	}
}

static void the_same_wants_give_the_same_bits(void **state)
{
	(void)state;
	static struct world w;
	struct rng r;
	rng_init(&r, 33);
	for (int i = 0; i < 20;) {
		static struct solve_result a, b;
		draw_world(&r, &w, false);
		memset(&a, 0, sizeof a);
		memset(&b, 0xff, sizeof b);
		if (solve_world(&w, &a, NULL) != OK)
			continue;
		i++;
		solve_ok(&w, &b);
		assert_true(a.value == b.value && a.bound == b.bound && a.n_judged == b.n_judged);
		assert_memory_equal(a.plan.stages, b.plan.stages, (size_t)a.plan.n_stages * sizeof a.plan.stages[0]);
	}
}

// draw_many is a household of n: a few fast machines, many slow ones, all short of memory together or not.
static void draw_many(struct rng *r, struct world *w, int32_t n, bool by_attach, int32_t layers)
{
	world_init(w, n, by_attach);
	w->shape = (struct model_shape){.n_layers = layers, .layer_bytes = 500000000, .head_bytes = 400000000, .hop_bytes = 32768};
	for (int32_t i = 0; i < n; i++) {
		struct cluster_device *d = &w->devices[i];
		d->cap_bytes = (uint64_t)draw(r, 2e9, 16e9);
		d->cpu_rate = draw(r, 5e9, 60e9);
		d->disk_rate = rng_below(r, 4) ? draw(r, 0.3e9, 5e9) : 0;
		d->visit_s = 0.0002;
		w->attach[i] = (struct cluster_link){.delay_s = draw(r, 0.0005, 0.004), .rate = draw(r, 10e6, 120e6), .software_s = 0.0001};
		for (int32_t j = 0; j < n; j++)
			w->links[i * n + j] = (struct cluster_link){.delay_s = draw(r, 0.0005, 0.008), .rate = draw(r, 10e6, 120e6)};
	}
}

static void many_devices_are_planned_near_their_bound(void **state)
{
	(void)state;
	static struct world w;
	struct rng r;
	static const struct {
		int32_t n, layers;
		bool by_attach;
		double gap;
	} cases[] = {{32, 80, true, 0.02}, {256, 126, true, 0.02}, {12, 40, false, 0.05}, {30, 60, false, 0.3}};
	rng_init(&r, 41);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct solve_result out;
		draw_many(&r, &w, cases[i].n, cases[i].by_attach, cases[i].layers);
		solve_ok(&w, &out);
		print_message("# %d devices, %d layers: %.4f s, bound %.4f s, gap %.2f %%, k = %d, %d stages, %lld judged\n", cases[i].n,
			cases[i].layers, out.value, out.bound, out.gap * 100, out.plan.n_rounds, out.plan.n_stages, (long long)out.n_judged);
		assert_true(out.gap >= 0 && out.gap < cases[i].gap);
		assert_true(out.single < 0 || out.value <= out.single_s);
	}
}

// ---- What cannot be

static void assert_refused(struct world *w, enum err want, const char *words)
{
	struct solve_result r;
	struct errmsg em = {""};
	assert_int_equal(solve_world(w, &r, &em), want);
	if (strstr(em.text, words) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", em.text, words);
}

static void what_cannot_be_is_refused_with_the_sums(void **state)
{
	(void)state;
	static struct world good, w;
	world_init(&good, 3, false);
#define BROKEN(change, code, words) \
	do { \
		w = good; \
		w.cluster.devices = w.devices; \
		w.cluster.links = w.links; \
		w.want.cluster = &w.cluster; \
		w.want.shape = &w.shape; \
		change; \
		assert_refused(&w, code, words); \
	} while (0)
	BROKEN(w.devices[1].cpu_rate = NAN, ERR_RANGE, "m1: cpu rate is nan");
	BROKEN(w.devices[1].cap_bytes = 0, ERR_RANGE, "m1: memory is 0 bytes");
	BROKEN(w.devices[1].cap_bytes = UINT64_C(1) << 60, ERR_RANGE, "m1: memory is 1152921504606846976 bytes");
	BROKEN(w.links[1].delay_s = NAN, ERR_RANGE, "link delay is nan");
	BROKEN(w.shape.n_layers = 0, ERR_RANGE, "0 layers");
	BROKEN(w.want.head = 3, ERR_RANGE, "the head is device 3 of 3");
	BROKEN(w.want.params.units_per_layer = 0, ERR_RANGE, "0 units per layer");
	BROKEN(w.want.params.policy = COST_DEMAND, ERR_RANGE, "planning knows windows and the page cache");
	BROKEN(w.want.goal.tpot_weight = NAN, ERR_RANGE, "weights nan");
	BROKEN((w.want.goal.streams_weight = 1, w.want.goal.n_streams = 0), ERR_RANGE, "0 streams");
	BROKEN((w.want.goal.ttft_weight = 1, w.want.goal.n_prompt = 5), ERR_RANGE, "chunks of 0 tokens");
	BROKEN(w.want.rounds_max = 9, ERR_RANGE, "0 to 9 rounds");
	BROKEN(w.want.head_layers = 9, ERR_RANGE, "head_layers is 9, the model has 8");
	BROKEN((w.want.limits = w.limits, w.limits[0].layers_min = 9), ERR_RANGE, "must hold 9 layers together, the model has 8");
	BROKEN((w.want.limits = w.limits, w.limits[0].layers_max = w.limits[1].layers_max = w.limits[2].layers_max = 2), ERR_RANGE,
		"may hold 6 layers together, the model has 8");
	BROKEN((w.want.limits = w.limits, w.limits[0].layers_min = -1), ERR_RANGE, "m0: -1 to");
	BROKEN((w.want.limits = w.limits, w.limits[0].layers_min = w.limits[1].layers_min = 1, w.want.devices_max = 1), ERR_RANGE,
		"2 devices must be used, and at most 1 may be");
	BROKEN((w.want.limits = w.limits, w.want.head_layers = 1,
		       w.limits[0].is_trusted = w.limits[1].is_trusted = w.limits[2].is_trusted = false),
		ERR_RANGE, "no device that may hold layers is trusted");
	BROKEN((w.want.order = (const int32_t[]){0, 0}, w.want.n_order = 2), ERR_RANGE, "the order names m0 twice");
	BROKEN((w.want.order = (const int32_t[]){0, 7}, w.want.n_order = 2), ERR_RANGE, "the order names device 7 of 3");
	BROKEN(w.devices[0].cap_bytes = w.devices[1].cap_bytes = w.devices[2].cap_bytes = 2000000000, ERR_NOT_FOUND,
		"the model needs 8.000 GB (8 layers of 1.000 GB, 0.000 GB of keys and values, 0.000 GB of output head); the 3 machines "
		"that may hold layers have 6.000 GB free, 0 of them can stream from a disk, and together they hold 6 layers");
	BROKEN(w.devices[0].cap_bytes = w.devices[1].cap_bytes = w.devices[2].cap_bytes = 900000000, ERR_NOT_FOUND,
		"the 3 machines that may hold layers have 2.700 GB free, 0 of them can stream from a disk, and together they hold 0 layers");
	BROKEN((w.shape.head_bytes = 1000000000, w.devices[0].cap_bytes = 500000000), ERR_NOT_FOUND,
		"m0: the output head needs 1.000 GB, and 0.500 GB are free");
	BROKEN((w.devices[0].cap_bytes = w.devices[1].cap_bytes = w.devices[2].cap_bytes = 3000000000,
		       w.links[1].rate = w.links[2].rate = w.links[3].rate = w.links[6].rate = 0),
		ERR_NOT_FOUND, "no ring of machines that reach each other holds the model: m0 has no link to m1");
#undef BROKEN
}

static void too_little_memory_is_an_error(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r = {0};
	struct arena a;
	world_init(&w, 3, false);
	size_t bytes = solve_scratch_bytes(&w.want);
	for (size_t n = 64; n < bytes; n = n * 5 / 3) {
		assert_int_equal(arena_open(n, &a), OK);
		assert_int_equal(solve(&w.want, &a, &r, NULL), ERR_NOMEM);
		assert_int_equal(a.used, 0);
		arena_close(&a);
	}
	assert_int_equal(arena_open(bytes, &a), OK);
	assert_int_equal(solve(&w.want, &a, &r, NULL), OK);
	arena_close(&a);
	w.shape.n_layers = -1;
	assert_int_equal(solve_scratch_bytes(&w.want), 0);
}

static void unreachable_machines_are_left_out(void **state)
{
	(void)state;
	static struct world w;
	struct solve_result r;
	world_init(&w, 4, false);
	for (int i = 0; i < 4; i++) {
		w.devices[i].cap_bytes = 3000000000;
		w.links[2 * 4 + i].rate = w.links[i * 4 + 2].rate = 0;
	}
	solve_ok(&w, &r);
	assert_int_equal(layers_on(&r, 2), 0);
	assert_int_equal(w.fates[2].fate, SOLVE_NO_LINK);
}

// ---- The account

static void the_account_adds_up_to_a_token(void **state)
{
	(void)state;
	static struct world w;
	struct rng r;
	int32_t terms[5] = {0};
	rng_init(&r, 51);
	for (int i = 0; i < 60;) {
		struct solve_result out;
		struct solve_account a;
		struct arena arena;
		draw_world(&r, &w, true);
		if (solve_world(&w, &out, NULL) != OK)
			continue;
		i++;
		struct cost_case c = {.cluster = &w.cluster, .shape = &w.shape, .plan = &out.plan, .params = w.want.params};
		assert_int_equal(arena_open(cost_judge_bytes(&c), &arena), OK);
		assert_int_equal(solve_account_for(&c, &arena, &a), OK);
		arena_close(&arena);
		assert_true(a.token_s == out.value);
		assert_true(is_near(a.busy_s + a.stall_s + a.hop_s + a.head_s, a.token_s, 1e-9));
		double hops = 0, bytes = 0;
		for (int s = 0; s < a.n_stages; s++) {
			hops += a.stages[s].hop_s;
			bytes += (double)(a.stages[s].accel_bytes + a.stages[s].pinned_bytes + a.stages[s].streamed_bytes);
			assert_true((a.stages[s].overflow_s > 0) == (a.stages[s].n_streamed > 0));
		}
		if (out.plan.stages[0].device == out.plan.head)
			assert_true(fabs(hops - a.hop_s) < 1e-12);
		assert_true(is_near(bytes, (double)w.shape.layer_bytes * w.shape.n_layers, 1e-6));
		terms[a.bottleneck]++;
		assert_true((a.bottleneck_stage < 0) == (a.bottleneck == SOLVE_TERM_HOPS || a.bottleneck == SOLVE_TERM_HEAD));
	}
	assert_true(terms[SOLVE_TERM_COMPUTE] > 5);
	assert_true(terms[SOLVE_TERM_STALL] + terms[SOLVE_TERM_DISK] > 5);
	assert_true(terms[SOLVE_TERM_HOPS] > 0);
	print_message("# bottleneck: compute %d, stall %d, disk %d, hops %d, head %d\n", terms[0], terms[1], terms[2], terms[3], terms[4]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_machine_that_holds_all_is_the_plan),
		cmocka_unit_test(a_faster_machine_elsewhere_is_worth_two_hops),
		cmocka_unit_test(a_model_too_big_for_each_is_split_by_speed),
		cmocka_unit_test(several_rounds_hide_reading),
		cmocka_unit_test(the_output_head_goes_where_the_plan_is_faster),
		cmocka_unit_test(nothing_streams_under_the_page_cache_that_need_not),
		cmocka_unit_test(limits_are_kept),
		cmocka_unit_test(no_more_devices_than_wanted),
		cmocka_unit_test(the_ring_keeps_the_order_it_is_given),
		cmocka_unit_test(outer_layers_stay_on_trusted_machines),
		cmocka_unit_test(the_incumbent_stays_unless_something_is_better),
		cmocka_unit_test(a_goal_finds_no_worse_than_the_plan_for_another),
		cmocka_unit_test(the_numbers_of_the_devices_do_not_matter),
		cmocka_unit_test(the_same_wants_give_the_same_bits),
		cmocka_unit_test(many_devices_are_planned_near_their_bound),
		cmocka_unit_test(what_cannot_be_is_refused_with_the_sums),
		cmocka_unit_test(too_little_memory_is_an_error),
		cmocka_unit_test(unreachable_machines_are_left_out),
		cmocka_unit_test(the_account_adds_up_to_a_token),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
