// Two walks over the header with the same code: the first checks every record and allocates nothing, so that the one arena is
// sized by records that are really there and not by what a field claims; the second fills it.
#include "model/gguf.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/printable.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdlib.h>

#define MAGIC 0x46554747u       // "GGUF"
#define ALIGNMENT_DEFAULT 32u   // when general.alignment is missing
#define KV_BYTES_MIN 14u        // key length 8, one byte of key, type 4, one byte of value
#define TENSOR_BYTES_MIN 33u    // name length 8, one byte of name, n_dims 4, one dimension 8, type 4, offset 8
#define SHOWN_CAP 100           // bytes of a stranger's name that go into a message

// What gguf.owned points to; it lies in its own arena.
struct owned {
	struct arena arena;
	struct gguf_kv *kvs;
	struct gguf_tensor *tensors;
	unsigned char hash_key[crypto_shorthash_KEYBYTES];
	uint32_t *kv_slots;     // index + 1; 0 is free
	uint32_t *tensor_slots;
	size_t kv_mask;
	size_t tensor_mask;
};

struct parse {
	struct reader r;
	const uint8_t *base;
	uint64_t file_bytes;
	uint32_t alignment;
	struct errmsg *em;
};

struct shown {
	char text[SHOWN_CAP];
};

static struct shown shown(struct gguf_str s)
{
	struct shown out;
	printable_copy(s.data, s.len, out.text, sizeof out.text);
	return out;
}

static uint64_t at(const struct parse *p)
{
	return (uint64_t)(p->r.at - p->base);
}

// need_bytes refuses a field that is longer than what is left.
static enum err need_bytes(const struct parse *p, uint64_t n, const char *field)
{
	if (n <= p->r.left)
		return OK;
	return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": %s wants %" PRIu64 " bytes, the file has %zu left", at(p), field, n,
		p->r.left);
}

static enum err read_u32(struct parse *p, const char *field, uint32_t *out)
{
	enum err e = need_bytes(p, 4, field);
	*out = e == OK ? reader_u32(&p->r) : 0;
	return e;
}

static enum err read_u64(struct parse *p, const char *field, uint64_t *out)
{
	enum err e = need_bytes(p, 8, field);
	*out = e == OK ? reader_u64(&p->r) : 0;
	return e;
}

static enum err read_string(struct parse *p, const char *field, uint64_t max, struct gguf_str *out)
{
	uint64_t len = 0, start = at(p);
	enum err e = read_u64(p, field, &len);
	if (e != OK)
		return e;
	if (len > p->r.left)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": %s is %" PRIu64 " bytes long, the file has %zu left", start, field, len,
			p->r.left);
	if (len > max)
		return errmsg_fail(p->em, ERR_LIMIT, "byte %" PRIu64 ": %s is %" PRIu64 " bytes long, at most %" PRIu64 " are read", start, field,
			len, max);
	*out = (struct gguf_str){(const char *)reader_take(&p->r, (size_t)len), (size_t)len};
	return OK;
}

// read_name is a string that names something: not empty, and without a NUL, so that no two names look alike to a C reader.
static enum err read_name(struct parse *p, const char *field, uint64_t max, struct gguf_str *out)
{
	uint64_t start = at(p);
	enum err e = read_string(p, field, max, out);
	if (e != OK)
		return e;
	if (out->len == 0)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": %s is empty, wanted 1 to %" PRIu64 " bytes", start, field, max);
	if (memchr(out->data, '\0', out->len) != NULL)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": %s \"%s\" contains a NUL byte, wanted none", start, field,
			shown(*out).text);
	return OK;
}

