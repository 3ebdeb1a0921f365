#include "sim/trial.h"

#include "base/arena.h"
#include "sim/sim_mix.h"
#include "sim/transfer.h"
#include "sim/trial_scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define S (1000 * MS)
#define FAULTS_FROM_NS (1 * S)
#define FAULTS_UNTIL_NS (30 * S)
#define HEAL_NS (50 * S)        // every fault is over by itself
#define CALM_NS (45 * S)        // after it silence has been noticed, and the longest back-off (30 s) has passed
#define DIAL_NS (5 * S)         // and a plan that is under way then is ready after this and the loading
#define SERVE_NS (200 * S)      // what is open then must end: session_wait is 150 s
#define PROBES 3
#define PROBES_NS (120 * S)     // for the last requests
#define QUIET_NS (30 * S)
#define EVENTS_MAX 20000000
#define SCENARIO_PATIENCE 5

enum sub_seed { SEED_SHAPE = 101, SEED_NETWORK, SEED_FAULTS, SEED_WORK, SEED_HEAL, SEED_CHAINS = 201, SEED_FETCHERS, SEED_GROUPS };

struct trial {
	const struct trial_params *p;
	struct trial_result *r;
	struct arena arena;
	struct network network;
	struct sim_config config;
	struct sim_machine machines[SIM_MACHINES_MAX];
	int32_t devices[SIM_MACHINES_MAX]; // of a scenario's machines
	int32_t n_strangers;
	struct placed_stage stages[CHAINS_MAX][SIM_MACHINES_MAX];
	struct placed_member placed[SIM_MACHINES_MAX], grouped[SIM_MACHINES_MAX];
	struct placed_chain chains[CHAINS_MAX];
	struct sim_fault_plan faults;
	struct sim_world *w;
	uint32_t n_plans, n_losses; // when all was healed and calm
};

static int64_t between(struct rng *r, int64_t from, int64_t until)
{
	return from + (int64_t)rng_below(r, (uint64_t)(until - from));
}

// ---- the world

static void draw_machine(struct rng *r, struct sim_machine *m, int32_t i)
{
	int64_t slow = between(r, 1, 5);
	snprintf(m->name, sizeof m->name, "m%d", i);
	m->speed = (struct sim_speed){
		.visit_ns = between(r, 50, 2000) * 1000,
		.layer_ns = slow * between(r, 100, 4000) * 1000,
		.token_layer_ns = slow * between(r, 10, 300) * 1000,
		.head_ns = between(r, 100, 3000) * 1000,
		.load_layer_ns = between(r, 1, 200) * MS,
		.store_ns = between(r, 100, 30000) * 1000,
	};
}

static void draw_cluster(struct trial *t, struct rng *r)
{
	struct sim_config *c = &t->config;
	int32_t n_nodes = (int32_t)between(r, 2, 6);
	t->n_strangers = (int32_t)between(r, 0, 3);
	c->n_machines = 1 + n_nodes + t->n_strangers;
	c->has_local_node = rng_below(r, 2) == 0;
	for (int32_t i = 0; i < c->n_machines; i++) {
		draw_machine(r, &t->machines[i], i);
		t->machines[i].is_enrolled = i <= n_nodes;
	}
	c->machines = t->machines;
	c->model = (struct sim_model_config){.n_layers = (int32_t)between(r, 2, 17), .hidden_dim = 2, .vocab_size = (int32_t)between(r, 20, 200)};
	c->wire = WIRE_F32;
	c->n_slots = (int32_t)between(r, 1, 5);
	c->ctx_len = (int32_t)between(r, 24, 97);
	c->chunk_max = (int32_t)between(r, 1, 13);
	c->hop_credits = (int32_t)between(r, 1, 9);
	c->n_nodes_min = (int32_t)between(r, 1, n_nodes + 1);
}

