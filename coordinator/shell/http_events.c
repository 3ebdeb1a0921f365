// What a call has said, as events of a stream: made again for each reader, in the same bytes each time.
#include "coordinator/shell/http_call.h"

#include "base/assert.h"

static int64_t n_begin(const struct http_call *c)
{
	return c->rec.stream && c->rec.kind == OPENAI_CHAT ? 1 : 0; // a completion has no role to tell
}

static int64_t n_end(const struct http_call *c)
{
	switch (c->state) {
	case CALL_RUNNING: return 0;
	case CALL_FAILED: return 1;
	case CALL_DONE: return c->rec.stream && c->rec.include_usage ? 3 : 2;
	}
	return 0;
}

int64_t call_n_open_events(const struct http_call *c)
{
	return (c->state == CALL_DONE || c->has_spoken ? n_begin(c) : 0) + c->n_pieces;
}

int64_t call_n_events(const struct http_call *c)
{
	bool is_refused = c->state == CALL_FAILED && call_n_open_events(c) == 0; // no token is in it
	return c->is_durable || is_refused ? call_n_open_events(c) + n_end(c) : 0;
}

static struct openai_ending ending_of(const struct http_call *c, struct openai_extra *extra)
{
	*extra = (struct openai_extra){
		.request = c->id,
		.seed = c->rec.sampling.seed,
		.logits_hash = c->hash,
		.prompt_ids = c->rec.prompt_ids,
		.n_prompt_ids = c->rec.n_prompt_ids,
		.output_ids = c->output_ids,
		.n_output_ids = c->n_output_ids,
	};
	return (struct openai_ending){
		.finish_reason = c->end == ANSWER_STOP ? "stop" : "length",
		.n_prompt_tokens = c->rec.n_prompt_ids,
		.n_output_tokens = c->n_tokens,
		.extra = c->rec.hearth ? extra : NULL,
	};
}

char *call_whole(const struct http_call *c)
{
	struct openai_extra extra;
	struct openai_ending e = ending_of(c, &extra);
	return openai_response_whole(&c->reply, c->text ? c->text : "", c->text_len, &e);
}

static char *end_event(const struct http_call *c, int64_t n, int64_t i)
{
	struct openai_extra extra;
	if (c->state == CALL_FAILED)
		return openai_stream_error(&c->error, n);
	if (i == n_end(c) - 1)
		return openai_stream_done(n);
	if (!c->rec.stream)
		return openai_stream_json(call_whole(c), n);
	struct openai_ending e = ending_of(c, &extra);
	return i == 0 ? openai_stream_finish(&c->reply, n, &e) : openai_stream_usage(&c->reply, n, &e);
}

char *call_event(const struct http_call *c, int64_t n)
{
	ASSERT(n >= 1 && n <= call_n_events(c));
	int64_t n_open = call_n_open_events(c), i = n - 1;
	if (i >= n_open)
		return end_event(c, n, i - n_open);
	if (i < n_begin(c))
		return openai_stream_begin(&c->reply, n);
	i -= n_begin(c);
	uint32_t begin = i > 0 ? c->ends[i - 1] : 0;
	return openai_stream_piece(&c->reply, n, c->text + begin, c->ends[i] - begin);
}
