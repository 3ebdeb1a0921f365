// Requests on the cost model alone, one after the other: mean delays, no queues. For plans that the program does not run.
#include "sim/prediction_host.h"

#include "base/assert.h"

#define ALIGNMENT 64

struct walk {
	const struct scenario *s;
	struct prediction *p;
	struct cost_case c;
	struct cost_runner *runners;
	double t;
};

static void add(
	struct walk *w, enum report_kind kind, int32_t device, int32_t peer, int32_t n_tokens, double begin_s, double end_s)
{
	struct report_interval i = {.kind = kind,
		.device = device,
		.peer = peer,
		.n_tokens = n_tokens,
		.begin_ns = quantity_ns(begin_s),
		.end_ns = quantity_ns(end_s)};
	report_add(&w->p->report, &i);
}

static void on_read(void *ctx, int32_t stage, double begin_s, double end_s)
{
	struct walk *w = ctx;
	add(w, REPORT_DISK, w->s->plan.stages[stage].device, -1, 0, begin_s, end_s);
}

static void hop(struct walk *w, int32_t from, int32_t to, int32_t n_tokens)
{
	if (from == to)
		return;
	double begin_s = w->t;
	w->t += cost_hop_s(&w->c, from, to, n_tokens);
	add(w, REPORT_LINK, from, to, n_tokens, begin_s, w->t);
	w->p->report.devices[from].sent_bytes += w->s->shape.hop_bytes * (uint64_t)n_tokens;
}

static void go_round(struct walk *w, const struct cost_batch *b)
{
	const struct cost_plan *p = &w->s->plan;
	int32_t at = p->head;
	for (int32_t round = 0; round < p->n_rounds; round++) {
		for (int32_t i = 0; i < p->n_stages; i++) {
			struct cost_use use;
			hop(w, at, p->stages[i].device, b->n_tokens);
			at = p->stages[i].device;
			double begin_s = w->t;
			w->t = cost_runner_visit(&w->runners[i], round, w->t, b, &use);
			add(w, REPORT_COMPUTE, at, -1, b->n_tokens, begin_s, w->t);
			w->p->report.devices[at].stall_ns += quantity_ns(use.stall_s);
		}
	}
	hop(w, at, p->head, b->n_tokens);
}

static void sample(struct walk *w, int32_t request)
{
	double begin_s = w->t;
	w->t += cost_head_s(&w->c, 1);
	add(w, REPORT_HEAD, w->s->plan.head, -1, 1, begin_s, w->t);
	report_token(&w->p->report, request, quantity_ns(w->t));
}

static void answer(struct walk *w, const struct scenario_request *q)
{
	int32_t request = report_submit(&w->p->report, quantity_ns(q->at_s), q->n_prompt);
	if (w->t < q->at_s)
		w->t = q->at_s;
	for (int32_t pos = 0; pos < q->n_prompt; pos += w->s->chunk) {
		struct cost_batch b = cost_chunk(
			(uint64_t)pos, q->n_prompt - pos < w->s->chunk ? q->n_prompt - pos : w->s->chunk);
		go_round(w, &b);
	}
	sample(w, request);
	for (int32_t i = 1; i < q->n_predict && w->t < w->s->duration_s; i++) {
		struct cost_batch b = cost_decode((uint64_t)(q->n_prompt + i));
		go_round(w, &b);
		sample(w, request);
	}
	w->p->timed_out = w->p->timed_out || w->t >= w->s->duration_s;
}

enum err prediction_on_model(const struct scenario *s, struct prediction *p, struct errmsg *em)
{
	struct walk w = {.s = s, .p = p, .c = scenario_case(s)};
	struct arena a;
	size_t n = (size_t)s->plan.n_stages, bytes = n * sizeof *w.runners + ALIGNMENT;
	for (size_t i = 0; i < n; i++)
		bytes += (size_t)p->layouts[i].window * sizeof(double) + ALIGNMENT;
	if (arena_open(bytes, &a) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the cost model");
	w.runners = arena_alloc(&a, n, sizeof *w.runners);
	ASSERT(w.runners);
	for (int32_t i = 0; i < s->plan.n_stages; i++) {
		int32_t window = p->layouts[i].window;
		double *ends = window > 0 ? arena_alloc(&a, (size_t)window, sizeof *ends) : NULL;
		ASSERT(window == 0 || ends);
		cost_runner_init(&w.runners[i], &w.c, i, 0, ends);
		w.runners[i].on_read = on_read;
		w.runners[i].on_read_ctx = &w;
	}
	for (int32_t i = 0; i < s->n_requests; i++)
		answer(&w, &s->requests[i]);
	arena_close(&a);
	return OK;
}