// place gives each chain one machine of those that are members, then others at random; some stand by.
static void place(struct trial *t, struct rng *r, int32_t n_members)
{
	struct sim_config *c = &t->config;
	int32_t first = c->has_local_node ? 0 : 1;
	for (int32_t k = 0; k < n_members; k++) {
		int32_t chain = k < c->n_chains ? k : (int32_t)rng_below(r, (uint64_t)c->n_chains + 1);
		if (chain == c->n_chains || t->chains[chain].n_stages == c->model.n_layers)
			continue;
		struct placed_member *m = &t->placed[k];
		m->share = 1;
		memcpy(m->name, t->machines[first + k].name, sizeof m->name);
		t->stages[chain][t->chains[chain].n_stages++] = (struct placed_stage){.n_layers = 1, .n_members = 1, .members = m};
	}
	for (int32_t i = 0; i < c->n_chains; i++) {
		t->chains[i].stages = t->stages[i];
		for (int32_t n = t->chains[i].n_stages; n < c->model.n_layers; n++)
			t->stages[i][rng_below(r, (uint64_t)t->chains[i].n_stages)].n_layers++;
	}
	c->placement = t->chains;
}

// draw_chains makes two or three rings of some clusters, dealt by the coordinator or placed. Its numbers come from a seed of its own.
static void draw_chains(struct trial *t)
{
	struct sim_config *c = &t->config;
	struct rng r;
	rng_init(&r, sim_mix(t->p->seed, SEED_CHAINS));
	int32_t n_members = c->n_machines - 1 - t->n_strangers + c->has_local_node;
	int32_t n = 2 + (int32_t)rng_below(&r, 2);
	if (rng_below(&r, 5) != 0 || t->p->scenario != NULL)
		return;
	c->n_chains = n < n_members ? n : n_members;
	if (c->n_nodes_min < c->n_chains) // so that enough are left to deal to after the last fault
		c->n_nodes_min = c->n_chains < n_members - c->has_local_node ? c->n_chains : n_members - c->has_local_node;
	if (rng_below(&r, 2) == 0)
		place(t, &r, n_members);
	t->r->n_chains = c->n_chains;
}

// draw_shares: from one part to a few, and sometimes none.
static void draw_shares(struct placed_stage *st, struct placed_member *m, struct rng *r)
{
	uint32_t sum = 0;
	for (int32_t i = 0; i < st->n_members; i++)
		sum += m[i].share = (uint32_t)rng_below(r, 5);
	m[0].share += sum == 0;
}

// group lets stages of a chain that follow each other be one, whose machines share all their layers. Returns how many it makes.
static int32_t group(struct trial *t, struct rng *r, int32_t chain, int32_t *n_used)
{
	struct placed_stage merged[SIM_MACHINES_MAX];
	struct placed_chain *ch = &t->chains[chain];
	int32_t n = 0, n_groups = 0;
	for (int32_t i = 0; i < ch->n_stages;) {
		struct placed_member *m = &t->grouped[*n_used];
		struct placed_stage st = {.members = m};
		do {
			m[st.n_members++] = ch->stages[i].members[0];
			st.n_layers += ch->stages[i++].n_layers;
		} while (i < ch->n_stages && rng_below(r, 4) != 0);
		*n_used += st.n_members;
		if (st.n_members > 1)
			draw_shares(&st, m, r);
		n_groups += st.n_members > 1;
		merged[n++] = st;
	}
	memcpy(t->stages[chain], merged, (size_t)n * sizeof merged[0]);
	ch->n_stages = n;
	return n_groups;
}

// draw_groups: in a quarter of the worlds machines share layers, as a placement says. A seed of its own, likewise.
static void draw_groups(struct trial *t)
{
	struct sim_config *c = &t->config;
	struct rng r;
	int32_t n_used = 0, n_members = c->n_machines - 1 - t->n_strangers + c->has_local_node;
	rng_init(&r, sim_mix(t->p->seed, SEED_GROUPS));
	if (t->p->scenario != NULL || t->p->model != NULL || rng_below(&r, 4) != 0)
		return;
	if (c->placement == NULL) {
		c->n_chains = c->n_chains > 0 ? c->n_chains : 1;
		place(t, &r, n_members);
	}
	for (int32_t i = 0; i < c->n_chains; i++)
		t->r->n_groups += group(t, &r, i, &n_used);
	c->model.is_shared = t->r->n_groups > 0;
	c->group_mode = (enum split_mode)rng_below(&r, N_SPLIT_MODES);
}

