// The tiny model of tests/support/gguf_build.h. Everything is made of integers, so that tools/make_tiny_model.py gives the same bytes.
#include "base/assert.h"
#include "base/bytes.h"
#include "tests/support/gguf_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// "a b" joins tokens a and b. Ġ is how the byte-level alphabet writes a space.
static const char *const merges[] = {
	"Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "Ġ o", "e n", "Ġ c", "i t", "i s", "a n", "o r",
	"e s", "Ġ b", "e d", "Ġ f", "in g", "Ġ p", "o u", "Ġa n", "a l", "a r", "Ġt o", "Ġ m", "Ġo f", "Ġ in", "Ġ d", "Ġ h", "Ġan d",
	"i c", "a s", "l e", "Ġt h", "i on", "o m", "l l", "en t", "Ġ n", "Ġ l", "s t", "Ġ re", "v e", "Ġ e", "r o", "l y", "Ġb e",
	"Ġ g", "Ġ T", "c t", "Ġ S", "i d", "o t", "Ġ I", "u t", "e t",
};

#define N_SPECIAL 3
#define TOKEN_CAP 32

static const char chat_template[] =
	"{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct rng {
	uint64_t state;
};

static uint64_t next(struct rng *r) // splitmix64
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

struct tiny_llama tiny_llama_default(uint64_t seed)
{
	return (struct tiny_llama){
		.seed = seed, .n_layers = 4, .hidden_dim = 64, .ffn_dim = 160, .n_heads = 4, .n_kv_heads = 2, .vocab_size = 320, .ctx_len = 512,
		.types = {DTYPE_Q4_1}, .n_types = 1, .embd_type = DTYPE_Q8_0,
	};
}

// byte_token writes the character that the byte-level alphabet gives byte b: printable Latin-1 stands for itself, the others follow
// from U+0100 in order.
static void byte_token(int b, char out[TOKEN_CAP])
{
	uint32_t cp = 0, n = 0;
	for (int i = 0; i <= b; i++) {
		bool self = (i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i <= 0xff && i != 0xad);
		cp = self ? (uint32_t)i : 0x100 + n++;
	}
	int len = 0;
	if (cp >= 0x80)
		out[len++] = (char)(0xc0 | cp >> 6);
	out[len++] = (char)(cp >= 0x80 ? 0x80 | (cp & 0x3f) : cp);
	out[len] = '\0';
}

static void token_text(int32_t id, char out[TOKEN_CAP])
{
	static const char *const special[N_SPECIAL] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
	int32_t merge = id - TINY_VOCAB_MIN;
	if (id < N_SPECIAL) {
		snprintf(out, TOKEN_CAP, "%s", special[id]);
	} else if (merge < 0) {
		byte_token(id - N_SPECIAL, out);
	} else if ((size_t)merge < ARRAY_LEN(merges)) {
		const char *space = strchr(merges[merge], ' ');
		snprintf(out, TOKEN_CAP, "%.*s%s", (int)(space - merges[merge]), merges[merge], space + 1);
	} else {
		snprintf(out, TOKEN_CAP, "<|unused_%" PRId32 "|>", id);
	}
}

static void put_tokenizer(struct gguf_build *b, int32_t vocab_size)
{
	size_t n = (size_t)vocab_size, n_merges = n - TINY_VOCAB_MIN;
	if (n_merges > ARRAY_LEN(merges))
		n_merges = ARRAY_LEN(merges);
	char (*text)[TOKEN_CAP] = calloc(n, sizeof *text);
	const char **tokens = calloc(n, sizeof *tokens);
	int32_t *types = calloc(n, sizeof *types);
	ASSERT(text != NULL && tokens != NULL && types != NULL);
	for (size_t i = 0; i < n; i++) {
		token_text((int32_t)i, text[i]);
		tokens[i] = text[i];
		types[i] = i < N_SPECIAL ? 3 : i < TINY_VOCAB_MIN + n_merges ? 1 : 5; // control, normal, unused
	}
	gguf_build_kv_str(b, "tokenizer.ggml.model", "gpt2");
	gguf_build_kv_str(b, "tokenizer.ggml.pre", "smollm");
	gguf_build_kv_strs(b, "tokenizer.ggml.tokens", tokens, n);
	gguf_build_kv_i32s(b, "tokenizer.ggml.token_type", types, n);
	gguf_build_kv_strs(b, "tokenizer.ggml.merges", merges, n_merges);
	gguf_build_kv_u32(b, "tokenizer.ggml.bos_token_id", 1);
	gguf_build_kv_u32(b, "tokenizer.ggml.eos_token_id", 2);
	gguf_build_kv_bool(b, "tokenizer.ggml.add_bos_token", false);
	gguf_build_kv_str(b, "tokenizer.chat_template", chat_template);
	free(types);
	free(tokens);
	free(text);
}

