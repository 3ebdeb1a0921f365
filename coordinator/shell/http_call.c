#include "coordinator/shell/http_call.h"

#include "base/assert.h"
#include "coordinator/shell/prompt.h"
#include "kernels/canonical.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEED_BITS 53 // of a seed we draw: exact as a JSON number everywhere

// ---- from a body to token ids (the server's thread)

static const char *prompt_param(enum openai_kind kind)
{
	return kind == OPENAI_CHAT ? "messages" : "prompt";
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
	c->rec.prompt_ids = malloc(cap * sizeof *c->rec.prompt_ids);
	enum err e = c->rec.prompt_ids ? model_check_unchanged(h->p.model, &em) : ERR_NOMEM; // the tokenizer's texts lie in the file
	if (e == OK)
		e = encode(h, r, c->rec.prompt_ids, cap, &n, &em);
	c->rec.n_prompt_ids = (int32_t)n;
	const char *param = prompt_param(r->kind);
	if (e == ERR_LIMIT)
		openai_error_set(err, 400, "context_length_exceeded", param, "%s: more tokens than the context holds, which is %zu with the answer (hearth serve --ctx)", param,
			cap);
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

// fill_work says what to compute, and with what: the same record gives the same answer.
static void fill_work(struct request_record *rec, const struct http_api *h, const struct openai_request *r)
{
	const struct coordinator_config *core = coord_runtime_config(h->p.coord);
	int32_t room = core->ctx_len - rec->n_prompt_ids; // an answer that the context ends does so again under a larger one
	rec->n_predict = room > 0 && r->max_tokens > room ? room : r->max_tokens;
	rec->sampling = r->sampling;
	if (!r->has_seed)
		rec->sampling.seed = draw_seed();
	rec->n_stops = r->n_stops;
	memcpy(rec->stops, r->stops, sizeof rec->stops);
	memcpy(rec->model_hash, core->model_unknown ? h->p.file_tag : core->model_hash, HASH_BYTES);
	rec->canon_version = CANON_VERSION;
	rec->wire = core->wire;
}

// fill_reply: what the record says, new or restored, and nothing else.
static void fill_reply(struct http_call *c)
{
	request_id_hex(c->rec.id, c->id);
	c->reply.kind = c->rec.kind;
	memcpy(c->reply.id, c->rec.reply_id, sizeof c->reply.id);
	c->reply.created_s = c->rec.created_s;
	c->reply.model = c->rec.model_id;
	c->reply.fingerprint = c->api->fingerprint;
	c->reply.include_usage = c->rec.include_usage;
}

static void fill_call(struct http_call *c, const struct openai_request *r)
{
	struct request_record *rec = &c->rec;
	uint8_t random[12];
	randombytes_buf(random, sizeof random);
	randombytes_buf(rec->id, sizeof rec->id);
	rec->kind = r->kind;
	rec->stream = r->stream;
	rec->include_usage = r->include_usage;
	rec->hearth = r->hearth;
	rec->logits_hash = r->logits_hash;
	rec->keep = r->keep;
	rec->created_s = (int64_t)time(NULL);
	openai_reply_id(r->kind, random, rec->reply_id);
	memcpy(rec->model_id, c->api->model_id, sizeof rec->model_id);
	fill_work(rec, c->api, r);
	fill_reply(c);
}

struct http_call *call_new(struct http_api *h, enum openai_kind kind, const struct http_request *q, struct openai_error *err)
{
	struct openai_request r;
	if (!openai_request_parse(kind, q->body, q->body_len, &r, err))
		return NULL;
	struct http_call *c = calloc(1, sizeof *c);
	if (c == NULL) {
		openai_error_of(err, ERR_NOMEM, NULL, NULL);
	} else {
		c->api = h;
		if (http_api_serves(h, r.model, err) && make_ids(c, &r, err)) {
			fill_call(c, &r);
		} else {
			call_free(c);
			c = NULL;
		}
	}
	openai_request_deinit(&r);
	return c;
}

struct http_call *call_restore(struct http_api *h, struct journal_key key, struct request_record *r)
{
	struct http_call *c = calloc(1, sizeof *c);
	if (c == NULL)
		return NULL;
	c->api = h;
	c->rec = *r;
	c->key = key;
	c->is_restored = c->is_durable = true;
	fill_reply(c);
	return c;
}

void call_free(struct http_call *c)
{
	ASSERT(c->readers == NULL);
	request_record_deinit(&c->rec);
	free(c->output_ids);
	free(c->ends);
	free(c->text);
	free(c);
}

// ---- the list

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

struct http_call *call_find(struct http_api *h, const uint8_t id[REQUEST_ID_BYTES])
{
	for (struct http_call *c = h->calls; c != NULL; c = c->next)
		if (sodium_memcmp(c->rec.id, id, REQUEST_ID_BYTES) == 0)
			return c->is_cancelled ? NULL : c;
	return NULL;
}

// ---- the journal

static void leave_journal(struct http_call *c)
{
	if (c->key.number != 0)
		journal_remove(c->api->journal, c->key);
	c->key.number = 0;
}

static void forget(struct http_call *c)
{
	leave_journal(c);
	if (c->kept_bytes > 0) {
		c->api->kept_bytes -= c->kept_bytes;
		c->api->n_kept--;
	}
	unlink_call(c);
	call_free(c);
}

static void pump_all(struct http_call *c)
{
	for (struct http_reader *r = c->readers; r != NULL; r = r->next)
		reader_pump(r);
}

static void set_durable(struct http_call *c)
{
	if (c->is_durable)
		return;
	c->is_durable = true;
	pump_all(c);
}

void call_on_journal(struct http_api *h, struct journal_key key)
{
	for (struct http_call *c = h->calls; c != NULL; c = c->next)
		if (c->key.number == key.number)
			set_durable(c);
}

// ---- the end

// is_wanted tells whether somebody reads it, or may come to read it.
static bool is_wanted(const struct http_call *c)
{
	if (c->rec.keep || c->is_restored)
		return true;
	for (const struct http_reader *r = c->readers; r != NULL; r = r->next)
		if (!r->is_over)
			return true;
	return false;
}

// cancel: nobody wants the rest.
static void cancel(struct http_call *c)
{
	c->is_cancelled = true;
	leave_journal(c);
	if (c->answer != NULL)
		answer_cancel(c->answer);
}

static size_t bytes_of(const struct http_call *c)
{
	return sizeof *c + c->text_cap + (size_t)c->pieces_cap * sizeof *c->ends + (size_t)c->output_cap * sizeof *c->output_ids +
		(c->rec.prompt_ids ? (size_t)c->rec.n_prompt_ids * sizeof *c->rec.prompt_ids : 0);
}

// drop_prompt frees what nobody will ask for: who did not ask for the ids is not told them.
static void drop_prompt(struct http_call *c)
{
	if (c->rec.hearth || c->rec.prompt_ids == NULL)
		return;
	sodium_memzero(c->rec.prompt_ids, (size_t)c->rec.n_prompt_ids * sizeof *c->rec.prompt_ids);
	free(c->rec.prompt_ids);
	c->rec.prompt_ids = NULL;
}

// make_room forgets the oldest answers that nobody reads. The list has the newest first.
static void make_room(struct http_api *h)
{
	struct http_call *last = h->calls, *prev;
	while (last != NULL && last->next != NULL)
		last = last->next;
	for (struct http_call *c = last; c != NULL && (h->n_kept > KEPT_MAX || h->kept_bytes > KEPT_BYTES_MAX); c = prev) {
		prev = c->prev;
		if (c->kept_bytes > 0 && c->readers == NULL)
			forget(c);
	}
}

// on_complete: the answer has all it will ever have. The call may be gone afterwards.
static void on_complete(struct http_call *c)
{
	struct http_api *h = c->api;
	c->ended_ns = loop_now_ns(h->p.loop);
	drop_prompt(c);
	c->kept_bytes = bytes_of(c);
	h->kept_bytes += c->kept_bytes;
	h->n_kept++;
	pump_all(c);
	make_room(h);
	http_api_watch(h);
}

static void fail(struct http_call *c, const struct openai_error *e)
{
	if (c->state != CALL_RUNNING)
		return;
	c->state = CALL_FAILED;
	c->error = *e;
}

static void fail_of(struct http_call *c, enum err err, const char *text)
{
	struct openai_error e;
	openai_error_of(&e, err, prompt_param(c->rec.kind), text);
	fail(c, &e);
}

static void on_end(void *ctx, const struct answer_result *r)
{
	struct http_call *c = ctx;
	c->answer = NULL;
	log_line(c->api->p.log, LOG_DEBUG, "http: %s: %d tokens for %d", c->reply.id, r->n_tokens, c->rec.n_prompt_ids);
	if (r->end == ANSWER_ERROR) {
		fail_of(c, r->err, r->text);
	} else if (r->end == ANSWER_CANCELLED) {
		fail_of(c, ERR_CLOSED, "the request was cancelled");
	} else if (c->state == CALL_RUNNING) {
		c->state = CALL_DONE;
		c->end = r->end;
		c->n_tokens = r->n_tokens;
		snprintf(c->hash, sizeof c->hash, "%s", r->hash);
	}
	bool is_interrupted = c->api->is_stopping && r->end == ANSWER_ERROR && r->err == ERR_CLOSED;
	if (is_interrupted && (c->rec.keep || c->is_restored))
		c->key.number = 0; // stays in the journal: the next start computes it again
	on_complete(c);
}

// ---- tokens

// grown returns the array, moved if need be, with room for one more element of `size` bytes. NULL: no memory, and the array is what it was.
static void *grown(void *array, int32_t n, int32_t *cap, size_t size)
{
	if (n < *cap)
		return array;
	int32_t wanted = *cap ? 2 * *cap : 64; // at most twice the context
	void *p = realloc(array, (size_t)wanted * size);
	if (p != NULL)
		*cap = wanted;
	return p;
}

static bool keep_id(struct http_call *c, int32_t token)
{
	if (!c->rec.hearth || token < 0)
		return true;
	int32_t *ids = grown(c->output_ids, c->n_output_ids, &c->output_cap, sizeof *ids);
	if (ids == NULL)
		return false;
	c->output_ids = ids;
	c->output_ids[c->n_output_ids++] = token;
	return true;
}

// end_piece makes an event of what came since the last one.
static bool end_piece(struct http_call *c)
{
	uint32_t *ends = grown(c->ends, c->n_pieces, &c->pieces_cap, sizeof *ends);
	if (ends == NULL)
		return false;
	c->ends = ends;
	c->ends[c->n_pieces++] = (uint32_t)c->text_len;
	return true;
}

static bool keep_text(struct http_call *c, const char *text, size_t len)
{
	if (len == 0)
		return true;
	if (c->text_len + len > HTTP_TEXT_MAX)
		return false;
	if (c->text_len + len > c->text_cap) {
		size_t cap = 2 * (c->text_len + len);
		char *more = realloc(c->text, cap);
		if (more == NULL)
			return false;
		c->text = more;
		c->text_cap = cap;
	}
	memcpy(c->text + c->text_len, text, len);
	c->text_len += len;
	return !c->rec.stream || end_piece(c);
}

static void on_text(void *ctx, int32_t token, const char *text, size_t len)
{
	struct http_call *c = ctx;
	if (c->state != CALL_RUNNING)
		return;
	c->has_spoken = c->has_spoken || token >= 0; // an answer that was refused has an empty rest: no reason to begin a stream
	if (!keep_id(c, token) || !keep_text(c, text, len)) {
		fail_of(c, ERR_NOMEM, "no memory for the answer's text");
		answer_cancel(c->answer);
	}
	pump_all(c);
}

// ---- the beginning, and the time between

static void enter_journal(struct http_call *c)
{
	if (c->is_restored)
		return;
	if (c->api->journal == NULL)
		c->is_durable = true;
	else
		c->key = journal_put(c->api->journal, &c->rec);
}

void call_start(struct http_call *c)
{
	struct errmsg em;
	const struct request_record *rec = &c->rec;
	struct answer_request q = {
		.tokenizer = c->api->p.tokenizer,
		.tokens = rec->prompt_ids,
		.n_tokens = rec->n_prompt_ids,
		.n_predict = rec->n_predict,
		.sampling = rec->sampling,
		.hash_logits = rec->logits_hash,
		.n_stops = rec->n_stops,
		.ctx = c,
		.on_text = on_text,
		.on_end = on_end,
	};
	memcpy(q.stops, rec->stops, sizeof q.stops);
	link_call(c);
	c->began_ns = loop_now_ns(c->api->p.loop);
	enum err e = answer_start(c->api->p.coord, &q, &c->answer, &em);
	if (e == OK) {
		enter_journal(c);
		return;
	}
	fail_of(c, e, em.text);
	on_complete(c);
}

static void remove_reader(struct http_reader *r)
{
	if (r->prev)
		r->prev->next = r->next;
	else
		r->call->readers = r->next;
	if (r->next)
		r->next->prev = r->prev;
	reader_free(r);
}

static void watch_readers(struct http_call *c, int64_t now_ns)
{
	struct http_reader *next;
	for (struct http_reader *r = c->readers; r != NULL; r = next) {
		next = r->next;
		if (reader_watch(r, now_ns))
			remove_reader(r);
	}
}

// is_over tells whether nobody can come for it any more.
static bool is_over(const struct http_call *c, int64_t now_ns)
{
	bool is_refused = c->state == CALL_FAILED && !c->has_spoken && !c->rec.keep && !c->is_restored;
	return c->is_cancelled || is_refused || now_ns - c->ended_ns >= KEPT_NS;
}

void call_watch(struct http_call *c, int64_t now_ns)
{
	watch_readers(c, now_ns);
	if (!c->is_durable && now_ns - c->began_ns >= JOURNAL_WAIT_NS) {
		log_line(c->api->p.log, LOG_ERROR, "journal: the disk takes longer than %d s: the answer goes on without", (int)(JOURNAL_WAIT_NS / 1000000000));
		set_durable(c);
	}
	if (c->answer != NULL) {
		if (!c->is_cancelled && !is_wanted(c))
			cancel(c);
		return;
	}
	if (c->readers != NULL)
		return;
	leave_journal(c); // its client has it all, or is gone
	if (is_over(c, now_ns))
		forget(c);
}

void call_end(struct http_call *c)
{
	ASSERT(c->answer == NULL);
	while (c->readers != NULL)
		remove_reader(c->readers);
	forget(c);
}
