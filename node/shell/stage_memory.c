#include "node/shell/stage_memory.h"

#include <stdio.h>

static double mib(uint64_t bytes)
{
	return (double)bytes / 1048576;
}

enum err stage_memory_refuse(const struct node_memory *m, const struct engine_config *c, const struct stage_needs *n, struct errmsg *em)
{
	const struct engine_size *s = n->size;
	char lanes[80] = "";
	if (s->packed_bytes > 0)
		snprintf(lanes, sizeof lanes, " columns by lanes %.1f (none with --tp-mode gather),", mib(s->packed_bytes));
	return errmsg_fail(em, ERR_LIMIT, "--mem leaves %.1f MiB for a stage (%.1f no file's): KV cache %.1f MiB for %d slots of %d tokens, computing %.1f,%s "
		"buffers %.1f, to disk %.1f, weights at least %.1f; fewer slots or a shorter context would help", mib(m->bytes), mib(m->anon_bytes), mib(s->kv_bytes),
		(int)c->n_slots, (int)c->ctx_len, mib(s->bytes - s->kv_bytes - s->packed_bytes), lanes, mib(n->frames), mib(n->to_disk), mib(s->weight_least));
}
