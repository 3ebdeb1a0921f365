#include "net/keys.h"

#include "tests/support/scratch.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// This program stands between the code and libc: the mode of a regular file at its first byte, and whether it was ever changed.
struct watch {
	bool on;
	int n_first_writes, n_chmods;
	mode_t mode; // at the last first write
};
static struct watch watch;

ssize_t write(int fd, const void *data, size_t len)
{
	struct stat st;
	if (watch.on && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0) {
		watch.n_first_writes++;
		watch.mode = st.st_mode & 07777;
	}
	return syscall(SYS_write, fd, data, len);
}

int fchmod(int fd, mode_t mode)
{
	watch.n_chmods += watch.on;
	return (int)syscall(SYS_fchmod, fd, mode);
}

int chmod(const char *path, mode_t mode)
{
	watch.n_chmods += watch.on;
	return (int)syscall(SYS_fchmodat, AT_FDCWD, path, mode);
}

struct place {
	char dir[SCRATCH_CAP];
	char path[SCRATCH_CAP + 32];
};

static int make_place(void **state)
{
	struct place *p = calloc(1, sizeof *p);
	if (!p || sodium_init() < 0)
		return -1;
	if (!scratch_open(p->dir))
		return -1;
	snprintf(p->path, sizeof p->path, "%s/node.key", p->dir);
	*state = p;
	return 0;
}

static int n_files(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;
	for (struct dirent *entry; (entry = readdir(d));) {
		if (entry->d_name[0] == '.')
			continue;
		n++;
	}
	closedir(d);
	return n;
}

static int drop_place(void **state)
{
	struct place *p = *state;
	int rc = scratch_remove(p->dir);
	free(p);
	return rc;
}

static void read_file(const char *path, uint8_t file[KEYS_FILE_LEN])
{
	size_t len;
	uint8_t *data = scratch_read(path, &len);
	assert_int_equal(len, KEYS_FILE_LEN);
	memcpy(file, data, len);
	free(data);
}

static void the_first_open_makes_a_pair_and_the_second_finds_it(void **state)
{
	struct place *p = *state;
	struct keys a, b;
	struct stat st;
	mode_t mask = umask(0); // the mode is ours, not the umask's
	assert_int_equal(keys_load(&a, p->path, NULL), ERR_NOT_FOUND);
	assert_int_equal(keys_open(&a, p->path, NULL), OK);
	umask(mask);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_size, KEYS_FILE_LEN);
	assert_int_equal(n_files(p->dir), 1); // no temporary file stays
	assert_int_equal(keys_open(&b, p->path, NULL), OK);
	assert_memory_equal(a.pair, b.pair, sizeof *a.pair);
	uint8_t id[LNK1_KEY_LEN];
	lnk1_node_id(a.pair->pk, id);
	assert_memory_equal(a.node_id, id, sizeof id);
	keys_close(&a);
	keys_close(&b);
	keys_close(&b);
}

static void two_machines_have_two_pairs(void **state)
{
	struct place *p = *state;
	struct keys a, b;
	assert_int_equal(keys_open(&a, p->path, NULL), OK);
	unlink(p->path);
	assert_int_equal(keys_open(&b, p->path, NULL), OK);
	assert_memory_not_equal(a.pair->sk, b.pair->sk, LNK1_KEY_LEN);
	keys_close(&a);
	keys_close(&b);
}

static void the_mode_is_there_before_the_first_byte(void **state)
{
	struct place *p = *state;
	struct keys k;
	watch = (struct watch){.on = true};
	mode_t mask = umask(0);
	enum err e = keys_open(&k, p->path, NULL);
	umask(mask);
	watch.on = false;
	assert_int_equal(e, OK);
	assert_int_equal(watch.n_first_writes, 1);
	assert_int_equal(watch.mode, 0600);
	assert_int_equal(watch.n_chmods, 0); // so it was created with it
	keys_close(&k);
}

static void a_file_that_others_may_read_is_refused(void **state)
{
	struct place *p = *state;
	struct keys k;
	struct errmsg em;
	assert_int_equal(keys_open(&k, p->path, NULL), OK);
	keys_close(&k);
	for (unsigned mode = 0; mode < 01000; mode++) {
		assert_int_equal(chmod(p->path, mode | 0400), 0);
		enum err want = ((mode | 0400) & 0177) == 0 ? OK : ERR_AUTH;
		assert_int_equal(keys_open(&k, p->path, &em), want);
		keys_close(&k);
	}
	assert_non_null(strstr(em.text, "want 0600"));
}

