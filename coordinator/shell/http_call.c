#include "coordinator/shell/http_call.h"

#include "base/assert.h"
#include "coordinator/shell/prompt.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HEAD_WAIT_NS 1000000000 // a stream's head waits so long for a refusal, which has a status of its own
#define SIGN_OF_LIFE_NS 2000000000
#define SEED_BITS 53 // of a seed we draw: exact as a JSON number everywhere

static const char sign_of_life[] = ": still here\n\n"; // a comment line: clients skip it

static const char *prompt_param(enum openai_kind kind)
{
	return kind == OPENAI_CHAT ? "messages" : "prompt";
}

// ---- from a body to token ids (the server's thread)

static bool check_model(const struct http_api *h, const struct openai_request *r, struct openai_error *err)
{
	if (strcmp(r->model, h->model_id) == 0 || strcmp(r->model, model_name(h->p.model)) == 0)
		return true;
	openai_error_set(err, 404, "model_not_found", "model", "model \"%.100s\" is not served here; this is \"%s\"", r->model, h->model_id);
	return false;
}

static bool check_ids(const struct http_api *h, const struct openai_request *r, struct openai_error *err)
{
	int32_t vocab_size = tokenizer_vocab_size(h->p.tokenizer);
	for (size_t i = 0; i < r->n_prompt_ids; i++) {
		if (r->prompt_ids[i] < vocab_size)
			continue;
		char param[OPENAI_PARAM_CAP];
		snprintf(param, sizeof param, "prompt[%zu]", i);
		openai_error_set(err, 400, "invalid_value", param, "%s: %d is no token id (the vocabulary has %d)", param, r->prompt_ids[i], vocab_size);
		return false;
	}
	return true;
}

static enum err encode(const struct http_api *h, const struct openai_request *r, int32_t *ids, size_t cap, size_t *n, struct errmsg *em)
{
	if (r->kind == OPENAI_CHAT)
		return h->has_chat ? chat_encode(&h->chat, r->messages, r->n_messages, true, ids, cap, n, em) :
			errmsg_fail(em, ERR_UNSUPPORTED, "%s: use /v1/completions", h->no_chat.text);
	if (r->prompt != NULL)
		return prompt_encode(h->p.tokenizer, model_gguf(h->p.model), &(struct prompt_text){.text = r->prompt, .len = r->prompt_len}, ids, cap, n, em);
	if (r->n_prompt_ids > cap)
		return ERR_LIMIT;
	memcpy(ids, r->prompt_ids, r->n_prompt_ids * sizeof *ids);
	*n = r->n_prompt_ids;
	return OK;
}

static bool make_ids(struct http_call *c, const struct openai_request *r, struct openai_error *err)
{
	const struct http_api *h = c->api;
	struct errmsg em = {0};
	size_t cap = (size_t)coord_runtime_config(h->p.coord)->ctx_len, n = 0;
	if (!check_ids(h, r, err))
		return false;
	c->prompt_ids = malloc(cap * sizeof *c->prompt_ids);
	enum err e = c->prompt_ids ? model_check_unchanged(h->p.model, &em) : ERR_NOMEM; // the tokenizer's texts lie in the file
	if (e == OK)
		e = encode(h, r, c->prompt_ids, cap, &n, &em);
	c->n_prompt_ids = (int32_t)n;
	const char *param = prompt_param(r->kind);
	if (e == ERR_LIMIT)
		openai_error_set(err, 400, "context_length_exceeded", param, "%s: more tokens than the context holds, which is %zu with the answer", param, cap);
	else if (e == ERR_UNSUPPORTED)
		openai_error_set(err, 400, "unsupported_value", param, "%s", em.text);
	else if (e != OK)
		openai_error_of(err, e, param, em.text);
	else if (n == 0)
		openai_error_set(err, 400, "invalid_value", param, "%s: no tokens: there is nothing to continue", param);
	return e == OK && n > 0;
}

static uint64_t draw_seed(void)
{
	uint64_t seed;
	randombytes_buf(&seed, sizeof seed);
	return seed >> (64 - SEED_BITS);
}

