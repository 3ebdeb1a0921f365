// `hearth join`: this machine as a node. The first time with an invite, later with the membership in the state directory alone.
#include "cli/cache_dir.h"
#include "cli/command.h"
#include "cli/model_reading.h"
#include "cli/host_budget.h"
#include "cli/host_profile.h"
#include "cli/host_port.h"
#include "cli/lan_search.h"
#include "cli/local_address.h"
#include "cli/owner_first.h"
#include "cli/secret_prompt.h"
#include "cli/state_dir.h"
#include "engine/worker.h"
#include "model/model.h"
#include "net/keys.h"
#include "net/link_listener.h"
#include "net/loop.h"
#include "node/shell/membership.h"
#include "node/shell/node_blocks.h"
#include "node/shell/node_runtime.h"

#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIST_NS INT64_C(2000000000) // for everybody to answer; mDNS takes about a second
#define FIND_NS INT64_C(1500000000) // for one; it ends when that one answers

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
	struct host_profile profile;
	struct node_runtime *node;
	struct membership member;
	struct discovery *discovery; // of the coordinator, for as long as this runs; NULL with --no-discovery
	bool is_lan_off;             // nobody can be found on the network, and that was said
	struct address_list found;   // where it announces itself: tried behind the addresses of the membership
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

// check_port: a port that is taken should cost neither an invite nor the fetching of a model. The loop does not run meanwhile: nobody is let in.
static enum err check_port(struct joining *j, struct errmsg *em)
{
	char listen[HOST_PORT_TEXT_CAP];
	struct link_listener *l;
	host_port_format(&j->ctx->opts->link, listen);
	const struct link_listener_params p = {.addr = listen, .limits = &j->limits};
	enum err e = host_port_explain(link_listener_open(&l, &j->loop, &p, em), "--listen", em);
	link_listener_close(l);
	return e;
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

static bool is_interrupted(void *ctx)
{
	const struct joining *j = ctx;
	return j->signo != 0;
}

static enum err search(struct joining *j, const struct node_id *pinned, struct lan_search_result *r, struct errmsg *em)
{
	struct lan_search_params p = {&j->loop, &discovery_avahi, pinned, pinned != NULL ? FIND_NS : LIST_NS, is_interrupted, j};
	return lan_search(&p, r, em);
}

// show_coordinators: for a person who is about to be asked for an invite, and may look whose it is.
static enum err show_coordinators(struct joining *j, struct errmsg *em)
{
	struct lan_search_result r;
	const struct options *o = j->ctx->opts;
	if (!options_discovery(o) || o->invite_file != NULL || (o->invite_stdin && !isatty(STDIN_FILENO)))
		return OK;
	enum err e = search(j, NULL, &r, em);
	if (e == OK)
		lan_search_print(stderr, &r);
	j->is_lan_off = e == OK && r.state == DISCOVERY_OFF;
	return e;
}

// find_coordinator looks for the one with this key. Its absence is no error: it may be behind a router, or discovery off.
static enum err find_coordinator(struct joining *j, const uint8_t pk[KEY_BYTES], struct address_list *found, struct errmsg *em)
{
	struct lan_search_result r;
	struct node_id id;
	char fingerprint[FINGERPRINT_TEXT_CAP];
	*found = (struct address_list){0};
	if (!options_discovery(j->ctx->opts) || j->is_lan_off)
		return OK;
	lnk1_node_id(pk, id.b);
	fingerprint_text(&id, fingerprint);
	enum err e = search(j, &id, &r, em);
	if (e != OK)
		return e;
	lan_search_addresses(&r, &id, found);
	if (found->n > 0)
		log_line(j->ctx->log, LOG_INFO, "coordinator %s (%s) announces itself at %s", r.list.at[0].txt.name, fingerprint, found->at[0]);
	else if (r.state == DISCOVERY_OFF)
		log_line(j->ctx->log, LOG_INFO, "cannot look for the coordinator on the local network: %s", r.why);
	else
		log_line(j->ctx->log, LOG_INFO, "no coordinator with the fingerprint %s announces itself on the local network", fingerprint);
	return OK;
}

// join_at tries the addresses one after the other, and proves the invite to whoever has its key.
static enum err join_at(struct joining *j, struct invite *invite, const struct address_list *at, struct errmsg *em)
{
	if (at->n == 0)
		return errmsg_fail(em, ERR_NOT_FOUND, "the invite names no address, and its coordinator was not found on this network: is it on, and in the same "
			"network? An invite made without --no-address says where it is");
	invite->n_addrs = at->n;
	memcpy(invite->addrs, at->at, sizeof invite->addrs);
	return membership_join(&j->loop, invite, j->keys.pair, j->boot_id, &j->limits, j->path, &j->member, em);
}

// join_anywhere tries what was found, then what the invite says: a liar on the network costs time, and hides nobody.
static enum err join_anywhere(struct joining *j, struct invite *invite, struct errmsg *em)
{
	struct address_list found, given = {.n = invite->n_addrs};
	memcpy(given.at, invite->addrs, sizeof given.at);
	enum err e = find_coordinator(j, invite->server_pk, &found, em);
	if (e != OK)
		return e;
	e = ERR_NOT_FOUND;
	if (found.n > 0)
		e = join_at(j, invite, &found, em);
	if (found.n > 0 && e != OK && e != ERR_CANCELLED && e != ERR_IO && given.n > 0)
		log_line(j->ctx->log, LOG_INFO, "not there (%s): trying the addresses of the invite", em->text);
	if (e != OK && e != ERR_CANCELLED && e != ERR_IO && (found.n == 0 || given.n > 0))
		e = join_at(j, invite, &given, em);
	return e;
}

static enum err use_invite(struct joining *j, struct errmsg *em)
{
	struct invite invite;
	enum err e = show_coordinators(j, em);
	if (e == OK)
		e = secret_prompt_invite(j->ctx->opts, &invite, em);
	if (e != OK)
		return e;
	if (invite_is_expired(&invite, (uint64_t)time(NULL)))
		e = errmsg_fail(em, ERR_TIMEOUT, "this invite has expired: make a new one with hearth invite (they last ten minutes). If it was made just now, "
			"compare the clocks of both machines");
	if (e == OK) {
		e = join_anywhere(j, &invite, em);
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

static bool is_known(const struct address_list *l, const char *addr)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (strcmp(l->at[i], addr) == 0)
			return true;
	return false;
}

// on_discovery keeps j->found what is announced now: a coordinator may come back at another address than it had.
static void on_discovery(void *ctx, struct discovery *d)
{
	struct joining *j = ctx;
	struct lan_search_result r = {0};
	struct address_list now;
	struct node_id id;
	lnk1_node_id(j->member.coordinator_pk, id.b);
	r.state = discovery_get_state(d, r.why);
	discovery_get_list(d, &r.list);
	lan_search_addresses(&r, &id, &now);
	if (r.state == DISCOVERY_OFF)
		log_line(j->ctx->log, LOG_DEBUG, "cannot look for the coordinator on the local network: %s", r.why);
	for (uint32_t i = 0; i < now.n; i++)
		if (!is_known(&j->found, now.at[i]) && !is_known(&j->member.grant.addresses, now.at[i]))
			log_line(j->ctx->log, LOG_INFO, "the coordinator announces itself at %s, too", now.at[i]);
	j->found = now;
}

// open_discovery: that there can be none is no reason not to run.
static void open_discovery(struct joining *j)
{
	struct errmsg em;
	struct discovery_params p = {.loop = &j->loop, .backend = &discovery_avahi, .on_change = on_discovery, .ctx = j,
		.want = {.browse = true, .is_pinned = true}};
	if (!options_discovery(j->ctx->opts))
		return;
	lnk1_node_id(j->member.coordinator_pk, p.want.pinned.b);
	if (discovery_open(&p, &j->discovery, &em) != OK)
		log_line(j->ctx->log, LOG_WARNING, "cannot look for the coordinator on the local network: %s", em.text);
}

static enum err open_worker(struct joining *j, struct errmsg *em)
{
	enum err e = worker_open(options_n_threads(j->ctx->opts), j->ctx->opts->simd, &j->worker, em);
	if (e == OK)
		worker_slow_down(j->worker, j->ctx->opts->slowdown);
	return e == OK ? host_budget_node(j->ctx->opts, j->model, &j->budget, em) : e;
}

// open_own_model opens the file that --model names.
static enum err open_own_model(struct joining *j, struct errmsg *em)
{
	const struct options *o = j->ctx->opts;
	char known[KNOWN_DIR_CAP];
	enum err e = model_open(o->model, &j->model, em);
	if (e == OK)
		e = model_reading_hash(&j->loop, j->ctx->log, j->model, known_dir_resolve(o->cache, known) ? known : NULL, is_interrupted, j, j->model_hash, em);
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
		.found = &j->found,
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
		.found = &j->found,
		.limits = &j->limits,
		.keep_epoch = keep_epoch,
		.ctx = j,
		.on_exit = on_exit_node,
		.core = {.fetches = o->model == NULL, .n_layers = hp->n_layers, .hidden_dim = hp->hidden_dim, .vocab_size = hp->vocab_size, .n_threads = (uint32_t)options_n_threads(o),
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
	enum err e = host_profile_init(o, j->model, o->model != NULL, j->worker, &j->profile, em);
	if (e == OK) {
		j->profile.log = j->ctx->log;
		host_profile_set_memory(&j->profile, o, &j->budget.node, j->budget.keep_bytes);
		host_profile_offer(&j->profile, o, &p);
		e = host_port_explain(node_runtime_open(&p, &j->node, em), "--listen", em);
	}
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
		e = check_port(j, em);
	if (e == OK)
		e = o->model != NULL ? open_own_model(j, em) : cache_dir_open(o, &j->cache, em);
	if (e == OK)
		e = find_membership(j, em);
	if (e == OK)
		open_discovery(j);
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
		owner_first_start(&j.owner, ctx->opts, &j.loop, j.worker, j.node, ctx->log);
		loop_run(&j.loop);
		owner_first_stop(&j.owner);
		if (j.end_text[0])
			log_line(ctx->log, j.end == OK ? LOG_INFO : LOG_ERROR, "%s", j.end_text);
		if (j.end == ERR_STATE && ctx->opts->model == NULL)
			log_line(ctx->log, LOG_INFO, "if the cluster has another model now: started again, this node fetches that one");
	}
	discovery_close(j.discovery);
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
