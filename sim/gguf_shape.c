#include "sim/gguf_shape.h"

#include "base/limits.h"
#include "model/gguf.h"

#include <string.h>

// layer_of returns N of "blk.N." below n_layers, or -1.
static int32_t layer_of(struct gguf_str name, int32_t n_layers)
{
	int32_t layer = 0;
	size_t i = 4;
	if (name.len < 6 || memcmp(name.data, "blk.", 4) != 0)
		return -1;
	for (; i < name.len && name.data[i] >= '0' && name.data[i] <= '9' && layer < n_layers; i++)
		layer = 10 * layer + (name.data[i] - '0');
	return i > 4 && i < name.len && name.data[i] == '.' && layer < n_layers ? layer : -1;
}

static enum dtype most_bytes(const struct gguf *g)
{
	uint64_t bytes[DTYPE_ID_MAX + 1] = {0};
	uint32_t best = 0;
	for (uint64_t i = 0; i < g->n_tensors; i++)
		bytes[g->tensors[i].type] += g->tensors[i].bytes;
	for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++)
		if (bytes[id] > bytes[best])
			best = id;
	return (enum dtype)best;
}

enum err gguf_shape_of(const struct gguf *g, enum wire_type wire, struct hparams *hp, struct model_shape *out, struct errmsg *em)
{
	enum err e = hparams_read(g, hp, em);
	if (e == OK)
		e = model_shape_of(hp, DTYPE_F32, DTYPE_F32, wire_bytes(wire, hp->hidden_dim), out, em);
	if (e != OK)
		return e;
	const struct gguf_tensor *head = gguf_find_tensor(g, hp->tied_embeddings ? "token_embd.weight" : "output.weight");
	if (head == NULL)
		return errmsg_fail(em, ERR_NOT_FOUND, "no output head");
	out->head_bytes = head->bytes;
	out->type = most_bytes(g);
	return OK;
}

void gguf_shape_layers(const struct gguf *g, uint64_t *bytes, struct model_shape *s)
{
	memset(bytes, 0, (size_t)s->n_layers * sizeof *bytes);
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		int32_t layer = layer_of(g->tensors[i].name, s->n_layers);
		if (layer >= 0)
			bytes[layer] += g->tensors[i].bytes;
	}
	s->layer_bytes = 0;
	for (int32_t i = 0; i < s->n_layers; i++)
		if (bytes[i] > s->layer_bytes)
			s->layer_bytes = bytes[i];
	s->bytes_of_layer = bytes;
}
