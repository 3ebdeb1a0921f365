// Weights in a cap: every view holds the file's bytes, whatever the cap, the reader and the order of use; nothing is read without need; a file
// that ends early is an error that names the place.
#include "engine/residency.h"

#include "base/rng.h"
#include "base/window_layout.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define N_LAYERS 12
#define ROWS 512
#define COLS 1024
#define HEADER 777 // bytes before the weights: units begin anywhere
#define ROW_BYTES ((size_t)COLS / 32 * 18)
#define MATRIX_BYTES (ROWS * ROW_BYTES)
#define FILE_BYTES (HEADER + 3 * N_LAYERS * MATRIX_BYTES)

struct world {
	char path[32];
	uint8_t *bytes;
	struct weight_file file;
	struct weight_extent extent;
	struct weight_files files;
	struct unit_table table;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	struct rng r;
	rng_init(&r, 11);
	w->bytes = malloc(FILE_BYTES);
	for (size_t i = 0; i < FILE_BYTES; i++)
		w->bytes[i] = (uint8_t)rng_below(&r, 256);
	strcpy(w->path, "build/residency-XXXXXX"); // /tmp may have no O_DIRECT
	int fd = mkstemp(w->path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, w->bytes, FILE_BYTES), FILE_BYTES);
	assert_int_equal(fsync(fd), 0);
	w->file = (struct weight_file){.fd = fd, .path = w->path};
	w->extent = (struct weight_extent){.bytes = FILE_BYTES};
	w->files = (struct weight_files){.files = &w->file, .n_files = 1, .extents = &w->extent, .n_extents = 1};
	for (int32_t i = 0; i < N_LAYERS; i++) {
		struct tensor_view m[3];
		for (size_t j = 0; j < 3; j++)
			m[j] = (struct tensor_view){.at = HEADER + (3 * (uint64_t)i + j) * MATRIX_BYTES, .type = DTYPE_Q4_0, .rows = ROWS, .cols = COLS, .row_bytes = ROW_BYTES};
		const struct tensor_view *gate_up[] = {&m[0], &m[1]}, *down[] = {&m[2]};
		struct unit_run run;
		assert_int_equal(unit_table_add(&w->table, i, UNIT_GATE_UP, gate_up, 2, 100000, &run), OK);
		assert_int_equal(unit_table_add(&w->table, i, UNIT_DOWN, down, 1, 100000, &run), OK);
	}
	assert_true(w->table.n > 60);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	close(w->file.fd);
	unlink(w->path);
	unit_table_deinit(&w->table);
	free(w->bytes);
	free(w);
	return 0;
}

static uint64_t whole(const struct world *w)
{
	uint64_t bytes = 0;
	for (int32_t i = 0; i < w->table.n; i++)
		bytes += weight_reader_unit_bytes(&w->table.units[i]);
	return bytes;
}

static struct residency_config capped(const struct world *w, enum weight_way reader, uint64_t bytes)
{
	return (struct residency_config){.files = &w->files, .units = &w->table,
		.limits = {.is_capped = true, .bytes = bytes, .anon_bytes = bytes, .reader = reader}};
}

static struct residency *must_open(const struct residency_config *c)
{
	struct residency *r;
	struct errmsg em = {{0}};
	if (residency_open(c, &r, &em) != OK)
		fail_msg("%s", em.text);
	return r;
}

static void assert_views(const struct world *w, struct residency *r, int32_t unit)
{
	const struct unit *u = &w->table.units[unit];
	for (int32_t p = 0; p < u->n_parts; p++)
		assert_memory_equal(residency_view(r, unit, p), w->bytes + u->parts[p].at, u->parts[p].bytes);
}

static void use(const struct world *w, struct residency *r, int32_t unit)
{
	struct errmsg em;
	assert_int_equal(residency_acquire(r, unit, &em), OK);
	assert_views(w, r, unit);
	residency_release(r, unit);
}

// use_cycle holds one unit while it acquires the next, as the engine does.
static void use_cycle(const struct world *w, struct residency *r)
{
	struct errmsg em;
	assert_int_equal(residency_acquire(r, 0, &em), OK);
	for (int32_t i = 0; i < w->table.n; i++) {
		if (i + 1 < w->table.n)
			assert_int_equal(residency_acquire(r, i + 1, &em), OK);
		assert_views(w, r, i);
		residency_release(r, i);
	}
}

