#include "model/hparams.h"

#include "base/limits.h"
#include "base/printable.h"
#include "model/gguf.h"

#include <inttypes.h>
#include <string.h>

#define ROPE_THETA_DEFAULT 10000.0 // the RoPE paper's base; files that use it may leave the key out

const char *arch_name(enum arch a)
{
	static const char *const names[] = {[ARCH_LLAMA] = "llama"};
	return (size_t)a < ARRAY_LEN(names) ? names[a] : "?";
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

static enum err read_arch(const struct gguf *g, struct hparams *hp, struct errmsg *em)
{
	struct gguf_str name;
	enum err e = gguf_get_str(g, "general.architecture", &name, em);
	if (e != OK)
		return e;
	if (name.len != 5 || memcmp(name.data, "llama", 5) != 0) {
		char shown[64];
		return errmsg_fail(em, ERR_UNSUPPORTED, "architecture \"%s\" is not supported (this program runs llama)",
			printable_copy(name.data, name.len, shown, sizeof shown));
	}
	hp->arch = ARCH_LLAMA;
	return OK;
}

static enum err read_shape(const struct gguf *g, struct hparams *hp, struct errmsg *em)
{
	enum err e = get_i32(g, "llama.block_count", LAYERS_MAX, &hp->n_layers, em);
	if (e == OK)
		e = get_i32(g, "llama.embedding_length", HIDDEN_DIM_MAX, &hp->hidden_dim, em);
	if (e == OK)
		e = get_per_layer(g, "llama.feed_forward_length", hp->n_layers, HIDDEN_DIM_MAX, 0, &hp->ffn_dim, em);
	if (e == OK)
		e = get_per_layer(g, "llama.attention.head_count", hp->n_layers, HEADS_MAX, 0, &hp->n_heads, em);
	if (e == OK)
		e = get_per_layer(g, "llama.attention.head_count_kv", hp->n_layers, HEADS_MAX, hp->n_heads, &hp->n_kv_heads, em);
	if (e == OK)
		e = get_i32(g, "llama.context_length", CTX_LEN_TRAIN_MAX, &hp->ctx_len_train, em);
	return e;
}

static enum err read_head_dim(const struct gguf *g, struct hparams *hp, struct errmsg *em)
{
	if (gguf_find(g, "llama.attention.key_length") == NULL && hp->hidden_dim % hp->n_heads != 0)
		return errmsg_fail(em, ERR_FORMAT, "key llama.embedding_length is %" PRId32 ", wanted a multiple of the %" PRId32
			" heads, since llama.attention.key_length is missing", hp->hidden_dim, hp->n_heads);
	int32_t v_dim = 0;
	enum err e = get_i32_or(g, "llama.attention.key_length", HEAD_DIM_MAX, hp->hidden_dim / hp->n_heads, &hp->head_dim, em);
	if (e == OK)
		e = get_i32_or(g, "llama.attention.value_length", HEAD_DIM_MAX, hp->head_dim, &v_dim, em);
	if (e == OK && v_dim != hp->head_dim)
		e = errmsg_fail(em, ERR_UNSUPPORTED, "key llama.attention.value_length is %" PRId32 ", wanted %" PRId32
			" as for keys: heads of two sizes are not supported", v_dim, hp->head_dim);
	if (e == OK)
		e = get_i32_or(g, "llama.rope.dimension_count", HEAD_DIM_MAX, hp->head_dim, &hp->rope_dim, em);
	return e;
}

static enum err read_floats(const struct gguf *g, struct hparams *hp, struct errmsg *em)
{
	double eps = 0;
	enum err e = gguf_get_f64(g, "llama.attention.layer_norm_rms_epsilon", &eps, em);
	hp->norm_eps = (float)eps;
	hp->rope_theta = ROPE_THETA_DEFAULT;
	if (e == OK && gguf_find(g, "llama.rope.freq_base") != NULL)
		e = gguf_get_f64(g, "llama.rope.freq_base", &hp->rope_theta, em);
	return e;
}

// read_vocab takes the vocabulary's size from the tokens when there are some; llama.vocab_size must not contradict them.
static enum err read_vocab(const struct gguf *g, struct hparams *hp, struct errmsg *em)
{
	struct gguf_strings it;
	enum err e = gguf_strings_init(g, "tokenizer.ggml.tokens", &it, em);
	if (e == ERR_FORMAT)
		return e;
	if (e == ERR_NOT_FOUND)
		return get_i32(g, "llama.vocab_size", VOCAB_MAX, &hp->vocab_size, em);
	if (it.left < 1 || it.left > VOCAB_MAX)
		return errmsg_fail(em, it.left < 1 ? ERR_FORMAT : ERR_LIMIT, "tokenizer.ggml.tokens has %" PRIu64 " tokens, wanted 1 to %d", it.left,
			VOCAB_MAX);
	int32_t said = 0;
	e = get_i32_or(g, "llama.vocab_size", VOCAB_MAX, (int32_t)it.left, &said, em);
	if (e == OK && (uint64_t)said != it.left)
		e = errmsg_fail(em, ERR_FORMAT, "key llama.vocab_size is %" PRId32 ", wanted %" PRIu64 ", the number of tokenizer.ggml.tokens", said,
			it.left);
	hp->vocab_size = (int32_t)it.left;
	return e;
}

static enum err refuse_experts(const struct gguf *g, struct errmsg *em)
{
	if (gguf_find(g, "llama.expert_count") == NULL)
		return OK;
	uint64_t n = 0, used = 0;
	enum err e = gguf_get_u64(g, "llama.expert_count", &n, em);
	if (e == OK && gguf_find(g, "llama.expert_used_count") != NULL)
		e = gguf_get_u64(g, "llama.expert_used_count", &used, em);
	if (e != OK)
		return e;
	if (used > n)
		return errmsg_fail(em, ERR_FORMAT, "key llama.expert_used_count is %" PRIu64 ", wanted at most %" PRIu64 " (llama.expert_count)", used,
			n);
	if (n > 0)
		return errmsg_fail(em, ERR_UNSUPPORTED, "llama with %" PRIu64 " experts (llama.expert_count) is not supported", n);
	return OK;
}

static enum err refuse_rope_scaling(const struct gguf *g, struct errmsg *em)
{
	if (gguf_find(g, "llama.rope.scaling.type") == NULL)
		return OK;
	struct gguf_str s;
	char shown[64];
	enum err e = gguf_get_str(g, "llama.rope.scaling.type", &s, em);
	if (e == OK && (s.len != 4 || memcmp(s.data, "none", 4) != 0))
		e = errmsg_fail(em, ERR_UNSUPPORTED, "RoPE scaling \"%s\" (llama.rope.scaling.type) is not supported",
			printable_copy(s.data, s.len, shown, sizeof shown));
	return e;
}

static enum err refuse_linear_scaling(const struct gguf *g, struct errmsg *em)
{
	if (gguf_find(g, "llama.rope.scale_linear") == NULL) // the older name
		return OK;
	double scale = 1;
	enum err e = gguf_get_f64(g, "llama.rope.scale_linear", &scale, em);
	if (e == OK && !(scale == 1))
		e = errmsg_fail(em, ERR_UNSUPPORTED, "linear RoPE scaling by %g (llama.rope.scale_linear) is not supported", scale);
	return e;
}

static enum err refuse_rope_factors(const struct gguf *g, struct errmsg *em)
{
	if (gguf_find_tensor(g, "rope_freqs.weight") == NULL)
		return OK;
	return errmsg_fail(em, ERR_UNSUPPORTED, "RoPE frequency factors (tensor rope_freqs.weight) are not supported");
}

static enum err (*const features[])(const struct gguf *g, struct errmsg *em) = {
	refuse_experts, refuse_rope_scaling, refuse_linear_scaling, refuse_rope_factors,
};

size_t hparams_features(const struct gguf *g, struct errmsg *list, size_t cap)
{
	size_t n = 0;
	for (size_t i = 0; i < ARRAY_LEN(features) && n < cap; i++)
		if (features[i](g, &list[n]) != OK)
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
	if (hp->arch != ARCH_LLAMA)
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
	// Written so that NaN fails.
	if (!(hp->rope_theta >= 1 && hp->rope_theta <= 1e12))
		return errmsg_fail(em, ERR_FORMAT, "RoPE base is %g, wanted 1 to 1e12", hp->rope_theta);
	if (!(hp->norm_eps >= 0 && hp->norm_eps <= 1))
		return errmsg_fail(em, ERR_FORMAT, "norm epsilon is %g, wanted 0 to 1", (double)hp->norm_eps);
	return OK;
}

enum err hparams_read(const struct gguf *g, struct hparams *out, struct errmsg *em)
{
	struct hparams hp = {0};
	*out = hp;
	enum err e = read_arch(g, &hp, em);
	if (e == OK)
		e = read_shape(g, &hp, em);
	if (e == OK)
		e = read_head_dim(g, &hp, em);
	if (e == OK)
		e = read_floats(g, &hp, em);
	if (e == OK)
		e = read_vocab(g, &hp, em);
	if (e == OK)
		e = hparams_check(&hp, em);
	// What a llama file may ask for and this program does not compute is refused: an answer without it would be wrong.
	for (size_t i = 0; i < ARRAY_LEN(features) && e == OK; i++)
		e = features[i](g, em);
	if (e != OK)
		return e;
	hp.tied_embeddings = gguf_find_tensor(g, "output.weight") == NULL;
	*out = hp;
	return OK;
}
