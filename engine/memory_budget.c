#include "engine/memory_budget.h"

#include "base/assert.h"

#include <stdbool.h>
#include <stdio.h>

#define KV_SHARE 4     // a chosen context's cache takes at most this part of what weights and it have, where weights do not fit
#define HUGE_EDGES (UINT64_C(4) << 20) // of huge pages that begin before the head and end behind it
#define CHUNK_SHARE 12 // frames and activations take at most this part of the cap, where the chunk is ours to choose

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

uint64_t memory_needs_rest(const struct memory_needs *n)
{
	return n->program_file + memory_needs_anon(n);
}

uint64_t memory_needs_anon(const struct memory_needs *n)
{
	return n->program_anon + n->frames + n->kept + n->blocks + n->compute + n->packed + n->kv;
}

static double mib(uint64_t bytes)
{
	return (double)bytes / 1048576;
}

void memory_needs_print(const struct memory_needs *n, char out[MEMORY_TEXT_CAP])
{
	char blocks[40] = "", packed[40] = "";
	if (n->blocks > 0)
		snprintf(blocks, sizeof blocks, " blocks for others %.1f,", mib(n->blocks));
	if (n->packed > 0)
		snprintf(packed, sizeof packed, " columns by lanes %.1f,", mib(n->packed));
	snprintf(out, MEMORY_TEXT_CAP, "program %.1f MiB, frames %.1f, kept states %.1f,%s computing %.1f,%s KV cache %.1f, weights at least %.1f",
		mib(n->program_anon + n->program_file), mib(n->frames), mib(n->kept), blocks, mib(n->compute), packed, mib(n->kv),
		mib(n->head_least + n->layers_least));
}

// least_cap returns the smallest cap that holds what is needed.
static uint64_t least_cap(const struct memory_needs *n)
{
	uint64_t all = memory_needs_rest(n) + n->head_least + n->layers_least, anon = memory_needs_anon(n) + MEMORY_ANON_ROOM;
	return all > anon ? all : anon;
}

static bool is_possible(const struct memory_needs *n, uint64_t cap)
{
	return least_cap(n) <= cap;
}

// is_good tells whether a context may be chosen: with weights that do not all fit, memory for tokens costs reading.
static bool is_good(const struct memory_needs *n, uint64_t cap)
{
	if (!is_possible(n, cap))
		return false;
	uint64_t left = minus(cap, memory_needs_rest(n)), anon_left = minus(cap, memory_needs_anon(n) + MEMORY_ANON_ROOM);
	uint64_t both = (left < anon_left ? left : anon_left) + n->kv;
	return left >= n->head_whole + n->layers_whole || n->kv <= both / KV_SHARE;
}

static enum err measure(const struct memory_request *q, int32_t ctx_len, int32_t chunk, struct memory_needs *out, struct errmsg *em)
{
	return q->measure(q->ctx, ctx_len, chunk, out, em);
}

// largest finds the largest context in steps of MEMORY_CTX_STEP, at most ctx_max, for which `fits` holds; 0: none. Needs grow with it.
static enum err largest(const struct memory_request *q, int32_t chunk, int32_t ctx_max, bool (*fits)(const struct memory_needs *, uint64_t),
	int32_t *found, struct errmsg *em)
{
	struct memory_needs n;
	enum err e = measure(q, ctx_max, chunk, &n, em);
	*found = ctx_max;
	if (e != OK || fits(&n, q->cap))
		return e;
	int32_t low = 0, high = (ctx_max + MEMORY_CTX_STEP - 1) / MEMORY_CTX_STEP; // in steps: low fits (0 always), high does not
	while (high - low > 1) {
		int32_t mid = low + (high - low) / 2;
		e = measure(q, mid * MEMORY_CTX_STEP, chunk, &n, em);
		if (e != OK)
			return e;
		if (fits(&n, q->cap))
			low = mid;
		else
			high = mid;
	}
	*found = low * MEMORY_CTX_STEP;
	return OK;
}

static enum err choose_chunk(const struct memory_request *q, int32_t *chunk, struct errmsg *em)
{
	*chunk = q->chunk_given > 0 ? q->chunk_given : q->chunk_default;
	while (q->chunk_given == 0 && *chunk > MEMORY_CHUNK_LEAST) {
		struct memory_needs n;
		enum err e = measure(q, MEMORY_CTX_STEP, *chunk, &n, em);
		if (e != OK || n.frames + n.compute <= q->cap / CHUNK_SHARE)
			return e;
		*chunk = *chunk / 2 > MEMORY_CHUNK_LEAST ? *chunk / 2 : MEMORY_CHUNK_LEAST;
	}
	return OK;
}

#define ADVICE_CAP 96

