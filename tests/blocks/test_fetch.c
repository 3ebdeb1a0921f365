#include "blocks/fetch.h"

#include "tests/support/block_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000000)
#define ORIGIN 1u
#define N_SOURCES 4

// What a host would have noted.
struct world {
	struct block_model model;
	struct fetch f;
	struct fetch_effects fx;
	uint64_t *words, *own_words;
	struct block_set set, have;
	int64_t now_ns;
	int32_t n_asked[N_SOURCES + 3];  // of each source
	struct {
		uint32_t source, block;
	} open[256];
	int32_t n_open;
	int32_t n_close, n_done, n_failed, n_checks;
	uint32_t closed, failed_block;
	enum err failed;
	const char *why;
};

static void note_effects(struct world *w)
{
	for (int32_t i = 0; i < w->fx.n; i++) {
		const struct fetch_effect *e = &w->fx.at[i];
		switch (e->type) {
		case FETCH_FX_ASK:
			w->n_asked[e->source]++;
			w->open[w->n_open].source = e->source;
			w->open[w->n_open++].block = e->block;
			break;
		case FETCH_FX_CHECK: w->n_checks++; break;
		case FETCH_FX_CLOSE:
			w->n_close++;
			w->closed = e->source;
			w->why = e->why;
			break;
		case FETCH_FX_DONE: w->n_done++; break;
		case FETCH_FX_FAILED:
			w->n_failed++;
			w->failed = e->err;
			w->failed_block = e->block;
			break;
		}
	}
	fetch_check(&w->f);
}

static void step(struct world *w, struct fetch_event ev)
{
	ev.now_ns = w->now_ns;
	fetch_step(&w->f, &ev, &w->fx);
	note_effects(w);
}

static int make_world(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	struct fetch_limits limits = fetch_limits_default;
	limits.sources_max = N_SOURCES;
	limits.window_max = 8;
	limits.under_way_max = 20;
	block_model_open(&w->model, 1, 30, 4096, 2048, 0); // 31 blocks: the header, and one for each layer
	size_t n = block_set_words(w->model.m.n_blocks);
	w->words = malloc(FETCH_SETS(N_SOURCES) * n * sizeof *w->words);
	w->own_words = malloc(2 * n * sizeof *w->own_words);
	block_set_init(&w->set, w->own_words, w->model.m.n_blocks);
	block_set_init(&w->have, w->own_words + n, w->model.m.n_blocks);
	fetch_init(&w->f, &w->model.m, &limits, w->words);
	w->now_ns = 1000 * S;
	*state = w;
	return 0;
}

static int drop_world(void **state)
{
	struct world *w = *state;
	block_model_close(&w->model);
	free(w->words);
	free(w->own_words);
	free(w);
	return 0;
}

static void want(struct world *w, uint32_t begin, uint32_t end)
{
	block_set_clear(&w->set);
	block_set_add_range(&w->set, begin, end);
	step(w, (struct fetch_event){.type = FETCH_EV_START, .u.wanted = &w->set});
}

static void source_up(struct world *w, uint32_t source, uint32_t begin, uint32_t end)
{
	block_set_clear(&w->have);
	block_set_add_range(&w->have, begin, end);
	struct fetch_event ev = {.type = FETCH_EV_SOURCE_UP, .source = source};
	ev.u.up.is_origin = source == ORIGIN;
	ev.u.up.have = source == ORIGIN ? NULL : &w->have;
	step(w, ev);
}

// take removes a request of a source from those open and returns its block.
static uint32_t take(struct world *w, uint32_t source)
{
	for (int32_t i = 0; i < w->n_open; i++) {
		if (w->open[i].source != source)
			continue;
		uint32_t block = w->open[i].block;
		memmove(&w->open[i], &w->open[i + 1], (size_t)(--w->n_open - i) * sizeof w->open[0]);
		return block;
	}
	return UINT32_MAX;
}

static void came(struct world *w, uint32_t source, uint32_t block, enum fetch_check result, enum err err)
{
	int32_t checks = w->n_checks;
	step(w, (struct fetch_event){.type = FETCH_EV_BLOCK, .source = source, .block = block});
	if (w->n_checks == checks)
		return;
	struct fetch_event ev = {.type = FETCH_EV_CHECKED, .source = source, .block = block};
	ev.u.checked.result = result;
	ev.u.checked.err = err;
	step(w, ev);
}