static const struct {
	const char *name;
	uint8_t bytes; // 0: not of fixed size
} types[] = {
	[GGUF_U8] = {"u8", 1}, [GGUF_I8] = {"i8", 1}, [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},
	[GGUF_I32] = {"i32", 4}, [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
	[GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8}, [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type t)
{
	return (size_t)t < ARRAY_LEN(types) ? types[t].name : "?";
}

static enum err read_type(struct parse *p, const char *field, struct gguf_str key, enum gguf_type *out)
{
	uint32_t id = 0;
	uint64_t start = at(p);
	enum err e = read_u32(p, field, &id);
	if (e == OK && id >= ARRAY_LEN(types))
		e = errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": %s of key \"%s\" is %" PRIu32 ", wanted 0 to %zu", start, field,
			shown(key).text, id, ARRAY_LEN(types) - 1);
	*out = e == OK ? (enum gguf_type)id : GGUF_U8;
	return e;
}

static enum err check_bools(const struct parse *p, const struct gguf_kv *kv)
{
	for (size_t i = 0; i < kv->data_bytes; i++)
		if (kv->data[i] > 1)
			return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": bool of key \"%s\" is %u, wanted 0 or 1",
				(uint64_t)(kv->data + i - p->base), shown(kv->key).text, (unsigned)kv->data[i]);
	return OK;
}

// read_elems walks kv->n_elems values of elem_type.
static enum err read_elems(struct parse *p, struct gguf_kv *kv)
{
	kv->data = p->r.at;
	if (kv->elem_type == GGUF_STRING) {
		struct gguf_str s;
		for (uint64_t i = 0; i < kv->n_elems; i++) {
			enum err e = read_string(p, "string", GGUF_STRING_MAX, &s);
			if (e != OK)
				return errmsg_prefix(p->em, e, "key \"%s\", string %" PRIu64, shown(kv->key).text, i);
		}
		kv->data_bytes = (size_t)(p->r.at - kv->data);
		return OK;
	}
	uint64_t bytes = kv->n_elems * types[kv->elem_type].bytes; // at most GGUF_ELEMS_MAX * 8
	enum err e = need_bytes(p, bytes, "value");
	if (e != OK)
		return errmsg_prefix(p->em, e, "key \"%s\"", shown(kv->key).text);
	kv->data_bytes = (size_t)bytes;
	reader_take(&p->r, kv->data_bytes);
	return kv->elem_type == GGUF_BOOL ? check_bools(p, kv) : OK;
}

static enum err read_array_head(struct parse *p, struct gguf_kv *kv)
{
	uint64_t start = at(p);
	enum err e = read_type(p, "array element type", kv->key, &kv->elem_type);
	if (e != OK)
		return e;
	if (kv->elem_type == GGUF_ARRAY)
		return errmsg_fail(p->em, ERR_UNSUPPORTED, "byte %" PRIu64 ": key \"%s\" is an array of arrays, wanted an array of single values",
			start, shown(kv->key).text);
	start = at(p);
	e = read_u64(p, "array length", &kv->n_elems);
	if (e != OK)
		return e;
	uint64_t elem_bytes_min = kv->elem_type == GGUF_STRING ? 8 : types[kv->elem_type].bytes;
	if (kv->n_elems > p->r.left / elem_bytes_min)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": array \"%s\" has %" PRIu64 " elements of %s, the file has %zu bytes left: it is cut short or wrong",
			start, shown(kv->key).text, kv->n_elems, types[kv->elem_type].name, p->r.left);
	if (kv->n_elems > GGUF_ELEMS_MAX)
		return errmsg_fail(p->em, ERR_LIMIT, "byte %" PRIu64 ": array \"%s\" has %" PRIu64 " elements, at most %d are read", start,
			shown(kv->key).text, kv->n_elems, GGUF_ELEMS_MAX);
	return OK;
}

static enum err read_kv(struct parse *p, struct gguf_kv *kv)
{
	*kv = (struct gguf_kv){.n_elems = 1};
	enum err e = read_name(p, "key", GGUF_KEY_MAX, &kv->key);
	if (e == OK)
		e = read_type(p, "value type", kv->key, &kv->type);
	if (e != OK)
		return e;
	kv->elem_type = kv->type;
	if (kv->type == GGUF_ARRAY)
		e = read_array_head(p, kv);
	return e == OK ? read_elems(p, kv) : e;
}

static enum err read_alignment(struct parse *p, const struct gguf_kv *kv)
{
	uint64_t where = (uint64_t)(kv->data - p->base);
	if (kv->type != GGUF_U32)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": general.alignment has type %s, wanted u32", where, types[kv->type].name);
	uint32_t a = load_u32(kv->data);
	if (a < GGUF_ALIGNMENT_MIN || a > GGUF_ALIGNMENT_MAX || (a & (a - 1)) != 0)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": general.alignment is %" PRIu32 ", wanted a power of two from %d to %d", where,
			a, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
	p->alignment = a;
	return OK;
}

