#include "sim/world_state.h"

#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define AT_ONE_TIME_MAX 100000 // events without time passing: something calls itself

// ---- telling

void sim_world_fail(struct sim_world *w, const char *fmt, ...)
{
	if (w->has_failed)
		return; // the first one says most
	w->has_failed = true;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(w->failure, sizeof w->failure, fmt, ap);
	va_end(ap);
}

void sim_tell(struct sim_world *w, const struct sim_record *r)
{
	if (w->config.observer.on != NULL)
		w->config.observer.on(w->config.observer.ctx, r);
}

void sim_log(struct sim_world *w, int32_t party, const char *text)
{
	struct sim_record r = {.type = SIM_REC_LOG, .begin_ns = w->now_ns, .end_ns = w->now_ns, .machine = sim_machine_of(party),
		.is_head = party == SIM_HEAD, .text = text};
	sim_tell(w, &r);
}

void sim_world_mark_fault(struct sim_world *w, int32_t machine, const char *text)
{
	struct sim_record r = {.type = SIM_REC_FAULT, .begin_ns = w->now_ns, .end_ns = w->now_ns, .machine = machine, .text = text};
	w->had_fault = true;
	sim_note(w, sim_mix_bytes(3, text, strlen(text)), (uint64_t)(uint32_t)machine);
	sim_tell(w, &r);
}

// ---- events

struct sim_event *sim_at(struct sim_world *w, int64_t at_ns, enum sim_event_type type, int32_t who)
{
	uint32_t p = event_queue_push(&w->queue, at_ns > w->now_ns ? at_ns : w->now_ns);
	if (p == EVENT_NONE) {
		sim_world_fail(w, "more than %u events wait", w->events_cap);
		p = w->events_cap; // a place of its own, never popped
	}
	w->events[p] = (struct sim_event){.type = type, .who = who, .life = w->hosts[sim_machine_of(who)].life, .stamp = ++w->last_stamp};
	return &w->events[p];
}

struct sim_event *sim_set_timer(struct sim_world *w, int64_t at_ns, enum sim_event_type type, int32_t who, struct sim_timer *t)
{
	struct sim_event *ev = sim_at(w, at_ns, type, who);
	ev->timer = t;
	*t = (struct sim_timer){.place = (uint32_t)(ev - w->events), .stamp = ev->stamp};
	return ev;
}

void sim_cancel(struct sim_world *w, struct sim_timer *t)
{
	if (t->stamp != 0 && t->place < w->events_cap && event_queue_has(&w->queue, t->place) && w->events[t->place].stamp == t->stamp)
		event_queue_cancel(&w->queue, t->place);
	t->stamp = 0;
}

static int64_t part_of(const struct sim_work *work, int64_t ns)
{
	return work->part_den > 0 ? ns * work->part_num / work->part_den : ns;
}

int64_t sim_duration(struct sim_world *w, struct sim_work *work)
{
	const struct sim_speed *s = &w->machines[work->machine].speed;
	int64_t n_layers = work->layer_end - work->layer_begin, ns = 0;
	work->begin_ns = w->now_ns;
	if (w->config.duration_ns != NULL) {
		ns = w->config.duration_ns(w->config.duration_ctx, work);
	} else {
		switch (work->kind) {
		case SIM_EMBED: ns = s->visit_ns; break;
		case SIM_FORWARD: ns = (work->goes_on ? 0 : s->visit_ns) + part_of(work, n_layers * (s->layer_ns + work->n_tokens * s->token_layer_ns)); break;
		case SIM_SAMPLE: ns = s->head_ns + work->n_tokens * s->token_layer_ns; break;
		case SIM_LOAD: ns = n_layers * s->load_layer_ns; break;
		case SIM_STORE: ns = s->store_ns; break;
		}
	}
	ns = ns * w->hosts[work->machine].slow_percent / 100;
	struct sim_record r = {.type = SIM_REC_WORK, .begin_ns = w->now_ns, .end_ns = w->now_ns + ns, .machine = work->machine,
		.is_head = work->kind == SIM_EMBED || work->kind == SIM_SAMPLE, .work = *work, .request = -1};
	sim_tell(w, &r);
	return ns;
}

static bool is_paused(const struct sim_world *w, int32_t machine)
{
	return w->hosts[machine].paused_until_ns > w->now_ns;
}

