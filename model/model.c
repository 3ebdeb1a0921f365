#include "model/model.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/printable.h"
#include "model/mapped_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 128      // a model's name as it is shown
#define TENSOR_NAME_CAP 64  // GGUF_NAME_MAX and a NUL

struct model {
	char *path;
	char name[NAME_BYTES];
	struct mapped_file file;
	struct weight_file weight_file; // the same, for who reads weights
	struct weight_extent extent;
	struct weight_files files;
	struct gguf gguf;
	struct hparams hp;
	struct tensor_view token_embd, output_norm, output;
	struct layer_weights *layers; // (n_layers)
	struct expert_weights *experts; // (n_layers, n_experts), or NULL
};

enum dim { ONE, HIDDEN, FFN, Q_ROWS, KV_ROWS, HEAD, EXPERTS, VOCAB };

// Which models have a tensor, and whether a file may leave it out.
enum need { ALWAYS, OPTIONAL, WITHOUT_EXPERTS, WITH_EXPERTS, WITH_QK_NORM };

// One tensor an architecture has: where its view goes, and its shape.
struct slot {
	const char *name; // behind "blk.N." for a layer's
	size_t offset;    // in struct layer_weights, or in struct model
	enum dim rows, cols;
	enum need need;
};

static const struct slot layer_slots[] = {
	{"attn_norm.weight", offsetof(struct layer_weights, attn_norm), ONE, HIDDEN, ALWAYS},
	{"attn_q.weight", offsetof(struct layer_weights, q), Q_ROWS, HIDDEN, ALWAYS},
	{"attn_k.weight", offsetof(struct layer_weights, k), KV_ROWS, HIDDEN, ALWAYS},
	{"attn_v.weight", offsetof(struct layer_weights, v), KV_ROWS, HIDDEN, ALWAYS},
	{"attn_output.weight", offsetof(struct layer_weights, o), HIDDEN, Q_ROWS, ALWAYS},
	{"attn_q.bias", offsetof(struct layer_weights, q_bias), ONE, Q_ROWS, OPTIONAL},
	{"attn_k.bias", offsetof(struct layer_weights, k_bias), ONE, KV_ROWS, OPTIONAL},
	{"attn_v.bias", offsetof(struct layer_weights, v_bias), ONE, KV_ROWS, OPTIONAL},
	{"attn_q_norm.weight", offsetof(struct layer_weights, q_norm), ONE, HEAD, WITH_QK_NORM},
	{"attn_k_norm.weight", offsetof(struct layer_weights, k_norm), ONE, HEAD, WITH_QK_NORM},
	{"ffn_norm.weight", offsetof(struct layer_weights, ffn_norm), ONE, HIDDEN, ALWAYS},
	{"ffn_gate.weight", offsetof(struct layer_weights, gate), FFN, HIDDEN, WITHOUT_EXPERTS},
	{"ffn_up.weight", offsetof(struct layer_weights, up), FFN, HIDDEN, WITHOUT_EXPERTS},
	{"ffn_down.weight", offsetof(struct layer_weights, down), HIDDEN, FFN, WITHOUT_EXPERTS},
	{"ffn_gate_inp.weight", offsetof(struct layer_weights, router), EXPERTS, HIDDEN, WITH_EXPERTS},
};

// The matrices of an expert: "ffn_X_exps.weight" has those of all experts, or "ffn_X.E.weight" is expert E's.
static const struct expert_slot {
	const char *part;
	size_t offset; // in struct expert_weights
	enum dim rows, cols;
} expert_slots[] = {
	{"gate", offsetof(struct expert_weights, gate), FFN, HIDDEN},
	{"up", offsetof(struct expert_weights, up), FFN, HIDDEN},
	{"down", offsetof(struct expert_weights, down), HIDDEN, FFN},
};

static const struct slot model_slots[] = {
	{"token_embd.weight", offsetof(struct model, token_embd), VOCAB, HIDDEN, ALWAYS},
	{"output_norm.weight", offsetof(struct model, output_norm), ONE, HIDDEN, ALWAYS},
	{"output.weight", offsetof(struct model, output), VOCAB, HIDDEN, OPTIONAL}, // missing: tied to token_embd
};

