#include "coordinator/shell/journal.h"

#include "base/durable_file.h"
#include "coordinator/shell/http_api.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS INT64_C(20000000000)
#define TAKEN_MAX 8
#define DONES_MAX 300

struct place {
	char dir[SCRATCH_CAP], folder[SCRATCH_CAP + 32], log_path[SCRATCH_CAP + 32];
	struct loop loop;
	struct log log;
	struct journal *journal;
	struct errmsg em;
	int n_dones, n_wanted, n_errors;
	char text[ERRMSG_CAP]; // of the last error
	int n_taken;
	struct journal_key keys[TAKEN_MAX];
	struct request_record taken[TAKEN_MAX];
	bool refuses;
};

static void on_done(void *ctx, struct journal_key key, enum err err, const char *text)
{
	struct place *p = ctx;
	assert_true(key.number != 0);
	p->n_dones++;
	if (err != OK) {
		p->n_errors++;
		snprintf(p->text, sizeof p->text, "%s", text);
	}
}

static bool fits(void *ctx, const struct request_record *r)
{
	(void)r;
	return !((struct place *)ctx)->refuses;
}

static void take(void *ctx, struct journal_key key, struct request_record *r)
{
	struct place *p = ctx;
	assert_true(p->n_taken < TAKEN_MAX);
	p->keys[p->n_taken] = key;
	p->taken[p->n_taken++] = *r;
}

static void open_journal(struct place *p)
{
	assert_int_equal(journal_open(&p->loop, &p->log, p->folder, on_done, p, &p->journal, &p->em), OK);
}

static void close_journal(struct place *p)
{
	journal_close(p->journal);
	p->journal = NULL;
}

static void load(struct place *p)
{
	for (int i = 0; i < p->n_taken; i++)
		request_record_deinit(&p->taken[i]);
	p->n_taken = 0;
	open_journal(p);
	journal_load(p->journal, &(struct journal_loader){.ctx = p, .fits = fits, .take = take});
}

static int make_place(void **state)
{
	struct place *p = calloc(1, sizeof *p);
	if (p == NULL || sodium_init() < 0 || loop_open(&p->loop, NULL) != OK)
		return -1;
	if (!scratch_open(p->dir))
		return -1;
	snprintf(p->folder, sizeof p->folder, "%s/journal", p->dir);
	snprintf(p->log_path, sizeof p->log_path, "%s/log", p->dir);
	p->log = (struct log){.fd = open(p->log_path, O_RDWR | O_CREAT, 0600), .level = LOG_DEBUG};
	*state = p;
	return 0;
}

static int end_place(void **state)
{
	struct place *p = *state;
	journal_close(p->journal);
	for (int i = 0; i < p->n_taken; i++)
		request_record_deinit(&p->taken[i]);
	loop_close(&p->loop);
	close(p->log.fd);
	int rc = scratch_remove(p->dir);
	free(p);
	return rc;
}

static bool has_dones(void *ctx)
{
	const struct place *p = ctx;
	return p->n_dones >= p->n_wanted;
}

static void wait_dones(struct place *p, int n)
{
	p->n_wanted = n;
	assert_true(loop_run_until(&p->loop, has_dones, p, loop_clock_ns() + PATIENCE_NS));
}

