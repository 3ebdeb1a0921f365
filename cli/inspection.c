#include "cli/inspection.h"

#include "base/printable.h"
#include "kernels/kernels.h"
#include "model/hparams.h"
#include "model/model.h"
#include "model/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void put_name(const struct gguf *g, const char *path, struct inspection *in)
{
	struct gguf_str s;
	if (gguf_get_str(g, "general.name", &s, NULL) != OK || s.len == 0) {
		const char *slash = strrchr(path, '/');
		s = (struct gguf_str){slash != NULL ? slash + 1 : path, strlen(slash != NULL ? slash + 1 : path)};
	}
	printable_copy(s.data, s.len, in->name, sizeof in->name);
	if (gguf_get_str(g, "general.architecture", &s, NULL) == OK)
		printable_copy(s.data, s.len, in->arch, sizeof in->arch);
}

// put_fact takes ARCH.suffix when it is a number or an array of numbers.
static void put_fact(const struct gguf *g, struct inspection *in, const char *name, const char *suffix)
{
	char key[160];
	struct gguf_str arch;
	if (gguf_get_str(g, "general.architecture", &arch, NULL) != OK || arch.len > 64 || in->n_facts == INSPECTION_FACTS)
		return;
	snprintf(key, sizeof key, "%.*s.%s", (int)arch.len, arch.data, suffix);
	const struct gguf_kv *kv = gguf_find(g, key);
	if (kv == NULL || kv->n_elems == 0 || kv->n_elems > LAYERS_MAX)
		return;
	struct inspection_fact f = {.name = name};
	for (uint64_t i = 0; i < kv->n_elems; i++) {
		uint64_t u;
		double d;
		f.is_float = gguf_elem_f64(kv, i, &d);
		if (!f.is_float && !gguf_elem_u64(kv, i, &u))
			return;
		double v = f.is_float ? d : (double)u;
		f.min = i == 0 || v < f.min ? v : f.min;
		f.max = i == 0 || v > f.max ? v : f.max;
	}
	in->facts[in->n_facts++] = f;
}

static const struct inspection_fact *fact(const struct inspection *in, const char *name)
{
	for (size_t i = 0; i < in->n_facts; i++)
		if (strcmp(in->facts[i].name, name) == 0)
			return &in->facts[i];
	return NULL;
}

// put_derived adds what a file may leave out since it follows from the rest.
static void put_derived(const struct gguf *g, struct inspection *in)
{
	const struct inspection_fact *hidden = fact(in, "hidden_dim"), *heads = fact(in, "n_heads");
	if (fact(in, "head_dim") == NULL && hidden != NULL && heads != NULL && heads->min > 0 && in->n_facts < INSPECTION_FACTS) {
		double least = (double)((uint64_t)hidden->min / (uint64_t)heads->max), most = (double)((uint64_t)hidden->max / (uint64_t)heads->min);
		in->facts[in->n_facts++] = (struct inspection_fact){"head_dim", false, least, most};
	}
	struct gguf_strings it;
	if (fact(in, "vocab_size") == NULL && gguf_strings_init(g, "tokenizer.ggml.tokens", &it, NULL) == OK && in->n_facts < INSPECTION_FACTS)
		in->facts[in->n_facts++] = (struct inspection_fact){"vocab_size", false, (double)it.left, (double)it.left};
}

static void put_facts(const struct gguf *g, struct inspection *in)
{
	static const struct {
		const char *name, *suffix;
	} facts[] = {
		{"n_layers", "block_count"}, {"hidden_dim", "embedding_length"}, {"ffn_dim", "feed_forward_length"},
		{"n_heads", "attention.head_count"}, {"n_kv_heads", "attention.head_count_kv"}, {"head_dim", "attention.key_length"},
		{"rope_dim", "rope.dimension_count"}, {"rope_theta", "rope.freq_base"}, {"norm_eps", "attention.layer_norm_rms_epsilon"},
		{"vocab_size", "vocab_size"}, {"ctx_len_train", "context_length"}, {"attn_window", "attention.sliding_window"},
		{"n_experts", "expert_count"}, {"n_experts_used", "expert_used_count"},
	};
	_Static_assert(ARRAY_LEN(facts) <= INSPECTION_FACTS, "room for every fact");
	for (size_t i = 0; i < ARRAY_LEN(facts); i++)
		put_fact(g, in, facts[i].name, facts[i].suffix);
	put_derived(g, in);
}

