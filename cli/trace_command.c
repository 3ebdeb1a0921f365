// hearth trace: traces of links made from profiles, and any trace file shown in a few lines.
#include "cli/command.h"
#include "cli/read_text.h"
#include "cli/trace_record.h"

#include "base/arena.h"
#include "base/printable.h"
#include "sim/trace_generate.h"
#include "sim/trace_set.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS 1000000

static double to_ms(int64_t ns)
{
	return (double)ns / NS_PER_MS;
}

// Showing

struct shown {
	const char *name;
	const struct trace *t;
	struct trace_summary s;
	double sigmas[6]; // of a table: least, p50, p90, p99, p99.9, most
};

static int compare_i16(const void *a, const void *b)
{
	return *(const int16_t *)a - *(const int16_t *)b;
}

static enum err summarise(struct shown *x, struct errmsg *em)
{
	static const size_t thousandths[] = {0, 500, 900, 990, 999, 1000};
	const struct trace *t = x->t;
	size_t size = t->kind == TRACE_TABLE ? sizeof(int16_t) : sizeof(int64_t);
	void *scratch = malloc(t->n * size);
	if (scratch == NULL)
		return errmsg_fail(em, ERR_NOMEM, "%s: no memory for %zu numbers", x->name, t->n);
	trace_summarise(t, t->kind == TRACE_DELAY ? scratch : NULL, &x->s);
	if (t->kind == TRACE_TABLE) {
		int16_t *sorted = scratch;
		memcpy(sorted, t->table, t->n * size);
		qsort(sorted, t->n, size, compare_i16);
		for (size_t i = 0; i < ARRAY_LEN(thousandths); i++) {
			size_t rank = (t->n * thousandths[i] + 999) / 1000;
			x->sigmas[i] = (double)sorted[rank > 0 ? rank - 1 : 0] / TRACE_TABLE_SIGMA;
		}
	}
	free(scratch);
	return OK;
}

static void print_delays(const struct shown *x)
{
	const struct trace_summary *s = &x->s;
	printf("  %-12s %zu in %.1f s, %zu lost (%.2f %%)\n", "samples", s->n, (double)s->duration_ns / 1e9, s->n_lost,
		100.0 * (double)s->n_lost / (double)s->n);
	printf("  %-12s p50 %.3g, p90 %.3g, p99 %.4g, p99.9 %.4g ms\n", "round trip", to_ms(s->p50_ns), to_ms(s->p90_ns), to_ms(s->p99_ns), to_ms(s->p999_ns));
	printf("  %-12s least %.3g, mean %.3g, most %.4g ms\n", "", to_ms(s->min_ns), to_ms(s->mean_ns), to_ms(s->max_ns));
	if (s->mean_bps > 0)
		printf("  %-12s %.4g Mbit/s on average\n", "rate", (double)s->mean_bps / 1e6);
	if (x->t->n_duplicates > 0)
		printf("  %-12s %zu, passed over\n", "duplicates", x->t->n_duplicates);
}

static void print_text(const struct shown *x)
{
	char name[512];
	printf("%s: %s\n", printable_copy(x->name, strlen(x->name), name, sizeof name), trace_format_name(x->t->format));
	if (x->t->kind == TRACE_DELAY)
		print_delays(x);
	else if (x->t->kind == TRACE_DELIVERIES)
		printf("  %-12s %zu of %d bytes in %.3f s, then again\n  %-12s %.4g Mbit/s on average\n", "deliveries", x->s.n, TRACE_OPPORTUNITY_BYTES,
			(double)x->s.duration_ns / 1e9, "rate", (double)x->s.mean_bps / 1e6);
	else
		printf("  %-12s %zu\n  %-12s least %.3f, p50 %.3f, p90 %.3f, p99 %.3f, p99.9 %.3f, most %.3f\n", "numbers", x->s.n, "sigmas", x->sigmas[0],
			x->sigmas[1], x->sigmas[2], x->sigmas[3], x->sigmas[4], x->sigmas[5]);
}

