#include "cli/host_profile.h"

#include "base/private_dir.h"
#include "cli/command.h"
#include "cli/home_dir.h"
#include "cli/process_memory.h"
#include "engine/stage_work.h"

#include <time.h>
#include <unistd.h>

#define ROOM_BYTES (UINT64_C(16) << 20) // what a process takes later than now, as cli/host_budget has it

enum err host_profile_init(const struct options *o, const struct model *model, bool has_weights, struct worker *worker, struct host_profile *h,
	struct errmsg *em)
{
	static const struct home_dir_kind kind = {"cache", "--cache", "XDG_CACHE_HOME", "/.cache/hearth"};
	*h = (struct host_profile){
		.config = {.kernels = worker_kernels(worker), .pool = worker_pool(worker), .model = model, .has_weights = has_weights},
		.reader = o->reader == READER_MMAP ? 1 : o->reader == READER_DIRECT ? 2 : 0,
		.slowdown = o->slowdown > 1 ? o->slowdown : 1,
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

static uint64_t reserved_of(const struct options *o, uint64_t node_bytes)
{
	return node_bytes < o->mem ? o->mem - node_bytes : 0;
}

void host_profile_set_memory(struct host_profile *h, const struct options *o, const struct node_memory *node, uint64_t keep_bytes)
{
	struct process_memory now = {0};
	struct errmsg em;
	uint64_t compute = compute_bytes(h);
	h->cap_bytes = o->mem;
	if (o->mem > 0 && node != NULL && node->is_capped) {
		h->reserved_bytes = reserved_of(o, node->bytes) + compute;
		h->reserved_direct_bytes = reserved_of(o, node->anon_bytes) + compute;
	} else if (process_memory_read(&now, &em) == OK) {
		h->reserved_bytes = h->reserved_direct_bytes = now.anon_bytes + ROOM_BYTES + keep_bytes + compute;
	}
}

void host_profile_complete(const struct host_profile *h, struct device_profile *p)
{
	// Slices are not slowed, since the worker rests behind them.
	p->visit_ns = (uint64_t)((double)p->visit_ns * h->slowdown);
	for (int32_t i = 0; i < p->n_rates; i++) {
		p->rates[i].decode_bps = (uint64_t)((double)p->rates[i].decode_bps / h->slowdown);
		p->rates[i].prefill_flops = (uint64_t)((double)p->rates[i].prefill_flops / h->slowdown);
	}
	p->cap_bytes = h->cap_bytes;
	p->reader = h->reader;
	p->reserved_bytes = device_profile_reads_direct(p) ? h->reserved_direct_bytes : h->reserved_bytes;
}

enum err host_profile_load(const struct host_profile *h, struct device_profile *out, int64_t *when_s)
{
	enum err e = probe_cache_load(h->folder, h->key, out, when_s);
	if (e == OK)
		host_profile_complete(h, out);
	return e;
}

// ---- for a node

// room: under a cap what is left of it; a machine that is full is not measured.
static uint64_t room(void *ctx)
{
	const struct host_profile *h = ctx;
	struct process_memory now;
	struct errmsg em;
	if (h->cap_bytes == 0)
		return 0;
	uint64_t used = process_memory_read(&now, &em) == OK ? now.anon_bytes + now.file_bytes + ROOM_BYTES : h->cap_bytes;
	return used < h->cap_bytes ? h->cap_bytes - used : 1;
}

static void complete(void *ctx, struct device_profile *p)
{
	const struct host_profile *h = ctx;
	struct errmsg em;
	// Under a cap there may have been little memory to measure with: good enough for now, and no more.
	if (h->cap_bytes == 0 && probe_cache_save(h->folder, h->key, p, (int64_t)time(NULL), &em) != OK)
		log_line(h->log, LOG_WARNING, "what was measured of this machine is not kept: %s", em.text);
	host_profile_complete(h, p);
	log_line(h->log, LOG_INFO, "this machine was measured: %.2f GB/s of %s weights per token", p->n_rates > 0 ? (double)p->rates[0].decode_bps / 1e9 : 0,
		p->n_rates > 0 ? dtype_find((uint32_t)p->rates[0].type)->name : "no");
}

void host_profile_offer(struct host_profile *h, const struct options *o, struct node_runtime_params *p)
{
	int64_t when_s;
	bool is_known = host_profile_load(h, &h->known, &when_s) == OK;
	h->probe = (struct background_probe_params){.config = h->config, .room = room, .complete = complete, .ctx = h};
	h->probe.config.skip_threads = true; // threads beside those of the worker would disturb its answers
	if (h->cap_bytes > 0)
		h->probe.config.has_weights = false; // whose pages would count
	p->profile = is_known ? &h->known : NULL;
	p->probe = &h->probe;
	p->core.may_probe = !o->no_probe;
}
