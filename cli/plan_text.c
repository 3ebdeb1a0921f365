// What `hearth plan` tells people.
#include "cli/plan_report.h"

#include "sim/quantity.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NOTABLE 0.01 // of a token's time: less is not worth a sentence

static struct quantity_text time_text(double s)
{
	return quantity_print(QUANTITY_TIME, s);
}

static struct quantity_text bytes_text(double bytes)
{
	return quantity_print(QUANTITY_BYTES, bytes);
}

static const char *device_name(const struct plan_report *r, int32_t device)
{
	return r->cluster->devices[device].name;
}

static void print_head(FILE *to, const struct plan_report *r)
{
	const struct model_shape *s = r->want.shape;
	fprintf(to, "%s: %" PRId32 " layers, %s, on %" PRId32 " machine%s; room for %" PRId32 " tokens of context\n", r->model->name, s->n_layers,
		bytes_text((double)model_shape_total_bytes(s)).text, r->cluster->n_devices, r->cluster->n_devices > 1 ? "s" : "", r->ctx_len);
	if (r->model->has_hparams && r->model->hp.n_experts > 0)
		fprintf(to, "  a token uses %" PRId32 " of %" PRId32 " experts: it reads %.0f %% of a layer's bytes, a prompt's chunk those that its tokens choose, as if all were chosen as often\n",
			r->model->hp.n_experts_used, r->model->hp.n_experts, model_shape_read_share(s, 1) * 100);
}

static void print_plan(FILE *to, const struct plan_report *r)
{
	const struct cost_plan *p = &r->result.plan;
	fprintf(to, "\nPlan: ");
	for (int32_t i = 0; i < p->n_stages; i++)
		fprintf(to, "%s%s %" PRId32, i > 0 ? ", " : "", plan_stage_names(r, i).text, p->stages[i].n_layers);
	fprintf(to, " layers; %" PRId32 " round%s; coordinator %s%s\n", p->n_rounds, p->n_rounds > 1 ? "s" : "", device_name(r, p->head),
		p->head_on_accel ? " (output head on its accelerator)" : "");
}

static void print_predicted(FILE *to, const struct plan_report *r)
{
	const struct solve_result *s = &r->result;
	double token_s = s->verdict.token_s;
	fprintf(to, "  predicted  %s per token (TPOT), %.3g tokens/s; %s to the first token (TTFT) of a prompt of %" PRId32 "\n", time_text(token_s).text,
		1 / token_s, time_text(r->ttft_s).text, r->n_prompt);
	if (r->want.goal.streams_weight > 0)
		fprintf(to, "  %" PRId32 " answers at once: %.3g tokens/s in all\n", r->want.goal.n_streams, 1 / s->stream_s);
	const char *kind = s->groups.why == SOLVE_GROUPS_SLOWER || s->groups.why == SOLVE_GROUPS_NO_ROOM ? " without groups" : "";
	if (s->plan.n_groups > 0)
		fprintf(to, "  no plan without groups can be faster than %s\n", time_text(s->bound).text);
	else if (s->gap < 5e-4)
		fprintf(to, "  no plan%s is faster than this one: that is proved\n", kind);
	else
		fprintf(to, "  no plan%s can be faster than %s: at most %.1f %% is left\n", kind, time_text(s->bound).text, (1 - s->bound / s->value) * 100);
	if (s->single < 0)
		fprintf(to, "  no machine can, or may, hold it alone\n");
	else if (r->result.plan.n_stages > 1 || r->result.plan.n_groups > 0)
		fprintf(to, "  the best machine alone, %s, would take %s\n", device_name(r, s->single), time_text(s->single_s).text);
}

// ---- Devices

