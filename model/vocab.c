#include "model/vocab.h"

#include "base/bytes.h"
#include "base/limits.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "model/byte_level.h"

#include <inttypes.h>
#include <string.h>

#define TOKENS_KEY "tokenizer.ggml.tokens"
#define TYPES_KEY "tokenizer.ggml.token_type"
#define MERGES_KEY "tokenizer.ggml.merges"
// A table half to three quarters full probes some dozens at worst when keys are not chosen to collide.
#define PROBES_MAX 2048

// What is being built; `v` gets const views of it.
struct build {
	const struct gguf *g;
	struct vocab *v;
	struct vocab_token *tokens;
	int32_t *text_slots;
	struct vocab_merge *merges;
	char *pieces;
	uint64_t n_merges;
	size_t text_bytes; // of all tokens
};

static uint64_t mix(uint64_t h)
{
	h *= 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}

// The text of a merge's result is two slices, so hashing goes byte by byte and can be continued.
static uint64_t hash_bytes(uint64_t h, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)text[i]) * 0x100000001b3u;
	return h;
}

#define HASH_START 0xcbf29ce484222325u

// find_joined looks for the token whose text is a followed by b.
static int32_t find_joined(const struct vocab *v, struct gguf_str a, struct gguf_str b)
{
	uint64_t h = mix(hash_bytes(hash_bytes(HASH_START, a.data, a.len), b.data, b.len));
	for (uint32_t i = 0; i < PROBES_MAX; i++) {
		int32_t id = v->text_slots[(uint32_t)(h + i) & v->text_mask];
		if (id < 0)
			return -1;
		const struct vocab_token *t = &v->tokens[id];
		if (t->text_len == a.len + b.len && memcmp(t->text, a.data, a.len) == 0 &&
			(b.len == 0 || memcmp(t->text + a.len, b.data, b.len) == 0))
			return id;
	}
	return -1;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t len)
{
	if (len == 0)
		return -1;
	return find_joined(v, (struct gguf_str){text, len}, (struct gguf_str){text, 0});
}

static uint64_t pair_hash(int32_t left, int32_t right)
{
	return mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right) >> 7;
}

const struct vocab_merge *vocab_find_merge(const struct vocab *v, int32_t left, int32_t right)
{
	uint64_t h = pair_hash(left, right);
	for (uint32_t i = 0; i < PROBES_MAX; i++) {
		const struct vocab_merge *m = &v->merges[(uint32_t)(h + i) & v->merge_mask];
		if (m->rank == VOCAB_NO_RANK)
			return NULL;
		if (m->left == left && m->right == right)
			return m;
	}
	return NULL;
}

// add_text puts token `id` into the hash: a later token of the same text takes the place of an earlier one.
static bool add_text(struct build *b, int32_t id)
{
	const struct vocab_token *t = &b->tokens[id];
	uint64_t h = mix(hash_bytes(HASH_START, t->text, t->text_len));
	for (uint32_t i = 0; i < PROBES_MAX; i++) {
		int32_t *slot = &b->text_slots[(uint32_t)(h + i) & b->v->text_mask];
		bool same = *slot >= 0 && b->tokens[*slot].text_len == t->text_len &&
			memcmp(b->tokens[*slot].text, t->text, t->text_len) == 0;
		if (*slot < 0 || same) {
			*slot = id;
			return true;
		}
	}
	return false;
}

// add_merge keeps the first of two equal rules.
static bool add_merge(struct build *b, struct vocab_merge merge)
{
	uint64_t h = pair_hash(merge.left, merge.right);
	for (uint32_t i = 0; i < PROBES_MAX; i++) {
		struct vocab_merge *m = &b->merges[(uint32_t)(h + i) & b->v->merge_mask];
		if (m->rank == VOCAB_NO_RANK) {
			*m = merge;
			return true;
		}
		if (m->left == merge.left && m->right == merge.right)
			return true;
	}
	return false;
}

// slots_for returns a power of two of which n are at most three quarters.
static size_t slots_for(uint64_t n)
{
	size_t slots = 16;
	while (slots - slots / 4 < n)
		slots *= 2;
	return slots;
}

