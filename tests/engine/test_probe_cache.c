// Measured profiles on disk: what comes back is what was measured, and what is damaged, of another key or another version is not there.
#include "engine/probe_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/support/scratch.h"

#define KEY "hearth 1 canon 1 system 6.1 cpu Imaginary i9 kernels portable threads 4"
#define WHEN 1700000000

static int open_folder(void **state)
{
	static char dir[SCRATCH_CAP];
	*state = dir;
	return scratch_open(dir) ? 0 : -1;
}

static int close_folder(void **state)
{
	return scratch_remove(*state);
}

static struct device_profile profile(void)
{
	return (struct device_profile){.cpu = "Imaginary i9", .n_threads = 4, .n_threads_best = 3, .n_cpus = 8, .visit_ns = 41000, .disk_mmap_bps = 700000000,
		.disk_direct_bps = 2900000000, .n_rates = 2, .rates = {{DTYPE_Q4_K, 31000000000, 420000000000}, {DTYPE_F16, 33000000000, 310000000000}}};
}

static void what_was_measured_comes_back(void **state)
{
	const struct device_profile p = profile();
	struct device_profile got;
	struct errmsg em;
	int64_t when = 0;
	char folder[SCRATCH_CAP + 16];
	snprintf(folder, sizeof folder, "%s/new/cache", (const char *)*state); // made with its parents
	assert_int_equal(probe_cache_load(folder, KEY, &got, &when), ERR_NOT_FOUND);
	assert_int_equal(probe_cache_save(folder, KEY, &p, WHEN, &em), OK);
	assert_int_equal(probe_cache_load(folder, KEY, &got, &when), OK);
	assert_true(when == WHEN);
	assert_string_equal(got.cpu, p.cpu);
	assert_memory_equal(got.rates, p.rates, sizeof p.rates);
	assert_true(got.visit_ns == p.visit_ns && got.disk_direct_bps == p.disk_direct_bps && got.n_threads_best == 3);
	assert_true(got.memory_bytes > 0); // of this machine, now
	assert_int_equal(device_profile_check(&got, &em), OK);
}

static void another_key_is_not_there_even_in_the_same_place(void **state)
{
	const struct device_profile p = profile();
	struct device_profile got;
	struct errmsg em;
	int64_t when;
	char key[PROBE_KEY_CAP];
	int n_kept = 0;
	for (int i = 0; i < 2 * PROBE_CACHE_FILES; i++) { // more than there are places
		snprintf(key, sizeof key, "%s-%d", KEY, i);
		assert_int_equal(probe_cache_load(*state, key, &got, &when), ERR_NOT_FOUND);
		assert_int_equal(probe_cache_save(*state, key, &p, WHEN + i, &em), OK);
		assert_int_equal(probe_cache_load(*state, key, &got, &when), OK);
		assert_true(when == WHEN + i);
	}
	for (int i = 0; i < 2 * PROBE_CACHE_FILES; i++) {
		snprintf(key, sizeof key, "%s-%d", KEY, i);
		n_kept += probe_cache_load(*state, key, &got, &when) == OK;
	}
	assert_in_range(n_kept, 2, PROBE_CACHE_FILES);
}

static void a_file_that_others_may_read_or_that_is_a_link_is_not_used(void **state)
{
	const struct device_profile p = profile();
	struct device_profile got;
	struct errmsg em;
	int64_t when;
	char path[SCRATCH_CAP + 16];
	assert_int_equal(probe_cache_save(*state, KEY, &p, WHEN, &em), OK);
	int n = 0;
	for (int i = 0; i < PROBE_CACHE_FILES; i++) {
		snprintf(path, sizeof path, "%s/probe-%02d", (const char *)*state, i);
		n += chmod(path, 0666) == 0;
	}
	assert_int_equal(n, 1);
	assert_int_equal(probe_cache_load(*state, KEY, &got, &when), ERR_NOT_FOUND);
}

static void every_cut_and_every_flipped_bit_is_survived(void **state)
{
	(void)state;
	const struct device_profile p = profile();
	struct device_profile got;
	uint8_t data[PROBE_CACHE_BYTES_MAX];
	char key[PROBE_KEY_CAP];
	int64_t when;
	size_t len = probe_cache_encode(KEY, &p, WHEN, data);
	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *exact = malloc(cut > 0 ? cut : 1); // so that a sanitizer sees one byte too many
		memcpy(exact, data, cut);
		assert_int_equal(probe_cache_decode(exact, cut, key, &got, &when), ERR_FORMAT);
		free(exact);
	}
	for (size_t bit = 0; bit < 8 * len; bit++) {
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (probe_cache_decode(data, len, key, &got, &when) == OK)
			assert_int_equal(device_profile_check(&got, NULL), OK);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(probe_cache_decode(data, len, key, &got, &when), OK);
	assert_string_equal(key, KEY);
	data[len] = 0;
	assert_int_equal(probe_cache_decode(data, len + 1, key, &got, &when), ERR_FORMAT);
	data[6]++; // a later version
	assert_int_equal(probe_cache_decode(data, len, key, &got, &when), ERR_FORMAT);
}

static void the_largest_profile_fits(void **state)
{
	(void)state;
	struct device_profile p = profile();
	char key[PROBE_KEY_CAP], found[PROBE_KEY_CAP];
	uint8_t data[PROBE_CACHE_BYTES_MAX];
	struct device_profile got;
	int64_t when;
	memset(key, 'k', sizeof key - 1);
	key[sizeof key - 1] = '\0';
	memset(p.cpu, 'c', sizeof p.cpu - 1);
	p.n_rates = 0;
	for (uint32_t t = 0; t <= DTYPE_ID_MAX && p.n_rates < PROFILE_RATES_MAX; t++)
		if (dtype_find(t) != NULL)
			p.rates[p.n_rates++] = (struct device_rate){(enum dtype)t, PROFILE_RATE_MAX, PROFILE_RATE_MAX};
	size_t len = probe_cache_encode(key, &p, WHEN, data);
	assert_int_equal(probe_cache_decode(data, len, found, &got, &when), OK);
	assert_int_equal(got.n_rates, PROFILE_RATES_MAX);
	assert_string_equal(found, key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_measured_comes_back, open_folder, close_folder),
		cmocka_unit_test_setup_teardown(another_key_is_not_there_even_in_the_same_place, open_folder, close_folder),
		cmocka_unit_test_setup_teardown(a_file_that_others_may_read_or_that_is_a_link_is_not_used, open_folder, close_folder),
		cmocka_unit_test(every_cut_and_every_flipped_bit_is_survived),
		cmocka_unit_test(the_largest_profile_fits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