static void print_devices(FILE *to, const struct plan_report *r)
{
	const struct solve_account *a = &r->account;
	fprintf(to, "\n  %-16s %6s %9s %9s %9s %9s %9s %9s %9s %9s  %s\n", "", "", "in", "on accel-", "read per", "", "waits for", "disk", "", "waits for", "");
	fprintf(to, "  %-16s %6s %9s %9s %9s %9s %9s %9s %9s %9s  %s\n", "machine", "layers", "memory", "erator", "token", "computes", "its disk", "reads",
		"sends", "others", "mostly");
	for (int32_t i = 0; i < a->n_stages; i++) {
		const struct solve_stage_account *s = &a->stages[i];
		const struct cost_group *g = cost_group_of(&r->result.plan, i);
		char name[NAME_CAP + 16] = "";
		if (g)
			snprintf(name, sizeof name, "%s, %" PRId32 " more", device_name(r, s->device), g->n_members - 1);
		else
			snprintf(name, sizeof name, "%s", device_name(r, s->device));
		fprintf(to, "  %-16s %6" PRId32 " %9s %9s %9s %9s %9s %9s %9s %9s  %s\n", name, s->n_layers,
			bytes_text((double)s->pinned_bytes).text, bytes_text((double)s->accel_bytes).text,
			bytes_text((double)s->streamed_bytes).text, time_text(s->busy_s).text, time_text(s->stall_s).text,
			time_text(s->read_s).text, time_text(s->hop_s + s->exchange_s).text, time_text(plan_wait_s(r, i)).text, solve_term_words(s->term));
	}
	fprintf(to, "  of one token: computing %s, waiting for disks %s, links %s, output head %s", time_text(a->busy_s).text, time_text(a->stall_s).text,
		time_text(a->hop_s).text, time_text(a->head_s).text);
	if (a->exchange_s > 0)
		fprintf(to, ", exchanges in groups %s", time_text(a->exchange_s).text);
	fputc('\n', to);
}

// ---- Why

static const struct plan_question *question(const struct plan_report *r, enum what_if_kind kind)
{
	for (int32_t i = 0; i < r->n_questions; i++)
		if (r->questions[i].what_if.kind == kind)
			return &r->questions[i];
	return NULL;
}

static void print_bottleneck(FILE *to, const struct plan_report *r)
{
	const struct solve_account *a = &r->account;
	const struct solve_stage_account *s = a->bottleneck_stage >= 0 ? &a->stages[a->bottleneck_stage] : NULL;
	const char *who = s ? device_name(r, s->device) : device_name(r, r->result.plan.head);
	switch (a->bottleneck) {
	case SOLVE_TERM_COMPUTE:
		fprintf(to, "  - what limits it is the computing of %s: %s of %s. Fewer bytes there, or faster memory, would help; faster links or disks hardly.\n", who,
			time_text(s ? s->busy_s : 0).text, time_text(a->token_s).text);
		break;
	case SOLVE_TERM_STALL:
		fprintf(to, "  - what limits it is %s, which waits %s of %s for its disk: more memory there, or another machine, would help.\n", who,
			time_text(s ? s->stall_s : 0).text, time_text(a->token_s).text);
		break;
	case SOLVE_TERM_DISK:
		fprintf(to, "  - what limits it is the disk of %s, which never rests: %s of reading for each token.\n", who, time_text(s ? s->read_s : 0).text);
		break;
	case SOLVE_TERM_HOPS:
		fprintf(to, "  - what limits it are the links: %s of %s. Wires, or fewer machines, would help.\n", time_text(a->hop_s).text, time_text(a->token_s).text);
		break;
	case SOLVE_TERM_EXCHANGES:
		fprintf(to, "  - what limits it are the exchanges in the group of %s: %s of %s. Faster links between its members would help.\n", who, time_text(s ? s->exchange_s : 0).text,
			time_text(a->token_s).text);
		break;
	case SOLVE_TERM_HEAD:
		fprintf(to, "  - what limits it is the output head on %s: %s of %s.\n", who, time_text(a->head_s).text, time_text(a->token_s).text);
		break;
	}
}

// Reading that others' work hides is what windows and several rounds are for.
static void print_hidden(FILE *to, const struct plan_report *r)
{
	const struct solve_account *a = &r->account;
	double read_s = 0, bytes = 0;
	for (int32_t i = 0; i < a->n_stages; i++) {
		read_s += a->stages[i].read_s;
		bytes += (double)a->stages[i].streamed_bytes;
	}
	if (read_s <= 0)
		return;
	fprintf(to, "  - %s are read from disks for each token. That takes the disks %s, of which all but %s passes while machines compute or wait for their turn.\n",
		bytes_text(bytes).text, time_text(read_s).text, time_text(a->stall_s).text);
	double all = (double)model_shape_total_bytes(r->want.shape);
	if (r->want.shape->expert_share > 0) {
		fprintf(to, "  - only experts that do not fit are read, when a token uses them: the most used stay in memory, so that it will be less than said here.\n");
		return;
	}
	fprintf(to, "  - only what does not fit is read, %.0f %% of the model: it passes through windows while the rest stays in memory. A page cache would read the whole\n"
		"    part of a machine that is too small, for every token.\n",
		bytes / all * 100);
}

