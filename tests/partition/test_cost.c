// The cost model against examples computed by hand and published figures, and what it refuses. Random plans: test_cost_events.c.
#include "partition/cost.h"

#include "tests/support/cost_fixture.h"

#include <math.h>

#define ARENA_BYTES (4 << 20)

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

// fixture_experts: nine tenths of each layer are 16 experts, of which a token uses 4.
static void fixture_experts(struct fixture *f)
{
	f->shape.expert_share = 0.9;
	f->shape.n_experts_used = 4;
	f->shape.split.n_experts = 16;
}

static void of_experts_a_batch_reads_those_that_it_uses(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 1);
	fixture_experts(&f);
	add_stage(&f, 0, 8, 0);
	assert_near(judge(&f).token_s, 8 * (0.1 + 0.9 / 4) / 10); // layers of 1 GB at 10 GB/s
	assert_near(model_shape_expert_share(&f.shape, 1), 0.25);
	assert_near(model_shape_expert_share(&f.shape, 2), 1 - 0.75 * 0.75);
	assert_near(model_shape_expert_share(&f.shape, 7), 1 - 0.75 * 0.75 * 0.75 * 0.75 * 0.75 * 0.75 * 0.75);
	assert_near(model_shape_read_share(&f.shape, 4096), 1);
	f.shape.n_experts_used = 16;
	assert_near(judge(&f).token_s, 0.8);
}

static void experts_that_do_not_fit_are_read_when_a_token_uses_them(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 1);
	fixture_experts(&f);
	f.devices[0].disk_rate = 1e9;
	f.devices[0].cap_bytes = 4000000000; // half of the model, of it 7.2 GB of experts
	add_stage(&f, 0, 8, COST_STREAM_LEAST);
	struct cost_layout l;
	assert_int_equal(cost_layout_of(&f.c, 0, &l, NULL), OK);
	assert_int_equal(l.n_streamed, 34); // of 64: a window has two
	assert_near(cost_streamed_share(&f.c, &l, 1), 0.25);
	struct cost_verdict v = judge(&f);
	double read_s = 34 * 0.125 / 4; // the part of experts that are not here times what a token uses
	assert_near(v.stages[0].read_s, read_s);
	assert_true(v.token_s >= read_s && v.token_s <= read_s + 8 * 0.325 / 10);
	// With less memory than the rest takes, that is streamed too, and read whole.
	l.n_streamed = l.n_units;
	assert_near(cost_streamed_share(&f.c, &l, 1), 0.9 / 4 + 0.1);
	assert_near(cost_streamed_share(&f.c, &l, 4096), 1);
}

static void experts_are_not_read_before_the_token_is_there(void **state)
{
	(void)state;
	struct fixture f;
	fixture_init(&f, 2);
	fixture_experts(&f);
	f.devices[1].disk_rate = 0.1e9;
	f.devices[1].cap_bytes = 3500000000;
	add_stage(&f, 0, 4, 0); // during its turn the disk of the other one would have time
	add_stage(&f, 1, 4, COST_STREAM_LEAST);
	struct cost_verdict v = judge(&f);
	struct cost_closed closed;
	cost_closed(&f.c, &closed);
	assert_true(v.token_s >= v.stages[0].busy_s + v.stages[1].read_s + v.hop_s);
	assert_true(closed.token_s <= v.token_s * (1 + 1e-12) && closed.token_s >= v.token_s * 0.8);
	assert_true(cost_bound(&f.c) <= closed.token_s * (1 + 1e-12));
	f.shape.expert_share = 0;
	struct cost_verdict dense = judge(&f);
	assert_true(dense.token_s < dense.stages[0].busy_s + dense.stages[1].read_s + dense.hop_s);
}

