#include "base/durable_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
	char dir[64], path[96];
	struct errmsg em;
	uint8_t *data;
	size_t len;
};

static int make_place(void **state)
{
	struct place *p = calloc(1, sizeof *p);
	if (p == NULL)
		return -1;
	snprintf(p->dir, sizeof p->dir, "/tmp/hearth-durable-XXXXXX");
	if (mkdtemp(p->dir) == NULL)
		return -1;
	snprintf(p->path, sizeof p->path, "%s/file", p->dir);
	*state = p;
	return 0;
}

static int drop_place(void **state)
{
	struct place *p = *state;
	unlink(p->path);
	rmdir(p->path);
	int rc = rmdir(p->dir);
	free(p);
	return rc;
}

static void refused(struct place *p, size_t max, enum err want)
{
	p->em.text[0] = '\0';
	assert_int_equal(durable_file_load(p->path, max, &p->data, &p->len, &p->em), want);
	assert_null(p->data);
	assert_int_equal(p->len, 0);
	assert_non_null(strstr(p->em.text, p->path));
}

static void what_was_written_is_loaded_in_memory_of_its_own_size(void **state)
{
	struct place *p = *state;
	static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 300000};
	uint8_t *want = malloc(300000);
	assert_non_null(want);
	for (size_t i = 0; i < 300000; i++)
		want[i] = (uint8_t)(i * 7);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		size_t n = sizes[i];
		assert_int_equal(durable_file_write(p->path, want, n, &p->em), OK);
		assert_int_equal(durable_file_load(p->path, n, &p->data, &p->len, &p->em), OK);
		assert_int_equal(p->len, n);
		assert_memory_equal(p->data, want, n);
		free(p->data);
		if (n > 0)
			refused(p, n - 1, ERR_LIMIT);
	}
	free(want);
}

static void what_is_no_private_file_is_not_loaded(void **state)
{
	struct place *p = *state;
	refused(p, 100, ERR_NOT_FOUND);
	assert_int_equal(durable_file_write(p->path, "secret", 6, &p->em), OK);
	assert_int_equal(chmod(p->path, 0640), 0);
	refused(p, 100, ERR_AUTH);
	unlink(p->path);
	assert_int_equal(symlink("/etc/passwd", p->path), 0);
	refused(p, 100, ERR_IO);
	unlink(p->path);
	assert_int_equal(mkfifo(p->path, 0600), 0);
	refused(p, 100, ERR_FORMAT);
	unlink(p->path);
	assert_int_equal(mkdir(p->path, 0700), 0);
	refused(p, 100, ERR_FORMAT);
}

#define IN_PLACE(f) cmocka_unit_test_setup_teardown(f, make_place, drop_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_PLACE(what_was_written_is_loaded_in_memory_of_its_own_size),
		IN_PLACE(what_is_no_private_file_is_not_loaded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
