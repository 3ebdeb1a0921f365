// The JSON of `hearth plan --json`. Times are seconds, bytes are integers; what there is none of is null.
#include "cli/plan_report.h"

#include <jansson.h>
#include <math.h>

static json_t *number(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

static json_t *integer(uint64_t v)
{
	return json_integer((json_int_t)(v <= INT64_MAX ? v : INT64_MAX));
}

static const char *device_name(const struct plan_report *r, int32_t device)
{
	return r->cluster->devices[device].name;
}

static const char *const term_words[] = {[SOLVE_TERM_COMPUTE] = "compute", [SOLVE_TERM_STALL] = "stall", [SOLVE_TERM_DISK] = "disk",
	[SOLVE_TERM_HOPS] = "hops", [SOLVE_TERM_HEAD] = "head", [SOLVE_TERM_EXCHANGES] = "exchanges"};
static const char *const groups_words[] = {[SOLVE_GROUPS_OFF] = "off", [SOLVE_GROUPS_FORMED] = "formed", [SOLVE_GROUPS_UNKNOWN] = "unknown_model",
	[SOLVE_GROUPS_FEW] = "too_few", [SOLVE_GROUPS_LINKS] = "links", [SOLVE_GROUPS_SLOWER] = "slower", [SOLVE_GROUPS_NO_ROOM] = "no_room"};
static const char *const fate_words[] = {[SOLVE_USED] = "used", [SOLVE_SLOWER] = "slower", [SOLVE_NO_LINK] = "no_link",
	[SOLVE_NO_ROOM] = "no_room", [SOLVE_FORBIDDEN] = "forbidden", [SOLVE_NOT_NEEDED] = "not_needed"};
static const char *const what_if_words[] = {[WHAT_IF_ONE_ROUND] = "one_round", [WHAT_IF_NO_DISKS] = "no_disks", [WHAT_IF_WITHOUT] = "without",
	[WHAT_IF_MEMORY] = "memory", [WHAT_IF_ACCELERATOR] = "accelerator", [WHAT_IF_LINKS] = "wire", [WHAT_IF_QUANT] = "quant"};

static json_t *group_json(const struct plan_report *r, int32_t stage)
{
	struct plan_group_figures g;
	json_t *members = json_array();
	if (!plan_group_fill(r, stage, &g)) {
		json_decref(members);
		return json_null();
	}
	for (int32_t i = 0; i < g.group->n_members; i++) {
		const struct plan_member *m = &g.members[i];
		json_array_append_new(members, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "device", device_name(r, m->device), "share", number(m->share),
			"accelerator_bytes", integer(m->accel_bytes), "pinned_bytes", integer(m->memory_bytes), "streamed_bytes",
			integer(m->streamed_bytes), "sent_bytes", number(m->sent_bytes), "received_bytes", number(m->received_bytes)));
	}
	bool gathers = g.group->mode != GROUP_REDUCE, sums = g.group->mode != GROUP_GATHER;
	bool has_hub = (gathers && g.group->gather_form == GROUP_HUB) || (sums && g.group->sum_form == GROUP_HUB);
	return json_pack("{s:s, s:o, s:o, s:o, s:i, s:i, s:o, s:o}", "mode", group_mode_words(g.group->mode), "gathers",
		gathers ? json_string(group_form_words(g.group->gather_form)) : json_null(), "sums",
		sums ? json_string(group_form_words(g.group->sum_form)) : json_null(), "hub",
		has_hub ? json_string(device_name(r, g.group->devices[g.group->hub])) : json_null(), "exchanges", g.traffic.n_exchanges, "steps",
		g.traffic.n_steps, "exchange_s", number(g.traffic.seconds), "members", members);
}

static json_t *groups_json(const struct plan_report *r)
{
	const struct solve_group_note *n = &r->result.groups;
	json_t *devices = json_array();
	for (int32_t i = 0; i < n->group.n_members; i++)
		json_array_append_new(devices, json_string(device_name(r, n->group.devices[i])));
	return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "why", groups_words[n->why], "words", solve_groups_words(n->why), "devices", devices,
		"without_s", number(n->plain_s), "with_s", n->with_s > 0 ? number(n->with_s) : json_null(), "layer_s",
		n->layer_s > 0 ? number(n->layer_s) : json_null(), "layer_exchange_s", n->layer_s > 0 ? number(n->exchange_s) : json_null(),
		"layer_alone_s", n->layer_s > 0 ? number(n->alone_s) : json_null());
}

