// `hearth plan [MODEL] --cluster FILE | --live`: reads the machines and the model, asks the solver, explains the answer.
#include "cli/admin_command.h"
#include "cli/plan_report.h"
#include "cli/sim_run.h"

#include "model/gguf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// base_name is what a model is called: its file without folder and ".gguf".
static void base_name(const char *path, char *out, size_t cap)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t n = strlen(name);
	if (n > 5 && strcmp(name + n - 5, ".gguf") == 0)
		n -= 5;
	snprintf(out, cap, "%.*s", n < cap ? (int)n : (int)cap - 1, name);
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
			*c = '?';
}

static enum err open_gguf(const char *path, const struct mapped_file *f, struct plan_model *out, struct errmsg *em)
{
	struct gguf g;
	char name[NAME_CAP];
	base_name(path, name, sizeof name);
	enum err e = gguf_parse(f->data, f->bytes, &g, em);
	if (e != OK)
		return errmsg_prefix(em, e, "%.200s", path);
	e = plan_model_of_gguf(name, &g, WIRE_F32, out, em);
	gguf_deinit(&g);
	return e == OK ? OK : errmsg_prefix(em, e, "%.200s", path);
}

// open_model_scenario: a model that was fetched as something else (a web page, a pointer to it) comes here, too.
static enum err open_model_scenario(const char *path, struct plan_model *out, struct errmsg *em)
{
	struct scenario s;
	enum err e = sim_run_open_cluster(path, &s, em);
	if (e != OK)
		return errmsg_prefix(em, e, "MODEL is no GGUF file, and no scenario either");
	e = plan_model_of_scenario(&s, out, em);
	scenario_close(&s);
	return e == OK ? OK : errmsg_prefix(em, e, "%.200s", path);
}

static enum err open_model_file(const char *path, struct plan_model *out, struct errmsg *em)
{
	struct mapped_file f;
	enum err e = mapped_file_open(path, &f, em);
	if (e != OK)
		return errmsg_prefix(em, e, "%.200s", path);
	e = sim_run_is_model(&f) ? open_gguf(path, &f, out, em) : open_model_scenario(path, out, em);
	mapped_file_close(&f);
	return e;
}

// open_model: the cluster file's own, a file, or a known name, in this order.
static enum err open_model(const struct options *o, const struct scenario *s, struct plan_model *out, struct errmsg *em)
{
	const char *name = o->plan_model;
	memset(out, 0, sizeof *out);
	if (name == NULL && s->shape.n_layers == 0)
		return errmsg_fail(em, ERR_USAGE, "MODEL is missing, and %.200s has no [model]: want a GGUF file or a name such as llama-3.3-70b",
			o->plan_cluster);
	bool is_own = s->shape.n_layers > 0 && (name == NULL || strcmp(name, s->model_name) == 0);
	enum err e = is_own ? plan_model_of_scenario(s, out, em)
		: access(name, F_OK) == 0 ? open_model_file(name, out, em)
					  : plan_model_of_name(name, o->plan_quant, s->wire, out, em);
	if (e != OK || o->plan_quant == NULL)
		return e;
	enum dtype type;
	struct model_shape shape;
	e = plan_model_type(o->plan_quant, &type, em);
	if (e == OK)
		e = plan_model_in_type(out, type, &shape, em);
	if (e == OK)
		out->shape = shape;
	else
		plan_model_close(out);
	return e;
}

struct cost_case plan_case(const struct plan_report *r)
{
	return (struct cost_case){.cluster = r->want.cluster, .shape = r->want.shape, .plan = &r->result.plan, .params = r->want.params};
}

static enum err explain(struct plan_report *r, struct errmsg *em)
{
	struct cost_case c = plan_case(r);
	struct arena a;
	enum err e = arena_open(cost_judge_bytes(&c), &a);
	if (e == OK)
		e = solve_account_for(&c, &a, &r->account);
	if (e == OK)
		e = cost_ttft(&c, r->n_prompt, r->chunk, &a, &r->ttft_s);
	arena_close(&a);
	return e == OK ? OK : errmsg_fail(em, e, "no memory to explain the plan");
}