// draw_planned_groups: in half of the worlds with plans by cost these may have groups.
static void draw_planned_groups(struct trial *t)
{
	struct sim_config *c = &t->config;
	if (!c->by_cost || t->p->model != NULL || sim_mix(t->p->seed, 80) % 2 == 0)
		return;
	c->may_group = c->model.is_shared = t->r->may_group = true;
}

// draw_fetchers: in a third of the worlds some machines have no model file. A seed of its own, so that the other draws stay what they are.
static void draw_fetchers(struct trial *t)
{
	struct rng r;
	rng_init(&r, sim_mix(t->p->seed, SEED_FETCHERS));
	if (t->p->scenario != NULL || rng_below(&r, 3) != 0)
		return;
	int64_t layer_ns = between(&r, 10, 3000) * MS;
	for (int32_t i = 1; i < t->config.n_machines; i++)
		if (rng_below(&r, 4) != 0)
			t->machines[i].fetch_layer_ns = layer_ns + between(&r, 0, 100) * MS;
}

static void draw_shape(struct trial *t)
{
	struct sim_config *c = &t->config;
	struct rng r;
	rng_init(&r, sim_mix(t->p->seed, SEED_SHAPE));
	if (t->p->scenario != NULL)
		trial_scenario(t->p->scenario, c, t->machines, t->devices);
	else
		draw_cluster(t, &r);
	draw_chains(t);
	draw_groups(t);
	draw_fetchers(t);
	c->has_stop = rng_below(&r, 2) == 0;
	c->stall_ns = t->p->scenario != NULL ? 0 : 60 * S; // the program's own: prefilling a large model takes a real home's slowest machine minutes
	c->keep_bytes = rng_below(&r, 4) == 0 ? rng_below(&r, 65536) : 1 << 24;
	uint64_t draw = sim_mix(t->p->seed, 78); // apart: the other draws stay what they are
	if (draw % 3 == 0) {
		c->keep_bytes = (draw >> 8) % 512;
		c->keep_disk_bytes = UINT64_C(256) << (draw >> 20) % 12;
	}
	c->link_age_ns = rng_below(&r, 3) == 0 ? between(&r, 10, 40) * S : 0;
	c->encrypt = sim_mix(t->p->seed, 77) % 20 == 0;
	uint64_t rounds = sim_mix(t->p->seed, 78); // a third of the clusters is a piped ring
	c->n_rounds = t->p->scenario == NULL && rounds % 3 == 0 ? (int32_t)(2 + rounds / 3 % 5) : 1;
	c->by_cost = t->p->scenario == NULL && c->placement == NULL && sim_mix(t->p->seed, 79) % 3 == 0;
	t->r->by_cost = c->by_cost;
	draw_planned_groups(t);
	c->has_output = t->p->scenario == NULL && t->p->model == NULL && c->n_rounds == 1 && !c->by_cost && sim_mix(t->p->seed, 80) % 3 == 0;
	if (t->p->model != NULL)
		c->model = *t->p->model;
	c->seed = t->p->seed;
	c->network = &t->network;
	c->check_each = true;
	c->recovery = t->p->recovery;
	c->journal = t->p->recovery && rng_below(&r, 4) > 0;
	c->events_max = EVENTS_MAX;
	c->observer = t->p->observer;
}

// draw_station: a wire, or one of the homes' radios.
static enum err draw_station(struct trial *t, struct rng *r, int32_t machine, bool is_wired, struct errmsg *em)
{
	static const char *const names[] = {"W1", "W1", "W2", "W3", "W4", "W6"};
	struct network_station_params p = {.access_point = NETWORK_WIRED, .up_bps = 1000000000, .down_bps = 1000000000};
	const char *name = names[rng_below(r, ARRAY_LEN(names))];
	if (!is_wired)
		p = (struct network_station_params){.access_point = 0, .delay = {.kind = NETWORK_DELAY_PROFILE, .profile = profile_find(name)},
			.air_bps = (uint64_t)between(r, 20, 300) * 1000000};
	return network_station(&t->network, machine, &p, em);
}

