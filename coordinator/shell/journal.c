#include "coordinator/shell/journal.h"

#include "base/assert.h"
#include "base/durable_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR_MAX 1000 // characters of the folder's name
#define NAME_LEN (16 + 1 + 1 + 8) // "0123456789abcdef-0.request"
#define PATH_CAP (DIR_MAX + 1 + NAME_LEN + 4 + 1) // with the ".new" of one half written
#define WIPE_BLOCK 4096

_Static_assert(JOURNAL_TRIES_MAX < 10, "a file's name has one digit for it");

struct journal_op {
	struct journal_op *next;
	struct journal_key key;
	uint8_t *data; // owned; NULL: remove
	size_t len;
	enum err err;
	struct errmsg em;
};

struct journal {
	struct loop *loop;
	const struct log *log;
	char dir[PATH_CAP];
	journal_done done;
	void *ctx;
	uint64_t last_number;
	struct loop_task task; // runs completions

	pthread_t thread;
	pthread_mutex_t mutex; // guards what follows
	pthread_cond_t wake;
	bool is_stopping;
	struct journal_op *queue, **queue_last;
	struct journal_op *dones, **dones_last;
	uint32_t n_puts; // in the queue
	size_t n_bytes;
};

// ---- files

static void file_path(const char *dir, struct journal_key key, char path[PATH_CAP])
{
	snprintf(path, PATH_CAP, "%.*s/%016llx-%d.request", DIR_MAX, dir, (unsigned long long)key.number, (int)key.n_tries);
}

// parse_name: true for the name of a request.
static bool parse_name(const char *name, struct journal_key *key)
{
	if (strlen(name) != NAME_LEN || strspn(name, "0123456789abcdef") != 16 || name[16] != '-' || strcmp(name + 18, ".request") != 0)
		return false;
	if (name[17] < '0' || name[17] > '9')
		return false;
	key->number = strtoull(name, NULL, 16);
	key->n_tries = name[17] - '0';
	return key->number != 0 && key->number != UINT64_MAX;
}

static bool overwrite(int fd)
{
	static const uint8_t zeros[WIPE_BLOCK];
	struct stat st;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return false;
	for (off_t at = 0; at < st.st_size;) {
		size_t part = st.st_size - at < WIPE_BLOCK ? (size_t)(st.st_size - at) : WIPE_BLOCK;
		ssize_t n = pwrite(fd, zeros, part, at);
		if (n <= 0 && errno != EINTR)
			return false;
		at += n > 0 ? n : 0;
	}
	return fdatasync(fd) == 0;
}

