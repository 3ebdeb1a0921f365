// `hearth join`: this machine as a node. The first time with an invite, later with the membership in the state directory alone.
#include "cli/cache_dir.h"
#include "cli/command.h"
#include "cli/hash_progress.h"
#include "cli/host_budget.h"
#include "cli/host_port.h"
#include "cli/local_address.h"
#include "cli/owner_first.h"
#include "cli/secret_prompt.h"
#include "cli/state_dir.h"
#include "engine/worker.h"
#include "model/model.h"
#include "net/keys.h"
#include "net/loop.h"
#include "node/shell/membership.h"
#include "node/shell/node_blocks.h"
#include "node/shell/node_runtime.h"

#include <sodium.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

struct joining {
	const struct command_ctx *ctx;
	struct state_dir state;
	struct keys keys;
	struct loop loop;
	struct block_cache cache; // without --model
	struct node_blocks *blocks;
	struct model *model;
	struct worker *worker;
	struct owner_first owner;
	struct host_budget budget;
	struct node_runtime *node;
	struct membership member;
	struct link_limits limits;
	uint8_t boot_id[LNK1_BOOT_ID_LEN];
	uint8_t model_hash[HASH_BYTES];
	char path[STATE_PATH_CAP]; // of the membership
	bool has_model;  // the cache's header is here, or the fetching of it failed
	enum err model_err;
	struct errmsg model_em;
	int signo;
	enum err end;
	char end_text[REASON_CAP];
};

// The first signal asks to go in order; the second goes.
static void on_signal(void *ctx, int signo)
{
	struct joining *j = ctx;
	bool is_first = j->signo == 0;
	j->signo = signo;
	if (is_first && j->node != NULL) {
		log_line(j->ctx->log, LOG_INFO, "leaving in order (a second signal leaves at once)");
		node_runtime_leave(j->node);
		return;
	}
	loop_stop(&j->loop);
}

static void on_exit_node(void *ctx, enum err err, const char *text)
{
	struct joining *j = ctx;
	j->end = err;
	text_copy(j->end_text, sizeof j->end_text, text);
	loop_stop(&j->loop);
}

// keep_epoch runs on the worker's thread; nothing else touches the file then.
static enum err keep_epoch(void *ctx, struct member_epoch e)
{
	struct joining *j = ctx;
	struct errmsg em;
	struct membership m = j->member;
	m.grant.member_epoch = e;
	enum err err = membership_save(j->path, &m, &em);
	sodium_memzero(&m, sizeof m);
	return err;
}

// choose_source: a wrong address would be reported as an unreachable coordinator, again and again.
static enum err choose_source(struct joining *j, struct errmsg *em)
{
	const char *from = j->ctx->opts->from;
	j->limits = link_limits_default;
	if (from == NULL)
		return OK;
	text_copy(j->limits.source, sizeof j->limits.source, from);
	return local_address_check(from, em);
}

static enum err open_state(struct joining *j, struct errmsg *em)
{
	char key_path[STATE_PATH_CAP];
	enum err e = state_dir_open(j->ctx->opts->state, &j->state, em);
	if (e == OK)
		e = state_dir_lock(&j->state, em);
	if (e == OK)
		e = state_dir_path(&j->state, "node.key", key_path, sizeof key_path, em);
	if (e == OK)
		e = state_dir_path(&j->state, "membership", j->path, sizeof j->path, em);
	return e == OK ? keys_open(&j->keys, key_path, em) : e;
}

static enum err use_invite(struct joining *j, struct errmsg *em)
{
	struct invite invite;
	enum err e = secret_prompt_invite(j->ctx->opts, &invite, em);
	if (e != OK)
		return e;
	if (invite_is_expired(&invite, (uint64_t)time(NULL)))
		e = errmsg_fail(em, ERR_TIMEOUT, "this invite has expired: make a new one with hearth invite (they last ten minutes)");
	if (e == OK) {
		e = membership_join(&j->loop, &invite, j->keys.pair, j->boot_id, &j->limits, j->path, &j->member, em);
		if (e != OK && e != ERR_CANCELLED)
			errmsg_prefix(em, e, "joining failed");
	}
	invite_wipe(&invite);
	return e;
}