static void put_keys(struct gguf_build *b, const struct tiny_llama *t)
{
	gguf_build_kv_str(b, "general.architecture", "llama");
	gguf_build_kv_str(b, "general.name", "tiny llama");
	gguf_build_kv_u32(b, "llama.block_count", (uint32_t)t->n_layers);
	gguf_build_kv_u32(b, "llama.context_length", (uint32_t)t->ctx_len);
	gguf_build_kv_u32(b, "llama.embedding_length", (uint32_t)t->hidden_dim);
	gguf_build_kv_u32(b, "llama.feed_forward_length", (uint32_t)t->ffn_dim);
	gguf_build_kv_u32(b, "llama.attention.head_count", (uint32_t)t->n_heads);
	gguf_build_kv_u32(b, "llama.attention.head_count_kv", (uint32_t)t->n_kv_heads);
	gguf_build_kv_f32(b, "llama.rope.freq_base", 10000.0f);
	gguf_build_kv_f32(b, "llama.attention.layer_norm_rms_epsilon", 0.0000152587890625f); // 2^-16
	gguf_build_kv_u32(b, "llama.vocab_size", (uint32_t)t->vocab_size);
	put_tokenizer(b, t->vocab_size);
}

// The tensors in file order, called once to declare them and once to fill them.
struct tiny_tensor {
	char name[64];
	enum dtype type;
	int32_t cols, rows;
	bool is_norm;
};

struct walk {
	const struct tiny_llama *t;
	int32_t n_matrices; // so far: picks the type
	void (*each)(struct walk *w, const struct tiny_tensor *x);
	struct gguf_build *b;
	struct rng rng;
};

static void visit(struct walk *w, const char *prefix, const char *name, enum dtype type, int32_t cols, int32_t rows)
{
	struct tiny_tensor x = {.type = type, .cols = cols, .rows = rows, .is_norm = strstr(name, "norm") != NULL};
	snprintf(x.name, sizeof x.name, "%s%s", prefix, name);
	w->each(w, &x);
}

static enum dtype matrix_type(struct walk *w)
{
	return w->t->types[w->n_matrices++ % w->t->n_types];
}

static void visit_layer(struct walk *w, int32_t layer)
{
	const struct tiny_llama *t = w->t;
	int32_t h = t->hidden_dim, head_dim = h / t->n_heads, q = h, kv = t->n_kv_heads * head_dim, f = t->ffn_dim;
	char blk[16];
	snprintf(blk, sizeof blk, "blk.%" PRId32 ".", layer);
	visit(w, blk, "attn_norm.weight", DTYPE_F32, h, 1);
	visit(w, blk, "attn_q.weight", matrix_type(w), h, q);
	visit(w, blk, "attn_k.weight", matrix_type(w), h, kv);
	visit(w, blk, "attn_v.weight", matrix_type(w), h, kv);
	visit(w, blk, "attn_output.weight", matrix_type(w), q, h);
	if (t->biases) {
		visit(w, blk, "attn_q.bias", DTYPE_F32, q, 1);
		visit(w, blk, "attn_k.bias", DTYPE_F32, kv, 1);
		visit(w, blk, "attn_v.bias", DTYPE_F32, kv, 1);
	}
	visit(w, blk, "ffn_norm.weight", DTYPE_F32, h, 1);
	visit(w, blk, "ffn_gate.weight", matrix_type(w), h, f);
	visit(w, blk, "ffn_up.weight", matrix_type(w), h, f);
	visit(w, blk, "ffn_down.weight", matrix_type(w), f, h);
}

static void visit_all(struct walk *w)
{
	const struct tiny_llama *t = w->t;
	w->n_matrices = 0;
	visit(w, "", "token_embd.weight", t->embd_type, t->hidden_dim, t->vocab_size);
	for (int32_t layer = 0; layer < t->n_layers; layer++)
		visit_layer(w, layer);
	visit(w, "", "output_norm.weight", DTYPE_F32, t->hidden_dim, 1);
	if (t->untied)
		visit(w, "", "output.weight", t->embd_type, t->hidden_dim, t->vocab_size);
}

static void declare(struct walk *w, const struct tiny_tensor *x)
{
	gguf_build_tensor(w->b, x->name, x->type, (uint64_t)x->cols, (uint64_t)x->rows);
}

// random_f32 has magnitude 1/16 to 1/4 and any sign; a norm weight lies in [1, 1.25).
static uint32_t random_f32(struct rng *r, bool is_norm)
{
	uint64_t v = next(r);
	if (is_norm)
		return 127u << 23 | ((uint32_t)v & 0x1fffff);
	return ((uint32_t)v & 0x80000000u) | (123u + ((uint32_t)(v >> 40) & 1)) << 23 | ((uint32_t)v & 0x7fffff);
}

