#include "model/hparams.h"

#include "base/limits.h"
#include "base/printable.h"
#include "model/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROPE_THETA_DEFAULT 10000.0 // the RoPE paper's base; files that use it may leave the key out

#define KEY_CAP 80 // an architecture's name and the longest suffix here

static const char *const arch_names[] = {[ARCH_LLAMA] = "llama", [ARCH_QWEN3MOE] = "qwen3moe"};

const char *arch_name(enum arch a)
{
	return (size_t)a < ARRAY_LEN(arch_names) ? arch_names[a] : "?";
}

bool arch_has_qk_norm(enum arch a)
{
	return a == ARCH_QWEN3MOE;
}

bool arch_rope_is_halves(enum arch a)
{
	return a == ARCH_QWEN3MOE;
}

// A file's keys begin with its architecture's name.
struct source {
	const struct gguf *g;
	enum arch arch;
	char key[KEY_CAP]; // of the last call of key_of
};

static const char *key_of(struct source *s, const char *suffix)
{
	snprintf(s->key, sizeof s->key, "%s.%s", arch_names[s->arch], suffix);
	return s->key;
}

// get_i32 reads an integer that must lie in [1, max].
static enum err get_i32(const struct gguf *g, const char *key, int32_t max, int32_t *out, struct errmsg *em)
{
	uint64_t v = 0;
	*out = 0;
	enum err e = gguf_get_u64(g, key, &v, em);
	if (e != OK)
		return e;
	if (v < 1 || v > (uint64_t)max)
		return errmsg_fail(em, v < 1 ? ERR_FORMAT : ERR_LIMIT, "key %s is %" PRIu64 ", wanted 1 to %" PRId32, key, v, max);
	*out = (int32_t)v;
	return OK;
}

// get_i32_or is get_i32 for a key that may be missing.
static enum err get_i32_or(const struct gguf *g, const char *key, int32_t max, int32_t otherwise, int32_t *out, struct errmsg *em)
{
	if (gguf_find(g, key) != NULL)
		return get_i32(g, key, max, out, em);
	*out = otherwise;
	return OK;
}

// get_per_layer reads a number that may also be given as an array with one value for each layer. Layers that differ are another
// architecture than ours.
static enum err get_per_layer(const struct gguf *g, const char *key, int32_t n_layers, int32_t max, int32_t otherwise, int32_t *out,
	struct errmsg *em)
{
	const struct gguf_kv *kv = gguf_find(g, key);
	if (kv == NULL || kv->type != GGUF_ARRAY)
		return otherwise > 0 ? get_i32_or(g, key, max, otherwise, out, em) : get_i32(g, key, max, out, em);
	*out = 0;
	if (kv->n_elems != (uint64_t)n_layers)
		return errmsg_fail(em, ERR_FORMAT, "key %s has %" PRIu64 " values, wanted one for each of %" PRId32 " layers", key, kv->n_elems,
			n_layers);
	uint64_t first = 0, v = 0;
	for (uint64_t i = 0; i < kv->n_elems; i++) {
		if (!gguf_elem_u64(kv, i, &v))
			return errmsg_fail(em, ERR_FORMAT, "key %s is an array of %s%s, wanted integers of 0 or more", key,
				gguf_type_name(kv->elem_type), gguf_type_is_signed(kv->elem_type) ? " and has a negative value" : "");
		if (i == 0)
			first = v;
		if (v != first)
			return errmsg_fail(em, ERR_UNSUPPORTED, "key %s differs between layers (%" PRIu64 " in layer 0, %" PRIu64 " in layer %" PRIu64
				"): not supported", key, first, v, i);
	}
	if (first < 1 || first > (uint64_t)max)
		return errmsg_fail(em, first < 1 ? ERR_FORMAT : ERR_LIMIT, "key %s is %" PRIu64 ", wanted 1 to %" PRId32, key, first, max);
	*out = (int32_t)first;
	return OK;
}

static enum err read_arch(const struct gguf *g, enum arch *out, struct errmsg *em)
{
	struct gguf_str name;
	enum err e = gguf_get_str(g, "general.architecture", &name, em);
	if (e != OK)
		return e;
	for (size_t i = 0; i < ARRAY_LEN(arch_names); i++) {
		if (name.len == strlen(arch_names[i]) && memcmp(name.data, arch_names[i], name.len) == 0) {
			*out = (enum arch)i;
			return OK;
		}
	}
	char shown[64];
	return errmsg_fail(em, ERR_UNSUPPORTED, "architecture \"%s\" is not supported (this program runs llama and qwen3moe)",
		printable_copy(name.data, name.len, shown, sizeof shown));
}

