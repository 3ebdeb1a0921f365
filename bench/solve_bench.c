// How long planning takes, and how far from the bound the plans are: bench/solve_bench.sh. Prints a table in Markdown.
//
// Machines are drawn as homes have them: memory for 0.4 to 1.3 of the model altogether, three quarters with a disk, one in eight with an
// accelerator. A row is RUNS clusters of its kind.
#include "base/rng.h"
#include "partition/solve.h"
#include "partition/solve_chains.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS 20
#define NEARER 20 // times, on wires

struct world {
	struct cluster_device *devices;
	struct cluster_link *links, *attach;
	struct cluster cluster;
	struct model_shape shape;
	struct solve_want want;
};

static double draw(struct rng *r, double min, double max)
{
	return min + (max - min) * rng_u01(r);
}

static void draw_world(struct rng *r, struct world *w, int32_t n, bool by_attach, int32_t layers)
{
	double memory = draw(r, 0.4, 1.3), sum = 0, *parts = calloc((size_t)n, sizeof *parts);
	w->devices = calloc((size_t)n, sizeof *w->devices);
	w->attach = calloc((size_t)n, sizeof *w->attach);
	w->links = by_attach ? NULL : calloc((size_t)n * (size_t)n, sizeof *w->links);
	if (parts == NULL || w->devices == NULL || w->attach == NULL || (!by_attach && w->links == NULL))
		exit(1);
	w->shape = (struct model_shape){.n_layers = layers, .layer_bytes = 514000000, .head_bytes = 862000000, .hop_bytes = 32768};
	for (int32_t i = 0; i < n; i++)
		sum += parts[i] = draw(r, 0.3, 1.5);
	for (int32_t i = 0; i < n; i++) {
		struct cluster_device *d = &w->devices[i];
		snprintf(d->name, sizeof d->name, "m%d", i);
		d->reserved_bytes = 1;
		d->cap_bytes = w->shape.head_bytes + (uint64_t)(parts[i] / sum * memory * layers * (double)w->shape.layer_bytes) + 2;
		d->cpu_rate = draw(r, 5e9, 60e9);
		d->disk_rate = rng_below(r, 4) ? draw(r, 0.3e9, 5e9) : 0;
		d->visit_s = 0.0002;
		if (rng_below(r, 8) == 0) {
			d->accel_bytes = (uint64_t)draw(r, 4e9, 12e9);
			d->accel_rate = draw(r, 200e9, 900e9);
		}
		w->attach[i] = (struct cluster_link){.delay_s = draw(r, 0.0003, 0.004), .rate = draw(r, 10e6, 120e6), .software_s = 0.0001};
		for (int32_t j = 0; j < n && !by_attach; j++)
			w->links[i * n + j] = (struct cluster_link){.delay_s = draw(r, 0.0003, 0.008), .rate = draw(r, 10e6, 120e6)};
	}
	w->cluster = (struct cluster){.devices = w->devices, .n_devices = n, .links = w->links, .attach = w->attach};
	w->want = (struct solve_want){.cluster = &w->cluster, .shape = &w->shape, .params = {.units_per_layer = COST_UNITS_DEFAULT}};
	free(parts);
}

static void free_world(struct world *w)
{
	free(w->devices);
	free(w->attach);
	free(w->links);
}

// now_s is processor time: who else uses the machine does not matter.
static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

struct row {
	int n;
	double seconds[RUNS], gaps[RUNS];
	double mib;
	int n_rounds, n_streaming, n_single;
};

static void print_row(const char *what, struct row *r)
{
	qsort(r->seconds, (size_t)r->n, sizeof(double), compare_doubles);
	qsort(r->gaps, (size_t)r->n, sizeof(double), compare_doubles);
	printf("| %s | %.1f | %.1f | %.2f | %.2f | %.1f | %d of %d | %d |\n", what, r->seconds[r->n / 2] * 1e3, r->seconds[r->n - 1] * 1e3,
		r->gaps[r->n / 2] * 100, r->gaps[r->n - 1] * 100, r->mib, r->n_rounds, r->n, r->n_streaming);
	fflush(stdout);
}

// pull_wires brings machines near each other, and lets them form groups over layers like Llama 70B's.
static void pull_wires(struct world *w, int32_t n, bool by_attach)
{
	w->shape.split = (struct split_shape){
		.n_heads = 64, .n_kv_heads = 8, .head_dim = 128, .hidden_dim = 8192, .ffn_dim = 28672, .o_lanes = 4, .down_lanes = 4, .o_block = 256, .down_block = 256};
	w->want.allow_groups = true;
	for (int32_t i = 0; i < n * (by_attach ? 1 : n); i++) {
		struct cluster_link *l = by_attach ? &w->attach[i] : &w->links[i];
		l->delay_s /= NEARER;
		l->software_s /= NEARER;
		l->rate *= NEARER;
	}
}

// A row's wants are those of a plan; with chains, of so many rings at once; with groups, of machines on wires.
static void run_row(int32_t n, bool by_attach, int32_t layers, int32_t n_chains, bool has_groups)
{
	struct row row = {0};
	struct rng r;
	char what[96];
	rng_init(&r, (uint64_t)n * 1000 + (uint64_t)layers);
	while (row.n < RUNS) {
		struct world w;
		struct solve_result out = {0};
		struct cost_plan plans[CHAINS_MAX];
		double token_s[CHAINS_MAX];
		struct solve_chains_result chains = {.plans = plans, .token_s = token_s};
		struct arena a;
		struct errmsg em;
		draw_world(&r, &w, n, by_attach, layers);
		if (has_groups)
			pull_wires(&w, n, by_attach);
		for (int32_t i = 0; i < n && n_chains > 0; i++)
			w.devices[i].cap_bytes *= (uint64_t)n_chains;
		size_t bytes = n_chains > 0 ? solve_chains_scratch_bytes(&w.want, n_chains) : solve_scratch_bytes(&w.want);
		if (arena_open(bytes, &a) != OK)
			exit(1);
		double begin = now_s();
		enum err e = n_chains > 0 ? solve_chains(&w.want, n_chains, &a, &chains, &em) : solve(&w.want, &a, &out, &em);
		row.seconds[row.n] = now_s() - begin;
		arena_close(&a);
		if (e == OK) {
			row.gaps[row.n++] = n_chains > 0 ? chains.gap : out.gap;
			row.mib = (double)bytes / (1 << 20);
			row.n_rounds += out.plan.n_rounds > 1;
			for (int32_t i = 0; i < out.plan.n_stages; i++)
				if (out.verdict.stages[i].read_s > 0) {
					row.n_streaming++;
					break;
				}
		}
		free_world(&w);
	}
	snprintf(what, sizeof what, "%d devices, %s, %d layers%s%s", n, by_attach ? "one access point" : "any links", layers, n_chains > 0 ? ", chains" : "",
		has_groups ? ", groups" : "");
	print_row(what, &row);
}

int main(void)
{
	printf("| cluster | ms, median | ms, worst | gap %%, median | gap %%, worst | memory MiB | k > 1 | streaming |\n");
	printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
	run_row(4, false, 80, 0, false);
	run_row(8, false, 80, 0, false);
	run_row(12, false, 80, 0, false);
	run_row(12, false, 126, 0, false);
	run_row(32, true, 80, 0, false);
	run_row(32, false, 80, 0, false);
	run_row(256, true, 126, 0, false);
	run_row(2000, true, 80, 8, false);
	run_row(4, false, 80, 0, true);
	run_row(8, false, 80, 0, true);
	run_row(32, true, 80, 0, true);
	return 0;
}