static enum err find_membership(struct joining *j, struct errmsg *em)
{
	enum err e = membership_load(j->path, &j->member, em);
	if (e == OK && (j->ctx->opts->invite_file || j->ctx->opts->invite_stdin))
		log_line(j->ctx->log, LOG_WARNING, "this state directory holds a membership already: the invite is not used (remove %s to join anew)", j->path);
	return e == ERR_NOT_FOUND ? use_invite(j, em) : e;
}

static enum err open_worker(struct joining *j, struct errmsg *em)
{
	enum err e = worker_open(options_n_threads(j->ctx->opts), j->ctx->opts->simd, &j->worker, em);
	if (e == OK)
		worker_slow_down(j->worker, j->ctx->opts->slowdown);
	return e == OK ? host_budget_node(j->ctx->opts, &j->budget, em) : e;
}

// open_own_model opens the file that --model names.
static enum err open_own_model(struct joining *j, struct errmsg *em)
{
	const struct options *o = j->ctx->opts;
	char cache[STATE_PATH_CAP];
	enum err e = model_open(o->model, &j->model, em);
	if (e == OK)
		e = state_dir_path(&j->state, "model-hashes", cache, sizeof cache, em);
	if (e == OK)
		e = hash_with_progress(o->model, cache, j->model_hash, em);
	return e == OK ? open_worker(j, em) : e;
}

static void on_model(void *ctx, enum err err, const char *text)
{
	struct joining *j = ctx;
	j->has_model = true;
	j->model_err = err;
	if (err != OK)
		errmsg_fail(&j->model_em, err, "%s", text);
}

static enum err open_blocks(struct joining *j, struct errmsg *em)
{
	const struct options *o = j->ctx->opts;
	struct node_blocks_params p = {
		.loop = &j->loop,
		.log = j->ctx->log,
		.keys = j->keys.pair,
		.member_epoch = j->member.grant.member_epoch,
		.addresses = j->member.grant.addresses,
		.limits = &j->limits,
		.upload_max = o->upload_max,
		.cache = o->model == NULL ? &j->cache : NULL,
		.model_path = o->model,
		.ctx = j,
		.on_model = o->model == NULL ? on_model : NULL,
	};
	memcpy(p.coordinator_pk, j->member.coordinator_pk, KEY_BYTES);
	memcpy(p.cluster_id, j->member.grant.cluster_id, CLUSTER_ID_BYTES);
	memcpy(p.psk, j->member.grant.psk, KEY_BYTES);
	memcpy(p.boot_id, j->boot_id, LNK1_BOOT_ID_LEN);
	memcpy(p.model_hash, j->model_hash, HASH_BYTES);
	enum err e = node_blocks_open(&p, &j->blocks, em);
	sodium_memzero(&p, sizeof p);
	return e;
}

static bool has_model(void *ctx)
{
	struct joining *j = ctx;
	return j->has_model || j->signo != 0;
}

// fetch_model waits until the coordinator has said which model it is, and what describes it is here; for ever, as for the coordinator itself.
static enum err fetch_model(struct joining *j, struct errmsg *em)
{
	loop_run_until(&j->loop, has_model, j, INT64_MAX);
	if (!j->has_model)
		return errmsg_fail(em, ERR_CANCELLED, "interrupted");
	*em = j->model_em;
	if (j->model_err != OK)
		return j->model_err;
	enum err e = model_open(node_blocks_model_path(j->blocks), &j->model, em);
	if (e != OK)
		return e;
	model_set_growing(j->model);
	memcpy(j->model_hash, node_blocks_model_hash(j->blocks), HASH_BYTES);
	return open_worker(j, em);
}

