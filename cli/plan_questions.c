// What if: the questions that somebody asks who may still buy or move things.
#include "cli/plan_report.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

#define ALL_DEVICES 12    // of more machines only those of the plan are asked about: each answer is a plan
#define WIRE_RATE 125e6   // bytes/s: gigabit Ethernet
#define WIRE_DELAY_S 2e-4 // one way, with a switch
#define RADIO_S 1e-3      // what takes longer one way is no wire

static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q6_K, DTYPE_Q5_K, DTYPE_Q4_K, DTYPE_Q3_K};

// What questions point to, while they are asked.
struct material {
	struct scenario wired;          // a copy that owns nothing
	struct scenario_station *stations;
	struct scenario_link *links;
	struct cluster net[SCENARIO_DEVICES_MAX + 1];
	int32_t airs[SCENARIO_DEVICES_MAX + 1][SCENARIO_DEVICES_MAX];
	struct cluster_link *nets;      // room of them all
	size_t n_nets;                  // used
	struct model_shape shapes[ARRAY_LEN(types)];
};

static void add(struct plan_report *r, struct what_if q, const char *before, const char *after)
{
	if (r->n_questions == PLAN_QUESTIONS_MAX || !what_if_makes_sense(&r->want, &r->result.plan, &q))
		return;
	struct plan_question *p = &r->questions[r->n_questions++];
	p->what_if = q;
	snprintf(p->text, sizeof p->text, "%s%s%s", before, q.device >= 0 ? r->cluster->devices[q.device].name : "", after);
}

static bool is_used(const struct plan_report *r, int32_t device)
{
	return r->fates[device].fate == SOLVE_USED;
}

static void add_devices(struct plan_report *r, enum what_if_kind kind, const char *before, const char *after)
{
	for (int32_t i = 0; i < r->cluster->n_devices; i++)
		if (r->cluster->n_devices <= ALL_DEVICES || is_used(r, i))
			add(r, (struct what_if){.kind = kind, .device = i}, before, after);
}

// ---- Wires

static bool is_radio(const struct scenario *s, int32_t device)
{
	return s->stations[device].access_point >= 0 || scenario_mean_delay_s(&s->stations[device].delay) > RADIO_S;
}

// pull_wire takes a machine's own leg from the air.
static void pull_wire(struct scenario_station *st)
{
	st->access_point = -1;
	st->delay = (struct scenario_delay){.fixed_s = WIRE_DELAY_S / 2};
	st->rate = WIRE_RATE;
}

static void pull_link(struct scenario_link *l)
{
	if (scenario_mean_delay_s(&l->delay) > RADIO_S)
		l->delay = (struct scenario_delay){.fixed_s = WIRE_DELAY_S};
	if (l->rate > 0 && l->rate < WIRE_RATE)
		l->rate = WIRE_RATE;
}

// net_of puts the wired copy's links into the next net.
static const struct cluster *net_of(struct plan_report *r, struct material *m, struct cluster *out)
{
	size_t n = (size_t)r->cluster->n_devices;
	struct cluster_link *room = &m->nets[m->n_nets];
	m->n_nets += n * n;
	*out = r->cluster->cluster;
	out->links = out->attach = NULL;
	out->airs = scenario_airs(&m->wired, m->airs[out - m->net]);
	if (scenario_attach(&m->wired, room)) {
		out->attach = room;
	} else {
		scenario_means(&m->wired, room);
		for (size_t i = 0; i < n * n; i++) // who does not reach whom stays so
			if (r->cluster->cluster.links[i].rate <= 0)
				room[i].rate = 0;
		for (size_t i = 0; i < n * n; i++) {
			int32_t via = r->cluster->cluster.links[i].via - 1;
			if (via >= 0)
				room[i] = cluster_link_via(&room[i / n * n + (size_t)via], &room[(size_t)via * n + i % n], via);
		}
		out->links = room;
	}
	return out;
}