// print_json names quantiles alike for every kind: of round trips in ms, or of a table in sigmas.
static enum err print_json(const struct shown *x, struct errmsg *em)
{
	static const char *const names[] = {"min", "p50", "p90", "p99", "p99_9", "max"};
	const struct trace_summary *s = &x->s;
	double v[] = {to_ms(s->min_ns), to_ms(s->p50_ns), to_ms(s->p90_ns), to_ms(s->p99_ns), to_ms(s->p999_ns), to_ms(s->max_ns)};
	const double *values = x->t->kind == TRACE_TABLE ? x->sigmas : v;
	json_t *root = json_object(), *quantiles = json_object();
	int bad = 0;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		bad |= json_object_set_new(quantiles, names[i], json_real(values[i]));
	bad |= json_object_set_new(root, "format", json_string(trace_format_name(x->t->format)));
	bad |= json_object_set_new(root, "n", json_integer((json_int_t)s->n));
	bad |= json_object_set_new(root, "n_lost", json_integer((json_int_t)s->n_lost));
	bad |= json_object_set_new(root, "duration_s", json_real((double)s->duration_ns / 1e9));
	if (x->t->kind == TRACE_DELAY) {
		bad |= json_object_set_new(quantiles, "mean", json_real(to_ms(s->mean_ns)));
		bad |= json_object_set(root, "rtt_ms", quantiles);
	} else if (x->t->kind == TRACE_TABLE) {
		bad |= json_object_set(root, "sigmas", quantiles);
	}
	if (s->mean_bps > 0)
		bad |= json_object_set_new(root, "rate_mbit", json_real((double)s->mean_bps / 1e6));
	bad = bad || json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0;
	putchar('\n');
	json_decref(quantiles);
	json_decref(root);
	return bad ? errmsg_fail(em, ERR_IO, "cannot write the summary as JSON") : OK;
}

static enum err show_trace(const struct options *o, const char *name, const struct trace *t, struct errmsg *em)
{
	struct shown x = {.name = name, .t = t};
	enum err e = summarise(&x, em);
	if (e == OK && o->json)
		e = print_json(&x, em);
	else if (e == OK)
		print_text(&x);
	if (e == OK && fflush(stdout) != 0)
		e = errmsg_fail(em, ERR_IO, "cannot write to standard output");
	return e;
}

static enum trace_format format_of(const char *word)
{
	static const char *const words[] = {[TRACE_CSV] = "csv", [TRACE_PING] = "ping", [TRACE_MAHIMAHI] = "mahimahi", [TRACE_NETEM] = "netem"};
	for (size_t i = TRACE_CSV; word != NULL && i < ARRAY_LEN(words); i++)
		if (strcmp(word, words[i]) == 0)
			return (enum trace_format)i;
	return TRACE_AUTO;
}

static enum err show_text(const struct options *o, const char *name, const char *text, size_t len, struct errmsg *em)
{
	struct arena a = {.data = NULL};
	struct trace t;
	enum err e = trace_open(name, text, len, format_of(o->trace_format), &a, &t, em);
	if (e == OK)
		e = show_trace(o, name, &t, em);
	arena_close(&a);
	return e;
}

static enum err show(const struct options *o, struct errmsg *em)
{
	if (o->trace_subject == NULL)
		return errmsg_fail(em, ERR_USAGE, "FILE is missing: hearth trace show FILE");
	bool is_stdin = strcmp(o->trace_subject, "-") == 0;
	const char *name = is_stdin ? "standard input" : o->trace_subject;
	FILE *from = is_stdin ? stdin : fopen(name, "rb");
	char *text;
	size_t len;
	if (from == NULL)
		return errmsg_fail(em, ERR_IO, "%s: %s", name, strerror(errno));
	enum err e = read_text(name, from, TRACE_BYTES_MAX, &text, &len, em);
	if (e == OK)
		e = show_text(o, name, text, len, em);
	free(text);
	if (!is_stdin)
		fclose(from);
	return e;
}

// Generating

