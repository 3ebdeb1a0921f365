#include "coordinator/shell/http_api.h"

#include "base/assert.h"
#include "base/printable.h"
#include "base/wire_type.h"
#include "coordinator/shell/chains_json.h"
#include "coordinator/shell/http_call.h"
#include "kernels/canonical.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define WATCH_NS 250000000 // how often clients that left are looked for: a second is promised
#define PUMP_NS 10000000   // how often those who catch up get more

// ---- health (the loop's thread)

static char *health_json(const struct http_api *h, const struct coord_status *s)
{
	json_t *o = json_pack("{s:s, s:s, s:i, s:i, s:i}", "status", s->ready ? "ok" : "waiting", "model", h->model_id, "active", (int)s->n_active, "waiting",
		(int)s->n_waiting, "slots", (int)(coord_runtime_config(h->p.coord)->n_slots * s->n_chains));
	chains_json_add(o, s);
	if (!s->ready) {
		char shown[REASON_CAP];
		json_object_set_new(o, "waiting_for", json_string(printable_copy(s->waiting_for, strlen(s->waiting_for), shown, sizeof shown)));
	}
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

static void tell_health(struct http_reader *r)
{
	struct coord_status *s = calloc(1, sizeof *s);
	if (s != NULL)
		coord_runtime_status(r->api->p.coord, s);
	http_reply(r->x, s && s->ready ? 200 : 503, s ? health_json(r->api, s) : NULL, NULL);
	free(s);
	reader_free(r);
}

// ---- the time between

// next_watch_ns says when a call is to be looked at: often while somebody reads it, at once when its answer has just ended, and sooner still when
// a reader waits for room; else when it is to be forgotten.
static int64_t next_watch_ns(const struct http_call *c, int64_t now_ns)
{
	bool has_ended = c->answer == NULL;
	if (has_ended && c->readers == NULL && c->key.number == 0)
		return c->ended_ns + KEPT_NS;
	if (has_ended && now_ns - c->ended_ns < WATCH_NS)
		return now_ns + PUMP_NS;
	for (const struct http_reader *r = c->readers; r != NULL; r = r->next)
		if (reader_is_behind(r))
			return now_ns + PUMP_NS;
	return now_ns + WATCH_NS;
}

static void set_watch(struct http_api *h)
{
	int64_t now_ns = loop_now_ns(h->p.loop), at_ns = INT64_MAX;
	for (const struct http_call *c = h->calls; c != NULL; c = c->next) {
		int64_t wanted_ns = next_watch_ns(c, now_ns);
		at_ns = wanted_ns < at_ns ? wanted_ns : at_ns;
	}
	if (at_ns != INT64_MAX && (!h->watch.is_set || at_ns < h->watch.deadline_ns)) // never later than it was: arrivals must not put it off
		loop_timer_set(h->p.loop, &h->watch, at_ns);
}

void http_api_watch(struct http_api *h)
{
	if (!h->is_stopping)
		set_watch(h);
}

static void on_watch(void *ctx)
{
	struct http_api *h = ctx;
	struct http_call *next;
	for (struct http_call *c = h->calls; c != NULL; c = next) {
		next = c->next;
		call_watch(c, loop_now_ns(h->p.loop));
	}
	set_watch(h);
}

// ---- from the server's thread to the loop

// take_arrivals returns those that wait, the oldest first.
static struct http_reader *take_arrivals(struct http_api *h)
{
	struct http_reader *oldest = NULL;
	pthread_mutex_lock(&h->mutex);
	struct http_reader *r = h->arrivals;
	h->arrivals = NULL;
	pthread_mutex_unlock(&h->mutex);
	while (r != NULL) {
		struct http_reader *next = r->next;
		r->next = oldest;
		oldest = r;
		r = next;
	}
	return oldest;
}

// drop ends a reader that has no call yet, or one that has not begun.
static void drop(struct http_reader *r, const struct openai_error *e)
{
	reader_fail(r, e);
	if (r->call != NULL)
		call_free(r->call);
	reader_free(r);
}

static void set_not_found(struct openai_error *e)
{
	openai_error_set(e, 404, "request_not_found", NULL, "no such request: it is unknown, has ended more than %d minutes ago, or ended when its client left "
		"(\"hearth\": {\"keep\": true} lets it go on)", (int)(KEPT_NS / 60000000000));
}

static void begin(struct http_reader *r)
{
	struct http_call *c = r->call;
	struct openai_error e;
	if (http_is_gone(r->x)) { // before it began: nobody hears the answer, but the exchange must end
		openai_error_of(&e, ERR_CLOSED, NULL, NULL);
		drop(r, &e);
		return;
	}
	reader_attach(r, c);
	call_start(c);
}

static void follow(struct http_reader *r)
{
	struct openai_error e;
	struct http_call *c = call_find(r->api, r->id);
	if (c != NULL) {
		reader_attach(r, c);
		return;
	}
	set_not_found(&e);
	drop(r, &e);
}

static void on_arrived(void *ctx)
{
	struct http_api *h = ctx;
	struct http_reader *next;
	for (struct http_reader *r = take_arrivals(h); r != NULL; r = next) {
		next = r->next;
		r->next = NULL;
		switch (r->kind) {
		case READER_HEALTH: tell_health(r); break;
		case READER_CLIENT: begin(r); break;
		case READER_FOLLOW: follow(r); break;
		}
	}
	set_watch(h);
}

static void set_stopping(struct openai_error *e)
{
	openai_error_of(e, ERR_CLOSED, NULL, "the server is stopping");
}

// post hands the reader over, or answers that the server stops.
static void post(struct http_api *h, struct http_reader *r)
{
	struct openai_error e;
	pthread_mutex_lock(&h->mutex);
	bool is_stopping = h->is_stopping;
	if (!is_stopping) {
		r->next = h->arrivals;
		h->arrivals = r;
		loop_task_post(h->p.loop, &h->arrived);
	}
	pthread_mutex_unlock(&h->mutex);
	if (is_stopping) {
		set_stopping(&e);
		drop(r, &e);
	}
}

// ---- routes (the server's thread)

static void reply_error(struct http_exchange *x, const struct openai_error *e)
{
	http_reply(x, e->status, openai_error_json(e), NULL);
}

// is_json tells whether a media type is application/json, with or without parameters. A page of another site can send other types unasked.
static bool is_json(const char *type)
{
	static const char json[] = "application/json";
	size_t len = strcspn(type, "; \t");
	return len == sizeof json - 1 && strncasecmp(type, json, len) == 0;
}

bool http_api_serves(const struct http_api *h, const char *model, struct openai_error *err)
{
	size_t len = strlen(h->model_id);
	bool is_id = strncmp(model, h->model_id, len) == 0 && (model[len] == '\0' || strcmp(model + len, ".gguf") == 0);
	if (is_id || strcmp(model, model_name(h->p.model)) == 0)
		return true;
	openai_error_set(err, 404, "model_not_found", "model", "model \"%.100s\" is not served here; this is \"%s\"", model, h->model_id);
	return false;
}

static void route_answer(struct http_api *h, struct http_exchange *x, const struct http_request *q, enum openai_kind kind)
{
	struct openai_error e;
	struct http_call *c = NULL;
	struct http_reader *r = NULL;
	if (!is_json(q->content_type))
		openai_error_set(&e, 415, "unsupported_media_type", NULL, "want a JSON body with the header Content-Type: application/json");
	else
		c = call_new(h, kind, q, &e);
	if (c != NULL && (r = reader_new(h, x, READER_CLIENT)) == NULL) {
		call_free(c);
		openai_error_of(&e, ERR_NOMEM, NULL, NULL);
	}
	if (r == NULL) {
		reply_error(x, &e);
		return;
	}
	r->call = c;
	post(h, r);
}

static void route_chat(struct http_api *h, struct http_exchange *x, const struct http_request *q)
{
	route_answer(h, x, q, OPENAI_CHAT);
}

static void route_completions(struct http_api *h, struct http_exchange *x, const struct http_request *q)
{
	route_answer(h, x, q, OPENAI_COMPLETION);
}

static void route_models(struct http_api *h, struct http_exchange *x, const struct http_request *q)
{
	(void)q;
	http_reply(x, 200, openai_models_json(h->model_id, h->opened_s), NULL);
}

#define MODELS "/v1/models/"

static void route_model(struct http_api *h, struct http_exchange *x, const struct http_request *q)
{
	struct openai_error e;
	if (http_api_serves(h, q->path + strlen(MODELS), &e))
		http_reply(x, 200, openai_model_json(h->model_id, h->opened_s), NULL);
	else
		reply_error(x, &e);
}

static void route_health(struct http_api *h, struct http_exchange *x, const struct http_request *q)
{
	(void)q;
	struct http_reader *r = reader_new(h, x, READER_HEALTH);
	if (r != NULL)
		post(h, r);
	else
		http_reply(x, 503, NULL, NULL);
}

bool http_api_event_number(const char *text, int64_t *out)
{
	int64_t n = 0;
	size_t len = strlen(text);
	if (len == 0 || strspn(text, "0123456789") != len)
		return false;
	for (size_t i = 0; i < len && n <= INT32_MAX; i++)
		n = 10 * n + (text[i] - '0');
	if (n > INT32_MAX)
		return false;
	*out = n;
	return true;
}

// read_after reads the number of the last event that a client has, from its header or else from the query. False after filling *e.
static bool read_after(const struct http_request *q, int64_t *after, struct openai_error *e)
{
	const char *text = q->last_event_id, *name = "Last-Event-ID";
	*after = 0;
	for (uint32_t i = 0; i < q->n_query; i++) {
		if (i > 0 || strcmp(q->query[i].name, "after") != 0) {
			openai_error_set(e, 400, "unknown_parameter", i < HTTP_QUERY_MAX ? q->query[i].name : NULL, "want ?after=N and nothing else");
			return false;
		}
	}
	if (text == NULL && q->n_query > 0) {
		text = q->query[0].value ? q->query[0].value : "NUL";
		name = "after";
	}
	if (text == NULL || http_api_event_number(text, after))
		return true;
	openai_error_set(e, 400, "invalid_value", name, "%s: want the number of an event, 0 to %d", name, INT32_MAX);
	return false;
}

#define REQUESTS "/v1/hearth/requests/"

static void route_request(struct http_api *h, struct http_exchange *x, const struct http_request *q)
{
	struct openai_error e;
	uint8_t id[REQUEST_ID_BYTES];
	int64_t after;
	struct http_reader *r = NULL;
	if (!request_id_parse(q->path + strlen(REQUESTS), id))
		set_not_found(&e);
	else if (read_after(q, &after, &e) && (r = reader_new(h, x, READER_FOLLOW)) == NULL)
		openai_error_of(&e, ERR_NOMEM, NULL, NULL);
	if (r == NULL) {
		reply_error(x, &e);
		return;
	}
	memcpy(r->id, id, sizeof r->id);
	r->n_read = after;
	post(h, r);
}

struct route {
	const char *path; // one that ends in "/" is the beginning of paths
	bool is_post;
	void (*answer)(struct http_api *h, struct http_exchange *x, const struct http_request *q);
};

static const struct route routes[] = {
	{"/v1/chat/completions", true, route_chat},
	{"/v1/completions", true, route_completions},
	{"/v1/models", false, route_models},
	{MODELS, false, route_model},
	{REQUESTS, false, route_request},
	{"/health", false, route_health},
};

static const struct route *find_route(const char *path)
{
	for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
		size_t len = strlen(routes[i].path);
		bool is_prefix = routes[i].path[len - 1] == '/';
		if (strncmp(path, routes[i].path, len) == 0 && (path[len] == '\0') != is_prefix)
			return &routes[i];
	}
	return NULL;
}