// answer lets a source send what it was asked for next; false: it was asked for nothing.
static bool answer(struct world *w, uint32_t source)
{
	uint32_t block = take(w, source);
	if (block == UINT32_MAX)
		return false;
	came(w, source, block, FETCH_CHECK_STORED, OK);
	return true;
}

static void tick(struct world *w, int64_t ns)
{
	w->now_ns += ns;
	step(w, (struct fetch_event){.type = FETCH_EV_TICK});
}

static void every_wanted_block_comes_and_then_it_is_done_once(void **state)
{
	struct world *w = *state;
	source_up(w, ORIGIN, 0, 0);
	want(w, 3, 29);
	assert_in_range(w->n_open, 1, 8);
	while (answer(w, ORIGIN))
		tick(w, S / 100);
	assert_int_equal(w->n_done, 1);
	assert_int_equal(w->n_asked[ORIGIN], 26);
	assert_false(fetch_is_running(&w->f));
	struct fetch_progress p;
	fetch_progress_get(&w->f, w->now_ns, &p);
	assert_int_equal(p.bytes_total, 26 * MODEL_BLOCK);
	assert_int_equal(p.bytes_done, p.bytes_total);
	assert_int_equal(p.n_repeated, 0);
}

static void nothing_wanted_is_done_at_once_without_a_source(void **state)
{
	struct world *w = *state;
	want(w, 0, 0);
	assert_int_equal(w->n_done, 1);
}

static void a_block_is_asked_of_one_source_only_and_the_origin_is_spared(void **state)
{
	struct world *w = *state;
	source_up(w, ORIGIN, 0, 0);
	source_up(w, 2, 0, 16);
	want(w, 0, 31);
	bool seen[31] = {false};
	for (int round = 0; w->n_done == 0; round++) {
		assert_true(round < 100);
		for (int32_t i = 0; i < w->n_open; i++) {
			for (int32_t k = 0; k < i; k++)
				assert_true(w->open[i].block != w->open[k].block);
			if (w->open[i].source == 2)
				assert_true(w->open[i].block < 16);
			// While it has others to give, the origin gives none that the member has.
			else if (round < 5)
				assert_true(w->open[i].block >= 16);
			seen[w->open[i].block] = true;
		}
		tick(w, S / 100);
		answer(w, ORIGIN);
		answer(w, 2);
	}
	for (int i = 0; i < 31; i++)
		assert_true(seen[i]);
	assert_true(w->n_asked[2] >= 12);
}

static void who_answers_faster_is_asked_for_more(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	source_up(w, 3, 0, 31);
	want(w, 0, 31);
	for (int i = 0; w->n_done == 0 && i < 1000; i++) {
		tick(w, S / 10);
		for (int k = 0; k < 3; k++)
			answer(w, 2);
		if (i % 5 == 4)
			answer(w, 3);
	}
	assert_int_equal(w->n_done, 1);
	assert_true(w->n_asked[2] >= 2 * w->n_asked[3]);
}

static void a_source_that_vanishes_gives_its_blocks_to_the_others(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	want(w, 0, 31);
	int32_t n = w->n_asked[2];
	assert_true(n > 0);
	answer(w, 2);
	step(w, (struct fetch_event){.type = FETCH_EV_SOURCE_DOWN, .source = 2});
	w->n_open = 0;
	assert_int_equal(w->f.n_under_way, 0);
	source_up(w, ORIGIN, 0, 0);
	while (answer(w, ORIGIN))
		tick(w, S / 1000);
	assert_int_equal(w->n_done, 1);
	assert_int_equal(w->n_asked[ORIGIN], 30);
	struct fetch_progress p;
	fetch_progress_get(&w->f, w->now_ns, &p);
	assert_true(p.n_repeated > 0);
}

static void bytes_that_come_after_the_end_of_their_source_are_not_checked(void **state)
{
	struct world *w = *state;
	source_up(w, ORIGIN, 0, 0);
	want(w, 0, 31);
	uint32_t block = take(w, ORIGIN);
	step(w, (struct fetch_event){.type = FETCH_EV_SOURCE_DOWN, .source = ORIGIN});
	came(w, ORIGIN, block, FETCH_CHECK_STORED, OK);
	assert_int_equal(w->n_checks, 0);
	came(w, 99, block, FETCH_CHECK_STORED, OK);
	assert_int_equal(w->n_checks, 0);
}