// advise says which context would fit, or what the smallest takes.
static enum err advise(const struct memory_request *q, int32_t ctx_len, int32_t chunk, char out[ADVICE_CAP], struct errmsg *em)
{
	int32_t most = 0, least = ctx_len < MEMORY_CTX_STEP ? ctx_len : MEMORY_CTX_STEP;
	struct memory_needs n;
	enum err e = largest(q, chunk, ctx_len, is_possible, &most, em);
	if (e == OK)
		e = measure(q, least, chunk, &n, em);
	if (e != OK)
		return e;
	if (most > 0)
		snprintf(out, ADVICE_CAP, "a context of %d tokens would fit", (int)most);
	else
		snprintf(out, ADVICE_CAP, "not even %d tokens would fit: that takes a cap of %.1f MiB", (int)least, mib(least_cap(&n)));
	return OK;
}

// refuse writes the arithmetic for a context that does not fit.
static enum err refuse(const struct memory_request *q, int32_t ctx_len, int32_t chunk, struct errmsg *em)
{
	char parts[MEMORY_TEXT_CAP], advice[ADVICE_CAP];
	struct memory_needs n;
	enum err e = measure(q, ctx_len, chunk, &n, em);
	if (e == OK)
		e = advise(q, ctx_len, chunk, advice, em);
	if (e != OK)
		return e;
	memory_needs_print(&n, parts);
	uint64_t sum = memory_needs_rest(&n) + n.head_least + n.layers_least;
	if (sum > q->cap)
		return errmsg_fail(em, ERR_LIMIT, "--mem of %.1f MiB does not hold a context of %d tokens: %s, together %.1f MiB; %s", mib(q->cap),
			(int)ctx_len, parts, mib(sum), advice);
	return errmsg_fail(em, ERR_LIMIT, "--mem of %.1f MiB does not hold a context of %d tokens: %s; memory that is no file's, %.1f MiB, must stay %.0f MiB "
		"below the cap; %s", mib(q->cap), (int)ctx_len, parts, mib(memory_needs_anon(&n)), mib(MEMORY_ANON_ROOM), advice);
}

static enum err choose_ctx(const struct memory_request *q, int32_t chunk, int32_t *ctx_len, struct errmsg *em)
{
	struct memory_needs n;
	if (q->ctx_given > 0) {
		*ctx_len = q->ctx_given;
		enum err e = measure(q, q->ctx_given, chunk, &n, em);
		return e != OK ? e : is_possible(&n, q->cap) ? OK : refuse(q, q->ctx_given, chunk, em);
	}
	enum err e = largest(q, chunk, q->ctx_default, is_good, ctx_len, em);
	if (e == OK && *ctx_len == 0) { // however small, it takes more than half: then what is possible at all
		int32_t least = q->ctx_default < MEMORY_CTX_STEP ? q->ctx_default : MEMORY_CTX_STEP;
		e = largest(q, chunk, least, is_possible, ctx_len, em);
		if (e == OK && *ctx_len == 0)
			e = refuse(q, least, chunk, em);
	}
	return e;
}

// share_head gives the output head all it wants when half of what there is suffices; it is read for every token, like a layer.
static uint64_t share_head(const struct memory_needs *n, uint64_t have)
{
	uint64_t whole = n->head_whole + n->layers_whole;
	if (n->layers_whole == 0)
		return have;
	if (have >= whole + HUGE_EDGES)
		return n->head_whole + HUGE_EDGES;
	if (have >= whole || (n->head_whole <= have / 2 && have - n->head_whole >= n->layers_least))
		return n->head_whole;
	uint64_t part = (uint64_t)((double)have * ((double)n->head_whole / (double)whole));
	part = part > n->head_least ? part : n->head_least;
	return part < minus(have, n->layers_least) ? part : minus(have, n->layers_least);
}

enum err memory_budget_make(const struct memory_request *q, struct memory_budget *out, struct errmsg *em)
{
	ASSERT(q->ctx_default >= 1);
	ASSERT(q->chunk_default >= 1);
	*out = (struct memory_budget){.cap = q->cap};
	enum err e = choose_chunk(q, &out->chunk, em);
	if (e == OK)
		e = choose_ctx(q, out->chunk, &out->ctx_len, em);
	if (e == OK)
		e = measure(q, out->ctx_len, out->chunk, &out->needs, em);
	if (e != OK)
		return e;
	const struct memory_needs *n = &out->needs;
	uint64_t have = q->cap - memory_needs_rest(n), anon = minus(q->cap, memory_needs_anon(n) + MEMORY_ANON_ROOM);
	anon = anon < have ? anon : have;
	out->head.bytes = share_head(n, have);
	out->layers.bytes = have - out->head.bytes;
	out->head.anon_bytes = share_head(n, anon);
	uint64_t left = anon - out->head.anon_bytes;
	out->layers.anon_bytes = left < out->layers.bytes ? left : out->layers.bytes;
	return OK;
}
