#include "sim/checks.h"

#include "sim/world_state.h"

#include <stdlib.h>
#include <string.h>

// read_step: step_decode wants the whole frame's length; the payload itself is not looked at.
static bool read_step(const uint8_t *head, size_t head_len, struct step *s)
{
	if (head_len < FRAME_STEP_BYTES || head[0] != FRAME_STEP)
		return false;
	return step_decode(head, FRAME_STEP_BYTES + (size_t)load_u32(head + 40), s) == OK;
}

static bool read_credit(const uint8_t *head, size_t head_len, struct credit *c)
{
	return head_len >= FRAME_CREDIT_BYTES && head[0] == FRAME_CREDIT && credit_decode(head, FRAME_CREDIT_BYTES, c) == OK;
}

// read_part: likewise.
static bool read_part(const uint8_t *head, size_t head_len, struct part *p)
{
	if (head_len < FRAME_PART_BYTES || head[0] != FRAME_PART)
		return false;
	return part_decode(head, FRAME_PART_BYTES + (load_u32(head + 36) > load_u32(head + 32)), p) == OK;
}

static struct sim_ledger *find_ledger(struct sim_world *w, uint64_t epoch)
{
	for (int32_t i = 0; i < CHAINS_MAX; i++)
		if (w->ledgers[i].epoch == epoch)
			return &w->ledgers[i];
	return NULL;
}

static struct sim_hop *hop_to(struct sim_ledger *l, uint16_t span, uint64_t epoch)
{
	if (l == NULL)
		return NULL;
	int32_t h = span == SPAN_HEAD ? l->n_spans : span;
	return epoch == l->epoch && h <= l->n_spans ? &l->hops[h] : NULL;
}

// ---- plans

void checks_on_head_start(struct sim_world *w)
{
	memset(w->ledgers, 0, sizeof w->ledgers);
}

static void check_epoch(struct sim_world *w, uint64_t epoch)
{
	for (uint32_t i = 0; i < w->n_epochs; i++)
		if (w->epochs[i] == epoch)
			sim_world_fail(w, "plan epoch %llu was given twice", (unsigned long long)epoch);
	if (w->n_epochs < SIM_EPOCHS_MAX)
		w->epochs[w->n_epochs++] = epoch;
}

static bool is_here(const struct coord_status *st, struct node_id id)
{
	static const char *const words[] = {"ready", "standby", "fetching"};
	for (int32_t i = 0; i < st->n_members; i++)
		for (size_t k = 0; k < ARRAY_LEN(words) && node_id_is(st->members[i].id, id); k++)
			if (strcmp(st->members[i].state, words[k]) == 0)
				return true;
	return false;
}

// could_go_on: a plan has computed, and none of its machines is gone, leaves or cannot load.
static bool could_go_on(struct sim_world *w, const struct sim_ledger *l)
{
	struct coord_status st = {.members_cap = w->n_nodes + 1};
	bool could = l->n_stages > 0 && l->n_lost == 0 && l->hops[0].steps_sent > 0;
	if (!could || (st.members = calloc((size_t)st.members_cap, sizeof *st.members)) == NULL)
		return false;
	coordinator_status(w->head.core, &st);
	for (int32_t i = 0; i < l->n_machines; i++)
		could = could && is_here(&st, w->nodes[l->machine[i]].id);
	free(st.members);
	return could;
}

static void begin_plan(struct sim_world *w, const struct msg_plan *p)
{
	int32_t chain = coordinator_find_chain(w->head.core, p->epoch);
	check_epoch(w, p->epoch.v);
	if (chain < 0)
		return; // replaced within the step that made it
	if (p->epoch.v < w->ledgers[chain].epoch)
		sim_world_fail(w, "a plan of epoch %llu after one of %llu", (unsigned long long)p->epoch.v, (unsigned long long)w->ledgers[chain].epoch);
	bool is_easy = w->n_fetchers > 0 && could_go_on(w, &w->ledgers[chain]);
	w->ledgers[chain] = (struct sim_ledger){.is_easy = is_easy, .epoch = p->epoch.v, .n_stages = p->n_stages, .n_spans = p->n_stages * p->layers.n,
		.hop_credits = p->hop_credits};
	w->counts.n_plans++;
	w->counts.n_piped += p->layers.n > 1;
	struct sim_record r = {.type = SIM_REC_PLAN, .begin_ns = w->now_ns, .end_ns = w->now_ns, .epoch = p->epoch, .index = p->n_stages};
	sim_tell(w, &r);
}

