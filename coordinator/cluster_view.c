#include "coordinator/cluster_view.h"

#include "base/assert.h"
#include "coordinator/coord_state.h"

#include <stdio.h>
#include <string.h>

// What is taken where nothing was measured, and marked as derived: a home's Wi-Fi on a good day.
#define DELAY_DEFAULT_S 0.002
#define RATE_DEFAULT 12.5e6
#define RATE_MIN 1e3         // of a link: none that steps went over is slower, and of two in a row cluster_check still takes the rate
#define CPU_RATE_DEFAULT 5e9 // the slowest machine anybody joins with
#define TRIPS_FEW 32         // half a minute of them
#define VISIT_MAX_S 1.0      // cluster_check would take more; nobody's engine has it

// rate_of_any returns the rate of a type that is like any other: weights are read, whatever they are.
static double rate_of_any(const struct device_profile *p)
{
	for (int32_t i = 0; i < p->n_rates; i++)
		if (p->rates[i].decode_bps > 0)
			return (double)p->rates[i].decode_bps;
	return 0;
}

// plausible: what a member says it did may be anything; the planner is given what a machine can have.
static double plausible(double v)
{
	return v >= 1 && v <= CLUSTER_RATE_MAX ? v : 0;
}

static void fill_rates(const struct cluster_view_member *m, enum dtype type, struct cluster_device *d)
{
	const struct device_profile *p = m->profile;
	const struct device_rate *main = device_profile_find(p, type);
	d->cpu_rate = main != NULL && main->decode_bps > 0 ? (double)main->decode_bps : rate_of_any(p);
	d->cpu_flops = main != NULL ? (double)main->prefill_flops : 0;
	// What was observed is of the model's type: others are as much slower or faster as that one.
	double decode = plausible(m->decode_bps), prefill = plausible(m->prefill_flops);
	double factor = decode > 0 && d->cpu_rate > 0 ? decode / d->cpu_rate : 1;
	for (int32_t i = 0; i < p->n_rates; i++) {
		double rate = (double)p->rates[i].decode_bps * factor;
		d->cpu_rate_of[p->rates[i].type] = rate < CLUSTER_RATE_MAX ? plausible(rate) : CLUSTER_RATE_MAX;
	}
	if (decode > 0)
		d->cpu_rate = decode;
	if (prefill > 0)
		d->cpu_flops = prefill;
	if (d->cpu_rate < 1) {
		d->cpu_rate = CPU_RATE_DEFAULT;
		d->derived |= CLUSTER_CPU_RATE;
	}
}

// fill_device returns false when the machine told nothing that a plan could be made with.
static bool fill_device(const struct cluster_view_member *m, enum dtype type, struct cluster_device *d)
{
	const struct device_profile *p = m->profile;
	*d = (struct cluster_device){.reserved_bytes = 0};
	if (p == NULL || p->n_threads == 0)
		return false;
	d->cap_bytes = p->cap_bytes > 0 ? p->cap_bytes : p->available_bytes;
	d->derived |= p->cap_bytes > 0 ? 0 : CLUSTER_CAP;
	d->reserved_bytes = p->reserved_bytes + m->buffer_bytes;
	if (d->reserved_bytes >= d->cap_bytes)
		return false;
	text_copy(d->name, sizeof d->name, m->name);
	fill_rates(m, type, d);
	d->disk_rate = plausible(m->disk_bps) > 0 ? m->disk_bps : (double)device_profile_disk_bps(p);
	d->visit_s = (double)p->visit_ns / 1e9;
	if (d->visit_s > VISIT_MAX_S)
		d->visit_s = VISIT_MAX_S;
	return d->name[0] != '\0';
}

// assume_head: a coordinator without layers only computes the output head; a plan need not wait until its machine has been measured.
static void assume_head(const char *name, struct cluster_device *d)
{
	*d = (struct cluster_device){.cap_bytes = UINT64_C(1) << 30, .cpu_rate = CPU_RATE_DEFAULT, .derived = CLUSTER_CAP | CLUSTER_RESERVED | CLUSTER_CPU_RATE};
	text_copy(d->name, sizeof d->name, name);
}

static bool is_taken(const struct cluster_view *v, int32_t at, const char *name)
{
	for (int32_t i = 0; i < at; i++)
		if (strcmp(v->devices[i].name, name) == 0)
			return true;
	return false;
}

// make_unlike: devices are told apart by their names; a node whose name another one has gets a number. Of at + 1 numbers one is free.
static void make_unlike(struct cluster_view *v, int32_t at)
{
	char *name = v->devices[at].name, wanted[NAME_CAP - 5];
	text_copy(wanted, sizeof wanted, name);
	for (int32_t k = 0; k <= at && is_taken(v, at, name); k++)
		snprintf(name, NAME_CAP, "%s#%d", wanted, (int)(at + k));
}

static bool is_known(const struct link_figures *f)
{
	return f != NULL && f->n > 0;
}

// delay_of: the mean, which is what tokens wait for. Of few round trips one that met a busy moment would be most of it.
static double delay_of(const struct link_figures *f)
{
	double mean_us = f->mean_us, typical_us = 2.0 * f->p50_us;
	return (f->n < TRIPS_FEW && typical_us > 0 && typical_us < mean_us ? typical_us : mean_us) / 2e6;
}

static double least_of(const struct link_figures *f)
{
	return is_known(f) ? (double)f->rate_least_bps : 0;
}