static const enum weight_way kinds[] = {READER_MMAP, READER_DIRECT, READER_AUTO};

static void views_hold_the_files_bytes_whatever_the_cap(void **state)
{
	const struct world *w = *state;
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		for (uint64_t bytes = residency_least(&w->table); bytes < whole(w) * 5 / 4; bytes = bytes * 3 / 2) {
			const struct residency_config c = capped(w, kinds[k], bytes);
			struct residency *r = must_open(&c);
			for (int round = 0; round < 3; round++)
				use_cycle(w, r);
			struct residency_stats s;
			residency_get_stats(r, &s);
			assert_true(s.pinned_bytes + s.window_bytes <= bytes);
			assert_int_equal(s.n_streamed == 0, bytes >= whole(w));
			assert_int_equal(s.wasted_bytes, 0);
			// Three times what is streamed, and at most one window more, read ahead for the fourth; nothing when all is pinned.
			assert_true(s.read_bytes <= 3 * s.streamed_bytes + s.window_bytes);
			if (s.n_streamed == 0)
				assert_int_equal(s.read_bytes, 0);
			else
				assert_true(s.read_bytes > 0);
			residency_close(r);
		}
	}
}

static void what_fits_in_huge_pages_lies_where_it_would_without_a_cap(void **state)
{
	struct world *w = *state;
	struct weight_files files = w->files;
	void *map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, w->file.fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	files.map = map;
	uint64_t huge = weight_reader_huge_bytes(&w->table);
	assert_int_equal(huge, (FILE_BYTES / WEIGHT_HUGE + 1) * WEIGHT_HUGE);
	assert_true(huge > whole(w));
	for (uint64_t missing = 0; missing < 2; missing++) {
		struct residency_config c = capped(w, READER_AUTO, huge - missing);
		c.files = &files;
		struct residency *r = must_open(&c);
		struct residency_stats s;
		residency_get_stats(r, &s);
		assert_int_equal(s.reader, READER_MMAP);
		assert_int_equal(s.n_streamed, 0);
		for (int32_t i = 0; i < w->table.n; i++) {
			const struct unit_part *part = &w->table.units[i].parts[0];
			use(w, r, i);
			assert_int_equal(residency_view(r, i, 0) == files.map + part->at, missing == 0);
		}
		residency_close(r);
		assert_memory_equal(files.map, w->bytes, FILE_BYTES); // the mapping is its owner's, as before
	}
	munmap(map, FILE_BYTES);
}

static void a_call_that_begins_elsewhere_is_served(void **state)
{
	const struct world *w = *state;
	struct rng rng;
	rng_init(&rng, 5);
	for (size_t k = 0; k < 2; k++) {
		const struct residency_config c = capped(w, kinds[k], whole(w) / 4);
		struct residency *r = must_open(&c);
		for (int round = 0; round < 60; round++) {
			int32_t begin = (int32_t)rng_below(&rng, (uint64_t)w->table.n), n = 1 + (int32_t)rng_below(&rng, 6);
			for (int32_t i = begin; i < begin + n && i < w->table.n; i++)
				use(w, r, i);
		}
		use_cycle(w, r);
		residency_close(r);
	}
}

static void all_may_be_streamed(void **state)
{
	const struct world *w = *state;
	struct residency_config c = capped(w, READER_DIRECT, whole(w) / 2);
	c.limits.stream_share = WINDOW_SHARE_WHOLE;
	struct residency *r = must_open(&c);
	struct residency_stats s;
	residency_get_stats(r, &s);
	assert_int_equal(s.n_streamed, w->table.n);
	assert_int_equal(s.pinned_bytes, 0);
	assert_true(s.window > 2);
	use_cycle(w, r);
	residency_close(r);
}

