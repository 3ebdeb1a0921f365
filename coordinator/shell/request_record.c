#include "coordinator/shell/request_record.h"

#include "base/bytes.h"
#include "base/fmath.h"
#include "base/utf8.h"
#include "engine/sampler.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC_LEN 8
#define FIXED_MAX 256 // bytes of all fields of a fixed length, and more

static const char magic[MAGIC_LEN + 1] = "HRTHREQ1";

enum { FLAG_STREAM = 1, FLAG_USAGE = 2, FLAG_HEARTH = 4, FLAG_HASH = 8, FLAG_KEEP = 16, FLAGS_ALL = 31 };

static void put_text(struct writer *w, const char *text)
{
	size_t len = strlen(text);
	writer_u8(w, (uint8_t)len);
	writer_bytes(w, text, len);
}

static void write_fields(struct writer *w, const struct request_record *r)
{
	writer_bytes(w, magic, MAGIC_LEN);
	writer_bytes(w, r->id, sizeof r->id);
	writer_u32(w, r->canon_version);
	writer_u8(w, (uint8_t)r->wire);
	writer_bytes(w, r->model_hash, sizeof r->model_hash);
	writer_u8(w, (uint8_t)r->kind);
	writer_u8(w, (uint8_t)((r->stream ? FLAG_STREAM : 0) | (r->include_usage ? FLAG_USAGE : 0) | (r->hearth ? FLAG_HEARTH : 0) |
		(r->logits_hash ? FLAG_HASH : 0) | (r->keep ? FLAG_KEEP : 0)));
	writer_u64(w, (uint64_t)r->created_s);
	writer_u32(w, (uint32_t)r->n_predict);
	writer_u32(w, fmath_bits(r->sampling.temperature));
	writer_u32(w, (uint32_t)r->sampling.top_k);
	writer_u32(w, fmath_bits(r->sampling.top_p));
	writer_u32(w, fmath_bits(r->sampling.min_p));
	writer_u64(w, r->sampling.seed);
	writer_u8(w, (uint8_t)r->n_stops);
	for (int32_t i = 0; i < r->n_stops; i++)
		put_text(w, r->stops[i]);
	put_text(w, r->reply_id);
	put_text(w, r->model_id);
	writer_u32(w, (uint32_t)r->n_prompt_ids);
	for (int32_t i = 0; i < r->n_prompt_ids; i++)
		writer_u32(w, (uint32_t)r->prompt_ids[i]);
}

static void digest(const uint8_t *data, size_t len, uint8_t out[HASH_BYTES])
{
	crypto_generichash(out, HASH_BYTES, data, len, NULL, 0);
}

uint8_t *request_record_encode(const struct request_record *r, size_t *len)
{
	size_t cap = FIXED_MAX + sizeof r->stops + sizeof r->reply_id + sizeof r->model_id + (size_t)r->n_prompt_ids * 4;
	uint8_t *data = malloc(cap);
	if (data == NULL)
		return NULL;
	struct writer w = writer_init(data, cap - HASH_BYTES);
	write_fields(&w, r);
	digest(data, w.len, data + w.len);
	*len = w.len + HASH_BYTES;
	return data;
}

// ---- reading

// get_text: at most cap - 1 bytes of valid UTF-8 without NUL.
static bool get_text(struct reader *rd, char *out, size_t cap)
{
	size_t len = reader_u8(rd);
	const uint8_t *p = reader_take(rd, len);
	if (p == NULL || len >= cap || memchr(p, '\0', len) != NULL || !utf8_valid(p, len))
		return false;
	memcpy(out, p, len);
	out[len] = '\0';
	return true;
}

static bool read_stops(struct reader *rd, struct request_record *r)
{
	r->n_stops = reader_u8(rd);
	if (r->n_stops > STOP_STRINGS_MAX)
		return false;
	for (int32_t i = 0; i < r->n_stops; i++)
		if (!get_text(rd, r->stops[i], STOP_STRING_CAP) || r->stops[i][0] == '\0')
			return false;
	return true;
}

