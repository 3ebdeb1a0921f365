#include "blocks/shell/block_store.h"

#include "tests/support/block_model.h"
#include "tests/support/scratch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include <cmocka.h>

#define LAYERS 20

struct place {
	char dir[SCRATCH_CAP], cache_dir[SCRATCH_CAP + 16];
	struct block_model model, other;
	struct block_cache cache;
	struct block_store *store;
	struct block_set set;
	uint64_t words[4];
	uint8_t buf[MODEL_BLOCK];
	struct errmsg em;
};

static void open_store(struct place *p, const struct block_model *m)
{
	assert_int_equal(block_store_open(&p->cache, m->manifest, m->manifest_len, &p->store, &p->em), OK);
	block_set_init(&p->set, p->words, m->m.n_blocks);
}

static int make_place(void **state)
{
	struct place *p = calloc(1, sizeof *p);
	if (p == NULL || !scratch_open(p->dir))
		return -1;
	snprintf(p->cache_dir, sizeof p->cache_dir, "%s/a/cache", p->dir);
	block_model_open(&p->model, 1, LAYERS, 5000, 4000, 77);
	block_model_open(&p->other, 2, LAYERS, 5000, 4000, 77);
	if (block_cache_open(p->cache_dir, 0, &p->cache, &p->em) != OK)
		return -1;
	open_store(p, &p->model);
	*state = p;
	return 0;
}

static int drop_place(void **state)
{
	struct place *p = *state;
	block_store_close(p->store);
	block_model_close(&p->model);
	block_model_close(&p->other);
	int rc = scratch_remove(p->dir);
	free(p);
	return rc;
}

static void put(struct place *p, const struct block_model *m, uint32_t begin, uint32_t end)
{
	for (uint32_t i = begin; i < end; i++)
		assert_int_equal(block_store_write(p->store, i, block_model_block(m, i), &p->em), OK);
}

static uint32_t present(struct place *p)
{
	block_set_clear(&p->set);
	assert_int_equal(block_store_present(p->store, &p->set, &p->em), OK);
	return block_set_count(&p->set);
}