static enum err count(struct build *b, struct errmsg *em)
{
	struct gguf_strings it;
	struct gguf_str s;
	enum err e = gguf_strings_init(b->g, TOKENS_KEY, &it, em);
	if (e != OK)
		return e;
	if (it.left < 1 || it.left > VOCAB_MAX)
		return errmsg_fail(em, it.left < 1 ? ERR_FORMAT : ERR_LIMIT,
			"key " TOKENS_KEY " has %" PRIu64 " tokens, wanted 1 to %d", it.left, VOCAB_MAX);
	b->v->n_tokens = (int32_t)it.left;
	while (gguf_strings_next(&it, &s))
		if (!add_size(b->text_bytes, s.len, &b->text_bytes) || b->text_bytes > UINT32_MAX)
			return errmsg_fail(em, ERR_LIMIT, "key " TOKENS_KEY " holds more than 4 GiB of text");
	if ((e = gguf_strings_init(b->g, MERGES_KEY, &it, em)) != OK)
		return e;
	b->n_merges = it.left;
	if (it.left > MERGES_MAX)
		return errmsg_fail(
			em, ERR_LIMIT, "key " MERGES_KEY " has %" PRIu64 " merges, wanted at most %d", it.left, MERGES_MAX);
	return OK;
}

static enum err allocate(struct build *b, struct errmsg *em)
{
	size_t n = (size_t)b->v->n_tokens, n_text = slots_for(n), n_merge = slots_for(b->n_merges);
	size_t cap = n * sizeof *b->tokens + n_text * sizeof *b->text_slots + n_merge * sizeof *b->merges + b->text_bytes +
		5 * 64;
	if (arena_open(cap, &b->v->arena) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a vocabulary of %zu tokens (%zu bytes)", n, cap);
	b->tokens = arena_alloc(&b->v->arena, n, sizeof *b->tokens);
	b->text_slots = arena_alloc(&b->v->arena, n_text, sizeof *b->text_slots);
	b->merges = arena_alloc(&b->v->arena, n_merge, sizeof *b->merges);
	b->pieces = arena_alloc(&b->v->arena, b->text_bytes + 1, 1);
	if (!b->tokens || !b->text_slots || !b->merges || !b->pieces)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a vocabulary of %zu tokens", n);
	memset(b->text_slots, 0xff, n_text * sizeof *b->text_slots);
	memset(b->merges, 0xff, n_merge * sizeof *b->merges);
	b->v->tokens = b->tokens;
	b->v->text_slots = b->text_slots;
	b->v->text_mask = (uint32_t)(n_text - 1);
	b->v->merges = b->merges;
	b->v->merge_mask = (uint32_t)(n_merge - 1);
	b->v->pieces = b->pieces;
	return OK;
}

// read_types gives every token its type; a file without the key has normal tokens only.
static enum err read_types(struct build *b, struct errmsg *em)
{
	const struct gguf_kv *kv = gguf_find(b->g, TYPES_KEY);
	if (kv != NULL && (kv->type != GGUF_ARRAY || kv->n_elems != (uint64_t)b->v->n_tokens))
		return errmsg_fail(em, ERR_FORMAT,
			"key " TYPES_KEY " has %" PRIu64 " values, wanted one for each of %" PRId32 " tokens",
			kv->type == GGUF_ARRAY ? kv->n_elems : 0, b->v->n_tokens);
	for (int32_t id = 0; id < b->v->n_tokens; id++) {
		uint64_t type = TOKEN_NORMAL;
		if (kv != NULL && (!gguf_elem_u64(kv, (uint64_t)id, &type) || type > TOKEN_BYTE))
			return errmsg_fail(em, ERR_FORMAT, "token %" PRId32 ": its " TYPES_KEY " is no integer from 0 to %d", id,
				TOKEN_BYTE);
		b->tokens[id].type = (uint8_t)type;
	}
	return OK;
}

static enum err read_tokens(struct build *b, struct errmsg *em)
{
	struct gguf_strings it;
	struct gguf_str s;
	uint32_t offset = 0;
	char shown[64];
	enum err e = gguf_strings_init(b->g, TOKENS_KEY, &it, em);
	if (e != OK)
		return e;
	for (int32_t id = 0; id < b->v->n_tokens && gguf_strings_next(&it, &s); id++) {
		struct vocab_token *t = &b->tokens[id];
		if (!utf8_valid(s.data, s.len))
			return errmsg_fail(em, ERR_FORMAT, "token %" PRId32 " \"%s\" is not UTF-8", id,
				printable_copy(s.data, s.len, shown, sizeof shown));
		t->text = s.data;
		t->text_len = (uint32_t)s.len;
		size_t piece_len = 0;
		t->piece_offset = offset;
		t->in_bytes = !vocab_is_special(b->v, id) && byte_level_decode(s.data, s.len, b->pieces + offset, &piece_len);
		t->piece_len = t->in_bytes ? (uint32_t)piece_len : 0;
		offset += t->piece_len;
		// Some converters leave empty texts for holes in the id space: such a token is never found and says nothing.
		if (s.len > 0 && !add_text(b, id))
			return errmsg_fail(em, ERR_FORMAT, "token %" PRId32 " \"%s\" collides with more than %d others", id,
				printable_copy(s.data, s.len, shown, sizeof shown), PROBES_MAX);
	}
	return OK;
}

// read_merge reads one rule, "left right". The blank is looked for behind the first byte, since a part may begin with one.
static enum err read_merge(struct build *b, uint32_t rank, struct gguf_str s, struct errmsg *em)
{
	char shown[64];
	const char *blank = s.len > 1 ? memchr(s.data + 1, ' ', s.len - 1) : NULL;
	if (blank == NULL || blank == s.data + s.len - 1)
		return errmsg_fail(em, ERR_FORMAT, "merge %" PRIu32 " \"%s\" is no pair of tokens with a blank between them",
			rank, printable_copy(s.data, s.len, shown, sizeof shown));
	struct gguf_str left = {s.data, (size_t)(blank - s.data)}, right = {blank + 1, s.len - left.len - 1};
	struct vocab_merge m = {vocab_find(b->v, left.data, left.len), vocab_find(b->v, right.data, right.len), rank,
		find_joined(b->v, left, right)};
	if (m.left < 0 || m.right < 0 || m.result < 0)
		return errmsg_fail(em, ERR_FORMAT, "merge %" PRIu32 " \"%s\": the %s is not in the vocabulary", rank,
			printable_copy(s.data, s.len, shown, sizeof shown),
			m.left < 0            ? "left part"
				: m.right < 0 ? "right part"
					      : "result");
	if (!add_merge(b, m))
		return errmsg_fail(em, ERR_FORMAT, "merge %" PRIu32 " \"%s\" collides with more than %d others", rank,
			printable_copy(s.data, s.len, shown, sizeof shown), PROBES_MAX);
	return OK;
}

static enum err read_merges(struct build *b, struct errmsg *em)
{
	struct gguf_strings it;
	struct gguf_str s;
	enum err e = gguf_strings_init(b->g, MERGES_KEY, &it, em);
	for (uint32_t rank = 0; e == OK && rank < b->n_merges && gguf_strings_next(&it, &s); rank++)
		e = read_merge(b, rank, s, em);
	return e;
}

static void find_bytes(struct vocab *v)
{
	for (int b = 0; b < 256; b++) {
		uint8_t text[BYTE_LEVEL_CHAR_MAX];
		size_t len = byte_level_encode((uint8_t)b, text);
		v->byte_ids[b] = vocab_find(v, (const char *)text, len);
	}
}

enum err vocab_open(const struct gguf *g, struct vocab *v, struct errmsg *em)
{
	*v = (struct vocab){0};
	struct build b = {.g = g, .v = v};
	enum err e = count(&b, em);
	if (e != OK || (e = allocate(&b, em)) != OK || (e = read_types(&b, em)) != OK || (e = read_tokens(&b, em)) != OK ||
		(e = read_merges(&b, em)) != OK) {
		vocab_close(v);
		return e;
	}
	find_bytes(v);
	return OK;
}

void vocab_close(struct vocab *v)
{
	arena_close(&v->arena);
	*v = (struct vocab){0};
}
