// The JSON of `hearth sim run --json`. Times are seconds, bytes are integers; what there is none of is null.
#include "cli/sim_run.h"

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

static json_t *seconds(int64_t ns)
{
	return json_real((double)ns / 1e9);
}

static json_t *quantiles(const struct report_quantiles *q)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "n", integer(q->n), "p50", number(q->p50), "p90", number(q->p90), "p99",
		number(q->p99), "mean", number(q->mean));
}

static json_t *model_json(const struct scenario *s, const struct prediction *p)
{
	json_t *out = json_pack("{s:o, s:o}", "tpot_s", number(p->tpot_s), "ttft_s", number(p->ttft_s));
	if (p->host == PREDICTION_GROUP) {
		json_object_set_new(out, "exchange_s", number(p->exchange_s));
		return out;
	}
	json_object_set_new(out, "visits_s", number(p->closed.visits_s));
	json_object_set_new(out, "hops_s", number(p->closed.hop_s));
	json_object_set_new(out, "head_s", number(p->closed.head_s));
	json_object_set_new(out, "closed_form_tpot_s", number(p->closed.token_s));
	json_object_set_new(out, "disk_s", number(p->closed.disk_s));
	json_object_set_new(out, "disk_device",
		p->closed.disk_stage >= 0 ? json_string(s->devices[s->plan.stages[p->closed.disk_stage].device].name)
					  : json_null());
	return out;
}

static json_t *plan_json(const struct scenario *s, const struct prediction *p)
{
	json_t *stages = json_array();
	for (int32_t i = 0; i < s->plan.n_stages && p->host != PREDICTION_GROUP; i++) {
		const struct cost_layout *l = &p->layouts[i];
		json_array_append_new(stages,
			json_pack("{s:s, s:i, s:i, s:o, s:o}", "device", s->devices[s->plan.stages[i].device].name, "layers",
				s->plan.stages[i].n_layers, "accelerator_layers", l->n_accel, "pinned_bytes",
				integer(l->pinned_bytes), "streamed_bytes", integer(l->streamed_bytes)));
	}
	return json_pack("{s:s, s:i, s:b, s:s, s:o}", "coordinator", s->devices[s->plan.head].name, "rounds", s->plan.n_rounds,
		"even", s->is_even, "exchange", scenario_exchange_name(s->group.exchange), "stages", stages);
}

static json_t *requests_json(const struct report *r)
{
	json_t *out = json_array();
	for (int32_t i = 0; i < r->n_requests; i++) {
		const struct report_request *q = &r->requests[i];
		json_array_append_new(out,
			json_pack("{s:o, s:i, s:i, s:b, s:o, s:o}", "at_s", seconds(q->submit_ns - r->begin_ns), "prompt",
				q->n_prompt, "tokens", q->n_tokens, "failed", q->failed, "ttft_s",
				q->n_tokens > 0 ? seconds(q->first_ns - q->submit_ns) : json_null(), "tpot_s",
				q->n_tokens > 1 ? json_real((double)(q->last_ns - q->first_ns) / 1e9 / (q->n_tokens - 1))
						: json_null()));
	}
	return out;
}

static json_t *devices_json(const struct prediction *p)
{
	const struct report *r = &p->report;
	json_t *out = json_array();
	for (int32_t i = 0; i < r->n_devices; i++) {
		const struct report_device *d = &r->devices[i];
		struct device_times t = prediction_device_times(p, i);
		json_array_append_new(out,
			json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "name", d->name, "busy_s", seconds(t.busy_ns),
				"idle_s", seconds(t.idle_ns), "disk_wait_s", seconds(d->stall_ns), "disk_s",
				seconds(d->sum_ns[REPORT_DISK]), "link_s", seconds(d->sum_ns[REPORT_LINK]), "sent_bytes",
				integer(d->sent_bytes)));
	}
	return out;
}

static json_t *derived_json(const struct scenario *s)
{
	json_t *out = json_array();
	for (int32_t i = 0; i < s->n_derived; i++)
		json_array_append_new(out,
			json_pack("{s:s, s:s, s:s}", "figure", s->derived[i].name, "value", s->derived[i].value, "why",
				s->derived[i].why));
	return out;
}

static json_t *published_json(const struct scenario *s)
{
	const struct scenario_published *p = &s->published;
	if (p->source[0] == '\0')
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:b, s:s, s:s}", "exchange_s",
		p->exchange_s > 0 ? json_real(p->exchange_s) : json_null(), "tpot_s",
		p->tpot_s > 0 ? json_real(p->tpot_s) : json_null(), "ttft_s", p->ttft_s > 0 ? json_real(p->ttft_s) : json_null(),
		"calibrates", p->calibrates, "source", p->source, "note", p->note);
}

enum err sim_run_print_json(FILE *to, const struct scenario *s, const struct prediction *p)
{
	const struct report_summary *m = &p->summary;
	char history[17];
	snprintf(history, sizeof history, "%016llx", (unsigned long long)p->history);
	json_t *out = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o}",
		"name", s->name, "about", s->about, "model", s->model_name, "model_bytes",
		integer(model_shape_total_bytes(&s->shape)), "plan", plan_json(s, p), "cost_model", model_json(s, p), "host",
		prediction_host_name(p->host), "history", history, "timed_out", p->timed_out, "ttft_s", quantiles(&m->ttft),
		"tpot_s", quantiles(&m->tpot), "gap_s", quantiles(&m->gap), "tokens", integer((uint64_t)m->n_tokens), "failed",
		m->n_failed, "tokens_per_s", number(m->tokens_per_s), "requests", requests_json(&p->report), "devices",
		devices_json(p), "derived", derived_json(s), "published", published_json(s));
	if (out == NULL)
		return ERR_NOMEM;
	enum err e = json_dumpf(out, to, JSON_INDENT(2)) == 0 && fputc('\n', to) != EOF ? OK : ERR_IO;
	json_decref(out);
	return e;
}
