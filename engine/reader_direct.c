// The way past the page cache: a few threads that read pieces of a unit at once into its buffer, because a disk is fast only with several
// reads under way. Plain pread: a ring shared with the kernel is forbidden in many containers.
#include "engine/weight_reader.h"

#include "base/assert.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS 4
#define CHUNK_BYTES (512 * 1024) // of one pread: enough to be fast, and a unit has several
#define REQUESTS_MAX 64          // parts begun and not finished

// A part under way.
struct request {
	const struct weight_place *place; // whose
	const struct weight_file *file;
	int fd;
	uint8_t *to;
	uint64_t offset, bytes; // whole pages
	uint64_t need;          // bytes that must be there: the last page may lie across the end of the file
	uint64_t taken, done;
	int code;               // errno of a failure, -1: the file ended
	uint64_t bad_offset;
};

struct direct {
	struct weight_reader base;
	int *fds; // (n_files), without the page cache
	pthread_t threads[THREADS];
	int n_threads;
	pthread_mutex_t mutex; // guards what follows
	pthread_cond_t more, done;
	struct request requests[REQUESTS_MAX]; // a ring: first .. first + n
	uint32_t first, n;
	bool is_stopping;
};

static void read_chunk(struct request *q, uint8_t *to, uint64_t offset, uint64_t bytes, int *code, uint64_t *bad)
{
	uint64_t end = q->offset + q->need, got = 0;
	*code = 0;
	while (got < bytes && offset + got < end) {
		ssize_t n = pread(q->fd, to + got, bytes - got, (off_t)(offset + got));
		if (n < 0 && errno == EINTR)
			continue;
		got += n > 0 ? (uint64_t)n : 0;
		if (n > 0 && (offset + got >= end || (uint64_t)n % WEIGHT_PAGE == 0))
			continue;
		*code = n < 0 ? errno : -1;
		*bad = offset + got;
		return;
	}
}

static struct request *find_work(struct direct *d)
{
	for (uint32_t i = 0; i < d->n; i++) {
		struct request *q = &d->requests[(d->first + i) % REQUESTS_MAX];
		if (q->taken < q->bytes)
			return q;
	}
	return NULL;
}

static void *reading_thread(void *ctx)
{
	struct direct *d = ctx;
	pthread_mutex_lock(&d->mutex);
	for (;;) {
		struct request *q;
		while ((q = find_work(d)) == NULL && !d->is_stopping)
			pthread_cond_wait(&d->more, &d->mutex);
		if (d->is_stopping)
			break;
		uint64_t at = q->taken, bytes = q->bytes - at < CHUNK_BYTES ? q->bytes - at : CHUNK_BYTES, bad = 0;
		int code;
		q->taken += bytes;
		pthread_mutex_unlock(&d->mutex);
		read_chunk(q, q->to + at, q->offset + at, bytes, &code, &bad);
		pthread_mutex_lock(&d->mutex);
		if (code != 0 && (q->code == 0 || bad < q->bad_offset)) {
			q->code = code;
			q->bad_offset = bad;
		}
		q->done += bytes;
		if (q->done == q->bytes)
			pthread_cond_signal(&d->done);
	}
	pthread_mutex_unlock(&d->mutex);
	return NULL;
}

// is_simple tells whether a part lies in one piece of one file, so that its pages can be read as they are.
static bool is_simple(const struct weight_reader *r, const struct unit_part *part, struct weight_piece *piece)
{
	return weight_files_piece(r->files, part->at, part->bytes, piece, NULL) == OK && piece->bytes == part->bytes;
}

static uint64_t part_bytes(const struct unit_part *part)
{
	struct unit one = {.n_parts = 1, .parts = {*part}};
	return weight_reader_unit_bytes(&one);
}

static void begin(struct weight_reader *r, const struct unit *u, struct weight_place *p)
{
	struct direct *d = (struct direct *)r;
	uint8_t *to = p->memory;
	pthread_mutex_lock(&d->mutex);
	for (int32_t i = 0; i < u->n_parts; i++) {
		struct weight_piece piece;
		const struct unit_part *part = &u->parts[i];
		p->views[i] = part->bytes > 0 ? to : NULL; // finish corrects it
		if (part->bytes > 0 && is_simple(r, part, &piece)) {
			ASSERT(d->n < REQUESTS_MAX);
			uint64_t skip = piece.offset % WEIGHT_PAGE;
			d->requests[(d->first + d->n++) % REQUESTS_MAX] = (struct request){
				.place = p, .file = &r->files->files[piece.file], .fd = d->fds[piece.file], .to = to, .offset = piece.offset - skip,
				.bytes = (skip + piece.bytes + WEIGHT_PAGE - 1) / WEIGHT_PAGE * WEIGHT_PAGE, .need = skip + piece.bytes,
			};
			p->views[i] = to + skip;
		}
		to += part->bytes > 0 ? part_bytes(part) : 0;
	}
	pthread_cond_broadcast(&d->more);
	pthread_mutex_unlock(&d->mutex);
}

static bool is_done(const struct direct *d, const struct weight_place *p)
{
	for (uint32_t i = 0; i < d->n; i++) {
		const struct request *q = &d->requests[(d->first + i) % REQUESTS_MAX];
		if (q->place == p && q->done < q->bytes)
			return false;
	}
	return true;
}

