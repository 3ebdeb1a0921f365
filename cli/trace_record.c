// The coordinator's status tells the last round trip of each link and how many there were: between it and each node, and from each stage to the next
// one. Nodes and coordinator ping once a second; asking five times as often sees each of them.
#include "cli/trace_record.h"

#include "cli/admin_command.h"
#include "net/loop.h"
#include "sim/trace.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define ASK_EVERY_MS 200
#define LOST_EVERY_NS INT64_C(1000000000) // of a link whose node is away: as often as it would be pinged
#define LINKS_MAX (4 * NODES_MAX)         // each node's own and its way to the next, over a few plans
#define PATH_CAP 640
#define NS_PER_MS 1e6

struct recorded {
	char ends[2][NAME_CAP]; // as nodes call themselves
	char path[PATH_CAP];
	FILE *file;
	long long n_seen;   // by the coordinator's count
	int64_t last_ns;    // time of the last sample, since the start
	long long n, n_lost, n_missed;
};

struct recording {
	const struct command_ctx *ctx;
	const char *folder;
	bool has_folder;
	int64_t start_ns;
	int32_t n_links;
	struct recorded links[LINKS_MAX];
	struct errmsg *em;
};

static volatile sig_atomic_t was_interrupted;

static void on_interrupt(int signo)
{
	(void)signo;
	was_interrupted = 1;
}

static int64_t since_start_ns(const struct recording *r)
{
	return loop_clock_ns() - r->start_ns;
}

// ---- Files

// file_part makes a name fit for a file: a node calls itself what it likes.
static void file_part(const char *name, char out[NAME_CAP])
{
	size_t n = 0;
	for (; name[n] != '\0' && n < NAME_CAP - 1; n++)
		out[n] = isalnum((unsigned char)name[n]) || strchr("._-", name[n]) ? name[n] : '_';
	out[n] = '\0';
	if (out[0] == '.')
		out[0] = '_';
}

static bool is_path_taken(const struct recording *r, const char *path)
{
	for (int32_t i = 0; i < r->n_links; i++)
		if (strcmp(r->links[i].path, path) == 0)
			return true;
	return false;
}

static enum err open_file(struct recording *r, struct recorded *l)
{
	char a[NAME_CAP], b[NAME_CAP], line[TRACE_CSV_LINE_CAP];
	file_part(l->ends[0], a);
	file_part(l->ends[1], b);
	snprintf(l->path, PATH_CAP, "%.500s/%s-%s.csv", r->folder, a, b);
	for (int k = 2; is_path_taken(r, l->path); k++)
		snprintf(l->path, PATH_CAP, "%.500s/%s-%s.%d.csv", r->folder, a, b, k);
	l->file = fopen(l->path, "wb");
	if (l->file == NULL)
		return errmsg_fail(r->em, ERR_IO, "%.300s: %s", l->path, strerror(errno));
	fprintf(l->file, "# hearth trace record: round trips between %s and %s, a ping a second on their encrypted link\n", a, b);
	fwrite(line, 1, trace_csv_header(false, line), l->file);
	r->n_links++;
	return OK;
}

static struct recorded *find_link(struct recording *r, const char *a, const char *b)
{
	for (int32_t i = 0; i < r->n_links; i++)
		if (strcmp(r->links[i].ends[0], a) == 0 && strcmp(r->links[i].ends[1], b) == 0)
			return &r->links[i];
	return NULL;
}

// make_link returns the link of two names, begun if need be; NULL: em says why.
static struct recorded *make_link(struct recording *r, const char *a, const char *b)
{
	struct recorded *l = find_link(r, a, b);
	if (l != NULL)
		return l;
	if (r->n_links == LINKS_MAX) {
		errmsg_fail(r->em, ERR_LIMIT, "more than %d links in one recording", LINKS_MAX);
		return NULL;
	}
	l = &r->links[r->n_links];
	*l = (struct recorded){.n_seen = -1};
	snprintf(l->ends[0], NAME_CAP, "%.63s", a);
	snprintf(l->ends[1], NAME_CAP, "%.63s", b);
	return open_file(r, l) == OK ? l : NULL;
}

static enum err add_sample(struct recording *r, struct recorded *l, int64_t t_ns, int64_t rtt_ns)
{
	char line[TRACE_CSV_LINE_CAP];
	// Times never decrease: a long round trip began before the sample that was seen last.
	l->last_ns = t_ns > l->last_ns ? t_ns : l->last_ns;
	const struct trace_sample s = {.t_ns = l->last_ns, .rtt_ns = rtt_ns};
	fwrite(line, 1, trace_csv_line(&s, false, line), l->file);
	l->n++;
	l->n_lost += rtt_ns < 0;
	return fflush(l->file) == 0 ? OK : errmsg_fail(r->em, ERR_IO, "%.300s: cannot write: %s", l->path, strerror(errno));
}

// ---- What the coordinator says

static const char *name_of(const json_t *node)
{
	const char *s = json_string_value(json_object_get(node, "name"));
	return s ? s : "";
}

