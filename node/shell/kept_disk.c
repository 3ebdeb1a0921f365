#include "node/shell/kept_disk.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNTER_BYTES 8
#define TAG_BYTES crypto_aead_chacha20poly1305_ietf_ABYTES
#define NONCE_BYTES crypto_aead_chacha20poly1305_ietf_NPUBBYTES
#define KEY_LEN crypto_aead_chacha20poly1305_ietf_KEYBYTES
#define AD_BYTES 20            // session, layer, entry, position
#define AT_ONCE_BYTES (1 << 20) // sealed before they are written together; one frame at least
#define SPARES 2               // buffers kept for the next order: fresh memory costs the loop more than the copying does
_Static_assert(COUNTER_BYTES + TAG_BYTES == NODE_KEPT_FRAME_EXTRA, "the core counts with the frame's size");

struct rows {
	uint8_t *data; // NULL: there was no memory
	size_t cap;
};

struct order {
	struct order *next;
	bool is_read;
	uint32_t id;
	struct session_id session;
	int32_t layer, entry, pos, n_rows;
	int32_t buf, row; // the caller's
	size_t row_bytes;
	enum err err;
	struct errmsg em;
	struct rows rows; // (n_rows, row_bytes), owned
	int32_t n_runs;
	struct node_disk_run runs[];
};

struct orders {
	struct order *first, **last;
};

struct kept_disk {
	int fd;
	uint8_t *key;      // in guarded memory that is not swapped, where the system allows that
	uint64_t counter;  // of the next row; the thread's
	uint8_t *frames;   // the thread's scratch
	size_t frames_cap;

	struct loop *loop;
	struct loop_task task;
	kept_disk_fn done;
	void *ctx;

	pthread_t thread;
	pthread_mutex_t mutex; // over what follows
	pthread_cond_t wake;
	bool is_stopping;
	struct orders todo, finished;
	struct rows spares[SPARES];
};

// ---- rows

static size_t frame_bytes(const struct order *o)
{
	return COUNTER_BYTES + o->row_bytes + TAG_BYTES;
}

static void put_ad(const struct order *o, int32_t row, uint8_t ad[AD_BYTES])
{
	store_u64(ad, o->session.v);
	store_u32(ad + 8, (uint32_t)o->layer);
	store_u32(ad + 12, (uint32_t)o->entry);
	store_u32(ad + 16, (uint32_t)(o->pos + row));
}

static void put_nonce(const uint8_t counter[COUNTER_BYTES], uint8_t nonce[NONCE_BYTES])
{
	memset(nonce, 0, NONCE_BYTES);
	memcpy(nonce + NONCE_BYTES - COUNTER_BYTES, counter, COUNTER_BYTES);
}

static void seal(struct kept_disk *d, const struct order *o, int32_t row, uint8_t *frame)
{
	uint8_t ad[AD_BYTES], nonce[NONCE_BYTES];
	put_ad(o, row, ad);
	store_u64(frame, d->counter++);
	put_nonce(frame, nonce);
	crypto_aead_chacha20poly1305_ietf_encrypt(frame + COUNTER_BYTES, NULL, o->rows.data + (size_t)row * o->row_bytes, o->row_bytes, ad, sizeof ad, NULL,
		nonce, d->key);
}

static bool open_frame(const struct kept_disk *d, const struct order *o, int32_t row, const uint8_t *frame)
{
	uint8_t ad[AD_BYTES], nonce[NONCE_BYTES];
	put_ad(o, row, ad);
	put_nonce(frame, nonce);
	return crypto_aead_chacha20poly1305_ietf_decrypt(o->rows.data + (size_t)row * o->row_bytes, NULL, NULL, frame + COUNTER_BYTES, o->row_bytes + TAG_BYTES, ad,
		sizeof ad, nonce, d->key) == 0;
}

// ---- the file

static enum err write_all(int fd, const uint8_t *data, size_t len, off_t at, struct errmsg *em)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, data, len, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return errmsg_fail(em, ERR_IO, "%s", n < 0 ? strerror(errno) : "nothing was written");
		data += n;
		len -= (size_t)n;
		at += n;
	}
	return OK;
}

