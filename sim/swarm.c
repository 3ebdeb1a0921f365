#include "sim/swarm.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/fmath.h"
#include "base/rng.h"
#include "sim/network.h"
#include "sim/quantity.h"
#include "sim/sim_mix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_NS INT64_C(1000000000)
#define READY_NS INT64_C(600000000000) // chains that are not ready after ten minutes never will be
#define STORE_NS INT64_C(5000000)
#define KEEP_BYTES (UINT64_C(1) << 28) // of states that a member keeps of what it sent
#define REQUESTS_MAX 100000

enum sub_seed { SEED_KINDS = 301, SEED_STAY, SEED_TRAFFIC };

struct volunteer {
	int64_t next_ns; // when it goes, or comes back
	bool is_away;
};

// What is measured of a request while it is answered.
struct watch {
	int64_t latest_ns, longest_ns;
};

struct swarm {
	const struct scenario *s;
	struct swarm_result *r;
	struct arena arena;
	struct network network;
	int32_t n_machines;
	struct sim_machine *machines; // (n_machines)
	int32_t *devices;             // (n_machines)
	struct volunteer *volunteers; // (n_machines)
	struct placed_stage *stages;  // (n_chains, STAGES_MAX)
	struct placed_member *placed; // likewise: a stage is one machine
	struct placed_chain chains[CHAINS_MAX];
	struct watch *watches; // (n_requests)
	struct rng rng_stay;
	int64_t begin_ns, n_slices;
	struct sim_world *w;
};

// exponential draws a time of that mean.
static int64_t exponential_ns(struct rng *r, double mean_s)
{
	double u = (double)((rng_u64(r) >> 11) + 1) * 0x1p-53; // (0, 1]
	return quantity_ns(-fmath_logd(u) * mean_s);
}

// ---- who is there

static double seconds_per_byte(const struct cluster_device *d, enum dtype type)
{
	return 1 / (d->accel_rate > 0 ? d->accel_rate : cluster_cpu_rate(d, type));
}

static void fill_machine(const struct scenario *s, int32_t device, struct sim_machine *m)
{
	const struct cluster_device *d = &s->devices[device];
	double byte_s = seconds_per_byte(d, s->shape.type), whole_s = (double)s->shape.layer_bytes * byte_s, layer_s = whole_s * model_shape_read_share(&s->shape, 1);
	double flops = d->accel_flops > 0 ? d->accel_flops : d->cpu_flops;
	m->is_enrolled = true;
	m->layers_max = s->swarm.hold[device];
	m->speed = (struct sim_speed){
		.visit_ns = quantity_ns(d->visit_s),
		.layer_ns = quantity_ns(layer_s),
		.token_layer_ns = quantity_ns(flops > 0 ? model_shape_layer_flops(&s->shape, 0) / flops : layer_s),
		.head_ns = quantity_ns((double)s->shape.head_bytes * byte_s),
		.load_layer_ns = quantity_ns(d->disk_rate > 0 ? (double)s->shape.layer_bytes / d->disk_rate : whole_s),
		.store_ns = STORE_NS,
	};
}

static int32_t draw_kind(const struct scenario *s, struct rng *r)
{
	int32_t sum = 0, device = 0;
	for (int32_t i = 0; i < s->n_devices; i++)
		sum += s->swarm.share[i];
	int32_t at = (int32_t)rng_below(r, (uint64_t)sum);
	while (at >= s->swarm.share[device])
		at -= s->swarm.share[device++];
	return device;
}

static void draw_members(struct swarm *h)
{
	struct rng r;
	rng_init(&r, sim_mix(h->s->seed, SEED_KINDS));
	h->devices[0] = h->s->plan.head;
	for (int32_t i = 0; i < h->n_machines; i++) {
		if (i > 0)
			h->devices[i] = draw_kind(h->s, &r);
		fill_machine(h->s, h->devices[i], &h->machines[i]);
		snprintf(h->machines[i].name, NAME_CAP, "%.40s-%d", h->s->devices[h->devices[i]].name, i);
	}
}

