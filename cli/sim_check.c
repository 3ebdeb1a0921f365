// `hearth sim check`: seeds of simulated clusters with faults; and the smallest form of one that fails.
#include "cli/command.h"
#include "cli/sim_run.h"
#include "base/suggest.h"
#include "net/loop.h"
#include "sim/shell/check_run.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S 1e9

// ---- options

// read_number reads the digits up to `end`; decimal fractions are allowed when `is_time` (seconds into nanoseconds).
static bool read_number(const char *text, const char *end, bool is_time, uint64_t *out)
{
	char copy[32], *stop;
	size_t len = (size_t)(end - text);
	if (len == 0 || len >= sizeof copy || strspn(text, is_time ? "0123456789." : "0123456789") < len)
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	if (!is_time)
		*out = strtoull(copy, &stop, 10);
	else
		*out = (uint64_t)(strtod(copy, &stop) * S + 0.5);
	return *stop == '\0' && *out < UINT64_C(1) << 62;
}

// read_range reads "A..B", or "A" when it is no time.
static bool read_range(const char *text, bool is_time, uint64_t *first, uint64_t *last)
{
	const char *dots = strstr(text, ".."), *end = text + strlen(text);
	if (dots == NULL) {
		*last = 0;
		return !is_time && read_number(text, end, false, first) && (*last = *first) > 0;
	}
	return read_number(text, dots, is_time, first) && read_number(dots + 2, end, is_time, last) && *first <= *last && (is_time || *first > 0);
}

static enum err refuse_fault(const char *at, size_t len, struct errmsg *em)
{
	char word[40], all[300] = "";
	size_t n = 0;
	snprintf(word, sizeof word, "%.*s", len > 39 ? 39 : (int)len, at);
	struct suggest s = suggest_init(word);
	for (int i = 0; i < SIM_N_FAULTS; i++) {
		suggest_offer(&s, fault_word((enum sim_fault_class)i));
		if (n < sizeof all)
			n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i > 0 ? ", " : "", fault_word((enum sim_fault_class)i));
	}
	if (s.best)
		return errmsg_fail(em, ERR_USAGE, "--faults: no class %s, did you mean %s?", word, s.best);
	return errmsg_fail(em, ERR_USAGE, "--faults: no class %s (want some of %s, or none)", word, all);
}

static enum err read_faults(const char *text, uint32_t *classes, struct errmsg *em)
{
	*classes = SIM_ALL_FAULTS;
	if (text == NULL)
		return OK;
	*classes = 0;
	if (strcmp(text, "none") == 0)
		return OK;
	for (const char *at = text; at != NULL;) {
		const char *comma = strchr(at, ',');
		size_t len = comma ? (size_t)(comma - at) : strlen(at);
		enum sim_fault_class c = fault_find(at, len);
		if (c == SIM_N_FAULTS)
			return refuse_fault(at, len, em);
		*classes |= UINT32_C(1) << c;
		at = comma ? comma + 1 : NULL;
	}
	return OK;
}

static enum err read_options(const struct options *o, struct check_params *p, struct errmsg *em)
{
	uint64_t from_ns = 0, until_ns = INT64_MAX;
	if (!read_range(o->sim_seeds, false, &p->first, &p->last))
		return errmsg_fail(em, ERR_USAGE, "--seeds %s (want A..B or A, numbers from 1)", o->sim_seeds);
	if (o->sim_window != NULL && !read_range(o->sim_window, true, &from_ns, &until_ns))
		return errmsg_fail(em, ERR_USAGE, "--window %s (want A..B, seconds)", o->sim_window);
	p->trial.from_ns = (int64_t)from_ns;
	p->trial.until_ns = (int64_t)until_ns;
	long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
	p->n_jobs = o->sim_jobs > 0 ? o->sim_jobs : n_cores > 0 ? (int32_t)n_cores : 1;
	return read_faults(o->sim_faults, &p->trial.classes, em);
}

// ---- printing

