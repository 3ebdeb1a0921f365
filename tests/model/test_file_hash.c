#include "model/file_hash.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct folder {
	char path[64], file[96], cache[96];
};

static int open_folder(void **state)
{
	struct folder *d = calloc(1, sizeof *d);
	assert_non_null(d);
	strcpy(d->path, "/tmp/hearth-hash-XXXXXX");
	assert_non_null(mkdtemp(d->path));
	snprintf(d->file, sizeof d->file, "%s/file", d->path);
	snprintf(d->cache, sizeof d->cache, "%s/cache", d->path);
	*state = d;
	return 0;
}

static int close_folder(void **state)
{
	struct folder *d = *state;
	unlink(d->file);
	unlink(d->cache);
	int left = rmdir(d->path); // fails when a temporary file stayed behind
	assert_int_equal(left, 0);
	free(d);
	return 0;
}

static void put(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static size_t get(const char *path, char *out, size_t cap)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	size_t n = fread(out, 1, cap - 1, f);
	out[n] = '\0';
	fclose(f);
	return n;
}

struct watch {
	int n_calls;
	uint64_t last, total;
	int stop_at; // call that says stop; 0 never
};

static bool watch(void *ctx, uint64_t done, uint64_t total)
{
	struct watch *w = ctx;
	assert_true(done >= w->last);
	w->n_calls++;
	w->last = done;
	w->total = total;
	return w->n_calls != w->stop_at;
}