// place fills the chains, one after the other, with the first members that are in none.
static enum err place(struct swarm *h, struct errmsg *em)
{
	int32_t member = 1, n_layers = h->s->shape.n_layers;
	for (int32_t c = 0; c < h->s->swarm.n_chains; c++) {
		struct placed_chain *ch = &h->chains[c];
		struct placed_stage *stages = h->stages + (size_t)c * STAGES_MAX;
		ch->stages = stages;
		for (int32_t left = n_layers; left > 0; member++) {
			if (member == h->n_machines)
				return errmsg_fail(em, ERR_RANGE, "placement: %d members hold the model's %d layers fewer than %d times", h->s->swarm.n_members, n_layers,
					h->s->swarm.n_chains);
			if (ch->n_stages == STAGES_MAX)
				return errmsg_fail(em, ERR_RANGE, "placement: a chain has more than %d machines: let them hold more layers", STAGES_MAX);
			int32_t n = h->machines[member].layers_max < left ? h->machines[member].layers_max : left;
			struct placed_member *m = &h->placed[c * STAGES_MAX + ch->n_stages];
			*m = (struct placed_member){.share = 1};
			memcpy(m->name, h->machines[member].name, NAME_CAP);
			stages[ch->n_stages++] = (struct placed_stage){.n_layers = n, .n_members = 1, .members = m};
			left -= n;
		}
		h->r->chains[c].n_stages = ch->n_stages;
	}
	h->r->n_standing_by = h->n_machines - member;
	return OK;
}

// ---- the world

static void on_record(void *ctx, const struct sim_record *rec)
{
	struct swarm *h = ctx;
	if (rec->type != SIM_REC_TOKEN || rec->request < 0)
		return;
	struct watch *q = &h->watches[rec->request];
	int64_t gap_ns = q->latest_ns > 0 ? rec->begin_ns - q->latest_ns : 0;
	q->longest_ns = gap_ns > q->longest_ns ? gap_ns : q->longest_ns;
	q->latest_ns = rec->begin_ns;
	int32_t chain = sim_world_chain_of(h->w, rec->request);
	if (chain >= 0)
		h->r->chains[chain].n_tokens++;
}

static int32_t n_requests_max(const struct scenario *s)
{
	double n = 2 * s->duration_s / s->swarm.every_s + 64; // twice the mean, and some
	return n < REQUESTS_MAX ? (int32_t)n : REQUESTS_MAX;
}

static enum err open_world(struct swarm *h, struct errmsg *em)
{
	const struct scenario *s = h->s;
	struct sim_config c = {
		.seed = s->seed,
		.n_machines = h->n_machines,
		.machines = h->machines,
		.network = &h->network,
		.model = {.n_layers = s->shape.n_layers, .hidden_dim = s->hidden_dim, .vocab_size = s->vocab_size},
		.wire = s->wire,
		.n_slots = s->n_slots,
		.ctx_len = s->ctx_len,
		.chunk_max = s->chunk,
		.hop_credits = HOP_CREDITS_MAX,
		.n_nodes_min = h->n_machines - 1,
		.requests_max = n_requests_max(s),
		.sessions_max = 4 * s->swarm.n_chains * s->n_slots,
		.n_chains = s->swarm.n_chains,
		.placement = h->chains,
		.keep_bytes = KEEP_BYTES,
		.recovery = true,
		.observer = {.ctx = h, .on = on_record},
	};
	return sim_world_open(&c, &h->w, em);
}