static void a_file_of_another_size_is_refused(void **state)
{
	struct place *p = *state;
	struct keys k;
	uint8_t file[KEYS_FILE_LEN + 40] = {0};
	assert_int_equal(keys_open(&k, p->path, NULL), OK);
	keys_close(&k);
	read_file(p->path, file);
	for (size_t len = 0; len <= sizeof file; len++) {
		scratch_write(p->path, file, len);
		assert_int_equal(keys_open(&k, p->path, NULL), len == KEYS_FILE_LEN ? OK : ERR_FORMAT);
		keys_close(&k);
	}
}

// Every bit: the secret half's clamped bits alone name the same scalar, and are a change all the same to no one's harm.
static void a_damaged_file_is_refused(void **state)
{
	struct place *p = *state;
	struct keys k;
	uint8_t file[KEYS_FILE_LEN];
	assert_int_equal(keys_open(&k, p->path, NULL), OK);
	keys_close(&k);
	read_file(p->path, file);
	for (size_t bit = 0; bit < 8 * KEYS_FILE_LEN; bit++) {
		size_t sk_bit = bit - 16 * 8;
		bool is_clamped = sk_bit < 3 || sk_bit == 254 || sk_bit == 255;
		file[bit / 8] ^= (uint8_t)(1 << (bit % 8));
		scratch_write(p->path, file, sizeof file);
		enum err e = keys_open(&k, p->path, NULL);
		assert_true(is_clamped ? e == OK : e == ERR_FORMAT || e == ERR_UNSUPPORTED);
		keys_close(&k);
		file[bit / 8] ^= (uint8_t)(1 << (bit % 8));
	}
}

static void only_a_regular_file_will_do(void **state)
{
	struct place *p = *state;
	struct keys k;
	char other[128];
	snprintf(other, sizeof other, "%s/other", p->dir);
	assert_int_equal(mkfifo(p->path, 0600), 0);
	assert_int_equal(keys_open(&k, p->path, NULL), ERR_FORMAT); // and no waiting for a writer
	unlink(p->path);
	assert_int_equal(keys_open(&k, other, NULL), OK);
	keys_close(&k);
	assert_int_equal(symlink(other, p->path), 0);
	assert_int_equal(keys_open(&k, p->path, NULL), ERR_IO);
	unlink(p->path);
	assert_int_equal(mkdir(p->path, 0700), 0);
	assert_int_not_equal(keys_open(&k, p->path, NULL), OK);
	rmdir(p->path);
	assert_int_equal(keys_open(&k, "/nonexistent/dir/node.key", NULL), ERR_IO);
}

// vm_flags copies the VmFlags line of the mapping that holds `p`.
static void vm_flags(const void *p, char *flags, size_t cap)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	bool inside = false;
	assert_non_null(f);
	flags[0] = '\0';
	while (!flags[0] && fgets(line, sizeof line, f)) {
		unsigned long begin, end;
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = (uintptr_t)p >= begin && (uintptr_t)p < end;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			snprintf(flags, cap, "%s", line);
	}
	fclose(f);
}

static void the_pair_is_read_only_and_outside_core_dumps(void **state)
{
	struct place *p = *state;
	struct keys k;
	char flags[256], ours[256];
	assert_int_equal(keys_open(&k, p->path, NULL), OK);
	vm_flags(k.pair, flags, sizeof flags);
	vm_flags(&k, ours, sizeof ours);
	assert_non_null(strstr(flags, " dd"));
	assert_null(strstr(flags, " wr"));
	assert_null(strstr(ours, " dd")); // the check can fail
	keys_close(&k);
}

static void a_crash_leaves_no_core(void **state)
{
	(void)state;
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct rlimit limit;
		getrlimit(RLIMIT_CORE, &limit);
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_CORE, &limit);
		if (keys_forbid_core_dumps(NULL) != OK)
			_exit(1);
		getrlimit(RLIMIT_CORE, &limit);
		if (limit.rlim_cur > 1 || limit.rlim_max > 1)
			_exit(2);
		signal(SIGABRT, SIG_DFL);
		abort();
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
	assert_false(WCOREDUMP(status));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_first_open_makes_a_pair_and_the_second_finds_it, make_place, drop_place),
		cmocka_unit_test_setup_teardown(two_machines_have_two_pairs, make_place, drop_place),
		cmocka_unit_test_setup_teardown(the_mode_is_there_before_the_first_byte, make_place, drop_place),
		cmocka_unit_test_setup_teardown(a_file_that_others_may_read_is_refused, make_place, drop_place),
		cmocka_unit_test_setup_teardown(a_file_of_another_size_is_refused, make_place, drop_place),
		cmocka_unit_test_setup_teardown(a_damaged_file_is_refused, make_place, drop_place),
		cmocka_unit_test_setup_teardown(only_a_regular_file_will_do, make_place, drop_place),
		cmocka_unit_test_setup_teardown(the_pair_is_read_only_and_outside_core_dumps, make_place, drop_place),
		cmocka_unit_test(a_crash_leaves_no_core),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