static void drop_event(struct sim_world *w, struct sim_event *ev)
{
	if (ev->type == EV_PACKET)
		sim_link_on_packet(w, ev); // the kernel of a machine whose process is gone answers it
	free(ev->packet);
	ev->packet = NULL;
}

// carry gives an event to whom it is for.
static void carry(struct sim_world *w, struct sim_event *ev)
{
	if (ev->timer != NULL && ev->timer->stamp != ev->stamp)
		return; // set anew or cancelled while its process stood still
	if (ev->timer != NULL)
		ev->timer->stamp = 0;
	switch (ev->type) {
	case EV_PACKET: sim_link_on_packet(w, ev); break;
	case EV_END_TIMER: sim_link_on_timer(w, ev); break;
	case EV_TELL_END: sim_link_tell_end(w, ev); break;
	case EV_SUBMIT: sim_client_submit(w, ev->arg); break;
	default:
		if (ev->who == SIM_HEAD)
			sim_head_on_event(w, ev);
		else
			sim_node_on_event(w, ev);
		break;
	}
	free(ev->packet);
	ev->packet = NULL;
}

static void defer(struct sim_world *w, const struct sim_event *ev)
{
	if ((uint32_t)w->n_deferred == w->events_cap) {
		sim_world_fail(w, "more than %u events wait for paused machines", w->events_cap);
		free(ev->packet);
		return;
	}
	w->deferred[w->n_deferred++] = *ev;
}

// resume lets a process see, in order, all that came while it stood still.
static void resume(struct sim_world *w, int32_t machine)
{
	w->hosts[machine].paused_until_ns = 0;
	int32_t n = w->n_deferred, n_left = 0, n_now = 0;
	struct sim_event *now = malloc((size_t)(n + 1) * sizeof *now);
	if (now == NULL)
		abort(); // a few hundred KiB: nothing works any more
	for (int32_t i = 0; i < n; i++) {
		if (sim_machine_of(w->deferred[i].who) == machine)
			now[n_now++] = w->deferred[i];
		else
			w->deferred[n_left++] = w->deferred[i];
	}
	w->n_deferred = n_left;
	for (int32_t i = 0; i < n_now; i++) {
		if (now[i].life != w->hosts[machine].life && now[i].type != EV_SUBMIT)
			drop_event(w, &now[i]);
		else
			carry(w, &now[i]);
	}
	free(now);
}

static void dispatch(struct sim_world *w, uint32_t place)
{
	struct sim_event ev = w->events[place];
	int32_t machine = sim_machine_of(ev.who);
	w->counts.n_events++;
	sim_note(w, (uint64_t)w->now_ns, (uint64_t)ev.type << 48 ^ (uint64_t)(uint32_t)ev.who << 32 ^ ev.id);
	if (ev.type == EV_RESUME) {
		if (ev.life == w->hosts[machine].life && !is_paused(w, machine))
			resume(w, machine);
	} else if (ev.type == EV_PACKET) {
		if (is_paused(w, machine) && ev.packet->kind != PK_SYN) // the kernel itself takes the connection
			defer(w, &ev);
		else
			carry(w, &ev);
	} else if (ev.type != EV_SUBMIT && ev.type != EV_END_TIMER && ev.life != w->hosts[machine].life) {
		drop_event(w, &ev);
	} else if (is_paused(w, machine)) {
		defer(w, &ev);
	} else {
		carry(w, &ev);
	}
}

bool sim_world_run(struct sim_world *w, int64_t until_ns)
{
	int64_t at_ns;
	while (!w->has_failed) {
		uint32_t place = event_queue_pop(&w->queue, until_ns, &at_ns);
		if (place == EVENT_NONE)
			break;
		w->n_at_this_time = at_ns == w->now_ns ? w->n_at_this_time + 1 : 0;
		w->now_ns = at_ns;
		dispatch(w, place);
		if (w->n_at_this_time > AT_ONE_TIME_MAX)
			sim_world_fail(w, "%d events without time passing", AT_ONE_TIME_MAX);
		if (w->config.events_max > 0 && w->counts.n_events > w->config.events_max)
			sim_world_fail(w, "more than %llu events: something goes round in circles", (unsigned long long)w->config.events_max);
	}
	if (!w->has_failed && until_ns > w->now_ns)
		w->now_ns = until_ns;
	return !w->has_failed;
}

// ---- opening

