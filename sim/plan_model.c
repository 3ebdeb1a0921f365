#include "sim/plan_model.h"

#include "base/suggest.h"
#include "kernels/kernels.h"
#include "model/gguf.h"
#include "sim/gguf_shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NORM_EPS 1e-5f
#define ROPE_THETA 500000.0

// Dimensions as the models' own configurations give them; `nick` is what tools/make_model calls the shape.
struct known {
	const char *name, *nick;
	enum arch arch;
	int32_t layers, hidden, ffn, heads, kv_heads, head_dim, vocab, experts, experts_used;
	bool tied;
};

static const struct known known[] = {
	{"smollm2-135m", "135M", ARCH_LLAMA, 30, 576, 1536, 9, 3, 64, 49152, 0, 0, true},
	{"llama-3.2-1b", "1B", ARCH_LLAMA, 16, 2048, 8192, 32, 8, 64, 128256, 0, 0, true},
	{"llama-3.2-3b", "3B", ARCH_LLAMA, 28, 3072, 8192, 24, 8, 128, 128256, 0, 0, true},
	{"llama-2-7b", "7B", ARCH_LLAMA, 32, 4096, 11008, 32, 32, 128, 32000, 0, 0, false},
	{"llama-3.1-8b", "8B", ARCH_LLAMA, 32, 4096, 14336, 32, 8, 128, 128256, 0, 0, false},
	{"llama-2-13b", "13B", ARCH_LLAMA, 40, 5120, 13824, 40, 40, 128, 32000, 0, 0, false},
	{"llama-3.3-70b", "70B", ARCH_LLAMA, 80, 8192, 28672, 64, 8, 128, 128256, 0, 0, false},
	{"llama-3.1-405b", "405B", ARCH_LLAMA, 126, 16384, 53248, 128, 8, 128, 128256, 0, 0, false},
	{"mixtral-8x7b", "8x7B", ARCH_LLAMA, 32, 4096, 14336, 32, 8, 128, 32000, 8, 2, false},
	{"qwen3-30b-a3b", "30B-A3B", ARCH_QWEN3MOE, 48, 2048, 768, 32, 4, 128, 151936, 128, 8, false},
	{"qwen3-235b-a22b", "235B-A22B", ARCH_QWEN3MOE, 94, 4096, 1536, 64, 4, 128, 151936, 128, 8, false},
};

size_t n_plan_models(void)
{
	return ARRAY_LEN(known);
}

const char *plan_model_name(size_t i)
{
	return known[i].name;
}

enum err plan_model_type(const char *name, enum dtype *out, struct errmsg *em)
{
	char list[160] = "";
	for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++) {
		const struct dtype_info *type = dtype_find(id);
		if (type == NULL || !kernels_has_type((enum dtype)id))
			continue;
		if (strcasecmp(type->name, name) == 0) {
			*out = (enum dtype)id;
			return OK;
		}
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? ", " : "", type->name);
	}
	return errmsg_fail(em, ERR_NOT_FOUND, "no weight type %.32s, want one of %s", name, list);
}

// type_of_head: quantisers give the head six bits where the layers have fewer.
static enum dtype type_of_head(enum dtype type)
{
	return type == DTYPE_Q3_K || type == DTYPE_Q4_K || type == DTYPE_Q5_K ? DTYPE_Q6_K : type;
}

static bool is_whole(const struct hparams *hp, enum dtype type)
{
	size_t bytes;
	return dtype_row_bytes(type, (uint64_t)hp->hidden_dim, &bytes) && dtype_row_bytes(type, (uint64_t)hp->ffn_dim, &bytes);
}

static struct hparams hparams_of(const struct known *k)
{
	return (struct hparams){
		.arch = k->arch,
		.n_layers = k->layers,
		.hidden_dim = k->hidden,
		.ffn_dim = k->ffn,
		.n_heads = k->heads,
		.n_kv_heads = k->kv_heads,
		.head_dim = k->head_dim,
		.rope_dim = k->head_dim,
		.vocab_size = k->vocab,
		.n_experts = k->experts,
		.n_experts_used = k->experts_used,
		.ctx_len_train = CTX_MAX,
		.norm_eps = NORM_EPS,
		.rope_theta = ROPE_THETA,
		.tied_embeddings = k->tied,
	};
}

