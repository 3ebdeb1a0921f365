#include "coordinator/shell/http_api.h"

#include "base/assert.h"
#include "base/printable.h"
#include "base/wire_type.h"
#include "coordinator/shell/http_call.h"
#include "kernels/canonical.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define WATCH_NS 250000000 // how often clients that left are looked for: a second is promised

// ---- health (the loop's thread)

static char *health_json(const struct http_api *h, const struct coord_status *s)
{
	json_t *o = json_pack("{s:s, s:s, s:i, s:i, s:i}", "status", s->ready ? "ok" : "waiting", "model", h->model_id, "active", (int)s->n_active, "waiting",
		(int)s->n_waiting, "slots", (int)coord_runtime_config(h->p.coord)->n_slots);
	if (!s->ready) {
		char shown[REASON_CAP];
		json_object_set_new(o, "waiting_for", json_string(printable_copy(s->waiting_for, strlen(s->waiting_for), shown, sizeof shown)));
	}
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

static void tell_health(struct http_call *c)
{
	struct coord_status *s = calloc(1, sizeof *s);
	if (s != NULL)
		coord_runtime_status(c->api->p.coord, s);
	http_reply(c->x, s && s->ready ? 200 : 503, s ? health_json(c->api, s) : NULL, NULL);
	free(s);
	call_free(c);
}

// ---- from the server's thread to the loop

// take_arrivals returns those that wait, the oldest first.
static struct http_call *take_arrivals(struct http_api *h)
{
	struct http_call *oldest = NULL;
	pthread_mutex_lock(&h->mutex);
	struct http_call *c = h->arrivals;
	h->arrivals = NULL;
	pthread_mutex_unlock(&h->mutex);
	while (c != NULL) {
		struct http_call *next = c->next;
		c->next = oldest;
		oldest = c;
		c = next;
	}
	return oldest;
}

static void on_arrived(void *ctx)
{
	struct http_api *h = ctx;
	struct http_call *next;
	for (struct http_call *c = take_arrivals(h); c != NULL; c = next) {
		next = c->next;
		if (c->is_health)
			tell_health(c);
		else
			call_start(c);
	}
	if (h->calls != NULL && !h->watch.is_set)
		loop_timer_set(h->p.loop, &h->watch, loop_now_ns(h->p.loop) + WATCH_NS);
}

static void on_watch(void *ctx)
{
	struct http_api *h = ctx;
	int64_t now_ns = loop_now_ns(h->p.loop);
	for (struct http_call *c = h->calls; c != NULL; c = c->next)
		call_watch(c, now_ns);
	if (h->calls != NULL)
		loop_timer_set(h->p.loop, &h->watch, now_ns + WATCH_NS);
}

static void set_stopping(struct openai_error *e)
{
	openai_error_of(e, ERR_CLOSED, NULL, "the server is stopping");
}

// post hands the call over, or answers that the server stops.
static void post(struct http_api *h, struct http_call *c)
{
	struct openai_error e;
	pthread_mutex_lock(&h->mutex);
	bool is_stopping = h->is_stopping;
	if (!is_stopping) {
		c->next = h->arrivals;
		h->arrivals = c;
		loop_task_post(h->p.loop, &h->arrived);
	}
	pthread_mutex_unlock(&h->mutex);
	if (is_stopping) {
		set_stopping(&e);
		call_fail(c, &e);
		call_free(c);
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

static void route_answer(struct http_api *h, struct http_exchange *x, const struct http_request *q, enum openai_kind kind)
{
	struct openai_error e;
	struct http_call *c = NULL;
	if (!is_json(q->content_type))
		openai_error_set(&e, 415, "unsupported_media_type", NULL, "want a JSON body with the header Content-Type: application/json");
	else
		c = call_new(h, x, kind, q, &e);
	if (c != NULL)
		post(h, c);
	else
		reply_error(x, &e);
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
	const char *id = q->path + strlen(MODELS);
	if (strcmp(id, h->model_id) == 0 || strcmp(id, model_name(h->p.model)) == 0) {
		http_reply(x, 200, openai_model_json(h->model_id, h->opened_s), NULL);
		return;
	}
	struct openai_error e;
	openai_error_set(&e, 404, "model_not_found", "model", "model \"%.100s\" is not served here; this is \"%s\"", id, h->model_id);
	reply_error(x, &e);
}

static void route_health(struct http_api *h, struct http_exchange *x, const struct http_request *q)
{
	(void)q;
	struct http_call *c = calloc(1, sizeof *c);
	if (c == NULL) {
		http_reply(x, 503, NULL, NULL);
		return;
	}
	http_hold(x);
	*c = (struct http_call){.api = h, .x = x, .is_health = true};
	post(h, c);
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
		openai_error_set(&e, 404, "not_found", NULL, "no such path: %.100s (there are /v1/chat/completions, /v1/completions, /v1/models and /health)", q->path);
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

// ---- opening and closing

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
	struct http_call *next;
	if (h == NULL)
		return;
	set_stopping(&e);
	pthread_mutex_lock(&h->mutex);
	h->is_stopping = true;
	pthread_mutex_unlock(&h->mutex);
	loop_task_cancel(h->p.loop, &h->arrived);
	loop_timer_clear(h->p.loop, &h->watch);
	for (struct http_call *c = take_arrivals(h); c != NULL; c = next) {
		next = c->next;
		call_fail(c, &e);
		call_free(c);
	}
	for (struct http_call *c = h->calls; c != NULL; c = c->next)
		call_fail(c, &e); // freed when the coordinator ends them
	http_server_stop(h->server);
}

void http_api_close(struct http_api *h)
{
	if (h == NULL)
		return;
	ASSERT(h->calls == NULL);
	http_server_close(h->server);
	free_api(h);
}