static int32_t dim_value(const struct hparams *hp, enum dim d)
{
	switch (d) {
	case ONE: return 1;
	case HIDDEN: return hp->hidden_dim;
	case FFN: return hp->ffn_dim;
	case Q_ROWS: return hp->n_heads * hp->head_dim;
	case KV_ROWS: return hp->n_kv_heads * hp->head_dim;
	case HEAD: return hp->head_dim;
	case EXPERTS: return hp->n_experts;
	case VOCAB: return hp->vocab_size;
	}
	return 0;
}

static bool has_slot(const struct hparams *hp, const struct slot *s)
{
	switch (s->need) {
	case ALWAYS:
	case OPTIONAL: return true;
	case WITHOUT_EXPERTS: return hp->n_experts == 0;
	case WITH_EXPERTS: return hp->n_experts > 0;
	case WITH_QK_NORM: return arch_has_qk_norm(hp->arch);
	}
	return false;
}

static const char *shape_text(const struct gguf_tensor *t, char out[96])
{
	int n = 0;
	for (uint32_t i = 0; i < t->n_dims; i++)
		n += snprintf(out + n, 96 - (size_t)n, "%s%" PRIu64, i > 0 ? " x " : "", t->dims[i]);
	return out;
}

// check_slot finds the slot's tensor under `name` and checks it; *out is NULL for a missing optional one.
static enum err check_slot(const struct gguf *g, const struct hparams *hp, const struct slot *s, const char *name,
	const struct gguf_tensor **out, struct errmsg *em)
{
	uint64_t rows = (uint64_t)dim_value(hp, s->rows), cols = (uint64_t)dim_value(hp, s->cols);
	const struct gguf_tensor *t = gguf_find_tensor(g, name);
	*out = t;
	if (t == NULL && s->need == OPTIONAL)
		return OK;
	if (t == NULL)
		return errmsg_fail(em, ERR_NOT_FOUND, "tensor %s is missing, wanted %" PRIu64 " x %" PRIu64, name, cols, rows);
	char shape[96];
	if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != 1 || t->dims[3] != 1)
		return errmsg_fail(em, ERR_FORMAT, "tensor %s is %s, wanted %" PRIu64 " x %" PRIu64, name, shape_text(t, shape), cols, rows);
	if (s->rows == ONE && t->type != DTYPE_F32)
		return errmsg_fail(em, ERR_UNSUPPORTED, "tensor %s has type %s, wanted f32", name, dtype_find(t->type)->name);
	if (s->rows == EXPERTS && t->type != DTYPE_F32 && t->type != DTYPE_F16 && t->type != DTYPE_BF16)
		return errmsg_fail(em, ERR_UNSUPPORTED, "tensor %s has type %s, wanted f32, f16 or bf16", name, dtype_find(t->type)->name);
	return OK;
}

// find_expert finds where a matrix of an expert is: in the tensor of all of them (*slice is the expert), or in its own (*slice is 0). NULL:
// nowhere; name is that of the tensor of all.
static const struct gguf_tensor *find_expert(const struct gguf *g, int32_t layer, const struct expert_slot *s, int32_t expert, int32_t *slice,
	char name[TENSOR_NAME_CAP])
{
	char own[TENSOR_NAME_CAP];
	snprintf(name, TENSOR_NAME_CAP, "blk.%" PRId32 ".ffn_%s_exps.weight", layer, s->part);
	const struct gguf_tensor *t = gguf_find_tensor(g, name);
	*slice = expert;
	if (t != NULL)
		return t;
	snprintf(own, sizeof own, "blk.%" PRId32 ".ffn_%s.%" PRId32 ".weight", layer, s->part, expert);
	t = gguf_find_tensor(g, own);
	*slice = 0;
	if (t != NULL || expert > 0) // a first one of its own says that the others should be, too
		memcpy(name, own, sizeof own);
	return t;
}