static void a_planned_share_is_streamed_through_what_the_cap_leaves(void **state)
{
	const struct world *w = *state;
	for (size_t k = 0; k < 2; k++) {
		struct residency_config c = capped(w, kinds[k], whole(w) * 3 / 4);
		struct residency *r = must_open(&c);
		struct residency_stats least, s;
		residency_get_stats(r, &least);
		residency_close(r);
		c.limits.stream_share = WINDOW_SHARE_WHOLE * 6 / 10;
		r = must_open(&c);
		residency_get_stats(r, &s);
		assert_true(s.n_streamed > least.n_streamed && s.window > least.window);
		assert_true(s.streamed_bytes * 10 >= whole(w) * 6);
		assert_true(s.window_bytes >= whole(w) * 3 / 4 - whole(w) * 4 / 10);
		assert_true(s.pinned_bytes + s.window_bytes <= whole(w) * 3 / 4);
		use_cycle(w, r); // which compares all bytes
		use_cycle(w, r);
		residency_close(r);
		c.limits.stream_share = 1; // less than must be
		r = must_open(&c);
		residency_get_stats(r, &s);
		assert_int_equal(s.n_streamed, least.n_streamed);
		assert_int_equal(s.window, least.window);
		residency_close(r);
	}
}

static void what_fits_is_not_streamed_whatever_was_planned(void **state)
{
	const struct world *w = *state;
	struct residency_config c = capped(w, READER_MMAP, whole(w));
	c.limits.stream_share = WINDOW_SHARE_WHOLE;
	struct residency *r = must_open(&c);
	struct residency_stats s;
	residency_get_stats(r, &s);
	assert_int_equal(s.n_streamed, 0);
	use_cycle(w, r);
	residency_close(r);
}

static void a_cap_that_holds_no_window_is_refused_with_the_arithmetic(void **state)
{
	const struct world *w = *state;
	for (size_t k = 0; k < 2; k++) {
		const struct residency_config c = capped(w, kinds[k], residency_least(&w->table) - 1);
		struct residency *r;
		struct errmsg em;
		assert_int_equal(residency_open(&c, &r, &em), ERR_LIMIT);
		assert_non_null(strstr(em.text, "MiB are left"));
		assert_non_null(strstr(em.text, "smallest window takes"));
	}
}

static void auto_takes_the_reader_that_fits(void **state)
{
	const struct world *w = *state;
	struct residency_config c = capped(w, READER_AUTO, whole(w) / 4);
	c.limits.anon_bytes = 0; // as when the cap leaves nothing for memory of our own
	struct residency *r = must_open(&c);
	struct residency_stats s;
	residency_get_stats(r, &s);
	assert_int_equal(s.reader, READER_MMAP);
	use_cycle(w, r);
	residency_close(r);
}

static void a_file_without_its_end_is_an_error_that_names_the_place(void **state)
{
	const struct world *w = *state;
	for (size_t k = 0; k < 2; k++) {
		const struct residency_config c = capped(w, kinds[k], whole(w) / 4);
		struct residency *r = must_open(&c);
		use_cycle(w, r);
		uint64_t cut = FILE_BYTES / 2 / 4096 * 4096; // a whole page: the rest of a cut one reads as zeros when it is mapped
		assert_int_equal(ftruncate(w->file.fd, (off_t)cut), 0);
		struct errmsg em = {{0}};
		int32_t n_failed = 0;
		for (int32_t i = 0; i < w->table.n; i++) {
			const struct unit *u = &w->table.units[i];
			if (u->parts[u->n_parts - 1].at + u->parts[u->n_parts - 1].bytes <= cut) {
				use(w, r, i);
				continue;
			}
			enum err e = residency_acquire(r, i, &em); // a unit of the window was read before the cut, and a pinned one for ever
			if (e == OK) {
				residency_release(r, i);
				continue;
			}
			n_failed++;
			assert_int_equal(e, ERR_IO);
			char want[64];
			snprintf(want, sizeof want, "offset %llu", (unsigned long long)cut);
			assert_non_null(strstr(em.text, w->path));
			assert_true(strstr(em.text, "ends at offset") != NULL);
			if (u->parts[0].at <= cut)
				assert_non_null(strstr(em.text, want));
		}
		assert_true(n_failed > 5);
		// Once the file is whole again, so are its units.
		assert_int_equal(pwrite(w->file.fd, w->bytes + cut, FILE_BYTES - cut, (off_t)cut), FILE_BYTES - cut);
		assert_int_equal(fsync(w->file.fd), 0);
		struct errmsg ignored;
		for (int32_t i = 0; i < w->table.n; i++) // what was read ahead before
			if (residency_acquire(r, i, &ignored) == OK)
				residency_release(r, i);
		if (kinds[k] == READER_DIRECT) // a mapping's pinned pages were lost with the file's end
			use_cycle(w, r);
		residency_close(r);
	}
}

