// Special tokens inside text: finds, at each place, the longest token text that stands there, in O(log n) comparisons.
//
// Sorted texts, each with its longest proper prefix that is one as well: the last text that does not sort after what stands there,
// or one along its chain of prefixes, is the longest match. Inside model/ only; borrows the vocabulary. Read-only once open.
#ifndef HEARTH_MODEL_SPECIAL_TOKENS_H
#define HEARTH_MODEL_SPECIAL_TOKENS_H

#include "base/err.h"
#include "model/vocab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct special_entry {
	int32_t id;
	int32_t prefix; // index of the longest other text that begins this one, or -1
};

struct special_tokens {
	const struct vocab *vocab;
	struct special_entry *entries; // (n) sorted by text, owned
	int32_t n;
	bool starts[256]; // bytes some text begins with
};

MUST_USE enum err special_tokens_open(const struct vocab *v, struct special_tokens *s, struct errmsg *em);
void special_tokens_close(struct special_tokens *s); // safe on a zeroed one

// special_tokens_find looks for the first special token in text[from..len): its id, with its place in *at, or -1 with *at = len. User-defined
// tokens always count, control tokens only with `control`.
int32_t special_tokens_find(const struct special_tokens *s, const char *text, size_t len, size_t from, bool control, size_t *at);

#endif
