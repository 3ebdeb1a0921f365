// The byte alphabet of GPT-2's tokenizer: a vocabulary file writes each byte as one printable character, so that " t" reads "Ġt".
//
// Bytes that print in Latin-1 (21 to 7E, A1 to AC, AE to FF) stand for themselves; the other 68 are U+0100 upwards in order.
#ifndef HEARTH_MODEL_BYTE_LEVEL_H
#define HEARTH_MODEL_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BYTE_LEVEL_CHAR_MAX 2 // bytes one byte takes in a vocabulary file

// byte_level_encode writes the character of `b` to out and returns its length, 1 or 2.
size_t byte_level_encode(uint8_t b, uint8_t out[BYTE_LEVEL_CHAR_MAX]);
// byte_level_decode turns text (valid UTF-8) back into bytes: out has room for len. False when a character is none of the alphabet's.
bool byte_level_decode(const char *text, size_t len, char *out, size_t *out_len);

#endif
