// A vocabulary as a GGUF file holds it: tokens with their texts and types, a hash from text to id, and the merge rules.
//
// Inside model/ only; tokenizer.h is for everybody else. Texts are borrowed from the GGUF; all the rest lives in one arena sized from the
// file. Read-only once it is open. Hash chains are bounded, so that no file can make opening slow.
#ifndef HEARTH_MODEL_VOCAB_H
#define HEARTH_MODEL_VOCAB_H

#include "base/arena.h"
#include "base/err.h"
#include "model/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_type { // tokenizer.ggml.token_type, ids as in the file
	TOKEN_UNDEFINED,
	TOKEN_NORMAL,
	TOKEN_UNKNOWN,
	TOKEN_CONTROL,
	TOKEN_USER_DEFINED,
	TOKEN_UNUSED,
	TOKEN_BYTE,
};

struct vocab_token {
	const char *text; // as the file writes it
	uint32_t text_len;
	uint32_t piece_len;
	uint32_t piece_offset; // in `pieces`: the bytes a normal token stands for
	uint8_t type;          // enum token_type
	bool in_bytes;         // `piece_*` holds; otherwise the text is the piece
};

struct vocab_merge {
	int32_t left, right; // token ids; the key
	uint32_t rank;       // VOCAB_NO_RANK: an empty slot
	int32_t result;
};

#define VOCAB_NO_RANK UINT32_MAX

struct vocab {
	const struct vocab_token *tokens; // (n_tokens)
	int32_t n_tokens;
	const char *pieces;
	const int32_t *text_slots; // (text_mask + 1) ids, -1 is empty
	uint32_t text_mask;
	const struct vocab_merge *merges; // (merge_mask + 1) slots
	uint32_t merge_mask;
	int32_t byte_ids[256]; // the token of each single byte, or -1
	struct arena arena;    // owned
};

MUST_USE enum err vocab_open(const struct gguf *g, struct vocab *v, struct errmsg *em);
void vocab_close(struct vocab *v); // safe on a zeroed one

// vocab_find returns the id whose text in the file is `text`, or -1. Of two with one text the last counts, as in llama.cpp.
int32_t vocab_find(const struct vocab *v, const char *text, size_t len);
// vocab_find_merge returns the rule for two neighbours, or NULL.
const struct vocab_merge *vocab_find_merge(const struct vocab *v, int32_t left, int32_t right);
static inline bool vocab_is_special(const struct vocab *v, int32_t id)
{
	uint8_t type = v->tokens[id].type;
	return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN;
}

#endif
