// [model]: a GGUF file, bytes given as they are, or bytes computed from the dimensions of a dense model of one weight type.
#include "sim/scenario_keys.h"

#include "base/assert.h"
#include "model/gguf.h"
#include "model/hparams.h"
#include "sim/gguf_shape.h"

#include <string.h>

#define NORM_EPS 1e-5f
#define ROPE_THETA 10000.0

// Names of the weight types, in the order of weight_types.
static const char *const weight_words[] = {
	"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", NULL};
static const enum dtype weight_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0,
	DTYPE_Q5_1, DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K};
static const char *const wire_words[] = {"f32", "bf16", "f16", "q8", NULL}; // enum wire_type

struct raw_model {
	char name[NAME_CAP];
	int32_t layers, hidden, vocab;
	int wire, weights, head_weights;
	// Given
	uint64_t layer_bytes, head_bytes, kv_bytes;
	double layer_work, head_work;
	// Computed from
	int32_t ffn, heads, kv_heads, head_dim;
	// Or all of it from
	const struct toml_value *gguf;
};

#define AT(field) offsetof(struct raw_model, field)

static const struct scenario_key keys[] = {
	{.name = "name", .kind = KEY_NAME, .offset = AT(name), .is_required = true},
	{.name = "layers", .kind = KEY_INT, .offset = AT(layers), .min = 1, .max = LAYERS_MAX},
	{.name = "hidden", .kind = KEY_INT, .offset = AT(hidden), .min = 1, .max = HIDDEN_DIM_MAX},
	{.name = "gguf", .kind = KEY_VALUE, .offset = AT(gguf)},
	{.name = "vocab", .kind = KEY_INT, .offset = AT(vocab), .min = 2, .max = VOCAB_MAX},
	{.name = "wire", .kind = KEY_WORD, .offset = AT(wire), .choices = wire_words},
	{.name = "weights", .kind = KEY_WORD, .offset = AT(weights), .choices = weight_words},
	{.name = "head_weights", .kind = KEY_WORD, .offset = AT(head_weights), .choices = weight_words},
	{.name = "layer_bytes", .kind = KEY_BYTES, .offset = AT(layer_bytes), .min = 1, .max = 1e15},
	{.name = "head_bytes", .kind = KEY_BYTES, .offset = AT(head_bytes), .max = 1e15},
	{.name = "kv_bytes", .kind = KEY_BYTES, .offset = AT(kv_bytes), .max = 1e9},
	{.name = "layer_work", .kind = KEY_QUANTITY, .quantity = QUANTITY_WORK, .offset = AT(layer_work), .min = 1, .max = 1e15},
	{.name = "head_work", .kind = KEY_QUANTITY, .quantity = QUANTITY_WORK, .offset = AT(head_work), .min = 1, .max = 1e15},
	{.name = "ffn", .kind = KEY_INT, .offset = AT(ffn), .min = 1, .max = HIDDEN_DIM_MAX},
	{.name = "heads", .kind = KEY_INT, .offset = AT(heads), .min = 1, .max = HEADS_MAX},
	{.name = "kv_heads", .kind = KEY_INT, .offset = AT(kv_heads), .min = 1, .max = HEADS_MAX},
	{.name = "head_dim", .kind = KEY_INT, .offset = AT(head_dim), .min = 1, .max = HEAD_DIM_MAX},
};

static enum err compute_shape(
	struct scenario_reader *r, const struct toml_value *table, const struct raw_model *m, uint64_t hop_bytes)
{
	if (m->ffn == 0 || m->heads == 0 || m->vocab == 0)
		return scenario_fail(r, table, "model", "want layer_bytes, or ffn, heads and vocab to compute it from");
	struct hparams hp = {
		.n_layers = m->layers,
		.hidden_dim = m->hidden,
		.ffn_dim = m->ffn,
		.n_heads = m->heads,
		.n_kv_heads = m->kv_heads > 0 ? m->kv_heads : m->heads,
		.head_dim = m->head_dim > 0 ? m->head_dim : m->hidden / m->heads,
		.vocab_size = m->vocab,
		.ctx_len_train = CTX_MAX,
		.norm_eps = NORM_EPS,
		.rope_theta = ROPE_THETA,
	};
	hp.rope_dim = hp.head_dim;
	struct errmsg why;
	enum dtype type = weight_types[m->weights];
	enum err e = model_shape_of(
		&hp, type, m->head_weights >= 0 ? weight_types[m->head_weights] : type, hop_bytes, &r->s->shape, &why);
	return e == OK ? OK : scenario_fail(r, table, "model", "%s", why.text);
}

