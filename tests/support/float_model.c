#include "tests/support/float_model.h"

#include "base/assert.h"
#include "kernels/kernels.h"
#include "tests/support/gguf_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_keys(struct gguf_build *b, const struct hparams *hp)
{
	gguf_build_kv_str(b, "general.architecture", "llama");
	gguf_build_kv_str(b, "general.name", "as floats");
	gguf_build_kv_u32(b, "llama.block_count", (uint32_t)hp->n_layers);
	gguf_build_kv_u32(b, "llama.context_length", (uint32_t)hp->ctx_len_train);
	gguf_build_kv_u32(b, "llama.embedding_length", (uint32_t)hp->hidden_dim);
	gguf_build_kv_u32(b, "llama.feed_forward_length", (uint32_t)hp->ffn_dim);
	gguf_build_kv_u32(b, "llama.attention.head_count", (uint32_t)hp->n_heads);
	gguf_build_kv_u32(b, "llama.attention.head_count_kv", (uint32_t)hp->n_kv_heads);
	gguf_build_kv_f32(b, "llama.rope.freq_base", (float)hp->rope_theta);
	gguf_build_kv_f32(b, "llama.attention.layer_norm_rms_epsilon", hp->norm_eps);
	gguf_build_kv_u32(b, "llama.vocab_size", (uint32_t)hp->vocab_size);
}

// The file's tensors in order: `put` is called for each of them, first to declare and then to fill.
typedef void put_fn(void *ctx, const char *name, const struct tensor_view *t, enum dtype as);

static bool is_vector(const struct tensor_view *t)
{
	return t->rows == 1;
}

static void each_tensor(const struct model *m, bool keeps_o, put_fn *put, void *ctx)
{
	struct tensor_view embd = model_token_embd(m), norm = model_output_norm(m), output = model_output(m);
	put(ctx, "token_embd.weight", &embd, DTYPE_F16);
	for (int32_t i = 0; i < model_hparams(m)->n_layers; i++) {
		struct layer_weights w;
		char name[64];
		model_layer(m, i, &w);
		const struct {
			const char *name;
			const struct tensor_view *t;
		} parts[] = {{"attn_norm", &w.attn_norm}, {"attn_q", &w.q}, {"attn_k", &w.k}, {"attn_v", &w.v}, {"attn_output", &w.o}, {"ffn_norm", &w.ffn_norm},
			{"ffn_gate", &w.gate}, {"ffn_up", &w.up}, {"ffn_down", &w.down}};
		for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
			snprintf(name, sizeof name, "blk.%d.%s.weight", (int)i, parts[k].name);
			put(ctx, name, parts[k].t, parts[k].t == &w.o && keeps_o ? w.o.type : is_vector(parts[k].t) ? DTYPE_F32 : DTYPE_F16);
		}
	}
	put(ctx, "output_norm.weight", &norm, DTYPE_F32);
	if (!model_hparams(m)->tied_embeddings)
		put(ctx, "output.weight", &output, DTYPE_F16);
}

static void declare(void *ctx, const char *name, const struct tensor_view *t, enum dtype as)
{
	gguf_build_tensor(ctx, name, as, (uint64_t)t->cols, (uint64_t)t->rows);
}

// write_floats converts a tensor's rows.
static void write_floats(const struct tensor_view *t, bool as_f32, FILE *f)
{
	struct weight w = {.data = t->data, .type = t->type, .rows = t->rows, .cols = t->cols, .row_bytes = t->row_bytes};
	float *row = malloc((size_t)t->cols * sizeof *row);
	uint16_t *half = malloc((size_t)t->cols * sizeof *half);
	ASSERT(row != NULL && half != NULL);
	for (int32_t r = 0; r < t->rows; r++) {
		kernels_row_to_f32(&w, r, row);
		kernels_f32_to_f16(kernels_find(NULL, NULL), row, t->cols, half);
		size_t size = as_f32 ? sizeof *row : sizeof *half;
		ASSERT(fwrite(as_f32 ? (const void *)row : half, size, (size_t)t->cols, f) == (size_t)t->cols);
	}
	free(half);
	free(row);
}

static void fill(void *ctx, const char *name, const struct tensor_view *t, enum dtype as)
{
	FILE *f = ctx;
	(void)name;
	if (as == t->type)
		ASSERT(fwrite(t->data, t->row_bytes, (size_t)t->rows, f) == (size_t)t->rows);
	else
		write_floats(t, as == DTYPE_F32, f);
	while (ftell(f) % 32 != 0)
		fputc(0, f);
}

void float_model_write(const struct model *m, bool keeps_o, const char *path)
{
	struct gguf_build b;
	FILE *f = fopen(path, "wb");
	ASSERT(f != NULL);
	gguf_build_begin(&b, 3);
	put_keys(&b, model_hparams(m));
	each_tensor(m, keeps_o, declare, &b);
	gguf_build_begin_data(&b);
	gguf_build_finish(&b);
	ASSERT(fwrite(b.data, 1, b.len, f) == b.len);
	each_tensor(m, keeps_o, fill, f);
	ASSERT(fclose(f) == 0);
	gguf_build_free(&b);
}