static void a_failure_while_another_unit_is_in_use_leaves_that_readable(void **state)
{
	const struct world *w = *state;
	struct residency_config c = capped(w, READER_DIRECT, whole(w) / 4);
	c.limits.stream_share = WINDOW_SHARE_WHOLE;
	struct residency *r = must_open(&c);
	struct errmsg em;
	struct residency_stats st;
	residency_get_stats(r, &st);
	int32_t last = w->table.n - 1, at = last - st.window - 2; // so far in front of the last that it cannot have been read ahead
	assert_true(at > 0);
	for (int32_t i = 0; i < at; i++)
		use(w, r, i);
	uint64_t cut = w->table.units[last].parts[0].at;
	assert_int_equal(ftruncate(w->file.fd, (off_t)cut), 0);
	assert_int_equal(residency_acquire(r, at, &em), OK);
	for (; at < last; at++) {
		enum err e = residency_acquire(r, at + 1, &em);
		assert_views(w, r, at);
		residency_release(r, at);
		if (e != OK)
			break;
	}
	assert_int_equal(at + 1, last);
	assert_int_equal(pwrite(w->file.fd, w->bytes + cut, FILE_BYTES - cut, (off_t)cut), FILE_BYTES - cut);
	use_cycle(w, r);
	residency_close(r);
}

static void weights_in_several_files_are_put_together(void **state)
{
	const struct world *w = *state;
	// The same file in three pieces, as if the parts lay in files of their own; borders in the middle of rows.
	struct weight_file files[] = {w->file, w->file, w->file};
	uint64_t a = FILE_BYTES / 3 + 1, b = FILE_BYTES / 3 * 2 + 5;
	const struct weight_extent extents[] = {{0, a, 0, 0}, {a, b - a, 1, a}, {b, FILE_BYTES - b, 2, b}};
	const struct weight_files split = {.files = files, .n_files = 3, .extents = extents, .n_extents = 3};
	struct residency_config c = capped(w, READER_AUTO, whole(w) / 4);
	c.files = &split;
	struct residency *r = must_open(&c);
	use_cycle(w, r);
	use_cycle(w, r);
	residency_close(r);
	c.limits = (struct residency_limits){0}; // not mapped, hence read whole
	r = must_open(&c);
	use_cycle(w, r);
	residency_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(views_hold_the_files_bytes_whatever_the_cap, setup, teardown),
		cmocka_unit_test_setup_teardown(what_fits_in_huge_pages_lies_where_it_would_without_a_cap, setup, teardown),
		cmocka_unit_test_setup_teardown(a_call_that_begins_elsewhere_is_served, setup, teardown),
		cmocka_unit_test_setup_teardown(all_may_be_streamed, setup, teardown),
		cmocka_unit_test_setup_teardown(a_planned_share_is_streamed_through_what_the_cap_leaves, setup, teardown),
		cmocka_unit_test_setup_teardown(what_fits_is_not_streamed_whatever_was_planned, setup, teardown),
		cmocka_unit_test_setup_teardown(a_cap_that_holds_no_window_is_refused_with_the_arithmetic, setup, teardown),
		cmocka_unit_test_setup_teardown(auto_takes_the_reader_that_fits, setup, teardown),
		cmocka_unit_test_setup_teardown(a_file_without_its_end_is_an_error_that_names_the_place, setup, teardown),
		cmocka_unit_test_setup_teardown(a_failure_while_another_unit_is_in_use_leaves_that_readable, setup, teardown),
		cmocka_unit_test_setup_teardown(weights_in_several_files_are_put_together, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
