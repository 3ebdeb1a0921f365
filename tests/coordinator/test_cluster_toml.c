// What a coordinator writes down of its machines is read back as it was.
#include "coordinator/cluster_toml.h"

#include "partition/cost.h"
#include "sim/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICES 3

struct world {
	struct cluster_device devices[DEVICES];
	struct cluster_link links[DEVICES * DEVICES];
	struct cluster cluster;
};

static void fill(struct world *w)
{
	*w = (struct world){.cluster = {.n_devices = DEVICES}};
	for (int32_t i = 0; i < DEVICES; i++) {
		struct cluster_device *d = &w->devices[i];
		snprintf(d->name, NAME_CAP, "m%d", (int)i);
		*d = (struct cluster_device){.cap_bytes = 3000000001u + (uint64_t)i, .reserved_bytes = 400000000, .cpu_rate = 12345678901.0, .cpu_flops = 3e11,
			.disk_rate = i == 1 ? 0 : 2e9, .visit_s = 123e-6};
		snprintf(d->name, NAME_CAP, "m%d", (int)i);
		d->cpu_rate_of[DTYPE_Q4_K] = 1.1e10;
		for (int32_t j = 0; j < DEVICES; j++)
			w->links[i * DEVICES + j] = (struct cluster_link){.delay_s = 0.001 * (1 + i + j), .rate = 1e7 * (1 + i + j)};
	}
	w->devices[2].derived = CLUSTER_CAP | CLUSTER_CPU_RATE;
	w->cluster.devices = w->devices;
	w->cluster.links = w->links;
}

static struct scenario read_back_with(const struct cluster_toml *t)
{
	struct scenario s;
	struct errmsg em = {""};
	size_t cap = cluster_toml_bytes(t->cluster->n_devices);
	char *text = malloc(cap);
	assert_non_null(text);
	size_t len = cluster_toml_write(t, text, cap);
	assert_int_equal(len, strlen(text));
	assert_true(len < cap - 1);
	if (scenario_open_cluster("x", text, len, NULL, &s, &em) != OK)
		fail_msg("%s\n%s", em.text, text);
	free(text);
	return s;
}

static struct scenario read_back(const struct cluster *c, bool head_can_hold)
{
	struct cluster_toml t = {.cluster = c, .head_can_hold = head_can_hold, .n_slots = 2, .ctx_len = 1000, .chunk = 64};
	return read_back_with(&t);
}

static void machines_are_read_back_as_they_were(void **state)
{
	(void)state;
	struct world w;
	fill(&w);
	struct scenario s = read_back(&w.cluster, true);
	assert_int_equal(s.n_devices, DEVICES);
	assert_int_equal(s.ctx_len, 1000);
	assert_int_equal(s.n_slots, 2);
	assert_false(s.head_holds_none);
	for (int32_t i = 0; i < DEVICES; i++) {
		const struct cluster_device *a = &w.devices[i], *b = &s.devices[i];
		assert_string_equal(b->name, a->name);
		assert_int_equal(b->cap_bytes, a->cap_bytes);
		assert_int_equal(b->reserved_bytes, a->reserved_bytes);
		assert_true(b->cpu_rate == a->cpu_rate && b->cpu_flops == a->cpu_flops && b->disk_rate == a->disk_rate);
		assert_true(b->cpu_rate_of[DTYPE_Q4_K] == a->cpu_rate_of[DTYPE_Q4_K] && b->cpu_rate_of[DTYPE_Q8_0] == 0);
		assert_true(fabs(b->visit_s - a->visit_s) < 1e-12);
		for (int32_t j = 0; j < DEVICES; j++) {
			double was, is;
			assert_true(cluster_hop(&w.cluster, i, j, 32768, &was) && cluster_hop(&s.cluster, i, j, 32768, &is));
			assert_true(fabs(is - was) < 1e-8);
		}
	}
	assert_int_equal(s.devices[2].derived, CLUSTER_CAP | CLUSTER_CPU_RATE);
	scenario_close(&s);
}

static void of_two_ways_the_slower_counts_and_none_is_a_cut(void **state)
{
	(void)state;
	struct world w;
	double back;
	fill(&w);
	w.links[0 * DEVICES + 1].delay_s = 0.5;
	w.links[1 * DEVICES + 0].rate = 1000;
	w.links[1 * DEVICES + 2].rate = 0;
	struct scenario s = read_back(&w.cluster, false);
	assert_true(s.head_holds_none);
	assert_true(cluster_hop(&s.cluster, 1, 0, 500, &back));
	assert_true(fabs(back - 1.0) < 1e-9);
	assert_true(cluster_hop(&s.cluster, 1, 2, 0, &back)); // by the coordinator
	assert_true(back > 0.5);
	scenario_close(&s);
	w.links[1 * DEVICES + 2] = w.links[2 * DEVICES + 1] = cluster_link_via(&w.links[1 * DEVICES], &w.links[2], 0);
	s = read_back(&w.cluster, false);
	assert_int_equal(s.cluster.links[1 * DEVICES + 2].via, 1); // it still goes that way
	assert_int_equal(s.n_links, DEVICES * (DEVICES - 1) / 2);
	scenario_close(&s);
}

