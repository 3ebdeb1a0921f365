#include "coordinator/shell/admin_api.h"

#include "base/assert.h"
#include "base/window_layout.h"
#include "coordinator/cluster_toml.h"
#include "coordinator/cluster_view.h"
#include "coordinator/shell/answer.h"
#include "coordinator/shell/chains_json.h"
#include "coordinator/shell/figures_json.h"
#include "coordinator/shell/prompt.h"
#include "engine/sampler.h"
#include "model/model_bytes.h"
#include "net/admin_socket.h"
#include "proto/invite.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct admin_api {
	struct admin_api_params p;
	struct admin_server *server;
	uint32_t n_open; // commands whose answers are not complete
};

// One command under way. Lives until its answer is complete, also when its client has gone.
struct command_run {
	struct admin_api *api;
	struct admin_client *client; // NULL: gone
	struct answer *answer;       // of generate
};

// ---- answers

static void send_json(struct command_run *c, json_t *o)
{
	char *line = c->client ? json_dumps(o, JSON_COMPACT) : NULL;
	if (line != NULL && admin_send(c->client, line, strlen(line)) != OK)
		log_line(c->api->p.log, LOG_DEBUG, "an admin client does not read its answer");
	if (line != NULL)
		sodium_memzero(line, strlen(line)); // it may be an invite
	free(line);
	json_decref(o);
}

static void finish(struct command_run *c, json_t *last)
{
	send_json(c, last);
	if (c->client) {
		admin_set_user(c->client, NULL);
		admin_finish(c->client);
	}
	c->api->n_open--;
	free(c);
}

static json_t *failure(const char *text)
{
	json_t *o = json_pack("{s:b, s:s}", "ok", 0, "error", text);
	return o ? o : json_pack("{s:b, s:s}", "ok", 0, "error", "the reason is not UTF-8");
}

// ---- status

// add_round_trip: the last one, and how many there were, so that whoever asks often sees each.
static void add_round_trip(json_t *o, const char *ms_key, const char *n_key, const struct round_trip *r)
{
	if (r->n > 0)
		json_object_update_new(o, json_pack("{s:f, s:I}", ms_key, (double)r->last_ns / 1e6, n_key, (json_int_t)r->n));
}

// add_report: what a member counts itself, and how many of its frames came late. Bytes per token are 0 without keep_disk.
static void add_report(json_t *o, const struct coord_member_status *m)
{
	const struct msg_node_report *r = &m->report;
	double per_token = r->n_tokens > 0 ? (double)r->disk_written / (double)r->n_tokens : 0;
	json_object_update_new(o, json_pack("{s:I, s:I, s:f, s:I, s:I}", "kept_disk_written", (json_int_t)r->disk_written, "kept_disk_read",
		(json_int_t)r->disk_read, "kept_disk_bytes_per_token", per_token, "heard", (json_int_t)m->n_heard, "late", (json_int_t)m->n_late));
	if (r->next_heard > 0)
		json_object_update_new(o, json_pack("{s:I, s:I}", "next_heard", (json_int_t)r->next_heard, "next_late", (json_int_t)r->next_late));
}

// spans_json: [begin, end) of each round.
static json_t *spans_json(const struct layer_spans *s)
{
	json_t *all = json_array();
	for (int32_t i = 0; i < s->n; i++)
		json_array_append_new(all, json_pack("[i, i]", (int)s->at[i].begin, (int)s->at[i].end));
	return all;
}

// add_weights: where a member with a memory cap has its weights, and what streaming costs it. A step is one token, or a chunk of a prompt.
static void add_weights(json_t *o, const struct coord_member_status *m)
{
	static const char *const readers[] = {"none", "mmap", "direct"};
	const struct msg_weight_report *w = &m->report.weights;
	if (w->reader == 0)
		return;
	double steps = w->steps > 0 ? (double)w->steps : 1;
	json_object_set_new(o, "weights", json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "reader", readers[w->reader], "locked", w->locked,
		"pinned_bytes", (json_int_t)w->pinned, "streamed_bytes", (json_int_t)w->streamed, "window_bytes", (json_int_t)w->window, "withheld_bytes",
		(json_int_t)w->withheld, "read_bytes", (json_int_t)w->read, "read_bytes_per_step", (double)w->read / steps, "stall_ms_per_step", (double)w->stall_us / 1e3 / steps, "read_bytes_per_s",
		w->read_us > 0 ? (double)w->read * 1e6 / (double)w->read_us : 0.0, "planned_streamed_share", (double)m->stream_share / WINDOW_SHARE_WHOLE));
}