static void wrong_bytes_close_their_source_and_the_block_comes_from_another(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	want(w, 0, 31);
	uint32_t bad = take(w, 2);
	came(w, 2, bad, FETCH_CHECK_WRONG, OK);
	assert_int_equal(w->n_close, 1);
	assert_int_equal(w->closed, 2);
	assert_non_null(w->why);
	assert_int_equal(w->f.n_under_way, 0);
	w->n_open = 0;
	source_up(w, 2, 0, 31); // it dials again at once
	assert_int_equal(w->n_open, 0); // and is left alone for now
	source_up(w, ORIGIN, 0, 0);
	while (answer(w, ORIGIN))
		tick(w, S / 1000);
	assert_int_equal(w->n_done, 1);
}

static void wrong_bytes_are_never_asked_for_again_of_who_sent_them(void **state)
{
	struct world *w = *state;
	source_up(w, ORIGIN, 0, 0);
	want(w, 0, 31);
	uint32_t bad = take(w, ORIGIN);
	came(w, ORIGIN, bad, FETCH_CHECK_WRONG, OK);
	w->n_open = 0;
	for (int i = 0; i < 100 && w->n_failed == 0; i++) {
		tick(w, 2 * S);
		source_up(w, ORIGIN, 0, 0);
		while (w->n_open > 0) {
			assert_true(w->open[0].block != bad);
			answer(w, ORIGIN);
		}
	}
	// The origin has it wrong, and nobody else has it.
	assert_int_equal(w->n_failed, 1);
	assert_int_equal(w->failed, ERR_FORMAT);
	assert_int_equal(w->failed_block, bad);
	assert_int_equal(w->n_done, 0);
}

static void a_refused_block_is_asked_elsewhere(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	want(w, 0, 5);
	uint32_t block = take(w, 2);
	struct fetch_event ev = {.type = FETCH_EV_REFUSED, .source = 2, .block = block};
	ev.u.refusal = FETCH_REFUSED_ABSENT;
	step(w, ev);
	for (int32_t i = 0; i < w->n_open; i++)
		assert_true(w->open[i].block != block);
	source_up(w, ORIGIN, 0, 0);
	bool found = false;
	for (int32_t i = 0; i < w->n_open; i++)
		found = found || (w->open[i].source == ORIGIN && w->open[i].block == block);
	assert_true(found);
}

static void who_is_busy_is_asked_again_after_a_pause(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	want(w, 0, 2);
	for (int i = 0; i < 2; i++) {
		struct fetch_event ev = {.type = FETCH_EV_REFUSED, .source = 2, .block = take(w, 2)};
		ev.u.refusal = FETCH_REFUSED_BUSY;
		step(w, ev);
	}
	assert_int_equal(w->n_open, 0);
	assert_int_equal(w->n_close, 0);
	assert_true(fetch_deadline_ns(&w->f) < w->now_ns + 3 * S);
	tick(w, 3 * S);
	assert_int_equal(w->n_open, 2);
	answer(w, 2);
	answer(w, 2);
	assert_int_equal(w->n_done, 1);
}

static void who_serves_another_model_is_closed(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	want(w, 0, 31);
	struct fetch_event ev = {.type = FETCH_EV_REFUSED, .source = 2, .block = UINT32_MAX};
	ev.u.refusal = FETCH_REFUSED_FOREIGN;
	step(w, ev);
	assert_int_equal(w->n_close, 1);
	assert_int_equal(w->f.n_under_way, 0);
	w->n_open = 0;
	tick(w, 1000 * S);
	assert_int_equal(w->n_open, 0);
}

static void a_silent_source_is_closed_after_its_patience_and_not_before(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	tick(w, 100 * S); // it owes nothing
	want(w, 0, 31);
	assert_int_equal(w->n_close, 0);
	tick(w, 9 * S);
	step(w, (struct fetch_event){.type = FETCH_EV_HEARD, .source = 2}); // part of a block
	tick(w, 9 * S);
	assert_int_equal(w->n_close, 0);
	assert_true(fetch_deadline_ns(&w->f) <= w->now_ns + S);
	tick(w, S);
	assert_int_equal(w->n_close, 1);
	assert_int_equal(w->f.n_under_way, 0);
}

