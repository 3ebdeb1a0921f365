// A model file of one's own is hashed with the loop running, and nothing of that is left behind in the loop.
#include "cli/model_reading.h"

#include "tests/support/gguf_build.h"
#include "tests/support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct log quiet = {.fd = -1};

struct world {
	char dir[SCRATCH_CAP], path[SCRATCH_CAP + 16];
	struct model *model;
	struct loop loop;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	struct tiny_llama t = tiny_llama_default(3);
	struct errmsg em;
	assert_non_null(w);
	assert_true(scratch_open(w->dir));
	snprintf(w->path, sizeof w->path, "%s/model.gguf", w->dir);
	gguf_build_tiny_llama_file(w->path, &t);
	assert_int_equal(model_open(w->path, &w->model, &em), OK);
	assert_int_equal(loop_open(&w->loop, &em), OK);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	loop_close(&w->loop);
	model_close(w->model);
	int failed = scratch_remove(w->dir);
	free(w);
	return failed;
}

static bool is_interrupted(void *ctx)
{
	return *(bool *)ctx;
}

// The thread posts a task that is gone when the call returns.
static void a_stopped_loop_still_waits_for_the_thread(void **state)
{
	struct world *w = *state;
	uint8_t hash[HASH_BYTES], again[HASH_BYTES];
	struct errmsg em;
	bool interrupted = false;
	assert_int_equal(model_reading_hash(&w->loop, &quiet, w->model, NULL, is_interrupted, &interrupted, hash, &em), OK);
	loop_stop(&w->loop);
	assert_int_equal(model_reading_hash(&w->loop, &quiet, w->model, NULL, is_interrupted, &interrupted, again, &em), OK);
	assert_memory_equal(hash, again, sizeof hash);
	assert_int_equal(loop_get_stats(&w->loop).n_tasks, 2);
}

static void an_interrupt_ends_it(void **state)
{
	struct world *w = *state;
	uint8_t hash[HASH_BYTES];
	struct errmsg em;
	bool interrupted = true;
	loop_stop(&w->loop);
	enum err e = model_reading_hash(&w->loop, &quiet, w->model, NULL, is_interrupted, &interrupted, hash, &em);
	assert_true(e == ERR_CANCELLED || e == OK); // read before it was asked
	assert_int_equal(loop_get_stats(&w->loop).n_tasks, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_stopped_loop_still_waits_for_the_thread, setup, teardown),
		cmocka_unit_test_setup_teardown(an_interrupt_ends_it, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