static enum err draw_network(struct trial *t, struct errmsg *em)
{
	struct rng r;
	rng_init(&r, sim_mix(t->p->seed, SEED_NETWORK));
	int32_t n = t->config.n_machines;
	if (t->p->scenario != NULL)
		return trial_scenario_network(t->p->scenario, rng_u64(&r), t->devices, n, &t->arena, &t->network, em);
	struct network_limits limits = {.machines_max = n, .access_points_max = 1, .links_max = n * n, .flows_max = 512};
	enum err e = arena_open(network_arena_bytes(&limits), &t->arena);
	if (e == OK)
		e = network_init(&t->network, &t->arena, &limits, rng_u64(&r));
	struct network_link_params link = {.base_ns = between(&r, 50, 3000) * 1000, .loss = rng_below(&r, 4) == 0 ? 0.01 : 0};
	if (e == OK)
		e = network_default_link(&t->network, &link, em);
	bool is_wired_home = rng_below(&r, 2) == 0;
	for (int32_t i = 0; i < n && e == OK; i++)
		e = draw_station(t, &r, i, is_wired_home || i == 0, em);
	return e;
}

static void draw_faults(struct trial *t)
{
	struct rng r;
	rng_init(&r, sim_mix(t->p->seed, SEED_FAULTS));
	struct fault_params k = {.seed = rng_u64(&r), .classes = t->p->classes, .from_ns = FAULTS_FROM_NS, .until_ns = FAULTS_UNTIL_NS,
		.n_machines = t->config.n_machines, .n_strangers = t->n_strangers, .n_faults = (int32_t)between(&r, 2, 9)};
	faults_draw(&t->faults, &k);
	int32_t n = 0;
	for (int32_t i = 0; i < t->faults.n; i++)
		if (t->faults.at[i].at_ns >= t->p->from_ns && t->faults.at[i].at_ns < t->p->until_ns)
			t->faults.at[n++] = t->faults.at[i];
	t->faults.n = n;
}

static struct sim_request draw_request(struct trial *t, struct rng *r)
{
	struct sim_request q = {.n_prompt = (int32_t)between(r, 1, t->config.ctx_len - 1), .n_predict = (int32_t)between(r, 1, 60),
		.hash_logits = rng_below(r, 3) == 0};
	if (q.n_prompt > 12 && rng_below(r, 2) == 0)
		q.n_prompt = (int32_t)between(r, 1, 12);
	if (rng_below(r, 2) == 0)
		q.sampling = (struct sampling){.temperature = 0.8f, .seed = rng_u64(r)};
	q.sampling.top_p = 1;
	if (t->p->scenario != NULL || t->r->n_groups > 0 || t->r->may_group) { // large models take their time, and so do four exchanges a layer on Wi-Fi
		q.n_prompt = q.n_prompt % 24 + 1;
		q.n_predict = q.n_predict % 16 + 1;
	}
	return q;
}

static void draw_work(struct trial *t)
{
	struct rng r;
	rng_init(&r, sim_mix(t->p->seed, SEED_WORK));
	int32_t n = (int32_t)between(&r, 4, 15);
	for (int32_t i = 0; i < n; i++) {
		struct sim_request q = draw_request(t, &r);
		q.at_ns = between(&r, 0, 32 * S);
		if (rng_below(&r, 10) == 0)
			q.cancel_ns = between(&r, 1, 4000) * MS;
		if (rng_below(&r, 40) == 0)
			q.n_prompt = t->config.ctx_len; // too long: a clear error
		sim_world_submit(t->w, &q);
	}
}

// ---- phase one

// next_action finds the earliest beginning or end of a fault after the ones already done.
static int32_t next_action(const struct trial *t, const bool begun[], const bool ended[], bool *is_end)
{
	int32_t best = -1;
	int64_t best_ns = INT64_MAX;
	for (int32_t i = 0; i < t->faults.n; i++) {
		const struct sim_fault *f = &t->faults.at[i];
		if (!begun[i] && f->at_ns < best_ns) {
			best = i;
			best_ns = f->at_ns;
			*is_end = false;
		}
		if (begun[i] && !ended[i] && f->at_ns + f->for_ns < best_ns) {
			best = i;
			best_ns = f->at_ns + f->for_ns;
			*is_end = true;
		}
	}
	return best;
}