static bool read_head(struct reader *rd, struct request_record *r)
{
	const uint8_t *id = reader_take(rd, sizeof r->id);
	r->canon_version = reader_u32(rd);
	uint8_t wire = reader_u8(rd);
	const uint8_t *hash = reader_take(rd, sizeof r->model_hash);
	uint8_t kind = reader_u8(rd), flags = reader_u8(rd);
	r->created_s = (int64_t)reader_u64(rd);
	r->n_predict = (int32_t)reader_u32(rd);
	if (!reader_ok(rd) || wire > WIRE_Q8 || (kind != OPENAI_CHAT && kind != OPENAI_COMPLETION) || flags > FLAGS_ALL || r->n_predict < 1)
		return false;
	memcpy(r->id, id, sizeof r->id);
	memcpy(r->model_hash, hash, sizeof r->model_hash);
	r->wire = (enum wire_type)wire;
	r->kind = (enum openai_kind)kind;
	r->stream = (flags & FLAG_STREAM) != 0;
	r->include_usage = (flags & FLAG_USAGE) != 0;
	r->hearth = (flags & FLAG_HEARTH) != 0;
	r->logits_hash = (flags & FLAG_HASH) != 0;
	r->keep = (flags & FLAG_KEEP) != 0;
	return true;
}

static bool read_sampling(struct reader *rd, struct sampling *s)
{
	s->temperature = fmath_from_bits(reader_u32(rd));
	s->top_k = (int32_t)reader_u32(rd);
	s->top_p = fmath_from_bits(reader_u32(rd));
	s->min_p = fmath_from_bits(reader_u32(rd));
	s->seed = reader_u64(rd);
	return reader_ok(rd) && sampler_check(s, NULL) == OK;
}

static enum err read_prompt(struct reader *rd, struct request_record *r, struct errmsg *em)
{
	uint32_t n = reader_u32(rd);
	if (!reader_ok(rd) || n == 0 || n != rd->left / 4 || rd->left % 4 != 0)
		return errmsg_fail(em, ERR_FORMAT, "damaged: %u token ids in %zu bytes", n, rd->left);
	r->prompt_ids = malloc((size_t)n * sizeof *r->prompt_ids);
	if (r->prompt_ids == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a prompt of %u tokens", n);
	for (uint32_t i = 0; i < n; i++) {
		r->prompt_ids[i] = (int32_t)reader_u32(rd);
		if (r->prompt_ids[i] < 0)
			return errmsg_fail(em, ERR_FORMAT, "damaged: a negative token id");
		r->n_prompt_ids++;
	}
	return OK;
}

static enum err read_all(const uint8_t *data, size_t len, struct request_record *r, struct errmsg *em)
{
	uint8_t want[HASH_BYTES];
	if (len < MAGIC_LEN + HASH_BYTES || len > REQUEST_RECORD_MAX || memcmp(data, magic, MAGIC_LEN - 1) != 0)
		return errmsg_fail(em, ERR_FORMAT, "damaged, or no request of hearth");
	if (data[MAGIC_LEN - 1] != (uint8_t)magic[MAGIC_LEN - 1])
		return errmsg_fail(em, ERR_UNSUPPORTED, "written by another version of hearth");
	digest(data, len - HASH_BYTES, want);
	if (memcmp(want, data + len - HASH_BYTES, HASH_BYTES) != 0)
		return errmsg_fail(em, ERR_FORMAT, "damaged: its content is not what was written");
	struct reader rd = reader_init(data + MAGIC_LEN, len - MAGIC_LEN - HASH_BYTES);
	if (!read_head(&rd, r) || !read_sampling(&rd, &r->sampling) || !read_stops(&rd, r) || !get_text(&rd, r->reply_id, sizeof r->reply_id) ||
		!get_text(&rd, r->model_id, sizeof r->model_id))
		return errmsg_fail(em, ERR_FORMAT, "damaged: a field is out of range");
	return read_prompt(&rd, r, em);
}

enum err request_record_decode(const uint8_t *data, size_t len, struct request_record *r, struct errmsg *em)
{
	memset(r, 0, sizeof *r);
	enum err e = read_all(data, len, r, em);
	if (e != OK)
		request_record_deinit(r);
	return e;
}

void request_record_deinit(struct request_record *r)
{
	if (r->prompt_ids != NULL)
		sodium_memzero(r->prompt_ids, (size_t)r->n_prompt_ids * sizeof *r->prompt_ids);
	free(r->prompt_ids);
	sodium_memzero(r, sizeof *r);
}

// ---- ids

void request_id_hex(const uint8_t id[REQUEST_ID_BYTES], char out[REQUEST_ID_HEX + 1])
{
	sodium_bin2hex(out, REQUEST_ID_HEX + 1, id, REQUEST_ID_BYTES);
}

bool request_id_parse(const char *text, uint8_t id[REQUEST_ID_BYTES])
{
	size_t n = 0;
	if (strspn(text, "0123456789abcdef") != REQUEST_ID_HEX || text[REQUEST_ID_HEX] != '\0')
		return false;
	return sodium_hex2bin(id, REQUEST_ID_BYTES, text, REQUEST_ID_HEX, NULL, &n, NULL) == 0 && n == REQUEST_ID_BYTES;
}