static enum err open_node(struct joining *j, struct errmsg *em)
{
	const struct options *o = j->ctx->opts;
	const struct hparams *hp = model_hparams(j->model);
	char listen[HOST_PORT_TEXT_CAP];
	host_port_format(&o->link, listen);
	struct node_runtime_params p = {
		.loop = &j->loop,
		.log = j->ctx->log,
		.worker = j->worker,
		.model = j->model,
		.blocks = j->blocks,
		.is_cached = o->model == NULL,
		.keys = j->keys.pair,
		.listen = listen,
		.addresses = j->member.grant.addresses,
		.limits = &j->limits,
		.keep_epoch = keep_epoch,
		.ctx = j,
		.on_exit = on_exit_node,
		.core = {.n_layers = hp->n_layers, .hidden_dim = hp->hidden_dim, .n_threads = (uint32_t)options_n_threads(o),
			.member_epoch = j->member.grant.member_epoch, .liveness = liveness_with(o->dead_after * INT64_C(1000000)),
			.link_age_ns = LINK_AGE_NS, .keep_bytes = j->budget.keep_bytes, .keep_disk_bytes = o->keep_disk},
		.memory = j->budget.node,
		.keep_dir = o->keep_dir ? o->keep_dir : j->state.path,
	};
	for (int32_t i = 0; i < o->node_advertise.n; i++) {
		char text[HOST_PORT_TEXT_CAP];
		host_port_format(&o->node_advertise.at[i], text);
		text_copy(p.core.addresses.at[p.core.addresses.n++], ADDR_CAP, text);
	}
	memcpy(p.core.self.b, j->keys.node_id, NODE_ID_BYTES);
	lnk1_node_id(j->member.coordinator_pk, p.core.coordinator.b);
	memcpy(p.core.model_hash, j->model_hash, HASH_BYTES);
	memcpy(p.coordinator_pk, j->member.coordinator_pk, KEY_BYTES);
	memcpy(p.cluster_id, j->member.grant.cluster_id, CLUSTER_ID_BYTES);
	memcpy(p.psk, j->member.grant.psk, KEY_BYTES);
	memcpy(p.boot_id, j->boot_id, LNK1_BOOT_ID_LEN);
	if (o->name)
		text_copy(p.core.name, sizeof p.core.name, o->name);
	else
		local_name(p.core.name);
	text_copy(p.core.simd, sizeof p.core.simd, kernels_name(worker_kernels(j->worker)));
	enum err e = node_runtime_open(&p, &j->node, em);
	sodium_memzero(&p, sizeof p);
	return e;
}

// open_all: a file of one's own before the invite is used, which a wrong one should not cost; the cluster's after it, as only members get it.
static enum err open_all(struct joining *j, struct errmsg *em)
{
	const struct options *o = j->ctx->opts;
	enum err e = choose_source(j, em);
	if (e == OK)
		e = open_state(j, em);
	if (e == OK)
		e = o->model != NULL ? open_own_model(j, em) : cache_dir_open(o, &j->cache, em);
	if (e == OK)
		e = find_membership(j, em);
	if (e == OK)
		e = open_blocks(j, em);
	if (e == OK && o->model == NULL)
		e = fetch_model(j, em);
	return e == OK ? open_node(j, em) : e;
}

int join_main(const struct command_ctx *ctx)
{
	struct joining j = {.ctx = ctx, .state = STATE_DIR_CLOSED};
	struct errmsg em = {0};
	randombytes_buf(j.boot_id, sizeof j.boot_id);
	enum err e = loop_open(&j.loop, &em);
	bool has_loop = e == OK;
	if (e == OK)
		e = loop_signals(&j.loop, on_signal, &j, &em);
	if (e == OK)
		e = open_all(&j, &em);
	if (e == OK) {
		owner_first_start(&j.owner, ctx->opts, &j.loop, j.worker, ctx->log);
		loop_run(&j.loop);
		owner_first_stop(&j.owner);
		if (j.end_text[0])
			log_line(ctx->log, j.end == OK ? LOG_INFO : LOG_ERROR, "%s", j.end_text);
		if (j.end == ERR_STATE && ctx->opts->model == NULL)
			log_line(ctx->log, LOG_INFO, "if the cluster has another model now: started again, this node fetches that one");
	}
	node_runtime_close(j.node);
	node_blocks_close(j.blocks);
	worker_close(j.worker);
	model_close(j.model);
	sodium_memzero(&j.member, sizeof j.member);
	keys_close(&j.keys);
	state_dir_close(&j.state);
	if (has_loop)
		loop_close(&j.loop);
	if (e == ERR_CANCELLED)
		return EXIT_INTERRUPTED;
	if (e != OK)
		return command_fail(ctx, "%s", em.text);
	return j.end != OK ? EXIT_ERROR : j.signo == SIGINT ? EXIT_INTERRUPTED : EXIT_DONE;
}
