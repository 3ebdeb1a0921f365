#include "blocks/shell/manifest_build.h"

#include "base/assert.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static enum err hash_block(const struct manifest_source *s, int fd, uint64_t at, uint8_t *buf, uint8_t *hash, struct errmsg *em)
{
	size_t len = s->file_bytes - at < s->block_bytes ? (size_t)(s->file_bytes - at) : s->block_bytes, have = 0;
	while (have < len) {
		ssize_t n = pread(fd, buf + have, len - have, (off_t)(at + have));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return errmsg_fail(em, ERR_IO, "%s: cannot read at byte %" PRIu64 ": %s", s->path, at + have, n < 0 ? strerror(errno) : "the file ends");
		have += (size_t)n;
	}
	crypto_generichash(hash, BLOCK_HASH_BYTES, buf, len, NULL, 0);
	return OK;
}

static enum err hash_blocks(const struct manifest_source *s, uint8_t *hashes, struct errmsg *em)
{
	int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint8_t *buf = malloc(s->block_bytes);
	enum err e = OK;
	if (fd < 0 || buf == NULL)
		e = errmsg_fail(em, buf == NULL ? ERR_NOMEM : ERR_IO, "%s: cannot open: %s", s->path, buf == NULL ? "no memory" : strerror(errno));
	for (uint64_t at = 0; at < s->file_bytes && e == OK; at += s->block_bytes, hashes += BLOCK_HASH_BYTES) {
		if (s->is_cancelled != NULL && atomic_load(s->is_cancelled))
			e = errmsg_fail(em, ERR_CANCELLED, "%s: hashing was stopped", s->path);
		else
			e = hash_block(s, fd, at, buf, hashes, em);
	}
	free(buf);
	if (fd >= 0)
		close(fd);
	return e;
}

enum err manifest_build(const struct manifest_source *s, uint8_t **out, size_t *len, struct errmsg *em)
{
	struct manifest_facts f = {.model_hash = s->model_hash, .file_bytes = s->file_bytes, .header_bytes = s->header_bytes, .block_bytes = s->block_bytes,
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
	enum err e = hash_blocks(s, hashes, em);
	if (e != OK) {
		free(data);
		return e;
	}
	*out = data;
	*len = size;
	return OK;
}