static void print_classes(FILE *to, uint32_t classes)
{
	const char *comma = "";
	for (int i = 0; i < SIM_N_FAULTS; i++) {
		if (!(classes >> i & 1))
			continue;
		fprintf(to, "%s%s", comma, fault_word((enum sim_fault_class)i));
		comma = ",";
	}
	if (classes == 0)
		fprintf(to, "none");
}

// print_again prints the one command that runs a seed again.
static void print_again(FILE *to, uint64_t seed, const struct trial_params *t, const char *scenario)
{
	fprintf(to, "    hearth sim check %s%s--seeds %" PRIu64, scenario ? scenario : "", scenario ? " " : "", seed);
	if (t->classes != SIM_ALL_FAULTS) {
		fprintf(to, " --faults ");
		print_classes(to, t->classes);
	}
	if (t->from_ns != 0 || t->until_ns != INT64_MAX)
		fprintf(to, " --window %.3f..%.3f", (double)t->from_ns / S, (double)t->until_ns / S);
	fprintf(to, " --show\n");
}

static void print_failure(FILE *to, const struct check_failure *f, const struct trial_params *t, const char *scenario)
{
	if (f->at_ns >= 0)
		fprintf(to, "FAILED seed %" PRIu64 " at %.6f s: %s\n", f->seed, (double)f->at_ns / S, f->text);
	else
		fprintf(to, "FAILED seed %" PRIu64 ": %s\n", f->seed, f->text);
	print_again(to, f->seed, t, scenario);
}

static void print_summary(FILE *to, const struct check_summary *s, double seconds)
{
	const struct sim_counts *c = &s->counts;
	fprintf(to, "%" PRIu64 " seeds, %" PRIu64 " failed; %.0f s of virtual time in %.1f s, %.0f times faster\n", s->n_seeds, s->n_failed,
		(double)s->virtual_ns / S, seconds, (double)s->virtual_ns / S / (seconds > 0 ? seconds : 1));
	fprintf(to, "%" PRIu64 " requests: %u answered, %u ended with an error, %u cancelled, %u lost with the coordinator, %u refused; %" PRIu64
		" tokens; %u taken from the journal after a crash\n",
		s->n_requests, c->n_ended_well, c->n_ended_badly, c->n_cancelled, c->n_lost, c->n_refused, c->n_tokens, c->n_taken_up);
	fprintf(to, "%u plans, %u machines of a running plan lost; seeds with a new plan %" PRIu64 ", with a double loss %" PRIu64
		", with an answer that went on after a loss %" PRIu64 "\n",
		c->n_plans, c->n_node_losses, s->seeds_with_replan, s->seeds_with_double_loss, s->seeds_with_recovery);
	fprintf(to, "seeds with several chains %" PRIu64 ", with an answer that went on in another one %" PRIu64 "\n", s->seeds_with_chains, s->seeds_with_move);
	fprintf(to, "seeds with groups %" PRIu64 ": %u in plans, %u exchanges, %u forwards begun beside another one, %u given up, %u members of a running plan lost; %u forwards "
		"that ended with an output head\n", s->seeds_with_groups, c->n_shared, c->n_exchanges, c->n_beside, c->n_given_up, c->n_group_losses, c->n_heads);
	fprintf(to, "seeds with plans by cost %" PRIu64 ", of which groups may be %" PRIu64 "; with a move to a better one %" PRIu64 "\n", s->seeds_by_cost,
		s->seeds_may_group, s->seeds_with_better);
	fprintf(to, "%u plans of a piped ring; %u batches of lost layers only, %u states fetched from what a stage had kept\n", c->n_piped, c->n_partial, c->n_fetched);
	fprintf(to, "%u states kept on disk, %u read back, %u writes or reads refused or damaged\n", c->n_kept_disk, c->n_fetched_disk, c->n_disk_refused);
	fprintf(to, "%u parts fetched before a plan counted on them, %u loads that waited for blocks\n", c->n_prepared, c->n_waited);
	fprintf(to, "%" PRIu64 " events, %" PRIu64 " frames, %u handshakes; really encrypted %" PRIu64 " seeds, run twice %" PRIu64 "\n", c->n_events, c->n_frames,
		c->n_handshakes, s->n_encrypted, s->n_twice);
	fprintf(to, "%-12s %8s %8s\n", "faults", "drawn", "done");
	for (int i = 0; i < SIM_N_FAULTS; i++)
		if (s->drawn[i] > 0)
			fprintf(to, "%-12s %8" PRIu64 " %8" PRIu64 "  %s\n", fault_word((enum sim_fault_class)i), s->drawn[i], s->done[i], fault_words((enum sim_fault_class)i));
	fprintf(to, "history %016" PRIx64 "\n", s->histories);
}