// layer_of returns N of "blk.N." below LAYERS_MAX, or -1.
static int32_t layer_of(struct gguf_str name)
{
	int32_t layer = 0;
	size_t i = 4;
	if (name.len < 6 || memcmp(name.data, "blk.", 4) != 0)
		return -1;
	for (; i < name.len && name.data[i] >= '0' && name.data[i] <= '9' && layer < LAYERS_MAX; i++)
		layer = 10 * layer + (name.data[i] - '0');
	return i > 4 && i < name.len && name.data[i] == '.' && layer < LAYERS_MAX ? layer : -1;
}

static void put_tensors(const struct gguf *g, struct inspection *in)
{
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		in->types[t->type].n_tensors++;
		in->types[t->type].bytes += t->bytes;
		in->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
		int32_t layer = layer_of(t->name);
		if (layer < 0) {
			in->other_bytes += t->bytes;
			continue;
		}
		in->layer_bytes[layer] += t->bytes;
		if (layer >= in->n_layers_seen)
			in->n_layers_seen = layer + 1;
	}
}

static void put_text(const struct gguf *g, const char *key, char *out, size_t cap)
{
	struct gguf_str s;
	if (gguf_get_str(g, key, &s, NULL) == OK)
		printable_copy(s.data, s.len, out, cap);
}

static int64_t id_or_none(const struct gguf *g, const char *key)
{
	uint64_t v;
	return gguf_get_u64(g, key, &v, NULL) == OK && v <= INT64_MAX ? (int64_t)v : -1;
}

static void put_tokenizer(const struct gguf *g, struct inspection_tokenizer *t)
{
	struct gguf_strings it;
	struct gguf_str s;
	put_text(g, "tokenizer.ggml.model", t->model, sizeof t->model);
	put_text(g, "tokenizer.ggml.pre", t->pre, sizeof t->pre);
	if (gguf_strings_init(g, "tokenizer.ggml.tokens", &it, NULL) == OK)
		t->n_tokens = it.left;
	if (gguf_strings_init(g, "tokenizer.ggml.merges", &it, NULL) == OK)
		t->n_merges = it.left;
	if (gguf_get_str(g, "tokenizer.chat_template", &s, NULL) == OK)
		t->chat_template_bytes = s.len;
	t->bos = id_or_none(g, "tokenizer.ggml.bos_token_id");
	t->eos = id_or_none(g, "tokenizer.ggml.eos_token_id");
	if (gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, NULL) != OK)
		t->adds_bos = false;
}

// note counts the message that stands in the next free place when e is an error.
static void note(struct inspection *in, enum err e)
{
	if (e != OK)
		in->n_problems++;
}

static struct errmsg *place(struct inspection *in)
{
	// The last place is written over and over when all are taken.
	return &in->problems[in->n_problems < INSPECTION_PROBLEMS_MAX ? in->n_problems : INSPECTION_PROBLEMS_MAX - 1];
}

// note_types gives a reason for each type of a matrix that has no kernel.
static void note_types(const struct gguf *g, struct inspection *in)
{
	uint64_t n[DTYPE_ID_MAX + 1] = {0};
	const struct gguf_tensor *first[DTYPE_ID_MAX + 1] = {NULL};
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		if (t->n_dims < 2 || kernels_has_type(t->type))
			continue;
		if (n[t->type]++ == 0)
			first[t->type] = t;
	}
	for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++) {
		char name[80];
		if (n[id] == 0)
			continue;
		note(in, errmsg_fail(place(in), ERR_UNSUPPORTED, "type %s has no kernel (%" PRIu64 " tensors, the first is %s)", dtype_find(id)->name,
			n[id], printable_copy(first[id]->name.data, first[id]->name.len, name, sizeof name)));
	}
}

static void put_problems(const struct gguf *g, struct inspection *in)
{
	struct hparams hp;
	struct tokenizer *t = NULL;
	note(in, model_check_whole(g, place(in)));
	size_t before = in->n_problems;
	in->n_problems += hparams_features(g, place(in), INSPECTION_PROBLEMS_MAX - in->n_problems);
	if (in->n_problems == before) { // else the first of them would be said twice
		enum err e = hparams_read(g, &hp, place(in));
		note(in, e);
		if (e == OK)
			note(in, model_check_tensors(g, &hp, place(in)));
	}
	note_types(g, in);
	note(in, tokenizer_open(g, &t, place(in)));
	tokenizer_close(t);
}

void inspection_fill(const struct gguf *g, const char *path, struct inspection *in)
{
	*in = (struct inspection){.gguf = g};
	put_name(g, path, in);
	put_facts(g, in);
	put_tensors(g, in);
	put_tokenizer(g, &in->tokenizer);
	put_problems(g, in);
}