static enum err check_expert(const struct gguf *g, const struct hparams *hp, int32_t layer, const struct expert_slot *s, int32_t expert,
	struct errmsg *em)
{
	char name[TENSOR_NAME_CAP], shape[96];
	int32_t slice;
	uint64_t rows = (uint64_t)dim_value(hp, s->rows), cols = (uint64_t)dim_value(hp, s->cols);
	const struct gguf_tensor *t = find_expert(g, layer, s, expert, &slice, name);
	uint64_t n = t != NULL && strstr(name, "_exps.") == NULL ? 1 : (uint64_t)hp->n_experts;
	if (t == NULL)
		return errmsg_fail(em, ERR_NOT_FOUND, "tensor %s is missing, wanted %" PRIu64 " x %" PRIu64, name, cols, rows);
	if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != n || t->dims[3] != 1)
		return errmsg_fail(em, ERR_FORMAT, "tensor %s is %s, wanted %" PRIu64 " x %" PRIu64 " x %" PRIu64, name, shape_text(t, shape), cols, rows,
			n);
	return OK;
}

// is_expert tells whether a layer has a tensor `rest` ("ffn_up_exps.weight", or "ffn_up.7.weight" where there is no such one) for experts.
static bool is_expert(const struct gguf *g, const struct hparams *hp, int32_t layer, const char *rest)
{
	for (size_t i = 0; i < ARRAY_LEN(expert_slots) && hp->n_experts > 0; i++) {
		char name[TENSOR_NAME_CAP], text[TENSOR_NAME_CAP];
		int32_t slice, expert = -1;
		snprintf(text, sizeof text, "ffn_%s.%%4" SCNd32, expert_slots[i].part);
		if (sscanf(rest, text, &expert) != 1 || expert < 0 || expert >= hp->n_experts)
			expert = 0;
		if (find_expert(g, layer, &expert_slots[i], expert, &slice, name) == NULL)
			continue;
		snprintf(text, sizeof text, "blk.%" PRId32 ".%s", layer, rest);
		if (strcmp(name, text) == 0)
			return true;
	}
	return false;
}

// is_known tells whether the architecture has a tensor of this name. "blk.007." and "blk.+7." are no layer.
static bool is_known(const struct gguf *g, const struct hparams *hp, struct gguf_str name)
{
	char text[TENSOR_NAME_CAP], again[TENSOR_NAME_CAP];
	if (name.len >= sizeof text)
		return false;
	memcpy(text, name.data, name.len);
	text[name.len] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(model_slots); i++)
		if (strcmp(text, model_slots[i].name) == 0)
			return true;
	int32_t layer = -1;
	if (sscanf(text, "blk.%4" SCNd32 ".", &layer) != 1 || layer < 0 || layer >= hp->n_layers)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(layer_slots); i++) {
		snprintf(again, sizeof again, "blk.%" PRId32 ".%s", layer, layer_slots[i].name);
		if (has_slot(hp, &layer_slots[i]) && strcmp(text, again) == 0)
			return true;
	}
	snprintf(again, sizeof again, "blk.%" PRId32 ".", layer);
	return strncmp(text, again, strlen(again)) == 0 && is_expert(g, hp, layer, text + strlen(again));
}

static enum err check_layer(const struct gguf *g, const struct hparams *hp, int32_t layer, struct errmsg *em)
{
	for (size_t i = 0; i < ARRAY_LEN(layer_slots); i++) {
		char name[TENSOR_NAME_CAP];
		const struct gguf_tensor *t;
		snprintf(name, sizeof name, "blk.%" PRId32 ".%s", layer, layer_slots[i].name);
		enum err e = has_slot(hp, &layer_slots[i]) ? check_slot(g, hp, &layer_slots[i], name, &t, em) : OK;
		if (e != OK)
			return e;
	}
	for (int32_t expert = 0; expert < hp->n_experts; expert++) {
		for (size_t i = 0; i < ARRAY_LEN(expert_slots); i++) {
			enum err e = check_expert(g, hp, layer, &expert_slots[i], expert, em);
			if (e != OK)
				return e;
		}
	}
	return OK;
}