static void print_json(FILE *to, const struct check_summary *s, double seconds)
{
	fprintf(to, "{\"seeds\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"virtual_s\": %.3f, \"seconds\": %.3f, \"history\": \"%016" PRIx64 "\", \"faults\": {",
		s->n_seeds, s->n_failed, (double)s->virtual_ns / S, seconds, s->histories);
	for (int i = 0; i < SIM_N_FAULTS; i++)
		fprintf(to, "%s\"%s\": [%" PRIu64 ", %" PRIu64 "]", i > 0 ? ", " : "", fault_word((enum sim_fault_class)i), s->drawn[i], s->done[i]);
	fprintf(to, "}, \"double_losses\": %" PRIu64 ", \"recovered\": %" PRIu64 ", \"replanned\": %" PRIu64 ", \"chains\": %" PRIu64 ", \"moved\": %" PRIu64
		", \"groups\": %" PRIu64 ", \"by_cost\": %" PRIu64 ", \"planned_groups\": %" PRIu64 ", \"better\": %" PRIu64 ", \"failures\": [", s->seeds_with_double_loss, s->seeds_with_recovery, s->seeds_with_replan, s->seeds_with_chains, s->seeds_with_move,
		s->seeds_with_groups, s->seeds_by_cost, s->seeds_may_group, s->seeds_with_better);
	for (uint32_t i = 0; i < s->n_failures; i++)
		fprintf(to, "%s%" PRIu64, i > 0 ? ", " : "", s->failures[i].seed);
	fprintf(to, "]}\n");
}

// on_progress draws one line over itself, on a terminal only.
static void on_progress(void *ctx, uint64_t n_done, uint64_t n_failed)
{
	const struct check_params *p = ctx;
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " failed ", n_done, p->last - p->first + 1, n_failed);
}

// ---- showing one seed

static void show_record(void *ctx, const struct sim_record *r)
{
	double t = (double)r->begin_ns / S;
	(void)ctx;
	switch (r->type) {
	case SIM_REC_LOG: printf("%11.6f  %s%d: %s\n", t, r->is_head ? "head " : "node ", r->machine, r->text); break;
	case SIM_REC_FAULT: printf("%11.6f  FAULT on machine %d: %s\n", t, r->machine, r->text); break;
	case SIM_REC_LINK: printf("%11.6f    link %d, %s%d to %d: %s\n", t, r->index, r->is_head ? "head " : "node ", r->machine, r->peer, r->text); break;
	case SIM_REC_PLAN: printf("%11.6f  PLAN %" PRIu64 " of %d stages\n", t, r->epoch.v, r->index); break;
	case SIM_REC_STAGE:
		printf("%11.6f    stage %d on machine %d: layers %d to %d\n", t, r->index, r->machine, r->work.layer_begin, r->work.layer_end - 1);
		break;
	case SIM_REC_SUBMIT: printf("%11.6f  request %d\n", t, r->request); break;
	case SIM_REC_TOKEN: printf("%11.6f    request %d: token %d is %d\n", t, r->request, r->index, r->token); break;
	case SIM_REC_END: printf("%11.6f  request %d ended: %s\n", t, r->request, r->text[0] ? r->text : "well"); break;
	default: break;
	}
}

