// `hearth sim run SCENARIO`: reads the scenario and the traces it names, runs it, writes text or JSON and the pictures.
#include "cli/sim_run.h"

#include "cli/command.h"

#include <errno.h>
#include <string.h>

#define PATH_CAP 4096

// Files are named as seen from the scenario's folder.
struct files {
	const char *scenario_path;
	struct mapped_file open; // the last one
};

static enum err load(void *ctx, const char *path, const char **text, size_t *len, struct errmsg *em)
{
	struct files *f = ctx;
	char full[PATH_CAP];
	const char *slash = strrchr(f->scenario_path, '/');
	int folder = path[0] == '/' || slash == NULL ? 0 : (int)(slash - f->scenario_path) + 1;
	if ((size_t)snprintf(full, sizeof full, "%.*s%s", folder, f->scenario_path, path) >= sizeof full)
		return errmsg_fail(em, ERR_LIMIT, "%.100s: a path of more than %d bytes", path, PATH_CAP - 1);
	mapped_file_close(&f->open);
	enum err e = mapped_file_open(full, &f->open, em);
	if (e != OK)
		return errmsg_prefix(em, e, "%.200s", full);
	*text = (const char *)f->open.data;
	*len = f->open.bytes;
	return OK;
}

bool sim_run_is_model(const struct mapped_file *f)
{
	return f->bytes >= 4 && memcmp(f->data, "GGUF", 4) == 0;
}

typedef enum err scenario_opener(const char *name, const char *text, size_t len, const struct trace_loader *loader, struct scenario *out,
	struct errmsg *em);

static enum err open_with(scenario_opener *open, const char *path, struct scenario *s, struct errmsg *em)
{
	struct mapped_file file;
	struct files files = {.scenario_path = path};
	struct trace_loader loader = {.ctx = &files, .load = load};
	enum err e = mapped_file_open(path, &file, em);
	if (e != OK)
		return errmsg_prefix(em, e, "%.200s", path);
	if (sim_run_is_model(&file))
		e = errmsg_fail(em, ERR_FORMAT, "%.200s: is a model, want a TOML file that describes machines", path);
	else
		e = open(path, (const char *)file.data, file.bytes, &loader, s, em);
	mapped_file_close(&files.open);
	mapped_file_close(&file);
	return e;
}

enum err sim_run_open(const char *path, struct scenario *s, struct errmsg *em)
{
	return open_with(scenario_open, path, s, em);
}

enum err sim_run_open_cluster(const char *path, struct scenario *s, struct errmsg *em)
{
	return open_with(scenario_open_cluster, path, s, em);
}

static void print_svg(FILE *to, const struct scenario *s, const struct prediction *p)
{
	char title[NAME_CAP + SCENARIO_TEXT_CAP];
	snprintf(title, sizeof title, "%s: %s", s->name, s->about[0] ? s->about : s->model_name);
	report_svg(&p->report, title, to);
}

static void print_trace(FILE *to, const struct scenario *s, const struct prediction *p)
{
	(void)s;
	report_chrome_trace(&p->report, to);
}

static enum err write_file(const char *path, void (*print)(FILE *, const struct scenario *, const struct prediction *),
	const struct scenario *s, const struct prediction *p, struct errmsg *em)
{
	FILE *to = fopen(path, "we");
	if (to == NULL)
		return errmsg_fail(em, ERR_IO, "%.200s: cannot open: %s", path, strerror(errno));
	print(to, s, p);
	bool failed = ferror(to) != 0;
	failed = fclose(to) != 0 || failed;
	return failed ? errmsg_fail(em, ERR_IO, "%.200s: cannot write: %s", path, strerror(errno)) : OK;
}

static enum err print_all(const struct options *o, const struct scenario *s, const struct prediction *p, struct errmsg *em)
{
	enum err e = o->sim_svg ? write_file(o->sim_svg, print_svg, s, p, em) : OK;
	if (e == OK && o->sim_trace)
		e = write_file(o->sim_trace, print_trace, s, p, em);
	if (e != OK)
		return e;
	if (o->json)
		e = sim_run_print_json(stdout, s, p);
	else
		sim_run_print(stdout, s, p);
	if (e == OK && fflush(stdout) != 0)
		e = ERR_IO;
	return e == OK ? OK : errmsg_fail(em, e, "cannot write to standard output");
}

static enum err run_swarm(const struct options *o, const struct scenario *s, struct errmsg *em)
{
	struct swarm_result r;
	if (o->sim_svg || o->sim_trace)
		return errmsg_fail(em, ERR_RANGE, "a scenario with a placement has figures only: leave out --svg and --trace");
	enum err e = swarm_run(s, &r, em);
	if (e != OK)
		return e;
	if (o->json)
		sim_run_print_swarm_json(stdout, s, &r);
	else
		sim_run_print_swarm(stdout, s, &r);
	return fflush(stdout) == 0 ? OK : errmsg_fail(em, ERR_IO, "cannot write to standard output");
}

static enum err run_prediction(const struct options *o, const struct scenario *s, struct errmsg *em)
{
	struct prediction p;
	enum err e = prediction_run(s, &p, em);
	if (e != OK)
		return e;
	e = print_all(o, s, &p, em);
	prediction_close(&p);
	return e;
}

int sim_run(const struct command_ctx *ctx)
{
	struct errmsg em;
	struct scenario s;
	const char *path = ctx->opts->sim_subject;
	if (path == NULL)
		return command_refuse(ctx->command_name, "SCENARIO is missing: a TOML file, see sim/scenarios/");
	enum err e = sim_run_open(path, &s, &em);
	if (e != OK)
		return command_fail(ctx, "%s", em.text);
	e = s.swarm.n_chains > 0 ? run_swarm(ctx->opts, &s, &em) : run_prediction(ctx->opts, &s, &em);
	scenario_close(&s);
	return e == OK ? EXIT_DONE : command_fail(ctx, "%s", em.text);
}