void checks_on_plan(struct sim_world *w, int32_t machine, const struct msg_plan *p)
{
	if (p->n_stages == 0)
		return; // the running plan, told to one who has no part in it
	if (find_ledger(w, p->epoch.v) == NULL)
		begin_plan(w, p);
	struct sim_ledger *l = find_ledger(w, p->epoch.v);
	if (l == NULL)
		return;
	if (l->n_machines == STAGES_MAX) {
		sim_world_fail(w, "a plan of more than %d machines", STAGES_MAX);
		return;
	}
	l->is_shared[l->n_machines] = p->group.n_members > 0;
	l->machine[l->n_machines++] = machine;
	w->counts.n_shared += p->group.n_members > 0 && p->group.self == 0;
	struct layer_part part = layer_part_of(p->group.n_members, p->group.self, p->group.mode, p->group.shares);
	if (l->is_easy && w->machines[machine].fetch_layer_ns > 0 && sim_node_missing(&w->nodes[machine], &p->layers, &part) > 0)
		sim_world_fail(w, "plan epoch %llu waits for blocks that machine %d does not have, and the plan before it could have gone on",
			(unsigned long long)p->epoch.v, machine);
	for (int32_t i = 0; i < p->layers.n; i++) {
		struct sim_record r = {.type = SIM_REC_STAGE, .begin_ns = w->now_ns, .end_ns = w->now_ns, .machine = machine, .epoch = p->epoch,
			.index = i * p->n_stages + p->stage,
			.work = {.kind = SIM_LOAD, .machine = machine, .layer_begin = p->layers.at[i].begin, .layer_end = p->layers.at[i].end}};
		sim_tell(w, &r);
	}
}

static void note_loss(struct sim_world *w, struct sim_ledger *l, int32_t machine)
{
	for (int32_t i = 0; i < l->n_machines; i++) {
		if (l->machine[i] != machine || l->lost[i])
			continue;
		l->lost[i] = true;
		l->n_lost++;
		w->counts.n_group_losses += l->is_shared[i];
		w->counts.n_node_losses++;
		w->counts.n_double_losses += l->n_lost == 2;
	}
}

void checks_on_loss(struct sim_world *w, int32_t machine)
{
	for (int32_t i = 0; i < CHAINS_MAX; i++)
		note_loss(w, &w->ledgers[i], machine);
}

uint64_t checks_epoch_of(const struct sim_world *w, int32_t machine)
{
	uint64_t epoch = 0;
	for (int32_t i = 0; i < CHAINS_MAX; i++) {
		const struct sim_ledger *l = &w->ledgers[i];
		for (int32_t k = 0; k < l->n_machines; k++)
			if (l->machine[k] == machine && l->epoch > epoch)
				epoch = l->epoch;
	}
	return epoch;
}

// ---- credits

void checks_on_sent(struct sim_world *w, const uint8_t *head, size_t head_len)
{
	struct step s;
	struct credit c;
	struct part p;
	struct sim_ledger *of;
	if (read_part(head, head_len, &p) && (of = find_ledger(w, p.epoch.v)) != NULL)
		of->parts_sent++;
	if (read_step(head, head_len, &s)) {
		struct sim_ledger *l = find_ledger(w, s.epoch.v);
		struct sim_hop *h = hop_to(l, s.dst_span, s.epoch.v);
		if (h != NULL && ++h->steps_sent - h->credits_come > (uint64_t)l->hop_credits)
			sim_world_fail(w, "span %d was sent more steps than it gave credits for", s.dst_span);
	} else if (read_credit(head, head_len, &c)) {
		struct sim_hop *h = hop_to(find_ledger(w, c.epoch.v), c.src_span, c.epoch.v);
		if (h != NULL && (h->credits_sent += c.n) > h->steps_come)
			sim_world_fail(w, "span %d gave more credits than it had steps", c.src_span);
	}
}

void checks_on_come(struct sim_world *w, int32_t party, const uint8_t *head, size_t head_len)
{
	struct step s;
	struct credit c;
	bool is_head = party == SIM_HEAD;
	struct part p;
	struct sim_ledger *of;
	if (!is_head && read_part(head, head_len, &p) && (of = find_ledger(w, p.epoch.v)) != NULL)
		of->parts_come++;
	if (read_step(head, head_len, &s) && (s.dst_span == SPAN_HEAD) == is_head) {
		struct sim_hop *h = hop_to(find_ledger(w, s.epoch.v), s.dst_span, s.epoch.v);
		if (h != NULL)
			h->steps_come++;
	} else if (read_credit(head, head_len, &c) && (c.dst_span == SPAN_HEAD) == is_head) {
		struct sim_hop *h = hop_to(find_ledger(w, c.epoch.v), c.src_span, c.epoch.v);
		if (h != NULL)
			h->credits_come += c.n;
	}
}

