// Pre-tokenizers: how a text is cut into pieces that merges never cross, by the patterns that tokenizer.ggml.pre names.
//
// A pre-tokenizer is one pattern or several in turn: each cuts every piece that the one before it left, a match is a piece, and so
// is the text between two matches. A pattern sees only the piece it cuts, so its lookahead ends there. Inside model/ only.
// Read-only once open, for any number of threads; an iterator belongs to one.
#ifndef HEARTH_MODEL_PRETOKENIZE_H
#define HEARTH_MODEL_PRETOKENIZE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define PRETOKENIZE_STEPS_MAX 4

struct pretokenizer {
	const char *name;
	int n_steps;
	void *codes[PRETOKENIZE_STEPS_MAX]; // compiled patterns, owned
	void *match_ctx;                    // limits, owned
	bool ignore_merges;                 // a piece that is a token as a whole is that token, whatever the merges say
	bool adds_bos;                      // when the file does not say
};

// pretokenizer_open knows the names that tests compare with llama.cpp; ERR_UNSUPPORTED names any other and lists them.
MUST_USE enum err pretokenizer_open(const char *name, size_t len, struct pretokenizer *p, struct errmsg *em);
void pretokenizer_close(struct pretokenizer *p); // safe on a zeroed one

struct pretokenize_level {
	size_t at, end;                // what is left of the piece this pattern cuts
	size_t match_begin, match_end; // the match ahead, when match_end > at
};

struct pretokenize_iter {
	const struct pretokenizer *p;
	const char *text;
	int depth;
	struct pretokenize_level levels[PRETOKENIZE_STEPS_MAX];
	void *match_data; // owned
	enum err e;       // why it ended early, OK otherwise
	struct errmsg *em;
};

// pretokenize_start begins a walk over text[0..len), which must be UTF-8. An iterator may be started again; pretokenize_end it once.
MUST_USE enum err pretokenize_start(
	struct pretokenize_iter *it, const struct pretokenizer *p, const char *text, size_t len, struct errmsg *em);
// pretokenize_next returns false at the end or when it failed (it->e). Pieces are never empty and follow each other without gaps.
bool pretokenize_next(struct pretokenize_iter *it, const char **piece, size_t *len);
void pretokenize_end(struct pretokenize_iter *it); // safe on a zeroed one

#endif
