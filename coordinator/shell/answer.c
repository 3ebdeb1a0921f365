#include "coordinator/shell/answer.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_MAX 1024 // bytes of one token's text; longer ones are cut in parts on their way through the decoder

struct answer {
	struct coord_runtime *rt;
	struct answer_request r;
	uint64_t req;
	struct stream_decoder decoder;
	struct answer_result result;
	bool has_stopped; // a stop string was found: what follows is not shown
	char held[STOP_STRING_CAP + STREAM_DECODER_OUT(PIECE_MAX)]; // text that may be the beginning of a stop string
	size_t n_held;
};

// find_stop returns where the first stop string begins in text, or len.
static size_t find_stop(const struct answer *a, const char *text, size_t len)
{
	size_t first = len;
	for (int32_t i = 0; i < a->r.n_stops; i++) {
		const char *at = memmem(text, len, a->r.stops[i], strlen(a->r.stops[i]));
		if (at != NULL && (size_t)(at - text) < first)
			first = (size_t)(at - text);
	}
	return first;
}

// n_undecided returns how many bytes at the end of text may be the beginning of a stop string.
static size_t n_undecided(const struct answer *a, const char *text, size_t len)
{
	size_t most = 0;
	for (int32_t i = 0; i < a->r.n_stops; i++) {
		size_t stop_len = strlen(a->r.stops[i]);
		for (size_t n = stop_len - 1 < len ? stop_len - 1 : len; n > most; n--)
			if (memcmp(text + len - n, a->r.stops[i], n) == 0)
				most = n;
	}
	return most;
}

// show takes decoded text and hands out what cannot be part of a stop string. True: a stop string was found.
static bool show(struct answer *a, int32_t token, const char *text, size_t len)
{
	ASSERT(len <= sizeof a->held - a->n_held);
	memcpy(a->held + a->n_held, text, len);
	a->n_held += len;
	size_t stop = find_stop(a, a->held, a->n_held);
	if (stop < a->n_held) {
		a->r.on_text(a->r.ctx, token, a->held, stop);
		a->n_held = 0;
		return true;
	}
	size_t keep = n_undecided(a, a->held, a->n_held), out = a->n_held - keep;
	a->r.on_text(a->r.ctx, token, a->held, out);
	memmove(a->held, a->held + out, keep);
	a->n_held = keep;
	return false;
}

static void on_token(void *ctx, int32_t token, int32_t pos)
{
	struct answer *a = ctx;
	(void)pos;
	if (a->has_stopped)
		return;
	a->result.last_ns = loop_clock_ns();
	if (a->result.n_tokens++ == 0)
		a->result.first_ns = a->result.last_ns;
	size_t len;
	const char *piece = tokenizer_piece(a->r.tokenizer, token, false, &len);
	do {
		char text[STREAM_DECODER_OUT(PIECE_MAX)];
		size_t part = len < PIECE_MAX ? len : PIECE_MAX;
		size_t n = stream_decoder_push(&a->decoder, piece, part, text);
		piece += part;
		len -= part;
		a->has_stopped = show(a, token, text, n);
		token = -1;
	} while (len > 0 && !a->has_stopped);
	if (a->has_stopped)
		coord_runtime_cancel(a->rt, a->req);
}

static enum answer_end end_of(const struct answer *a, enum coord_end end)
{
	if (a->has_stopped)
		return ANSWER_STOP;
	switch (end) {
	case COORD_END_STOP: return ANSWER_STOP;
	case COORD_END_LENGTH: return ANSWER_LENGTH;
	case COORD_END_CANCELLED: return ANSWER_CANCELLED;
	case COORD_END_ERROR: return ANSWER_ERROR;
	}
	return ANSWER_ERROR;
}

static void on_end(void *ctx, enum coord_end end, enum err err, const char *text, const char *hash)
{
	struct answer *a = ctx;
	a->result.end = end_of(a, end);
	a->result.err = a->result.end == ANSWER_ERROR ? err : OK;
	a->result.text = a->result.end == ANSWER_ERROR ? text : "";
	a->result.hash = hash;
	if (!a->has_stopped && a->result.end != ANSWER_CANCELLED) {
		char rest[STREAM_DECODER_OUT(0)];
		size_t n = stream_decoder_finish(&a->decoder, rest);
		a->has_stopped = show(a, -1, rest, n);
		if (!a->has_stopped && a->n_held > 0)
			a->r.on_text(a->r.ctx, -1, a->held, a->n_held);
	}
	a->r.on_end(a->r.ctx, &a->result);
	free(a);
}

enum err answer_start(struct coord_runtime *rt, const struct answer_request *r, struct answer **out, struct errmsg *em)
{
	if (!coord_runtime_has_room(rt))
		return errmsg_fail(em, ERR_BUSY, "too many requests wait already: try again later");
	struct answer *a = calloc(1, sizeof *a);
	if (a == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a request");
	a->rt = rt;
	a->r = *r;
	a->r.tokens = NULL; // the runtime copies them
	struct coord_request q = {
		.tokens = r->tokens,
		.n_tokens = r->n_tokens,
		.n_predict = r->n_predict,
		.sampling = r->sampling,
		.hash_logits = r->hash_logits,
		.ignore_stop = r->ignore_stop,
		.ctx = a,
		.on_token = on_token,
		.on_end = on_end,
	};
	a->req = coord_runtime_submit(rt, &q);
	*out = a;
	return OK;
}

void answer_cancel(struct answer *a)
{
	coord_runtime_cancel(a->rt, a->req);
}