static void names_that_no_file_has_are_changed_and_kept_apart(void **state)
{
	(void)state;
	struct world w;
	fill(&w);
	snprintf(w.devices[0].name, NAME_CAP, "pi#1");
	snprintf(w.devices[1].name, NAME_CAP, "pi\"1");
	memset(w.devices[2].name, 'x', NAME_CAP - 1);
	w.devices[2].name[NAME_CAP - 1] = '\0';
	struct scenario s = read_back(&w.cluster, true);
	assert_string_equal(s.devices[0].name, "pi-1-0");
	assert_string_equal(s.devices[1].name, "pi-1-1");
	assert_int_equal(strspn(s.devices[2].name, "x"), NAME_CAP - 6);
	scenario_close(&s);
}

static void a_changed_name_is_nobody_elses(void **state)
{
	(void)state;
	struct world w;
	fill(&w);
	snprintf(w.devices[0].name, NAME_CAP, "pi 1");
	snprintf(w.devices[1].name, NAME_CAP, "pi-1-0"); // as if it knew what comes
	snprintf(w.devices[2].name, NAME_CAP, "pi-1-3");
	struct scenario s = read_back(&w.cluster, true);
	assert_string_equal(s.devices[0].name, "pi-1-6");
	assert_string_equal(s.devices[1].name, "pi-1-0");
	scenario_close(&s);
}

static void figures_at_their_bounds_are_read_back(void **state)
{
	(void)state;
	struct world w;
	fill(&w);
	for (int32_t i = 0; i < DEVICES; i++) {
		w.devices[i].cap_bytes = CLUSTER_BYTES_MAX;
		w.devices[i].cpu_rate = w.devices[i].disk_rate = w.devices[i].cpu_flops = i > 0 ? CLUSTER_RATE_MAX : 1;
		for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++)
			w.devices[i].cpu_rate_of[id] = dtype_find(id) ? CLUSTER_RATE_MAX : 0;
		for (int32_t j = 0; j < DEVICES; j++)
			w.links[i * DEVICES + j] = (struct cluster_link){.delay_s = i > 1 ? 3600 : 0, .rate = i > 1 ? 1 : CLUSTER_RATE_MAX, .derived = true};
	}
	struct scenario s = read_back(&w.cluster, true);
	assert_int_equal(s.devices[1].cap_bytes, CLUSTER_BYTES_MAX);
	assert_true(s.devices[1].cpu_rate == CLUSTER_RATE_MAX);
	scenario_close(&s);
}

static void the_longest_context_that_is_served_is_read_back(void **state)
{
	(void)state;
	struct world w;
	fill(&w);
	struct cluster_toml t = {.cluster = &w.cluster, .n_slots = SESSIONS_MAX, .ctx_len = CTX_MAX, .chunk = CHUNK_TOKENS_MAX};
	struct scenario s = read_back_with(&t);
	assert_int_equal(s.ctx_len, CTX_MAX);
	scenario_close(&s);
}

static void the_largest_cluster_that_nobody_measured_is_read_back(void **state)
{
	(void)state;
	enum { N = SCENARIO_DEVICES_MAX };
	struct cluster_device *devices = calloc(N, sizeof *devices);
	struct cluster_link *links = calloc((size_t)N * N, sizeof *links);
	assert_true(devices && links);
	for (int32_t i = 0; i < N; i++) {
		devices[i] = (struct cluster_device){.cap_bytes = 1u << 30, .cpu_rate = 5e9, .derived = CLUSTER_CAP | CLUSTER_CPU_RATE};
		snprintf(devices[i].name, NAME_CAP, "machine-with-a-long-name-in-a-large-house-%d", (int)i);
		for (int32_t j = 0; j < N; j++)
			links[i * N + j] = (struct cluster_link){.delay_s = 0.002, .rate = 12.5e6, .derived = true};
	}
	struct cluster c = {.devices = devices, .n_devices = N, .links = links};
	struct scenario s = read_back(&c, true);
	assert_int_equal(s.n_links, N * (N - 1) / 2);
	assert_int_equal(s.n_derived, 2 * N + N - 1);
	scenario_close(&s);
	free(devices);
	free(links);
}

static void a_text_that_is_too_long_is_cut(void **state)
{
	(void)state;
	struct world w;
	char small[100];
	fill(&w);
	struct cluster_toml t = {.cluster = &w.cluster, .n_slots = 1, .ctx_len = 10, .chunk = 1};
	assert_int_equal(cluster_toml_write(&t, small, sizeof small), sizeof small - 1);
	assert_int_equal(strlen(small), sizeof small - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machines_are_read_back_as_they_were),
		cmocka_unit_test(of_two_ways_the_slower_counts_and_none_is_a_cut),
		cmocka_unit_test(names_that_no_file_has_are_changed_and_kept_apart),
		cmocka_unit_test(a_changed_name_is_nobody_elses),
		cmocka_unit_test(figures_at_their_bounds_are_read_back),
		cmocka_unit_test(the_longest_context_that_is_served_is_read_back),
		cmocka_unit_test(the_largest_cluster_that_nobody_measured_is_read_back),
		cmocka_unit_test(a_text_that_is_too_long_is_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