static int show_seeds(const struct command_ctx *ctx, const struct check_params *p)
{
	uint64_t n_failed = 0;
	for (uint64_t seed = p->first; seed <= p->last; seed++) {
		struct trial_params t = p->trial;
		struct trial_result r;
		struct errmsg em;
		t.seed = seed;
		t.observer.on = show_record;
		setvbuf(stdout, NULL, _IOLBF, 0); // an assertion must not take the last lines with it
		printf("seed %" PRIu64 "\n", seed);
		if (trial_run(&t, &r, &em) != OK)
			return command_fail(ctx, "seed %" PRIu64 ": %s", seed, em.text);
		if (r.failed)
			printf("FAILED seed %" PRIu64 " at %.6f s: %s\n", seed, (double)r.failed_ns / S, r.failure);
		printf("seed %" PRIu64 ": history %016" PRIx64 ", %" PRIu64 " events\n", seed, r.history, r.counts.n_events);
		n_failed += r.failed;
	}
	return n_failed == 0 ? EXIT_DONE : EXIT_ERROR;
}

// ---- the command

static int shrink(const struct command_ctx *ctx, struct check_params *p)
{
	struct shrink_result r;
	struct errmsg em;
	p->trial.seed = ctx->opts->sim_shrink;
	if (check_shrink(&p->trial, &r, &em) != OK)
		return command_fail(ctx, "%s", em.text);
	struct trial_params t = p->trial;
	t.classes = r.classes;
	t.from_ns = r.from_ns;
	t.until_ns = r.until_ns;
	printf("after %d runs, seed %" PRIu64 " still fails (%s) with ", r.n_runs, t.seed, r.last.failure);
	print_classes(stdout, r.classes);
	printf(":\n");
	print_again(stdout, t.seed, &t, ctx->opts->sim_subject);
	return EXIT_DONE;
}

static int run_seeds(const struct command_ctx *ctx, struct check_params *p)
{
	struct check_summary *s = malloc(sizeof *s);
	struct errmsg em;
	if (s == NULL)
		return command_fail(ctx, "out of memory");
	p->on_progress = on_progress;
	p->ctx = p;
	int64_t start_ns = loop_clock_ns();
	if (check_run(p, s, &em) != OK) {
		free(s);
		return command_fail(ctx, "%s", em.text);
	}
	double seconds = (double)(loop_clock_ns() - start_ns) / S;
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%40s\r", "");
	FILE *failures = ctx->opts->json ? stderr : stdout;
	for (uint32_t i = 0; i < s->n_failures; i++)
		print_failure(failures, &s->failures[i], &p->trial, ctx->opts->sim_subject);
	if (s->n_failed > 0)
		fprintf(failures, "hearth %s; --shrink SEED finds the least that makes a seed fail\n", HEARTH_VERSION);
	if (ctx->opts->json)
		print_json(stdout, s, seconds);
	else
		print_summary(stdout, s, seconds);
	int code = s->n_failed == 0 ? EXIT_DONE : EXIT_ERROR;
	free(s);
	return fflush(stdout) == 0 ? code : command_fail(ctx, "cannot write to standard output");
}

int sim_check(const struct command_ctx *ctx)
{
	struct check_params p = {.trial.recovery = true};
	struct errmsg em;
	if (read_options(ctx->opts, &p, &em) != OK)
		return command_refuse(ctx->command_name, em.text);
	bool shrinks = options_given(ctx->opts, offsetof(struct options, sim_shrink));
	if (ctx->opts->json && (shrinks || ctx->opts->sim_show))
		return command_refuse(ctx->command_name, "--json prints the summary of all seeds: without --show or --shrink");
	struct scenario s = {0};
	if (ctx->opts->sim_subject != NULL) {
		if (sim_run_open(ctx->opts->sim_subject, &s, &em) != OK)
			return command_fail(ctx, "%s", em.text);
		if (s.swarm.n_chains > 0) {
			scenario_close(&s);
			return command_fail(ctx, "%s: a swarm is run, not checked: clusters with several chains are among those drawn from seeds", ctx->opts->sim_subject);
		}
		p.trial.scenario = &s;
	}
	int code;
	if (shrinks)
		code = shrink(ctx, &p);
	else
		code = ctx->opts->sim_show ? show_seeds(ctx, &p) : run_seeds(ctx, &p);
	scenario_close(&s);
	return code;
}