static enum err read_all(int fd, uint8_t *data, size_t len, off_t at, struct errmsg *em)
{
	while (len > 0) {
		ssize_t n = pread(fd, data, len, at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return errmsg_fail(em, ERR_IO, "%s", n < 0 ? strerror(errno) : "the file ends before what was written");
		data += n;
		len -= (size_t)n;
		at += n;
	}
	return OK;
}

// scratch makes room for frames that are written or read together. Returns how many; 0: there is no memory.
static int32_t scratch(struct kept_disk *d, const struct order *o)
{
	size_t frame = frame_bytes(o), want = frame > AT_ONCE_BYTES ? frame : AT_ONCE_BYTES;
	if (d->frames_cap < want) {
		free(d->frames);
		d->frames = malloc(want);
		d->frames_cap = d->frames == NULL ? 0 : want;
	}
	return (int32_t)(d->frames_cap / frame);
}

// do_part seals and writes, or reads and opens, n rows from `row` on, whose frames stand side by side.
static enum err do_part(struct kept_disk *d, struct order *o, int32_t row, int32_t n, uint32_t frame)
{
	size_t each = frame_bytes(o), len = (size_t)n * each;
	off_t at = (off_t)frame * (off_t)each;
	enum err e = o->is_read ? read_all(d->fd, d->frames, len, at, &o->em) : OK;
	for (int32_t i = 0; i < n && e == OK; i++) {
		if (!o->is_read)
			seal(d, o, row + i, d->frames + (size_t)i * each);
		else if (!open_frame(d, o, row + i, d->frames + (size_t)i * each))
			e = errmsg_fail(&o->em, ERR_AUTH, "position %d is not what was written", (int)(o->pos + row + i));
	}
	return e == OK && !o->is_read ? write_all(d->fd, d->frames, len, at, &o->em) : e;
}

static enum err carry_out(struct kept_disk *d, struct order *o)
{
	int32_t row = 0, at_once = scratch(d, o);
	enum err e = OK;
	if (o->rows.data == NULL || at_once == 0)
		return errmsg_fail(&o->em, ERR_NOMEM, "out of memory");
	for (int32_t i = 0; i < o->n_runs && e == OK; i++) {
		for (int32_t k = 0; k < o->runs[i].n_rows && e == OK; k += at_once) {
			int32_t n = o->runs[i].n_rows - k < at_once ? o->runs[i].n_rows - k : at_once;
			e = do_part(d, o, row, n, o->runs[i].frame + (uint32_t)k);
			row += n;
		}
	}
	return e;
}

// ---- orders

static void add(struct orders *l, struct order *o)
{
	o->next = NULL;
	*l->last = o;
	l->last = &o->next;
}

static struct order *take(struct orders *l)
{
	struct order *o = l->first;
	if (o == NULL)
		return NULL;
	l->first = o->next;
	if (l->first == NULL)
		l->last = &l->first;
	return o;
}

// ---- buffers of rows, under the mutex

static struct rows take_rows(struct kept_disk *d, size_t len)
{
	for (int i = 0; i < SPARES; i++) {
		struct rows r = d->spares[i];
		if (r.cap < len)
			continue;
		d->spares[i] = (struct rows){0};
		return r;
	}
	uint8_t *data = malloc(len);
	return (struct rows){.data = data, .cap = data == NULL ? 0 : len};
}

// give_rows keeps the larger ones.
static void give_rows(struct kept_disk *d, struct rows *r)
{
	for (int i = 0; i < SPARES && r->data != NULL; i++) {
		struct rows kept = d->spares[i];
		if (kept.cap >= r->cap)
			continue;
		d->spares[i] = *r;
		*r = kept;
	}
	free(r->data);
	*r = (struct rows){0};
}

static void *disk_thread(void *ctx)
{
	struct kept_disk *d = ctx;
	pthread_mutex_lock(&d->mutex);
	for (;;) {
		while (d->todo.first == NULL && !d->is_stopping)
			pthread_cond_wait(&d->wake, &d->mutex);
		if (d->is_stopping)
			break;
		struct order *o = take(&d->todo);
		pthread_mutex_unlock(&d->mutex);
		o->err = carry_out(d, o);
		pthread_mutex_lock(&d->mutex);
		if (!o->is_read)
			give_rows(d, &o->rows);
		add(&d->finished, o);
		loop_task_post(d->loop, &d->task);
	}
	pthread_mutex_unlock(&d->mutex);
	return NULL;
}

static struct order *take_finished(struct kept_disk *d)
{
	pthread_mutex_lock(&d->mutex);
	struct order *o = take(&d->finished);
	pthread_mutex_unlock(&d->mutex);
	return o;
}

static void drop_order(struct kept_disk *d, struct order *o)
{
	pthread_mutex_lock(&d->mutex);
	give_rows(d, &o->rows);
	pthread_mutex_unlock(&d->mutex);
	free(o);
}

static void on_finished(void *ctx)
{
	struct kept_disk *d = ctx;
	for (struct order *o; (o = take_finished(d)) != NULL; drop_order(d, o))
		d->done(d->ctx, &(struct kept_disk_done){.id = o->id, .is_read = o->is_read, .err = o->err, .text = o->em.text, .rows = o->rows.data,
			.len = (size_t)o->n_rows * o->row_bytes, .buf = o->buf, .off = (size_t)o->row * o->row_bytes});
}

static void submit(struct kept_disk *d, const struct node_effect *f, bool is_read, const uint8_t *rows)
{
	size_t len = (size_t)f->u.disk.n_tokens * f->u.disk.row_bytes, runs_len = (size_t)f->u.disk.n_runs * sizeof(struct node_disk_run);
	struct order *o = malloc(sizeof *o + runs_len);
	ASSERT(o != NULL); // a few hundred bytes: without them nothing of this process goes on
	*o = (struct order){.is_read = is_read, .id = f->u.disk.id, .session = f->u.disk.session, .layer = f->u.disk.layer, .entry = f->u.disk.entry,
		.pos = f->u.disk.pos, .n_rows = f->u.disk.n_tokens, .buf = f->u.disk.buf, .row = f->u.disk.row, .row_bytes = f->u.disk.row_bytes, .n_runs = f->u.disk.n_runs};
	memcpy(o->runs, f->u.disk.runs, runs_len);
	pthread_mutex_lock(&d->mutex);
	o->rows = take_rows(d, len); // without them the order fails, in its turn
	pthread_mutex_unlock(&d->mutex);
	if (!is_read && o->rows.data != NULL)
		memcpy(o->rows.data, rows, len);
	pthread_mutex_lock(&d->mutex);
	add(&d->todo, o);
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->mutex);
}