static void on_request(void *ctx, struct http_exchange *x, const struct http_request *q)
{
	struct openai_error e;
	const struct route *r = find_route(q->path);
	if (r == NULL) {
		openai_error_set(&e, 404, "not_found", NULL, "no such path: %.100s (there are /v1/chat/completions, /v1/completions, /v1/models,"
			" /v1/hearth/requests/ID and /health)", q->path);
		reply_error(x, &e);
		return;
	}
	bool is_allowed = r->is_post ? strcmp(q->method, "POST") == 0 : strcmp(q->method, "GET") == 0 || strcmp(q->method, "HEAD") == 0;
	if (is_allowed) {
		r->answer(ctx, x, q);
		return;
	}
	openai_error_set(&e, 405, "method_not_allowed", NULL, "%.20s is not for this path (want %s)", q->method, r->is_post ? "POST" : "GET");
	http_reply(x, 405, openai_error_json(&e), r->is_post ? "POST" : "GET, HEAD");
}

static char *refusal(int status, const char *code, const char *text)
{
	struct openai_error e;
	openai_error_set(&e, status, code, NULL, "%s", text);
	return openai_error_json(&e);
}

// ---- what an API is made of

// fill_model_id takes the file's name without folder and .gguf: what people call a model, and what they can see.
static void fill_model_id(struct http_api *h)
{
	const char *path = model_path(h->p.model), *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	size_t len = strlen(name);
	if (len > 5 && strcmp(name + len - 5, ".gguf") == 0)
		len -= 5;
	printable_copy(name, len, h->model_id, sizeof h->model_id);
}

