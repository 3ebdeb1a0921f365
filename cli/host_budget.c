#include "cli/host_budget.h"

#include "base/bytes.h"
#include "cli/process_memory.h"
#include "coordinator/shell/coord_blocks.h"
#include "engine/stage_work.h"
#include "node/shell/kept_disk.h"
#include "node/shell/node_blocks.h"

#include <stddef.h>
#include <string.h>

// What a process takes beyond what it has when the cap is parted: threads, SQLite, HTTP, links, the allocator's own. Measured with the demo
// model (docs/memory.md), and doubled.
#define ROOM_ALONE (UINT64_C(6) << 20)
#define ROOM_SERVE (UINT64_C(16) << 20)
#define ROOM_JOIN (UINT64_C(10) << 20)
#define KEEP_SHARE 16 // kept states take this part of the cap where --keep-mem was not given
#define CREDITS_ALONE 4 // steps under way within one process: more only takes memory

struct measuring {
	const struct options *o;
	const struct model *model;
	struct worker *worker;
	const struct tensor_split *split;
	const struct coordinator_config *core;
	uint64_t program_anon, program_file, kept, blocks;
};

// share_of returns how many layers' weights a member of a stage holds: its part of each, added up.
static int32_t share_of(const struct placed_stage *st, int32_t member)
{
	uint64_t sum = 0, own = st->members[member].share;
	for (int32_t i = 0; i < st->n_members; i++)
		sum += st->members[i].share;
	return st->n_members == 1 ? st->n_layers : (int32_t)(((uint64_t)st->n_layers * own + sum - 1) / sum);
}

// placed_layers: those of a placement, or the most of anybody in it: who stands by may take them.
static int32_t placed_layers(const struct coordinator_config *c)
{
	int32_t most = 0;
	for (int32_t i = 0; i < c->n_chains; i++) {
		for (int32_t k = 0; k < c->placement[i].n_stages; k++) {
			const struct placed_stage *st = &c->placement[i].stages[k];
			for (int32_t j = 0; j < st->n_members; j++) {
				int32_t n = share_of(st, j);
				if (strcmp(st->members[j].name, c->local_name) == 0)
					return n;
				most = n > most ? n : most;
			}
		}
	}
	return most;
}

// n_layers_here guesses how many layers this machine will hold: what the operator says, else an even share.
static int32_t n_layers_here(const struct options *o, const struct coordinator_config *c)
{
	if (!c->has_local_node)
		return 0;
	if (c->placement != NULL)
		return placed_layers(c);
	if (o->split.n > 0)
		return o->split.at[0] < c->n_layers ? o->split.at[0] : c->n_layers;
	return (c->n_layers + o->nodes) / (o->nodes + 1);
}

// has_last_here guesses whether this machine's layers are the last ones, too: when they are all. Else it is measured with the plan.
static bool has_last_here(const struct options *o, const struct coordinator_config *c)
{
	return n_layers_here(o, c) == c->n_layers;
}

static struct engine_config stage_config(const struct measuring *m, int32_t ctx_len, int32_t chunk)
{
	return (struct engine_config){.model = m->model, .kernels = worker_kernels(m->worker), .pool = worker_pool(m->worker),
		.layers = layer_spans_one(0, n_layers_here(m->o, m->core)), .n_slots = m->core->n_slots, .ctx_len = ctx_len, .batch_max = chunk, .wire = m->core->wire,
		.has_output = m->core->has_output && has_last_here(m->o, m->core), .split = m->split, .member = MEMBER_EACH};
}

// to_disk_bytes returns what kept states on their way to disk take.
static uint64_t to_disk_bytes(const struct options *o, const struct coordinator_config *c)
{
	return o->keep_disk > 0 && c->has_local_node ? kept_disk_bytes(coordinator_buf_bytes(c)) : 0;
}

static enum err measure(void *ctx, int32_t ctx_len, int32_t chunk, struct memory_needs *out, struct errmsg *em)
{
	const struct measuring *m = ctx;
	struct coordinator_config c = *m->core;
	c.ctx_len = ctx_len;
	c.chunk_max = chunk;
	struct engine_config head = {.model = m->model, .kernels = worker_kernels(m->worker), .pool = worker_pool(m->worker), .has_head = true,
		.embeds_only = c.has_output, .batch_max = chunk, .wire = c.wire};
	struct engine_config stage = stage_config(m, ctx_len, chunk);
	struct engine_size h, s = {0};
	enum err e = stage_work_measure(&head, &h, em);
	if (e == OK && layer_spans_count(&stage.layers) > 0)
		e = stage_work_measure(&stage, &s, em);
	uint64_t buf = coordinator_buf_bytes(&c), credits = (uint64_t)c.hop_credits;
	*out = (struct memory_needs){
		.program_anon = m->program_anon,
		.program_file = m->program_file,
		.kept = m->kept + to_disk_bytes(m->o, &c),
		.blocks = m->blocks,
		// The coordinator's buffers, the stage's, as much again in links, and the tokens of every session.
		.frames = buf * ((uint64_t)coordinator_n_bufs(&c) + (c.has_local_node ? 2 : 1) * credits) + (uint64_t)SESSIONS_MAX * (uint64_t)ctx_len * sizeof(int32_t),
		.compute = h.bytes + s.bytes - s.kv_bytes - s.packed_bytes,
		.packed = s.packed_bytes,
		.kv = s.kv_bytes,
		.head_whole = h.weight_bytes,
		.head_least = h.weight_least,
		.layers_whole = s.weight_bytes,
		.layers_least = s.weight_least,
	};
	return e;
}