static enum err read_experts(struct source *s, struct hparams *hp, struct errmsg *em)
{
	const char *key = key_of(s, "expert_count");
	uint64_t n = 0;
	enum err e = gguf_find(s->g, key) != NULL ? gguf_get_u64(s->g, key, &n, em) : OK;
	if (e == OK && n > EXPERTS_MAX)
		e = errmsg_fail(em, ERR_LIMIT, "key %s is %" PRIu64 ", wanted at most %d", key, n, EXPERTS_MAX);
	if (e == OK && n == 0 && s->arch == ARCH_QWEN3MOE)
		e = errmsg_fail(em, ERR_FORMAT, "key %s is missing or 0, wanted 1 to %d", key, EXPERTS_MAX);
	if (e != OK || n == 0)
		return e;
	hp->n_experts = (int32_t)n;
	key = key_of(s, "expert_used_count");
	e = get_i32(s->g, key, EXPERTS_MAX, &hp->n_experts_used, em);
	if (e == OK && hp->n_experts_used > hp->n_experts)
		e = errmsg_fail(em, ERR_FORMAT, "key %s is %" PRId32 ", wanted at most %" PRId32 " (%s.expert_count)", key, hp->n_experts_used, hp->n_experts,
			arch_names[s->arch]);
	return e;
}

// read_ffn_dim: qwen3moe's experts have a width of their own, and the other key is of no use there; those of llama have the only width.
static enum err read_ffn_dim(struct source *s, struct hparams *hp, struct errmsg *em)
{
	if (s->arch == ARCH_QWEN3MOE)
		return get_i32(s->g, key_of(s, "expert_feed_forward_length"), HIDDEN_DIM_MAX, &hp->ffn_dim, em);
	return get_per_layer(s->g, key_of(s, "feed_forward_length"), hp->n_layers, HIDDEN_DIM_MAX, 0, &hp->ffn_dim, em);
}

static enum err read_shape(struct source *s, struct hparams *hp, struct errmsg *em)
{
	enum err e = get_i32(s->g, key_of(s, "block_count"), LAYERS_MAX, &hp->n_layers, em);
	if (e == OK)
		e = get_i32(s->g, key_of(s, "embedding_length"), HIDDEN_DIM_MAX, &hp->hidden_dim, em);
	if (e == OK)
		e = read_ffn_dim(s, hp, em);
	if (e == OK)
		e = get_per_layer(s->g, key_of(s, "attention.head_count"), hp->n_layers, HEADS_MAX, 0, &hp->n_heads, em);
	if (e == OK)
		e = get_per_layer(s->g, key_of(s, "attention.head_count_kv"), hp->n_layers, HEADS_MAX, hp->n_heads, &hp->n_kv_heads, em);
	if (e == OK)
		e = get_i32(s->g, key_of(s, "context_length"), CTX_LEN_TRAIN_MAX, &hp->ctx_len_train, em);
	return e == OK ? read_experts(s, hp, em) : e;
}

static enum err read_head_dim(struct source *s, struct hparams *hp, struct errmsg *em)
{
	const char *arch = arch_names[s->arch];
	if (gguf_find(s->g, key_of(s, "attention.key_length")) == NULL && hp->hidden_dim % hp->n_heads != 0)
		return errmsg_fail(em, ERR_FORMAT, "key %s.embedding_length is %" PRId32 ", wanted a multiple of the %" PRId32
			" heads, since %s.attention.key_length is missing", arch, hp->hidden_dim, hp->n_heads, arch);
	int32_t v_dim = 0;
	enum err e = get_i32_or(s->g, key_of(s, "attention.key_length"), HEAD_DIM_MAX, hp->hidden_dim / hp->n_heads, &hp->head_dim, em);
	if (e == OK)
		e = get_i32_or(s->g, key_of(s, "attention.value_length"), HEAD_DIM_MAX, hp->head_dim, &v_dim, em);
	if (e == OK && v_dim != hp->head_dim)
		e = errmsg_fail(em, ERR_UNSUPPORTED, "key %s is %" PRId32 ", wanted %" PRId32
			" as for keys: heads of two sizes are not supported", s->key, v_dim, hp->head_dim);
	if (e == OK)
		e = get_i32_or(s->g, key_of(s, "rope.dimension_count"), HEAD_DIM_MAX, hp->head_dim, &hp->rope_dim, em);
	return e;
}

static enum err read_floats(struct source *s, struct hparams *hp, struct errmsg *em)
{
	double eps = 0;
	enum err e = gguf_get_f64(s->g, key_of(s, "attention.layer_norm_rms_epsilon"), &eps, em);
	hp->norm_eps = (float)eps;
	hp->rope_theta = ROPE_THETA_DEFAULT;
	if (e == OK && gguf_find(s->g, key_of(s, "rope.freq_base")) != NULL)
		e = gguf_get_f64(s->g, s->key, &hp->rope_theta, em);
	return e;
}