// progress_json: how far a member is with fetching the model, or this machine with reading it.
static json_t *progress_json(const struct block_progress *p)
{
	static const char *const words[] = {[BLOCK_PROGRESS_IDLE] = "complete", [BLOCK_PROGRESS_FETCHING] = "fetching", [BLOCK_PROGRESS_FAILED] = "failed"};
	json_t *b = json_pack("{s:s, s:I, s:I, s:I, s:I}", "state", words[p->state], "bytes_total", (json_int_t)p->bytes_total, "bytes_done",
		(json_int_t)p->bytes_done, "bytes_per_s", (json_int_t)p->rate, "bytes_fetched", (json_int_t)p->bytes_fetched);
	if (p->left_ms != UINT32_MAX)
		json_object_set_new(b, "left_s", json_real(p->left_ms / 1e3));
	return b;
}

// add_group: which part a member has of its stage's layers, and what it has sent to those that have the others.
static void add_group(json_t *o, const struct coord_member_status *m)
{
	const struct msg_group_report *r = &m->report.group;
	if (m->n_members < 2)
		return;
	double n_tokens = r->n_tokens > 0 ? (double)r->n_tokens : 1, n_bytes = (double)(r->start_bytes + r->part_bytes);
	json_object_set_new(o, "group", json_pack("{s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "member", (int)m->place, "members", (int)m->n_members,
		"share", (json_int_t)m->share, "of", (json_int_t)m->share_sum, "forwards", (json_int_t)r->n_forwards, "tokens", (json_int_t)r->n_tokens,
		"exchanges", (json_int_t)r->n_exchanges, "start_bytes", (json_int_t)r->start_bytes, "part_bytes", (json_int_t)r->part_bytes,
		"frames", (json_int_t)r->n_frames, "overhead", (json_int_t)r->overhead, "sent_bytes_per_token", n_bytes / n_tokens));
}

static json_t *member_json(const struct coord_runtime *coord, const struct coord_member_status *m, bool has_chains)
{
	char id[2 * NODE_ID_BYTES + 1];
	sodium_bin2hex(id, sizeof id, m->id.b, NODE_ID_BYTES);
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:i, s:s, s:I}", "id", id, "name", m->name, "state", m->state, "detail", m->detail,
		"address", m->remote, "local", m->is_local, "threads", (int)m->n_threads, "simd", m->simd, "relayed_frames", (json_int_t)m->n_relayed);
	if (m->port != 0)
		json_object_set_new(o, "port", json_integer(m->port));
	if (m->stage >= 0)
		json_object_update_new(o, json_pack("{s:i, s:o, s:s}", "stage", (int)m->stage, "layers", spans_json(&m->layers), "next_link", m->next_link));
	if (has_chains && m->chain >= 0)
		json_object_set_new(o, "chain", json_integer(m->chain));
	add_round_trip(o, "rtt_ms", "rtt_n", &m->rtt);
	add_round_trip(o, "next_rtt_ms", "next_rtt_n", &m->next_rtt);
	add_report(o, m);
	add_group(o, m);
	add_weights(o, m);
	figures_json_add(o, m);
	struct block_progress p;
	if (coord_runtime_blocks(coord, m->id, &p) && p.bytes_total > 0)
		json_object_set_new(o, "blocks", progress_json(&p));
	return o;
}