static void hash_is_blake2b_256(void **state)
{
	struct folder *d = *state;
	uint8_t hash[FILE_HASH_BYTES];
	char hex[65];
	struct errmsg em;
	// BLAKE2b-256 of "abc" and of nothing, from Python's hashlib.
	put(d->file, "abc", 3);
	assert_int_equal(file_hash(d->file, NULL, NULL, hash, &em), OK);
	sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
	assert_string_equal(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
	put(d->file, "", 0);
	assert_int_equal(file_hash(d->file, NULL, NULL, hash, &em), OK);
	sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
	assert_string_equal(hex, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
}

static void progress_is_told_and_can_stop(void **state)
{
	struct folder *d = *state;
	size_t len = 9 * 1024 * 1024 + 5;
	uint8_t *data = calloc(1, len), hash[FILE_HASH_BYTES], whole[FILE_HASH_BYTES];
	assert_non_null(data);
	data[len - 1] = 7;
	put(d->file, data, len);
	struct errmsg em;
	struct watch w = {0};
	assert_int_equal(file_hash(d->file, watch, &w, hash, &em), OK);
	assert_int_equal(w.n_calls, 3); // at 4, 8 and 9 MiB
	assert_int_equal(w.last, len);
	assert_int_equal(w.total, len);
	crypto_generichash(whole, sizeof whole, data, len, NULL, 0);
	assert_memory_equal(hash, whole, sizeof whole);
	free(data);

	w = (struct watch){.stop_at = 2};
	assert_int_equal(file_hash_cached(d->file, d->cache, watch, &w, hash, &em), ERR_CANCELLED);
	assert_non_null(strstr(em.text, "stopped at byte 8388608"));
	assert_int_equal(access(d->cache, F_OK), -1); // nothing is remembered
}

static void what_is_no_file_is_an_error(void **state)
{
	struct folder *d = *state;
	uint8_t hash[FILE_HASH_BYTES];
	struct errmsg em;
	assert_int_equal(file_hash(d->file, NULL, NULL, hash, &em), ERR_NOT_FOUND);
	assert_non_null(strstr(em.text, d->file));
	assert_int_equal(file_hash(d->path, NULL, NULL, hash, &em), ERR_IO);
	assert_non_null(strstr(em.text, "not a regular file"));
}

static void a_second_time_reads_the_cache(void **state)
{
	struct folder *d = *state;
	uint8_t hash[FILE_HASH_BYTES], again[FILE_HASH_BYTES];
	struct errmsg em;
	struct watch w = {0};
	put(d->file, "abc", 3);
	assert_int_equal(file_hash_cached(d->file, d->cache, watch, &w, hash, &em), OK);
	assert_int_equal(w.n_calls, 1);
	assert_int_equal(file_hash_cached(d->file, d->cache, watch, &w, again, &em), OK);
	assert_int_equal(w.n_calls, 1);
	assert_memory_equal(hash, again, sizeof hash);
	struct stat st;
	assert_int_equal(stat(d->cache, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_file_that_changed_is_hashed_again(void **state)
{
	struct folder *d = *state;
	uint8_t hash[FILE_HASH_BYTES], again[FILE_HASH_BYTES];
	struct errmsg em;
	struct watch w = {0};
	struct timespec times[2] = {{.tv_sec = 1000, .tv_nsec = 1}, {.tv_sec = 1000, .tv_nsec = 1}};
	put(d->file, "abc", 3);
	assert_int_equal(utimensat(AT_FDCWD, d->file, times, 0), 0);
	assert_int_equal(file_hash_cached(d->file, d->cache, watch, &w, hash, &em), OK);
	put(d->file, "abd", 3);
	times[1].tv_nsec = 2; // same size, one nanosecond later
	assert_int_equal(utimensat(AT_FDCWD, d->file, times, 0), 0);
	assert_int_equal(file_hash_cached(d->file, d->cache, watch, &w, again, &em), OK);
	assert_int_equal(w.n_calls, 2);
	assert_memory_not_equal(hash, again, sizeof hash);
}

static void hostile_caches_are_ignored_and_replaced(void **state)
{
	struct folder *d = *state;
	uint8_t right[FILE_HASH_BYTES], hash[FILE_HASH_BYTES];
	struct errmsg em;
	put(d->file, "abc", 3);
	assert_int_equal(file_hash(d->file, NULL, NULL, right, &em), OK);
	struct stat st;
	assert_int_equal(stat(d->file, &st), 0);
	unsigned long long dev = st.st_dev, ino = st.st_ino;
	unsigned long long ns = (unsigned long long)st.st_mtim.tv_sec * 1000000000u + (unsigned long long)st.st_mtim.tv_nsec;
	static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
	char texts[8][512];
	snprintf(texts[0], 512, "hearth-file-hash-1\n%llu %llu 3 %llu %.62s\n", dev, ino, ns, zeros);    // short
	snprintf(texts[1], 512, "hearth-file-hash-1\n%llu %llu 3 %llu %s0\n", dev, ino, ns, zeros);      // long
	snprintf(texts[2], 512, "hearth-file-hash-1\n%llu %llu 3 %llu %.62szz\n", dev, ino, ns, zeros);  // not hex
	snprintf(texts[3], 512, "hearth-file-hash-1\n%llu -%llu 3 %llu %s\n", dev, ino, ns, zeros);      // a sign
	snprintf(texts[4], 512, "hearth-file-hash-1\n%llu %llu 3 %llu %s", dev, ino, ns, zeros);         // no end of line
	snprintf(texts[5], 512, "hearth-file-hash-2\n%llu %llu 3 %llu %s\n", dev, ino, ns, zeros);       // another format
	snprintf(texts[6], 512, "hearth-file-hash-1\n99999999999999999999999 %llu 3 %llu %s\n", ino, ns, zeros);
	snprintf(texts[7], 512, "hearth-file-hash-1\n\n \nx\n%llu %llu 3  %llu %s\n", dev, ino, ns, zeros); // two spaces
	for (int i = 0; i < 8; i++) {
		struct watch w = {0};
		put(d->cache, texts[i], strlen(texts[i]));
		assert_int_equal(file_hash_cached(d->file, d->cache, watch, &w, hash, &em), OK);
		assert_int_equal(w.n_calls, 1);
		assert_memory_equal(hash, right, sizeof hash);
		assert_int_equal(file_hash_cached(d->file, d->cache, watch, &w, hash, &em), OK);
		assert_int_equal(w.n_calls, 1);
	}
	// A well-formed line is believed: the cache is as trusted as the folder it lies in. This also shows that the texts above fail by their flaw.
	char text[512];
	struct watch w = {0};
	snprintf(text, sizeof text, "hearth-file-hash-1\n%llu %llu 3 %llu %s\n", dev, ino, ns, zeros);
	put(d->cache, text, strlen(text));
	assert_int_equal(file_hash_cached(d->file, d->cache, watch, &w, hash, &em), OK);
	assert_int_equal(w.n_calls, 0);
}

static void garbage_and_zeros_are_no_cache(void **state)
{
	struct folder *d = *state;
	uint8_t hash[FILE_HASH_BYTES];
	struct errmsg em;
	put(d->file, "abc", 3);
	size_t len = 1024 * 1024;
	char *big = calloc(1, len);
	assert_non_null(big);
	for (int fill = 0; fill < 256; fill += 51) {
		memset(big, fill, len);
		memcpy(big, "hearth-file-hash-1\n", 19);
		struct watch w = {0};
		put(d->cache, big, len);
		assert_int_equal(file_hash_cached(d->file, d->cache, watch, &w, hash, &em), OK);
		assert_int_equal(w.n_calls, 1);
	}
	free(big);
}

static void a_cache_that_cannot_be_written_is_no_error(void **state)
{
	struct folder *d = *state;
	uint8_t hash[FILE_HASH_BYTES];
	struct errmsg em;
	put(d->file, "abc", 3);
	char nowhere[128];
	snprintf(nowhere, sizeof nowhere, "%s/no/such/folder", d->path);
	assert_int_equal(file_hash_cached(d->file, nowhere, NULL, NULL, hash, &em), OK);
	assert_int_equal(file_hash_cached(d->file, d->path, NULL, NULL, hash, &em), OK); // a folder; close_folder looks for leftovers
}

static void the_cache_keeps_the_newest_64_files(void **state)
{
	struct folder *d = *state;
	uint8_t hash[FILE_HASH_BYTES];
	struct errmsg em;
	for (int i = 0; i < FILE_HASH_CACHE_MAX + 6; i++) {
		struct timespec times[2] = {{.tv_sec = 1000 + i}, {.tv_sec = 1000 + i}};
		put(d->file, "abc", 3);
		assert_int_equal(utimensat(AT_FDCWD, d->file, times, 0), 0);
		assert_int_equal(file_hash_cached(d->file, d->cache, NULL, NULL, hash, &em), OK);
	}
	static char text[64 * 1024];
	get(d->cache, text, sizeof text);
	int n_lines = 0;
	for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
		n_lines++;
	assert_int_equal(n_lines, FILE_HASH_CACHE_MAX + 1);
	assert_null(strstr(text, " 1005000000000 "));
	assert_non_null(strstr(text, " 1006000000000 "));
	assert_non_null(strstr(text, " 1069000000000 "));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_folder, close_folder)
	const struct CMUnitTest tests[] = {
		CASE(hash_is_blake2b_256),
		CASE(progress_is_told_and_can_stop),
		CASE(what_is_no_file_is_an_error),
		CASE(a_second_time_reads_the_cache),
		CASE(a_file_that_changed_is_hashed_again),
		CASE(hostile_caches_are_ignored_and_replaced),
		CASE(garbage_and_zeros_are_no_cache),
		CASE(a_cache_that_cannot_be_written_is_no_error),
		CASE(the_cache_keeps_the_newest_64_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