static enum err read_dtype(struct parse *p, struct gguf_tensor *t)
{
	uint32_t id = 0;
	uint64_t start = at(p);
	enum err e = read_u32(p, "tensor type", &id);
	if (e != OK)
		return e;
	if (id > DTYPE_ID_MAX)
		return errmsg_fail(p->em, ERR_UNSUPPORTED, "byte %" PRIu64 ": tensor \"%s\" has type %" PRIu32
			", which is newer than this program (it knows 0 to %d)", start, shown(t->name).text, id, DTYPE_ID_MAX);
	if (dtype_find(id) == NULL)
		return errmsg_fail(p->em, ERR_UNSUPPORTED, "byte %" PRIu64 ": tensor \"%s\" has the removed type %" PRIu32
			", wanted one in use", start, shown(t->name).text, id);
	t->type = (enum dtype)id;
	return OK;
}

static enum err read_dims(struct parse *p, struct gguf_tensor *t)
{
	uint64_t start = at(p);
	enum err e = read_u32(p, "n_dims", &t->n_dims);
	if (e != OK)
		return e;
	if (t->n_dims < 1 || t->n_dims > 4)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": tensor \"%s\" has %" PRIu32 " dimensions, wanted 1 to 4", start,
			shown(t->name).text, t->n_dims);
	for (uint32_t i = 0; i < t->n_dims; i++) {
		start = at(p);
		e = read_u64(p, "dimension", &t->dims[i]);
		if (e != OK)
			return e;
		if (t->dims[i] == 0 || t->dims[i] > INT64_MAX)
			return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": dimension %" PRIu32 " of tensor \"%s\" is %" PRIi64
				", wanted at least 1", start, i, shown(t->name).text, (int64_t)t->dims[i]);
	}
	return OK;
}

// tensor_size computes t->bytes; each product is checked.
static enum err tensor_size(const struct parse *p, uint64_t start, struct gguf_tensor *t)
{
	const struct dtype_info *info = dtype_find((uint32_t)t->type);
	size_t bytes = 0;
	if (t->dims[0] % info->block_len != 0)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": tensor \"%s\" has rows of %" PRIu64 " elements, %s wants a multiple of %" PRIu32,
			start, shown(t->name).text, t->dims[0], info->name, info->block_len);
	bool ok = dtype_row_bytes(t->type, t->dims[0], &bytes);
	size_t n_elems = (size_t)t->dims[0];
	for (int i = 1; i < 4; i++)
		ok = ok && mul_size(bytes, (size_t)t->dims[i], &bytes) && mul_size(n_elems, (size_t)t->dims[i], &n_elems);
	if (!ok)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": tensor \"%s\" of %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
			" %s has more elements or bytes than 64 bits count", start, shown(t->name).text, t->dims[0], t->dims[1], t->dims[2], t->dims[3],
			info->name);
	t->bytes = bytes;
	return OK;
}

static enum err read_tensor(struct parse *p, struct gguf_tensor *t)
{
	*t = (struct gguf_tensor){.dims = {1, 1, 1, 1}};
	uint64_t start = at(p);
	enum err e = read_name(p, "tensor name", GGUF_NAME_MAX, &t->name);
	if (e == OK)
		e = read_dims(p, t);
	if (e == OK)
		e = read_dtype(p, t);
	if (e == OK)
		e = tensor_size(p, start, t);
	if (e != OK)
		return e;
	start = at(p);
	e = read_u64(p, "tensor offset", &t->offset);
	if (e == OK && t->offset % p->alignment != 0)
		e = errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": offset of tensor \"%s\" is %" PRIu64 ", wanted a multiple of %" PRIu32, start,
			shown(t->name).text, t->offset, p->alignment);
	return e;
}

static enum err check_count(const struct parse *p, const char *field, uint64_t at_byte, uint64_t n, uint64_t record_min, uint64_t max)
{
	if (n > p->r.left / record_min)
		return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": %s is %" PRIu64 ", the file has %zu bytes left and one takes at least %" PRIu64 ": it is cut short or wrong",
			at_byte, field, n, p->r.left, record_min);
	if (n > max)
		return errmsg_fail(p->em, ERR_LIMIT, "byte %" PRIu64 ": %s is %" PRIu64 ", at most %" PRIu64 " are read", at_byte, field, n, max);
	return OK;
}

