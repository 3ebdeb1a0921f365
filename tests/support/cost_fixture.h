// A case of the cost model with its own storage. Unprefixed and inline: a test file includes it once and reads as if it were its own.
#ifndef HEARTH_TESTS_SUPPORT_COST_FIXTURE_H
#define HEARTH_TESTS_SUPPORT_COST_FIXTURE_H

#include "partition/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DEVICES 5

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

static inline void fixture_init(struct fixture *f, int32_t n_devices)
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

static inline void add_stage(struct fixture *f, int32_t device, int32_t n_layers, int32_t n_streamed)
{
	f->plan.stages[f->plan.n_stages++] = (struct cost_stage){
		.device = device, .n_layers = n_layers, .n_streamed = n_streamed};
}

static inline struct cost_verdict judge(const struct fixture *f)
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

#endif