json_t *admin_status_json(const struct coord_runtime *coord, const struct model *model)
{
	const struct coordinator_config *c = coord_runtime_config(coord);
	struct coord_status *s = calloc(1, sizeof *s);
	struct coord_member_status *all = calloc((size_t)coordinator_n_members_max(c), sizeof *all);
	if (s == NULL || all == NULL) {
		free(s);
		free(all);
		return failure("out of memory");
	}
	*s = (struct coord_status){.members = all, .members_cap = coordinator_n_members_max(c)};
	coord_runtime_status(coord, s);
	json_t *members = json_array();
	for (int32_t i = 0; i < s->n_members; i++)
		json_array_append_new(members, member_json(coord, &all[i], s->n_chains > 1));
	json_t *o = json_pack("{s:b, s:b, s:s, s:s, s:i, s:I, s:I, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:o}", "ok", 1, "ready", s->ready, "waiting_for",
		s->ready ? "" : s->waiting_for, "model", model_name(model), "layers", (int)c->n_layers, "plan_epoch", (json_int_t)s->plan_epoch.v,
		"member_epoch", (json_int_t)s->member_epoch.v, "wire", wire_type_name(c->wire), "port", (int)coord_runtime_port(coord), "active", (int)s->n_active,
		"waiting", (int)s->n_waiting, "slots", (int)(c->n_slots * s->n_chains), "invites", (int)s->n_invites, "buffers_used", (int)s->n_bufs_used, "requests",
		(json_int_t)s->n_requests, "tokens", (json_int_t)s->n_tokens, "recovered", (json_int_t)s->n_recovered, "nodes", members);
	struct block_progress reading;
	if (coord_runtime_reading(coord, &reading))
		json_object_set_new(o, "reading", progress_json(&reading));
	chains_json_add(o, s);
	free(s);
	free(all);
	return o ? o : failure("the status holds a name that is not UTF-8");
}

// ---- machines

static json_t *view_json(const struct coord_runtime *coord, const struct model *model, const struct cluster_view *v)
{
	const struct coordinator_config *c = coord_runtime_config(coord);
	const struct cluster_toml t = {.cluster = &v->cluster, .head_can_hold = v->head_can_hold, .n_slots = c->n_slots, .ctx_len = c->ctx_len, .chunk = c->chunk_max};
	size_t cap = cluster_toml_bytes(v->cluster.n_devices);
	char *text = malloc(cap), *path = realpath(model_path(model), NULL);
	if (text != NULL)
		cluster_toml_write(&t, text, cap);
	json_t *o = text == NULL ? failure("out of memory") : json_pack("{s:b, s:s, s:s, s:i}", "ok", 1, "machines", text, "model_path",
		path != NULL ? path : model_path(model), "unknown", (int)v->n_left_out);
	free(text);
	free(path);
	return o != NULL ? o : failure("the model's path is not UTF-8");
}

// machines_json: what a planner is given, as the text of a cluster file.
static json_t *machines_json(const struct coord_runtime *coord, const struct model *model)
{
	struct cluster_view *v = calloc(1, sizeof *v);
	struct model_bytes *bytes = calloc(1, sizeof *bytes);
	struct errmsg em;
	json_t *o = NULL;
	if (v == NULL || bytes == NULL) {
		o = failure("out of memory");
	} else {
		model_bytes_of(model_gguf(model), model_hparams(model)->n_layers, bytes);
		o = coord_runtime_view(coord, bytes->type, v, &em) == OK ? view_json(coord, model, v) : failure(em.text);
	}
	free(v);
	free(bytes);
	return o;
}

// ---- invite, revoke, drain

static void on_invited(void *ctx, enum err err, const char *text, const struct invite *invite)
{
	struct command_run *c = ctx;
	struct errmsg em;
	char url[INVITE_URL_CAP];
	if (err != OK) {
		finish(c, failure(text));
		return;
	}
	struct invite full = *invite;
	const struct address_list *list = &c->api->p.addresses;
	full.n_addrs = list->n;
	memcpy(full.addrs, list->at, sizeof full.addrs);
	if (invite_encode(&full, url, &em) != OK)
		finish(c, failure(em.text));
	else
		finish(c, json_pack("{s:b, s:s, s:I}", "ok", 1, "invite", url, "expires_s", (json_int_t)full.expiry_s));
	sodium_memzero(url, sizeof url);
	invite_wipe(&full);
}

static void on_answered(void *ctx, enum err err, const char *text)
{
	finish(ctx, err == OK ? json_pack("{s:b}", "ok", 1) : failure(text));
}

