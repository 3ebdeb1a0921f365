// A pipeline on the virtual world.
#include "sim/prediction_host.h"

#include "base/assert.h"
#include "base/window_layout.h"
#include "sim/network.h"
#include "sim/world.h"

#include <stdlib.h>
#include <string.h>

#define READY_NS INT64_C(600000000000) // a cluster that has no plan after ten minutes never will
#define SLICE_NS INT64_C(1000000000)
#define LOAD_NS INT64_C(1000000)
#define STORE_NS INT64_C(1000000)     // one fsync of a disk in use
#define SETTLE_NS INT64_C(1000000000) // after the last stage loaded: direct links between nodes come up

struct host {
	const struct scenario *s;
	struct prediction *p;
	struct cost_case c;
	struct arena arena;
	struct network network;
	int32_t n_machines;
	int32_t devices[SIM_MACHINES_MAX]; // of machines
	int32_t stages[SIM_MACHINES_MAX];  // -1: none
	struct cost_runner *runners;       // (n_stages)
	struct sim_machine *machines;      // (n_machines)
	bool other_plan; // the coordinator made another plan than the scenario's
	struct sim_world *w;
};

static void on_read(void *ctx, int32_t stage, double begin_s, double end_s)
{
	struct host *h = ctx;
	struct report_interval i = {.kind = REPORT_DISK,
		.device = h->s->plan.stages[stage].device,
		.peer = -1,
		.begin_ns = quantity_ns(begin_s),
		.end_ns = quantity_ns(end_s)};
	report_add(&h->p->report, &i);
}

static int64_t forward_ns(struct host *h, const struct sim_work *w)
{
	int32_t stage = h->stages[w->machine];
	int32_t round = stage >= 0 ? cost_runner_round(&h->runners[stage], w->layer_begin, w->layer_end) : -1;
	if (round < 0) {
		h->other_plan = true; // told after the run
		return 1;
	}
	struct cost_batch b = {.n_tokens = w->n_tokens,
		.kv_read = (uint64_t)w->n_past + (uint64_t)w->n_tokens,
		.attn_pairs = (uint64_t)w->n_pairs};
	struct cost_use use;
	double begin_s = (double)w->begin_ns / 1e9;
	double end_s = cost_runner_visit(&h->runners[stage], round, begin_s, &b, &use);
	h->p->report.devices[h->devices[w->machine]].stall_ns += quantity_ns(use.stall_s);
	return quantity_ns(end_s) - w->begin_ns;
}

// load_ns looks whether the machine was told to stream what its runner does.
static int64_t load_ns(struct host *h, const struct sim_work *w)
{
	int32_t stage = h->stages[w->machine];
	const struct cost_layout *l = stage >= 0 ? &h->runners[stage].layout : NULL;
	if (l == NULL || window_share_units(w->stream_share, l->n_units) != l->n_streamed)
		h->other_plan = true;
	return LOAD_NS; // loading is not what is predicted
}

static int64_t duration_ns(void *ctx, const struct sim_work *w)
{
	struct host *h = ctx;
	const struct cluster_device *d = &h->s->devices[h->devices[w->machine]];
	switch (w->kind) {
	case SIM_EMBED:
		return quantity_ns(w->n_tokens * (double)h->s->hidden_dim * sizeof(float) / d->cpu_rate);
	case SIM_FORWARD:
		return forward_ns(h, w);
	case SIM_SAMPLE:
		return quantity_ns(cost_head_s(&h->c, w->n_tokens));
	case SIM_LOAD:
		return load_ns(h, w);
	case SIM_STORE:
		return STORE_NS;
	}
	return 0;
}

static void on_work(struct host *h, const struct sim_record *r)
{
	if (r->work.kind != SIM_FORWARD && r->work.kind != SIM_SAMPLE)
		return;
	struct report_interval i = {.kind = r->work.kind == SIM_FORWARD ? REPORT_COMPUTE : REPORT_HEAD,
		.device = h->devices[r->machine],
		.peer = -1,
		.n_tokens = r->work.n_tokens,
		.begin_ns = r->begin_ns,
		.end_ns = r->end_ns};
	report_add(&h->p->report, &i);
}