static void reset_wires(const struct plan_report *r, struct material *m)
{
	const struct scenario *s = r->cluster;
	m->wired = *s;
	memcpy(m->stations, s->stations, (size_t)s->n_devices * sizeof *m->stations);
	memcpy(m->links, s->links, (size_t)s->n_links * sizeof *m->links);
	m->wired.stations = m->stations;
	m->wired.links = m->links;
}

static void add_wires(struct plan_report *r, struct material *m)
{
	const struct scenario *s = r->cluster;
	int32_t n_radios = 0;
	reset_wires(r, m);
	for (int32_t i = 0; i < s->n_devices; i++) {
		n_radios += is_radio(s, i);
		if (is_radio(s, i))
			pull_wire(&m->stations[i]);
	}
	pull_link(&m->wired.default_link);
	for (int32_t i = 0; i < s->n_links; i++)
		pull_link(&m->links[i]);
	if (n_radios > 0 || scenario_mean_delay_s(&s->default_link.delay) > RADIO_S)
		add(r, (struct what_if){.kind = WHAT_IF_LINKS, .device = -1, .as = net_of(r, m, &m->net[s->n_devices])},
			"every machine at a gigabit wire", "");
	for (int32_t i = 0; i < s->n_devices && n_radios > 1; i++) {
		if (!is_radio(s, i) || !is_used(r, i))
			continue;
		reset_wires(r, m);
		pull_wire(&m->stations[i]);
		add(r, (struct what_if){.kind = WHAT_IF_LINKS, .device = i, .as = net_of(r, m, &m->net[i])}, "", " at a gigabit wire");
	}
}

static void add_types(struct plan_report *r, struct material *m)
{
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		char text[32];
		if (plan_model_in_type(r->model, types[i], &m->shapes[i], NULL) != OK)
			continue;
		snprintf(text, sizeof text, "weights in %s", dtype_find((uint32_t)types[i])->name);
		add(r, (struct what_if){.kind = WHAT_IF_QUANT, .device = -1, .shape = &m->shapes[i]}, text, "");
	}
}

static enum err ask_all(struct plan_report *r, struct errmsg *em)
{
	struct arena a;
	if (arena_open(what_if_scratch_bytes(&r->want), &a) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for other plans");
	enum err e = OK;
	for (int32_t i = 0; i < r->n_questions && e == OK; i++) {
		struct plan_question *q = &r->questions[i];
		e = what_if_ask(&r->want, &r->result.plan, &q->what_if, &a, &q->answer, &q->why);
		if (e != OK)
			errmsg_fail(em, e, "%s", q->why.text);
		q->what_if.as = NULL; // the material ends here
		q->what_if.shape = NULL;
	}
	arena_close(&a);
	return e;
}

enum err plan_questions_ask(struct plan_report *r, struct errmsg *em)
{
	size_t n = (size_t)r->cluster->n_devices;
	struct material *m = calloc(1, sizeof *m);
	enum err e = OK;
	if (m != NULL) {
		m->stations = calloc(n, sizeof *m->stations);
		m->links = calloc((size_t)r->cluster->n_links + 1, sizeof *m->links);
		m->nets = calloc(n * n * (n + 1), sizeof *m->nets);
	}
	if (m == NULL || m->stations == NULL || m->links == NULL || m->nets == NULL) {
		e = errmsg_fail(em, ERR_NOMEM, "no memory for other plans");
	} else {
		add(r, (struct what_if){.kind = WHAT_IF_ONE_ROUND, .device = -1}, "one round only", "");
		add(r, (struct what_if){.kind = WHAT_IF_NO_DISKS, .device = -1}, "nothing read from disk", "");
		add_devices(r, WHAT_IF_WITHOUT, "without ", "");
		add_devices(r, WHAT_IF_MEMORY, "twice the memory of ", "");
		add_devices(r, WHAT_IF_ACCELERATOR, "", " with a graphics card of 8 GB");
		add_wires(r, m);
		add_types(r, m);
		e = ask_all(r, em);
	}
	if (m != NULL) {
		free(m->stations);
		free(m->links);
		free(m->nets);
	}
	free(m);
	return e;
}