static void fill(struct http_api *h)
{
	fill_model_id(h);
	snprintf(h->fingerprint, sizeof h->fingerprint, "hearth-%d-%s", CANON_VERSION, wire_type_name(coord_runtime_config(h->p.coord)->wire));
	h->opened_s = (int64_t)time(NULL);
	h->has_chat = chat_init(&h->chat, model_gguf(h->p.model), h->p.tokenizer, &h->no_chat) == OK;
	if (!h->has_chat)
		log_line(h->p.log, LOG_WARNING, "no /v1/chat/completions: %s", h->no_chat.text);
	pthread_mutex_init(&h->mutex, NULL);
	loop_task_init(&h->arrived, on_arrived, h);
	loop_timer_init(&h->watch, on_watch, h);
}

static void free_api(struct http_api *h)
{
	pthread_mutex_destroy(&h->mutex);
	free(h);
}

// ---- the journal

static void on_journal(void *ctx, struct journal_key key, enum err err, const char *text)
{
	struct http_api *h = ctx;
	if (err != OK && !h->journal_fails)
		log_line(h->p.log, LOG_ERROR, "journal: %s: answers go on, but if this program were killed now they would be lost", text);
	else if (err == OK && h->journal_fails)
		log_line(h->p.log, LOG_INFO, "journal: requests are on disk again");
	h->journal_fails = err != OK;
	call_on_journal(h, key);
}