static void the_pause_doubles_with_each_failure_and_ends_with_a_success(void **state)
{
	struct world *w = *state;
	want(w, 0, 31);
	int64_t last = 0;
	for (int i = 0; i < 8; i++) {
		source_up(w, 2, 0, 31);
		int64_t begin = w->now_ns;
		while (w->f.sources[1].n_asked == 0 && w->f.sources[0].n_asked == 0)
			tick(w, S / 4);
		int64_t pause = w->now_ns - begin;
		assert_true(i < 2 || pause >= last);
		assert_true(pause <= 61 * S);
		last = pause;
		tick(w, 10 * S); // silent
		assert_int_equal(w->n_close, i + 1);
		w->n_open = 0;
	}
	assert_true(last >= 59 * S);
	source_up(w, 2, 0, 31);
	tick(w, 61 * S);
	assert_true(answer(w, 2));
	int64_t begin = w->now_ns;
	tick(w, 10 * S);
	w->n_open = 0;
	source_up(w, 2, 0, 31);
	while (w->n_open == 0)
		tick(w, S / 4);
	assert_true(w->now_ns - begin <= 12 * S);
}

static void a_late_block_is_tried_elsewhere_and_counts_once(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	want(w, 0, 3);
	assert_int_equal(w->n_open, 3);
	source_up(w, ORIGIN, 0, 0);
	assert_int_equal(w->n_asked[ORIGIN], 0); // all is under way
	tick(w, 4 * S);
	assert_int_equal(w->n_asked[ORIGIN], 3);
	for (int i = 0; i < 3; i++)
		assert_true(answer(w, ORIGIN));
	assert_int_equal(w->n_done, 1);
	assert_int_equal(w->n_checks, 3);
	for (int i = 0; i < 3; i++)
		assert_true(answer(w, 2)); // too late: not stored again
	assert_int_equal(w->n_checks, 3);
	assert_int_equal(w->n_done, 1);
	assert_int_equal(w->f.n_under_way, 0);
}

static void what_cannot_be_stored_ends_the_fetch_with_its_reason(void **state)
{
	struct world *w = *state;
	source_up(w, ORIGIN, 0, 0);
	want(w, 0, 31);
	uint32_t block = take(w, ORIGIN);
	came(w, ORIGIN, block, FETCH_CHECK_FAILED, ERR_LIMIT);
	assert_int_equal(w->n_failed, 1);
	assert_int_equal(w->failed, ERR_LIMIT);
	assert_int_equal(w->failed_block, block);
	assert_int_equal(w->n_close, 0);
	while (answer(w, ORIGIN)) { // what comes still is thrown away
	}
	assert_int_equal(w->n_failed, 1);
	assert_int_equal(w->n_done, 0);
	want(w, 0, 31); // and it can be tried again
	while (answer(w, ORIGIN))
		tick(w, S / 1000);
	assert_int_equal(w->n_done, 1);
}

static void another_start_takes_the_place_of_the_first(void **state)
{
	struct world *w = *state;
	source_up(w, ORIGIN, 0, 0);
	want(w, 0, 20);
	answer(w, ORIGIN);
	want(w, 10, 31);
	int32_t rounds = 0;
	while (answer(w, ORIGIN) && rounds++ < 100)
		tick(w, S / 1000);
	assert_int_equal(w->n_done, 1);
	step(w, (struct fetch_event){.type = FETCH_EV_STOP});
	assert_false(fetch_is_running(&w->f));
	assert_int_equal(fetch_deadline_ns(&w->f), INT64_MAX);
}

static void no_more_is_under_way_than_the_host_has_memory_for(void **state)
{
	struct world *w = *state;
	for (uint32_t i = 1; i <= N_SOURCES; i++)
		source_up(w, i, 0, 31);
	source_up(w, 99, 0, 31); // one too many: never asked
	want(w, 0, 31);
	for (int i = 0; i < 30; i++) {
		tick(w, S / 100);
		assert_in_range(w->f.n_under_way, 1, 20);
		answer(w, 1 + (uint32_t)i % N_SOURCES);
		if (w->n_done > 0)
			break;
	}
}