static void do_invite(struct command_run *c)
{
	if (c->api->p.addresses.n == 0)
		finish(c, failure("this coordinator knows no address that others reach it at: start it with --advertise HOST:PORT"));
	else
		coord_runtime_invite(c->api->p.coord, on_invited, c);
}

// node_of returns the member a command is about; NULL when it has said what is wrong.
static const char *node_of(struct command_run *c, const json_t *line)
{
	const char *who = json_string_value(json_object_get(line, "node"));
	if (who != NULL && who[0] != '\0' && strlen(who) <= 2 * NODE_ID_BYTES)
		return who;
	finish(c, failure("\"node\" is missing or too long"));
	return NULL;
}

static void do_revoke(struct command_run *c, const json_t *line)
{
	const char *who = node_of(c, line);
	if (who != NULL)
		coord_runtime_revoke(c->api->p.coord, who, on_answered, c);
}

static void do_drain(struct command_run *c, const json_t *line)
{
	const char *who = node_of(c, line);
	if (who != NULL)
		coord_runtime_drain(c->api->p.coord, who, json_is_true(json_object_get(line, "undo")), on_answered, c);
}

// ---- generate

static void on_text(void *ctx, int32_t token, const char *text, size_t len)
{
	send_json(ctx, json_pack("{s:i, s:s%}", "token", (int)token, "text", text, len));
}

static void on_end(void *ctx, const struct answer_result *r)
{
	static const char *const words[] = {[ANSWER_STOP] = "stop", [ANSWER_LENGTH] = "length", [ANSWER_CANCELLED] = "cancelled", [ANSWER_ERROR] = "error"};
	struct command_run *c = ctx;
	c->answer = NULL;
	json_t *o = json_pack("{s:b, s:s, s:s, s:s}", "ok", r->end == ANSWER_STOP || r->end == ANSWER_LENGTH, "end", words[r->end], "error", r->text,
		"logits_hash", r->hash);
	finish(c, o ? o : failure(err_words(r->err)));
}

static double number(const json_t *line, const char *key, double otherwise)
{
	const json_t *v = json_object_get(line, key);
	return json_is_number(v) ? json_number_value(v) : otherwise;
}

static enum err read_sampling(const json_t *line, struct sampling *s, struct errmsg *em)
{
	*s = (struct sampling){
		.temperature = (float)number(line, "temperature", 0),
		.top_p = (float)number(line, "top_p", 1),
		.min_p = (float)number(line, "min_p", 0),
	};
	double top_k = number(line, "top_k", 0);
	if (!(top_k >= 0 && top_k <= INT32_MAX))
		return errmsg_fail(em, ERR_RANGE, "top_k: want 0 (all) or more");
	s->top_k = (int32_t)top_k;
	const char *seed = json_string_value(json_object_get(line, "seed"));
	char *end = NULL;
	errno = 0;
	if (seed != NULL) {
		s->seed = strtoull(seed, &end, 10);
		if (errno != 0 || end == seed || *end != '\0' || seed[0] == '-')
			return errmsg_fail(em, ERR_RANGE, "seed: want a whole number below 2^64, as text");
	} else {
		randombytes_buf(&s->seed, sizeof s->seed);
	}
	return sampler_check(s, em);
}

static void send_begin(struct command_run *c, const struct answer_request *q)
{
	char seed[24];
	snprintf(seed, sizeof seed, "%" PRIu64, q->sampling.seed);
	json_t *ids = json_array();
	for (int32_t i = 0; i < q->n_tokens; i++)
		json_array_append_new(ids, json_integer(q->tokens[i]));
	send_json(c, json_pack("{s:o, s:s, s:s, s:s, s:i}", "prompt_ids", ids, "seed", seed, "wire",
		wire_type_name(coord_runtime_config(c->api->p.coord)->wire), "simd", kernels_name(worker_kernels(c->api->p.worker)), "threads",
		(int)c->api->p.n_threads));
}

