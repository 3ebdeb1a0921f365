// What is remembered of model files: found for the very file that was read, and for no other.
#include "blocks/shell/known_model.h"

#include "tests/support/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define N_BYTES (5 * BLOCK_BYTES_DEFAULT + 777)
#define HEADER 1000

struct place {
	char dir[SCRATCH_CAP], known[SCRATCH_CAP + 16], file[SCRATCH_CAP + 16];
	uint8_t *bytes;
	struct manifest_tensor tensors[2];
	struct manifest_source source;
	struct manifest_progress progress;
};

static void write_file(const char *path, const uint8_t *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), (ssize_t)len);
	assert_int_equal(close(fd), 0);
}

static void open_place(struct place *p)
{
	memset(p, 0, sizeof *p);
	assert_true(scratch_open(p->dir));
	snprintf(p->known, sizeof p->known, "%s/known", p->dir);
	snprintf(p->file, sizeof p->file, "%s/m.gguf", p->dir);
	p->bytes = malloc(N_BYTES);
	for (size_t i = 0; i < N_BYTES; i++)
		p->bytes[i] = (uint8_t)(i * 7 + i / 5000);
	write_file(p->file, p->bytes, N_BYTES);
	p->tensors[0] = (struct manifest_tensor){.offset = HEADER, .bytes = 2000, .name = "blk.0.a", .name_len = 7};
	p->tensors[1] = (struct manifest_tensor){.offset = HEADER + 2000, .bytes = 3000, .name = "blk.1.a", .name_len = 7};
	p->source = (struct manifest_source){.path = p->file, .file_bytes = N_BYTES, .header_bytes = HEADER, .block_bytes = BLOCK_BYTES_DEFAULT, .tensors = p->tensors,
		.n_tensors = 2, .n_threads = 3, .progress = &p->progress};
}

static void close_place(struct place *p)
{
	free(p->bytes);
	assert_int_equal(scratch_remove(p->dir), 0);
}

// make returns how many bytes were read of the file.
static uint64_t make(struct place *p, struct manifest *m, uint8_t **bytes)
{
	size_t len;
	struct errmsg em;
	uint64_t before = atomic_load(&p->progress.bytes_done);
	assert_int_equal(known_model_make(p->known, &p->source, bytes, &len, &em), OK);
	assert_int_equal(manifest_parse(*bytes, len, m, &em), OK);
	return atomic_load(&p->progress.bytes_done) - before;
}

