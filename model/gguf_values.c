// Typed reads of metadata values (model/gguf.h). The walks over the container are in model/gguf.c.
#include "base/bytes.h"
#include "model/gguf.h"

#include <inttypes.h>

static uint64_t signed_to_u64(int64_t v, bool *ok)
{
	*ok = v >= 0;
	return v >= 0 ? (uint64_t)v : 0;
}

bool gguf_type_is_signed(enum gguf_type t)
{
	return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;
}

bool gguf_elem_u64(const struct gguf_kv *kv, uint64_t i, uint64_t *out)
{
	*out = 0;
	if (i >= kv->n_elems)
		return false;
	bool ok = true;
	const uint8_t *d = kv->data;
	switch (kv->elem_type) {
	case GGUF_U8: *out = d[i]; break;
	case GGUF_I8: *out = signed_to_u64((int8_t)d[i], &ok); break;
	case GGUF_U16: *out = load_u16(d + 2 * i); break;
	case GGUF_I16: *out = signed_to_u64((int16_t)load_u16(d + 2 * i), &ok); break;
	case GGUF_U32: *out = load_u32(d + 4 * i); break;
	case GGUF_I32: *out = signed_to_u64((int32_t)load_u32(d + 4 * i), &ok); break;
	case GGUF_U64: *out = load_u64(d + 8 * i); break;
	case GGUF_I64: *out = signed_to_u64((int64_t)load_u64(d + 8 * i), &ok); break;
	default: ok = false;
	}
	return ok;
}

bool gguf_elem_f64(const struct gguf_kv *kv, uint64_t i, double *out)
{
	*out = 0;
	if (i >= kv->n_elems)
		return false;
	if (kv->elem_type == GGUF_F32) {
		uint32_t bits = load_u32(kv->data + 4 * i);
		float f;
		memcpy(&f, &bits, sizeof f);
		*out = (double)f;
		return true;
	}
	if (kv->elem_type == GGUF_F64) {
		uint64_t bits = load_u64(kv->data + 8 * i);
		memcpy(out, &bits, sizeof *out);
		return true;
	}
	return false;
}

// find_single returns the key's entry; an array is not a single value.
static enum err find_single(const struct gguf *g, const char *key, const char *wanted, const struct gguf_kv **out, struct errmsg *em)
{
	*out = gguf_find(g, key);
	if (*out == NULL)
		return errmsg_fail(em, ERR_NOT_FOUND, "key %s is missing, wanted %s", key, wanted);
	if ((*out)->type == GGUF_ARRAY)
		return errmsg_fail(em, ERR_FORMAT, "key %s is an array, wanted %s", key, wanted);
	return OK;
}

enum err gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct errmsg *em)
{
	*out = 0;
	const struct gguf_kv *kv;
	enum err e = find_single(g, key, "an integer", &kv, em);
	if (e != OK || gguf_elem_u64(kv, 0, out))
		return e;
	return errmsg_fail(em, ERR_FORMAT, "key %s has type %s%s, wanted an integer of 0 or more", key, gguf_type_name(kv->type),
		gguf_type_is_signed(kv->type) ? " and is negative" : "");
}

enum err gguf_get_f64(const struct gguf *g, const char *key, double *out, struct errmsg *em)
{
	*out = 0;
	const struct gguf_kv *kv;
	enum err e = find_single(g, key, "a float", &kv, em);
	if (e == OK && !gguf_elem_f64(kv, 0, out))
		e = errmsg_fail(em, ERR_FORMAT, "key %s has type %s, wanted f32 or f64", key, gguf_type_name(kv->type));
	return e;
}

enum err gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct errmsg *em)
{
	*out = false;
	const struct gguf_kv *kv;
	enum err e = find_single(g, key, "a bool", &kv, em);
	if (e != OK)
		return e;
	if (kv->type != GGUF_BOOL)
		return errmsg_fail(em, ERR_FORMAT, "key %s has type %s, wanted bool", key, gguf_type_name(kv->type));
	*out = kv->data[0] != 0;
	return OK;
}

enum err gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct errmsg *em)
{
	*out = (struct gguf_str){"", 0};
	const struct gguf_kv *kv;
	enum err e = find_single(g, key, "a string", &kv, em);
	if (e != OK)
		return e;
	if (kv->type != GGUF_STRING)
		return errmsg_fail(em, ERR_FORMAT, "key %s has type %s, wanted string", key, gguf_type_name(kv->type));
	*out = (struct gguf_str){(const char *)kv->data + 8, kv->data_bytes - 8};
	return OK;
}

enum err gguf_strings_init(const struct gguf *g, const char *key, struct gguf_strings *it, struct errmsg *em)
{
	*it = (struct gguf_strings){0};
	const struct gguf_kv *kv = gguf_find(g, key);
	if (kv == NULL)
		return errmsg_fail(em, ERR_NOT_FOUND, "key %s is missing, wanted an array of strings", key);
	if (kv->type != GGUF_ARRAY || kv->elem_type != GGUF_STRING)
		return errmsg_fail(em, ERR_FORMAT, "key %s is %s%s, wanted an array of strings", key,
			kv->type == GGUF_ARRAY ? "an array of " : "", gguf_type_name(kv->elem_type));
	*it = (struct gguf_strings){kv->data, kv->n_elems};
	return OK;
}

bool gguf_strings_next(struct gguf_strings *it, struct gguf_str *out)
{
	if (it->left == 0)
		return false;
	size_t len = (size_t)load_u64(it->at); // checked by the parser
	*out = (struct gguf_str){(const char *)it->at + 8, len};
	it->at += 8 + len;
	it->left--;
	return true;
}