static void print_rounds(FILE *to, const struct plan_report *r)
{
	const struct plan_question *q = question(r, WHAT_IF_ONE_ROUND);
	int32_t k = r->result.plan.n_rounds;
	if (k == 1 || q == NULL || q->answer.status != OK || q->answer.token_s < r->account.token_s * (1 + NOTABLE))
		return;
	fprintf(to, "  - %" PRId32 " rounds cost %" PRId32 " times the hops of one, and give the disks time to read between a machine's turns: with one round it would be %s.\n", k, k,
		time_text(q->answer.token_s).text);
}

static void print_slow_disk(FILE *to, const struct plan_report *r, int32_t stage)
{
	const struct solve_stage_account *s = &r->account.stages[stage];
	const struct cluster_device *d = &r->cluster->devices[s->device];
	fprintf(to, "  - %s streams more than it can hide: %s for each token from %s at %s take %s, and the token waits %s for it.\n", d->name,
		bytes_text((double)s->streamed_bytes).text, scenario_disk_name(r->cluster->stations[s->device].disk),
		quantity_print(QUANTITY_RATE, d->disk_rate).text, time_text(s->read_s).text, time_text(s->stall_s).text);
}

static void print_why(FILE *to, const struct plan_report *r)
{
	fprintf(to, "\nWhy:\n");
	print_bottleneck(to, r);
	plan_print_groups_why(to, r);
	print_rounds(to, r);
	print_hidden(to, r);
	for (int32_t i = 0; i < r->account.n_stages; i++)
		if (plan_slow_disk(r, i))
			print_slow_disk(to, r, i);
	for (int32_t i = 0; i < r->account.n_stages; i++)
		if (r->cluster->stations[r->account.stages[i].device].on_battery)
			fprintf(to, "  - %s runs on its battery while the plan uses it.\n", device_name(r, r->account.stages[i].device));
}

static void print_left_out(FILE *to, const struct plan_report *r)
{
	bool is_first = true;
	for (int32_t i = 0; i < r->cluster->n_devices; i++) {
		const struct solve_device_fate *f = &r->fates[i];
		if (f->fate == SOLVE_USED)
			continue;
		if (is_first)
			fprintf(to, "\nWithout layers:\n");
		is_first = false;
		fprintf(to, "  - %s: %s", device_name(r, i), solve_fate_words(f->fate));
		if (f->fate == SOLVE_SLOWER && f->with_s > 0)
			fprintf(to, " (%s at best)", time_text(f->with_s).text);
		fputc('\n', to);
	}
}

// ---- What if

static void print_question(FILE *to, const struct plan_report *r, const struct plan_question *q)
{
	if (q->answer.status != OK) {
		fprintf(to, "  %-44s no plan: %s\n", q->text, q->why.text);
		return;
	}
	double now = r->result.verdict.token_s, then = q->answer.token_s;
	fprintf(to, "  %-44s %10s  %+6.1f %%\n", q->text, time_text(then).text, (then / now - 1) * 100);
}

static void print_questions(FILE *to, const struct plan_report *r)
{
	if (r->n_questions == 0)
		return;
	fprintf(to, "\nWhat if (each with its own best plan; per token):\n");
	for (int32_t i = 0; i < r->n_questions; i++)
		print_question(to, r, &r->questions[i]);
}

void plan_print_text(FILE *to, const struct plan_report *r)
{
	print_head(to, r);
	print_plan(to, r);
	plan_print_by_hand(to, r);
	print_predicted(to, r);
	print_devices(to, r);
	plan_print_groups(to, r);
	print_why(to, r);
	print_left_out(to, r);
	print_questions(to, r);
	if (r->cluster->n_derived > 0)
		fprintf(to, "\nAssumed, not measured:\n");
	for (int32_t i = 0; i < r->cluster->n_derived; i++)
		fprintf(to, "  %s = %s%s%s\n", r->cluster->derived[i].name, r->cluster->derived[i].value, r->cluster->derived[i].why[0] ? ": " : "",
			r->cluster->derived[i].why);
}

double plan_wait_s(const struct plan_report *r, int32_t stage)
{
	const struct solve_stage_account *s = &r->account.stages[stage];
	double head_s = s->device == r->result.plan.head ? r->account.head_s : 0, wait_s = r->account.token_s - s->busy_s - s->stall_s - s->exchange_s - head_s;
	return wait_s > 0 ? wait_s : 0;
}

bool plan_slow_disk(const struct plan_report *r, int32_t stage)
{
	const struct solve_stage_account *s = &r->account.stages[stage];
	return s->streamed_bytes > 0 && s->stall_s > NOTABLE * r->account.token_s;
}
