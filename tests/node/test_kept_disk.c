// The file of kept states: what is written comes back, and nothing else does, whatever happens to the disk in between.
#include "node/shell/kept_disk.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "tests/support/instrumented.h"
#include "tests/support/scratch.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROW 100
#define FRAME (ROW + NODE_KEPT_FRAME_EXTRA)
#define PATIENCE_NS INT64_C(20000000000)

struct fixture {
	char dir[SCRATCH_CAP];
	struct loop loop;
	struct kept_disk *disk;
	uint32_t last_id, n_done;
	enum err err;
	char text[256];
	uint8_t *rows;
	size_t len;
};

static void on_done(void *ctx, const struct kept_disk_done *d)
{
	struct fixture *f = ctx;
	assert_int_equal(d->id, ++f->n_done); // in the order of the orders
	f->err = d->err;
	snprintf(f->text, sizeof f->text, "%s", d->err != OK ? d->text : "");
	free(f->rows);
	f->rows = NULL;
	if (d->is_read && d->err == OK) {
		f->rows = malloc(d->len);
		assert_non_null(f->rows);
		memcpy(f->rows, d->rows, d->len);
		f->len = d->len;
	}
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof *f);
	struct errmsg em;
	assert_true(sodium_init() >= 0);
	assert_non_null(f);
	assert_true(scratch_open(f->dir));
	assert_int_equal(loop_open(&f->loop, &em), OK);
	if (kept_disk_open(f->dir, &f->loop, on_done, f, &f->disk, &em) != OK)
		fail_msg("%s", em.text);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	kept_disk_close(f->disk);
	loop_close(&f->loop);
	int failed = scratch_remove(f->dir);
	free(f->rows);
	free(f);
	return failed;
}

static bool is_done(void *ctx)
{
	struct fixture *f = ctx;
	return f->n_done == f->last_id;
}

static enum err wait(struct fixture *f)
{
	assert_true(loop_run_until(&f->loop, is_done, f, loop_clock_ns() + PATIENCE_NS));
	return f->err;
}

// order is what session 7 kept of layer 5 in entry 3, from `pos` on, in the given frames.
static struct node_effect order(struct fixture *f, int32_t pos, const struct node_disk_run *runs, int32_t n_runs)
{
	struct node_effect e = {.type = NODE_FX_KEEP_DISK};
	e.u.disk.id = ++f->last_id;
	e.u.disk.session.v = 7;
	e.u.disk.layer = 5;
	e.u.disk.entry = 3;
	e.u.disk.pos = pos;
	e.u.disk.row_bytes = ROW;
	e.u.disk.runs = runs;
	e.u.disk.n_runs = n_runs;
	for (int32_t i = 0; i < n_runs; i++)
		e.u.disk.n_tokens += runs[i].n_rows;
	return e;
}

static void draw(uint8_t *rows, size_t len, uint64_t seed)
{
	struct rng r;
	rng_init(&r, seed);
	for (size_t i = 0; i < len; i++)
		rows[i] = (uint8_t)rng_u64(&r);
}

static void put(struct fixture *f, int32_t pos, const struct node_disk_run *runs, int32_t n_runs, const uint8_t *rows)
{
	struct node_effect e = order(f, pos, runs, n_runs);
	kept_disk_write(f->disk, &e, rows);
}

static enum err get(struct fixture *f, int32_t pos, const struct node_disk_run *runs, int32_t n_runs)
{
	struct node_effect e = order(f, pos, runs, n_runs);
	kept_disk_read(f->disk, &e);
	return wait(f);
}

static const struct node_disk_run ten = {4, 10};

// ten_rows writes positions 20 to 29 to frames 4 to 13.
static void ten_rows(struct fixture *f, uint8_t rows[10 * ROW])
{
	draw(rows, 10 * ROW, 1);
	put(f, 20, &ten, 1, rows);
	assert_int_equal(wait(f), OK);
}

static void what_was_written_comes_back_in_any_cut(void **state)
{
	struct fixture *f = *state;
	uint8_t rows[10 * ROW];
	const struct node_disk_run scattered[] = {{40, 3}, {2, 1}, {30, 6}}, part[] = {{41, 2}, {2, 1}, {30, 2}};
	ten_rows(f, rows);
	assert_int_equal(get(f, 20, &ten, 1), OK);
	assert_int_equal(f->len, sizeof rows);
	assert_memory_equal(f->rows, rows, sizeof rows);
	put(f, 100, scattered, 3, rows);
	assert_int_equal(get(f, 101, part, 3), OK); // behind the write, in one go
	assert_memory_equal(f->rows, rows + ROW, 5 * ROW);
	put(f, 101, part, 3, rows + 5 * ROW); // again at the same places
	assert_int_equal(get(f, 100, scattered, 3), OK);
	assert_memory_equal(f->rows, rows, ROW);
	assert_memory_equal(f->rows + ROW, rows + 5 * ROW, 5 * ROW);
	assert_memory_equal(f->rows + 6 * ROW, rows + 6 * ROW, 3 * ROW);
}