static void progress_tells_rate_and_what_is_left(void **state)
{
	struct world *w = *state;
	struct fetch_progress p;
	source_up(w, ORIGIN, 0, 0);
	want(w, 0, 31);
	fetch_progress_get(&w->f, w->now_ns, &p);
	assert_int_equal(p.left_ns, INT64_MAX);
	for (int i = 0; i < 20; i++) {
		tick(w, S / 10);
		answer(w, ORIGIN);
	}
	fetch_progress_get(&w->f, w->now_ns, &p);
	assert_int_equal(p.bytes_done, 20 * MODEL_BLOCK);
	assert_true(p.rate > 9.0 * MODEL_BLOCK && p.rate < 11.0 * MODEL_BLOCK);
	assert_in_range(p.left_ns, S, S + S / 4);
	assert_int_equal(p.n_sources, 1);
}

static void a_source_is_worth_a_link_when_it_holds_what_is_missing(void **state)
{
	struct world *w = *state;
	block_set_clear(&w->have);
	block_set_add_range(&w->have, 10, 12);
	assert_false(fetch_is_useful(&w->f, &w->have));
	want(w, 11, 20);
	assert_true(fetch_is_useful(&w->f, &w->have));
	want(w, 12, 20);
	assert_false(fetch_is_useful(&w->f, &w->have));
}

static void a_new_link_is_asked_anew_for_what_the_old_one_owed(void **state)
{
	struct world *w = *state;
	source_up(w, ORIGIN, 0, 0);
	want(w, 0, 31);
	assert_int_equal(w->n_asked[ORIGIN], 4);
	w->n_open = 0; // the old link ends with what it was asked for, as the new one takes its place
	source_up(w, ORIGIN, 0, 0);
	assert_int_equal(w->n_open, 4);
	while (answer(w, ORIGIN))
		tick(w, S / 100);
	assert_int_equal(w->n_done, 1);
	assert_int_equal(w->n_close, 0);
}

static void a_member_that_sent_wrong_bytes_is_asked_for_nothing_more(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	want(w, 0, 31);
	came(w, 2, take(w, 2), FETCH_CHECK_WRONG, OK);
	w->n_open = 0;
	for (int i = 0; i < 100; i++) {
		tick(w, S);
		source_up(w, 2, 0, 31);
		struct fetch_event ev = {.type = FETCH_EV_HAVE, .source = 2};
		ev.u.up.have = &w->have;
		step(w, ev);
	}
	assert_int_equal(w->n_open, 0);
	want(w, 0, 31); // a new beginning
	source_up(w, 2, 0, 31);
	assert_true(w->n_open > 0);
}

static void a_slow_disk_of_ones_own_is_no_silence_of_the_source(void **state)
{
	struct world *w = *state;
	source_up(w, ORIGIN, 0, 0);
	want(w, 0, 4);
	for (int i = 0; i < 4; i++)
		step(w, (struct fetch_event){.type = FETCH_EV_BLOCK, .source = ORIGIN, .block = w->open[i].block});
	w->n_open = 0;
	assert_int_equal(w->n_checks, 4);
	tick(w, 30 * S); // it is written
	want(w, 0, 31);
	assert_true(w->n_open == 0);
	struct fetch_event ev = {.type = FETCH_EV_CHECKED, .source = ORIGIN, .block = w->f.sources[0].asked[0].block};
	ev.u.checked.result = FETCH_CHECK_STORED;
	step(w, ev);
	assert_int_equal(w->n_open, 1);
	tick(w, S / 2);
	assert_int_equal(w->n_close, 0);
}

static void who_keeps_talking_and_sends_no_block_is_given_up(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	want(w, 0, 31);
	int32_t asked = w->n_open;
	for (int i = 0; i < 59; i++) {
		tick(w, S);
		step(w, (struct fetch_event){.type = FETCH_EV_HEARD, .source = 2});
		step(w, (struct fetch_event){.type = FETCH_EV_BLOCK, .source = 2, .block = 30}); // nobody asked for it
	}
	assert_int_equal(w->n_checks, 0);
	assert_int_equal(w->n_open, asked);
	assert_int_equal(w->n_close, 0);
	tick(w, S);
	assert_int_equal(w->n_close, 1);
	assert_int_equal(w->f.n_under_way, 0);
}