void checks_on_stale(struct sim_world *w, int32_t party, uint64_t epoch, const uint8_t *head, size_t head_len, int32_t n_effects)
{
	struct step s;
	struct credit c;
	struct part p;
	uint64_t of;
	if (read_step(head, head_len, &s))
		of = s.epoch.v;
	else if (read_credit(head, head_len, &c))
		of = c.epoch.v;
	else if (read_part(head, head_len, &p))
		of = p.epoch.v;
	else
		return;
	if (of != epoch && n_effects > 0)
		sim_world_fail(w, "a frame of plan epoch %llu had %d effects at %s%.0d, whose epoch is %llu", (unsigned long long)of, n_effects,
			party == SIM_HEAD ? "the head" : "node ", party == SIM_HEAD ? 0 : party, (unsigned long long)epoch);
}

// ---- keys

void checks_on_session(struct sim_world *w, int32_t server, const struct sim_node *client)
{
	if (server == SIM_HEAD && client->was_revoked)
		sim_world_fail(w, "the key of machine %d was revoked and got a session with the coordinator", client->machine);
}

void checks_on_revoke_answered(struct sim_world *w, const struct sim_node *node)
{
	for (uint32_t i = 0; i < w->conns_cap; i++) {
		const struct sim_conn *c = &w->conns[i];
		if (c->serial != 0 && c->end[0].party == node->machine && c->end[1].party == SIM_HEAD && c->end[1].state >= END_UP && c->end[1].state != END_DEAD)
			sim_world_fail(w, "machine %d was revoked, and the coordinator keeps a link with it", node->machine);
	}
}

void checks_on_revoked(struct sim_world *w, int32_t party, struct node_id who)
{
	const struct sim_node *n = &w->nodes[party];
	uint8_t psk[KEY_BYTES];
	for (int32_t i = 0; i < w->n_nodes; i++) {
		const struct sim_node *other = &w->nodes[i];
		if (!other->exists || !node_id_is(other->id, who))
			continue;
		if (node_find_psk(n->core, other->keys.pk, psk))
			sim_world_fail(w, "node %d still takes the revoked key of node %d", party, i);
		for (size_t k = 0; k < ARRAY_LEN(n->links); k++) {
			struct sim_conn *c = sim_conn_find(w, n->links[k]);
			if (c != NULL && sim_link_peer(c, party) == i)
				sim_world_fail(w, "node %d keeps a link with the revoked node %d", party, i);
		}
	}
}

// ---- rest

static void check_hops(struct sim_world *w, const struct sim_ledger *l)
{
	if (l->parts_sent != l->parts_come)
		sim_world_fail(w, "members of groups sent %llu parts, and %llu came", (unsigned long long)l->parts_sent, (unsigned long long)l->parts_come);
	for (int32_t i = 0; i < l->n_machines; i++)
		if (sim_forward_waits(&w->nodes[l->machine[i]], l->epoch))
			sim_world_fail(w, "node %d waits in an exchange at rest", l->machine[i]);
	for (int32_t i = 0; i <= l->n_spans; i++) {
		const struct sim_hop *h = &l->hops[i];
		if (h->steps_sent != h->credits_come)
			sim_world_fail(w, "hop %d of %d: %llu steps sent, %llu come, %llu credits sent, %llu come", i, l->n_spans, (unsigned long long)h->steps_sent,
				(unsigned long long)h->steps_come, (unsigned long long)h->credits_sent, (unsigned long long)h->credits_come);
	}
}

void sim_world_expect_rest(struct sim_world *w)
{
	struct coord_status *st = calloc(1, sizeof *st);
	if (st == NULL)
		return;
	sim_world_status(w, st);
	if (st->n_active != 0 || st->n_waiting != 0)
		sim_world_fail(w, "no request is open, and the coordinator has %d active and %d waiting", st->n_active, st->n_waiting);
	if (st->n_bufs_used != 0)
		sim_world_fail(w, "%d buffers of the coordinator are taken at rest", st->n_bufs_used);
	for (int32_t i = 0; i < w->n_nodes; i++) {
		struct node_status n;
		if (!w->nodes[i].exists || !w->nodes[i].is_running)
			continue;
		node_status_get(w->nodes[i].core, &n);
		if (n.n_bufs_used != 0)
			sim_world_fail(w, "%d buffers of node %d are taken at rest", n.n_bufs_used, i);
	}
	for (int32_t i = 0; i < st->n_chains; i++)
		if (st->chains[i].ready && st->chains[i].plan_epoch.v == w->ledgers[i].epoch)
			check_hops(w, &w->ledgers[i]);
	free(st);
}