enum err model_check_tensors(const struct gguf *g, const struct hparams *hp, struct errmsg *em)
{
	const struct gguf_tensor *t;
	for (size_t i = 0; i < ARRAY_LEN(model_slots); i++) {
		enum err e = check_slot(g, hp, &model_slots[i], model_slots[i].name, &t, em);
		if (e != OK)
			return e;
	}
	for (int32_t layer = 0; layer < hp->n_layers; layer++) {
		enum err e = check_layer(g, hp, layer, em);
		if (e != OK)
			return e;
	}
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		char shown[TENSOR_NAME_CAP + 4];
		if (!is_known(g, hp, g->tensors[i].name))
			return errmsg_fail(em, ERR_UNSUPPORTED, "tensor \"%s\" is none of architecture %s with %" PRId32 " layers: not supported",
				printable_copy(g->tensors[i].name.data, g->tensors[i].name.len, shown, sizeof shown), arch_name(hp->arch), hp->n_layers);
	}
	return OK;
}

enum err model_check_whole(const struct gguf *g, struct errmsg *em)
{
	uint64_t n = 0;
	if (gguf_find(g, "split.count") == NULL)
		return OK;
	enum err e = gguf_get_u64(g, "split.count", &n, em);
	if (e == OK && n > 1)
		e = errmsg_fail(em, ERR_UNSUPPORTED, "one part of a model split into %" PRIu64 " files (split.count): not supported, merge them first", n);
	return e;
}

static struct tensor_view view_of(const struct gguf *g, const struct gguf_tensor *t)
{
	struct tensor_view v = {.data = t->data, .at = g->data_offset + t->offset, .type = t->type, .rows = (int32_t)t->dims[1], .cols = (int32_t)t->dims[0]};
	bool ok = dtype_row_bytes(t->type, t->dims[0], &v.row_bytes);
	ASSERT(ok);
	return v;
}

// put_view writes the view of a checked tensor to its place; a missing optional one stays zero.
static void put_view(const struct gguf *g, const char *name, void *base, size_t offset)
{
	const struct gguf_tensor *t = gguf_find_tensor(g, name);
	if (t == NULL)
		return;
	struct tensor_view v = view_of(g, t);
	memcpy((char *)base + offset, &v, sizeof v);
}

// put_expert writes the views of a checked expert.
static void put_expert(const struct gguf *g, int32_t layer, int32_t expert, struct expert_weights *out)
{
	for (size_t i = 0; i < ARRAY_LEN(expert_slots); i++) {
		char name[TENSOR_NAME_CAP];
		int32_t slice;
		const struct gguf_tensor *t = find_expert(g, layer, &expert_slots[i], expert, &slice, name);
		struct tensor_view v = view_of(g, t);
		size_t skip = (size_t)slice * (size_t)v.rows * v.row_bytes;
		v.data = (const uint8_t *)v.data + skip;
		v.at += skip;
		memcpy((char *)out + expert_slots[i].offset, &v, sizeof v);
	}
}

static enum err fill_experts(struct model *m)
{
	size_t n = (size_t)m->hp.n_experts;
	m->experts = n > 0 ? calloc((size_t)m->hp.n_layers * n, sizeof *m->experts) : NULL;
	if (m->experts == NULL)
		return n > 0 ? ERR_NOMEM : OK;
	for (int32_t layer = 0; layer < m->hp.n_layers; layer++) {
		struct expert_weights *of_layer = &m->experts[(size_t)layer * n];
		for (int32_t e = 0; e < m->hp.n_experts; e++)
			put_expert(&m->gguf, layer, e, &of_layer[e]);
		m->layers[layer].experts = of_layer;
	}
	return OK;
}

static enum err fill_views(struct model *m)
{
	m->layers = calloc((size_t)m->hp.n_layers, sizeof *m->layers);
	if (m->layers == NULL)
		return ERR_NOMEM;
	for (size_t i = 0; i < ARRAY_LEN(model_slots); i++)
		put_view(&m->gguf, model_slots[i].name, m, model_slots[i].offset);
	if (m->hp.tied_embeddings)
		m->output = m->token_embd;
	for (int32_t layer = 0; layer < m->hp.n_layers; layer++)
		for (size_t i = 0; i < ARRAY_LEN(layer_slots); i++) {
			char name[TENSOR_NAME_CAP];
			snprintf(name, sizeof name, "blk.%" PRId32 ".%s", layer, layer_slots[i].name);
			put_view(&m->gguf, name, &m->layers[layer], layer_slots[i].offset);
		}
	return fill_experts(m);
}