static const struct known *find_known(const char *name, struct errmsg *em)
{
	struct suggest s = suggest_init(name);
	char list[300] = "";
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcasecmp(known[i].name, name) == 0 || strcasecmp(known[i].nick, name) == 0)
			return &known[i];
		suggest_offer(&s, known[i].name);
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? ", " : "", known[i].name);
	}
	if (s.best)
		errmsg_fail(em, ERR_NOT_FOUND, "%.60s is no file and no known model, did you mean %s?", name, s.best);
	else
		errmsg_fail(em, ERR_NOT_FOUND, "%.60s is no file and no known model, want a GGUF file or one of %s", name, list);
	return NULL;
}

enum err plan_model_of_name(const char *name, const char *type, enum wire_type wire, struct plan_model *out, struct errmsg *em)
{
	memset(out, 0, sizeof *out);
	const struct known *k = find_known(name, em);
	if (k == NULL)
		return ERR_NOT_FOUND;
	out->hp = hparams_of(k);
	enum dtype t = is_whole(&out->hp, DTYPE_Q4_K) ? DTYPE_Q4_K : DTYPE_Q4_0;
	enum err e = type ? plan_model_type(type, &t, em) : OK;
	if (e != OK)
		return e;
	snprintf(out->name, sizeof out->name, "%s-%s", k->name, dtype_find((uint32_t)t)->name);
	out->has_hparams = true;
	out->hidden_dim = k->hidden;
	out->wire = wire;
	out->shape.hop_bytes = wire_bytes(wire, k->hidden);
	return plan_model_in_type(out, t, &out->shape, em);
}

enum err plan_model_of_gguf(const char *name, const struct gguf *g, enum wire_type wire, struct plan_model *out, struct errmsg *em)
{
	memset(out, 0, sizeof *out);
	snprintf(out->name, sizeof out->name, "%.*s", NAME_CAP - 1, name);
	enum err e = gguf_shape_of(g, wire, &out->hp, &out->shape, em);
	if (e != OK)
		return e;
	out->has_hparams = true;
	out->hidden_dim = out->hp.hidden_dim;
	out->wire = wire;
	out->bytes_of_layer = calloc((size_t)out->hp.n_layers, sizeof *out->bytes_of_layer);
	if (out->bytes_of_layer == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the sizes of %d layers", out->hp.n_layers);
	e = gguf_shape_layers(g, out->bytes_of_layer, &out->shape, em);
	if (e == OK)
		e = model_shape_check(&out->shape, em);
	if (e != OK)
		plan_model_close(out);
	return e;
}

enum err plan_model_of_scenario(const struct scenario *s, struct plan_model *out, struct errmsg *em)
{
	memset(out, 0, sizeof *out);
	if (s->shape.n_layers == 0)
		return errmsg_fail(em, ERR_NOT_FOUND, "the file has no [model]");
	memcpy(out->name, s->model_name, sizeof out->name);
	out->shape = s->shape;
	out->hidden_dim = s->hidden_dim;
	out->wire = s->wire;
	if (s->shape.bytes_of_layer == NULL)
		return model_shape_check(&out->shape, em);
	size_t n = (size_t)s->shape.n_layers;
	out->bytes_of_layer = calloc(n, sizeof *out->bytes_of_layer);
	if (out->bytes_of_layer == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the sizes of %zu layers", n);
	memcpy(out->bytes_of_layer, s->shape.bytes_of_layer, n * sizeof *out->bytes_of_layer);
	out->shape.bytes_of_layer = out->bytes_of_layer;
	return model_shape_check(&out->shape, em);
}

void plan_model_close(struct plan_model *m)
{
	free(m->bytes_of_layer);
	memset(m, 0, sizeof *m);
}

static double bits_of(enum dtype t)
{
	const struct dtype_info *i = dtype_find((uint32_t)t);
	return 8.0 * i->block_bytes / i->block_len;
}

enum err plan_model_in_type(const struct plan_model *m, enum dtype type, struct model_shape *out, struct errmsg *em)
{
	if (m->has_hparams)
		return model_shape_of(&m->hp, type, type_of_head(type), m->shape.hop_bytes, out, em);
	double ratio = bits_of(type) / bits_of(m->shape.type);
	struct model_shape s = m->shape;
	s.bytes_of_layer = NULL;
	s.layer_flops = model_shape_layer_flops(&m->shape, 0); // arithmetic stays what it is
	s.head_flops = model_shape_head_flops(&m->shape);
	s.layer_bytes = (uint64_t)((double)s.layer_bytes * ratio);
	s.head_bytes = (uint64_t)((double)s.head_bytes * ratio);
	s.type = type;
	*out = s;
	return model_shape_check(out, em);
}