static enum err read_head(struct parse *p, struct gguf *g)
{
	uint32_t magic = 0;
	enum err e = read_u32(p, "magic", &magic);
	if (e != OK)
		return errmsg_prefix(p->em, e, "not a GGUF file");
	if (magic != MAGIC)
		return errmsg_fail(p->em, ERR_FORMAT, "byte 0: magic is %02x %02x %02x %02x, wanted 47 47 55 46 (\"GGUF\"): not a GGUF file", p->base[0],
			p->base[1], p->base[2], p->base[3]);
	e = read_u32(p, "version", &g->version);
	if (e != OK)
		return e;
	if (g->version != 2 && g->version != 3) {
		bool swapped = g->version != 0 && (g->version & 0xffffff) == 0;
		return errmsg_fail(p->em, ERR_UNSUPPORTED, "byte 4: version is %" PRIu32 "%s, wanted 2 or 3", g->version,
			swapped ? " (a big-endian file)" : "");
	}
	e = read_u64(p, "tensor count", &g->n_tensors);
	if (e == OK)
		e = read_u64(p, "key count", &g->n_kv);
	if (e == OK)
		e = check_count(p, "tensor count", 8, g->n_tensors, TENSOR_BYTES_MIN, GGUF_TENSORS_MAX);
	if (e == OK)
		e = check_count(p, "key count", 16, g->n_kv, KV_BYTES_MIN, GGUF_KVS_MAX);
	return e;
}

static bool same(struct gguf_str a, struct gguf_str b)
{
	return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

static size_t slot_of(const struct owned *o, struct gguf_str s, size_t mask)
{
	unsigned char h[crypto_shorthash_BYTES];
	crypto_shorthash(h, (const unsigned char *)s.data, s.len, o->hash_key);
	return (size_t)load_u64(h) & mask;
}

// The first walk. It hashes all names into the key of the two hash sets: whoever wants names that collide must find them under a
// key that depends on every one of them. And the same file always gives the same table.
static enum err check_records(struct parse *p, const struct gguf *g, unsigned char hash_key[crypto_shorthash_KEYBYTES])
{
	crypto_generichash_state st;
	crypto_generichash_init(&st, NULL, 0, crypto_shorthash_KEYBYTES);
	for (uint64_t i = 0; i < g->n_kv; i++) {
		struct gguf_kv kv;
		enum err e = read_kv(p, &kv);
		if (e == OK && kv.key.len == strlen("general.alignment") && memcmp(kv.key.data, "general.alignment", kv.key.len) == 0)
			e = read_alignment(p, &kv);
		if (e != OK)
			return errmsg_prefix(p->em, e, "key %" PRIu64 " of %" PRIu64, i + 1, g->n_kv);
		crypto_generichash_update(&st, (const unsigned char *)kv.key.data, kv.key.len);
	}
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		struct gguf_tensor t;
		enum err e = read_tensor(p, &t);
		if (e != OK)
			return errmsg_prefix(p->em, e, "tensor %" PRIu64 " of %" PRIu64, i + 1, g->n_tensors);
		crypto_generichash_update(&st, (const unsigned char *)t.name.data, t.name.len);
	}
	crypto_generichash_final(&st, hash_key, crypto_shorthash_KEYBYTES);
	return OK;
}

static size_t slots_for(uint64_t n)
{
	size_t cap = 4;
	while (cap < n + n / 2)
		cap *= 2;
	return cap;
}

