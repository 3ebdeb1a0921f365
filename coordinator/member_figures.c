// What members told of their machines and of their ways to others. Kept over plans and links; nothing here decides anything.
#include "coordinator/coord_state.h"

void member_figures_on_profile(struct coordinator *c, int32_t member, const struct device_profile *p)
{
	struct member *m = &c->members[member];
	bool is_first = m->profile.n_threads == 0;
	if (p->visit_ns != m->profile.visit_ns)
		observed_rate_begin(&m->decode); // all visits so far take another part of all computing so far
	m->profile = *p;
	if (m->is_local)
		c->own_profile = *p;
	proposals_on_figures(c, member, is_first);
}

void member_figures_on_own(struct coordinator *c, const struct device_profile *p)
{
	bool is_first = c->own_profile.n_threads == 0;
	c->own_profile = *p;
	for (int32_t i = 0; is_first && i < c->n_members; i++)
		proposals_on_figures(c, i, true); // nothing could be planned before
}

// computing_us is without the fixed cost of visits, which the planner adds by itself; that is half of it at most.
static uint64_t computing_us(const struct member *m, const struct msg_node_report *r)
{
	double us = (double)r->decode_us, fixed_us = (double)r->n_visits * (double)m->profile.visit_ns / 1000;
	return (uint64_t)(fixed_us < us / 2 ? us - fixed_us : us / 2);
}

// has_read_anew: counts of streamed weights begin with the engine that reads them, which another plan or cap replaces.
static bool has_read_anew(const struct msg_weight_report *before, const struct msg_weight_report *now)
{
	return now->reader != before->reader || now->pinned != before->pinned || now->streamed != before->streamed || now->window != before->window ||
		now->steps < before->steps;
}

void member_figures_on_loaded(struct coordinator *c, int32_t member)
{
	observed_rate_begin(&c->members[member].disk);
}

void member_figures_on_report(struct coordinator *c, int32_t member, const struct msg_node_report *r)
{
	struct member *m = &c->members[member];
	if (has_read_anew(&m->report.weights, &r->weights))
		observed_rate_begin(&m->disk);
	m->report = *r;
	observed_rate_report(&m->decode, r->decode_bytes, computing_us(m, r));
	observed_rate_report(&m->prefill, r->prefill_flop, r->prefill_us);
	observed_rate_report(&m->disk, r->weights.read, r->weights.read_us);
}

int32_t member_layers_max(const struct coordinator *c, const struct member *m)
{
	uint64_t cap = m->profile.cap_bytes, layer = c->config.layer_kv_bytes;
	if (m->hello.layers_max > 0)
		return m->hello.layers_max;
	return cap == 0 || layer == 0 || cap / layer > LAYERS_MAX ? LAYERS_MAX : (int32_t)(cap / layer);
}

static bool is_of(const struct pair_figures *p, struct node_id from, struct node_id to)
{
	return p->told_ns != 0 && node_id_is(p->from, from) && node_id_is(p->to, to);
}

// place_for returns where figures of a way belong: where they are, else a free place, else the place of those that are oldest.
static struct pair_figures *place_for(struct coordinator *c, struct node_id from, struct node_id to)
{
	struct pair_figures *oldest = &c->pair_figures[0];
	for (int32_t i = 0; i < PAIR_FIGURES_MAX; i++) {
		struct pair_figures *p = &c->pair_figures[i];
		if (is_of(p, from, to))
			return p;
		if (p->told_ns < oldest->told_ns)
			oldest = p;
	}
	return oldest;
}

const struct link_figures *member_figures_of_pair(const struct coordinator *c, struct node_id from, struct node_id to)
{
	for (int32_t i = 0; i < PAIR_FIGURES_MAX; i++)
		if (is_of(&c->pair_figures[i], from, to))
			return &c->pair_figures[i].figures;
	return NULL;
}

void member_figures_forget(struct coordinator *c, struct node_id id)
{
	for (int32_t i = 0; i < PAIR_FIGURES_MAX; i++)
		if (node_id_is(c->pair_figures[i].from, id) || node_id_is(c->pair_figures[i].to, id))
			c->pair_figures[i] = (struct pair_figures){.told_ns = 0};
}

// note_next keeps the last round trip between a stage and the next one, for whoever watches it.
static void note_next(struct coordinator *c, int32_t member, const struct msg *m)
{
	struct member *mb = &c->members[member];
	const struct chain *ch = member_chain(c, member);
	int32_t next = ch != NULL && mb->stage >= 0 ? planning_next(&ch->plan, mb->stage) : -1;
	if (next < 0 || !node_id_is(plan_lead(&ch->plan.stages[next]), m->u.link_rtt.peer))
		return;
	if (!node_id_is(mb->next_peer, m->u.link_rtt.peer))
		mb->next_rtt = (struct round_trip){.n = 0};
	mb->next_peer = m->u.link_rtt.peer;
	round_trip_note(&mb->next_rtt, (int64_t)m->u.link_rtt.rtt_us * 1000);
}

void member_figures_on_link(struct coordinator *c, int32_t member, const struct msg *m)
{
	const struct link_figures *f = &m->u.link_rtt.figures;
	struct member *mb = &c->members[member];
	bool is_ours = node_id_is(m->u.link_rtt.peer, c->config.self);
	if (!is_ours)
		note_next(c, member, m);
	if (f->n == 0)
		return;
	if (is_ours) {
		mb->from_node = *f;
		return;
	}
	if (member_find(c, m->u.link_rtt.peer) < 0)
		return; // a peer may name whom it likes; only members have a place
	struct pair_figures *p = place_for(c, mb->record.id, m->u.link_rtt.peer);
	*p = (struct pair_figures){.from = mb->record.id, .to = m->u.link_rtt.peer, .figures = *f, .told_ns = c->now_ns > 0 ? c->now_ns : 1};
}
