// Text generation on one machine with one engine for all layers: prompt ids in, answer ids out.
//
// The single-process reference that every cluster must equal bit for bit, and what tests and benchmarks time. Owns an engine
// with one KV slot. Knows no text: the caller decodes ids and says when to stop. One thread; computes on the caller's pool.
#ifndef HEARTH_ENGINE_GENERATE_H
#define HEARTH_ENGINE_GENERATE_H

#include "base/sampling.h"
#include "engine/engine.h"
#include "engine/logits_hash.h"

struct generate;

struct generate_config {
	const struct model *model;     // borrowed, like the next two
	const struct kernels *kernels;
	struct pool *pool;
	int32_t ctx_len;       // tokens of prompt and answer together
	int32_t prefill_chunk; // prompt tokens computed together
	enum wire_type wire;
};

MUST_USE enum err generate_open(const struct generate_config *c, struct generate **out, struct errmsg *em);
void generate_close(struct generate *g); // NULL is allowed

struct generate_request {
	const int32_t *prompt; // (n_prompt)
	int32_t n_prompt;
	int32_t max_tokens;
	struct sampling sampling;
	bool hash_logits;      // costs an output head for each prompt token instead of one for the prompt
	// on_token sees each token as it is drawn; false ends the answer with it. May be NULL.
	bool (*on_token)(void *ctx, int32_t token);
	// is_cancelled is asked between steps; true gives ERR_CANCELLED. May be NULL.
	bool (*is_cancelled)(void *ctx);
	void *ctx;
};

enum generate_stop {
	GENERATE_TOKEN,  // on_token ended it
	GENERATE_LENGTH, // max_tokens
	GENERATE_CTX,    // the context is full
};

struct generate_result {
	int32_t *tokens;         // (max_tokens), the caller's
	int32_t n_tokens;        // the one that ended the answer is among them
	enum generate_stop stop;
	struct logits_hash hash; // of every fed position, when asked for; the last drawn token is not fed
	int32_t n_fed;           // positions computed
	int64_t prefill_ns;      // the prompt through all layers, and the logits of its last token
	int64_t hash_ns;         // logits of the other prompt tokens, and hashing
	int64_t ttft_ns;         // from the call to the first token
	int64_t decode_ns;       // from the first token to the last
};

// generate_run computes one answer; the context of an earlier call is forgotten. ERR_RANGE: an empty prompt, one that does not fit, or
// sampling out of range. After an error, r holds what was drawn before it.
MUST_USE enum err generate_run(struct generate *g, const struct generate_request *q, struct generate_result *r, struct errmsg *em);

#endif