static enum err allocate(struct swarm *h, struct errmsg *em)
{
	size_t n = (size_t)h->n_machines, n_stages = (size_t)h->s->swarm.n_chains * STAGES_MAX, n_requests = (size_t)n_requests_max(h->s);
	size_t bytes = scenario_swarm_network_bytes(h->n_machines) + n * (sizeof *h->machines + sizeof *h->devices + sizeof *h->volunteers) +
		n_stages * (sizeof *h->stages + sizeof *h->placed) + n_requests * sizeof *h->watches + 4096;
	if (arena_open(bytes, &h->arena) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a swarm of %d machines", h->n_machines);
	h->machines = arena_alloc(&h->arena, n, sizeof *h->machines);
	h->devices = arena_alloc(&h->arena, n, sizeof *h->devices);
	h->volunteers = arena_alloc(&h->arena, n, sizeof *h->volunteers);
	h->stages = arena_alloc(&h->arena, n_stages, sizeof *h->stages);
	h->placed = arena_alloc(&h->arena, n_stages, sizeof *h->placed);
	h->watches = arena_alloc(&h->arena, n_requests, sizeof *h->watches);
	ASSERT(h->machines && h->devices && h->volunteers && h->stages && h->placed && h->watches);
	return OK;
}

static enum err wait_until_ready(struct swarm *h, struct errmsg *em)
{
	struct coord_status st = {.members_cap = 0};
	int32_t n_ready = 0;
	while (n_ready < h->s->swarm.n_chains) {
		if (sim_world_now_ns(h->w) >= READY_NS)
			return errmsg_fail(em, ERR_TIMEOUT, "%d of %d chains were ready after %lld s: %.200s", n_ready, h->s->swarm.n_chains,
				(long long)(READY_NS / SLICE_NS), st.waiting_for);
		if (!sim_world_run(h->w, sim_world_now_ns(h->w) + SLICE_NS))
			return sim_world_tell_failure(h->w, em);
		sim_world_status(h->w, &st);
		n_ready = 0;
		for (int32_t i = 0; i < st.n_chains; i++)
			n_ready += st.chains[i].ready;
	}
	h->begin_ns = sim_world_now_ns(h->w);
	h->r->ready_s = (double)h->begin_ns / 1e9;
	return OK;
}

// ---- what happens

static void plan_requests(struct swarm *h)
{
	const struct scenario_swarm *t = &h->s->swarm;
	struct rng r;
	rng_init(&r, sim_mix(h->s->seed, SEED_TRAFFIC));
	int64_t at_ns = h->begin_ns, end_ns = h->begin_ns + quantity_ns(h->s->duration_s);
	int32_t max = n_requests_max(h->s);
	while (h->r->n_requests < max && (at_ns += exponential_ns(&r, t->every_s)) < end_ns) {
		struct sim_request q = {.at_ns = at_ns, .n_prompt = t->n_prompt, .n_predict = t->n_predict, .sampling = {.top_p = 1}};
		(void)sim_world_submit(h->w, &q);
		h->r->n_requests++;
	}
}

static void plan_stays(struct swarm *h)
{
	rng_init(&h->rng_stay, sim_mix(h->s->seed, SEED_STAY));
	for (int32_t i = 1; i < h->n_machines; i++)
		h->volunteers[i].next_ns = h->s->swarm.stay_s > 0 ? h->begin_ns + exponential_ns(&h->rng_stay, h->s->swarm.stay_s) : INT64_MAX;
}

// come_or_go does what a volunteer does next, and draws when it does the next thing.
static void come_or_go(struct swarm *h, int32_t i)
{
	struct volunteer *v = &h->volunteers[i];
	v->is_away = !v->is_away;
	v->next_ns += exponential_ns(&h->rng_stay, v->is_away ? h->s->swarm.away_s : h->s->swarm.stay_s);
	bool is_orderly = (double)rng_below(&h->rng_stay, 1000000) < h->s->swarm.orderly * 1e6;
	if (!v->is_away) {
		h->r->n_returned++;
		sim_world_start(h->w, i);
		return;
	}
	h->r->n_left++;
	h->r->n_left_orderly += is_orderly;
	if (is_orderly)
		sim_world_leave(h->w, i);
	else
		sim_world_crash(h->w, i, true);
}

static void sample(struct swarm *h)
{
	struct coord_status st = {.members_cap = 0};
	sim_world_status(h->w, &st);
	for (int32_t i = 0; i < st.n_chains; i++) {
		h->r->chains[i].n_active += st.chains[i].n_active;
		h->r->chains[i].ready += st.chains[i].ready;
	}
	h->r->n_recovered = st.n_recovered;
	h->r->n_moved = st.n_moved;
	h->n_slices++;
}

static int32_t first_volunteer(const struct swarm *h)
{
	int32_t first = 1;
	for (int32_t i = 2; i < h->n_machines; i++)
		if (h->volunteers[i].next_ns < h->volunteers[first].next_ns)
			first = i;
	return first;
}

static enum err run(struct swarm *h, struct errmsg *em)
{
	int64_t end_ns = h->begin_ns + quantity_ns(h->s->duration_s), slice_ns = h->begin_ns + SLICE_NS;
	int32_t next = first_volunteer(h);
	while (sim_world_now_ns(h->w) < end_ns) {
		int64_t at_ns = h->volunteers[next].next_ns < slice_ns ? h->volunteers[next].next_ns : slice_ns;
		if (!sim_world_run(h->w, at_ns))
			return sim_world_tell_failure(h->w, em);
		if (at_ns == slice_ns) {
			sample(h);
			slice_ns += SLICE_NS;
		} else {
			come_or_go(h, next);
			next = first_volunteer(h);
		}
	}
	return OK;
}

// ---- what came of it

static struct report_quantiles quantiles(double *v, int32_t n)
{
	return n > 0 ? report_quantiles_of(v, (size_t)n) : (struct report_quantiles){0};
}

static void note_open(struct swarm *h, const struct sim_request_view *q)
{
	double age_s = q->state == SIM_REQ_OPEN ? (double)(sim_world_now_ns(h->w) - q->submit_ns) / 1e9 : 0;
	h->r->n_open++;
	h->r->oldest_open_s = age_s > h->r->oldest_open_s ? age_s : h->r->oldest_open_s;
}

static enum err summarize(struct swarm *h, struct errmsg *em)
{
	struct swarm_result *r = h->r;
	size_t n = (size_t)r->n_requests + 1;
	int32_t n_tpot = 0;
	double *v = malloc(4 * n * sizeof *v), *ttft = v, *tpot = v + n, *gap = v + 2 * n, *e2e = v + 3 * n;
	if (v == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the figures of %d requests", r->n_requests);
	for (int32_t i = 0; i < r->n_requests; i++) {
		struct sim_request_view q;
		sim_world_request(h->w, i, &q);
		bool is_well = q.state == SIM_REQ_ENDED && q.end != COORD_END_ERROR;
		r->n_failed += q.state == SIM_REQ_ENDED && q.end == COORD_END_ERROR;
		if (q.state == SIM_REQ_OPEN || q.state == SIM_REQ_PLANNED)
			note_open(h, &q);
		if (!is_well)
			continue;
		ttft[r->n_answered] = (double)(q.first_ns - q.submit_ns) / 1e9;
		e2e[r->n_answered] = (double)(q.last_ns - q.submit_ns) / 1e9;
		gap[r->n_answered++] = (double)h->watches[i].longest_ns / 1e9;
		if (q.n_tokens > 1)
			tpot[n_tpot++] = (double)(q.last_ns - q.first_ns) / 1e9 / (q.n_tokens - 1);
	}
	r->ttft = quantiles(ttft, r->n_answered);
	r->e2e = quantiles(e2e, r->n_answered);
	r->longest_gap = quantiles(gap, r->n_answered);
	r->tpot = quantiles(tpot, n_tpot);
	free(v);
	for (int32_t i = 0; i < r->n_chains && h->n_slices > 0; i++) {
		r->chains[i].n_active /= (double)h->n_slices;
		r->chains[i].ready /= (double)h->n_slices;
	}
	r->counts = sim_world_counts(h->w);
	r->history = sim_world_history(h->w);
	return OK;
}

enum err swarm_run(const struct scenario *s, struct swarm_result *out, struct errmsg *em)
{
	ASSERT(s->swarm.n_chains > 0);
	struct swarm h = {.s = s, .r = out, .n_machines = s->swarm.n_members + 1};
	*out = (struct swarm_result){.n_chains = s->swarm.n_chains};
	enum err e = allocate(&h, em);
	if (e == OK) {
		draw_members(&h);
		e = place(&h, em);
	}
	if (e == OK)
		e = scenario_swarm_network(s, h.devices, h.n_machines, &h.arena, &h.network, em);
	if (e == OK)
		e = open_world(&h, em);
	if (e == OK)
		e = wait_until_ready(&h, em);
	if (e == OK) {
		plan_requests(&h);
		plan_stays(&h);
		e = run(&h, em);
	}
	if (e == OK)
		e = summarize(&h, em);
	sim_world_close(h.w);
	arena_close(&h.arena);
	return e;
}