static json_t *stage_json(const struct plan_report *r, int32_t i)
{
	const struct solve_stage_account *s = &r->account.stages[i];
	const struct scenario_station *st = &r->cluster->stations[s->device];
	return json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:s, s:b, s:i, s:o, s:o}", "device",
		device_name(r, s->device), "layers", s->n_layers, "accelerator_layers", s->n_accel, "accelerator_bytes", integer(s->accel_bytes),
		"pinned_bytes", integer(s->pinned_bytes), "streamed_bytes", integer(s->streamed_bytes), "window_bytes", integer(s->window_bytes),
		"streamed_units", s->n_streamed, "units", s->n_units, "overflow_s", number(s->overflow_s), "compute_s", number(s->busy_s), "stall_s",
		number(s->stall_s), "read_s", number(s->read_s), "link_s", number(s->hop_s), "wait_s", number(plan_wait_s(r, i)), "spare_s",
		number(s->spare_s), "term", term_words[s->term], "streams_more_than_it_hides", plan_slow_disk(r, i), "disk",
		scenario_disk_name(st->disk), "on_battery", st->on_battery, "streams_percent", plan_stream_percent(r, i), "exchange_s", number(s->exchange_s), "group", group_json(r, i));
}

static json_t *plan_json(const struct plan_report *r)
{
	const struct cost_plan *p = &r->result.plan;
	json_t *stages = json_array();
	for (int32_t i = 0; i < r->account.n_stages; i++)
		json_array_append_new(stages, stage_json(r, i));
	return json_pack("{s:s, s:i, s:b, s:o}", "coordinator", device_name(r, p->head), "rounds", p->n_rounds, "head_on_accelerator",
		p->head_on_accel, "stages", stages);
}

static json_t *account_json(const struct plan_report *r)
{
	const struct solve_account *a = &r->account;
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:b}", "compute_s", number(a->busy_s), "stall_s", number(a->stall_s), "exchanges_s",
		number(a->exchange_s), "links_s",
		number(a->hop_s), "head_s", number(a->head_s), "bottleneck", term_words[a->bottleneck], "bottleneck_device",
		a->bottleneck_stage >= 0 ? json_string(device_name(r, a->stages[a->bottleneck_stage].device)) : json_null(), "tight",
		a->is_tight);
}

static json_t *left_out_json(const struct plan_report *r)
{
	json_t *out = json_array();
	for (int32_t i = 0; i < r->cluster->n_devices; i++) {
		const struct solve_device_fate *f = &r->fates[i];
		if (f->fate != SOLVE_USED)
			json_array_append_new(out,
				json_pack("{s:s, s:s, s:s, s:o}", "device", device_name(r, i), "why", fate_words[f->fate], "words",
					solve_fate_words(f->fate), "with_it_s", f->with_s > 0 ? number(f->with_s) : json_null()));
	}
	return out;
}

static json_t *questions_json(const struct plan_report *r)
{
	json_t *out = json_array();
	for (int32_t i = 0; i < r->n_questions; i++) {
		const struct plan_question *q = &r->questions[i];
		bool ok = q->answer.status == OK;
		json_array_append_new(out,
			json_pack("{s:s, s:s, s:o, s:o, s:o}", "change", what_if_words[q->what_if.kind], "words", q->text, "device",
				q->what_if.device >= 0 ? json_string(device_name(r, q->what_if.device)) : json_null(), "tpot_s",
				ok ? number(q->answer.token_s) : json_null(), "no_plan", ok ? json_null() : json_string(q->why.text)));
	}
	return out;
}

static json_t *derived_json(const struct plan_report *r)
{
	json_t *out = json_array();
	for (int32_t i = 0; i < r->cluster->n_derived; i++) {
		const struct scenario_derived *d = &r->cluster->derived[i];
		json_array_append_new(out, json_pack("{s:s, s:s, s:s}", "figure", d->name, "value", d->value, "why", d->why));
	}
	return out;
}

enum err plan_print_json(FILE *to, const struct plan_report *r)
{
	const struct solve_result *s = &r->result;
	double token_s = s->verdict.token_s;
	json_t *out = json_pack("{s:s, s:o, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "model", r->model->name,
		"model_bytes", integer(model_shape_total_bytes(r->want.shape)), "layers", r->want.shape->n_layers, "context", r->ctx_len, "prompt",
		r->n_prompt, "plan", plan_json(r), "tpot_s", number(token_s), "tokens_per_s", number(1 / token_s), "ttft_s", number(r->ttft_s),
		"streams_tokens_per_s", r->want.goal.streams_weight > 0 ? number(1 / s->stream_s) : json_null(), "value_s", number(s->value),
		"bound_s", number(s->bound), "gap", number(s->gap), "best_single",
		s->single >= 0 ? json_pack("{s:s, s:o}", "device", device_name(r, s->single), "value_s", number(s->single_s)) : json_null(), "account",
		account_json(r), "left_out", left_out_json(r), "groups", groups_json(r), "what_if", questions_json(r), "derived", derived_json(r));
	if (out == NULL)
		return ERR_NOMEM;
	enum err e = json_dumpf(out, to, JSON_INDENT(2)) == 0 && fputc('\n', to) != EOF ? OK : ERR_IO;
	json_decref(out);
	return e;
}