static void a_chunk_of_many_megabytes_comes_back(void **state)
{
	struct fixture *f = *state;
	const size_t row = 40000;
	const struct node_disk_run runs[] = {{0, 100}, {200, 156}};
	uint8_t *rows = malloc(256 * row);
	assert_non_null(rows);
	draw(rows, 256 * row, 3);
	struct node_effect e = order(f, 0, runs, 2);
	e.u.disk.row_bytes = row;
	kept_disk_write(f->disk, &e, rows);
	e.u.disk.id = ++f->last_id;
	kept_disk_read(f->disk, &e);
	assert_int_equal(wait(f), OK);
	assert_memory_equal(f->rows, rows, 256 * row);
	free(rows);
}

static void the_file_has_no_name_and_is_one_users(void **state)
{
	struct fixture *f = *state;
	struct stat st;
	int n = 0;
	DIR *d = opendir(f->dir);
	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d)) != NULL;)
		n += e->d_name[0] != '.';
	closedir(d);
	assert_int_equal(n, 0);
	assert_int_equal(fstat(kept_disk_fd(f->disk), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_nlink, 0);
}

static void nothing_readable_is_on_disk_and_no_nonce_comes_twice(void **state)
{
	struct fixture *f = *state;
	uint8_t rows[10 * ROW], frames[40 * FRAME];
	const struct node_disk_run elsewhere = {20, 10};
	memset(rows, 'x', sizeof rows);
	put(f, 20, &ten, 1, rows);
	put(f, 20, &elsewhere, 1, rows);
	put(f, 20, &ten, 1, rows);
	assert_int_equal(wait(f), OK);
	assert_int_equal(pread(kept_disk_fd(f->disk), frames, 30 * FRAME, 0), 30 * FRAME);
	for (size_t i = 0; i + 8 < 30 * FRAME; i++)
		assert_memory_not_equal(frames + i, "xxxxxxxx", 8);
	for (size_t i = 4; i < 30; i++)
		for (size_t k = 4; k < i; k++)
			if ((i < 14 || i >= 20) && (k < 14 || k >= 20)) {
				assert_memory_not_equal(frames + i * FRAME, frames + k * FRAME, 8); // the counter
				assert_memory_not_equal(frames + i * FRAME + 8, frames + k * FRAME + 8, 16);
			}
}

static void a_flipped_bit_anywhere_does_not_open(void **state)
{
	struct fixture *f = *state;
	uint8_t rows[10 * ROW], byte;
	ten_rows(f, rows);
	for (off_t i = 0; i < FRAME; i += 5) {
		off_t at = 7 * FRAME + i; // of position 23
		assert_int_equal(pread(kept_disk_fd(f->disk), &byte, 1, at), 1);
		byte ^= (uint8_t)(1 << (i % 8));
		assert_int_equal(pwrite(kept_disk_fd(f->disk), &byte, 1, at), 1);
		assert_int_equal(get(f, 20, &ten, 1), ERR_AUTH);
		assert_null(f->rows);
		assert_non_null(strstr(f->text, "position 23"));
		byte ^= (uint8_t)(1 << (i % 8));
		assert_int_equal(pwrite(kept_disk_fd(f->disk), &byte, 1, at), 1);
	}
	assert_int_equal(get(f, 20, &ten, 1), OK);
}

static void what_belongs_elsewhere_does_not_open(void **state)
{
	struct fixture *f = *state;
	uint8_t rows[10 * ROW], one[FRAME], other[FRAME];
	ten_rows(f, rows);
	assert_int_equal(get(f, 21, &ten, 1), ERR_AUTH); // another position
	struct node_effect e = order(f, 20, &ten, 1);
	e.u.disk.session.v = 8;
	kept_disk_read(f->disk, &e);
	assert_int_equal(wait(f), ERR_AUTH);
	e = order(f, 20, &ten, 1);
	e.u.disk.layer = 6;
	kept_disk_read(f->disk, &e);
	assert_int_equal(wait(f), ERR_AUTH);
	e = order(f, 20, &ten, 1);
	e.u.disk.entry = 4;
	kept_disk_read(f->disk, &e);
	assert_int_equal(wait(f), ERR_AUTH);
	assert_int_equal(pread(kept_disk_fd(f->disk), one, FRAME, 4 * FRAME), FRAME); // two frames change places
	assert_int_equal(pread(kept_disk_fd(f->disk), other, FRAME, 5 * FRAME), FRAME);
	assert_int_equal(pwrite(kept_disk_fd(f->disk), other, FRAME, 4 * FRAME), FRAME);
	assert_int_equal(pwrite(kept_disk_fd(f->disk), one, FRAME, 5 * FRAME), FRAME);
	assert_int_equal(get(f, 20, &ten, 1), ERR_AUTH);
}

static void a_file_that_was_cut_is_an_error(void **state)
{
	struct fixture *f = *state;
	uint8_t rows[10 * ROW];
	ten_rows(f, rows);
	assert_int_equal(ftruncate(kept_disk_fd(f->disk), 8 * FRAME), 0);
	assert_int_equal(get(f, 20, &ten, 1), ERR_IO);
	const struct node_disk_run beyond = {1000, 1};
	assert_int_equal(get(f, 20, &beyond, 1), ERR_IO);
}

