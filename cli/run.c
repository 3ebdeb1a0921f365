// `hearth run`: one answer, printed as it comes. It is the whole cluster in one process, alone: coordinator, node and the frames between
// them are those of `hearth serve`, only without a listener. With --attach the coordinator of --state computes it instead (run_attach.c).
#include "cli/answer_print.h"
#include "cli/cluster_host.h"
#include "cli/command.h"
#include "cli/run_attach.h"
#include "coordinator/shell/answer.h"
#include "coordinator/shell/prompt.h"
#include "engine/sampler.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct run {
	const struct command_ctx *ctx;
	struct cluster_host host;
	struct log log;
	struct answer_print print;
	struct answer *answer;
	bool has_ended;
	enum answer_end end;
};

static void on_text(void *ctx, int32_t token, const char *text, size_t len)
{
	struct run *r = ctx;
	if (r->print.n_output == 0)
		weight_report_read(&r->print.weights, &r->print.weights.first);
	answer_print_text(&r->print, token, text, len);
}

static void on_end(void *ctx, const struct answer_result *result)
{
	struct run *r = ctx;
	if (r->print.is_quiet)
		return; // interrupted, and the cluster is closing
	r->has_ended = true;
	r->end = result->end;
	weight_report_read(&r->print.weights, &r->print.weights.end);
	if (node_runtime_group_stats(r->host.node, &r->print.group))
		r->print.n_members = r->host.tp.n_members;
	answer_print_end(&r->print, result);
	loop_stop(&r->host.loop);
}

static enum err encode_prompt(struct run *r, struct errmsg *em)
{
	const struct options *o = r->ctx->opts;
	struct answer_print *p = &r->print;
	size_t n, cap = (size_t)coord_runtime_config(r->host.coord)->ctx_len;
	p->prompt_ids = malloc(cap * sizeof *p->prompt_ids);
	if (p->prompt_ids == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the prompt");
	struct prompt_text text = {.text = p->prompt, .len = p->prompt_len, .is_chat = o->chat, .system = o->system};
	enum err e = prompt_encode(r->host.tokenizer, model_gguf(r->host.model), &text, p->prompt_ids, cap, &n, em);
	if (e == ERR_LIMIT)
		errmsg_fail(em, e, "the prompt has more than the %zu tokens of the context (see --ctx)", cap);
	p->n_prompt = e == OK ? (int32_t)n : 0;
	return e;
}

static enum err start(struct run *r, struct errmsg *em)
{
	const struct options *o = r->ctx->opts;
	struct sampling s = {.temperature = o->temp, .top_k = o->top_k, .top_p = o->top_p, .min_p = o->min_p, .seed = o->seed};
	if (!options_given(o, offsetof(struct options, seed)))
		randombytes_buf(&s.seed, sizeof s.seed);
	enum err e = sampler_check(&s, em);
	if (e == OK)
		e = encode_prompt(r, em);
	if (e != OK)
		return e;
	r->print.seed = s.seed;
	r->print.begin_ns = loop_clock_ns();
	struct answer_request q = {
		.tokenizer = r->host.tokenizer,
		.tokens = r->print.prompt_ids,
		.n_tokens = r->print.n_prompt,
		.n_predict = o->max_tokens,
		.sampling = s,
		.hash_logits = o->json && !o->no_logits_hash,
		.ctx = r,
		.on_text = on_text,
		.on_end = on_end,
	};
	return answer_start(r->host.coord, &q, &r->answer, em);
}

// find_failure tells why the layers cannot be loaded; "": they can, as far as is known. In a cluster others might take them, or the reason pass.
static void find_failure(const struct run *r, char why[REASON_CAP])
{
	struct coord_member_status here = {0};
	struct coord_status s = {.members = &here, .members_cap = 1};
	coord_runtime_status(r->host.coord, &s);
	text_copy(why, REASON_CAP, strcmp(here.state, "cannot load") == 0 ? here.detail : "");
}

static bool is_over(void *ctx)
{
	struct run *r = ctx;
	char why[REASON_CAP] = "";
	if (r->print.n_output == 0)
		find_failure(r, why);
	return r->has_ended || r->host.signo != 0 || why[0] != '\0';
}

static enum err wait_for_end(struct run *r, struct errmsg *em)
{
	char why[REASON_CAP];
	loop_run_until(&r->host.loop, is_over, r, INT64_MAX);
	find_failure(r, why);
	if (!r->has_ended && r->host.signo == 0 && why[0] != '\0')
		return errmsg_fail(em, ERR_NOMEM, "%s", why);
	if (!r->has_ended)
		answer_print_interrupted(&r->print);
	return OK;
}

static enum err answer_here(struct run *r, struct errmsg *em)
{
	// That a cluster of one machine is ready is no news to somebody who waits for an answer.
	r->log = *r->ctx->log;
	if (r->log.level == LOG_INFO && !options_given(r->ctx->opts, offsetof(struct options, log)))
		r->log.level = LOG_WARNING;
	enum err e = cluster_host_open_model(&r->host, r->ctx->opts, &r->log, em);
	if (e == OK)
		e = cluster_host_open_cluster(&r->host, r->ctx->opts, 1, &(struct cluster_host_serve){0}, em);
	if (e != OK)
		return e;
	r->print.load_ns = r->host.load_ns;
	r->print.simd = kernels_name(worker_kernels(r->host.worker));
	if (r->ctx->opts->mem > 0)
		r->print.weights.host = &r->host;
	weight_report_read(&r->print.weights, &r->print.weights.begin);
	e = start(r, em);
	return e == OK ? wait_for_end(r, em) : e;
}

int run_main(const struct command_ctx *ctx)
{
	struct run r = {.ctx = ctx};
	struct errmsg em = {0};
	if (ctx->opts->attach)
		return run_attach(ctx);
	enum err e = answer_print_open(&r.print, ctx, &em);
	if (e == OK)
		e = answer_here(&r, &em);
	int code = e != OK ? command_fail(ctx, "%s", em.text) : !r.has_ended ? EXIT_INTERRUPTED : r.end == ANSWER_ERROR ? EXIT_ERROR : EXIT_DONE;
	r.print.is_quiet = true;
	cluster_host_close(&r.host);
	answer_print_close(&r.print);
	return code;
}