static const char *log_text(const struct place *p)
{
	static char text[8192];
	ssize_t n = pread(p->log.fd, text, sizeof text - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

// n_files returns how many files the folder has, and the path of the last one.
static int n_files(const struct place *p, char path[512])
{
	int n = 0;
	DIR *d = opendir(p->folder);
	assert_non_null(d);
	const struct dirent *e;
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		n++;
		snprintf(path, 512, "%s/%s", p->folder, e->d_name);
	}
	closedir(d);
	return n;
}

static int32_t prompt[1000];

static struct request_record sample(uint8_t mark)
{
	struct request_record r = {
		.id = {mark, 2, 3},
		.model_hash = {9},
		.canon_version = 3,
		.wire = WIRE_BF16,
		.kind = OPENAI_COMPLETION,
		.stream = true,
		.keep = true,
		.created_s = 1700000000,
		.reply_id = "cmpl-00",
		.model_id = "a model\xc3\xa9",
		.n_predict = 77,
		.sampling = {.temperature = 0.7f, .top_k = 5, .top_p = 0.5f, .min_p = 0.25f, .seed = UINT64_MAX - 5},
		.n_stops = 2,
		.stops = {"\n\n", "end"},
		.prompt_ids = prompt,
		.n_prompt_ids = 1000,
	};
	for (int32_t i = 0; i < 1000; i++)
		prompt[i] = 0x5a5a5a + i;
	return r;
}

static void expect_same(const struct request_record *a, const struct request_record *b)
{
	size_t a_len, b_len;
	uint8_t *x = request_record_encode(a, &a_len), *y = request_record_encode(b, &b_len);
	assert_int_equal(a_len, b_len);
	assert_memory_equal(x, y, a_len);
	free(x);
	free(y);
}

// ---- one file

static void a_record_comes_back_whole(void **state)
{
	(void)state;
	struct request_record r = sample(1), back;
	struct errmsg em;
	size_t len;
	uint8_t *data = request_record_encode(&r, &len);
	assert_int_equal(request_record_decode(data, len, &back, &em), OK);
	expect_same(&r, &back);
	assert_string_equal(back.stops[1], "end");
	assert_string_equal(back.model_id, r.model_id);
	assert_true(back.sampling.seed == r.sampling.seed && back.sampling.min_p == 0.25f && back.keep && back.stream && !back.hearth);
	assert_memory_equal(back.prompt_ids, prompt, sizeof prompt);
	request_record_deinit(&back);
	free(data);
}

static void a_bit_that_flipped_and_every_cut_are_found(void **state)
{
	(void)state;
	struct request_record r = sample(1), back;
	struct errmsg em;
	size_t len;
	r.n_prompt_ids = 20;
	uint8_t *data = request_record_encode(&r, &len);
	for (size_t bit = 0; bit < 8 * len; bit++) {
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(request_record_decode(data, len, &back, &em), OK);
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (size_t cut = 0; cut < len; cut++)
		assert_int_not_equal(request_record_decode(data, cut, &back, &em), OK);
	assert_int_equal(request_record_decode(data, len, &back, &em), OK);
	request_record_deinit(&back);
	free(data);
}

static void ids_and_numbers_have_one_spelling(void **state)
{
	(void)state;
	uint8_t id[REQUEST_ID_BYTES];
	int64_t n;
	static const char *const bad_ids[] = {"", "0", "0123456789abcdef0123456789abcde", "0123456789abcdef0123456789abcdef0", "0123456789ABCDEF0123456789abcdef",
		"0123456789abcdef0123456789abcdeg", "../../../../../../etc/passwd0000", "0123456789abcdef0123456789abcde/", " 123456789abcdef0123456789abcdef"};
	for (size_t i = 0; i < ARRAY_LEN(bad_ids); i++)
		assert_false(request_id_parse(bad_ids[i], id));
	assert_true(request_id_parse("0123456789abcdef0123456789abcdef", id));
	assert_int_equal(id[15], 0xef);
	static const char *const bad_numbers[] = {"", "-1", "+1", " 1", "1 ", "0x1", "1e3", "1.0", "2147483648", "1000000000000000000000000000000", "9223372036854775808", "a"};
	for (size_t i = 0; i < ARRAY_LEN(bad_numbers); i++)
		assert_false(http_api_event_number(bad_numbers[i], &n));
	assert_true(http_api_event_number("2147483647", &n) && n == INT32_MAX);
	assert_true(http_api_event_number("007", &n) && n == 7);
}

// ---- the folder

static void what_was_under_way_is_there_after_a_restart_in_order(void **state)
{
	struct place *p = *state;
	struct request_record r[3] = {sample(1), sample(2), sample(3)};
	struct journal_key keys[3];
	load(p);
	assert_int_equal(p->n_taken, 0);
	for (int i = 0; i < 3; i++)
		keys[i] = journal_put(p->journal, &r[i]);
	wait_dones(p, 3);
	assert_int_equal(p->n_errors, 0);
	journal_remove(p->journal, keys[1]);
	close_journal(p);

	load(p);
	assert_int_equal(p->n_taken, 2);
	expect_same(&p->taken[0], &r[0]);
	expect_same(&p->taken[1], &r[2]);
	assert_true(p->keys[0].number == keys[0].number && p->keys[0].n_tries == 1);
	struct journal_key next = journal_put(p->journal, &r[1]);
	assert_true(next.number > keys[2].number);
	journal_remove(p->journal, p->keys[0]);
	journal_remove(p->journal, p->keys[1]);
	journal_remove(p->journal, next);
	close_journal(p);
	char path[512];
	assert_int_equal(n_files(p, path), 0);
	load(p);
	assert_int_equal(p->n_taken, 0);
	assert_string_equal(log_text(p), "");
}

static void a_file_is_private_and_overwritten_before_it_goes(void **state)
{
	struct place *p = *state;
	struct request_record r = sample(1);
	struct stat st;
	char path[512];
	load(p);
	struct journal_key key = journal_put(p->journal, &r);
	wait_dones(p, 1);
	assert_int_equal(n_files(p, path), 1);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_true(st.st_size > (off_t)sizeof prompt);
	assert_int_equal(stat(p->folder, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	int fd = open(path, O_RDONLY); // keeps the bytes when the name is gone
	journal_remove(p->journal, key);
	close_journal(p);
	uint8_t bytes[8192];
	ssize_t n = read(fd, bytes, sizeof bytes);
	assert_true(n > (ssize_t)sizeof prompt);
	assert_true(sodium_is_zero(bytes, (size_t)n));
	close(fd);
	assert_int_equal(n_files(p, path), 0);
}

static void a_damaged_file_is_said_and_removed_and_the_others_are_taken(void **state)
{
	struct place *p = *state;
	struct request_record r = sample(1), s = sample(2);
	char path[512];
	load(p);
	(void)journal_put(p->journal, &r);
	(void)journal_put(p->journal, &s);
	wait_dones(p, 2);
	close_journal(p);
	snprintf(path, sizeof path, "%s/%016x-0.request", p->folder, 1);
	int fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, 300), 1);
	close(fd);
	load(p);
	assert_int_equal(p->n_taken, 1);
	expect_same(&p->taken[0], &s);
	assert_non_null(strstr(log_text(p), "damaged: its content is not what was written; removed"));
	assert_int_equal(n_files(p, path), 1);
}

// Each is a file somebody else put there, or that a crash left.
static void strange_files_are_no_requests(void **state)
{
	struct place *p = *state;
	char path[512], target[512];
	struct request_record r = sample(1);
	load(p);
	(void)journal_put(p->journal, &r);
	wait_dones(p, 1);
	close_journal(p);
	snprintf(target, sizeof target, "%s/elsewhere", p->dir);
	assert_int_equal(durable_file_write(target, "kept", 4, &p->em), OK);
	static const char *const empty[] = {"0000000000000002-0.request", "x.request", "0000000000000000-0.request", "0000000000000003-0.request.new"};
	for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
		snprintf(path, sizeof path, "%s/%s", p->folder, empty[i]);
		assert_int_equal(durable_file_write(path, "", 0, &p->em), OK);
	}
	snprintf(path, sizeof path, "%s/%s", p->folder, "0000000000000004-0.request");
	assert_int_equal(symlink(target, path), 0);
	snprintf(path, sizeof path, "%s/%s", p->folder, "0000000000000005-0.request");
	assert_int_equal(mkfifo(path, 0600), 0);
	snprintf(path, sizeof path, "%s/%s", p->folder, "0000000000000006-0.request");
	assert_int_equal(durable_file_write(path, "for all", 7, &p->em), OK);
	assert_int_equal(chmod(path, 0644), 0);
	load(p);
	assert_int_equal(p->n_taken, 1);
	assert_non_null(strstr(log_text(p), "lets others at its secrets"));
	struct stat st;
	assert_int_equal(stat(target, &st), 0);
	assert_int_equal(st.st_size, 4);
	snprintf(path, sizeof path, "%s/%s", p->folder, "0000000000000003-0.request.new");
	assert_int_equal(access(path, F_OK), -1);
}

static void a_request_that_never_ends_is_given_up(void **state)
{
	struct place *p = *state;
	struct request_record r = sample(1);
	char path[512];
	load(p);
	(void)journal_put(p->journal, &r);
	wait_dones(p, 1);
	for (int i = 1; i <= JOURNAL_TRIES_MAX; i++) {
		close_journal(p);
		load(p);
		assert_int_equal(p->n_taken, 1);
		assert_int_equal(p->keys[0].n_tries, i);
	}
	close_journal(p);
	load(p);
	assert_int_equal(p->n_taken, 0);
	assert_non_null(strstr(log_text(p), "given up"));
	assert_int_equal(n_files(p, path), 0);
}

static void what_does_not_fit_stays_as_it_is(void **state)
{
	struct place *p = *state;
	struct request_record r = sample(1);
	load(p);
	(void)journal_put(p->journal, &r);
	wait_dones(p, 1);
	close_journal(p);
	p->refuses = true;
	for (int i = 0; i < JOURNAL_TRIES_MAX + 2; i++) {
		load(p);
		assert_int_equal(p->n_taken, 0);
		close_journal(p);
	}
	p->refuses = false;
	load(p);
	assert_int_equal(p->n_taken, 1);
	assert_int_equal(p->keys[0].n_tries, 1);
	close_journal(p);
	journal_erase(&p->log, p->folder);
	char path[512];
	assert_int_equal(n_files(p, path), 0);
	journal_erase(&p->log, "/nowhere/at/all");
}

static void a_folder_that_is_none_is_refused(void **state)
{
	struct place *p = *state;
	assert_int_equal(durable_file_write(p->folder, "x", 1, &p->em), OK);
	assert_int_equal(journal_open(&p->loop, &p->log, p->folder, on_done, p, &p->journal, &p->em), ERR_AUTH);
	assert_int_equal(unlink(p->folder), 0);
	assert_int_equal(mkdir(p->folder, 0755), 0);
	assert_int_equal(chmod(p->folder, 0755), 0);
	assert_int_equal(journal_open(&p->loop, &p->log, p->folder, on_done, p, &p->journal, &p->em), ERR_AUTH);
	assert_int_equal(rmdir(p->folder), 0);
}

static void a_disk_that_takes_nothing_is_reported_and_hurts_nobody(void **state)
{
	struct place *p = *state;
	struct request_record r = sample(1);
	char path[512];
	load(p);
	struct rlimit before, small = {0};
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){.rlim_cur = 100, .rlim_max = before.rlim_max};
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	struct journal_key key = journal_put(p->journal, &r);
	wait_dones(p, 1);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(p->n_errors, 1);
	assert_non_null(strstr(p->text, "File too large"));
	assert_int_equal(n_files(p, path), 0);
	journal_remove(p->journal, key);
	key = journal_put(p->journal, &r);
	wait_dones(p, 2);
	assert_int_equal(p->n_errors, 1);
	assert_int_equal(n_files(p, path), 1);
	journal_remove(p->journal, key);
}

