// What the exact judge of partition/cost.h says of a ring whose rates were measured: for bench/rounds_bench.py. Prints one line of JSON.
//
//     ring_judge ROUNDS LAYER_BYTES HOP_S HEAD_S LAYERS,CPU_RATE,DISK_RATE,PINNED,STREAMED,WINDOW...
//
// One argument for each stage, in ring order: its layers, bytes/s of computing and of its disk, and the bytes that it keeps, that it streams and that its
// window has. The coordinator is a machine of its own. Sizes are rounded to the judge's units.
#include "base/bytes.h"
#include "partition/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int refuse(const char *what)
{
	fprintf(stderr, "ring_judge: %s\n", what);
	return 2;
}

// read_stage lays a stage out as it was measured: as many units streamed, and a cap of what is kept and the window.
static bool read_stage(const char *text, double unit, struct cluster_device *d, struct cost_stage *s)
{
	double pinned, streamed, window;
	int n = 0;
	if (sscanf(text, "%d,%lf,%lf,%lf,%lf,%lf%n", &s->n_layers, &d->cpu_rate, &d->disk_rate, &pinned, &streamed, &window, &n) != 6 || text[n] != '\0')
		return false;
	int32_t n_units = s->n_layers * COST_UNITS_DEFAULT;
	double slots = fmax(2, round(window / unit));
	s->n_streamed = (int32_t)fmin(n_units, round(streamed / (pinned + streamed) * n_units));
	d->cap_bytes = (uint64_t)((n_units - s->n_streamed + (s->n_streamed > 0 ? slots : 0) + 0.5) * unit);
	return true;
}

static void print(const struct cost_case *c, const struct cost_verdict *v)
{
	printf("{\"token_s\": %.9f, \"hop_s\": %.9f, \"head_s\": %.9f, \"stages\": [", v->token_s, v->hop_s, v->head_s);
	for (int32_t i = 0; i < c->plan->n_stages; i++)
		printf("%s{\"busy_s\": %.9f, \"stall_s\": %.9f, \"read_s\": %.9f}", i > 0 ? ", " : "", v->stages[i].busy_s, v->stages[i].stall_s, v->stages[i].read_s);
	printf("]}\n");
}

int main(int argc, char **argv)
{
	static struct cluster_device devices[STAGES_MAX + 1];
	static struct cost_plan plan;
	struct arena scratch;
	struct cost_verdict verdict;
	struct errmsg em = {{0}};
	int32_t n = argc - 5;
	if (n < 1 || n > STAGES_MAX)
		return refuse("usage: ring_judge ROUNDS LAYER_BYTES HOP_S HEAD_S LAYERS,CPU_RATE,DISK_RATE,PINNED,STREAMED,WINDOW...");
	struct model_shape shape = {.layer_bytes = strtoull(argv[2], NULL, 10), .hop_bytes = 1, .type = DTYPE_Q4_0};
	double hop_s = strtod(argv[3], NULL), head_s = strtod(argv[4], NULL);
	plan = (struct cost_plan){.head = n, .n_rounds = atoi(argv[1]), .n_stages = n};
	struct cluster_link *links = calloc((size_t)(n + 1) * (size_t)(n + 1), sizeof *links);
	if (links == NULL)
		return refuse("no memory");
	for (int32_t i = 0; i < (n + 1) * (n + 1); i++)
		links[i] = (struct cluster_link){.delay_s = hop_s, .rate = 1e12};
	for (int32_t i = 0; i < n; i++) {
		snprintf(devices[i].name, sizeof devices[i].name, "stage %d", (int)i);
		plan.stages[i].device = i;
		if (!read_stage(argv[5 + i], (double)shape.layer_bytes / COST_UNITS_DEFAULT, &devices[i], &plan.stages[i]))
			return refuse(argv[5 + i]);
		shape.n_layers += plan.stages[i].n_layers;
	}
	shape.head_bytes = 1000000;
	snprintf(devices[n].name, sizeof devices[n].name, "head");
	devices[n].cpu_rate = (double)shape.head_bytes / head_s;
	devices[n].cap_bytes = 2 * shape.head_bytes;
	const struct cluster cluster = {.devices = devices, .n_devices = n + 1, .links = links};
	const struct cost_case c = {.cluster = &cluster, .shape = &shape, .plan = &plan, .params = {.units_per_layer = COST_UNITS_DEFAULT}};
	if (cost_check(&c, &em) != OK)
		return refuse(em.text);
	if (arena_open(cost_judge_bytes(&c), &scratch) != OK || cost_judge(&c, &scratch, &verdict) != OK)
		return refuse("no memory");
	print(&c, &verdict);
	arena_close(&scratch);
	free(links);
	return 0;
}