static void fill_call(struct http_call *c, const struct openai_request *r)
{
	uint8_t random[12];
	randombytes_buf(random, sizeof random);
	openai_reply_init(&c->reply, r->kind, random);
	c->reply.created_s = (int64_t)time(NULL);
	c->reply.model = c->api->model_id;
	c->reply.fingerprint = c->api->fingerprint;
	c->reply.include_usage = r->include_usage;
	c->n_predict = r->max_tokens;
	c->sampling = r->sampling;
	if (!r->has_seed)
		c->sampling.seed = draw_seed();
	c->n_stops = r->n_stops;
	memcpy(c->stops, r->stops, sizeof c->stops);
	c->stream = r->stream;
	c->hearth = r->hearth;
	c->logits_hash = r->logits_hash;
}

struct http_call *call_new(struct http_api *h, struct http_exchange *x, enum openai_kind kind, const struct http_request *q, struct openai_error *err)
{
	struct openai_request r;
	if (!openai_request_parse(kind, q->body, q->body_len, &r, err))
		return NULL;
	struct http_call *c = calloc(1, sizeof *c);
	if (c == NULL) {
		openai_error_of(err, ERR_NOMEM, NULL, NULL);
	} else {
		c->api = h;
		if (check_model(h, &r, err) && make_ids(c, &r, err)) {
			fill_call(c, &r);
			http_hold(x);
			c->x = x;
		} else {
			call_free(c);
			c = NULL;
		}
	}
	openai_request_deinit(&r);
	return c;
}

void call_free(struct http_call *c)
{
	if (c->x)
		http_release(c->x);
	free(c->prompt_ids);
	free(c->output_ids);
	free(c->text);
	free(c);
}

// ---- the end

static void link_call(struct http_call *c)
{
	c->next = c->api->calls;
	c->prev = NULL;
	if (c->next)
		c->next->prev = c;
	c->api->calls = c;
}

static void unlink_call(struct http_call *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		c->api->calls = c->next;
	if (c->next)
		c->next->prev = c->prev;
}

// end_stream takes over `last`; NULL: there was no memory for it, and a stream without its end must not look whole.
static void end_stream(struct http_call *c, char *last)
{
	if (last != NULL)
		http_stream_end(c->x, last);
	else
		http_abort(c->x);
	free(last);
}

void call_fail(struct http_call *c, const struct openai_error *e)
{
	if (c->is_over)
		return;
	c->is_over = true;
	if (c->has_begun)
		end_stream(c, openai_stream_error(e));
	else
		http_reply(c->x, e->status, openai_error_json(e), NULL);
}

static void give_up(struct http_call *c, enum err err, const char *text)
{
	struct openai_error e;
	openai_error_of(&e, err, prompt_param(c->reply.kind), text);
	call_fail(c, &e);
}

static void begin_stream(struct http_call *c, int64_t now_ns)
{
	if (c->has_begun)
		return;
	c->has_begun = true;
	c->sent_ns = now_ns;
	http_stream_begin(c->x);
	char *head = openai_stream_begin(&c->reply);
	if (head == NULL || !http_stream_push(c->x, head, strlen(head)))
		give_up(c, ERR_NOMEM, NULL);
	free(head);
}

static void succeed(struct http_call *c, const struct answer_result *r)
{
	struct openai_extra extra = {
		.seed = c->sampling.seed,
		.logits_hash = r->hash,
		.prompt_ids = c->prompt_ids,
		.n_prompt_ids = c->n_prompt_ids,
		.output_ids = c->output_ids,
		.n_output_ids = c->n_output_ids,
	};
	struct openai_ending ending = {
		.finish_reason = r->end == ANSWER_STOP ? "stop" : "length",
		.n_prompt_tokens = c->n_prompt_ids,
		.n_output_tokens = r->n_tokens,
		.extra = c->hearth ? &extra : NULL,
	};
	if (c->stream)
		begin_stream(c, loop_now_ns(c->api->p.loop));
	if (c->is_over)
		return;
	c->is_over = true;
	if (c->stream)
		end_stream(c, openai_stream_end(&c->reply, &ending));
	else
		http_reply(c->x, 200, openai_response_whole(&c->reply, c->text ? c->text : "", c->text_len, &ending), NULL);
}

static void on_end(void *ctx, const struct answer_result *r)
{
	struct http_call *c = ctx;
	c->answer = NULL;
	log_line(c->api->p.log, LOG_DEBUG, "http: %s: %d tokens for %d", c->reply.id, r->n_tokens, c->n_prompt_ids);
	if (r->end == ANSWER_STOP || r->end == ANSWER_LENGTH)
		succeed(c, r);
	else if (r->end == ANSWER_ERROR)
		give_up(c, r->err, r->text);
	else
		give_up(c, ERR_CLOSED, "the server is stopping"); // has no effect on a client that is gone
	unlink_call(c);
	call_free(c);
}