static enum err fill_from_gguf(struct scenario *s, const struct gguf *g, struct errmsg *em)
{
	struct hparams hp;
	enum err e = gguf_shape_of(g, s->wire, &hp, &s->shape, em);
	if (e != OK)
		return e;
	uint64_t *bytes = arena_alloc(&s->arena, (size_t)hp.n_layers, sizeof *bytes);
	ASSERT(bytes);
	s->hidden_dim = hp.hidden_dim;
	s->vocab_size = hp.vocab_size;
	return gguf_shape_layers(g, bytes, &s->shape, em);
}

static enum err read_gguf(struct scenario_reader *r, const struct toml_value *table, const struct raw_model *m)
{
	const struct toml_value *v = m->gguf;
	const char *data;
	size_t len;
	struct errmsg why;
	struct gguf g = {0};
	if (v->type != TOML_STRING || v->text.len == 0 || strlen(v->text.data) != v->text.len)
		return scenario_fail(r, v, "model.gguf", "want the name of a file");
	if (table->items.n != 2 + (toml_find(table, "wire") != NULL))
		return scenario_fail(r, table, "model", "with gguf want only name and wire: the file tells the rest");
	if (r->loader == NULL)
		return scenario_fail(r, v, "model.gguf", "files cannot be read here");
	enum err e = r->loader->load(r->loader->ctx, v->text.data, &data, &len, &why);
	if (e == OK)
		e = gguf_parse(data, len, &g, &why);
	if (e == OK)
		e = fill_from_gguf(r->s, &g, &why);
	gguf_deinit(&g);
	return e == OK ? OK : scenario_fail(r, v, "model.gguf", "%s", why.text);
}

enum err scenario_read_model(struct scenario_reader *r, const struct toml_value *table)
{
	struct raw_model m = {.vocab = 0, .head_weights = -1};
	struct scenario *s = r->s;
	r->subject = "model";
	enum err e = scenario_read_table(r, table, "model", keys, ARRAY_LEN(keys), &m, NULL);
	if (e != OK)
		return e;
	memcpy(s->model_name, m.name, sizeof m.name);
	s->hidden_dim = m.hidden;
	s->vocab_size = m.vocab > 0 ? m.vocab : 32000;
	s->wire = (enum wire_type)m.wire;
	if (m.gguf)
		return read_gguf(r, table, &m);
	if (m.layers == 0 || m.hidden == 0)
		return scenario_fail(r, table, "model", "%s is missing", m.layers == 0 ? "layers" : "hidden");
	uint64_t hop_bytes = wire_bytes(s->wire, m.hidden);
	if (m.layer_bytes == 0) {
		e = compute_shape(r, table, &m, hop_bytes);
		if (e == OK && m.kv_bytes > 0)
			s->shape.kv_bytes = m.kv_bytes;
		return e;
	}
	if (m.ffn > 0 || m.heads > 0 || m.kv_heads > 0 || m.head_dim > 0)
		return scenario_fail(r, table, "model", "want layer_bytes or the dimensions it follows from, not both");
	s->shape = (struct model_shape){
		.n_layers = m.layers,
		.layer_bytes = m.layer_bytes,
		.head_bytes = m.head_bytes,
		.kv_bytes = m.kv_bytes,
		.hop_bytes = hop_bytes,
		.layer_flops = m.layer_work,
		.head_flops = m.head_work,
		.type = weight_types[m.weights],
	};
	return OK;
}