static void on_send(struct host *h, const struct sim_record *r)
{
	h->p->report.devices[h->devices[r->machine]].sent_bytes += r->bytes;
	if (!r->is_step || r->end_ns == INT64_MAX || r->machine == r->peer)
		return;
	struct report_interval i = {.kind = REPORT_LINK,
		.device = h->devices[r->machine],
		.peer = h->devices[r->peer],
		.begin_ns = r->begin_ns,
		.end_ns = r->end_ns};
	report_add(&h->p->report, &i);
}

static void on_record(void *ctx, const struct sim_record *r)
{
	struct host *h = ctx;
	switch (r->type) {
	case SIM_REC_WORK:
		on_work(h, r);
		break;
	case SIM_REC_SEND:
		on_send(h, r);
		break;
	case SIM_REC_TOKEN:
		report_token(&h->p->report, r->request, r->begin_ns);
		break;
	case SIM_REC_END:
		if (r->end == COORD_END_ERROR)
			report_fail(&h->p->report, r->request);
		break;
	default:
		break;
	}
}

// place_machines: the coordinator is machine 0, the others follow in the ring's order.
static void place_machines(struct host *h)
{
	const struct cost_plan *p = &h->s->plan;
	h->devices[h->n_machines] = p->head;
	h->stages[h->n_machines++] = p->stages[0].device == p->head ? 0 : -1;
	for (int32_t i = 0; i < p->n_stages; i++) {
		if (p->stages[i].device == p->head)
			continue;
		h->devices[h->n_machines] = p->stages[i].device;
		h->stages[h->n_machines++] = i;
	}
}