static void set_name(struct model *m)
{
	struct gguf_str s;
	if (gguf_get_str(&m->gguf, "general.name", &s, NULL) != OK || s.len == 0) {
		const char *slash = strrchr(m->path, '/');
		s.data = slash != NULL ? slash + 1 : m->path;
		s.len = strlen(s.data);
		if (s.len > 5 && memcmp(s.data + s.len - 5, ".gguf", 5) == 0)
			s.len -= 5;
	}
	printable_copy(s.data, s.len, m->name, sizeof m->name);
}

static void set_files(struct model *m)
{
	m->weight_file = (struct weight_file){.fd = m->file.fd, .path = m->path};
	m->extent = (struct weight_extent){.bytes = m->file.bytes};
	m->files = (struct weight_files){.files = &m->weight_file, .n_files = 1, .extents = &m->extent, .n_extents = 1, .map = m->file.data};
}

static enum err load(struct model *m, struct errmsg *em)
{
	enum err e = mapped_file_open(m->path, &m->file, em);
	if (e == OK)
		set_files(m);
	if (e == OK)
		e = gguf_parse(m->file.data, m->file.bytes, &m->gguf, em);
	if (e == OK)
		e = model_check_whole(&m->gguf, em);
	if (e == OK)
		e = hparams_read(&m->gguf, &m->hp, em);
	if (e == OK)
		e = model_check_tensors(&m->gguf, &m->hp, em);
	if (e != OK)
		return e;
	set_name(m);
	e = fill_views(m);
	return e == OK ? OK : errmsg_fail(em, e, "no memory for %" PRId32 " layers", m->hp.n_layers);
}

enum err model_open(const char *path, struct model **out, struct errmsg *em)
{
	*out = NULL;
	struct model *m = calloc(1, sizeof *m);
	char *copy = strdup(path);
	if (m == NULL || copy == NULL) {
		free(m);
		free(copy);
		return errmsg_fail(em, ERR_NOMEM, "%s: no memory", path);
	}
	m->path = copy;
	enum err e = load(m, em);
	if (e != OK) {
		model_close(m);
		return errmsg_prefix(em, e, "%s", path);
	}
	*out = m;
	return OK;
}

void model_close(struct model *m)
{
	if (m == NULL)
		return;
	free(m->experts);
	free(m->layers);
	gguf_deinit(&m->gguf);
	mapped_file_close(&m->file);
	free(m->path);
	free(m);
}

enum err model_check_unchanged(const struct model *m, struct errmsg *em)
{
	enum err e = mapped_file_check_unchanged(&m->file, em);
	return e == OK ? OK : errmsg_prefix(em, e, "%s changed while in use", m->path);
}

void model_set_growing(struct model *m)
{
	m->file.mtime_ns = MAPPED_FILE_ANY_TIME;
}

const char *model_path(const struct model *m)
{
	return m->path;
}

const char *model_name(const struct model *m)
{
	return m->name;
}

const struct hparams *model_hparams(const struct model *m)
{
	return &m->hp;
}

const struct gguf *model_gguf(const struct model *m)
{
	return &m->gguf;
}

void model_layer(const struct model *m, int32_t layer, struct layer_weights *w)
{
	ASSERT(layer >= 0 && layer < m->hp.n_layers);
	*w = m->layers[layer];
}

struct tensor_view model_token_embd(const struct model *m)
{
	return m->token_embd;
}

struct tensor_view model_output_norm(const struct model *m)
{
	return m->output_norm;
}

struct tensor_view model_output(const struct model *m)
{
	return m->output;
}

uint64_t model_file_bytes(const struct model *m)
{
	return m->file.bytes;
}

const struct weight_files *model_files(const struct model *m)
{
	return &m->files;
}
