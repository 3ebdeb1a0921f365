#include "tests/support/gguf_build.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *grow(void *p, size_t bytes)
{
	void *q = realloc(p, bytes);
	ASSERT(q != NULL);
	return q;
}

void gguf_build_bytes(struct gguf_build *b, const void *data, size_t len)
{
	if (len > b->cap - b->len) {
		b->cap = 2 * b->cap + len + 4096;
		b->data = grow(b->data, b->cap);
	}
	if (len > 0)
		memcpy(b->data + b->len, data, len);
	b->len += len;
}

static void remember(struct gguf_build *b, int bytes)
{
	if (b->n_fields == b->fields_cap) {
		b->fields_cap = 2 * b->fields_cap + 64;
		b->fields = grow(b->fields, b->fields_cap * sizeof *b->fields);
	}
	b->fields[b->n_fields++] = (struct gguf_build_field){b->len, bytes};
}

void gguf_build_u32(struct gguf_build *b, uint32_t v)
{
	uint8_t bytes[4];
	store_u32(bytes, v);
	remember(b, 4);
	gguf_build_bytes(b, bytes, sizeof bytes);
}

void gguf_build_u64(struct gguf_build *b, uint64_t v)
{
	uint8_t bytes[8];
	store_u64(bytes, v);
	remember(b, 8);
	gguf_build_bytes(b, bytes, sizeof bytes);
}

void gguf_build_f32(struct gguf_build *b, float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	gguf_build_u32(b, bits);
}

void gguf_build_string(struct gguf_build *b, const char *s, size_t len)
{
	gguf_build_u64(b, len);
	gguf_build_bytes(b, s, len);
}

void gguf_build_begin(struct gguf_build *b, uint32_t version)
{
	*b = (struct gguf_build){.alignment = 32};
	gguf_build_bytes(b, "GGUF", 4);
	gguf_build_u32(b, version);
	gguf_build_u64(b, 0);
	gguf_build_u64(b, 0);
}

void gguf_build_free(struct gguf_build *b)
{
	free(b->data);
	free(b->fields);
	*b = (struct gguf_build){0};
}

void gguf_build_key(struct gguf_build *b, const char *key, uint32_t type)
{
	gguf_build_string(b, key, strlen(key));
	gguf_build_u32(b, type);
	b->n_kv++;
}

void gguf_build_kv_u32(struct gguf_build *b, const char *key, uint32_t v)
{
	gguf_build_key(b, key, GGUF_U32);
	gguf_build_u32(b, v);
}

void gguf_build_kv_f32(struct gguf_build *b, const char *key, float v)
{
	gguf_build_key(b, key, GGUF_F32);
	gguf_build_f32(b, v);
}

void gguf_build_kv_bool(struct gguf_build *b, const char *key, bool v)
{
	uint8_t byte = v;
	gguf_build_key(b, key, GGUF_BOOL);
	gguf_build_bytes(b, &byte, 1);
}

void gguf_build_kv_str(struct gguf_build *b, const char *key, const char *v)
{
	gguf_build_key(b, key, GGUF_STRING);
	gguf_build_string(b, v, strlen(v));
}

static void array_head(struct gguf_build *b, const char *key, uint32_t type, size_t n)
{
	gguf_build_key(b, key, GGUF_ARRAY);
	gguf_build_u32(b, type);
	gguf_build_u64(b, n);
}

void gguf_build_kv_strs(struct gguf_build *b, const char *key, const char *const *v, size_t n)
{
	array_head(b, key, GGUF_STRING, n);
	for (size_t i = 0; i < n; i++)
		gguf_build_string(b, v[i], strlen(v[i]));
}

void gguf_build_kv_i32s(struct gguf_build *b, const char *key, const int32_t *v, size_t n)
{
	array_head(b, key, GGUF_I32, n);
	for (size_t i = 0; i < n; i++) {
		uint8_t bytes[4];
		store_u32(bytes, (uint32_t)v[i]);
		gguf_build_bytes(b, bytes, sizeof bytes);
	}
}

void gguf_build_tensor_raw(struct gguf_build *b, const char *name, size_t name_len, uint32_t n_dims, const uint64_t *dims, uint32_t type,
	uint64_t offset)
{
	gguf_build_string(b, name, name_len);
	gguf_build_u32(b, n_dims);
	for (uint32_t i = 0; i < n_dims && i < 8; i++)
		gguf_build_u64(b, dims[i]);
	gguf_build_u32(b, type);
	gguf_build_u64(b, offset);
	b->n_tensors++;
}

static uint64_t round_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

void gguf_build_tensor(struct gguf_build *b, const char *name, enum dtype type, uint64_t cols, uint64_t rows)
{
	const uint64_t dims[2] = {cols, rows};
	size_t row_bytes = 0;
	bool ok = dtype_row_bytes(type, cols, &row_bytes);
	ASSERT(ok);
	gguf_build_tensor_raw(b, name, strlen(name), rows > 1 ? 2 : 1, dims, (uint32_t)type, b->next_offset);
	b->next_offset = round_up(b->next_offset + row_bytes * rows, b->alignment);
}

static void pad_to(struct gguf_build *b, size_t len)
{
	static const uint8_t zeros[4096];
	while (b->len < len)
		gguf_build_bytes(b, zeros, len - b->len < sizeof zeros ? len - b->len : sizeof zeros);
}

void gguf_build_begin_data(struct gguf_build *b)
{
	pad_to(b, (size_t)round_up(b->len, b->alignment));
	b->data_at = b->len;
}

void gguf_build_zeros(struct gguf_build *b)
{
	pad_to(b, b->data_at + (size_t)b->next_offset);
}

void gguf_build_finish(struct gguf_build *b)
{
	store_u64(b->data + 8, b->n_tensors);
	store_u64(b->data + 16, b->n_kv);
}
