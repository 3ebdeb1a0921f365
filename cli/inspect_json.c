// The JSON of `hearth inspect --json` (cli/inspection.h). Names are those of the text; counts and bytes are integers.
#include "cli/inspection.h"

#include "base/printable.h"

#include <jansson.h>
#include <string.h>

static json_t *integer(uint64_t v)
{
	return json_integer((json_int_t)(v <= INT64_MAX ? v : INT64_MAX));
}

static json_t *text(const char *s, size_t len)
{
	char shown[4096];
	return json_string(printable_copy(s, len, shown, sizeof shown));
}

static json_t *number(const struct inspection_fact *f, double v)
{
	return f->is_float ? json_real(v) : json_integer((json_int_t)v);
}

// A value that differs between layers is [min, max]. One that JSON has no number for (NaN) is null.
static json_t *facts_json(const struct inspection *in)
{
	json_t *out = json_object();
	for (size_t i = 0; i < in->n_facts; i++) {
		const struct inspection_fact *f = &in->facts[i];
		json_t *min = number(f, f->min), *max = number(f, f->max);
		bool one = !(f->min < f->max) || min == NULL || max == NULL;
		json_object_set_new(out, f->name, !one ? json_pack("[OO]", min, max) : min != NULL ? json_incref(min) : json_null());
		json_decref(min);
		json_decref(max);
	}
	return out;
}

static json_t *types_json(const struct inspection *in)
{
	json_t *out = json_array();
	for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++)
		if (in->types[id].n_tensors > 0)
			json_array_append_new(out, json_pack("{s:s, s:o, s:o}", "type", dtype_find(id)->name, "tensors", integer(in->types[id].n_tensors),
							   "bytes", integer(in->types[id].bytes)));
	return out;
}

static json_t *layers_json(const struct inspection *in)
{
	json_t *out = json_array();
	for (int32_t i = 0; i < in->n_layers_seen; i++)
		json_array_append_new(out, integer(in->layer_bytes[i]));
	return out;
}

static json_t *tokenizer_json(const struct inspection_tokenizer *t)
{
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:b, s:o}", "model", t->model, "pre", t->pre, "tokens", integer(t->n_tokens), "merges",
		integer(t->n_merges), "bos", t->bos >= 0 ? json_integer(t->bos) : json_null(), "eos", t->eos >= 0 ? json_integer(t->eos) : json_null(),
		"adds_bos", t->adds_bos, "chat_template_bytes", integer(t->chat_template_bytes));
}

static json_t *problems_json(const struct inspection *in)
{
	json_t *out = json_array();
	for (size_t i = 0; i < in->n_problems && i < INSPECTION_PROBLEMS_MAX; i++)
		json_array_append_new(out, text(in->problems[i].text, strlen(in->problems[i].text)));
	return out;
}

static json_t *tensors_json(const struct gguf *g)
{
	json_t *out = json_array();
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		json_t *dims = json_array();
		for (uint32_t d = 0; d < t->n_dims; d++)
			json_array_append_new(dims, integer(t->dims[d]));
		json_array_append_new(out, json_pack("{s:o, s:s, s:o, s:o, s:o}", "name", text(t->name.data, t->name.len), "type", dtype_find(t->type)->name,
						   "dims", dims, "bytes", integer(t->bytes), "offset", integer(g->data_offset + t->offset)));
	}
	return out;
}

enum err inspect_print_json(FILE *to, const struct inspection *in, const char *path, bool tensors)
{
	const struct gguf *g = in->gguf;
	json_t *out = json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "file", text(path, strlen(path)), "name",
		in->name, "architecture", in->arch, "parameters", integer(in->n_params), "bytes", integer(g->file_bytes), "header_bytes",
		integer(g->data_offset), "gguf_version", integer(g->version), "keys", integer(g->n_kv), "n_tensors", integer(g->n_tensors), "hparams",
		facts_json(in), "types", types_json(in), "layer_bytes", layers_json(in), "other_bytes", integer(in->other_bytes), "tokenizer",
		tokenizer_json(&in->tokenizer), "runs", in->n_problems == 0, "problems", problems_json(in));
	if (out == NULL)
		return ERR_NOMEM;
	if (tensors)
		json_object_set_new(out, "tensors", tensors_json(g));
	enum err e = json_dumpf(out, to, JSON_INDENT(2)) == 0 && fputc('\n', to) != EOF ? OK : ERR_IO;
	json_decref(out);
	return e;
}