static enum err find_profile(const struct options *o, const struct profile **p, struct errmsg *em)
{
	if (o->trace_subject == NULL)
		return errmsg_fail(em, ERR_USAGE, "PROFILE is missing: hearth trace generate W1, for example");
	*p = profile_find(o->trace_subject);
	if (*p == NULL)
		return errmsg_fail(em, ERR_USAGE, "no profile %.40s (want W0 to W9, or W5b)", o->trace_subject);
	*p = profile_of_station(*p, o->station);
	return OK;
}

static enum err write_csv(const struct options *o, FILE *to, const struct trace *t)
{
	char line[TRACE_CSV_LINE_CAP];
	const struct profile *p = profile_find(o->trace_subject);
	fprintf(to, "# hearth trace generate %s --seconds %" PRId32 " --interval-ms %" PRId32 " --seed %" PRIu64, p->name, o->trace_seconds, o->interval_ms,
		o->trace_seed);
	if (o->station > 0)
		fprintf(to, " --station %" PRId32, o->station);
	fprintf(to, "\n# %s\n", p->words);
	fwrite(line, 1, trace_csv_header(false, line), to);
	for (size_t i = 0; i < t->n; i++)
		fwrite(line, 1, trace_csv_line(&t->samples[i], false, line), to);
	return ferror(to) || fflush(to) != 0 ? ERR_IO : OK;
}

static enum err write_output(const struct options *o, const struct trace *t, struct errmsg *em)
{
	FILE *to = fopen(o->output, "wb");
	if (to == NULL)
		return errmsg_fail(em, ERR_IO, "%s: %s", o->output, strerror(errno));
	enum err e = write_csv(o, to, t);
	if (fclose(to) != 0)
		e = ERR_IO;
	return e == OK ? OK : errmsg_fail(em, ERR_IO, "%s: cannot write: %s", o->output, strerror(errno));
}

static enum err write_trace(const struct options *o, const struct profile *p, struct trace_sample *samples, size_t n, struct errmsg *em)
{
	int64_t interval_ns = (int64_t)o->interval_ms * NS_PER_MS;
	// Stations draw for themselves and share their access point's restart.
	trace_generate(p, o->trace_seed + (uint64_t)o->station * UINT64_C(0x9e3779b97f4a7c15), o->trace_seed, interval_ns, samples, n);
	struct trace t = {.kind = TRACE_DELAY, .format = TRACE_CSV, .n = n, .samples = samples, .period_ns = (int64_t)n * interval_ns};
	for (size_t i = 0; i < n; i++)
		t.n_lost += samples[i].rtt_ns < 0;
	if (o->output == NULL)
		return write_csv(o, stdout, &t) == OK ? OK : errmsg_fail(em, ERR_IO, "cannot write to standard output");
	enum err e = write_output(o, &t, em);
	return e == OK ? show_trace(o, o->output, &t, em) : e;
}

static enum err generate(const struct options *o, struct errmsg *em)
{
	const struct profile *p;
	enum err e = find_profile(o, &p, em);
	if (e != OK)
		return e;
	if (o->json && o->output == NULL)
		return errmsg_fail(em, ERR_USAGE, "--json prints a summary where the CSV would go: give --output FILE as well");
	int64_t n = (int64_t)o->trace_seconds * 1000 / o->interval_ms;
	n = n > 0 ? n : 1;
	if (n > TRACE_SAMPLES_MAX)
		return errmsg_fail(em, ERR_LIMIT, "%lld samples, at most %d: fewer --seconds or a longer --interval-ms", (long long)n, TRACE_SAMPLES_MAX);
	struct trace_sample *samples = malloc((size_t)n * sizeof *samples);
	if (samples == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for %lld samples", (long long)n);
	e = write_trace(o, p, samples, (size_t)n, em);
	free(samples);
	return e;
}

int trace_main(const struct command_ctx *ctx)
{
	const struct options *o = ctx->opts;
	struct errmsg em;
	enum err e;
	if (strcmp(o->trace_action, "generate") == 0)
		e = generate(o, &em);
	else if (strcmp(o->trace_action, "show") == 0)
		e = show(o, &em);
	else
		e = trace_record(ctx, &em);
	if (e == OK)
		return EXIT_DONE;
	return e == ERR_USAGE ? command_refuse(ctx->command_name, em.text) : command_fail(ctx, "%s", em.text);
}