static enum err start_generate(struct command_run *c, const json_t *line, int32_t *ids, size_t cap, struct errmsg *em)
{
	const json_t *prompt = json_object_get(line, "prompt");
	if (!json_is_string(prompt))
		return errmsg_fail(em, ERR_FORMAT, "generate: \"prompt\" is missing or not text");
	struct prompt_text text = {
		.text = json_string_value(prompt),
		.len = json_string_length(prompt),
		.is_chat = json_is_true(json_object_get(line, "chat")),
		.system = json_string_value(json_object_get(line, "system")),
	};
	size_t n;
	enum err e = model_check_unchanged(c->api->p.model, em); // the tokenizer's texts lie in the file
	if (e == OK)
		e = prompt_encode(c->api->p.tokenizer, model_gguf(c->api->p.model), &text, ids, cap, &n, em);
	if (e == ERR_LIMIT)
		return errmsg_fail(em, e, "the prompt has more than the %zu tokens of the context", cap);
	if (e != OK)
		return e;
	double n_predict = number(line, "max_tokens", 128);
	struct answer_request q = {
		.tokenizer = c->api->p.tokenizer,
		.tokens = ids,
		.n_tokens = (int32_t)n,
		.n_predict = n_predict >= 1 && n_predict <= INT32_MAX ? (int32_t)n_predict : 0,
		.hash_logits = json_is_true(json_object_get(line, "logits_hash")),
		.ctx = c,
		.on_text = on_text,
		.on_end = on_end,
	};
	e = read_sampling(line, &q.sampling, em);
	if (e == OK)
		e = answer_start(c->api->p.coord, &q, &c->answer, em);
	if (e == OK)
		send_begin(c, &q);
	return e;
}

static void do_generate(struct command_run *c, const json_t *line)
{
	struct errmsg em;
	size_t cap = (size_t)coord_runtime_config(c->api->p.coord)->ctx_len;
	int32_t *ids = malloc(cap * sizeof *ids);
	enum err e = ids ? start_generate(c, line, ids, cap, &em) : errmsg_fail(&em, ERR_NOMEM, "out of memory");
	free(ids);
	if (e != OK)
		finish(c, failure(em.text));
}

// ---- the socket

static void on_line(void *ctx, struct admin_client *client, const char *text, size_t len)
{
	struct admin_api *a = ctx;
	if (admin_user(client) != NULL) {
		// One command per connection: a second one while the first is answered is a client's mistake.
		return;
	}
	struct command_run *c = calloc(1, sizeof *c);
	if (c == NULL) {
		admin_finish(client);
		return;
	}
	*c = (struct command_run){.api = a, .client = client};
	a->n_open++;
	admin_set_user(client, c);
	json_error_t err;
	json_t *line = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);
	const char *cmd = json_string_value(json_object_get(line, "cmd"));
	if (cmd == NULL)
		finish(c, failure("want one JSON object with \"cmd\" on a line"));
	else if (strcmp(cmd, "status") == 0)
		finish(c, admin_status_json(a->p.coord, a->p.model));
	else if (strcmp(cmd, "machines") == 0)
		finish(c, machines_json(a->p.coord, a->p.model));
	else if (strcmp(cmd, "invite") == 0)
		do_invite(c);
	else if (strcmp(cmd, "revoke") == 0)
		do_revoke(c, line);
	else if (strcmp(cmd, "drain") == 0)
		do_drain(c, line);
	else if (strcmp(cmd, "generate") == 0)
		do_generate(c, line);
	else
		finish(c, failure("unknown \"cmd\" (want status, machines, invite, revoke, drain or generate)"));
	json_decref(line);
}

static void on_gone(void *ctx, struct admin_client *client)
{
	struct command_run *c = admin_user(client);
	(void)ctx;
	if (c == NULL)
		return;
	c->client = NULL;
	if (c->answer != NULL)
		answer_cancel(c->answer);
}

enum err admin_api_open(const struct admin_api_params *p, struct admin_api **out, struct errmsg *em)
{
	struct admin_api *a = calloc(1, sizeof *a);
	if (a == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the admin socket");
	a->p = *p;
	enum err e = admin_server_open(&a->server, p->loop, p->state_dir, &(struct admin_callbacks){.ctx = a, .on_line = on_line, .on_gone = on_gone}, em);
	if (e != OK) {
		free(a);
		return e;
	}
	*out = a;
	return OK;
}

void admin_api_close(struct admin_api *a)
{
	if (a == NULL)
		return;
	admin_server_close(a->server);
	free(a);
}