// wipe overwrites and removes. A file that cannot be overwritten is removed all the same.
static enum err wipe(const char *path, struct errmsg *em)
{
	int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return OK;
	enum err e = fd >= 0 && overwrite(fd) ? OK : errmsg_fail(em, ERR_IO, "%s: cannot be overwritten: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	if (unlink(path) != 0 && errno != ENOENT)
		e = errmsg_fail(em, ERR_IO, "%s: cannot be removed: %s", path, strerror(errno));
	return e;
}

static void wipe_logged(const struct log *log, const char *path)
{
	struct errmsg em;
	if (wipe(path, &em) != OK)
		log_line(log, LOG_ERROR, "journal: %s", em.text);
}

// ---- the thread

static void carry_out(struct journal *j, struct journal_op *op)
{
	char path[PATH_CAP];
	file_path(j->dir, op->key, path);
	if (op->data == NULL)
		op->err = wipe(path, &op->em);
	else
		op->err = durable_file_write(path, op->data, op->len, &op->em);
}

static void free_op(struct journal_op *op)
{
	if (op->data != NULL)
		sodium_memzero(op->data, op->len);
	free(op->data);
	free(op);
}

static struct journal_op *take_first(struct journal_op **first, struct journal_op ***last)
{
	struct journal_op *op = *first;
	if (op == NULL)
		return NULL;
	*first = op->next;
	if (*first == NULL)
		*last = first;
	op->next = NULL;
	return op;
}

static void *journal_thread(void *ctx)
{
	struct journal *j = ctx;
	pthread_mutex_lock(&j->mutex);
	for (;;) {
		while (j->queue == NULL && !j->is_stopping)
			pthread_cond_wait(&j->wake, &j->mutex);
		struct journal_op *op = take_first(&j->queue, &j->queue_last);
		if (op == NULL)
			break;
		if (op->data != NULL) {
			j->n_puts--;
			j->n_bytes -= op->len;
		}
		pthread_mutex_unlock(&j->mutex);
		carry_out(j, op);
		pthread_mutex_lock(&j->mutex);
		*j->dones_last = op;
		j->dones_last = &op->next;
		loop_task_post(j->loop, &j->task);
	}
	pthread_mutex_unlock(&j->mutex);
	return NULL;
}

static void on_dones(void *ctx)
{
	struct journal *j = ctx;
	for (;;) {
		pthread_mutex_lock(&j->mutex);
		struct journal_op *op = take_first(&j->dones, &j->dones_last);
		pthread_mutex_unlock(&j->mutex);
		if (op == NULL)
			return;
		if (op->data != NULL)
			j->done(j->ctx, op->key, op->err, op->em.text);
		else if (op->err != OK)
			log_line(j->log, LOG_ERROR, "journal: %s", op->em.text);
		free_op(op);
	}
}

// ---- writing

// enqueue takes over op, which is reported at once when the disk is too far behind.
static void enqueue(struct journal *j, struct journal_op *op)
{
	pthread_mutex_lock(&j->mutex);
	bool is_put = op->data != NULL, fits = j->n_puts < JOURNAL_QUEUE_MAX && j->n_bytes + op->len <= JOURNAL_QUEUE_BYTES;
	if (!is_put || fits) {
		*j->queue_last = op;
		j->queue_last = &op->next;
		j->n_puts += is_put;
		j->n_bytes += op->len;
		pthread_cond_signal(&j->wake);
	} else {
		op->err = errmsg_fail(&op->em, ERR_BUSY, "the disk does not keep up");
		*j->dones_last = op;
		j->dones_last = &op->next;
		loop_task_post(j->loop, &j->task);
	}
	pthread_mutex_unlock(&j->mutex);
}

struct journal_key journal_put(struct journal *j, const struct request_record *r)
{
	struct journal_op *op = calloc(1, sizeof *op);
	if (op == NULL)
		abort(); // a few hundred bytes: nothing works any more
	op->key.number = ++j->last_number;
	op->data = request_record_encode(r, &op->len);
	struct journal_key key = op->key;
	if (op->data == NULL)
		abort(); // less than the prompt it was made from
	enqueue(j, op);
	return key;
}

// drop_put takes a put out of the queue; NULL: it is not there any more. The caller has the mutex.
static struct journal_op *drop_put(struct journal *j, struct journal_key key)
{
	struct journal_op **at = &j->queue;
	while (*at != NULL && ((*at)->data == NULL || (*at)->key.number != key.number))
		at = &(*at)->next;
	struct journal_op *op = *at;
	if (op == NULL)
		return NULL;
	*at = op->next;
	if (*at == NULL)
		j->queue_last = at;
	j->n_puts--;
	j->n_bytes -= op->len;
	return op;
}

void journal_remove(struct journal *j, struct journal_key key)
{
	pthread_mutex_lock(&j->mutex);
	struct journal_op *put = drop_put(j, key);
	pthread_mutex_unlock(&j->mutex);
	if (put != NULL) {
		free_op(put);
		return;
	}
	struct journal_op *op = calloc(1, sizeof *op);
	if (op == NULL)
		abort();
	op->key = key;
	enqueue(j, op);
}

// ---- loading

struct name_list {
	struct journal_key *at; // (n), sorted
	size_t n, cap;
};

static int compare_keys(const void *a, const void *b)
{
	const struct journal_key *x = a, *y = b;
	return x->number < y->number ? -1 : x->number > y->number;
}

// list_names reads the folder; what a crash left half written goes.
static enum err list_names(const struct log *log, const char *dir, struct name_list *out, struct errmsg *em)
{
	static const char half[] = ".request.new";
	DIR *d = opendir(dir);
	if (d == NULL)
		return errmsg_fail(em, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: %s", dir, strerror(errno));
	enum err e = OK;
	const struct dirent *entry;
	while (e == OK && (entry = readdir(d)) != NULL) {
		struct journal_key key;
		size_t len = strlen(entry->d_name);
		char path[PATH_CAP];
		if (len == NAME_LEN + 4 && strcmp(entry->d_name + len - (sizeof half - 1), half) == 0 &&
			snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) < (int)sizeof path)
			wipe_logged(log, path);
		if (!parse_name(entry->d_name, &key))
			continue;
		if (out->n == out->cap) {
			size_t cap = out->cap ? 2 * out->cap : 64;
			struct journal_key *at = realloc(out->at, cap * sizeof *at);
			if (at == NULL) {
				e = errmsg_fail(em, ERR_NOMEM, "%s: no memory for its list", dir);
				break;
			}
			out->at = at;
			out->cap = cap;
		}
		out->at[out->n++] = key;
	}
	closedir(d);
	if (out->n > 1)
		qsort(out->at, out->n, sizeof *out->at, compare_keys);
	return e;
}

static enum err read_file(const char *path, struct request_record *r, struct errmsg *em)
{
	uint8_t *data;
	size_t len;
	enum err e = durable_file_load(path, REQUEST_RECORD_MAX, &data, &len, em);
	if (e == ERR_LIMIT)
		return errmsg_fail(em, ERR_FORMAT, "%s: damaged: longer than a request is", path);
	if (e != OK)
		return e;
	if (sodium_is_zero(data, len))
		e = ERR_CANCELLED; // its removal was under way
	else if ((e = request_record_decode(data, len, r, em)) != OK)
		e = errmsg_prefix(em, e, "%s", path);
	sodium_memzero(data, len);
	free(data);
	return e;
}

// begin_again counts the try in the file's name, so that it is known when this one ends badly too.
static bool begin_again(struct journal *j, const char *path, struct journal_key *key)
{
	char next[PATH_CAP];
	struct errmsg em;
	if (key->n_tries >= JOURNAL_TRIES_MAX) {
		log_line(j->log, LOG_WARNING, "journal: a request was begun again %d times and never ended: given up", JOURNAL_TRIES_MAX);
		wipe_logged(j->log, path);
		return false;
	}
	struct journal_key counted = {key->number, key->n_tries + 1};
	file_path(j->dir, counted, next);
	if (durable_file_publish(path, next, &em) == OK)
		*key = counted;
	else
		log_line(j->log, LOG_ERROR, "journal: %s", em.text);
	return true;
}

void journal_load(struct journal *j, const struct journal_loader *loader)
{
	struct name_list list = {0};
	struct errmsg em;
	if (list_names(j->log, j->dir, &list, &em) != OK)
		log_line(j->log, LOG_ERROR, "journal: %s", em.text);
	for (size_t i = 0; i < list.n; i++) {
		char path[PATH_CAP];
		struct request_record r;
		struct journal_key key = list.at[i];
		j->last_number = key.number;
		file_path(j->dir, key, path);
		enum err e = read_file(path, &r, &em);
		if (e == OK && loader->fits(loader->ctx, &r) && begin_again(j, path, &key))
			loader->take(loader->ctx, key, &r);
		else if (e == OK)
			request_record_deinit(&r);
		else if (e != ERR_CANCELLED)
			log_line(j->log, LOG_ERROR, "journal: %s%s", em.text, e == ERR_FORMAT ? "; removed" : "; left out");
		if (e == ERR_CANCELLED || e == ERR_FORMAT)
			wipe_logged(j->log, path);
	}
	free(list.at);
}

void journal_erase(const struct log *log, const char *dir)
{
	struct name_list list = {0};
	struct errmsg em;
	enum err e = list_names(log, dir, &list, &em);
	if (e != OK && e != ERR_NOT_FOUND)
		log_line(log, LOG_ERROR, "journal: %s", em.text);
	for (size_t i = 0; i < list.n; i++) {
		char path[PATH_CAP];
		file_path(dir, list.at[i], path);
		wipe_logged(log, path);
	}
	if (list.n > 0)
		log_line(log, LOG_WARNING, "journal: %zu requests of an earlier run removed, as no journal is wanted", list.n);
	free(list.at);
}

// ---- opening

static enum err make_folder(const char *dir, struct errmsg *em)
{
	struct stat st;
	if (strlen(dir) > DIR_MAX)
		return errmsg_fail(em, ERR_LIMIT, "%s: the name is too long", dir);
	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return errmsg_fail(em, ERR_IO, "%s: cannot make the folder: %s", dir, strerror(errno));
	if (lstat(dir, &st) != 0)
		return errmsg_fail(em, ERR_IO, "%s: %s", dir, strerror(errno));
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return errmsg_fail(em, ERR_AUTH, "%s: not a folder of this user's alone (want mode 0700)", dir);
	return OK;
}

enum err journal_open(struct loop *loop, const struct log *log, const char *dir, journal_done done, void *ctx, struct journal **out,
	struct errmsg *em)
{
	enum err e = make_folder(dir, em);
	if (e != OK)
		return e;
	struct journal *j = calloc(1, sizeof *j);
	if (j == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the journal");
	j->loop = loop;
	j->log = log;
	j->done = done;
	j->ctx = ctx;
	j->queue_last = &j->queue;
	j->dones_last = &j->dones;
	snprintf(j->dir, sizeof j->dir, "%s", dir);
	loop_task_init(&j->task, on_dones, j);
	pthread_mutex_init(&j->mutex, NULL);
	pthread_cond_init(&j->wake, NULL);
	if (pthread_create(&j->thread, NULL, journal_thread, j) != 0) {
		pthread_cond_destroy(&j->wake);
		pthread_mutex_destroy(&j->mutex);
		free(j);
		return errmsg_fail(em, ERR_NOMEM, "cannot start the journal's thread");
	}
	*out = j;
	return OK;
}

void journal_close(struct journal *j)
{
	struct journal_op *op;
	if (j == NULL)
		return;
	pthread_mutex_lock(&j->mutex);
	j->is_stopping = true;
	pthread_cond_signal(&j->wake);
	pthread_mutex_unlock(&j->mutex);
	pthread_join(j->thread, NULL);
	loop_task_cancel(j->loop, &j->task);
	while ((op = take_first(&j->dones, &j->dones_last)) != NULL) {
		if (op->err != OK)
			log_line(j->log, LOG_ERROR, "journal: %s", op->em.text);
		free_op(op);
	}
	pthread_cond_destroy(&j->wake);
	pthread_mutex_destroy(&j->mutex);
	free(j);
}
