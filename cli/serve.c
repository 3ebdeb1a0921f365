// `hearth serve`: the coordinator, and beside it the node of this machine (cluster_host.c knows both). What a restart needs is in the state
// directory: keys, members, hashes.
#include "cli/cluster_host.h"
#include "cli/command.h"
#include "cli/host_port.h"
#include "cli/local_address.h"
#include "cli/model_reading.h"
#include "cli/owner_first.h"
#include "cli/state_dir.h"
#include "coordinator/shell/admin_api.h"
#include "blocks/shell/known_model.h"
#include "coordinator/shell/http_api.h"
#include "coordinator/shell/journal.h"
#include "kernels/canonical.h"
#include "net/discovery.h"
#include "net/keys.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct serve {
	const struct command_ctx *ctx;
	struct state_dir state;
	struct keys keys;
	struct cluster_host host;
	struct owner_first owner;
	struct admin_api *admin;
	struct http_api *http; // NULL with --no-http
	struct discovery *discovery; // NULL with --no-discovery
	struct cluster_host_serve params;
	char store_path[STATE_PATH_CAP], journal_dir[STATE_PATH_CAP], known_dir[KNOWN_DIR_CAP];
	char listen[HOST_PORT_TEXT_CAP];
	char name[NAME_CAP];
};

static enum err open_state(struct serve *s, struct errmsg *em)
{
	char key_path[STATE_PATH_CAP];
	enum err e = state_dir_open(s->ctx->opts->state, &s->state, em);
	if (e == OK)
		e = state_dir_lock(&s->state, em);
	if (e == OK)
		e = state_dir_path(&s->state, "coordinator.key", key_path, sizeof key_path, em);
	if (e == OK)
		e = state_dir_path(&s->state, "cluster.db", s->store_path, sizeof s->store_path, em);
	if (e == OK)
		e = state_dir_path(&s->state, "journal", s->journal_dir, sizeof s->journal_dir, em);
	return e == OK ? keys_open(&s->keys, key_path, em) : e;
}

// advertise fills the addresses that go into invites: those of --advertise, else this machine's own on the port it listens on.
static void advertise(const struct options *o, uint16_t port, struct address_list *out)
{
	char text[HOST_PORT_TEXT_CAP];
	out->n = 0;
	for (int32_t i = 0; i < o->advertise.n; i++) {
		host_port_format(&o->advertise.at[i], text);
		text_copy(out->at[out->n++], ADDR_CAP, text);
	}
	if (out->n > 0)
		return;
	bool is_any = strcmp(o->listen.host, "0.0.0.0") == 0 || strcmp(o->listen.host, "::") == 0;
	if (is_any) {
		local_addresses(port, out);
		return;
	}
	struct host_port own = o->listen;
	own.port = port;
	host_port_format(&own, text);
	text_copy(out->at[out->n++], ADDR_CAP, text);
}

static enum err open_cluster(struct serve *s, struct errmsg *em)
{
	const struct options *o = s->ctx->opts;
	host_port_format(&o->listen, s->listen);
	if (o->name)
		text_copy(s->name, sizeof s->name, o->name);
	else
		local_name(s->name);
	s->params = (struct cluster_host_serve){
		.keys = s->keys.pair, .store_path = s->store_path, .state_dir = s->state.path, .listen = s->listen, .name = s->name,
		.known_dir = known_dir_resolve(o->cache, s->known_dir) ? s->known_dir : NULL, .upload_max = o->upload_max};
	advertise(o, o->listen.port, &s->params.addresses);
	return cluster_host_open_cluster(&s->host, o, o->slots, &s->params, em);
}

static enum err open_http(struct serve *s, struct errmsg *em)
{
	const struct cluster_host *h = &s->host;
	struct http_api_params p = {
		.loop = &s->host.loop,
		.log = h->log,
		.coord = h->coord,
		.model = h->model,
		.tokenizer = h->tokenizer,
		.journal_dir = s->ctx->opts->no_journal ? NULL : s->journal_dir,
		.host = s->ctx->opts->http.host,
		.port = s->ctx->opts->http.port,
	};
	enum err e = known_model_tag(model_path(h->model), p.file_tag, em);
	return e == OK ? host_port_explain(http_api_open(&p, &s->http, em), "--http", em) : e;
}

