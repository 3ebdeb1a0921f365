// What `hearth plan` says of groups: who computes how much, what they send each other, and why there is one or none.
#include "cli/plan_report.h"

#include "base/assert.h"
#include "base/window_layout.h"
#include "partition/plan_best.h"
#include "sim/quantity.h"

#include <inttypes.h>
#include <string.h>

static struct quantity_text time_text(double s)
{
	return quantity_print(QUANTITY_TIME, s);
}

static struct quantity_text bytes_text(double bytes)
{
	return quantity_print(QUANTITY_BYTES, bytes);
}

static struct plan_names names_of(const struct plan_report *r, const struct cost_group *g)
{
	struct plan_names out = {""};
	for (int32_t i = 0; i < g->n_members; i++) {
		size_t n = strlen(out.text);
		snprintf(out.text + n, sizeof out.text - n, "%s%s", i > 0 ? "+" : "", r->cluster->devices[g->devices[i]].name);
	}
	return out;
}

struct plan_names plan_stage_names(const struct plan_report *r, int32_t stage)
{
	const struct cost_group *g = cost_group_of(&r->result.plan, stage);
	struct plan_names out = {""};
	if (g)
		return names_of(r, g);
	snprintf(out.text, sizeof out.text, "%s", r->cluster->devices[r->result.plan.stages[stage].device].name);
	return out;
}

bool plan_group_fill(const struct plan_report *r, int32_t stage, struct plan_group_figures *out)
{
	struct cost_case c = plan_case(r);
	struct cost_crew w;
	double all = 0;
	if (cost_group_of(&r->result.plan, stage) == NULL)
		return false;
	cost_crew_init(&w, &c, stage);
	*out = (struct plan_group_figures){.group = w.group};
	cost_crew_token(&w, &c, stage, &out->traffic);
	for (int32_t i = 0; i < w.group->n_members; i++)
		all += w.parts[i].bytes;
	for (int32_t i = 0; i < w.group->n_members; i++) {
		struct cost_layout l;
		enum err e = cost_layout_of(&w.cases[i], stage, &l, NULL);
		ASSERT(e == OK); // the judge has seen it
		out->members[i] = (struct plan_member){.device = w.parts[i].device,
			.share = w.parts[i].bytes / all,
			.accel_bytes = (uint64_t)(l.n_accel * r->want.params.units_per_layer * l.unit_bytes),
			.memory_bytes = l.pinned_bytes,
			.streamed_bytes = (uint64_t)((double)l.streamed_bytes * cost_streamed_share(&w.cases[i], &l, 1)),
			.sent_bytes = out->traffic.sent[i],
			.received_bytes = out->traffic.received[i]};
	}
	return true;
}

struct plan_names plan_group_form(const struct cost_group *g, const struct plan_report *r)
{
	struct plan_names out = {""};
	bool has_hub = (g->mode != GROUP_REDUCE && g->gather_form == GROUP_HUB) || (g->mode != GROUP_GATHER && g->sum_form == GROUP_HUB);
	const char *gather = group_form_words(g->gather_form), *sum = group_form_words(g->sum_form);
	if (g->mode == GROUP_MIXED && g->gather_form != g->sum_form)
		snprintf(out.text, sizeof out.text, "mixed: gathers %s, sums %s", gather, sum);
	else
		snprintf(out.text, sizeof out.text, "%s: %s", group_mode_words(g->mode), g->mode == GROUP_GATHER ? gather : sum);
	size_t n = strlen(out.text);
	if (has_hub)
		snprintf(out.text + n, sizeof out.text - n, ", %s passes on", r->cluster->devices[g->devices[g->hub]].name);
	return out;
}