static enum err allocate(struct host *h, struct errmsg *em)
{
	size_t n = (size_t)h->s->plan.n_stages, windows = 0;
	for (size_t i = 0; i < n; i++)
		windows += (size_t)h->p->layouts[i].n_times * sizeof(double) + 64;
	size_t bytes = scenario_network_bytes(h->n_machines) + n * sizeof *h->runners +
		(size_t)h->n_machines * sizeof *h->machines + windows + 4096;
	if (arena_open(bytes, &h->arena) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a world of %d machines", h->n_machines);
	h->runners = arena_alloc(&h->arena, n, sizeof *h->runners);
	h->machines = arena_alloc(&h->arena, (size_t)h->n_machines, sizeof *h->machines);
	ASSERT(h->runners && h->machines);
	for (int32_t i = 0; i < h->s->plan.n_stages; i++) {
		int32_t n_times = h->p->layouts[i].n_times;
		double *ends = n_times > 0 ? arena_alloc(&h->arena, (size_t)n_times, sizeof *ends) : NULL;
		ASSERT(n_times == 0 || ends);
		cost_runner_init(&h->runners[i], &h->c, i, 0, ends);
		h->runners[i].on_read = on_read;
		h->runners[i].on_read_ctx = h;
	}
	return scenario_network(h->s, h->devices, h->n_machines, &h->arena, &h->network, em);
}

static uint64_t whole(double v)
{
	return v < (double)PROFILE_RATE_MAX ? (uint64_t)v : PROFILE_RATE_MAX;
}

// profile_of says of a device what a real one would tell of itself, for the weights of the scenario's model.
static struct device_profile profile_of(const struct cluster_device *d, enum dtype type)
{
	return (struct device_profile){.n_threads = 1, .n_cpus = 1, .visit_ns = (uint64_t)quantity_ns(d->visit_s), .memory_bytes = d->cap_bytes,
		.available_bytes = d->cap_bytes, .cap_bytes = d->cap_bytes, .reserved_bytes = d->reserved_bytes, .disk_direct_bps = whole(d->disk_rate), .reader = 2,
		.n_rates = 1, .rates = {{type, whole(cluster_cpu_rate(d, type)), whole(d->cpu_flops)}}};
}

static enum err open_world(struct host *h, struct errmsg *em)
{
	const struct scenario *s = h->s;
	for (int32_t i = 0; i < h->n_machines; i++) {
		memcpy(h->machines[i].name, s->devices[h->devices[i]].name, NAME_CAP);
		h->machines[i].is_enrolled = true;
		h->machines[i].profile = profile_of(&s->devices[h->devices[i]], s->shape.type);
		if (device_profile_check(&h->machines[i].profile, NULL) != OK) // a scenario may have slower machines than anybody joins with
			h->machines[i].profile.n_threads = 0;
	}
	struct sim_config c = {
		.seed = s->seed,
		.n_machines = h->n_machines,
		.machines = h->machines,
		.has_local_node = h->stages[0] == 0,
		.network = &h->network,
		.model = {.n_layers = s->shape.n_layers, .hidden_dim = s->hidden_dim, .vocab_size = s->vocab_size},
		.wire = s->wire,
		.n_slots = s->n_slots,
		.ctx_len = s->ctx_len,
		.chunk_max = s->chunk,
		.hop_credits = HOP_CREDITS_DEFAULT,
		.n_nodes_min = h->n_machines - 1,
		.n_split = s->plan.n_stages,
		.n_rounds = s->plan.n_rounds,
		.duration_ctx = h,
		.duration_ns = duration_ns,
		.observer = {.ctx = h, .on = on_record},
	};
	for (int32_t i = 0; i < s->plan.n_stages; i++) {
		const struct cost_layout *l = &h->p->layouts[i];
		c.split[i] = s->plan.stages[i].n_layers;
		c.split_streams[i] = l->n_streamed > 0 ? window_share_of(l->n_streamed, l->n_units) : 0;
	}
	return sim_world_open(&c, &h->w, em);
}

// look tells whether the coordinator has a running plan, or what it waits for.
static enum err look(const struct host *h, bool *is_ready, struct errmsg *waiting_for)
{
	struct coord_status *st = calloc(1, sizeof *st);
	if (st == NULL)
		return errmsg_fail(waiting_for, ERR_NOMEM, "no memory");
	sim_world_status(h->w, st);
	*is_ready = st->ready;
	errmsg_fail(waiting_for, OK, "%s", st->waiting_for);
	free(st);
	return OK;
}

static enum err wait_until_ready(struct host *h, struct errmsg *em)
{
	struct errmsg why = {""};
	bool is_ready = false;
	while (!is_ready && sim_world_now_ns(h->w) < READY_NS) {
		if (!sim_world_run(h->w, sim_world_now_ns(h->w) + SLICE_NS / 10))
			return sim_world_tell_failure(h->w, em);
		enum err e = look(h, &is_ready, &why);
		if (e != OK)
			return errmsg_fail(em, e, "%s", why.text);
	}
	if (!is_ready)
		return errmsg_fail(em, ERR_TIMEOUT, "the simulated cluster was not ready after %lld s: %.200s",
			(long long)(READY_NS / SLICE_NS), why.text);
	if (!sim_world_run(h->w, sim_world_now_ns(h->w) + SETTLE_NS))
		return sim_world_tell_failure(h->w, em);
	return scenario_network_ready(h->s, h->devices, h->n_machines, sim_world_now_ns(h->w), &h->network, em);
}

static enum err run_requests(struct host *h, struct errmsg *em)
{
	const struct scenario *s = h->s;
	int64_t start_ns = sim_world_now_ns(h->w), end_ns = start_ns + quantity_ns(s->duration_s);
	for (int32_t i = 0; i < s->n_requests; i++) {
		struct sim_request q = {.at_ns = start_ns + quantity_ns(s->requests[i].at_s),
			.n_prompt = s->requests[i].n_prompt,
			.n_predict = s->requests[i].n_predict,
			.sampling = {.top_p = 1}};
		int32_t number = sim_world_submit(h->w, &q), reported = report_submit(&h->p->report, q.at_ns, q.n_prompt);
		ASSERT(number == reported);
	}
	while (sim_world_n_open(h->w) > 0 && sim_world_now_ns(h->w) < end_ns) {
		int64_t until_ns = sim_world_now_ns(h->w) + SLICE_NS;
		if (!sim_world_run(h->w, until_ns < end_ns ? until_ns : end_ns))
			return sim_world_tell_failure(h->w, em);
	}
	h->p->timed_out = sim_world_n_open(h->w) > 0;
	h->p->history = sim_world_history(h->w);
	if (h->other_plan)
		return errmsg_fail(em, ERR_STATE, "the coordinator made another plan than the scenario's");
	return OK;
}

enum err prediction_on_world(const struct scenario *s, struct prediction *p, struct errmsg *em)
{
	struct host h;
	memset(&h, 0, sizeof h);
	h.s = s;
	h.p = p;
	h.c = scenario_case(s);
	place_machines(&h);
	enum err e = allocate(&h, em);
	if (e == OK)
		e = open_world(&h, em);
	if (e == OK)
		e = wait_until_ready(&h, em);
	if (e == OK)
		e = run_requests(&h, em);
	sim_world_close(h.w);
	arena_close(&h.arena);
	return e;
}
