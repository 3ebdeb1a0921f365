// One exchange that reads a call: what it has of it, and what it still gets.
#include "coordinator/shell/http_call.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_WAIT_NS 1000000000 // a stream's head waits so long for a refusal, which has a status of its own
#define SIGN_OF_LIFE_NS 2000000000
#define FOLLOW_BACKLOG (256 * 1024) // bytes that wait for one who follows: the rest comes when it has read

static const char sign_of_life[] = ": still here\n\n"; // a comment line: clients skip it

struct http_reader *reader_new(struct http_api *h, struct http_exchange *x, enum reader_kind kind)
{
	struct http_reader *r = calloc(1, sizeof *r);
	if (r == NULL)
		return NULL;
	*r = (struct http_reader){.api = h, .x = x, .kind = kind};
	http_hold(x);
	return r;
}

void reader_free(struct http_reader *r)
{
	http_release(r->x);
	free(r);
}

// ---- ends

// end_stream takes over `last`; NULL: there was no memory for it, and a stream without its end must not look whole.
static void end_stream(struct http_reader *r, char *last)
{
	r->is_over = true;
	if (last != NULL)
		http_stream_end(r->x, last);
	else
		http_abort(r->x);
	free(last);
}

void reader_fail(struct http_reader *r, const struct openai_error *e)
{
	if (r->is_over)
		return;
	r->is_over = true;
	if (r->has_begun)
		end_stream(r, openai_stream_error(e, 0));
	else
		http_reply(r->x, e->status, openai_error_json(e), NULL);
}

static void fail_nomem(struct http_reader *r)
{
	struct openai_error e;
	openai_error_of(&e, ERR_NOMEM, NULL, NULL);
	reader_fail(r, &e);
}

static void fail_slow(struct http_reader *r)
{
	struct openai_error e;
	openai_error_set(&e, 503, "slow_reader", NULL, "the client does not read its answer: the rest was given up");
	reader_fail(r, &e);
}

static void fail_number(struct http_reader *r, int64_t n)
{
	struct openai_error e;
	openai_error_set(&e, 400, "invalid_value", "after", "after: the stream ends with event %lld", (long long)n);
	reader_fail(r, &e);
}

// ---- streams

static void begin_stream(struct http_reader *r)
{
	if (r->has_begun)
		return;
	r->has_begun = true;
	r->sent_ns = loop_now_ns(r->api->p.loop);
	http_stream_begin(r->x);
}

// send_open sends what stands before the stream's end, as far as there is room. False: there is more, or the reader is over.
static bool send_open(struct http_reader *r)
{
	const struct http_call *c = r->call;
	int64_t n = call_n_open_events(c);
	while (r->n_read < n) {
		if (r->kind == READER_FOLLOW && http_backlog(r->x) >= FOLLOW_BACKLOG)
			return false;
		char *text = call_event(c, r->n_read + 1);
		begin_stream(r);
		bool ok = text != NULL && http_stream_push(r->x, text, strlen(text));
		if (text == NULL)
			fail_nomem(r);
		else if (!ok)
			fail_slow(r);
		free(text);
		if (!ok)
			return false;
		r->n_read++;
		r->sent_ns = loop_now_ns(r->api->p.loop);
	}
	return true;
}

// send_end sends the rest in one piece, which is taken whatever waits before it.
static void send_end(struct http_reader *r)
{
	int64_t n = call_n_events(r->call);
	char *all = calloc(1, 1);
	for (; all != NULL && r->n_read < n; r->n_read++) {
		char *text = call_event(r->call, r->n_read + 1);
		char *grown = text ? realloc(all, strlen(all) + strlen(text) + 1) : NULL;
		if (grown != NULL)
			strcat(grown, text);
		else
			free(all);
		all = grown;
		free(text);
	}
	begin_stream(r);
	end_stream(r, all);
}

static void pump_stream(struct http_reader *r)
{
	const struct http_call *c = r->call;
	int64_t n = call_n_events(c);
	if (n == 0)
		return; // not on disk yet, or not begun
	if (c->state == CALL_FAILED && n == 1 && r->n_read == 0 && !r->has_begun) {
		reader_fail(r, &c->error); // a refusal has its status
		return;
	}
	if (c->state == CALL_FAILED && r->n_read >= n) {
		reader_fail(r, &c->error); // computed again after a crash, it came less far
		return;
	}
	if (c->state == CALL_DONE && r->n_read > n) {
		fail_number(r, n);
		return;
	}
	if (send_open(r) && c->state != CALL_RUNNING)
		send_end(r);
}

static void pump_whole(struct http_reader *r)
{
	const struct http_call *c = r->call;
	if (c->state == CALL_RUNNING || call_n_events(c) == 0)
		return;
	if (c->state == CALL_FAILED) {
		reader_fail(r, &c->error);
		return;
	}
	r->is_over = true;
	http_reply(r->x, 200, call_whole(c), NULL);
}

void reader_pump(struct http_reader *r)
{
	if (r->is_over)
		return;
	if (r->kind == READER_CLIENT && !r->call->rec.stream)
		pump_whole(r);
	else
		pump_stream(r);
}

bool reader_is_behind(const struct http_reader *r)
{
	return !r->is_over && r->kind == READER_FOLLOW && r->n_read < call_n_open_events(r->call) && call_n_events(r->call) > 0;
}

// ---- from attach to end

void reader_attach(struct http_reader *r, struct http_call *c)
{
	ASSERT(r->kind != READER_HEALTH);
	r->call = c;
	r->since_ns = loop_now_ns(r->api->p.loop);
	r->prev = NULL;
	r->next = c->readers;
	if (r->next)
		r->next->prev = r;
	c->readers = r;
	http_set_request_id(r->x, c->id);
	reader_pump(r);
}

static bool is_stream(const struct http_reader *r)
{
	return r->kind == READER_FOLLOW || r->call->rec.stream;
}

bool reader_watch(struct http_reader *r, int64_t now_ns)
{
	if (http_is_gone(r->x)) {
		if (!r->is_over)
			http_abort(r->x); // a suspended connection is never looked at again
		return true;
	}
	if (r->is_over)
		return http_is_idle(r->x);
	if (!is_stream(r))
		return false;
	reader_pump(r);
	if (r->is_over)
		return false;
	if (now_ns - r->since_ns >= HEAD_WAIT_NS)
		begin_stream(r);
	if (!r->has_begun || now_ns - r->sent_ns < SIGN_OF_LIFE_NS || !http_is_idle(r->x))
		return false;
	r->sent_ns = now_ns;
	if (!http_stream_push(r->x, sign_of_life, sizeof sign_of_life - 1))
		fail_nomem(r);
	return false;
}