// note takes a link's last round trip, when it is a new one. The first one seen began before the recording.
static enum err note(struct recording *r, const char *a, const char *b, const json_t *node, const char *ms_key, const char *n_key)
{
	const json_t *count = json_object_get(node, n_key), *ms = json_object_get(node, ms_key);
	if (!json_is_integer(count) || !json_is_number(ms))
		return OK;
	struct recorded *l = make_link(r, a, b);
	if (l == NULL)
		return ERR_IO;
	long long n = (long long)json_integer_value(count), before = l->n_seen;
	l->n_seen = n;
	if (before < 0 || n == before)
		return OK;
	l->n_missed += n > before + 1 ? n - before - 1 : 0;
	int64_t rtt_ns = (int64_t)(json_number_value(ms) * NS_PER_MS);
	return add_sample(r, l, since_start_ns(r) - rtt_ns, rtt_ns);
}

static enum err note_absent(struct recording *r, const char *a, const char *b)
{
	struct recorded *l = find_link(r, a, b);
	if (l == NULL || l->n == 0 || since_start_ns(r) - l->last_ns < LOST_EVERY_NS)
		return OK;
	return add_sample(r, l, since_start_ns(r), -1);
}

static const json_t *node_of_stage(const json_t *nodes, json_int_t stage)
{
	for (size_t i = 0; i < json_array_size(nodes); i++) {
		const json_t *s = json_object_get(json_array_get(nodes, i), "stage");
		if (json_is_integer(s) && json_integer_value(s) == stage)
			return json_array_get(nodes, i);
	}
	return NULL;
}

static enum err note_all(struct recording *r, const json_t *status)
{
	const json_t *nodes = json_object_get(status, "nodes");
	enum err e = OK;
	for (size_t i = 0; i < json_array_size(nodes) && e == OK; i++) {
		const json_t *node = json_array_get(nodes, i), *stage = json_object_get(node, "stage");
		const char *state = json_string_value(json_object_get(node, "state"));
		if (json_is_true(json_object_get(node, "local")))
			continue;
		e = note(r, "coordinator", name_of(node), node, "rtt_ms", "rtt_n");
		if (e == OK && state && strcmp(state, "absent") == 0)
			e = note_absent(r, "coordinator", name_of(node));
		const json_t *next = json_is_integer(stage) ? node_of_stage(nodes, json_integer_value(stage) + 1) : NULL;
		if (e == OK && next)
			e = note(r, name_of(node), name_of(next), node, "next_rtt_ms", "next_rtt_n");
	}
	return e;
}

// make_folder comes after the first answer: without a coordinator there is nothing to keep.
static enum err make_folder(struct recording *r)
{
	if (mkdir(r->folder, 0777) != 0 && errno != EEXIST)
		return errmsg_fail(r->em, ERR_IO, "%.300s: %s", r->folder, strerror(errno));
	r->has_folder = true;
	return OK;
}

static enum err run(struct recording *r)
{
	int64_t end_ns = (int64_t)r->ctx->opts->trace_seconds * 1000000000;
	while (!was_interrupted && since_start_ns(r) < end_ns) {
		json_t *status;
		enum err e = admin_ask(r->ctx, json_pack("{s:s}", "cmd", "status"), &status, r->em);
		if (e == OK && !r->has_folder)
			e = make_folder(r);
		if (e == OK)
			e = note_all(r, status);
		json_decref(status);
		if (e != OK)
			return e;
		const struct timespec pause = {.tv_nsec = ASK_EVERY_MS * 1000000L};
		nanosleep(&pause, NULL); // a signal ends it early
	}
	return OK;
}

static enum err say_result(const struct recording *r)
{
	json_t *list = json_array();
	for (int32_t i = 0; i < r->n_links; i++) {
		const struct recorded *l = &r->links[i];
		if (!r->ctx->opts->json)
			printf("%s: %lld samples, %lld lost%s\n", l->path, l->n, l->n_lost, l->n_missed > 0 ? " (some were missed: this machine was busy)" : "");
		json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I}", "file", l->path, "n", (json_int_t)l->n, "n_lost", (json_int_t)l->n_lost, "n_missed",
			(json_int_t)l->n_missed));
	}
	json_t *o = json_pack("{s:o}", "links", list);
	if (r->ctx->opts->json) {
		json_dumpf(o, stdout, JSON_COMPACT);
		putchar('\n');
	}
	json_decref(o);
	return fflush(stdout) == 0 ? OK : errmsg_fail(r->em, ERR_IO, "cannot write to standard output");
}

enum err trace_record(const struct command_ctx *ctx, struct errmsg *em)
{
	const char *folder = ctx->opts->trace_subject;
	struct sigaction stop = {.sa_handler = on_interrupt};
	if (folder == NULL)
		return errmsg_fail(em, ERR_USAGE, "FOLDER is missing: hearth trace record FOLDER");
	struct recording *r = calloc(1, sizeof *r);
	if (r == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the recording");
	r->ctx = ctx;
	r->folder = folder;
	r->em = em;
	r->start_ns = loop_clock_ns();
	sigaction(SIGINT, &stop, NULL); // what was recorded so far is a trace, too
	sigaction(SIGTERM, &stop, NULL);
	enum err e = run(r);
	for (int32_t i = 0; i < r->n_links; i++)
		if (fclose(r->links[i].file) != 0 && e == OK)
			e = errmsg_fail(em, ERR_IO, "%.300s: cannot write: %s", r->links[i].path, strerror(errno));
	if (e == OK)
		e = say_result(r);
	free(r);
	return e;
}