// read_vocab takes the vocabulary's size from the tokens when there are some; the key vocab_size must not contradict them.
static enum err read_vocab(struct source *s, struct hparams *hp, struct errmsg *em)
{
	const struct gguf *g = s->g;
	const char *key = key_of(s, "vocab_size");
	struct gguf_strings it;
	enum err e = gguf_strings_init(g, "tokenizer.ggml.tokens", &it, em);
	if (e == ERR_FORMAT)
		return e;
	if (e == ERR_NOT_FOUND)
		return get_i32(g, key, VOCAB_MAX, &hp->vocab_size, em);
	if (it.left < 1 || it.left > VOCAB_MAX)
		return errmsg_fail(em, it.left < 1 ? ERR_FORMAT : ERR_LIMIT, "tokenizer.ggml.tokens has %" PRIu64 " tokens, wanted 1 to %d", it.left,
			VOCAB_MAX);
	int32_t said = 0;
	e = get_i32_or(g, key, VOCAB_MAX, (int32_t)it.left, &said, em);
	if (e == OK && (uint64_t)said != it.left)
		e = errmsg_fail(em, ERR_FORMAT, "key %s is %" PRId32 ", wanted %" PRIu64 ", the number of tokenizer.ggml.tokens", key, said,
			it.left);
	hp->vocab_size = (int32_t)it.left;
	return e;
}

// refuse_kinds_of_experts: routers and experts that compute otherwise than ours. A key's usual value may be written out.
static enum err refuse_kinds_of_experts(struct source *s, struct errmsg *em)
{
	static const struct {
		const char *suffix;
		double usual, also; // values that ask for nothing
	} keys[] = {
		{"expert_shared_count", 0, 0}, {"expert_gating_func", 1, 0}, {"expert_weights_scale", 1, 0}, {"expert_group_count", 0, 1},
		{"leading_dense_block_count", 0, 0}, {"interleave_moe_layer_step", 0, 1},
	};
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		const struct gguf_kv *kv = gguf_find(s->g, key_of(s, keys[i].suffix));
		uint64_t n = 0;
		double v = 0;
		if (kv == NULL)
			continue;
		if (kv->type != GGUF_ARRAY && gguf_elem_u64(kv, 0, &n))
			v = (double)n;
		else if (kv->type == GGUF_ARRAY || !gguf_elem_f64(kv, 0, &v))
			return errmsg_fail(em, ERR_FORMAT, "key %s has type %s, wanted a number", s->key, gguf_type_name(kv->type));
		if (!(v == keys[i].usual) && !(v == keys[i].also))
			return errmsg_fail(em, ERR_UNSUPPORTED, "experts with %s %g are not supported", s->key, v);
	}
	return OK;
}

static enum err refuse_plain_weights(struct source *s, struct errmsg *em)
{
	bool norm = true;
	const char *key = key_of(s, "expert_weights_norm");
	enum err e = gguf_find(s->g, key) != NULL ? gguf_get_bool(s->g, key, &norm, em) : OK;
	return e != OK || norm ? e : errmsg_fail(em, ERR_UNSUPPORTED, "experts whose weights are not normed (%s) are not supported", key);
}

static enum err refuse_rope_scaling(struct source *s, struct errmsg *em)
{
	const char *key = key_of(s, "rope.scaling.type");
	if (gguf_find(s->g, key) == NULL)
		return OK;
	struct gguf_str kind;
	char shown[64];
	enum err e = gguf_get_str(s->g, key, &kind, em);
	if (e == OK && (kind.len != 4 || memcmp(kind.data, "none", 4) != 0))
		e = errmsg_fail(em, ERR_UNSUPPORTED, "RoPE scaling \"%s\" (%s) is not supported", printable_copy(kind.data, kind.len, shown, sizeof shown),
			key);
	return e;
}

static enum err refuse_linear_scaling(struct source *s, struct errmsg *em)
{
	const char *key = key_of(s, "rope.scale_linear"); // the older name
	if (gguf_find(s->g, key) == NULL)
		return OK;
	double scale = 1;
	enum err e = gguf_get_f64(s->g, key, &scale, em);
	if (e == OK && !(scale == 1))
		e = errmsg_fail(em, ERR_UNSUPPORTED, "linear RoPE scaling by %g (%s) is not supported", scale, key);
	return e;
}

static enum err refuse_rope_factors(struct source *s, struct errmsg *em)
{
	if (gguf_find_tensor(s->g, "rope_freqs.weight") == NULL)
		return OK;
	return errmsg_fail(em, ERR_UNSUPPORTED, "RoPE frequency factors (tensor rope_freqs.weight) are not supported");
}

static enum err (*const features[])(struct source *s, struct errmsg *em) = {
	refuse_kinds_of_experts, refuse_plain_weights, refuse_rope_scaling, refuse_linear_scaling, refuse_rope_factors,
};