// open_owned makes the arena: per key 48 bytes and at most 12 of slots (a record takes 14 or more), per tensor 80, 12 and a span of 16
// while overlaps are looked for (a record takes 33 or more).
static struct owned *open_owned(const struct gguf *g)
{
	size_t n_kv = (size_t)g->n_kv, n_tensors = (size_t)g->n_tensors; // at most 2^20
	size_t kv_slots = slots_for(n_kv), tensor_slots = slots_for(n_tensors);
	size_t bytes = sizeof(struct owned) + n_kv * sizeof(struct gguf_kv) + n_tensors * sizeof(struct gguf_tensor) +
		(kv_slots + tensor_slots) * sizeof(uint32_t) + 5 * 64;
	struct arena a;
	if (arena_open(bytes, &a) != OK)
		return NULL;
	struct owned *o = arena_alloc(&a, 1, sizeof *o);
	o->kvs = arena_alloc(&a, n_kv, sizeof *o->kvs);
	o->tensors = arena_alloc(&a, n_tensors, sizeof *o->tensors);
	o->kv_slots = arena_alloc(&a, kv_slots, sizeof *o->kv_slots);
	o->tensor_slots = arena_alloc(&a, tensor_slots, sizeof *o->tensor_slots);
	ASSERT(o->tensor_slots != NULL);
	o->kv_mask = kv_slots - 1;
	o->tensor_mask = tensor_slots - 1;
	o->arena = a;
	return o;
}

static enum err fill_kvs(struct parse *p, struct owned *o, const struct gguf *g)
{
	struct gguf_kv *kvs = o->kvs;
	for (uint32_t i = 0; i < g->n_kv; i++) {
		enum err e = read_kv(p, &kvs[i]);
		if (e != OK) // the first walk passed, but a mapped file may change under us
			return e;
		size_t s = slot_of(o, kvs[i].key, o->kv_mask);
		for (; o->kv_slots[s] != 0; s = (s + 1) & o->kv_mask)
			if (same(kvs[o->kv_slots[s] - 1].key, kvs[i].key))
				return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": key \"%s\" is there twice, wanted once (key %" PRIu32 " and key %" PRIu32 ")",
					(uint64_t)((const uint8_t *)kvs[i].key.data - p->base), shown(kvs[i].key).text, o->kv_slots[s], i + 1);
		o->kv_slots[s] = i + 1;
	}
	return OK;
}

static enum err fill_tensors(struct parse *p, struct owned *o, const struct gguf *g)
{
	struct gguf_tensor *tensors = o->tensors;
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		struct gguf_tensor *t = &tensors[i];
		enum err e = read_tensor(p, t);
		if (e != OK) // the first walk passed, but a mapped file may change under us
			return e;
		size_t s = slot_of(o, t->name, o->tensor_mask);
		for (; o->tensor_slots[s] != 0; s = (s + 1) & o->tensor_mask)
			if (same(tensors[o->tensor_slots[s] - 1].name, t->name))
				return errmsg_fail(p->em, ERR_FORMAT, "byte %" PRIu64 ": tensor \"%s\" is there twice, wanted once (tensor %" PRIu32 " and tensor %" PRIu32 ")",
					(uint64_t)((const uint8_t *)t->name.data - p->base), shown(t->name).text, o->tensor_slots[s], i + 1);
		o->tensor_slots[s] = i + 1;
	}
	return OK;
}

static enum err place_data(const struct parse *p, const struct gguf *g, struct gguf_tensor *tensors, bool with_data)
{
	uint64_t room = g->data_offset < g->file_bytes ? g->file_bytes - g->data_offset : 0;
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		struct gguf_tensor *t = &tensors[i];
		if (t->offset > room || t->bytes > room - t->offset)
			return errmsg_fail(p->em, ERR_FORMAT, "tensor \"%s\" has %zu bytes at data offset %" PRIu64 ", the data section (from byte %" PRIu64
				") has %" PRIu64 ": the file is cut short or wrong", shown(t->name).text, t->bytes, t->offset, g->data_offset, room);
		if (with_data)
			t->data = p->base + g->data_offset + t->offset;
	}
	return OK;
}

struct span {
	uint64_t begin, end; // of a tensor's data
	uint64_t idx;
};

static int by_begin(const void *a, const void *b)
{
	const struct span *x = a, *y = b;
	return (x->begin > y->begin) - (x->begin < y->begin);
}