static int32_t count_files(const char *dir)
{
	int32_t n = 0;
	DIR *d = opendir(dir);
	assert_non_null(d);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void a_file_is_read_once(void **state)
{
	(void)state;
	struct place p;
	struct manifest m, again;
	uint8_t *a, *b, hash[BLOCK_HASH_BYTES];
	struct stat st;
	open_place(&p);
	assert_int_equal(make(&p, &m, &a), N_BYTES);
	for (uint32_t i = 0; i < m.n_blocks; i++)
		assert_true(manifest_block_matches(&m, i, p.bytes + (size_t)i * BLOCK_BYTES_DEFAULT, manifest_block_bytes(&m, i)));
	crypto_generichash(hash, sizeof hash, m.hashes, (size_t)m.n_blocks * BLOCK_HASH_BYTES, NULL, 0);
	assert_memory_equal(m.model_hash, hash, sizeof hash);
	assert_int_equal(make(&p, &again, &b), 0);
	assert_memory_equal(m.hash, again.hash, sizeof m.hash);
	assert_int_equal(count_files(p.known), 1); // and no lock
	assert_int_equal(stat(p.known, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	free(a);
	free(b);
	close_place(&p);
}

static void another_number_of_threads_makes_the_same(void **state)
{
	(void)state;
	struct place p;
	uint8_t *a, *b;
	size_t len, len2;
	struct errmsg em;
	open_place(&p);
	assert_int_equal(manifest_build(&p.source, &a, &len, &em), OK);
	p.source.n_threads = 1;
	assert_int_equal(manifest_build(&p.source, &b, &len2, &em), OK);
	assert_int_equal(len, len2);
	assert_memory_equal(a, b, len);
	free(a);
	free(b);
	close_place(&p);
}

static void a_file_that_changed_is_another_one(void **state)
{
	(void)state;
	struct place p;
	struct manifest m, other;
	uint8_t *a, *b;
	size_t len;
	struct errmsg em;
	open_place(&p);
	(void)make(&p, &m, &a);
	char new[sizeof p.file + 4];
	snprintf(new, sizeof new, "%s.new", p.file);
	p.bytes[N_BYTES - 1] ^= 1;
	write_file(new, p.bytes, N_BYTES); // another inode, of the same size
	assert_int_equal(rename(new, p.file), 0);
	assert_int_equal(known_model_find(p.known, p.file, &b, &len, &em), ERR_NOT_FOUND);
	assert_int_equal(make(&p, &other, &b), N_BYTES);
	assert_memory_not_equal(m.hash, other.hash, sizeof m.hash);
	free(a);
	free(b);
	close_place(&p);
}

static void what_is_damaged_in_the_directory_is_made_anew(void **state)
{
	(void)state;
	struct place p;
	struct manifest m;
	uint8_t *a;
	open_place(&p);
	(void)make(&p, &m, &a);
	free(a);
	char file[sizeof p.known + 300];
	DIR *d = opendir(p.known);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		if (e->d_name[0] != '.')
			snprintf(file, sizeof file, "%s/%s", p.known, e->d_name);
	closedir(d);
	static const off_t cuts[] = {0, 7, 8, 39, 41, 60, 200};
	for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
		assert_int_equal(truncate(file, cuts[i]), 0);
		assert_int_equal(make(&p, &m, &a), N_BYTES);
		free(a);
	}
	size_t len;
	uint8_t *bytes = scratch_read(file, &len);
	for (size_t i = 0; i < len; i += 3) { // a wrong hash or a wrong place of a tensor is told to every machine, and believed
		bytes[i] ^= 1;
		write_file(file, bytes, len);
		bytes[i] ^= 1;
		assert_int_equal(make(&p, &m, &a), N_BYTES);
		free(a);
	}
	free(bytes);
	close_place(&p);
}

static void reading_can_be_stopped(void **state)
{
	(void)state;
	struct place p;
	uint8_t *a;
	size_t len;
	struct errmsg em;
	open_place(&p);
	atomic_store(&p.progress.is_cancelled, true);
	assert_int_equal(known_model_make(p.known, &p.source, &a, &len, &em), ERR_CANCELLED);
	assert_int_equal(count_files(p.known), 0);
	close_place(&p);
}

static void without_a_directory_nothing_is_remembered(void **state)
{
	(void)state;
	struct place p;
	uint8_t *a;
	size_t len;
	struct errmsg em;
	open_place(&p);
	assert_int_equal(known_model_make(NULL, &p.source, &a, &len, &em), OK);
	free(a);
	assert_int_equal(known_model_make(p.file, &p.source, &a, &len, &em), OK); // no directory
	free(a);
	assert_int_equal(atomic_load(&p.progress.bytes_done), 2 * N_BYTES);
	close_place(&p);
}

static void a_shorter_file_is_an_error_that_names_the_byte(void **state)
{
	(void)state;
	struct place p;
	uint8_t *a;
	size_t len;
	struct errmsg em;
	open_place(&p);
	assert_int_equal(truncate(p.file, 2 * BLOCK_BYTES_DEFAULT), 0);
	assert_int_equal(manifest_build(&p.source, &a, &len, &em), ERR_IO);
	assert_non_null(strstr(em.text, "cannot read at byte"));
	assert_null(a);
	close_place(&p);
}

static void tell(void *ctx, const struct known_model_check *c)
{
	*(struct known_model_check *)ctx = *c;
}

static void looking_again_finds_what_changed_without_a_trace(void **state)
{
	(void)state;
	struct place p;
	struct manifest m;
	struct known_model_check c = {.n_good = 99};
	struct errmsg em;
	struct stat st;
	uint8_t *a;
	open_place(&p);
	(void)make(&p, &m, &a);
	free(a);
	assert_int_equal(known_model_verify(p.known, tell, &c, &em), OK);
	assert_int_equal(c.n_good, 6);
	assert_int_equal(c.n_bad, 0);
	assert_string_equal(c.path, p.file);
	assert_int_equal(stat(p.file, &st), 0);
	int fd = open(p.file, O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, 300000), 1);
	const struct timespec times[2] = {st.st_atim, st.st_mtim}; // a disk that decays changes no time
	assert_int_equal(futimens(fd, times), 0);
	close(fd);
	assert_int_equal(known_model_verify(p.known, tell, &c, &em), OK);
	assert_int_equal(c.n_good, 5);
	assert_int_equal(c.n_bad, 1);
	assert_int_equal(count_files(p.known), 0); // forgotten: it is read again
	(void)make(&p, &m, &a);
	free(a);
	assert_int_equal(unlink(p.file), 0);
	assert_int_equal(known_model_verify(p.known, tell, &c, &em), OK);
	assert_true(c.is_gone);
	assert_int_equal(count_files(p.known), 0);
	close_place(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_read_once),
		cmocka_unit_test(another_number_of_threads_makes_the_same),
		cmocka_unit_test(a_file_that_changed_is_another_one),
		cmocka_unit_test(what_is_damaged_in_the_directory_is_made_anew),
		cmocka_unit_test(reading_can_be_stopped),
		cmocka_unit_test(without_a_directory_nothing_is_remembered),
		cmocka_unit_test(a_shorter_file_is_an_error_that_names_the_byte),
		cmocka_unit_test(looking_again_finds_what_changed_without_a_trace),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
