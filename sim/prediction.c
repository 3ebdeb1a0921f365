#include "sim/prediction.h"

#include "sim/prediction_host.h"

#include <string.h>

#define INTERVALS_CAP 200000
#define GAPS_CAP 400000

const char *prediction_host_name(enum prediction_host h)
{
	switch (h) {
	case PREDICTION_WORLD:
		return "the program's cores over the simulated network";
	case PREDICTION_GROUP:
		return "a group's exchanges over the simulated network";
	}
	return "";
}

static enum err fill_model(const struct scenario *s, struct prediction *p, struct errmsg *em)
{
	struct cost_case c = scenario_case(s);
	struct arena a;
	enum err e = arena_open(cost_judge_bytes(&c), &a);
	if (e != OK)
		return errmsg_fail(em, e, "no memory for the cost model");
	e = cost_judge(&c, &a, &p->verdict);
	if (e == OK)
		e = cost_ttft(&c, s->requests[0].n_prompt, s->chunk, &a, &p->ttft_s);
	for (int32_t i = 0; i < c.plan->n_stages && e == OK; i++)
		e = cost_layout_of(&c, i, &p->layouts[i], em);
	arena_close(&a);
	p->tpot_s = p->verdict.token_s;
	cost_closed(&c, &p->closed);
	return e;
}

enum err prediction_run(const struct scenario *s, struct prediction *out, struct errmsg *em)
{
	memset(out, 0, sizeof *out);
	out->host = s->group.exchange != EXCHANGE_NONE ? PREDICTION_GROUP : PREDICTION_WORLD;
	enum err e = report_open(s->n_devices, s->n_requests, INTERVALS_CAP, GAPS_CAP, &out->report);
	if (e != OK)
		return errmsg_fail(em, e, "no memory for a report");
	for (int32_t i = 0; i < s->n_devices; i++)
		memcpy(out->report.devices[i].name, s->devices[i].name, NAME_CAP);
	if (out->host != PREDICTION_GROUP)
		e = fill_model(s, out, em);
	if (e == OK)
		e = out->host == PREDICTION_WORLD       ? prediction_on_world(s, out, em)
							: prediction_of_group(s, out, em);
	if (e == OK && report_summarise(&out->report, &out->summary) != OK)
		e = errmsg_fail(em, ERR_NOMEM, "no memory for a summary");
	if (e != OK)
		prediction_close(out);
	return e;
}

struct device_times prediction_device_times(const struct prediction *p, int32_t device)
{
	const struct report_device *d = &p->report.devices[device];
	int64_t computing_ns = d->sum_ns[REPORT_COMPUTE] + d->sum_ns[REPORT_HEAD];
	bool is_group = p->host == PREDICTION_GROUP;
	int64_t idle_ns = p->report.end_ns - p->report.begin_ns - computing_ns - (is_group ? d->stall_ns : 0);
	return (struct device_times){.busy_ns = computing_ns - (is_group ? 0 : d->stall_ns), .idle_ns = idle_ns > 0 ? idle_ns : 0};
}

void prediction_close(struct prediction *p)
{
	report_close(&p->report);
	memset(p, 0, sizeof *p);
}