static void make_keys(struct sim_world *w, struct lnk1_keypair *k, struct node_id *id)
{
	sim_random(w, k->sk, sizeof k->sk);
	if (w->config.encrypt)
		(void)crypto_scalarmult_base(k->pk, k->sk);
	else
		sim_random(w, k->pk, sizeof k->pk);
	k->pk[31] &= 0x7f;
	lnk1_node_id(k->pk, id->b);
}

static void init_node(struct sim_world *w, int32_t i)
{
	struct sim_node *n = &w->nodes[i];
	*n = (struct sim_node){.exists = i > 0 || w->config.has_local_node, .machine = i};
	memcpy(n->name, w->machines[i].name, sizeof n->name);
	if (i == 0) { // in the coordinator's own process, with its key
		n->keys = w->head.keys;
		n->id = w->head.id;
		return;
	}
	make_keys(w, &n->keys, &n->id);
	if (!w->machines[i].is_enrolled)
		return;
	n->disk.is_member = true;
	sim_random(w, n->disk.psk, KEY_BYTES);
	n->synced = n->disk;
	struct sim_db_image *d = &w->head.db.disk;
	struct member_record *m = &d->members[d->n_members++];
	m->id = n->id;
	memcpy(m->public_key, n->keys.pk, KEY_BYTES);
	memcpy(m->psk, n->disk.psk, KEY_BYTES);
	snprintf(m->name, sizeof m->name, "%s", n->name);
}

static void init_head(struct sim_world *w)
{
	const struct sim_config *c = &w->config;
	struct sim_head *h = &w->head;
	make_keys(w, &h->keys, &h->id);
	struct coordinator_config *k = &h->config;
	k->self = h->id;
	sim_random(w, k->cluster_id, sizeof k->cluster_id);
	k->n_layers = w->model.config.n_layers;
	k->hidden_dim = w->model.config.hidden_dim;
	k->vocab_size = w->model.config.vocab_size;
	k->wire = c->wire;
	k->n_slots = c->n_slots;
	k->ctx_len = c->ctx_len;
	k->chunk_max = c->chunk_max;
	k->hop_credits = c->hop_credits;
	k->n_rounds = c->n_rounds > 0 ? c->n_rounds : 1;
	k->by_cost = c->by_cost;
	k->may_group = c->may_group;
	k->n_split = c->n_split;
	memcpy(k->split, c->split, sizeof k->split);
	memcpy(k->split_streams, c->split_streams, sizeof k->split_streams);
	k->n_nodes_min = c->n_nodes_min;
	k->n_chains = c->n_chains;
	k->limits.nodes_max = c->n_machines > SIM_MACHINES_MAX ? c->n_machines - 1 : 0;
	k->limits.sessions_max = c->sessions_max;
	k->placement = c->placement;
	k->group_mode = c->group_mode;
	k->has_output = c->has_output;
	k->has_local_node = c->has_local_node;
	snprintf(k->local_name, sizeof k->local_name, "%s", w->machines[0].name);
	k->n_stop_ids = c->has_stop;
	k->liveness = c->liveness.dead_after_ns > 0 ? c->liveness : liveness_defaults;
	k->stall_ns = c->stall_ns;
	k->session_wait_ns = c->session_wait_ns > 0 ? c->session_wait_ns : INT64_C(150000000000);
}

static enum err check_config(const struct sim_config *c, struct errmsg *em)
{
	if (c->n_machines < 1 || c->n_machines > SIM_SWARM_MAX)
		return errmsg_fail(em, ERR_RANGE, "%d machines (want 1 to %d)", c->n_machines, SIM_SWARM_MAX);
	if (c->n_slots < 1 || c->n_slots > SESSIONS_MAX || c->hop_credits < 1 || c->hop_credits > HOP_CREDITS_MAX)
		return errmsg_fail(em, ERR_RANGE, "%d slots (want 1 to %d), %d credits (want 1 to %d)", c->n_slots, SESSIONS_MAX, c->hop_credits, HOP_CREDITS_MAX);
	if (c->n_rounds < 0 || c->n_rounds > ROUNDS_MAX)
		return errmsg_fail(em, ERR_RANGE, "%d rounds (want 1 to %d)", c->n_rounds, ROUNDS_MAX);
	if (c->chunk_max < 1 || c->chunk_max > CHUNK_TOKENS_MAX || c->ctx_len < 2 || c->ctx_len > CTX_MAX)
		return errmsg_fail(em, ERR_RANGE, "chunks of %d tokens in a context of %d", c->chunk_max, c->ctx_len);
	return OK;
}

