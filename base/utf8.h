// UTF-8, one character at a time (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
#ifndef HEARTH_BASE_UTF8_H
#define HEARTH_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UTF8_MAX 4 // bytes of one character at most

// utf8_decode reads the character at `s`, of which `left` >= 1 bytes may be looked at. Returns its bytes, or 0 when they are
// none (or are cut off), and then leaves *cp alone.
size_t utf8_decode(const void *s, size_t left, uint32_t *cp);
// utf8_is_scalar tells whether a number is a character at all: no surrogate, at most U+10FFFF.
bool utf8_is_scalar(uint32_t cp);
// utf8_encode writes a character (utf8_is_scalar) and returns its bytes.
size_t utf8_encode(uint32_t cp, char out[UTF8_MAX]);

enum utf8_kind {
	UTF8_CHAR, // a whole character
	UTF8_BAD,  // bytes that no continuation can save: the longest start of a character there, at least one byte
	UTF8_CUT,  // the start of a character, up to the end of the input
};

// utf8_next says what stands at `src`, of which `left` >= 1 bytes may be looked at, and puts its bytes (1 to 4) into *n.
enum utf8_kind utf8_next(const void *src, size_t left, size_t *n);
// utf8_valid tells whether src[0..len) holds whole characters only.
bool utf8_valid(const void *src, size_t len);

#endif
