// What `hearth sim run` prints of a swarm.
#include "cli/sim_run.h"

#include <inttypes.h>

static void print_quantiles(FILE *to, const char *name, const struct report_quantiles *q)
{
	fprintf(to, "%-36s %10.2f %10.2f %10.2f\n", name, q->p50, q->p90, q->p99);
}

static void print_derived(FILE *to, const struct scenario *s)
{
	fprintf(to, "\nfigures that nobody measured:\n");
	for (int32_t i = 0; i < s->n_derived; i++)
		fprintf(to, "  %s = %s%s%s\n", s->derived[i].name, s->derived[i].value, s->derived[i].why[0] ? ": " : "", s->derived[i].why);
	if (s->swarm.stay_s > 0)
		fprintf(to, "  volunteers stay %.0f s and are away %.0f s in the mean, both exponential; %.0f %% of those who go say so\n", s->swarm.stay_s, s->swarm.away_s,
			100 * s->swarm.orderly);
}

void sim_run_print_swarm(FILE *to, const struct scenario *s, const struct swarm_result *r)
{
	fprintf(to, "%s: %s\n%d volunteers, %d standing by; all chains ready after %.1f s; %.0f s with requests every %.1f s (%d tokens of prompt, %d of answer)\n\n",
		s->name, s->about, s->swarm.n_members, r->n_standing_by, r->ready_s, s->duration_s, s->swarm.every_s, s->swarm.n_prompt, s->swarm.n_predict);
	fprintf(to, "requests %d: answered %d, failed %d, still open %d; %" PRIu64 " tokens, %.2f per second\n", r->n_requests, r->n_answered, r->n_failed, r->n_open,
		r->counts.n_tokens, (double)r->counts.n_tokens / s->duration_s);
	if (r->n_open > 0)
		fprintf(to, "the open ones were asked for within the last %.0f s\n", r->oldest_open_s);
	fprintf(to, "%-36s %10s %10s %10s\n", "seconds", "half", "90 %", "99 %");
	print_quantiles(to, "to the first token (TTFT)", &r->ttft);
	print_quantiles(to, "per token (TPOT)", &r->tpot);
	print_quantiles(to, "to the last token", &r->e2e);
	print_quantiles(to, "longest wait between two tokens", &r->longest_gap);
	fprintf(to, "\n%-8s %9s %10s %14s %10s\n", "chain", "machines", "ready", "answers at once", "tokens");
	for (int32_t i = 0; i < r->n_chains; i++)
		fprintf(to, "%-8d %9d %8.2f %% %15.2f %10" PRIu64 "\n", i, r->chains[i].n_stages, 100 * r->chains[i].ready, r->chains[i].n_active, r->chains[i].n_tokens);
	fprintf(to, "\nvolunteers that went %d (%d said so), came back %d; machines of a chain lost without a word %u, two at once %u\n", r->n_left, r->n_left_orderly,
		r->n_returned, r->counts.n_node_losses, r->counts.n_double_losses);
	fprintf(to, "plans %u; answers that went on after a loss %" PRIu64 ", in another chain %" PRIu64 "; batches of lost layers only %u\n", r->counts.n_plans,
		r->n_recovered, r->n_moved, r->counts.n_partial);
	fprintf(to, "events %" PRIu64 ", frames %" PRIu64 ", history %016" PRIx64 "\n", r->counts.n_events, r->counts.n_frames, r->history);
	print_derived(to, s);
}

static void json_quantiles(FILE *to, const char *name, const struct report_quantiles *q)
{
	fprintf(to, "\"%s\": {\"p50\": %.6f, \"p90\": %.6f, \"p99\": %.6f}, ", name, q->p50, q->p90, q->p99);
}

void sim_run_print_swarm_json(FILE *to, const struct scenario *s, const struct swarm_result *r)
{
	fprintf(to, "{\"scenario\": \"%s\", \"host\": \"swarm\", \"volunteers\": %d, \"standing_by\": %d, \"ready_s\": %.3f, \"duration_s\": %.3f, ", s->name, s->swarm.n_members,
		r->n_standing_by, r->ready_s, s->duration_s);
	fprintf(to, "\"requests\": %d, \"answered\": %d, \"failed\": %d, \"open\": %d, \"oldest_open_s\": %.3f, \"tokens\": %" PRIu64 ", ", r->n_requests, r->n_answered,
		r->n_failed, r->n_open, r->oldest_open_s, r->counts.n_tokens);
	json_quantiles(to, "ttft_s", &r->ttft);
	json_quantiles(to, "tpot_s", &r->tpot);
	json_quantiles(to, "e2e_s", &r->e2e);
	json_quantiles(to, "longest_gap_s", &r->longest_gap);
	fprintf(to, "\"chains\": [");
	for (int32_t i = 0; i < r->n_chains; i++)
		fprintf(to, "%s{\"machines\": %d, \"ready\": %.6f, \"active\": %.6f, \"tokens\": %" PRIu64 "}", i > 0 ? ", " : "", r->chains[i].n_stages, r->chains[i].ready,
			r->chains[i].n_active, r->chains[i].n_tokens);
	fprintf(to, "], \"left\": %d, \"left_orderly\": %d, \"returned\": %d, \"losses\": %u, \"double_losses\": %u, \"plans\": %u, ", r->n_left, r->n_left_orderly,
		r->n_returned, r->counts.n_node_losses, r->counts.n_double_losses, r->counts.n_plans);
	fprintf(to, "\"recovered\": %" PRIu64 ", \"moved\": %" PRIu64 ", \"events\": %" PRIu64 ", \"history\": \"%016" PRIx64 "\"}\n", r->n_recovered, r->n_moved,
		r->counts.n_events, r->history);
}