static void a_full_disk_is_an_error_and_works_again_when_it_is_not(void **state)
{
	struct fixture *f = *state;
	uint8_t rows[10 * ROW];
	ten_rows(f, rows);
	int fd = kept_disk_fd(f->disk), keep = dup(fd), full = open("/dev/full", O_RDWR);
	assert_true(keep >= 0 && full >= 0);
	assert_true(dup2(full, fd) == fd);
	put(f, 30, &ten, 1, rows);
	assert_int_equal(wait(f), ERR_IO);
	assert_non_null(strstr(f->text, "No space left"));
	assert_int_equal(get(f, 20, &ten, 1), ERR_AUTH); // /dev/full reads as zeroes
	assert_true(dup2(keep, fd) == fd);
	assert_int_equal(get(f, 20, &ten, 1), OK);
	assert_memory_equal(f->rows, rows, sizeof rows);
	close(keep);
	close(full);
}

static void a_disk_that_fails_is_an_error(void **state)
{
	struct fixture *f = *state;
	uint8_t rows[10 * ROW];
	ten_rows(f, rows);
	int fd = kept_disk_fd(f->disk), keep = dup(fd), writes_only = open("/dev/null", O_WRONLY);
	assert_true(dup2(writes_only, fd) == fd);
	assert_int_equal(get(f, 20, &ten, 1), ERR_IO);
	assert_true(f->text[0] != '\0');
	assert_true(dup2(keep, fd) == fd);
	close(keep);
	close(writes_only);
}

static size_t heap_bytes(void)
{
	struct mallinfo2 m = mallinfo2();
	return m.uordblks + m.hblkhd;
}

// As many orders as the core ever gives at once, large ones and small ones in turn: small ones take the buffers of large ones.
static void no_more_memory_is_taken_than_was_promised(void **state)
{
	struct fixture *f = *state;
	const size_t row = 1 << 12, n_rows = 256, buf_bytes = n_rows * row;
	const int32_t sizes[] = {(int32_t)n_rows, 1, (int32_t)n_rows, 128};
	if (IS_INSTRUMENTED)
		skip(); // its malloc answers no questions
	uint8_t *rows = calloc(n_rows, row);
	assert_non_null(rows);
	size_t before = heap_bytes(), most = 0;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		const struct node_disk_run run = {0, sizes[i]};
		struct node_effect e = order(f, 0, &run, 1);
		e.u.disk.row_bytes = row;
		for (int32_t bytes = sizes[i]; bytes <= NODE_KEPT_WRITING_BUFS * (int32_t)n_rows && f->last_id - f->n_done < 32; bytes += sizes[i]) {
			kept_disk_write(f->disk, &e, rows);
			most = heap_bytes() - before > most ? heap_bytes() - before : most;
			e.u.disk.id = ++f->last_id;
		}
		kept_disk_read(f->disk, &e);
		most = heap_bytes() - before > most ? heap_bytes() - before : most;
		assert_int_equal(wait(f), OK);
		free(f->rows); // ours
		f->rows = NULL;
	}
	assert_in_range(most, buf_bytes, kept_disk_bytes(buf_bytes) + 65536); // orders themselves are small
	free(rows);
}

static void closing_ends_what_is_under_way(void **state)
{
	struct fixture *f = *state;
	uint8_t rows[10 * ROW];
	draw(rows, sizeof rows, 1);
	for (int i = 0; i < 200; i++)
		put(f, 20, &ten, 1, rows);
	kept_disk_close(f->disk);
	f->disk = NULL;
}

static void a_directory_that_takes_no_file_is_named(void **state)
{
	struct fixture *f = *state;
	struct kept_disk *d = NULL;
	struct errmsg em;
	assert_int_equal(kept_disk_open("/proc/self", &f->loop, on_done, f, &d, &em), ERR_IO);
	assert_non_null(strstr(em.text, "/proc/self"));
	assert_int_equal(kept_disk_open("/nowhere/at/all", &f->loop, on_done, f, &d, &em), ERR_IO);
	assert_null(d);
}

int main(void)
{
#define WITH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		WITH(what_was_written_comes_back_in_any_cut),
		WITH(a_chunk_of_many_megabytes_comes_back),
		WITH(the_file_has_no_name_and_is_one_users),
		WITH(nothing_readable_is_on_disk_and_no_nonce_comes_twice),
		WITH(a_flipped_bit_anywhere_does_not_open),
		WITH(what_belongs_elsewhere_does_not_open),
		WITH(a_file_that_was_cut_is_an_error),
		WITH(a_full_disk_is_an_error_and_works_again_when_it_is_not),
		WITH(a_disk_that_fails_is_an_error),
		WITH(no_more_memory_is_taken_than_was_promised),
		WITH(closing_ends_what_is_under_way),
		WITH(a_directory_that_takes_no_file_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