// one_way makes a link of what one end knows, and of what the other end knows where that says more. A way is as fast as the one back, where only
// that one told: of most hops something large goes one way only.
static struct cluster_link one_way(const struct link_figures *there, const struct link_figures *back)
{
	const struct link_figures *f = is_known(there) ? there : back;
	struct cluster_link l = {.delay_s = DELAY_DEFAULT_S, .rate = RATE_DEFAULT, .derived = true};
	if (!is_known(f))
		return l;
	l.delay_s = delay_of(f);
	if (is_known(there) && there->rate_bps > 0)
		l.rate = (double)there->rate_bps;
	else if (is_known(back) && back->rate_bps > 0)
		l.rate = (double)back->rate_bps;
	else if (least_of(there) > RATE_DEFAULT || least_of(back) > RATE_DEFAULT)
		l.rate = least_of(there) > RATE_DEFAULT ? least_of(there) : least_of(back);
	l.rate = l.rate > RATE_MIN ? l.rate : RATE_MIN;
	l.derived = (!is_known(there) || there->rate_bps == 0) && (!is_known(back) || back->rate_bps == 0);
	return l;
}

// through: where the coordinator passes on what goes.
static struct cluster_link through(const struct cluster_link *a, const struct cluster_link *b)
{
	struct cluster_link l = cluster_link_via(a, b, 0);
	l.derived = true;
	return l;
}

static void fill_links(const struct cluster_view_input *in, const int32_t *origin, struct cluster_view *v)
{
	int32_t n = v->cluster.n_devices;
	struct cluster_link *l = v->links;
	for (int32_t i = 1; i < n; i++) {
		const struct cluster_view_member *m = &in->members[origin[i]];
		l[i] = one_way(m->to, m->from);
		l[i * n] = one_way(m->from, m->to);
	}
	for (int32_t i = 1; i < n; i++)
		for (int32_t j = 1; j < n; j++) {
			const struct link_figures *there = i != j ? in->pair(in->ctx, in->members[origin[i]].index, in->members[origin[j]].index) : NULL;
			const struct link_figures *back = i != j ? in->pair(in->ctx, in->members[origin[j]].index, in->members[origin[i]].index) : NULL;
			bool has_pair = is_known(there) || is_known(back);
			l[i * n + j] = has_pair ? one_way(there, back) : through(&l[i * n], &l[j]);
		}
}

enum err cluster_view_make(const struct cluster_view_input *in, struct cluster_view *out, struct errmsg *em)
{
	int32_t n = 0, origin[CLUSTER_VIEW_MAX];
	out->n_left_out = 0;
	for (int32_t i = 0; i < in->n; i++) {
		const struct cluster_view_member *m = &in->members[i];
		if (i > 0 && !m->can_hold)
			continue;
		if (n == CLUSTER_VIEW_MAX)
			return errmsg_fail(em, ERR_LIMIT, "more than %d machines: one plan holds no more", CLUSTER_VIEW_MAX);
		if (!fill_device(m, in->type, &out->devices[n])) {
			if (i == 0 && m->can_hold)
				return errmsg_fail(em, ERR_STATE, "the coordinator's machine has not been measured yet, or its memory is too small for any layer");
			if (i == 0)
				assume_head(m->name, &out->devices[n]);
			out->n_left_out += i > 0;
			if (i > 0)
				continue;
		}
		make_unlike(out, n);
		out->members[n] = i == 0 && !m->can_hold ? -1 : m->index;
		origin[n++] = i;
	}
	out->cluster = (struct cluster){.devices = out->devices, .n_devices = n, .links = out->links};
	out->head_can_hold = in->n > 0 && in->members[0].can_hold;
	if (n == 0)
		return errmsg_fail(em, ERR_STATE, "no machine is known");
	memset(out->links, 0, sizeof out->links[0] * (size_t)n * (size_t)n);
	fill_links(in, origin, out);
	return OK;
}

// ---- of a coordinator

static const struct link_figures *pair_of(const void *ctx, int32_t i, int32_t j)
{
	const struct coordinator *c = ctx;
	return member_figures_of_pair(c, c->members[i].record.id, c->members[j].record.id);
}

static struct cluster_view_member member_of(const struct coordinator *c, int32_t place)
{
	const struct member *m = &c->members[place];
	return (struct cluster_view_member){
		.name = m->hello.name,
		.index = place,
		.can_hold = member_is_eligible(m),
		.profile = &m->profile,
		.buffer_bytes = 2 * (uint64_t)c->config.hop_credits * coordinator_buf_bytes(&c->config), // as much may wait in links as lies in buffers
		.decode_bps = observed_rate_per_s(&m->decode),
		.prefill_flops = observed_rate_per_s(&m->prefill),
		.disk_bps = observed_rate_per_s(&m->disk),
		.to = &m->to_node,
		.from = &m->from_node,
	};
}

enum err coordinator_view(const struct coordinator *c, enum dtype type, struct cluster_view *out, struct errmsg *em)
{
	struct cluster_view_member members[CLUSTER_VIEW_MAX + 1];
	bool has_node = c->config.has_local_node;
	int32_t n = 1;
	members[0] = has_node ? member_of(c, 0) : (struct cluster_view_member){.name = "coordinator"};
	members[0].profile = &c->own_profile;
	for (int32_t i = has_node ? 1 : 0; i < c->n_members && n < (int32_t)ARRAY_LEN(members); i++)
		if (member_is_eligible(&c->members[i]))
			members[n++] = member_of(c, i);
	const struct cluster_view_input in = {.members = members, .n = n, .type = type, .pair = pair_of, .ctx = c};
	return cluster_view_make(&in, out, em);
}
