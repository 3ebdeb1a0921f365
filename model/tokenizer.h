// Text to token ids and back: the byte-level BPE that GGUF calls "gpt2", with the pre-tokenizer its tokenizer.ggml.pre names.
//
// Opened from a parsed GGUF, which must outlive it. Read-only afterwards and safe for concurrent callers (each has its own
// stream decoder). Knows no model, no prompt format.
#ifndef HEARTH_MODEL_TOKENIZER_H
#define HEARTH_MODEL_TOKENIZER_H

#include "base/err.h"
#include "model/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

// tokenizer_open refuses (ERR_UNSUPPORTED, naming it) a tokenizer model or pre-tokenizer it does not know, and (ERR_FORMAT) a
// vocabulary that breaks its own rules.
MUST_USE enum err tokenizer_open(const struct gguf *g, struct tokenizer **out, struct errmsg *em);
void tokenizer_close(struct tokenizer *t); // NULL is allowed

int32_t tokenizer_vocab_size(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t);   // -1 when the file names none
int32_t tokenizer_eos(const struct tokenizer *t);   // -1 when the file names none
bool tokenizer_adds_bos(const struct tokenizer *t); // tokenizer.ggml.add_bos_token
// tokenizer_is_stop tells whether generating `id` ends an answer (eos, eot, eom, end-of-turn markers).
bool tokenizer_is_stop(const struct tokenizer *t, int32_t id);
// tokenizer_find returns the id whose text is exactly `text`, or -1.
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len);
// tokenizer_is_control tells whether only parse_special makes the token of a text: "<|im_start|>" and its like.
bool tokenizer_is_control(const struct tokenizer *t, int32_t id);
// tokenizer_is_special is true for control tokens and user-defined ones.
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

struct tokenize_options {
	bool add_bos;       // put BOS first when the file says so
	bool parse_special; // text like "<|im_start|>" becomes its control token; off for what a user typed
};
#define TOKENIZE_IDS_MAX(len) (3 * (size_t)(len) + 1) // ids that `len` bytes can become at most
// tokenizer_encode writes ids to out (cap) and their number to *n. Any bytes are accepted, NUL among them. Bytes that are no UTF-8 stand
// apart from the text around them and become the tokens of their bytes, or U+FFFD where the vocabulary has no token for one. A
// character of which the vocabulary lacks a byte loses it, as in llama.cpp: SmolLM2 lacks 21, of them six control characters.
// Of special texts that overlap, the leftmost counts, then the longest. ERR_LIMIT when cap is too small, or len above TOKENIZE_TEXT_MAX.
MUST_USE enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, struct tokenize_options o,
	int32_t *out, size_t cap, size_t *n, struct errmsg *em);
// tokenizer_piece returns the bytes of one token and their length; control tokens give their text only with `special`. An id out of range
// gives none.
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, size_t *len);

// Streaming decode: bytes go out only as whole UTF-8 characters; what can no longer become one comes out as U+FFFD.
struct stream_decoder {
	uint8_t held[4]; // a started character
	uint32_t n_held;
};
#define STREAM_DECODER_OUT(piece_len) (3 * ((piece_len) + 4)) // room that always suffices
// stream_decoder_push writes what is complete to out and returns its length; out has STREAM_DECODER_OUT(len) bytes.
size_t stream_decoder_push(struct stream_decoder *d, const char *piece, size_t len, char *out);
// stream_decoder_finish writes what is left (a cut character becomes one U+FFFD) and returns its length.
size_t stream_decoder_finish(struct stream_decoder *d, char *out);

#endif