static void print_group(FILE *to, const struct plan_report *r, int32_t stage)
{
	struct plan_group_figures g;
	if (!plan_group_fill(r, stage, &g))
		return;
	bool is_awake = true;
	fprintf(to, "  %s, %" PRId32 " layers (%s): %" PRId32 " exchanges in %" PRId32 " steps take %s of a token\n", plan_stage_names(r, stage).text,
		r->account.stages[stage].n_layers, plan_group_form(g.group, r).text, g.traffic.n_exchanges, g.traffic.n_steps, time_text(g.traffic.seconds).text);
	for (int32_t i = 0; i < g.group->n_members; i++) {
		const struct plan_member *m = &g.members[i];
		is_awake = is_awake && r->cluster->devices[m->device].visit_s <= 0;
		fprintf(to, "    %-16s %5.1f %% of each layer, %s kept", r->cluster->devices[m->device].name, 100 * m->share,
			bytes_text((double)(m->memory_bytes + m->accel_bytes)).text);
		if (m->streamed_bytes > 0)
			fprintf(to, ", %s read", bytes_text((double)m->streamed_bytes).text);
		fprintf(to, "; sends %s and receives %s per token\n", bytes_text(m->sent_bytes).text, bytes_text(m->received_bytes).text);
	}
	if (is_awake)
		fprintf(to, "    no machine of it has a `visit`: its exchanges are counted as if no software handled them\n");
}

void plan_print_groups(FILE *to, const struct plan_report *r)
{
	if (r->result.plan.n_groups == 0)
		return;
	fprintf(to, "\nComputed together:\n");
	for (int32_t i = 0; i < r->result.plan.n_stages; i++)
		print_group(to, r, i);
}

// find_apart returns two members of a group that have no link with each other; false: all have.
static bool find_apart(const struct plan_report *r, const struct cost_group *g, const char *names[2], const char **via)
{
	const struct cluster *c = &r->cluster->cluster;
	for (int32_t k = 0; c->links && k < g->n_members * g->n_members; k++) {
		int32_t a = g->devices[k / g->n_members], b = g->devices[k % g->n_members];
		int32_t by = a == b ? 0 : c->links[a * c->n_devices + b].via;
		if (by == 0)
			continue;
		names[0] = r->cluster->devices[a].name;
		names[1] = r->cluster->devices[b].name;
		*via = r->cluster->devices[by - 1].name;
		return true;
	}
	return false;
}

// print_ring_why: the order of a ring is part of the plan, and what does not go round it has its price once a token.
static void print_ring_why(FILE *to, const struct plan_report *r, int32_t stage)
{
	const struct cost_group *g = cost_group_of(&r->result.plan, stage);
	const char *apart[2], *via;
	if (g == NULL || g->mode == GROUP_GATHER || g->sum_form != GROUP_RING)
		return;
	fprintf(to, "  - sums go round %s in this order, from each to the next and from the last to the first, which takes least.\n", names_of(r, g).text);
	if (!find_apart(r, g, apart, &via))
		return;
	struct cost_case c = plan_case(r);
	struct group_traffic start = {0};
	struct cost_crew w;
	cost_crew_init(&w, &c, stage);
	group_traffic_add(c.cluster, c.shape, g, &w.split, GROUP_START, 1, &start);
	fprintf(to, "    %s and %s, for one, have no link with each other: %s passes on what the lead tells them and that they can begin, %s a token%s.\n", apart[0], apart[1],
		via, time_text(start.seconds).text, g->mode == GROUP_MIXED ? ", and what is gathered" : "");
}

