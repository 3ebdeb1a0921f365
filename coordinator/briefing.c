// What members are told of a plan: their part, whom they have links with and by which keys; and who has no part, that there is a plan without it.
#include "coordinator/coord_state.h"

#include <stdio.h>

// prev_of returns the stage before a stage, or -1: its steps come from the head only.
static int32_t prev_of(const struct plan *p, int32_t stage)
{
	if (stage > 0)
		return stage - 1;
	return p->n_rounds > 1 ? p->n_stages - 1 : -1;
}

static void add_address(struct address_list *list, const char *host, uint16_t port)
{
	bool is_bare_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
	if (list->n == ADDRS_MAX || port == 0 || host[0] == '\0' || strlen(host) + 9 > ADDR_CAP)
		return;
	snprintf(list->at[list->n], ADDR_CAP, is_bare_ipv6 ? "[%s]:%u" : "%s:%u", host, port);
	list->n++;
}

static void fill_peer(const struct member *m, const uint8_t psk[KEY_BYTES], struct msg_peer *out)
{
	out->present = true;
	memcpy(out->public_key, m->record.public_key, KEY_BYTES);
	memcpy(out->psk, psk, KEY_BYTES);
	text_copy(out->name, sizeof out->name, m->hello.name);
	out->addresses = m->hello.addresses;
	add_address(&out->addresses, m->remote, m->hello.port);
}

bool coordinator_find_peer(const struct coordinator *c, struct node_id id, struct msg_peer *out)
{
	static const uint8_t none[KEY_BYTES];
	int32_t i = member_find(c, id);
	memset(out, 0, sizeof *out);
	if (i < 0 || c->members[i].is_local || c->members[i].pending)
		return false;
	fill_peer(&c->members[i], none, out);
	return true;
}

// fill_group names the members of a stage to the one at `self`. The node on this machine and the others reach each other through the coordinator: they
// are told neither keys nor addresses.
static void fill_group(struct coordinator *c, const struct plan_group *g, int32_t self, struct msg_group *out)
{
	if (g->n == 1)
		return;
	*out = (struct msg_group){.n_members = g->n, .self = self, .mode = g->mode, .payload = g->payload, .hub = g->hub - 1};
	memcpy(out->shares, g->shares, (size_t)g->n * sizeof g->shares[0]);
	for (int32_t i = 0; i < g->n; i++) {
		const struct member *m = &c->members[member_find(c, g->nodes[i])];
		const struct pair *p = pairs_find(c, g->nodes[self], g->nodes[i]);
		if (p != NULL)
			fill_peer(m, p->psk, &out->members[i]);
		out->members[i].present = i != self;
		text_copy(out->members[i].name, sizeof out->members[i].name, i != self ? m->hello.name : "");
	}
}

// fill_neighbours: a group's lead has those of its stage, the others have none.
static void fill_neighbours(struct coordinator *c, const struct chain *ch, int32_t stage, struct msg_plan *p)
{
	int32_t prev = prev_of(&ch->plan, stage), next = planning_next(&ch->plan, stage);
	if (prev >= 0 && planning_is_between_machines(c, ch, prev))
		fill_peer(&c->members[member_of_stage(c, ch, prev)], pairs_find_hop(c, &ch->plan, prev)->psk, &p->prev);
	if (planning_is_between_machines(c, ch, stage))
		fill_peer(&c->members[member_of_stage(c, ch, next)], pairs_find_hop(c, &ch->plan, stage)->psk, &p->next);
}

void briefing_send(struct coordinator *c, const struct chain *ch, struct plan_seat at, struct coord_effects *fx)
{
	const struct plan_stage *st = &ch->plan.stages[at.stage];
	struct member *mb = &c->members[member_of_seat(c, ch, at)];
	struct msg m = {.type = MSG_PLAN};
	struct msg_plan *p = &m.u.plan;
	p->epoch = ch->plan.epoch;
	p->n_stages = ch->plan.n_stages;
	p->stage = at.stage;
	p->layers = st->layers;
	p->wire = c->config.wire;
	p->n_slots = c->config.n_slots;
	p->ctx_len = c->config.ctx_len;
	p->chunk_max = c->config.chunk_max;
	p->hop_credits = ch->hop_credits;
	p->has_output = c->config.has_output;
	p->stream_share = st->stream_share;
	if (at.place == 0)
		fill_neighbours(c, ch, at.stage, p);
	fill_group(c, &st->who, at.place, &p->group);
	recovery_note_part(mb, st, at.place);
	mb->stage = at.stage;
	mb->place = at.place;
	mb->told = ch->plan.epoch;
	mb->loaded = false;
	mb->next_direct = false;
	coord_send_msg(c, (int32_t)(mb - c->members), &m, fx);
}

// outsider_epoch returns the plan under which a member has no part; 0: there is none to be told of.
static struct plan_epoch outsider_epoch(const struct coordinator *c, const struct member *m)
{
	const struct chain *ch = m->chain >= 0 ? &c->chains[m->chain] : NULL;
	if (m->stage >= 0)
		return (struct plan_epoch){0};
	if (ch != NULL)
		return ch->plan_state == PLAN_LOADING || ch->plan_state == PLAN_READY ? ch->plan.epoch : (struct plan_epoch){0};
	return c->had_plan && m->told.v == 0 ? (struct plan_epoch){c->last_epoch} : (struct plan_epoch){0}; // who stands by is told once
}

void briefing_tell_outsiders(struct coordinator *c, struct coord_effects *fx)
{
	struct msg m = {.type = MSG_PLAN};
	for (int32_t i = 0; i < c->n_members; i++) {
		struct member *mb = &c->members[i];
		if (!mb->used || mb->pending || mb->state != MEMBER_READY)
			continue;
		m.u.plan.epoch = outsider_epoch(c, mb);
		if (m.u.plan.epoch.v == 0 || mb->told.v == m.u.plan.epoch.v)
			continue;
		mb->told = m.u.plan.epoch;
		mb->kv_epoch.v = 0;
		coord_send_msg(c, i, &m, fx);
	}
}
