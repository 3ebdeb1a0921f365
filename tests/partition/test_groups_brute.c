// The solver with groups against brute force: every way to make up to three machines into stages that are machines or groups of two or three, shares
// in eighths, every mode and form, every cut of the layers, one and two rounds. `test_groups_brute 1000` takes so many instances.
#include "tests/support/solve_world.h"

#include <math.h>

#define INSTANCES 25
#define DEVICES_MOST 3

struct search {
	const struct world *w;
	struct arena arena;
	struct cost_plan plan;
	double best_s;
	struct cost_plan best;
	int64_t n_judged;
};

// streams_lanes: what is dealt by lanes stays in memory, so that nobody plans a member of that who streams.
static bool streams_lanes(const struct cost_case *c)
{
	for (int32_t i = 0; i < c->plan->n_stages; i++) {
		const struct cost_group *g = cost_group_of(c->plan, i);
		struct cost_layout l;
		if (g && g->mode != GROUP_GATHER && cost_layout_of(c, i, &l, NULL) == OK && l.n_streamed > 0)
			return true;
	}
	return false;
}

static void try_plan(struct search *b)
{
	struct cost_case c = {.cluster = &b->w->cluster, .shape = &b->w->shape, .plan = &b->plan, .params = b->w->want.params};
	struct cost_verdict v;
	if (cost_check(&c, NULL) != OK || streams_lanes(&c) || cost_bound(&c) >= b->best_s)
		return;
	b->n_judged++;
	assert_int_equal(cost_judge(&c, &b->arena, &v), OK);
	assert_true(cost_bound(&c) <= v.token_s * (1 + 1e-9));
	if (v.token_s < b->best_s) {
		b->best_s = v.token_s;
		b->best = b->plan;
	}
}

static void try_forms(struct search *b)
{
	struct cost_group *g = &b->plan.groups[0];
	if (b->plan.n_groups == 0) {
		try_plan(b);
		return;
	}
	for (int32_t mode = GROUP_GATHER; mode <= GROUP_REDUCE; mode++) {
		for (int32_t form = GROUP_DIRECT; form <= GROUP_RING; form++) {
			g->mode = (enum group_mode)mode;
			g->gather_form = mode == GROUP_GATHER && form == GROUP_HUB ? GROUP_HUB : GROUP_DIRECT;
			g->sum_form = (enum group_form)form;
			try_plan(b);
		}
	}
}

static void try_shares(struct search *b, int32_t member, uint32_t left)
{
	struct cost_group *g = &b->plan.groups[0];
	if (b->plan.n_groups == 0 || member + 1 == g->n_members) {
		g->shares[member] = left;
		try_forms(b);
		return;
	}
	for (uint32_t share = 1; share < left; share++) {
		g->shares[member] = share;
		try_shares(b, member + 1, left - share);
	}
}

static void try_cuts(struct search *b, int32_t stage, int32_t left)
{
	if (stage + 1 == b->plan.n_stages) {
		b->plan.stages[stage].n_layers = left;
		for (b->plan.n_rounds = 1; b->plan.n_rounds <= (b->plan.n_stages > 1 ? 2 : 1); b->plan.n_rounds++)
			try_shares(b, 0, 8);
		return;
	}
	for (int32_t l = 1; l < left; l++) {
		b->plan.stages[stage].n_layers = l;
		try_cuts(b, stage + 1, left - l);
	}
}

// add_stages goes through every next stage of devices that are not used yet: one machine, or a group that each of its members may lead.
static void add_stages(struct search *b, uint32_t used)
{
	int32_t n = b->w->cluster.n_devices;
	if (b->plan.n_stages > 0 && (b->plan.stages[0].device == b->plan.head || !(used >> b->plan.head & 1)))
		try_cuts(b, 0, b->w->shape.n_layers);
	for (uint32_t set = 1; set < UINT32_C(1) << n; set++) {
		int32_t n_members = __builtin_popcount(set);
		if ((set & used) != 0 || (n_members > 1 && b->plan.n_groups > 0))
			continue;
		for (int32_t lead = 0; lead < n; lead++) {
			struct cost_plan before = b->plan;
			if (!(set >> lead & 1))
				continue;
			b->plan.stages[b->plan.n_stages++] = (struct cost_stage){.device = lead, .n_streamed = COST_STREAM_LEAST};
			struct cost_group *g = &b->plan.groups[0];
			for (int32_t i = 0, at = 1; i < n && n_members > 1; i++) {
				if (set >> i & 1)
					g->devices[i == lead ? 0 : at++] = i;
				g->n_streamed[i] = COST_STREAM_LEAST;
			}
			g->n_members = n_members > 1 ? n_members : g->n_members;
			b->plan.n_groups += n_members > 1;
			add_stages(b, used | set);
			b->plan = before;
		}
	}
}