static void phase_one(struct trial *t)
{
	bool begun[SIM_FAULTS_MAX] = {false}, ended[SIM_FAULTS_MAX] = {false}, is_end;
	for (int32_t i; (i = next_action(t, begun, ended, &is_end)) >= 0;) {
		const struct sim_fault *f = &t->faults.at[i];
		if (!sim_world_run(t->w, is_end ? f->at_ns + f->for_ns : f->at_ns))
			return;
		if (is_end) {
			ended[i] = true;
			fault_end(f, t->w, &t->network);
			continue;
		}
		begun[i] = true;
		t->r->drawn[f->kind]++;
		t->r->done[f->kind] += fault_begin(f, t->w, &t->network);
	}
	(void)sim_world_run(t->w, HEAL_NS);
}

// ---- phase two

// heal brings everything back but some machines that stay away for good, as long as enough are left. Returns whether enough are.
static bool heal(struct trial *t)
{
	struct rng r;
	rng_init(&r, sim_mix(t->p->seed, SEED_HEAL));
	sim_world_restore_disk(t->w, 0);
	sim_world_start(t->w, 0);
	int32_t n_good = 0;
	for (int32_t i = 1; i < t->config.n_machines; i++)
		n_good += sim_world_is_member(t->w, i);
	int32_t n_needed = t->config.n_nodes_min;
	for (int32_t i = 1; i < t->config.n_machines; i++) {
		bool is_member = sim_world_is_member(t->w, i), may_stay_away = n_good > n_needed && rng_below(&r, 4) == 0;
		sim_world_restore_disk(t->w, i);
		if (!is_member || !may_stay_away) {
			sim_world_start(t->w, i);
			continue;
		}
		n_good--;
		if (sim_world_is_up(t->w, i))
			sim_world_crash(t->w, i, rng_below(&r, 2) == 0);
	}
	return n_good >= n_needed;
}

static bool is_ready(struct trial *t)
{
	struct coord_status *st = calloc(1, sizeof *st);
	if (st == NULL)
		return false;
	sim_world_status(t->w, st);
	bool ready = st->ready;
	free(st);
	return ready;
}

// wait_for_ends runs until no request is open; what is open after `within_ns` hangs.
static bool wait_for_ends(struct trial *t, int64_t within_ns, const char *what)
{
	if (t->p->scenario != NULL || t->r->n_groups > 0 || t->r->may_group)
		within_ns *= SCENARIO_PATIENCE;
	int64_t end_ns = sim_world_now_ns(t->w) + within_ns;
	while (sim_world_n_open(t->w) > 0 && sim_world_now_ns(t->w) < end_ns)
		if (!sim_world_run(t->w, sim_world_now_ns(t->w) + S))
			return false;
	if (sim_world_n_open(t->w) == 0)
		return true;
	struct coord_status *st = calloc(1, sizeof *st);
	if (st != NULL) {
		sim_world_status(t->w, st);
		sim_world_fail(t->w, "%d requests are still open %lld s after %s (%s%s, %d active, %d waiting)", sim_world_n_open(t->w), (long long)(within_ns / S), what,
			st->ready ? "ready" : "not ready: ", st->waiting_for, st->n_active, st->n_waiting);
	}
	free(st);
	return false;
}

// load_ns: how long the slowest machine takes for all layers.
static int64_t load_ns(const struct trial *t)
{
	int64_t worst = 0;
	for (int32_t i = 0; i < t->config.n_machines; i++) {
		int64_t each = t->machines[i].speed.load_layer_ns + t->machines[i].fetch_layer_ns;
		worst = each > worst ? each : worst;
	}
	return worst * t->config.model.n_layers;
}

// wait_until_ready: the end of the last answer may just have made a better plan, which is being loaded. It may take what loading takes.
static bool wait_until_ready(struct trial *t)
{
	int64_t end_ns = sim_world_now_ns(t->w) + DIAL_NS + load_ns(t);
	while (!is_ready(t)) {
		if (sim_world_now_ns(t->w) >= end_ns) {
			sim_world_fail(t->w, "the healed cluster is not ready %lld s after the last fault", (long long)((CALM_NS + DIAL_NS + load_ns(t)) / S));
			return false;
		}
		if (!sim_world_run(t->w, sim_world_now_ns(t->w) + S))
			return false;
	}
	struct sim_counts k = sim_world_counts(t->w);
	t->n_plans = k.n_plans;
	t->n_losses = k.n_node_losses;
	return true;
}