static enum err open_apis(struct serve *s, struct errmsg *em)
{
	const struct options *o = s->ctx->opts;
	struct cluster_host *h = &s->host;
	struct admin_api_params a = {
		.loop = &h->loop,
		.log = h->log,
		.coord = h->coord,
		.model = h->model,
		.tokenizer = h->tokenizer,
		.worker = h->worker,
		.n_threads = options_n_threads(o),
		.state_dir = s->state.path,
	};
	advertise(o, coord_runtime_port(h->coord), &a.addresses); // the port that --listen HOST:0 gave
	if (o->no_journal)
		journal_erase(h->log, s->journal_dir);
	enum err e = o->no_http ? OK : open_http(s, em);
	if (e != OK)
		return e;
	if (s->http)
		a.http_port = http_api_port(s->http);
	return admin_api_open(&a, &s->admin, em);
}

static void on_discovery(void *ctx, struct discovery *d)
{
	const struct serve *s = ctx;
	char text[ERRMSG_CAP];
	enum discovery_state state = discovery_get_state(d, text);
	if (state == DISCOVERY_ON)
		log_line(s->ctx->log, LOG_INFO, "announced on the local network as \"%s\"", text);
	else if (state == DISCOVERY_OFF)
		log_line(s->ctx->log, LOG_INFO, "not announced on the local network: %s; nodes join by the addresses in the invite", text);
}

// open_discovery: whoever waits for it (a daemon that is missing or slow) is a thread of its own, so serving begins at once.
static void open_discovery(struct serve *s)
{
	const struct options *o = s->ctx->opts;
	struct discovery_params p = {.loop = &s->host.loop, .backend = &discovery_avahi, .on_change = on_discovery, .ctx = s,
		.want = {.announce = true, .port = coord_runtime_port(s->host.coord), .interface = local_interface_of(o->listen.host), .only_ipv4 = strchr(o->listen.host, ':') == NULL,
			.txt = {.protocol_version = PROTOCOL_VERSION, .canon_version = CANON_VERSION}}};
	struct errmsg em;
	if (!options_discovery(o))
		return;
	if (host_port_is_loopback(&o->listen)) {
		log_line(s->ctx->log, LOG_INFO, "not announced on the local network: --listen %s is for this machine only", o->listen.host);
		return;
	}
	lnk1_node_id(s->keys.pair->pk, p.want.txt.id.b);
	text_copy(p.want.txt.name, sizeof p.want.txt.name, s->name);
	if (discovery_open(&p, &s->discovery, &em) != OK)
		log_line(s->ctx->log, LOG_WARNING, "not announced on the local network: %s", em.text);
}

static void say_ready(const struct serve *s)
{
	char fingerprint[FINGERPRINT_TEXT_CAP];
	struct node_id id;
	lnk1_node_id(s->keys.pair->pk, id.b);
	fingerprint_text(&id, fingerprint);
	const struct cluster_host *h = &s->host;
	log_line(h->log, LOG_INFO, "serving %s (%d layers); nodes connect to port %u; fingerprint %s", model_name(h->model), model_hparams(h->model)->n_layers,
		coord_runtime_port(h->coord), fingerprint);
	if (s->http) {
		char text[HOST_PORT_TEXT_CAP];
		struct host_port at = s->ctx->opts->http;
		at.port = http_api_port(s->http);
		host_port_format(&at, text);
		log_line(h->log, LOG_INFO, "OpenAI-compatible API at http://%s/v1", text);
	}
	log_line(h->log, LOG_INFO, "to add a machine: hearth invite%s%s", s->ctx->opts->state ? " --state " : "", s->ctx->opts->state ? s->ctx->opts->state : "");
}

int serve_main(const struct command_ctx *ctx)
{
	struct serve s = {.ctx = ctx, .state = STATE_DIR_CLOSED};
	struct errmsg em = {0};
	enum err e = open_state(&s, &em);
	if (e == OK)
		e = cluster_host_open_model(&s.host, ctx->opts, ctx->log, &em);
	if (e == OK)
		e = open_cluster(&s, &em);
	if (e == OK)
		e = open_apis(&s, &em);
	if (e == OK) {
		say_ready(&s);
		owner_first_start(&s.owner, ctx->opts, &s.host.loop, s.host.worker, s.host.node, ctx->log);
		open_discovery(&s);
		loop_run(&s.host.loop);
		owner_first_stop(&s.owner);
		log_line(ctx->log, LOG_INFO, "stopping");
	}
	bool was_interrupted = s.host.signo == SIGINT;
	discovery_close(s.discovery);
	http_api_stop(s.http);
	cluster_host_close_cluster(&s.host); // ends every request: the APIs must still be there to hear of it
	http_api_close(s.http);
	admin_api_close(s.admin);
	cluster_host_close(&s.host);
	keys_close(&s.keys);
	state_dir_close(&s.state);
	if (e != OK)
		return command_fail(ctx, "%s", em.text);
	return was_interrupted ? EXIT_INTERRUPTED : EXIT_DONE;
}
