// The solver's queue: members may make the core ask as often as they come and go.
#include "coordinator/shell/coord_planner.h"

#include "tests/support/coord_host.h"
#include "tests/support/made_model.h"

struct world {
	char dir[SCRATCH_CAP];
	struct model *model;
	struct loop loop;
	struct host h;
	struct coord_planner *planner;
	uint32_t told[8];
	double token_s[8]; // 0: no plan
	size_t n_told;
};

static void on_event(void *ctx, struct coord_event *ev)
{
	struct world *w = ctx;
	assert_int_equal(ev->type, COORD_EV_PLANNED);
	assert_true(w->n_told < ARRAY_LEN(w->told));
	w->token_s[w->n_told] = ev->u.planned.err == OK ? ev->u.planned.token_s : 0;
	w->told[w->n_told++] = ev->u.planned.id;
}

static int set_up(void **state)
{
	static struct world w;
	memset(&w, 0, sizeof w);
	char path[MADE_PATH_CAP];
	struct errmsg em;
	*state = &w;
	if (!scratch_open(w.dir) || loop_open(&w.loop, &em) != OK)
		return -1;
	made_model(w.dir, "layers=3,hidden=256,ffn=512,heads=4,kv_heads=2,head_dim=64,ctx=64", "Q4_K", "", path);
	if (model_open(path, &w.model, &em) != OK)
		return -1;
	start(&w.h, NULL, 2);
	struct coord_planner_params p = {.loop = &w.loop, .core = w.h.c, .config = &w.h.config, .model = w.model, .ctx = &w, .on_event = on_event};
	return coord_planner_open(&p, &w.planner, &em) == OK ? 0 : -1;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	coord_planner_close(w->planner);
	stop(&w->h);
	model_close(w->model);
	loop_close(&w->loop);
	return scratch_remove(w->dir);
}

static void ask(struct world *w, uint32_t id, int32_t chain)
{
	const struct node_id nodes[] = {record(1).id, record(2).id};
	struct coord_effect f = {.type = COORD_FX_PLAN, .u.plan = {.id = id, .chain = chain, .n = 2, .nodes = nodes}};
	coord_planner_ask(w->planner, &f);
}

static bool is_told_last(void *ctx)
{
	const struct world *w = ctx;
	return w->n_told > 0 && w->told[w->n_told - 1] == 5000;
}

static void of_a_chain_only_the_newest_question_waits(void **state)
{
	struct world *w = *state;
	ask(w, 1, 0); // under way at once
	ask(w, 2, 1);
	for (uint32_t id = 3; id < 1000; id++)
		ask(w, id, 0);
	ask(w, 5000, 0);
	assert_true(loop_run_until(&w->loop, is_told_last, w, loop_clock_ns() + 60 * S));
	assert_int_equal(w->n_told, 3);
	assert_int_equal(w->told[0], 1);
	assert_int_equal(w->told[1], 2);
}

static bool is_answered(void *ctx)
{
	return ((const struct world *)ctx)->n_told > 0;
}

// token_s_with tells figures of member 1 and returns the time of a token with them.
static double token_s_with(struct world *w, int32_t chain, uint64_t decode_bps)
{
	const uint64_t gb = 1000000000;
	struct msg m = {.type = MSG_PROFILE, .u.profile = {.n_threads = 1, .n_cpus = 1, .memory_bytes = 16 * gb, .available_bytes = 8 * gb, .cap_bytes = 8 * gb,
		.reserved_bytes = gb / 10, .n_rates = 1, .rates = {{DTYPE_Q4_K, decode_bps, 100 * gb}}}};
	message(&w->h, w->h.control[1], &m);
	w->n_told = 0;
	ask(w, 7, chain);
	assert_true(loop_run_until(&w->loop, is_answered, w, loop_clock_ns() + 60 * S));
	assert_true(w->token_s[0] > 0);
	return w->token_s[0];
}

static void figures_that_hardly_moved_have_the_answer_they_had(void **state)
{
	struct world *w = *state;
	const uint64_t gb = 1000000000;
	arrive(&w->h, 1);
	double first = token_s_with(w, 0, 10 * gb);
	assert_true(token_s_with(w, 0, 10 * gb + gb / 5) == first);
	assert_true(token_s_with(w, 1, 10 * gb + gb / 5) < first); // another chain has not asked before
	double then = token_s_with(w, 0, 10 * gb + gb / 2);
	assert_true(then < first);
	assert_true(token_s_with(w, 0, 10 * gb + gb / 2 + gb / 10) == then);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(of_a_chain_only_the_newest_question_waits, set_up, tear_down),
		cmocka_unit_test_setup_teardown(figures_that_hardly_moved_have_the_answer_they_had, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