// expect_few_plans: with nobody lost any more a plan is made for each machine that has settled, and a better one than a repaired. A cluster that
// plans again and again is ready at most moments, and serves nobody well.
static void expect_few_plans(struct trial *t)
{
	struct sim_counts k = sim_world_counts(t->w);
	uint32_t n = k.n_plans - t->n_plans, most = (uint32_t)t->config.n_machines + 1;
	if (k.n_node_losses == t->n_losses && n > most)
		sim_world_fail(t->w, "%u plans for a healed cluster of %d machines that lost nobody", n, t->config.n_machines);
}

static void wait_for_rest(struct trial *t)
{
	int64_t end_ns = sim_world_now_ns(t->w) + QUIET_NS;
	do {
		if (!sim_world_run(t->w, sim_world_now_ns(t->w) + S))
			return;
	} while (!sim_world_is_quiet(t->w) && sim_world_now_ns(t->w) < end_ns);
	if (!sim_world_is_quiet(t->w))
		sim_world_fail(t->w, "frames or work are under way %lld s after the last request", (long long)(QUIET_NS / S));
	sim_world_expect_rest(t->w);
}

static void phase_two(struct trial *t)
{
	bool can_serve = heal(t);
	if (!sim_world_run(t->w, sim_world_now_ns(t->w) + CALM_NS))
		return;
	if (can_serve && !wait_until_ready(t))
		return;
	if (!wait_for_ends(t, SERVE_NS, "healing"))
		return;
	struct rng r;
	rng_init(&r, sim_mix(t->p->seed, SEED_HEAL + 1));
	for (int i = 0; can_serve && i < PROBES; i++) {
		struct sim_request q = draw_request(t, &r);
		q.at_ns = sim_world_now_ns(t->w) + between(&r, 0, 2000) * MS;
		q.must_succeed = true;
		sim_world_submit(t->w, &q);
	}
	if (!wait_for_ends(t, PROBES_NS, "the last fault"))
		return;
	wait_for_rest(t);
	if (can_serve)
		expect_few_plans(t);
}

// ---- the whole

static void report(struct trial *t)
{
	struct trial_result *r = t->r;
	const char *failure = sim_world_failure(t->w);
	r->failed = failure != NULL;
	snprintf(r->failure, sizeof r->failure, "%s", failure != NULL ? failure : "");
	r->end_ns = r->failed_ns = sim_world_now_ns(t->w);
	r->history = sim_world_history(t->w);
	r->encrypted = t->config.encrypt;
	r->n_requests = sim_world_n_requests(t->w);
	r->counts = sim_world_counts(t->w);
}

// run_transfer: the seed's other world, in which blocks of a model travel. A scenario's seeds are about its machines alone.
static enum err run_transfer(struct trial *t, struct errmsg *em)
{
	struct transfer_result r;
	if (t->p->scenario != NULL || t->r->failed)
		return OK;
	enum err e = transfer_run(t->p->seed, &r);
	if (e != OK)
		return errmsg_fail(em, e, "no simulated transfer of blocks");
	t->r->history = sim_mix(t->r->history, r.history);
	if (!r.failed)
		return OK;
	t->r->failed = true;
	t->r->failed_ns = r.failed_ns;
	snprintf(t->r->failure, sizeof t->r->failure, "blocks: %s", r.failure);
	return OK;
}

enum err trial_run(const struct trial_params *p, struct trial_result *r, struct errmsg *em)
{
	struct trial *t = calloc(1, sizeof *t);
	if (t == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a simulated world");
	*r = (struct trial_result){0};
	t->p = p;
	t->r = r;
	draw_shape(t);
	enum err e = draw_network(t, em);
	if (e == OK)
		e = sim_world_open(&t->config, &t->w, em);
	if (e == OK) {
		draw_faults(t);
		draw_work(t);
		phase_one(t);
		if (sim_world_failure(t->w) == NULL)
			phase_two(t);
		report(t);
		e = run_transfer(t, em);
	}
	sim_world_close(t->w);
	arena_close(&t->arena);
	free(t);
	return e;
}