// check_overlap sorts a copy of the tensors' places, unless they are in order already (all known writers).
static enum err check_overlap(const struct parse *p, const struct gguf *g, const struct gguf_tensor *tensors)
{
	size_t n = (size_t)g->n_tensors, i = 1;
	while (i < n && tensors[i - 1].offset + tensors[i - 1].bytes <= tensors[i].offset)
		i++;
	if (i >= n)
		return OK;
	struct span *spans = calloc(n, sizeof *spans);
	if (spans == NULL)
		return errmsg_fail(p->em, ERR_NOMEM, "no memory for the places of %zu tensors", n);
	for (i = 0; i < n; i++)
		spans[i] = (struct span){tensors[i].offset, tensors[i].offset + tensors[i].bytes, i};
	qsort(spans, n, sizeof *spans, by_begin);
	enum err e = OK;
	for (i = 1; i < n && e == OK; i++)
		if (spans[i - 1].end > spans[i].begin)
			e = errmsg_fail(p->em, ERR_FORMAT, "tensor \"%s\" (data offset %" PRIu64 ") overlaps \"%s\" (offset %" PRIu64 " to %" PRIu64 ")",
				shown(tensors[spans[i].idx].name).text, spans[i].begin, shown(tensors[spans[i - 1].idx].name).text,
				spans[i - 1].begin, spans[i - 1].end);
	free(spans);
	return e;
}

static enum err parse_file(const void *data, size_t len, uint64_t file_bytes, bool with_data, struct gguf *g, struct errmsg *em)
{
	struct parse p = {.r = reader_init(data, len), .base = data, .file_bytes = file_bytes, .alignment = ALIGNMENT_DEFAULT, .em = em};
	*g = (struct gguf){.file_bytes = file_bytes};
	enum err e = read_head(&p, g);
	if (e != OK)
		return e;
	// The alignment may stand anywhere among the keys, and all keys come before the first tensor.
	struct reader records = p.r;
	unsigned char hash_key[crypto_shorthash_KEYBYTES];
	e = check_records(&p, g, hash_key);
	if (e != OK)
		return e;
	g->alignment = p.alignment;
	g->data_offset = (at(&p) + p.alignment - 1) & ~(uint64_t)(p.alignment - 1);

	struct owned *o = open_owned(g);
	if (o == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for %" PRIu64 " keys and %" PRIu64 " tensors", g->n_kv, g->n_tensors);
	memcpy(o->hash_key, hash_key, sizeof o->hash_key);
	g->owned = o;
	g->kvs = o->kvs;
	g->tensors = o->tensors;
	p.r = records;
	e = fill_kvs(&p, o, g);
	if (e == OK)
		e = fill_tensors(&p, o, g);
	if (e == OK)
		e = place_data(&p, g, o->tensors, with_data);
	if (e == OK)
		e = check_overlap(&p, g, o->tensors);
	return e;
}

enum err gguf_parse(const void *data, size_t len, struct gguf *out, struct errmsg *em)
{
	enum err e = parse_file(data, len, len, true, out, em);
	if (e != OK)
		gguf_deinit(out);
	return e;
}

enum err gguf_parse_header(const void *data, size_t len, uint64_t file_bytes, struct gguf *out, struct errmsg *em)
{
	ASSERT(len <= file_bytes);
	enum err e = parse_file(data, len, file_bytes, false, out, em);
	if (e != OK)
		gguf_deinit(out);
	return e;
}

void gguf_deinit(struct gguf *g)
{
	if (g->owned != NULL) {
		struct arena a = ((struct owned *)g->owned)->arena;
		arena_close(&a);
	}
	*g = (struct gguf){0};
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
	const struct owned *o = g->owned;
	if (o == NULL)
		return NULL;
	struct gguf_str want = {key, strlen(key)};
	for (size_t s = slot_of(o, want, o->kv_mask); o->kv_slots[s] != 0; s = (s + 1) & o->kv_mask)
		if (same(g->kvs[o->kv_slots[s] - 1].key, want))
			return &g->kvs[o->kv_slots[s] - 1];
	return NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
	const struct owned *o = g->owned;
	if (o == NULL)
		return NULL;
	struct gguf_str want = {name, strlen(name)};
	for (size_t s = slot_of(o, want, o->tensor_mask); o->tensor_slots[s] != 0; s = (s + 1) & o->tensor_mask)
		if (same(g->tensors[o->tensor_slots[s] - 1].name, want))
			return &g->tensors[o->tensor_slots[s] - 1];
	return NULL;
}
