#include "coordinator/shell/model_source.h"

#include <inttypes.h>
#include <stdlib.h>

enum err model_source_open(const struct model *m, struct manifest_source *out, struct errmsg *em)
{
	const struct gguf *g = model_gguf(m);
	struct manifest_tensor *tensors = calloc((size_t)g->n_tensors + 1, sizeof *tensors);
	if (tensors == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a list of %" PRIu64 " tensors", g->n_tensors);
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		tensors[i] = (struct manifest_tensor){.offset = g->data_offset + t->offset, .bytes = t->bytes, .name = t->name.data, .name_len = t->name.len};
	}
	*out = (struct manifest_source){.path = model_path(m), .file_bytes = model_file_bytes(m), .header_bytes = g->data_offset,
		.block_bytes = BLOCK_BYTES_DEFAULT, .tensors = tensors, .n_tensors = (uint32_t)g->n_tensors, .n_threads = manifest_build_threads()};
	return OK;
}

void model_source_close(struct manifest_source *s)
{
	free(s->tensors);
	s->tensors = NULL;
}