static void streams_share_the_ring_until_somebody_never_rests(void **state)
{
	(void)state;
	struct fixture f;
	struct arena a;
	double each;
	fixture_init(&f, 2);
	f.shape.head_bytes = 500000000; // 0.05 s
	add_stage(&f, 0, 2, 0);
	add_stage(&f, 1, 6, 0);
	assert_int_equal(arena_open(ARENA_BYTES, &a), OK);
	double one = 0.2 + 0.6 + 0.05 + 2 * (0.001 + 1000 / 100e6);
	assert_int_equal(cost_streams(&f.c, 1, &a, &each), OK);
	assert_near(each, one);
	assert_int_equal(cost_streams(&f.c, 2, &a, &each), OK);
	assert_near(each, 0.6); // m1 is busy all the time
	f.devices[1].cap_bytes = 3000000000;
	f.devices[1].disk_rate = 0.5e9;
	f.devices[0].cpu_flops = f.devices[1].cpu_flops = 1e15; // four tokens are computed as fast as one
	f.plan.stages[1].n_streamed = COST_STREAM_LEAST; // 26 units of 0.25 s are read, once for all
	assert_int_equal(cost_streams(&f.c, 4, &a, &each), OK);
	assert_near(each, 26 * 0.25 / 4);
	arena_close(&a);
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
	assert_int_equal(cost_ttft(&f.c, 600, 200, &a, &ttft), OK); // 0.8 s per chunk and stage, 3 ms per hop; one row comes back
	assert_near(ttft, 4 * 0.8 + 0.003 + 0.00101);
	assert_int_equal(cost_ttft(&f.c, 200, 200, &a, &ttft), OK);
	assert_near(ttft, 2 * 0.8 + 0.003 + 0.00101);
	arena_close(&a);
}

static void a_prompt_finds_full_windows(void **state)
{
	(void)state;
	struct fixture f;
	struct arena a;
	double ttft;
	fixture_init(&f, 1);
	f.shape.layer_flops = 1e8;
	f.devices[0].cpu_flops = 1e12;
	f.devices[0].cap_bytes = 6000000000; // 48 of 64 units
	f.devices[0].disk_rate = 1e9;
	add_stage(&f, 0, 8, 64);
	assert_int_equal(arena_open(ARENA_BYTES, &a), OK);
	assert_int_equal(cost_check(&f.c, NULL), OK);
	assert_int_equal(cost_ttft(&f.c, 2, 2, &a, &ttft), OK); // a unit is computed in 12.5 ms and read in 125 ms
	assert_near(ttft, 0.0125 + 16 * 0.125 + 0.0125);
	arena_close(&a);
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
	BROKEN((f.shape.expert_share = 0.5, f.shape.split.n_experts = 4, f.shape.n_experts_used = 5), "a token uses 5 of 4 experts");
	BROKEN(f.shape.expert_share = 1.5, "the experts' part of a layer");
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
		cmocka_unit_test(what_fits_takes_its_bytes_over_its_rate),
		cmocka_unit_test(an_accelerator_takes_the_layers_that_fit_it),
		cmocka_unit_test(hops_are_paid_once_a_round),
		cmocka_unit_test(one_access_point_adds_both_ways),
		cmocka_unit_test(a_disk_that_never_rests_sets_the_pace),
		cmocka_unit_test(reading_hides_behind_what_others_compute),
		cmocka_unit_test(the_page_cache_reads_everything_for_one_unit_too_many),
		cmocka_unit_test(a_batch_reads_weights_once_and_a_prompt_is_bound_by_arithmetic),
		cmocka_unit_test(of_experts_a_batch_reads_those_that_it_uses),
		cmocka_unit_test(experts_that_do_not_fit_are_read_when_a_token_uses_them),
		cmocka_unit_test(experts_are_not_read_before_the_token_is_there),
		cmocka_unit_test(streams_share_the_ring_until_somebody_never_rests),
		cmocka_unit_test(chunks_of_a_prompt_follow_each_other_through_the_stages),
		cmocka_unit_test(a_prompt_finds_full_windows),
		cmocka_unit_test(llama_cpp_reads_its_whole_cpu_part_for_each_token),
		cmocka_unit_test(figures_that_no_machine_has_are_refused_by_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
