// What `hearth sim run` tells people.
#include "cli/sim_run.h"

#include "sim/quantity.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static struct quantity_text time_text(double s)
{
	struct quantity_text none = {"-"};
	return isnan(s) ? none : quantity_print(QUANTITY_TIME, s);
}

static struct quantity_text bytes_text(double bytes)
{
	return quantity_print(QUANTITY_BYTES, bytes);
}

static void print_plan(FILE *to, const struct scenario *s)
{
	const struct cost_plan *p = &s->plan;
	if (s->group.exchange != EXCHANGE_NONE) {
		fprintf(to,
			"  plan      %" PRId32 " machines compute each layer together, %" PRId32 " exchanges per layer (%s)\n",
			s->n_devices, s->group.per_layer, scenario_exchange_name(s->group.exchange));
		return;
	}
	fprintf(to, "  plan      ");
	for (int32_t i = 0; i < p->n_stages; i++)
		fprintf(to, "%s%s %" PRId32, i > 0 ? ", " : "", s->devices[p->stages[i].device].name, p->stages[i].n_layers);
	fprintf(to, " layers%s; %" PRId32 " round%s; coordinator %s\n", s->is_even ? " (even)" : "", p->n_rounds,
		p->n_rounds > 1 ? "s" : "", s->devices[p->head].name);
}

static void print_model(FILE *to, const struct scenario *s, const struct prediction *p)
{
	if (p->host == PREDICTION_GROUP) {
		fprintf(to, "\nCost model (mean delays, idle cluster): TPOT %s, TTFT %s; one exchange %s\n",
			time_text(p->tpot_s).text, time_text(p->ttft_s).text, time_text(p->exchange_s).text);
		return;
	}
	fprintf(to, "\nCost model (mean delays, idle cluster): TPOT %s, TTFT %s\n", time_text(p->tpot_s).text,
		time_text(p->ttft_s).text);
	fprintf(to, "  of one token: visits %s, hops %s, output head %s", time_text(p->closed.visits_s).text,
		time_text(p->closed.hop_s).text, time_text(p->closed.head_s).text);
	if (p->closed.disk_stage >= 0)
		fprintf(to, "; the busiest disk (%s) reads %s", s->devices[s->plan.stages[p->closed.disk_stage].device].name,
			time_text(p->closed.disk_s).text);
	fputc('\n', to);
}

static void print_quantiles(FILE *to, const char *name, const struct report_quantiles *q)
{
	fprintf(to, "  %-22s %10s %10s %10s %10s\n", name, time_text(q->p50).text, time_text(q->p90).text, time_text(q->p99).text,
		time_text(q->mean).text);
}

static void print_requests(FILE *to, const struct scenario *s, const struct prediction *p)
{
	const struct report_summary *m = &p->summary;
	fprintf(to, "\nSimulated (%s): %" PRId32 " request%s, %" PRId64 " tokens", prediction_host_name(p->host), s->n_requests,
		s->n_requests > 1 ? "s" : "", m->n_tokens);
	if (m->n_failed > 0)
		fprintf(to, ", %" PRId32 " failed", m->n_failed);
	fprintf(to, "\n  %-22s %10s %10s %10s %10s\n", "", "median", "p90", "p99", "mean");
	print_quantiles(to, "TTFT", &m->ttft);
	print_quantiles(to, "TPOT", &m->tpot);
	print_quantiles(to, "between two tokens", &m->gap);
	if (m->tpot.n > 0)
		fprintf(to, "  %.3g tokens/s in one answer, %.3g tokens/s in all\n", 1 / m->tpot.p50, m->tokens_per_s);
	if (p->timed_out)
		fprintf(to, "  not finished: the scenario's duration, %s, ended first\n", time_text(s->duration_s).text);
}

static const struct cost_layout *layout_of(const struct scenario *s, const struct prediction *p, int32_t device, int32_t *layers)
{
	*layers = 0;
	for (int32_t i = 0; i < s->plan.n_stages; i++) {
		if (s->plan.stages[i].device != device)
			continue;
		*layers = s->plan.stages[i].n_layers;
		return &p->layouts[i];
	}
	return NULL;
}