static void a_block_that_comes_again_and_again_is_checked_once(void **state)
{
	struct world *w = *state;
	source_up(w, ORIGIN, 0, 0);
	want(w, 0, 3);
	uint32_t block = take(w, ORIGIN);
	for (int i = 0; i < 10; i++)
		step(w, (struct fetch_event){.type = FETCH_EV_BLOCK, .source = ORIGIN, .block = block});
	assert_int_equal(w->n_checks, 1);
	struct fetch_event ev = {.type = FETCH_EV_CHECKED, .source = ORIGIN, .block = block};
	ev.u.checked.result = FETCH_CHECK_STORED;
	step(w, ev);
	came(w, ORIGIN, block, FETCH_CHECK_STORED, OK);
	came(w, ORIGIN, UINT32_MAX, FETCH_CHECK_STORED, OK);
	assert_int_equal(w->n_checks, 1);
	struct fetch_progress p;
	fetch_progress_get(&w->f, w->now_ns, &p);
	assert_int_equal(p.bytes_done, MODEL_BLOCK);
}

static void who_floods_with_what_nobody_asked_for_is_closed(void **state)
{
	struct world *w = *state;
	source_up(w, 2, 0, 31);
	want(w, 0, 31);
	for (int i = 0; i < FETCH_WINDOW_MAX; i++)
		step(w, (struct fetch_event){.type = FETCH_EV_BLOCK, .source = 2, .block = 30});
	assert_int_equal(w->n_close, 0);
	step(w, (struct fetch_event){.type = FETCH_EV_BLOCK, .source = 2, .block = 30});
	assert_int_equal(w->n_close, 1);
	assert_int_equal(w->f.n_under_way, 0);
	for (int i = 0; i < 2 * FETCH_WINDOW_MAX; i++) // what is still on its way
		step(w, (struct fetch_event){.type = FETCH_EV_BLOCK, .source = 2, .block = 30});
	assert_int_equal(w->n_close, 1);
}

static void the_origin_finds_a_place_behind_any_number_of_members(void **state)
{
	struct world *w = *state;
	want(w, 0, 31);
	for (uint32_t i = 0; i < N_SOURCES; i++)
		source_up(w, 2 + i, 0, 1);
	source_up(w, ORIGIN, 0, 0);
	assert_int_not_equal(take(w, ORIGIN), UINT32_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_world, drop_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_origin_finds_a_place_behind_any_number_of_members),
		TEST(every_wanted_block_comes_and_then_it_is_done_once),
		TEST(nothing_wanted_is_done_at_once_without_a_source),
		TEST(a_block_is_asked_of_one_source_only_and_the_origin_is_spared),
		TEST(who_answers_faster_is_asked_for_more),
		TEST(a_source_that_vanishes_gives_its_blocks_to_the_others),
		TEST(bytes_that_come_after_the_end_of_their_source_are_not_checked),
		TEST(wrong_bytes_close_their_source_and_the_block_comes_from_another),
		TEST(wrong_bytes_are_never_asked_for_again_of_who_sent_them),
		TEST(a_refused_block_is_asked_elsewhere),
		TEST(who_is_busy_is_asked_again_after_a_pause),
		TEST(who_serves_another_model_is_closed),
		TEST(a_silent_source_is_closed_after_its_patience_and_not_before),
		TEST(the_pause_doubles_with_each_failure_and_ends_with_a_success),
		TEST(a_late_block_is_tried_elsewhere_and_counts_once),
		TEST(what_cannot_be_stored_ends_the_fetch_with_its_reason),
		TEST(another_start_takes_the_place_of_the_first),
		TEST(no_more_is_under_way_than_the_host_has_memory_for),
		TEST(progress_tells_rate_and_what_is_left),
		TEST(a_source_is_worth_a_link_when_it_holds_what_is_missing),
		TEST(a_new_link_is_asked_anew_for_what_the_old_one_owed),
		TEST(a_member_that_sent_wrong_bytes_is_asked_for_nothing_more),
		TEST(a_slow_disk_of_ones_own_is_no_silence_of_the_source),
		TEST(who_keeps_talking_and_sends_no_block_is_given_up),
		TEST(a_block_that_comes_again_and_again_is_checked_once),
		TEST(who_floods_with_what_nobody_asked_for_is_closed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