size_t hparams_features(const struct gguf *g, struct errmsg *list, size_t cap)
{
	struct source s = {.g = g};
	size_t n = 0;
	if (read_arch(g, &s.arch, NULL) != OK)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(features) && n < cap; i++)
		if (features[i](&s, &list[n]) != OK)
			n++;
	return n;
}

enum err hparams_check(const struct hparams *hp, struct errmsg *em)
{
	const struct {
		const char *what;
		int32_t value, max;
	} ranges[] = {
		{"layers", hp->n_layers, LAYERS_MAX},      {"hidden width", hp->hidden_dim, HIDDEN_DIM_MAX},
		{"ffn width", hp->ffn_dim, HIDDEN_DIM_MAX}, {"heads", hp->n_heads, HEADS_MAX},
		{"kv heads", hp->n_kv_heads, HEADS_MAX},   {"head width", hp->head_dim, HEAD_DIM_MAX},
		{"vocabulary", hp->vocab_size, VOCAB_MAX}, {"trained context", hp->ctx_len_train, CTX_LEN_TRAIN_MAX},
	};
	for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
		if (ranges[i].value < 1 || ranges[i].value > ranges[i].max)
			return errmsg_fail(em, ERR_LIMIT, "%s is %" PRId32 ", wanted 1 to %" PRId32, ranges[i].what, ranges[i].value, ranges[i].max);
	if ((size_t)hp->arch >= ARRAY_LEN(arch_names))
		return errmsg_fail(em, ERR_UNSUPPORTED, "architecture number %d is not known", (int)hp->arch);
	if (hp->n_kv_heads > hp->n_heads || hp->n_heads % hp->n_kv_heads != 0)
		return errmsg_fail(em, ERR_FORMAT, "%" PRId32 " kv heads for %" PRId32 " heads, wanted a divisor of the heads", hp->n_kv_heads, hp->n_heads);
	if ((int64_t)hp->n_heads * hp->head_dim > HIDDEN_DIM_MAX)
		return errmsg_fail(em, ERR_LIMIT, "%" PRId32 " heads of %" PRId32 " are over the width limit %d", hp->n_heads, hp->head_dim,
			HIDDEN_DIM_MAX);
	if (hp->head_dim % 8 != 0)
		return errmsg_fail(em, ERR_UNSUPPORTED, "head width is %" PRId32 ", wanted a multiple of 8", hp->head_dim);
	if (hp->rope_dim < 2 || hp->rope_dim % 2 != 0 || hp->rope_dim > hp->head_dim)
		return errmsg_fail(em, ERR_FORMAT, "RoPE dimension is %" PRId32 ", wanted an even number from 2 to the head width %" PRId32, hp->rope_dim,
			hp->head_dim);
	if (hp->n_experts < 0 || hp->n_experts > EXPERTS_MAX || hp->n_experts_used < 0 || hp->n_experts_used > hp->n_experts ||
		(hp->n_experts_used == 0) != (hp->n_experts == 0))
		return errmsg_fail(em, ERR_FORMAT, "%" PRId32 " experts of which %" PRId32 " are used, wanted 1 to all of at most %d, or none",
			hp->n_experts, hp->n_experts_used, EXPERTS_MAX);
	// Written so that NaN fails.
	if (!(hp->rope_theta >= 1 && hp->rope_theta <= 1e12))
		return errmsg_fail(em, ERR_FORMAT, "RoPE base is %g, wanted 1 to 1e12", hp->rope_theta);
	if (!(hp->norm_eps >= 0 && hp->norm_eps <= 1))
		return errmsg_fail(em, ERR_FORMAT, "norm epsilon is %g, wanted 0 to 1", (double)hp->norm_eps);
	return OK;
}

enum err hparams_read(const struct gguf *g, struct hparams *out, struct errmsg *em)
{
	struct source s = {.g = g};
	struct hparams hp = {0};
	*out = hp;
	enum err e = read_arch(g, &s.arch, em);
	hp.arch = s.arch;
	if (e == OK)
		e = read_shape(&s, &hp, em);
	if (e == OK)
		e = read_head_dim(&s, &hp, em);
	if (e == OK)
		e = read_floats(&s, &hp, em);
	if (e == OK)
		e = read_vocab(&s, &hp, em);
	if (e == OK)
		e = hparams_check(&hp, em);
	// What a file may ask for and this program does not compute is refused: an answer without it would be wrong.
	for (size_t i = 0; i < ARRAY_LEN(features) && e == OK; i++)
		e = features[i](&s, em);
	if (e != OK)
		return e;
	hp.tied_embeddings = gguf_find_tensor(g, "output.weight") == NULL;
	*out = hp;
	return OK;
}
