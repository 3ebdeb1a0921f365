#include "cli/host_profile.h"

#include "base/private_dir.h"
#include "cli/command.h"
#include "cli/home_dir.h"
#include "cli/process_memory.h"
#include "engine/stage_work.h"

#include <unistd.h>

#define ROOM_BYTES (UINT64_C(16) << 20) // what a process takes later than now, as cli/host_budget has it

enum err host_profile_init(const struct options *o, const struct model *model, bool has_weights, struct worker *worker, struct host_profile *h,
	struct errmsg *em)
{
	static const struct home_dir_kind kind = {"cache", "--cache", "XDG_CACHE_HOME", "/.cache/hearth"};
	*h = (struct host_profile){
		.config = {.kernels = worker_kernels(worker), .pool = worker_pool(worker), .model = model, .has_weights = has_weights},
		.reader = o->reader == READER_MMAP ? 1 : o->reader == READER_DIRECT ? 2 : 0,
	};
	enum err e = home_dir_resolve(&kind, o->cache, h->folder, sizeof h->folder, em);
	int fd;
	if (e == OK && private_dir_open(h->folder, &fd, NULL) == OK) {
		close(fd);
		h->config.folder = h->folder; // of this very struct: it is not copied
	}
	probe_cache_key(&h->config, HEARTH_VERSION, h->key);
	return e;
}

// compute_bytes is what a stage takes beside weights, KV cache and frames: activations of the largest chunk. 0: it cannot be told.
static uint64_t compute_bytes(const struct host_profile *h)
{
	struct engine_size size;
	struct errmsg em;
	const struct engine_config c = {.model = h->config.model, .kernels = h->config.kernels, .pool = h->config.pool, .layers = layer_spans_one(0, 1), .n_slots = 1,
		.ctx_len = 4096, .batch_max = CHUNK_TOKENS_MAX, .wire = WIRE_F32};
	return h->config.model != NULL && stage_work_measure(&c, &size, &em) == OK ? size.bytes - size.kv_bytes : 0;
}

void host_profile_set_memory(struct host_profile *h, const struct options *o, uint64_t node_bytes, uint64_t keep_bytes)
{
	struct process_memory now = {0};
	struct errmsg em;
	h->cap_bytes = o->mem;
	if (o->mem > 0 && node_bytes > 0)
		h->reserved_bytes = (node_bytes < o->mem ? o->mem - node_bytes : 0) + compute_bytes(h);
	else if (process_memory_read(&now, &em) == OK)
		h->reserved_bytes = now.anon_bytes + ROOM_BYTES + keep_bytes + compute_bytes(h);
}

void host_profile_complete(const struct host_profile *h, struct device_profile *p)
{
	p->cap_bytes = h->cap_bytes;
	p->reserved_bytes = h->reserved_bytes;
	p->reader = h->reader;
}

enum err host_profile_load(const struct host_profile *h, struct device_profile *out, int64_t *when_s)
{
	enum err e = probe_cache_load(h->folder, h->key, out, when_s);
	if (e == OK)
		host_profile_complete(h, out);
	return e;
}
