#include "model/model_bytes.h"

#include "base/assert.h"

#include <string.h>

// layer_of returns N of "blk.N." below n_layers, or -1.
static int32_t layer_of(struct gguf_str name, int32_t n_layers)
{
	static const char prefix[] = "blk.";
	size_t i = sizeof prefix - 1;
	int32_t layer = 0;
	if (name.len <= i || memcmp(name.data, prefix, i) != 0)
		return -1;
	for (; i < name.len && name.data[i] >= '0' && name.data[i] <= '9'; i++) {
		layer = 10 * layer + (name.data[i] - '0');
		if (layer >= n_layers)
			return -1;
	}
	return i >= sizeof prefix && i < name.len && name.data[i] == '.' ? layer : -1;
}

static bool ends_with(struct gguf_str name, const char *end)
{
	size_t n = strlen(end);
	return name.len >= n && memcmp(name.data + name.len - n, end, n) == 0;
}

// is_of_experts: "blk.N.ffn_up_exps.weight", or "blk.N.ffn_up.E.weight" of expert E.
static bool is_of_experts(struct gguf_str name)
{
	static const char *const parts[] = {".ffn_gate", ".ffn_up", ".ffn_down"};
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		size_t n = strlen(parts[i]);
		for (size_t at = 0; at + n + 1 < name.len; at++) {
			if (memcmp(name.data + at, parts[i], n) != 0)
				continue;
			struct gguf_str rest = {.data = name.data + at + n, .len = name.len - at - n};
			if ((rest.len > 6 && memcmp(rest.data, "_exps.", 6) == 0) || (rest.data[0] == '.' && rest.data[1] >= '0' && rest.data[1] <= '9'))
				return true;
		}
	}
	return false;
}

static void add_to_layer(const struct gguf_tensor *t, int32_t layer, struct model_bytes *out)
{
	out->layers[layer] += t->bytes;
	out->experts += is_of_experts(t->name) ? t->bytes : 0;
	if (ends_with(t->name, ".attn_output.weight"))
		out->o[layer] = (enum dtype)t->type;
	if (ends_with(t->name, ".ffn_down.weight"))
		out->down[layer] = (enum dtype)t->type;
}

void model_bytes_of(const struct gguf *g, int32_t n_layers, struct model_bytes *out)
{
	uint64_t of_type[DTYPE_ID_MAX + 1] = {0};
	uint32_t most = 0;
	ASSERT(n_layers <= LAYERS_MAX);
	*out = (struct model_bytes){.head = 0};
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		int32_t layer = layer_of(t->name, n_layers);
		of_type[t->type] += t->bytes;
		if (layer >= 0)
			add_to_layer(t, layer, out);
	}
	for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++)
		if (of_type[id] > of_type[most])
			most = id;
	out->type = (enum dtype)most;
	const struct gguf_tensor *head = gguf_find_tensor(g, "output.weight");
	if (head == NULL)
		head = gguf_find_tensor(g, "token_embd.weight");
	out->head = head != NULL ? head->bytes : 0;
}