static bool fits(void *ctx, const struct request_record *r)
{
	const struct http_api *h = ctx;
	const struct coordinator_config *core = coord_runtime_config(h->p.coord);
	char why[REASON_CAP] = "";
	bool is_it = memcmp(r->model_hash, h->p.file_tag, HASH_BYTES) == 0 || (!core->model_unknown && memcmp(r->model_hash, core->model_hash, HASH_BYTES) == 0);
	if (!is_it)
		snprintf(why, sizeof why, "it was for another model (%.100s)", r->model_id);
	else if (r->wire != core->wire)
		snprintf(why, sizeof why, "it was for --wire %s", wire_type_name(r->wire));
	else if (r->canon_version != CANON_VERSION)
		snprintf(why, sizeof why, "it was for version %u of the arithmetic, not %d", r->canon_version, CANON_VERSION);
	else if (r->n_predict > core->ctx_len - r->n_prompt_ids)
		snprintf(why, sizeof why, "it was for --ctx %lld or more", (long long)r->n_prompt_ids + r->n_predict);
	if (why[0] != '\0')
		log_line(h->p.log, LOG_WARNING, "journal: a request that was interrupted is not computed again: %s; it stays for a start with that, or until --no-journal", why);
	else if (h->n_restored >= SESSIONS_MAX) // the core would refuse it, and its end would take the file
		log_line(h->p.log, LOG_WARNING, "journal: a request that was interrupted stays for the next start: %d others are computed again now", SESSIONS_MAX);
	else
		return true;
	return false;
}

static void take(void *ctx, struct journal_key key, struct request_record *r)
{
	struct http_api *h = ctx;
	struct http_call *c = call_restore(h, key, r);
	if (c == NULL) {
		log_line(h->p.log, LOG_ERROR, "journal: no memory to compute a request again");
		request_record_deinit(r);
		return;
	}
	h->n_restored++;
	log_line(h->p.log, LOG_INFO, "journal: a request that was interrupted is computed again (%d tokens of prompt)", c->rec.n_prompt_ids);
	call_start(c);
}

// open_journal: without one, answers are as good as before; they only do not survive a crash.
static void open_journal(struct http_api *h)
{
	struct errmsg em;
	if (h->p.journal_dir == NULL)
		return;
	if (journal_open(h->p.loop, h->p.log, h->p.journal_dir, on_journal, h, &h->journal, &em) == OK)
		journal_load(h->journal, &(struct journal_loader){.ctx = h, .fits = fits, .take = take});
	else
		log_line(h->p.log, LOG_ERROR, "journal: %s: requests are not kept on disk", em.text);
	set_watch(h);
}

// ---- opening and closing

enum err http_api_open(const struct http_api_params *p, struct http_api **out, struct errmsg *em)
{
	struct http_api *h = calloc(1, sizeof *h);
	if (h == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the HTTP API");
	h->p = *p;
	fill(h);
	struct http_server_params s = {
		.log = p->log, .host = p->host, .port = p->port, .body_max = OPENAI_BODY_MAX, .ctx = h, .on_request = on_request, .refusal = refusal};
	enum err e = http_server_open(&s, &h->server, em);
	if (e != OK) {
		free_api(h);
		return e;
	}
	open_journal(h); // only when nothing can fail any more: it begins answers
	*out = h;
	return OK;
}

uint16_t http_api_port(const struct http_api *h)
{
	return http_server_port(h->server);
}

void http_api_stop(struct http_api *h)
{
	struct openai_error e;
	struct http_reader *next;
	if (h == NULL)
		return;
	set_stopping(&e);
	pthread_mutex_lock(&h->mutex);
	h->is_stopping = true;
	pthread_mutex_unlock(&h->mutex);
	loop_task_cancel(h->p.loop, &h->arrived);
	loop_timer_clear(h->p.loop, &h->watch);
	for (struct http_reader *r = take_arrivals(h); r != NULL; r = next) {
		next = r->next;
		drop(r, &e);
	}
	for (struct http_call *c = h->calls; c != NULL; c = c->next)
		for (struct http_reader *r = c->readers; r != NULL; r = r->next)
			reader_fail(r, &e);
	http_server_stop(h->server);
}

void http_api_close(struct http_api *h)
{
	if (h == NULL)
		return;
	while (h->calls != NULL)
		call_end(h->calls);
	journal_close(h->journal);
	http_server_close(h->server);
	free_api(h);
}