static void more_than_may_wait_for_the_disk_is_refused(void **state)
{
	struct place *p = *state;
	struct request_record r = sample(1);
	load(p);
	r.n_prompt_ids = JOURNAL_QUEUE_BYTES / 4;
	r.prompt_ids = calloc(JOURNAL_QUEUE_BYTES / 4, 4);
	assert_non_null(r.prompt_ids);
	(void)journal_put(p->journal, &r);
	wait_dones(p, 1);
	assert_int_equal(p->n_errors, 1);
	assert_string_equal(p->text, "the disk does not keep up");
	free(r.prompt_ids);
	r = sample(1);
	(void)journal_put(p->journal, &r);
	wait_dones(p, 2);
	assert_int_equal(p->n_errors, 1);
}

int main(void)
{
#define PLACE(f) cmocka_unit_test_setup_teardown(f, make_place, end_place)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_comes_back_whole),
		cmocka_unit_test(a_bit_that_flipped_and_every_cut_are_found),
		cmocka_unit_test(ids_and_numbers_have_one_spelling),
		PLACE(what_was_under_way_is_there_after_a_restart_in_order),
		PLACE(a_file_is_private_and_overwritten_before_it_goes),
		PLACE(a_damaged_file_is_said_and_removed_and_the_others_are_taken),
		PLACE(strange_files_are_no_requests),
		PLACE(a_request_that_never_ends_is_given_up),
		PLACE(what_does_not_fit_stays_as_it_is),
		PLACE(a_folder_that_is_none_is_refused),
		PLACE(a_disk_that_takes_nothing_is_reported_and_hurts_nobody),
		PLACE(more_than_may_wait_for_the_disk_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