static void draw_near_world(struct rng *r, struct world *w)
{
	draw_world(r, w, true);
	w->shape.n_layers = 4 + (int32_t)rng_below(r, 3);
	w->shape.split = (struct split_shape){
		.n_heads = 32, .n_kv_heads = 8, .head_dim = 128, .hidden_dim = 4096, .ffn_dim = 14336, .o_lanes = 8, .down_lanes = 8, .o_block = 32, .down_block = 32};
	w->shape.hop_bytes = 16384;
	w->cluster.n_devices = 2 + (int32_t)rng_below(r, DEVICES_MOST - 1);
	w->want.head = (int32_t)rng_below(r, (uint64_t)w->cluster.n_devices);
	w->cluster.links = w->links;
	w->cluster.attach = NULL;
	double far = rng_below(r, 2) ? 0.0005 : 0.006;
	for (int32_t i = 0; i < w->cluster.n_devices; i++) {
		w->devices[i].visit_s = draw(r, 0, 0.0003);
		for (int32_t j = 0; j < w->cluster.n_devices; j++)
			w->links[i * w->cluster.n_devices + j] = (struct cluster_link){.delay_s = draw(r, 0, far), .rate = draw(r, 100e6, 1e9)};
	}
	w->want.allow_groups = true;
}

static void print_plan(const struct world *w, const char *what, const struct cost_plan *p, double s)
{
	print_message("  %s %.1f ms, k %d:", what, 1e3 * s, p->n_rounds);
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct cost_group *g = cost_group_of(p, i);
		print_message(" [%d", p->stages[i].n_layers);
		for (int32_t m = 0; m < (g ? g->n_members : 1); m++)
			print_message(" %s:%u", w->devices[g ? g->devices[m] : p->stages[i].device].name, g ? g->shares[m] : 0);
		print_message("%s%s%s]", g ? " " : "", g ? group_mode_words(g->mode) : "", g && g->mode != GROUP_GATHER ? group_form_words(g->sum_form) : "");
	}
	print_message("\n");
}

static int32_t n_instances = INSTANCES;

static void groups_are_as_good_as_by_brute_force(void **state)
{
	struct rng r;
	int32_t n = 0, n_groups = 0, n_equal = 0, n_better = 0;
	double worst = 0;
	(void)state;
	rng_init(&r, 2026);
	while (n < n_instances) {
		struct world w;
		struct solve_result out;
		struct search b = {.w = &w, .best_s = INFINITY};
		struct errmsg em;
		draw_near_world(&r, &w);
		if (solve_world(&w, &out, &em) != OK)
			continue;
		assert_int_equal(arena_open(1 << 20, &b.arena), OK);
		for (int32_t on_accel = 0; on_accel < 2; on_accel++) {
			b.plan = (struct cost_plan){.head = w.want.head, .head_on_accel = on_accel};
			if (!on_accel || (w.shape.head_bytes > 0 && w.devices[w.want.head].accel_bytes >= w.shape.head_bytes))
				add_stages(&b, 0);
		}
		arena_close(&b.arena);
		double ratio = out.value / b.best_s;
		n++;
		if (ratio > 1.005) {
			print_plan(&w, "solver", &out.plan, out.value);
			print_plan(&w, "brute force", &b.best, b.best_s);
			print_message("  %s, with groups %.1f ms\n", solve_groups_words(out.groups.why), 1e3 * out.groups.with_s);
		}
		n_groups += b.best.n_groups > 0;
		n_equal += ratio <= 1.005;
		n_better += ratio < 0.995;
		worst = ratio > worst ? ratio : worst;
	}
	print_message("%d instances, groups best in %d: solver equal or better in %d, better in %d, worst %.1f %% slower\n", n, n_groups, n_equal, n_better, 100 * (worst - 1));
	assert_true(n_equal * 10 >= n * 8);
	assert_true(worst < 1.25);
}

int main(int argc, char **argv)
{
	n_instances = argc > 1 ? atoi(argv[1]) : INSTANCES;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_are_as_good_as_by_brute_force),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
