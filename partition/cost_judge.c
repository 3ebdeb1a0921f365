// The whole ring in time: one stream decoding, and a prompt in chunks.
#include "partition/cost.h"

#include "base/assert.h"
#include "partition/cost_round.h"

#define WARM_TOKENS 20
#define ALIGNMENT 64 // of an arena's pieces
#define IDLE_S 3600.0 // since the last answer: every window is full

struct ring {
	const struct cost_case *c;
	struct cost_runner *runners; // (n_stages)
	double *free_s;              // (n_stages): when the stage has ended its last visit
	double *link_free_s; // (n_stages + 1): when the link towards it, and that back to the head, can take the next message
};

static size_t padded(size_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t cost_judge_bytes(const struct cost_case *c)
{
	size_t n = (size_t)c->plan->n_stages;
	size_t sum = padded(n * sizeof(struct cost_runner)) + 2 * padded((n + 1) * sizeof(double)) + ALIGNMENT;
	for (int32_t i = 0; i < c->plan->n_stages; i++) {
		struct cost_layout l;
		enum err e = cost_layout_of(c, i, &l, NULL);
		ASSERT(e == OK);
		sum += padded((size_t)l.n_times * sizeof(double));
		sum += cost_group_of(c->plan, i) ? padded(sizeof(struct cost_crew)) : 0;
	}
	return sum;
}

static enum err ring_init(struct ring *r, const struct cost_case *c, double start_s, struct arena *a)
{
	size_t n = (size_t)c->plan->n_stages;
	*r = (struct ring){
		.c = c,
		.runners = arena_alloc(a, n, sizeof *r->runners),
		.free_s = arena_alloc(a, n + 1, sizeof *r->free_s),
		.link_free_s = arena_alloc(a, n + 1, sizeof *r->link_free_s),
	};
	if (r->runners == NULL || r->free_s == NULL || r->link_free_s == NULL)
		return ERR_NOMEM;
	for (int32_t i = 0; i < c->plan->n_stages; i++) {
		enum err e = cost_runner_open(&r->runners[i], c, i, start_s, a);
		if (e != OK)
			return e;
	}
	return OK;
}

// from_device returns who sends to a stage in a round.
static int32_t from_device(const struct cost_plan *p, int32_t round, int32_t stage)
{
	if (stage > 0)
		return p->stages[stage - 1].device;
	return round > 0 ? p->stages[p->n_stages - 1].device : p->head;
}

static void add_use(struct cost_device_share *s, const struct cost_use *use, const struct cluster_device *d, double weight)
{
	s->busy_s += use->busy_s * weight;
	s->stall_s += use->stall_s * weight;
	if (use->read_bytes > 0)
		s->read_s += (use->read_s > 0 ? use->read_s : use->read_bytes / d->disk_rate) * weight;
	s->exchange_s += use->exchange_s * weight;
}

// walk_token takes one token, or one of each of n streams, round the ring and adds what it cost to `out`, times weight.
static double walk_token(struct ring *r, double t, double weight, int32_t n_streams, struct cost_verdict *out)
{
	const struct cost_plan *p = r->c->plan;
	struct cost_batch b = cost_decode(r->c->params.kv_read * (uint64_t)n_streams);
	double hop_s = 0;
	b.n_tokens = n_streams;
	for (int32_t round = 0; round < p->n_rounds; round++) {
		for (int32_t i = 0; i < p->n_stages; i++) {
			struct cost_use use;
			double s = cost_hop_s(r->c, from_device(p, round, i), p->stages[i].device, n_streams);
			hop_s += s;
			t = cost_runner_visit(&r->runners[i], round, t + s, &b, &use);
			add_use(&out->stages[i], &use, cost_device_of(r->c, i), weight);
		}
	}
	double back_s = cost_hop_s(r->c, p->stages[p->n_stages - 1].device, p->head, n_streams);
	out->hop_s = hop_s + back_s;
	return t + back_s + out->head_s;
}

static enum err judge(const struct cost_case *c, int32_t n_streams, struct arena *scratch, struct cost_verdict *out)
{
	size_t used = scratch->used;
	struct ring r;
	*out = (struct cost_verdict){.head_s = cost_head_s(c, n_streams)};
	enum err e = ring_init(&r, c, 0, scratch);
	double t = 0, warm = 0;
	for (int32_t i = 0; e == OK && i < WARM_TOKENS + COST_JUDGED_TOKENS; i++) {
		if (i == WARM_TOKENS)
			warm = t;
		t = walk_token(&r, t, i < WARM_TOKENS ? 0 : 1.0 / COST_JUDGED_TOKENS, n_streams, out);
	}
	out->token_s = (t - warm) / COST_JUDGED_TOKENS;
	scratch->used = used;
	return e;
}

enum err cost_judge(const struct cost_case *c, struct arena *scratch, struct cost_verdict *out)
{
	return judge(c, 1, scratch, out);
}

enum err cost_streams(const struct cost_case *c, int32_t n_streams, struct arena *scratch, double *out)
{
	ASSERT(n_streams >= 1);
	struct cost_verdict v;
	bool is_streaming = false;
	enum err e = judge(c, 1, scratch, &v);
	double busiest_s = v.head_s;
	for (int32_t i = 0; e == OK && i < c->plan->n_stages; i++) {
		double busy_s = v.stages[i].busy_s + v.stages[i].exchange_s + (c->plan->stages[i].device == c->plan->head ? v.head_s : 0);
		busiest_s = busy_s > busiest_s ? busy_s : busiest_s;
		is_streaming = is_streaming || v.stages[i].read_s > 0;
	}
	if (e == OK && is_streaming)
		e = judge(c, n_streams, scratch, &v);
	double each_s = v.token_s / n_streams;
	*out = is_streaming || each_s > busiest_s ? each_s : busiest_s;
	return e;
}

// send_s returns when a message of n hidden states that is ready at t arrives; the link is busy while it is sent.
static double send_s(const struct ring *r, int32_t link, int32_t from, int32_t to, int32_t n_tokens, double t)
{
	double all_s = cost_hop_s(r->c, from, to, n_tokens), delay_s = cost_hop_s(r->c, from, to, 0);
	double begin = t > r->link_free_s[link] ? t : r->link_free_s[link];
	r->link_free_s[link] = begin + (all_s - delay_s);
	return begin + all_s;
}

// walk_chunk: the last stage answers the last chunk with its last row, earlier ones with none.
static double walk_chunk(struct ring *r, double t, int32_t pos, int32_t n, bool is_last)
{
	const struct cost_plan *p = r->c->plan;
	const struct cost_batch b = cost_chunk((uint64_t)pos, n);
	for (int32_t round = 0; round < p->n_rounds; round++) {
		for (int32_t i = 0; i < p->n_stages; i++) {
			struct cost_use use;
			t = send_s(r, i, from_device(p, round, i), p->stages[i].device, n, t);
			t = t > r->free_s[i] ? t : r->free_s[i];
			t = r->free_s[i] = cost_runner_visit(&r->runners[i], round, t, &b, &use);
		}
	}
	return send_s(r, p->n_stages, p->stages[p->n_stages - 1].device, p->head, is_last, t);
}

enum err cost_ttft(const struct cost_case *c, int32_t n_prompt, int32_t chunk, struct arena *scratch, double *out)
{
	ASSERT(n_prompt >= 1);
	ASSERT(chunk >= 1);
	size_t used = scratch->used;
	struct ring r;
	double end = 0;
	enum err e = ring_init(&r, c, -IDLE_S, scratch);
	for (int32_t pos = 0; e == OK && pos < n_prompt; pos += chunk) {
		int32_t n = n_prompt - pos < chunk ? n_prompt - pos : chunk;
		// With several rounds the units would be used out of their order, were two chunks on the way.
		end = walk_chunk(&r, c->plan->n_rounds > 1 ? end : 0, pos, n, pos + n == n_prompt);
	}
	*out = end + cost_head_s(c, 1);
	scratch->used = used;
	return e;
}