static enum err allocate(struct sim_world *w, struct errmsg *em)
{
	const struct sim_config *c = &w->config;
	struct sim_head *h = &w->head;
	w->events = malloc((w->events_cap + 1) * sizeof *w->events);
	w->deferred = malloc(w->events_cap * sizeof *w->deferred);
	w->conns = calloc(w->conns_cap, sizeof *w->conns);
	w->coord_fx = malloc(coordinator_effects_size(&h->config));
	w->node_fx = malloc(sizeof *w->node_fx);
	w->reqs = calloc((size_t)w->reqs_cap, sizeof *w->reqs);
	h->core = malloc(coordinator_size(&h->config));
	h->tokens = malloc(coordinator_n_tokens(&h->config) * sizeof *h->tokens);
	bool have = w->events && w->deferred && w->conns && w->coord_fx && w->node_fx && w->reqs && h->core && h->tokens;
	for (int32_t i = 0; i < w->n_nodes && have; i++)
		have = (w->nodes[i].core = malloc(node_size())) != NULL;
	h->buf_kept = w->model.row_kept * (size_t)c->chunk_max;
	h->bufs = malloc((size_t)coordinator_n_bufs(&h->config) * h->buf_kept);
	if (!have || h->bufs == NULL || event_queue_open(&w->queue, w->events_cap, sim_mix(c->seed, 1)) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a simulated world");
	coordinator_effects_init(&h->config, w->coord_fx);
	return sim_engine_open(&w->model, &(struct layer_spans){0}, coordinator_n_chains(&h->config) * c->n_slots, &h->engine, em);
}

static uint32_t power_of_two(uint32_t at_least)
{
	uint32_t n = 1;
	while (n < at_least)
		n *= 2;
	return n;
}

// size_world takes what has one of each machine.
static enum err size_world(struct sim_world *w, struct errmsg *em)
{
	uint32_t n = (uint32_t)w->n_nodes;
	bool is_home = w->n_nodes <= SIM_MACHINES_MAX;
	w->events_cap = is_home ? SIM_EVENTS_CAP : SIM_EVENTS_EACH * n;
	w->conns_cap = is_home ? SIM_CONNS_CAP : power_of_two(SIM_CONNS_EACH * n);
	w->reqs_cap = w->config.requests_max > 0 ? w->config.requests_max : SIM_REQUESTS_MAX;
	w->machines = malloc(n * sizeof *w->machines);
	w->hosts = calloc(n, sizeof *w->hosts);
	w->nodes = calloc(n, sizeof *w->nodes);
	if (!w->machines || !w->hosts || !w->nodes) {
		w->n_nodes = w->nodes ? w->n_nodes : 0;
		return errmsg_fail(em, ERR_NOMEM, "no memory for a simulated world");
	}
	memcpy(w->machines, w->config.machines, n * sizeof *w->machines);
	for (uint32_t i = 0; i < n; i++)
		w->n_fetchers += w->machines[i].fetch_layer_ns > 0;
	return OK;
}

enum err sim_world_open(const struct sim_config *c, struct sim_world **out, struct errmsg *em)
{
	enum err e = check_config(c, em);
	if (e != OK)
		return e;
	if (sodium_init() < 0)
		return errmsg_fail(em, ERR_UNSUPPORTED, "libsodium does not start");
	struct sim_world *w = calloc(1, sizeof *w);
	if (w == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a simulated world");
	w->config = *c;
	w->n_nodes = c->n_machines;
	w->history = sim_mix(c->seed, 0);
	rng_init(&w->rng_crypto, sim_mix(c->seed, 2));
	rng_init(&w->rng_fault, sim_mix(c->seed, 4));
	rng_init(&w->rng_plan, sim_mix(c->seed, 5));
	w->last_serial = SIM_FIRST_SERIAL;
	e = size_world(w, em);
	if (e == OK)
		e = sim_model_open(&w->model, &c->model, c->wire, c->ctx_len, c->chunk_max, em);
	if (e == OK) {
		init_head(w);
		for (int32_t i = 0; i < w->n_nodes; i++)
			init_node(w, i);
		w->head.db.synced = w->head.db.disk;
		e = allocate(w, em);
	}
	if (e != OK) {
		sim_world_close(w);
		return e;
	}
	for (int32_t i = 0; i < w->n_nodes; i++) {
		w->hosts[i] = (struct sim_host){.slow_percent = 100};
		sim_world_start(w, i);
	}
	*out = w;
	return OK;
}

static void free_packets(struct sim_world *w)
{
	if (w->queue.heap != NULL && w->events != NULL)
		for (uint32_t i = 0; i < w->queue.n; i++)
			free(w->events[w->queue.heap[i].place].packet);
	for (int32_t i = 0; i < w->n_deferred; i++)
		free(w->deferred[i].packet);
	for (size_t i = 0; w->conns != NULL && i < w->conns_cap; i++) {
		for (int e = 0; e < 2; e++) {
			for (struct sim_packet *p = w->conns[i].end[e].held, *next; p != NULL; p = next) {
				next = p->next;
				free(p);
			}
		}
		sim_shake_deinit(&w->conns[i].shake);
	}
}

void sim_world_close(struct sim_world *w)
{
	if (w == NULL)
		return;
	free_packets(w);
	for (int32_t i = 0; i < w->n_nodes; i++) {
		sim_engine_close(w->nodes[i].engine);
		free(w->nodes[i].bufs);
		free(w->nodes[i].parts);
		sim_kept_stop(&w->nodes[i]);
		free(w->nodes[i].kept_disk.fetched);
		free(w->nodes[i].core);
	}
	for (int32_t i = 0; i < w->n_reqs; i++)
		free(w->reqs[i].tokens);
	sim_engine_close(w->head.engine);
	free(w->head.bufs);
	free(w->head.tokens);
	free(w->head.core);
	sim_nonces_deinit(&w->nonces);
	event_queue_close(&w->queue);
	sim_model_close(&w->model);
	free(w->reqs);
	free(w->node_fx);
	free(w->coord_fx);
	free(w->conns);
	free(w->deferred);
	free(w->events);
	free(w->nodes);
	free(w->hosts);
	free(w->machines);
	free(w);
}

// ---- looking

int64_t sim_world_now_ns(const struct sim_world *w)
{
	return w->now_ns;
}

const char *sim_world_failure(const struct sim_world *w)
{
	return w->has_failed ? w->failure : NULL;
}

enum err sim_world_tell_failure(const struct sim_world *w, struct errmsg *em)
{
	return errmsg_fail(em, ERR_STATE, "the simulated world failed at %.3f s: %.300s", (double)sim_world_now_ns(w) / 1e9, sim_world_failure(w));
}

uint64_t sim_world_history(const struct sim_world *w)
{
	return w->history;
}

struct sim_counts sim_world_counts(const struct sim_world *w)
{
	struct sim_counts counts = w->counts;
	counts.n_moved += w->head.is_running ? coordinator_n_moved(w->head.core) : 0;
	counts.n_better += w->head.is_running ? coordinator_n_better(w->head.core) : 0;
	return counts;
}

bool sim_world_is_up(const struct sim_world *w, int32_t machine)
{
	bool runs = machine == 0 ? w->head.is_running : w->nodes[machine].is_running;
	return runs && !is_paused(w, machine);
}

bool sim_world_is_member(const struct sim_world *w, int32_t machine)
{
	const struct sim_node *n = &w->nodes[machine];
	const struct sim_db_image *d = &w->head.db.disk;
	uint64_t epoch = machine > 0 && n->is_running ? node_member_epoch(n->core).v : n->disk.member_epoch;
	for (int32_t i = 0; i < d->n_members; i++)
		if (node_id_is(d->members[i].id, n->id))
			return n->disk.is_member && !n->was_revoked && memcmp(d->members[i].psk, n->disk.psk, KEY_BYTES) == 0 &&
				d->member_epoch.v >= epoch; // a coordinator that forgot a revocation is refused by who heard of it
	return false;
}

void sim_world_status(const struct sim_world *w, struct coord_status *out)
{
	if (w->head.is_running)
		coordinator_status(w->head.core, out);
	else
		*out = (struct coord_status){.members = out->members, .members_cap = out->members_cap};
}

int32_t sim_world_chain_of(const struct sim_world *w, int32_t request)
{
	return w->head.is_running ? coordinator_chain_of(w->head.core, (uint64_t)request + 1) : -1;
}

int32_t sim_world_n_machines(const struct sim_world *w)
{
	return w->n_nodes;
}

bool sim_world_is_quiet(const struct sim_world *w)
{
	bool is_busy = w->n_data_in_flight > 0 || w->head.embed.is_busy || w->head.sample.is_busy;
	for (int32_t i = 0; i < w->n_nodes; i++)
		is_busy = is_busy || sim_forward_is_busy(&w->nodes[i]);
	return !is_busy;
}

// ---- fate

void sim_world_crash(struct sim_world *w, int32_t machine, bool power)
{
	struct sim_host *h = &w->hosts[machine];
	sim_world_mark_fault(w, machine, power ? "power lost" : "crashed");
	checks_on_loss(w, machine);
	h->life++;
	h->paused_until_ns = 0;
	h->is_on = h->is_on && !power;
	if (machine == 0)
		sim_head_stop(w, power);
	struct sim_node *n = &w->nodes[machine];
	if (n->exists)
		sim_node_stop(w, n);
	sim_link_drop_all(w, machine, power);
	if (machine == 0)
		sim_link_drop_all(w, SIM_HEAD, power);
	resume(w, machine); // what it had not seen while it stood still
	if (power && machine > 0)
		n->disk = n->synced;
}

void sim_world_start(struct sim_world *w, int32_t machine)
{
	w->hosts[machine].is_on = true;
	sim_note(w, 5, (uint64_t)(uint32_t)machine);
	if (w->hosts[machine].disk_damaged)
		return; // it says so and ends
	if (machine == 0 && !w->head.is_running)
		sim_head_start(w);
	else if (machine > 0 && !w->nodes[machine].is_running)
		sim_node_start(w, &w->nodes[machine]);
}

void sim_world_pause(struct sim_world *w, int32_t machine, int64_t until_ns)
{
	struct sim_host *h = &w->hosts[machine];
	if (until_ns <= w->now_ns || until_ns <= h->paused_until_ns)
		return;
	sim_world_mark_fault(w, machine, "paused");
	h->paused_until_ns = until_ns;
	sim_at(w, until_ns, EV_RESUME, machine);
}

void sim_world_slow(struct sim_world *w, int32_t machine, int32_t percent)
{
	if (percent != 100)
		sim_world_mark_fault(w, machine, "slow");
	w->hosts[machine].slow_percent = percent;
}

void sim_world_out_of_memory(struct sim_world *w, int32_t machine, bool is_out)
{
	if (is_out)
		sim_world_mark_fault(w, machine, "out of memory");
	w->hosts[machine].out_of_memory = is_out;
}

void sim_world_step_clock(struct sim_world *w, int64_t by_s)
{
	sim_world_mark_fault(w, 0, "clock step");
	w->head.clock_step_s += by_s;
}

void sim_world_disk(struct sim_world *w, int32_t machine, enum sim_disk_fault fault)
{
	if (fault != SIM_DISK_OK)
		sim_world_mark_fault(w, machine, "disk");
	w->hosts[machine].disk = fault;
	w->lied_sync = w->lied_sync || (machine == 0 && fault == SIM_DISK_LOST_SYNC);
}

void sim_world_flip_disk(struct sim_world *w, int32_t machine)
{
	sim_world_mark_fault(w, machine, "a bit of the disk flipped");
	w->hosts[machine].disk_damaged = true;
}

bool sim_world_flip_kept(struct sim_world *w, int32_t machine, uint64_t draw)
{
	bool done = w->nodes[machine].exists && w->nodes[machine].is_running && sim_kept_flip(&w->nodes[machine], draw);
	if (done)
		sim_world_mark_fault(w, machine, "a bit of a kept state flipped");
	return done;
}

void sim_world_restore_disk(struct sim_world *w, int32_t machine)
{
	w->hosts[machine].disk_damaged = false;
}

void sim_world_tear(struct sim_world *w, int32_t machine)
{
	sim_world_mark_fault(w, machine, "the next write tears");
	w->hosts[machine].tear_next = true;
}

void sim_world_leave(struct sim_world *w, int32_t machine)
{
	struct sim_node *n = &w->nodes[machine];
	struct node_event ev = {.type = NODE_EV_LEAVE};
	if (machine > 0 && n->is_running && !is_paused(w, machine))
		sim_node_step(w, n, &ev);
}