static void put_floats(struct walk *w, const struct tiny_tensor *x)
{
	for (int32_t i = 0; i < x->cols * x->rows; i++) {
		uint32_t bits = random_f32(&w->rng, x->is_norm);
		uint8_t out[4];
		store_u32(out, bits);
		if (x->type == DTYPE_F32) {
			gguf_build_bytes(w->b, out, 4);
		} else if (x->type == DTYPE_BF16) {
			gguf_build_bytes(w->b, out + 2, 2);
		} else { // f16: the exponent's bias changes from 127 to 15, thirteen bits are cut
			store_u16(out, (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)(((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff)));
			gguf_build_bytes(w->b, out, 2);
		}
	}
}

// A block: a scale with a random mantissa, for q4_1 the minimum -8 * scale, and random quants.
static void put_blocks(struct walk *w, const struct tiny_tensor *x)
{
	const struct dtype_info *info = dtype_find((uint32_t)x->type);
	int exponent = x->type == DTYPE_Q8_0 ? 5 : 9; // biased by 15: the weights have a deviation of about 0.1
	int32_t n = x->cols / (int32_t)info->block_len * x->rows;
	for (int32_t i = 0; i < n; i++) {
		uint8_t block[64];
		size_t len = 2;
		uint16_t d = (uint16_t)(exponent << 10 | (int)(next(&w->rng) & 0x3ff));
		store_u16(block, d);
		if (x->type == DTYPE_Q4_1 || x->type == DTYPE_Q5_1) {
			store_u16(block + 2, (uint16_t)(0x8000 | (d + (3 << 10))));
			len = 4;
		}
		for (; len < info->block_bytes; len += 8) {
			uint64_t v = next(&w->rng);
			store_u64(block + len, v);
		}
		gguf_build_bytes(w->b, block, info->block_bytes);
	}
}

// A super-block: random bytes around scales that keep weights small, and with a minimum their mean near 0.
static void put_supers(struct walk *w, const struct tiny_tensor *x)
{
	const struct dtype_info *info = dtype_find((uint32_t)x->type);
	bool has_min = x->type == DTYPE_Q4_K || x->type == DTYPE_Q5_K;
	int exponent = x->type == DTYPE_Q3_K ? 6 : x->type == DTYPE_Q4_K ? 3 : x->type == DTYPE_Q5_K ? 2 : 1;
	size_t d_at = has_min ? 0 : info->block_bytes - 2;
	for (int32_t i = 0; i < x->cols / (int32_t)info->block_len * x->rows; i++) {
		uint8_t block[256];
		for (size_t at = 0; at < info->block_bytes; at += 8)
			store_u64(block + at, next(&w->rng));
		uint16_t d = (uint16_t)(exponent << 10 | (int)(next(&w->rng) & 0x3ff));
		store_u16(block + d_at, d);
		if (has_min)
			store_u16(block + 2, (uint16_t)(d + ((x->type == DTYPE_Q4_K ? 3 : 4) << 10)));
		gguf_build_bytes(w->b, block, info->block_bytes);
	}
}

static void fill(struct walk *w, const struct tiny_tensor *x)
{
	static const uint8_t zeros[64];
	switch (x->type) {
	case DTYPE_F32:
	case DTYPE_F16:
	case DTYPE_BF16: put_floats(w, x); break;
	case DTYPE_Q4_0:
	case DTYPE_Q4_1:
	case DTYPE_Q5_0:
	case DTYPE_Q5_1:
	case DTYPE_Q8_0: put_blocks(w, x); break;
	case DTYPE_Q3_K:
	case DTYPE_Q4_K:
	case DTYPE_Q5_K:
	case DTYPE_Q6_K: put_supers(w, x); break;
	default: ASSERT(!"a type the tiny model cannot fill");
	}
	gguf_build_bytes(w->b, zeros, (size_t)(-w->b->len % w->b->alignment));
}

void gguf_build_tiny_llama(struct gguf_build *b, const struct tiny_llama *t)
{
	ASSERT(t->vocab_size >= TINY_VOCAB_MIN);
	ASSERT(t->n_types >= 1 && t->n_types <= TINY_TYPES_MAX);
	gguf_build_begin(b, 3);
	put_keys(b, t);
	struct walk w = {.t = t, .b = b, .each = declare, .rng = {t->seed}};
	visit_all(&w);
	gguf_build_begin_data(b);
	w.each = fill;
	visit_all(&w);
	gguf_build_finish(b);
}

void gguf_build_tiny_llama_file(const char *path, const struct tiny_llama *t)
{
	struct gguf_build b;
	gguf_build_tiny_llama(&b, t);
	FILE *f = fopen(path, "wb");
	ASSERT(f != NULL);
	size_t written = fwrite(b.data, 1, b.len, f);
	ASSERT(written == b.len);
	int closed = fclose(f);
	ASSERT(closed == 0);
	gguf_build_free(&b);
}
