#include "blocks/shell/manifest_build.h"

#include "base/assert.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TURN_BLOCKS 16 // that a thread takes at once: a disk that turns reads on
#define NICENESS 5     // as the other threads of blocks have it

static int by_offset(const void *a, const void *b)
{
	const struct manifest_tensor *x = a, *y = b;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}

// What the threads of one build share.
struct build {
	const struct manifest_source *s;
	int fd;
	uint32_t n_blocks;
	uint8_t *hashes; // (n_blocks, BLOCK_HASH_BYTES)
	atomic_uint_least32_t next;
	atomic_bool has_failed;
	pthread_mutex_t lock;
	enum err err; // the first
	struct errmsg em;
};

static void fail_build(struct build *b, enum err err, const char *text)
{
	pthread_mutex_lock(&b->lock);
	if (b->err == OK)
		b->err = errmsg_fail(&b->em, err, "%s: %s", b->s->path, text);
	pthread_mutex_unlock(&b->lock);
	atomic_store(&b->has_failed, true);
}

static bool hash_block(struct build *b, uint32_t block, uint8_t *buf)
{
	uint64_t at = (uint64_t)block * b->s->block_bytes;
	size_t len = b->s->file_bytes - at < b->s->block_bytes ? (size_t)(b->s->file_bytes - at) : b->s->block_bytes, have = 0;
	while (have < len) {
		ssize_t n = pread(b->fd, buf + have, len - have, (off_t)(at + have));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			struct errmsg em;
			errmsg_fail(&em, ERR_IO, "cannot read at byte %" PRIu64 ": %s", at + have, n < 0 ? strerror(errno) : "the file ends");
			fail_build(b, ERR_IO, em.text);
			return false;
		}
		have += (size_t)n;
	}
	crypto_generichash(b->hashes + (size_t)block * BLOCK_HASH_BYTES, BLOCK_HASH_BYTES, buf, len, NULL, 0);
	if (b->s->progress != NULL)
		atomic_fetch_add(&b->s->progress->bytes_done, len);
	return true;
}

static void *run(void *ctx)
{
	struct build *b = ctx;
	uint8_t *buf = malloc(b->s->block_bytes);
	if (buf == NULL)
		fail_build(b, ERR_NOMEM, "no memory to read it");
	for (uint32_t from = atomic_fetch_add(&b->next, TURN_BLOCKS); from < b->n_blocks && !atomic_load(&b->has_failed);
		from = atomic_fetch_add(&b->next, TURN_BLOCKS)) {
		if (b->s->progress != NULL && atomic_load(&b->s->progress->is_cancelled)) {
			fail_build(b, ERR_CANCELLED, "reading it was stopped");
			break;
		}
		for (uint32_t i = from; i < b->n_blocks && i - from < TURN_BLOCKS; i++)
			if (!hash_block(b, i, buf))
				break;
	}
	free(buf);
	return NULL;
}

static void *run_nicely(void *ctx)
{
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS); // of this thread only
	return run(ctx);
}

static void run_all(struct build *b)
{
	pthread_t threads[MANIFEST_BUILD_THREADS_MAX];
	int32_t n = 0;
	while (n + 1 < b->s->n_threads && n < MANIFEST_BUILD_THREADS_MAX && thread_start(&threads[n], run_nicely, b))
		n++;
	run(b);
	for (int32_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static enum err hash_blocks(const struct manifest_source *s, uint8_t *hashes, uint32_t n_blocks, struct errmsg *em)
{
	struct build b = {.s = s, .fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), .n_blocks = n_blocks, .hashes = hashes};
	struct stat before, after;
	if (b.fd < 0 || fstat(b.fd, &before) != 0) {
		enum err e = errmsg_fail(em, ERR_IO, "%s: cannot open: %s", s->path, strerror(errno));
		if (b.fd >= 0)
			close(b.fd);
		return e;
	}
	pthread_mutex_init(&b.lock, NULL);
	run_all(&b);
	if (b.err == OK && (fstat(b.fd, &after) != 0 || !same_file(&before, &after) || (uint64_t)after.st_size != s->file_bytes))
		b.err = errmsg_fail(&b.em, ERR_STATE, "%s: changed while it was read", s->path);
	pthread_mutex_destroy(&b.lock);
	close(b.fd);
	if (b.err != OK)
		*em = b.em;
	return b.err;
}

enum err manifest_build(const struct manifest_source *s, uint8_t **out, size_t *len, struct errmsg *em)
{
	uint8_t model_hash[BLOCK_HASH_BYTES] = {0};
	struct manifest_facts f = {.model_hash = model_hash, .file_bytes = s->file_bytes, .header_bytes = s->header_bytes, .block_bytes = s->block_bytes,
		.name = base_name(s->path), .n_tensors = s->n_tensors};
	for (uint32_t i = 0; i < s->n_tensors; i++)
		f.tensor_names_len += s->tensors[i].name_len;
	size_t size = manifest_size(&f);
	*out = NULL;
	if (size == 0)
		return errmsg_fail(em, ERR_LIMIT, "%s: %" PRIu64 " bytes and %" PRIu32 " tensors are more than a manifest holds", s->path, s->file_bytes, s->n_tensors);
	uint8_t *data = malloc(size);
	if (data == NULL)
		return errmsg_fail(em, ERR_NOMEM, "%s: no memory for a manifest of %zu bytes", s->path, size);
	struct writer w = writer_init(data, size);
	uint8_t *hashes = manifest_write(&f, &w);
	qsort(s->tensors, s->n_tensors, sizeof *s->tensors, by_offset);
	for (uint32_t i = 0; i < s->n_tensors; i++)
		manifest_put_tensor(&w, &s->tensors[i]);
	ASSERT(!w.failed && w.len == size);
	uint32_t n_blocks = (uint32_t)((s->file_bytes + s->block_bytes - 1) / s->block_bytes);
	enum err e = hash_blocks(s, hashes, n_blocks, em);
	if (e != OK) {
		free(data);
		return e;
	}
	manifest_set_model_hash(data, hashes, n_blocks);
	*out = data;
	*len = size;
	return OK;
}

void manifest_progress_log(const struct log *log, const struct manifest_source *s, int64_t begin_ns, int64_t now_ns)
{
	double done = (double)atomic_load(&s->progress->bytes_done), total = (double)s->file_bytes, seconds = (double)(now_ns - begin_ns) / 1e9;
	double rate = seconds > 0 ? done / seconds : 0;
	if (rate > 0)
		log_line(log, LOG_INFO, "reading %s once, to know its blocks: %.1f of %.1f GB, %.0f MB/s, %.0f s left", base_name(s->path), done / 1e9, total / 1e9,
			rate / 1e6, (total - done) / rate);
}

int32_t manifest_build_threads(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN) / 2;
	return n < 1 ? 1 : n > 4 ? 4 : (int32_t)n;
}