static void an_empty_store_is_a_file_of_holes(void **state)
{
	struct place *p = *state;
	struct stat st;
	assert_int_equal(stat(block_store_path(p->store), &st), 0);
	assert_int_equal(st.st_size, p->model.n_bytes);
	assert_int_equal(st.st_blocks, 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(present(p), 0);
	assert_int_equal(block_store_read(p->store, 3, p->buf, &p->em), ERR_NOT_FOUND);
	assert_int_equal(stat(p->cache_dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
}

static void what_is_written_lies_at_its_place_and_is_read_again(void **state)
{
	struct place *p = *state;
	uint32_t n = p->model.m.n_blocks;
	put(p, &p->model, 2, 5);
	put(p, &p->model, n - 1, n);
	assert_int_equal(present(p), 4);
	for (uint32_t i = 0; i < n; i++) {
		bool is_in = (i >= 2 && i < 5) || i == n - 1;
		assert_int_equal(block_set_has(&p->set, i), is_in);
		assert_int_equal(block_store_read(p->store, i, p->buf, &p->em), is_in ? OK : ERR_NOT_FOUND);
		if (is_in)
			assert_memory_equal(p->buf, block_model_block(&p->model, i), manifest_block_bytes(&p->model.m, i));
	}
	assert_int_equal(block_store_sync(p->store, &p->em), OK);
	block_store_close(p->store);
	open_store(p, &p->model);
	assert_int_equal(present(p), 4);
	size_t len;
	uint8_t *bytes = scratch_read(block_store_path(p->store), &len);
	assert_int_equal(len, p->model.n_bytes);
	assert_memory_equal(bytes + 2 * MODEL_BLOCK, p->model.bytes + 2 * MODEL_BLOCK, 3 * MODEL_BLOCK);
	free(bytes);
}

static void every_flipped_bit_of_a_block_is_found(void **state)
{
	struct place *p = *state;
	put(p, &p->model, 1, 3);
	int fd = open(block_store_path(p->store), O_RDWR | O_CLOEXEC);
	for (uint32_t bit = 0; bit < 8 * MODEL_BLOCK; bit += 997) {
		off_t at = (off_t)(MODEL_BLOCK + bit / 8);
		uint8_t was = block_model_block(&p->model, 1)[bit / 8], now = (uint8_t)(was ^ 1u << bit % 8);
		assert_int_equal(pwrite(fd, &now, 1, at), 1);
		assert_int_equal(block_store_read(p->store, 1, p->buf, &p->em), ERR_FORMAT);
		assert_non_null(strstr(p->em.text, "weights: block 1 (4096 bytes at byte 4096) is damaged"));
		assert_int_equal(block_store_read(p->store, 2, p->buf, &p->em), OK);
		assert_int_equal(pwrite(fd, &was, 1, at), 1);
		assert_int_equal(block_store_read(p->store, 1, p->buf, &p->em), OK);
	}
	close(fd);
}

static void a_file_cut_by_somebody_is_made_whole_and_the_cut_blocks_are_missing(void **state)
{
	struct place *p = *state;
	put(p, &p->model, 0, p->model.m.n_blocks);
	char path[BLOCK_CACHE_FILE_CAP];
	snprintf(path, sizeof path, "%s", block_store_path(p->store));
	block_store_close(p->store);
	assert_int_equal(truncate(path, 3 * MODEL_BLOCK + 100), 0);
	open_store(p, &p->model);
	assert_int_equal(block_store_read(p->store, 2, p->buf, &p->em), OK);
	assert_int_not_equal(block_store_read(p->store, 3, p->buf, &p->em), OK);
	assert_int_equal(block_store_read(p->store, 4, p->buf, &p->em), ERR_NOT_FOUND);
	put(p, &p->model, 3, 4);
	assert_int_equal(block_store_read(p->store, 3, p->buf, &p->em), OK);
}

// die_while_writing leaves a block of which only a part is there, as a process killed in the middle does.
static void a_block_torn_by_a_crash_is_missing(void **state)
{
	struct place *p = *state;
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(block_store_path(p->store), O_RDWR | O_CLOEXEC);
		_exit(fd >= 0 && pwrite(fd, block_model_block(&p->model, 4), 1000, 4 * MODEL_BLOCK) == 1000 ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(block_store_read(p->store, 4, p->buf, &p->em), ERR_FORMAT);
	put(p, &p->model, 4, 5);
	assert_int_equal(block_store_read(p->store, 4, p->buf, &p->em), OK);
}

static void a_damaged_manifest_is_written_anew_and_never_believed(void **state)
{
	struct place *p = *state;
	char path[BLOCK_CACHE_FILE_CAP];
	put(p, &p->model, 0, 2);
	block_store_close(p->store);
	block_cache_file(&p->cache, p->model.m.hash, "manifest", path);
	static const char junk[] = "HEARTHB1 and no more";
	scratch_write(path, junk, sizeof junk);
	assert_int_equal(block_store_find(&p->cache, p->model.m.hash, &p->store, &p->em), ERR_FORMAT);
	assert_non_null(strstr(p->em.text, "/manifest: "));
	scratch_write(path, p->other.manifest, p->other.manifest_len); // whole, but another's
	assert_int_equal(block_store_find(&p->cache, p->model.m.hash, &p->store, &p->em), ERR_FORMAT);
	open_store(p, &p->model);
	assert_int_equal(present(p), 2);
	block_store_close(p->store);
	assert_int_equal(block_store_find(&p->cache, p->model.m.hash, &p->store, &p->em), OK);
	assert_int_equal(block_store_find(&p->cache, p->other.m.hash, &(struct block_store *){NULL}, &p->em), ERR_NOT_FOUND);
}

static void a_directory_that_others_may_enter_is_refused(void **state)
{
	struct place *p = *state;
	struct block_cache c;
	assert_int_equal(chmod(p->cache_dir, 0750), 0);
	assert_int_equal(block_cache_open(p->cache_dir, 0, &c, &p->em), ERR_AUTH);
	assert_non_null(strstr(p->em.text, "0750"));
	assert_int_equal(chmod(p->cache_dir, 0700), 0);
	assert_int_equal(block_cache_open(p->cache_dir, 0, &c, &p->em), OK);
	char file[SCRATCH_CAP + 32];
	snprintf(file, sizeof file, "%s/file", p->dir);
	scratch_write(file, "x", 1);
	assert_int_equal(block_cache_open(file, 0, &c, &p->em), ERR_IO);
	char longest[BLOCK_CACHE_PATH_CAP + 10];
	memset(longest, 'a', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	assert_int_equal(block_cache_open(longest, 0, &c, &p->em), ERR_LIMIT);
}

static void a_link_in_place_of_the_weights_is_refused(void **state)
{
	struct place *p = *state;
	char path[BLOCK_CACHE_FILE_CAP], victim[SCRATCH_CAP + 32];
	snprintf(path, sizeof path, "%s", block_store_path(p->store));
	snprintf(victim, sizeof victim, "%s/victim", p->dir);
	scratch_write(victim, "precious", 8);
	block_store_close(p->store);
	p->store = NULL;
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink(victim, path), 0);
	assert_int_equal(block_store_open(&p->cache, p->model.manifest, p->model.manifest_len, &p->store, &p->em), ERR_IO);
	size_t len;
	uint8_t *bytes = scratch_read(victim, &len);
	assert_int_equal(len, 8);
	free(bytes);
}

// ---- room

// settle has the file system give what was written its final place: until then what files take still changes by itself.
static void settle(const struct block_cache *c)
{
	int fd = open(c->path, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	assert_int_equal(syncfs(fd), 0);
	close(fd);
}

static uint64_t used(struct place *p, size_t *n)
{
	struct block_cache_model models[BLOCK_CACHE_MODELS_MAX];
	uint64_t bytes = 0;
	settle(&p->cache);
	assert_int_equal(block_cache_list(&p->cache, models, BLOCK_CACHE_MODELS_MAX, n, &p->em), OK);
	for (size_t i = 0; i < *n; i++)
		bytes += models[i].bytes;
	return bytes;
}

static void the_least_recently_used_model_goes_first_and_none_in_use(void **state)
{
	struct place *p = *state;
	struct block_store *old[3];
	struct block_model models[3];
	char path[BLOCK_CACHE_FILE_CAP];
	size_t n;
	block_store_close(p->store);
	for (uint32_t i = 0; i < 3; i++) {
		block_model_open(&models[i], 10 + i, LAYERS, 5000, 4000, 0);
		open_store(p, &models[i]);
		put(p, &models[i], 0, 10);
		old[i] = p->store;
		block_cache_file(&p->cache, models[i].m.hash, "lock", path);
		struct timespec times[2] = {{.tv_sec = 1000 + (time_t)i}, {.tv_sec = 1000 + (time_t)i}};
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	}
	block_store_close(old[1]);
	block_store_close(old[2]);
	open_store(p, &p->model); // old[0] stays in use
	uint64_t now = used(p, &n);
	assert_int_equal(n, 4);
	p->cache.bytes_max = now + 5 * MODEL_BLOCK;
	block_set_clear(&p->set);
	assert_int_equal(block_store_make_room(p->store, &p->set, 5 * MODEL_BLOCK, &p->em), OK);
	used(p, &n);
	assert_int_equal(n, 4); // there was room
	assert_int_equal(block_store_make_room(p->store, &p->set, 6 * MODEL_BLOCK, &p->em), OK);
	used(p, &n);
	assert_int_equal(n, 3);
	struct block_store *gone;
	assert_int_equal(block_store_find(&p->cache, models[1].m.hash, &gone, &p->em), ERR_NOT_FOUND);
	assert_int_equal(block_store_make_room(p->store, &p->set, 50 * MODEL_BLOCK, &p->em), ERR_LIMIT);
	assert_non_null(strstr(p->em.text, "the cache is full"));
	used(p, &n);
	assert_int_equal(n, 2);
	assert_int_equal(block_store_read(old[0], 3, p->buf, &p->em), OK);
	block_store_close(old[0]);
	for (size_t i = 0; i < 3; i++)
		block_model_close(&models[i]);
}

static void blocks_that_no_plan_needs_go_and_those_to_keep_stay(void **state)
{
	struct place *p = *state;
	size_t n;
	put(p, &p->model, 0, 15);
	p->cache.bytes_max = used(p, &n) + MODEL_BLOCK;
	block_set_clear(&p->set);
	block_set_add_range(&p->set, 0, 10);
	struct block_set keep = p->set;
	uint64_t words[4];
	block_set_init(&keep, words, p->set.n);
	block_set_add_range(&keep, 0, 10);
	assert_int_equal(block_store_make_room(p->store, &keep, 3 * MODEL_BLOCK, &p->em), OK);
	assert_in_range(present(p), 10, 13); // the file's own extents take a block, or not
	for (uint32_t i = 0; i < 10; i++)
		assert_true(block_set_has(&p->set, i));
	assert_int_equal(block_store_make_room(p->store, &keep, 9 * MODEL_BLOCK, &p->em), ERR_LIMIT); // the file's own extents take a block, or not
	assert_true(block_set_has(&p->set, 9));
}

static void nobody_takes_blocks_from_another_process(void **state)
{
	struct place *p = *state;
	size_t n;
	struct block_store *second;
	put(p, &p->model, 0, 15);
	assert_int_equal(block_store_open(&p->cache, p->model.manifest, p->model.manifest_len, &second, &p->em), OK); // a lock of its own, as a process has
	p->cache.bytes_max = used(p, &n);
	uint64_t words[4];
	struct block_set none;
	block_set_init(&none, words, p->set.n);
	assert_int_equal(block_store_make_room(p->store, &none, MODEL_BLOCK, &p->em), ERR_LIMIT);
	block_set_add_range(&none, 0, 1);
	assert_int_equal(block_store_drop(p->store, &none, &p->em), ERR_BUSY);
	assert_int_equal(present(p), 15);
	block_store_close(second);
	assert_int_equal(block_store_drop(p->store, &none, &p->em), OK);
	assert_int_equal(present(p), 14);
	assert_int_equal(block_store_read(p->store, 0, p->buf, &p->em), ERR_NOT_FOUND);
	// Others can come again.
	assert_int_equal(block_store_open(&p->cache, p->model.manifest, p->model.manifest_len, &second, &p->em), OK);
	block_store_close(second);
}

// A file that may grow no further stands for a disk that is full: the write fails in the middle.
static void a_full_disk_is_an_error_with_its_name_and_the_rest_stays(void **state)
{
	struct place *p = *state;
	put(p, &p->model, 0, 2);
	pid_t pid = fork();
	if (pid == 0) {
		struct errmsg em;
		signal(SIGXFSZ, SIG_IGN);
		struct rlimit l = {3 * MODEL_BLOCK + 10, 3 * MODEL_BLOCK + 10};
		bool ok = setrlimit(RLIMIT_FSIZE, &l) == 0 && block_store_write(p->store, 2, block_model_block(&p->model, 2), &em) == OK &&
			block_store_write(p->store, 3, block_model_block(&p->model, 3), &em) == ERR_IO && strstr(em.text, "cannot store block 3: ") != NULL &&
			strstr(em.text, "/weights: ") != NULL;
		_exit(ok ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(block_store_read(p->store, 2, p->buf, &p->em), OK);
	assert_int_not_equal(block_store_read(p->store, 3, p->buf, &p->em), OK);
}

static void what_lies_about_is_left_alone(void **state)
{
	struct place *p = *state;
	char path[SCRATCH_CAP + 64];
	size_t n;
	snprintf(path, sizeof path, "%s/readme", p->cache_dir);
	scratch_write(path, "x", 1);
	snprintf(path, sizeof path, "%s/0123", p->cache_dir);
	assert_int_equal(mkdir(path, 0700), 0);
	used(p, &n);
	assert_int_equal(n, 1);
	assert_int_equal(block_cache_remove(&p->cache, p->model.m.hash, &p->em), ERR_BUSY);
	block_store_close(p->store);
	p->store = NULL;
	assert_int_equal(block_cache_remove(&p->cache, p->model.m.hash, &p->em), OK);
	used(p, &n);
	assert_int_equal(n, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, drop_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_empty_store_is_a_file_of_holes),
		TEST(what_is_written_lies_at_its_place_and_is_read_again),
		TEST(every_flipped_bit_of_a_block_is_found),
		TEST(a_file_cut_by_somebody_is_made_whole_and_the_cut_blocks_are_missing),
		TEST(a_block_torn_by_a_crash_is_missing),
		TEST(a_damaged_manifest_is_written_anew_and_never_believed),
		TEST(a_directory_that_others_may_enter_is_refused),
		TEST(a_link_in_place_of_the_weights_is_refused),
		TEST(the_least_recently_used_model_goes_first_and_none_in_use),
		TEST(blocks_that_no_plan_needs_go_and_those_to_keep_stay),
		TEST(nobody_takes_blocks_from_another_process),
		TEST(a_full_disk_is_an_error_with_its_name_and_the_rest_stays),
		TEST(what_lies_about_is_left_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
