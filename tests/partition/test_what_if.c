// One thing changed, and the best plan then.
#include "partition/what_if.h"

#include "tests/support/cost_fixture.h"

#include <stdlib.h>

// Three machines of which the third is slow; what fits decides.
struct home {
	struct fixture f;
	struct solve_limit limits[3];
	struct solve_want w;
	struct solve_result r;
	struct arena a;
};

static void open_home(struct home *h, double cap_bytes)
{
	struct errmsg em = {""};
	fixture_init(&h->f, 3);
	for (int32_t i = 0; i < 3; i++) {
		h->f.devices[i].cap_bytes = (uint64_t)cap_bytes;
		h->f.devices[i].disk_rate = 1e9;
		h->f.devices[i].cpu_rate = i == 2 ? 2e9 : 10e9;
		h->limits[i] = (struct solve_limit){.layers_max = LAYERS_MAX, .is_trusted = true};
	}
	h->w = (struct solve_want){.cluster = &h->f.cluster, .shape = &h->f.shape, .params = h->f.c.params, .limits = h->limits, .goal = {.tpot_weight = 1}};
	h->r.fates = NULL;
	assert_int_equal(arena_open(what_if_scratch_bytes(&h->w), &h->a), OK);
	if (solve(&h->w, &h->a, &h->r, &em) != OK)
		fail_msg("%s", em.text);
}

static struct what_if_answer ask(struct home *h, struct what_if q)
{
	struct what_if_answer out;
	struct errmsg em = {""};
	assert_true(what_if_makes_sense(&h->w, &h->r.plan, &q));
	size_t used = h->a.used;
	if (what_if_ask(&h->w, &h->r.plan, &q, &h->a, &out, &em) != OK)
		fail_msg("%s", em.text);
	assert_int_equal(h->a.used, used);
	return out;
}

static bool is_used(const struct cost_plan *p, int32_t device)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].device == device)
			return true;
	return false;
}

static void without_a_machine_its_layers_are_elsewhere(void **state)
{
	(void)state;
	struct home h = {0};
	open_home(&h, 4.5e9); // eight layers of 1 GB: two machines just hold them
	assert_true(is_used(&h.r.plan, 1));
	struct what_if_answer a = ask(&h, (struct what_if){.kind = WHAT_IF_WITHOUT, .device = 1});
	assert_int_equal(a.status, OK);
	assert_false(is_used(&a.plan, 1));
	assert_true(a.token_s > h.r.verdict.token_s);
	arena_close(&h.a);
}

static void more_memory_is_never_slower_and_here_enough_for_one(void **state)
{
	(void)state;
	struct home h = {0};
	open_home(&h, 4.5e9);
	struct what_if_answer a = ask(&h, (struct what_if){.kind = WHAT_IF_MEMORY, .device = 0});
	assert_int_equal(a.plan.n_stages, 1);
	assert_true(a.token_s < h.r.verdict.token_s);
	assert_true(h.f.devices[0].cap_bytes == (uint64_t)4.5e9); // the wants are as they were
	a = ask(&h, (struct what_if){.kind = WHAT_IF_MEMORY, .device = 2});
	assert_true(a.token_s <= h.r.verdict.token_s * (1 + 1e-12));
	arena_close(&h.a);
}

static void nothing_read_from_disk_may_have_no_plan_and_says_why(void **state)
{
	(void)state;
	struct home h = {0};
	open_home(&h, 2e9); // six of eight layers fit
	struct what_if_answer out;
	struct errmsg em = {""};
	struct what_if q = {.kind = WHAT_IF_NO_DISKS, .device = -1};
	assert_true(what_if_makes_sense(&h.w, &h.r.plan, &q));
	assert_int_equal(what_if_ask(&h.w, &h.r.plan, &q, &h.a, &out, &em), OK);
	assert_int_equal(out.status, ERR_NOT_FOUND);
	assert_true(em.text[0] != '\0');
	assert_true(h.f.devices[0].disk_rate > 0);
	arena_close(&h.a);
}

static void an_accelerator_takes_the_layers_it_has_room_for(void **state)
{
	(void)state;
	struct home h = {0};
	open_home(&h, 4.5e9);
	struct what_if_answer a = ask(&h, (struct what_if){.kind = WHAT_IF_ACCELERATOR, .device = 2});
	assert_true(is_used(&a.plan, 2)); // the slow machine is worth it then
	assert_true(a.token_s < h.r.verdict.token_s / 1.5);
	arena_close(&h.a);
}

static void shorter_links_and_smaller_weights_are_counted(void **state)
{
	(void)state;
	struct home h = {0};
	struct cluster_link wires[9];
	open_home(&h, 4.5e9);
	for (size_t i = 0; i < ARRAY_LEN(wires); i++)
		wires[i] = (struct cluster_link){.delay_s = 1e-4, .rate = 1e9};
	struct cluster as = {.links = wires};
	struct what_if_answer a = ask(&h, (struct what_if){.kind = WHAT_IF_LINKS, .device = -1, .as = &as});
	assert_true(a.token_s < h.r.verdict.token_s && a.token_s > h.r.verdict.token_s - 2.1 * 0.001);
	struct model_shape half = h.f.shape;
	half.layer_bytes /= 2;
	half.type = DTYPE_Q4_0;
	a = ask(&h, (struct what_if){.kind = WHAT_IF_QUANT, .device = -1, .shape = &half});
	assert_true(a.token_s < h.r.verdict.token_s / 1.9);
	arena_close(&h.a);
}

static void questions_that_are_none_are_told(void **state)
{
	(void)state;
	struct home h = {0};
	open_home(&h, 64e9); // one machine does it all
	assert_int_equal(h.r.plan.n_stages, 1);
	assert_false(what_if_makes_sense(&h.w, &h.r.plan, &(struct what_if){.kind = WHAT_IF_ONE_ROUND, .device = -1}));
	assert_false(what_if_makes_sense(&h.w, &h.r.plan, &(struct what_if){.kind = WHAT_IF_NO_DISKS, .device = -1}));
	assert_false(what_if_makes_sense(&h.w, &h.r.plan, &(struct what_if){.kind = WHAT_IF_WITHOUT, .device = 2}));
	assert_false(what_if_makes_sense(&h.w, &h.r.plan, &(struct what_if){.kind = WHAT_IF_QUANT, .device = -1, .shape = &h.f.shape}));
	h.f.devices[1].cap_bytes = CLUSTER_BYTES_MAX;
	assert_false(what_if_makes_sense(&h.w, &h.r.plan, &(struct what_if){.kind = WHAT_IF_MEMORY, .device = 1}));
	arena_close(&h.a);
}

static void too_little_scratch_is_an_error_not_an_answer(void **state)
{
	(void)state;
	struct home h = {0};
	struct what_if_answer out;
	struct errmsg em = {""};
	open_home(&h, 4.5e9);
	h.a.cap = 1024;
	assert_int_equal(what_if_ask(&h.w, &h.r.plan, &(struct what_if){.kind = WHAT_IF_MEMORY, .device = 0}, &h.a, &out, &em), ERR_NOMEM);
	arena_close(&h.a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_machine_its_layers_are_elsewhere),
		cmocka_unit_test(more_memory_is_never_slower_and_here_enough_for_one),
		cmocka_unit_test(nothing_read_from_disk_may_have_no_plan_and_says_why),
		cmocka_unit_test(an_accelerator_takes_the_layers_it_has_room_for),
		cmocka_unit_test(shorter_links_and_smaller_weights_are_counted),
		cmocka_unit_test(questions_that_are_none_are_told),
		cmocka_unit_test(too_little_scratch_is_an_error_not_an_answer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