// keep_bytes returns what kept states may take; nobody is lost within one process.
static uint64_t keep_bytes(const struct options *o, bool is_alone)
{
	uint64_t asked = (uint64_t)o->keep_mem << 20;
	if (o->mem == 0 || options_given(o, offsetof(struct options, keep_mem)))
		return asked;
	return is_alone ? 0 : asked < o->mem / KEEP_SHARE ? asked : o->mem / KEEP_SHARE;
}

static void say(const struct log *log, const struct memory_budget *b)
{
	char parts[MEMORY_TEXT_CAP];
	memory_needs_print(&b->needs, parts);
	log_line(log, LOG_INFO, "memory: of %.1f MiB %s; %.1f are left for %.1f of weights; context %d tokens, prompts in chunks of %d", (double)b->cap / 1048576,
		parts, (double)(b->head.bytes + b->layers.bytes) / 1048576, (double)(b->needs.head_whole + b->needs.layers_whole) / 1048576, b->ctx_len,
		b->chunk);
}

enum err host_budget_coordinator(const struct host_budget_ask *a, struct coordinator_config *c, struct host_budget *out, struct errmsg *em)
{
	const struct options *o = a->options;
	bool is_alone = a->is_alone;
	*out = (struct host_budget){.keep_bytes = keep_bytes(o, is_alone)};
	if (o->mem == 0)
		return OK;
	struct process_memory now;
	enum err e = process_memory_read(&now, em);
	if (e != OK)
		return e;
	if (is_alone)
		c->hop_credits = CREDITS_ALONE;
	struct measuring m = {.o = o, .model = a->model, .worker = a->worker, .split = a->split, .core = c, .kept = out->keep_bytes,
		.blocks = is_alone ? 0 : coord_blocks_bytes(model_file_bytes(a->model)),
		.program_anon = now.anon_bytes + (is_alone ? ROOM_ALONE : ROOM_SERVE), .program_file = now.file_bytes};
	const struct memory_request q = {
		.cap = o->mem,
		.ctx_given = o->ctx,
		.ctx_default = c->ctx_len,
		.chunk_given = options_given(o, offsetof(struct options, prefill_chunk)) ? c->chunk_max : 0,
		.chunk_default = c->chunk_max,
		.measure = measure,
		.ctx = &m,
	};
	struct memory_budget *b = &out->budget;
	e = memory_budget_make(&q, b, em);
	if (e == ERR_LIMIT && c->n_slots > 1) {
		struct errmsg why = *em;
		return errmsg_fail(em, e, "%s; the KV cache is that of %d slots (--slots)", why.text, c->n_slots);
	}
	if (e != OK)
		return e;
	say(a->log, b);
	c->ctx_len = b->ctx_len;
	c->chunk_max = b->chunk;
	out->head = (struct residency_limits){.is_capped = true, .bytes = b->head.bytes, .anon_bytes = b->head.anon_bytes, .reader = o->reader, .log = a->log};
	// The stage's own part is measured again when it is loaded: with the layers it then has.
	struct engine_config stage = stage_config(&m, b->ctx_len, b->chunk);
	struct engine_size s = {0};
	if (layer_spans_count(&stage.layers) > 0)
		e = stage_work_measure(&stage, &s, em);
	uint64_t own = s.bytes + 2 * (uint64_t)c->hop_credits * coordinator_buf_bytes(c) + to_disk_bytes(o, c);
	out->node = (struct node_memory){.is_capped = true, .bytes = b->layers.bytes + own, .anon_bytes = b->layers.anon_bytes + own, .reader = o->reader};
	return e;
}

enum err host_budget_node(const struct options *o, const struct model *model, struct host_budget *out, struct errmsg *em)
{
	*out = (struct host_budget){.keep_bytes = keep_bytes(o, false)};
	if (o->mem == 0)
		return OK;
	struct process_memory now;
	enum err e = process_memory_read(&now, em);
	if (e != OK)
		return e;
	uint64_t blocks = node_blocks_bytes(model_file_bytes(model), o->model == NULL);
	uint64_t anon = now.anon_bytes + ROOM_JOIN + blocks + out->keep_bytes, all = anon + now.file_bytes;
	if (all > o->mem || anon + MEMORY_ANON_ROOM > o->mem)
		return errmsg_fail(em, ERR_LIMIT, "--mem of %.1f MiB leaves nothing for layers: the program takes %.1f MiB, blocks of the model %.1f, kept states %.1f "
			"(--keep-mem), and memory that is no file's stays %.0f below the cap: before any layer that takes a cap of %.1f MiB", (double)o->mem / 1048576,
			(double)(all - out->keep_bytes - blocks) / 1048576, (double)blocks / 1048576, (double)out->keep_bytes / 1048576, (double)MEMORY_ANON_ROOM / 1048576,
			(double)(all > anon + MEMORY_ANON_ROOM ? all : anon + MEMORY_ANON_ROOM) / 1048576);
	out->node = (struct node_memory){.is_capped = true, .bytes = o->mem - all, .anon_bytes = o->mem - anon - MEMORY_ANON_ROOM, .reader = o->reader};
	if (out->node.anon_bytes > out->node.bytes)
		out->node.anon_bytes = out->node.bytes;
	return OK;
}
