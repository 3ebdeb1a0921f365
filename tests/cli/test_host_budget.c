// How a process parts its cap: what it may take beside weights is taken from them before anything is loaded.
#include "cli/host_budget.h"

#include "cli/host_profile.h"
#include "coordinator/shell/coord_blocks.h"
#include "node/shell/kept_disk.h"
#include "node/shell/node_blocks.h"
#include "tests/support/gguf_build.h"
#include "tests/support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define SLACK MIB // what the process takes is measured anew each time

static const struct log quiet = {.fd = -1};

struct world {
	char dir[SCRATCH_CAP], path[SCRATCH_CAP + 16];
	struct model *model;
	struct worker *worker;
	struct options opts;
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
	if (model_open(w->path, &w->model, &em) != OK || worker_open(1, NULL, &w->worker, &em) != OK)
		fail_msg("%s", em.text);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	options_deinit(&w->opts);
	worker_close(w->worker);
	model_close(w->model);
	int failed = scratch_remove(w->dir);
	free(w);
	return failed;
}

// parse reads a command line of words that are apart by one space.
static void parse(struct world *w, uint32_t command, const char *name, const char *words)
{
	char text[256], *argv[32], *rest = NULL;
	int argc = 0;
	struct errmsg em;
	snprintf(text, sizeof text, "%s", words);
	for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
		argv[argc++] = word;
	options_deinit(&w->opts);
	options_init(&w->opts);
	if (options_parse(&w->opts, command, name, argc, argv, &em) != OK)
		fail_msg("%s", em.text);
}

static struct coordinator_config config(const struct world *w)
{
	const struct hparams *hp = model_hparams(w->model);
	return (struct coordinator_config){.n_layers = hp->n_layers, .hidden_dim = hp->hidden_dim, .vocab_size = hp->vocab_size, .wire = WIRE_F32, .n_slots = 2,
		.ctx_len = 64, .chunk_max = 16, .hop_credits = 8, .n_chains = 1, .has_local_node = true};
}

static struct host_budget serve_budget(struct world *w, const char *words, bool is_alone)
{
	struct coordinator_config c = config(w);
	struct host_budget b;
	struct errmsg em;
	parse(w, is_alone ? FOR_RUN : FOR_SERVE, is_alone ? "run" : "serve", words);
	if (host_budget_coordinator(&(struct host_budget_ask){.options = &w->opts, .model = w->model, .worker = w->worker, .is_alone = is_alone, .log = &quiet}, &c, &b, &em) != OK)
		fail_msg("%s", em.text);
	return b;
}

static struct host_budget join_budget(struct world *w, const char *words)
{
	struct host_budget b;
	struct errmsg em;
	parse(w, FOR_JOIN, "join", words);
	if (host_budget_node(&w->opts, w->model, &b, &em) != OK)
		fail_msg("%s", em.text);
	return b;
}

static void assert_near(uint64_t got, uint64_t want)
{
	assert_in_range(got, want > SLACK ? want - SLACK : 0, want + SLACK);
}

static void states_on_their_way_to_disk_are_part_of_the_cap(void **state)
{
	struct world *w = *state;
	struct coordinator_config c = config(w);
	struct host_budget without = serve_budget(w, "m.gguf --mem 400M --prefill-chunk 16", false);
	struct host_budget with = serve_budget(w, "m.gguf --mem 400M --prefill-chunk 16 --keep-disk 2G", false);
	uint64_t on_their_way = kept_disk_bytes(coordinator_buf_bytes(&c));
	assert_int_equal(with.budget.needs.kept - without.budget.needs.kept, on_their_way);
	// The node takes them out of its part again when it loads its layers.
	uint64_t node_has = without.node.bytes - without.budget.layers.bytes;
	assert_int_equal(with.node.bytes - with.budget.layers.bytes - node_has, on_their_way);
	assert_near(without.budget.head.bytes + without.budget.layers.bytes - with.budget.head.bytes - with.budget.layers.bytes, on_their_way);
}