// take_result frees the requests of a place and tells of the first failure.
static enum err take_result(struct direct *d, const struct weight_place *p, struct errmsg *em)
{
	enum err e = OK;
	for (uint32_t i = 0; i < d->n; i++) {
		struct request *q = &d->requests[(d->first + i) % REQUESTS_MAX];
		if (q->place != p)
			continue;
		if (q->code > 0 && e == OK)
			e = errmsg_fail(em, ERR_IO, "%s: cannot read at offset %" PRIu64 ": %s", q->file->path, q->bad_offset, strerror(q->code));
		else if (q->code < 0 && e == OK)
			e = errmsg_fail(em, ERR_IO, "%s: ends at offset %" PRIu64 ", where weights should be", q->file->path, q->bad_offset);
		q->place = NULL;
	}
	while (d->n > 0 && d->requests[d->first].place == NULL) {
		d->first = (d->first + 1) % REQUESTS_MAX;
		d->n--;
	}
	return e;
}

// gather reads a part that lies in several pieces, which no page boundary need separate.
static enum err gather(struct weight_reader *r, const struct unit_part *part, const void *view, struct errmsg *em)
{
	struct weight_piece piece;
	if (part->bytes == 0 || is_simple(r, part, &piece))
		return OK;
	union { // the buffer is ours; the view is what others get of it
		const void *view;
		void *to;
	} p = {.view = view};
	return weight_files_read(r->files, part->at, part->bytes, p.to, em);
}

static enum err finish(struct weight_reader *r, const struct unit *u, struct weight_place *p, struct errmsg *em)
{
	struct direct *d = (struct direct *)r;
	pthread_mutex_lock(&d->mutex);
	while (!is_done(d, p))
		pthread_cond_wait(&d->done, &d->mutex);
	enum err e = take_result(d, p, em);
	pthread_mutex_unlock(&d->mutex);
	for (int32_t i = 0; i < u->n_parts && e == OK; i++)
		e = gather(r, &u->parts[i], p->views[i], em);
	return e;
}

static void drop(struct weight_reader *r, const struct unit *u, struct weight_place *p)
{
	(void)r;
	for (int32_t i = 0; i < u->n_parts; i++)
		p->views[i] = NULL;
}

static bool lock(struct weight_reader *r, const struct unit *u, const struct weight_place *p)
{
	(void)r;
	return mlock(p->memory, weight_reader_unit_bytes(u)) == 0;
}

static void close_reader(struct weight_reader *r)
{
	struct direct *d = (struct direct *)r;
	pthread_mutex_lock(&d->mutex);
	d->is_stopping = true;
	pthread_cond_broadcast(&d->more);
	pthread_mutex_unlock(&d->mutex);
	for (int i = 0; i < d->n_threads; i++)
		pthread_join(d->threads[i], NULL);
	for (int32_t i = 0; d->fds != NULL && i < r->files->n_files; i++)
		if (d->fds[i] >= 0)
			close(d->fds[i]);
	pthread_cond_destroy(&d->more);
	pthread_cond_destroy(&d->done);
	pthread_mutex_destroy(&d->mutex);
	free(d->fds);
	free(d);
}

static const struct weight_reader_ops ops = {.close = close_reader, .begin = begin, .finish = finish, .drop = drop, .lock = lock};

// open_again opens the very file that is open, by its descriptor: under its path there may be another one by now.
static enum err open_again(const struct weight_file *f, int *fd, struct errmsg *em)
{
	char link[32];
	snprintf(link, sizeof link, "/proc/self/fd/%d", f->fd);
	*fd = open(link, O_RDONLY | O_CLOEXEC | O_DIRECT);
	if (*fd < 0)
		return errmsg_fail(em, ERR_UNSUPPORTED, "%s: its file system does not read past the page cache (O_DIRECT: %s)", f->path, strerror(errno));
	return OK;
}

// try_read: some file systems open with O_DIRECT and refuse to read, or want larger pages.
static enum err try_read(const struct weight_file *f, int fd, struct errmsg *em)
{
	void *page = mmap(NULL, WEIGHT_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a page");
	ssize_t n = pread(fd, page, WEIGHT_PAGE, 0);
	int code = errno;
	munmap(page, WEIGHT_PAGE);
	return n > 0 ? OK : errmsg_fail(em, ERR_UNSUPPORTED, "%s: cannot be read past the page cache (%s)", f->path, n < 0 ? strerror(code) : "empty");
}

static enum err start_threads(struct direct *d, struct errmsg *em)
{
	while (d->n_threads < THREADS && thread_start(&d->threads[d->n_threads], reading_thread, d))
		d->n_threads++;
	return d->n_threads > 0 ? OK : errmsg_fail(em, ERR_LIMIT, "cannot start a thread that reads weights");
}

enum err direct_reader_open(const struct weight_files *files, struct weight_reader **out, struct errmsg *em)
{
	struct direct *d = calloc(1, sizeof *d);
	if (d == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a reader");
	d->base = (struct weight_reader){.ops = &ops, .kind = READER_DIRECT, .files = files};
	pthread_mutex_init(&d->mutex, NULL);
	pthread_cond_init(&d->more, NULL);
	pthread_cond_init(&d->done, NULL);
	d->fds = malloc((size_t)files->n_files * sizeof *d->fds);
	enum err e = d->fds != NULL ? OK : errmsg_fail(em, ERR_NOMEM, "no memory for a reader");
	for (int32_t i = 0; d->fds != NULL && i < files->n_files; i++)
		d->fds[i] = -1;
	for (int32_t i = 0; e == OK && i < files->n_files; i++) {
		e = open_again(&files->files[i], &d->fds[i], em);
		if (e == OK)
			e = try_read(&files->files[i], d->fds[i], em);
	}
	if (e == OK)
		e = start_threads(d, em);
	if (e != OK) {
		close_reader(&d->base);
		return e;
	}
	*out = &d->base;
	return OK;
}