static struct quantity_text percent(int64_t ns, double span_s)
{
	struct quantity_text out = {"-"};
	if (span_s > 0)
		snprintf(out.text, sizeof out.text, "%.1f %%", (double)ns / 1e7 / span_s);
	return out;
}

static void print_devices(FILE *to, const struct scenario *s, const struct prediction *p)
{
	bool is_group = p->host == PREDICTION_GROUP;
	fprintf(to, "\n  %-16s %6s %9s %9s %8s %8s %9s %8s %8s %9s\n", "device", "layers", "in memory", "streamed", "busy",
		"idle", "waits for", "disk", "link", "sent");
	fprintf(to, "  %-16s %6s %9s %9s %8s %8s %9s %8s %8s %9s\n", "", "", "", "per step", "", "", "its disk", "", "", "");
	for (int32_t i = 0; i < s->n_devices; i++) {
		const struct report_device *d = &p->report.devices[i];
		int32_t layers;
		const struct cost_layout *l = layout_of(s, p, i, &layers);
		double span = p->summary.span_s;
		struct device_times t = prediction_device_times(p, i);
		double accel = l ? l->n_accel * (double)s->shape.layer_bytes : 0, held = l ? accel + (double)l->pinned_bytes : 0;
		if (i == s->plan.head)
			held += (double)s->shape.head_bytes;
		fprintf(to, "  %-16s %6" PRId32 " %9s %9s %8s %8s %9s %8s %8s %9s\n", d->name,
			is_group ? s->shape.n_layers : layers, is_group ? "-" : bytes_text(held).text,
			is_group ? "-" : bytes_text(l ? (double)l->streamed_bytes : 0).text, percent(t.busy_ns, span).text,
			percent(t.idle_ns, span).text, percent(d->stall_ns, span).text,
			percent(d->sum_ns[REPORT_DISK], span).text, percent(d->sum_ns[REPORT_LINK], span).text,
			bytes_text((double)d->sent_bytes).text);
	}
}

static void print_deviation(FILE *to, const char *name, double published, double predicted)
{
	if (published > 0)
		fprintf(to, "  %s: published %s, predicted %s, %+.1f %%\n", name, time_text(published).text,
			time_text(predicted).text, (predicted / published - 1) * 100);
}

static void print_published(FILE *to, const struct scenario *s, const struct prediction *p)
{
	if (s->published.source[0] == '\0')
		return;
	fprintf(to, "\nPublished: %s\n", s->published.source);
	print_deviation(to, "TPOT", s->published.tpot_s, p->summary.tpot.p50);
	print_deviation(to, "TTFT", s->published.ttft_s, p->summary.ttft.p50);
	print_deviation(to, "one exchange", s->published.exchange_s, p->exchange_s);
	if (s->published.calibrates)
		fprintf(to, "  figures of the scenario were taken from this row: that it agrees proves nothing\n");
	if (s->published.note[0])
		fprintf(to, "  %s\n", s->published.note);
}

void sim_run_print(FILE *to, const struct scenario *s, const struct prediction *p)
{
	fprintf(to, "%s%s%s\n", s->name, s->about[0] ? ": " : "", s->about);
	fprintf(to, "  model     %s: %" PRId32 " layers, %s, %s per hidden state\n", s->model_name, s->shape.n_layers,
		bytes_text((double)model_shape_total_bytes(&s->shape)).text, bytes_text((double)s->shape.hop_bytes).text);
	print_plan(to, s);
	print_model(to, s, p);
	print_requests(to, s, p);
	print_devices(to, s, p);
	print_published(to, s, p);
	if (s->n_derived > 0)
		fprintf(to, "\nAssumed, not measured or published:\n");
	for (int32_t i = 0; i < s->n_derived; i++)
		fprintf(to, "  %s = %s%s%s\n", s->derived[i].name, s->derived[i].value, s->derived[i].why[0] ? ": " : "",
			s->derived[i].why);
}