// ---- tokens

static void cancel(struct http_call *c)
{
	c->is_over = true;
	if (c->answer != NULL)
		answer_cancel(c->answer);
}

static bool keep_id(struct http_call *c, int32_t token)
{
	if (!c->hearth || token < 0)
		return true;
	if (c->n_output_ids == c->output_cap) {
		int32_t cap = c->output_cap ? 2 * c->output_cap : 64; // at most twice the context
		int32_t *ids = realloc(c->output_ids, (size_t)cap * sizeof *ids);
		if (ids == NULL)
			return false;
		c->output_ids = ids;
		c->output_cap = cap;
	}
	c->output_ids[c->n_output_ids++] = token;
	return true;
}

static bool keep_text(struct http_call *c, const char *text, size_t len)
{
	if (c->text_len + len > HTTP_TEXT_MAX)
		return false;
	if (c->text_len + len > c->text_cap) {
		size_t cap = 2 * (c->text_len + len);
		char *grown = realloc(c->text, cap);
		if (grown == NULL)
			return false;
		c->text = grown;
		c->text_cap = cap;
	}
	memcpy(c->text + c->text_len, text, len);
	c->text_len += len;
	return true;
}

static void stream_text(struct http_call *c, const char *text, size_t len)
{
	int64_t now_ns = loop_now_ns(c->api->p.loop);
	begin_stream(c, now_ns);
	if (c->is_over || len == 0)
		return;
	char *piece = openai_stream_piece(&c->reply, text, len);
	if (piece == NULL || !http_stream_push(c->x, piece, strlen(piece))) {
		struct openai_error e;
		openai_error_set(&e, 503, "slow_reader", NULL, "the client does not read its answer: the rest was given up");
		call_fail(c, &e);
		cancel(c);
	}
	free(piece);
	c->sent_ns = now_ns;
}

static void on_text(void *ctx, int32_t token, const char *text, size_t len)
{
	struct http_call *c = ctx;
	if (c->is_over || (token < 0 && len == 0)) // an answer that was refused has an empty rest: no reason to begin a stream
		return;
	bool ok = keep_id(c, token);
	if (ok && c->stream)
		stream_text(c, text, len);
	else if (ok && len > 0)
		ok = keep_text(c, text, len);
	if (!ok) {
		give_up(c, ERR_NOMEM, "no memory for the answer's text");
		cancel(c);
	}
}

// ---- the beginning, and the time between

void call_start(struct http_call *c)
{
	struct errmsg em;
	struct answer_request q = {
		.tokenizer = c->api->p.tokenizer,
		.tokens = c->prompt_ids,
		.n_tokens = c->n_prompt_ids,
		.n_predict = c->n_predict,
		.sampling = c->sampling,
		.hash_logits = c->logits_hash,
		.n_stops = c->n_stops,
		.ctx = c,
		.on_text = on_text,
		.on_end = on_end,
	};
	memcpy(q.stops, c->stops, sizeof q.stops);
	c->since_ns = loop_now_ns(c->api->p.loop);
	enum err e = http_is_gone(c->x) ? ERR_CLOSED : answer_start(c->api->p.coord, &q, &c->answer, &em);
	if (e != OK) {
		give_up(c, e, e == ERR_CLOSED ? "" : em.text); // when gone, to nobody: but the exchange must end
		call_free(c);
		return;
	}
	link_call(c);
}

void call_watch(struct http_call *c, int64_t now_ns)
{
	if (c->is_over)
		return;
	if (http_is_gone(c->x)) {
		cancel(c);
		http_abort(c->x); // a suspended connection is never looked at again
		return;
	}
	if (!c->stream)
		return;
	if (now_ns - c->since_ns >= HEAD_WAIT_NS)
		begin_stream(c, now_ns);
	if (!c->has_begun || c->is_over || now_ns - c->sent_ns < SIGN_OF_LIFE_NS || !http_is_idle(c->x))
		return;
	c->sent_ns = now_ns;
	if (!http_stream_push(c->x, sign_of_life, sizeof sign_of_life - 1)) {
		give_up(c, ERR_NOMEM, NULL);
		cancel(c);
	}
}