void plan_print_groups_why(FILE *to, const struct plan_report *r)
{
	const struct solve_group_note *n = &r->result.groups;
	struct plan_names names = names_of(r, &n->group);
	switch (n->why) {
	case SOLVE_GROUPS_OFF:
	case SOLVE_GROUPS_FEW:
		break;
	case SOLVE_GROUPS_FORMED:
		fprintf(to, "  - %s compute each layer together: %s, of which exchanges take %s; the slowest of them alone would take %s. Without groups a token\n"
			"    would take %s at best.\n",
			names.text, time_text(n->layer_s).text, time_text(n->exchange_s).text, time_text(n->alone_s).text, time_text(n->plain_s).text);
		for (int32_t i = 0; i < r->result.plan.n_stages; i++)
			print_ring_why(to, r, i);
		break;
	case SOLVE_GROUPS_LINKS:
		fprintf(to, "  - no machines compute layers together: %s would take %s for one, of it %s for exchanges, and the slowest of them alone takes %s.\n",
			names.text, time_text(n->layer_s).text, time_text(n->exchange_s).text, time_text(n->alone_s).text);
		break;
	case SOLVE_GROUPS_SLOWER:
		fprintf(to, "  - no machines compute layers together: with %s doing so a token would take %s at best.\n", names.text, time_text(n->with_s).text);
		break;
	case SOLVE_GROUPS_UNKNOWN:
	case SOLVE_GROUPS_NO_ROOM:
		fprintf(to, "  - no machines compute layers together: %s.\n", solve_groups_words(n->why));
		break;
	}
}

// ---- By hand

static const char *device_name(const struct plan_report *r, int32_t device)
{
	return r->cluster->devices[device].name;
}

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-" // cli/placement_words.h takes these

// can_place: --place knows one round, and one mode for all groups.
static bool can_place(const struct plan_report *r)
{
	const struct cost_plan *p = &r->result.plan;
	bool can = p->n_rounds == 1;
	for (int32_t i = 0; i < r->cluster->n_devices; i++)
		can = can && (r->fates[i].fate != SOLVE_USED || device_name(r, i)[strspn(device_name(r, i), NAME_CHARS)] == '\0');
	for (int32_t i = 1; i < p->n_groups; i++)
		can = can && plan_best_mode(&p->groups[i]) == plan_best_mode(&p->groups[0]);
	return can;
}

static void print_place(FILE *to, const struct plan_report *r, int32_t stage)
{
	const struct cost_stage *st = &r->result.plan.stages[stage];
	const struct cost_group *g = cost_group_of(&r->result.plan, stage);
	for (int32_t i = 0; g && i < g->n_members; i++)
		fprintf(to, "%s%s:%" PRIu32 "%s", i > 0 ? "+" : "", device_name(r, g->devices[i]), g->shares[i],
			g->mode == GROUP_GATHER && g->gather_form == GROUP_HUB && g->hub == i ? "*" : "");
	fprintf(to, "%s=%" PRId32, g ? "" : device_name(r, st->device), st->n_layers);
}

int32_t plan_stream_percent(const struct plan_report *r, int32_t stage)
{
	const struct cost_case c = plan_case(r);
	return (int32_t)(((int64_t)plan_best_stream_share(&c, stage) * 100 + WINDOW_SHARE_WHOLE - 1) / WINDOW_SHARE_WHOLE);
}

// print_streams: per cent that make a window no smaller than the plan's.
static void print_streams(FILE *to, const struct plan_report *r)
{
	bool is_any = false;
	for (int32_t i = 0; i < r->result.plan.n_stages; i++)
		is_any = is_any || plan_stream_percent(r, i) > 0;
	for (int32_t i = 0; is_any && i < r->result.plan.n_stages; i++)
		fprintf(to, "%s%" PRId32, i > 0 ? "," : " --streams ", plan_stream_percent(r, i));
}

void plan_print_by_hand(FILE *to, const struct plan_report *r)
{
	const struct cost_plan *p = &r->result.plan;
	if (!can_place(r))
		return;
	fprintf(to, "By hand: hearth serve MODEL --place \"");
	for (int32_t i = 0; i < p->n_stages; i++) {
		fputs(i > 0 ? "," : "", to);
		print_place(to, r, i);
	}
	fputc('"', to);
	print_streams(to, r);
	if (p->n_groups > 0)
		fprintf(to, " --tp-mode %s", tp_mode_word(plan_best_mode(&p->groups[0])));
	fprintf(to, "%s\n", r->fates[p->head].fate == SOLVE_USED ? "" : " --no-node");
}