void kept_disk_write(struct kept_disk *d, const struct node_effect *f, const uint8_t *rows)
{
	submit(d, f, false, rows);
}

void kept_disk_read(struct kept_disk *d, const struct node_effect *f)
{
	submit(d, f, true, NULL);
}

int kept_disk_fd(const struct kept_disk *d)
{
	return d->fd;
}

uint64_t kept_disk_bytes(size_t buf_bytes)
{
	// The core reads one step's rows at a time. An order's buffer may be a spare one that is larger than its rows.
	uint64_t n_bufs = NODE_KEPT_WRITING_BUFS + 1 + SPARES, frame = (uint64_t)buf_bytes + NODE_KEPT_FRAME_EXTRA;
	return n_bufs * buf_bytes + (frame > AT_ONCE_BYTES ? frame : AT_ONCE_BYTES);
}

// ---- opening

// open_nameless makes a file that no directory lists. A name it had to have is taken away before anything is written.
static enum err open_nameless(const char *dir, int *fd, struct errmsg *em)
{
	*fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
	if (*fd >= 0)
		return OK;
	char path[PATH_MAX];
	uint64_t draw;
	randombytes_buf(&draw, sizeof draw);
	if (snprintf(path, sizeof path, "%s/kept-%016llx", dir, (unsigned long long)draw) >= (int)sizeof path)
		return errmsg_fail(em, ERR_LIMIT, "%s: the name is too long", dir);
	*fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (*fd < 0)
		return errmsg_fail(em, ERR_IO, "%s: no file for kept states can be made there: %s", dir, strerror(errno));
	if (unlink(path) == 0)
		return OK;
	enum err e = errmsg_fail(em, ERR_IO, "%s: cannot be removed: %s", path, strerror(errno));
	close(*fd);
	return e;
}

enum err kept_disk_open(const char *dir, struct loop *loop, kept_disk_fn done, void *ctx, struct kept_disk **out, struct errmsg *em)
{
	struct kept_disk *d = calloc(1, sizeof *d);
	if (d == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for kept states");
	d->fd = -1;
	d->loop = loop;
	d->done = done;
	d->ctx = ctx;
	d->todo.last = &d->todo.first;
	d->finished.last = &d->finished.first;
	loop_task_init(&d->task, on_finished, d);
	enum err e = open_nameless(dir, &d->fd, em);
	d->key = e == OK ? sodium_malloc(KEY_LEN) : NULL;
	if (e == OK && d->key == NULL)
		e = errmsg_fail(em, ERR_NOMEM, "no memory for a key");
	if (e != OK)
		goto fail;
	randombytes_buf(d->key, KEY_LEN);
	pthread_mutex_init(&d->mutex, NULL);
	pthread_cond_init(&d->wake, NULL);
	if (pthread_create(&d->thread, NULL, disk_thread, d) != 0) {
		e = errmsg_fail(em, ERR_NOMEM, "cannot start a thread for kept states");
		pthread_cond_destroy(&d->wake);
		pthread_mutex_destroy(&d->mutex);
		goto fail;
	}
	*out = d;
	return OK;
fail:
	sodium_free(d->key);
	if (d->fd >= 0)
		close(d->fd);
	free(d);
	return e;
}

void kept_disk_close(struct kept_disk *d)
{
	if (d == NULL)
		return;
	pthread_mutex_lock(&d->mutex);
	d->is_stopping = true;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->mutex);
	pthread_join(d->thread, NULL);
	loop_task_cancel(d->loop, &d->task);
	for (struct order *o; (o = take(&d->todo)) != NULL;)
		drop_order(d, o);
	for (struct order *o; (o = take(&d->finished)) != NULL;)
		drop_order(d, o);
	for (int i = 0; i < SPARES; i++)
		free(d->spares[i].data);
	pthread_cond_destroy(&d->wake);
	pthread_mutex_destroy(&d->mutex);
	close(d->fd);
	sodium_free(d->key); // wipes it
	free(d->frames);
	free(d);
}