static void blocks_for_other_machines_are_part_of_a_server(void **state)
{
	struct world *w = *state;
	struct host_budget serve = serve_budget(w, "m.gguf --mem 400M", false);
	assert_int_equal(serve.budget.needs.blocks, coord_blocks_bytes(model_file_bytes(w->model)));
	assert_true(serve.budget.needs.blocks >= 8 * MIB);
	assert_int_equal(serve_budget(w, "m.gguf --mem 400M -p x", true).budget.needs.blocks, 0);
	// A model of 40 GB has 160,000 blocks, and each their hash.
	assert_true(coord_blocks_bytes(UINT64_C(40000000000)) > coord_blocks_bytes(MIB) + 5000000);
}

static void a_node_that_fetches_keeps_room_for_blocks(void **state)
{
	struct world *w = *state;
	uint64_t bytes = model_file_bytes(w->model), own = node_blocks_bytes(bytes, false), fetched = node_blocks_bytes(bytes, true);
	struct host_budget with = join_budget(w, "--model m.gguf --mem 400M"), without = join_budget(w, "--mem 400M");
	assert_true(fetched > own + 16 * MIB);
	assert_near(with.node.bytes - without.node.bytes, fetched - own);
	assert_true(without.node.anon_bytes + fetched + MEMORY_ANON_ROOM + without.keep_bytes < 400 * MIB);
}

static void a_cap_that_blocks_alone_fill_is_refused(void **state)
{
	struct world *w = *state;
	struct host_budget b;
	struct errmsg em;
	parse(w, FOR_JOIN, "join", "--mem 64M");
	assert_int_equal(host_budget_node(&w->opts, w->model, &b, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "--mem of 64.0 MiB leaves nothing for layers"));
	assert_non_null(strstr(em.text, "blocks of the model "));
}

// room_told is what a plan is made with: of a machine whose disk is faster one way or the other.
static uint64_t room_told(const struct host_profile *h, uint32_t reader, uint64_t mmap_bps, uint64_t direct_bps)
{
	struct host_profile with = *h;
	struct device_profile p = {.disk_mmap_bps = mmap_bps, .disk_direct_bps = direct_bps};
	with.reader = reader;
	host_profile_complete(&with, &p);
	return p.cap_bytes - p.reserved_bytes;
}

static void a_plan_is_made_with_what_the_reader_may_take(void **state)
{
	struct world *w = *state;
	const struct node_memory node = {.is_capped = true, .bytes = 300 * MIB, .anon_bytes = 276 * MIB};
	struct host_profile h = {.slowdown = 1};
	parse(w, FOR_JOIN, "join", "--mem 400M");
	host_profile_set_memory(&h, &w->opts, &node, 0);
	assert_int_equal(room_told(&h, 1, 10, 20), node.bytes);
	assert_int_equal(room_told(&h, 2, 20, 10), node.anon_bytes);
	assert_int_equal(room_told(&h, 0, 20, 10), node.bytes);
	assert_int_equal(room_told(&h, 0, 10, 20), node.anon_bytes);
}

static void without_a_cap_nothing_is_parted(void **state)
{
	struct world *w = *state;
	struct host_budget b = serve_budget(w, "m.gguf --keep-disk 2G", false);
	assert_false(b.head.is_capped || b.node.is_capped);
	assert_int_equal(b.budget.cap, 0);
	assert_false(join_budget(w, "--model m.gguf").node.is_capped);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(states_on_their_way_to_disk_are_part_of_the_cap),
		cmocka_unit_test(blocks_for_other_machines_are_part_of_a_server),
		cmocka_unit_test(a_node_that_fetches_keeps_room_for_blocks),
		cmocka_unit_test(a_cap_that_blocks_alone_fill_is_refused),
		cmocka_unit_test(a_plan_is_made_with_what_the_reader_may_take),
		cmocka_unit_test(without_a_cap_nothing_is_parted),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