static enum err make_plan(struct plan_report *r, struct errmsg *em)
{
	struct arena a;
	size_t bytes = solve_scratch_bytes(&r->want);
	r->result.fates = r->fates;
	if (arena_open(bytes > 0 ? bytes : 64, &a) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the solver: %zu bytes", bytes);
	enum err e = solve(&r->want, &a, &r->result, em);
	arena_close(&a);
	return e == OK ? explain(r, em) : e;
}

static enum err write_svg(const char *path, const struct plan_report *r, struct errmsg *em)
{
	FILE *to = fopen(path, "we");
	if (to == NULL)
		return errmsg_fail(em, ERR_IO, "%.200s: cannot open: %s", path, strerror(errno));
	enum err e = plan_print_svg(to, r, em);
	bool failed = ferror(to) != 0;
	failed = fclose(to) != 0 || failed;
	if (e != OK)
		return e;
	return failed ? errmsg_fail(em, ERR_IO, "%.200s: cannot write: %s", path, strerror(errno)) : OK;
}

static enum err print_all(const struct options *o, const struct plan_report *r, struct errmsg *em)
{
	enum err e = o->sim_svg ? write_svg(o->sim_svg, r, em) : OK;
	if (e != OK)
		return e;
	if (o->json)
		e = plan_print_json(stdout, r);
	else
		plan_print_text(stdout, r);
	if (e == OK && fflush(stdout) != 0)
		e = ERR_IO;
	return e == OK ? OK : errmsg_fail(em, e, "cannot write to standard output");
}

static enum err plan_with(const struct options *o, const struct scenario *s, const struct plan_model *m, struct errmsg *em)
{
	struct plan_report *r = calloc(1, sizeof *r);
	if (r == NULL)
		return errmsg_fail(em, ERR_NOMEM, "out of memory");
	r->cluster = s;
	r->model = m;
	enum err e = plan_want_fill(o, r, em);
	if (e == OK)
		e = make_plan(r, em);
	if (e == OK && !o->plan_no_what_if)
		e = plan_questions_ask(r, em);
	if (e == OK)
		e = print_all(o, r, em);
	free(r);
	return e;
}

static enum err plan_offline(const struct options *o, struct errmsg *em)
{
	struct scenario s;
	struct plan_model m;
	enum err e = sim_run_open_cluster(o->plan_cluster, &s, em);
	if (e != OK)
		return e;
	e = open_model(o, &s, &m, em);
	if (e == OK) {
		e = plan_with(o, &s, &m, em);
		plan_model_close(&m);
	}
	scenario_close(&s);
	return e;
}

// ---- The running cluster

static enum err write_text(const char *path, const char *text, struct errmsg *em)
{
	FILE *to = fopen(path, "we");
	if (to == NULL)
		return errmsg_fail(em, ERR_IO, "%.200s: cannot open: %s", path, strerror(errno));
	bool failed = fputs(text, to) == EOF;
	failed = fclose(to) != 0 || failed;
	return failed ? errmsg_fail(em, ERR_IO, "%.200s: cannot write: %s", path, strerror(errno)) : OK;
}

// plan_machines plans for what the coordinator answered; its model's file is on this machine.
static enum err plan_machines(const struct options *given, const json_t *answer, struct errmsg *em)
{
	struct options o = *given;
	struct scenario s;
	struct plan_model m;
	const char *text = json_string_value(json_object_get(answer, "machines"));
	if (text == NULL)
		return errmsg_fail(em, ERR_FORMAT, "the coordinator did not say which machines it has");
	enum err e = o.plan_save ? write_text(o.plan_save, text, em) : OK;
	if (e == OK)
		e = scenario_open_cluster("the coordinator's machines", text, strlen(text), NULL, &s, em);
	if (e != OK)
		return e;
	if (o.plan_model == NULL)
		o.plan_model = json_string_value(json_object_get(answer, "model_path"));
	e = open_model(&o, &s, &m, em);
	if (e == OK) {
		e = plan_with(&o, &s, &m, em);
		plan_model_close(&m);
	}
	scenario_close(&s);
	return e;
}

static enum err plan_live(const struct command_ctx *ctx, struct errmsg *em)
{
	json_t *answer;
	enum err e = admin_ask(ctx, json_pack("{s:s}", "cmd", "machines"), &answer, em);
	if (e != OK)
		return errmsg_prefix(em, e, "the running cluster (describe another one with --cluster FILE)");
	long long n = json_integer_value(json_object_get(answer, "unknown"));
	if (n > 0)
		log_line(ctx->log, LOG_WARNING, "%lld machine%s of the cluster told no figures yet, and %s left out", n, n > 1 ? "s" : "", n > 1 ? "are" : "is");
	e = plan_machines(ctx->opts, answer, em);
	json_decref(answer);
	return e;
}

int plan_main(const struct command_ctx *ctx)
{
	const struct options *o = ctx->opts;
	struct errmsg em;
	if (o->plan_live && o->plan_cluster)
		return command_refuse(ctx->command_name, "--live asks the running coordinator, --cluster a file: give one of them");
	if (o->plan_save && o->plan_cluster)
		return command_refuse(ctx->command_name, "--save writes down the running cluster, and --cluster is another one");
	enum err e = o->plan_cluster ? plan_offline(o, &em) : plan_live(ctx, &em);
	if (e == ERR_USAGE)
		return command_refuse(ctx->command_name, em.text);
	return e == OK ? EXIT_DONE : command_fail(ctx, "%s", em.text);
}
