#include "blocks/manifest.h"

#include "base/assert.h"
#include "base/limits.h"

#include <inttypes.h>
#include <sodium.h>
#include <string.h>

#define MAGIC "HEARTHB1"
#define FIXED_BYTES 65 // to the name, its length included
#define TENSOR_BYTES_MIN 18

static uint32_t count_blocks(uint64_t file_bytes, uint32_t block_bytes)
{
	return (uint32_t)((file_bytes + block_bytes - 1) / block_bytes);
}

static enum err check_sizes(const struct manifest *m, struct errmsg *em)
{
	bool is_power = m->block_bytes != 0 && (m->block_bytes & (m->block_bytes - 1)) == 0;
	if (!is_power || m->block_bytes < BLOCK_BYTES_MIN || m->block_bytes > BLOCK_BYTES_MAX)
		return errmsg_fail(em, ERR_FORMAT, "manifest: blocks of %" PRIu32 " bytes, wanted a power of two from %d to %d", m->block_bytes,
			BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
	if (m->file_bytes == 0 || m->file_bytes > (uint64_t)BLOCKS_MAX * m->block_bytes)
		return errmsg_fail(em, ERR_LIMIT, "manifest: a file of %" PRIu64 " bytes in blocks of %" PRIu32 ", at most %u of them", m->file_bytes,
			m->block_bytes, BLOCKS_MAX);
	if (m->header_bytes > m->file_bytes)
		return errmsg_fail(em, ERR_FORMAT, "manifest: a header of %" PRIu64 " bytes in a file of %" PRIu64, m->header_bytes, m->file_bytes);
	if (m->n_tensors > GGUF_TENSORS_MAX)
		return errmsg_fail(em, ERR_LIMIT, "manifest: %" PRIu32 " tensors, at most %d", m->n_tensors, GGUF_TENSORS_MAX);
	return OK;
}

static bool take_tensor(struct reader *r, struct manifest_tensor *out)
{
	out->offset = reader_u64(r);
	out->bytes = reader_u64(r);
	out->name_len = reader_u8(r);
	out->name = (const char *)reader_take(r, out->name_len);
	return reader_ok(r);
}

static enum err check_tensors(const struct manifest *m, struct errmsg *em)
{
	struct reader r = reader_init(m->tensors, m->tensors_len);
	uint64_t end = m->header_bytes;
	for (uint32_t i = 0; i < m->n_tensors; i++) {
		struct manifest_tensor t;
		if (!take_tensor(&r, &t))
			return errmsg_fail(em, ERR_FORMAT, "manifest: ends in tensor %" PRIu32 " of %" PRIu32, i, m->n_tensors);
		if (t.name_len == 0 || t.name_len > MANIFEST_TENSOR_NAME_MAX || memchr(t.name, 0, t.name_len) != NULL)
			return errmsg_fail(em, ERR_FORMAT, "manifest: tensor %" PRIu32 " has a name of %zu bytes or with a NUL", i, t.name_len);
		if (t.offset < end || t.offset > m->file_bytes || t.bytes > m->file_bytes - t.offset)
			return errmsg_fail(em, ERR_FORMAT, "manifest: tensor %" PRIu32 " has %" PRIu64 " bytes at %" PRIu64 ": outside the file, or not behind the one before",
				i, t.bytes, t.offset);
		end = t.offset + t.bytes;
	}
	return r.left == 0 ? OK : errmsg_fail(em, ERR_FORMAT, "manifest: %zu bytes behind its end", r.left);
}

enum err manifest_parse(const uint8_t *data, size_t len, struct manifest *out, struct errmsg *em)
{
	struct reader r = reader_init(data, len);
	struct manifest m = {0};
	memset(out, 0, sizeof *out);
	const uint8_t *magic = reader_take(&r, sizeof MAGIC - 1), *model_hash = reader_take(&r, BLOCK_HASH_BYTES);
	m.file_bytes = reader_u64(&r);
	m.header_bytes = reader_u64(&r);
	m.block_bytes = reader_u32(&r);
	m.n_tensors = reader_u32(&r);
	size_t name_len = reader_u8(&r);
	const uint8_t *name = reader_take(&r, name_len);
	if (!reader_ok(&r) || memcmp(magic, MAGIC, sizeof MAGIC - 1) != 0)
		return errmsg_fail(em, ERR_FORMAT, "manifest: %zu bytes that do not begin like one", len);
	if (name_len > MANIFEST_NAME_MAX)
		return errmsg_fail(em, ERR_FORMAT, "manifest: a name of %zu bytes, at most %d", name_len, MANIFEST_NAME_MAX);
	enum err e = check_sizes(&m, em);
	if (e != OK)
		return e;
	memcpy(m.model_hash, model_hash, BLOCK_HASH_BYTES);
	memcpy(m.name, name, name_len);
	m.n_blocks = count_blocks(m.file_bytes, m.block_bytes);
	m.hashes = reader_take(&r, (size_t)m.n_blocks * BLOCK_HASH_BYTES);
	if (m.hashes == NULL)
		return errmsg_fail(em, ERR_FORMAT, "manifest: ends in the hashes of its %" PRIu32 " blocks", m.n_blocks);
	m.tensors = r.at;
	m.tensors_len = r.left;
	e = check_tensors(&m, em);
	if (e != OK)
		return e;
	crypto_generichash(m.hash, sizeof m.hash, data, len, NULL, 0);
	*out = m;
	return OK;
}

// ---- writing

static size_t name_length(const char *name)
{
	size_t len = strlen(name);
	return len < MANIFEST_NAME_MAX ? len : MANIFEST_NAME_MAX;
}

size_t manifest_size(const struct manifest_facts *f)
{
	struct manifest m = {.file_bytes = f->file_bytes, .header_bytes = f->header_bytes, .block_bytes = f->block_bytes, .n_tensors = f->n_tensors};
	if (check_sizes(&m, NULL) != OK)
		return 0;
	size_t size = FIXED_BYTES + name_length(f->name) + (size_t)count_blocks(f->file_bytes, f->block_bytes) * BLOCK_HASH_BYTES +
		(size_t)f->n_tensors * (TENSOR_BYTES_MIN - 1) + f->tensor_names_len;
	return size <= MANIFEST_BYTES_MAX ? size : 0;
}

uint8_t *manifest_write(const struct manifest_facts *f, struct writer *w)
{
	writer_bytes(w, MAGIC, sizeof MAGIC - 1);
	writer_bytes(w, f->model_hash, BLOCK_HASH_BYTES);
	writer_u64(w, f->file_bytes);
	writer_u64(w, f->header_bytes);
	writer_u32(w, f->block_bytes);
	writer_u32(w, f->n_tensors);
	writer_u8(w, (uint8_t)name_length(f->name));
	writer_bytes(w, f->name, name_length(f->name));
	uint8_t *hashes = writer_take(w, (size_t)count_blocks(f->file_bytes, f->block_bytes) * BLOCK_HASH_BYTES);
	ASSERT(hashes != NULL);
	return hashes;
}

void manifest_set_model_hash(uint8_t *data, const uint8_t *hashes, uint32_t n_blocks)
{
	crypto_generichash(data + sizeof MAGIC - 1, BLOCK_HASH_BYTES, hashes, (size_t)n_blocks * BLOCK_HASH_BYTES, NULL, 0);
}

void manifest_put_tensor(struct writer *w, const struct manifest_tensor *t)
{
	writer_u64(w, t->offset);
	writer_u64(w, t->bytes);
	writer_u8(w, (uint8_t)t->name_len);
	writer_bytes(w, t->name, t->name_len);
}

// ---- blocks

uint32_t manifest_block_bytes(const struct manifest *m, uint32_t i)
{
	ASSERT(i < m->n_blocks);
	uint64_t at = (uint64_t)i * m->block_bytes;
	return m->file_bytes - at < m->block_bytes ? (uint32_t)(m->file_bytes - at) : m->block_bytes;
}

bool manifest_block_matches(const struct manifest *m, uint32_t i, const uint8_t *data, size_t len)
{
	uint8_t hash[BLOCK_HASH_BYTES];
	if (i >= m->n_blocks || len != manifest_block_bytes(m, i))
		return false;
	crypto_generichash(hash, sizeof hash, data, len, NULL, 0);
	return memcmp(hash, m->hashes + (size_t)i * BLOCK_HASH_BYTES, BLOCK_HASH_BYTES) == 0;
}

bool manifest_next_tensor(const struct manifest *m, struct manifest_walk *walk, struct manifest_tensor *out)
{
	if (!walk->has_begun)
		*walk = (struct manifest_walk){.r = reader_init(m->tensors, m->tensors_len), .has_begun = true};
	return walk->r.left > 0 && take_tensor(&walk->r, out);
}

void manifest_add_extent(const struct manifest *m, uint64_t offset, uint64_t len, struct block_set *out)
{
	ASSERT(offset <= m->file_bytes && len <= m->file_bytes - offset);
	if (len > 0)
		block_set_add_range(out, (uint32_t)(offset / m->block_bytes), (uint32_t)((offset + len - 1) / m->block_bytes) + 1);
}

void manifest_add_header(const struct manifest *m, struct block_set *out)
{
	manifest_add_extent(m, 0, m->header_bytes, out);
}

// layer_of returns N of "blk.N.", or -1.
static int32_t layer_of(const struct manifest_tensor *t)
{
	int32_t layer = 0;
	size_t i = 4;
	if (t->name_len < 6 || memcmp(t->name, "blk.", 4) != 0)
		return -1;
	for (; i < t->name_len && t->name[i] >= '0' && t->name[i] <= '9' && layer < LAYERS_MAX; i++)
		layer = layer * 10 + (t->name[i] - '0');
	return i > 4 && i < t->name_len && t->name[i] == '.' ? layer : -1;
}

void manifest_add_layers(const struct manifest *m, int32_t begin, int32_t end, struct block_set *out)
{
	struct manifest_walk walk = {0};
	struct manifest_tensor t;
	while (manifest_next_tensor(m, &walk, &t)) {
		int32_t layer = layer_of(&t);
		if (layer >= begin && layer < end && layer >= 0)
			manifest_add_extent(m, t.offset, t.bytes, out);
	}
}

uint64_t manifest_set_bytes(const struct manifest *m, const struct block_set *s)
{
	uint64_t bytes = (uint64_t)block_set_count(s) * m->block_bytes;
	if (m->n_blocks > 0 && block_set_has(s, m->n_blocks - 1))
		bytes -= m->block_bytes - manifest_block_bytes(m, m->n_blocks - 1);
	return bytes;
}
