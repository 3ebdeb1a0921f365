#include "sim/gguf_shape.h"

#include "model/gguf.h"
#include "model/model_bytes.h"

#include <string.h>

enum err gguf_shape_of(const struct gguf *g, enum wire_type wire, struct hparams *hp, struct model_shape *out, struct errmsg *em)
{
	enum err e = hparams_read(g, hp, em);
	if (e == OK)
		e = model_shape_of(hp, DTYPE_F32, DTYPE_F32, wire_bytes(wire, hp->hidden_dim), out, em);
	return e;
}

enum err gguf_shape_layers(const struct gguf *g, uint64_t *bytes, struct model_shape *s, struct errmsg *em)
{
	struct model_bytes of;
	model_bytes_of(g, s->n_layers, &of);
	if (of.head == 0)
		return errmsg_fail(em, ERR_NOT_FOUND, "no output head");
	memcpy(bytes, of.layers, (size_t)s->n_layers * sizeof *bytes);
	model_shape_count(s, &(struct model_counted){bytes, of.head, of.experts, of.type, of.o, of.down});
	return OK;
}
