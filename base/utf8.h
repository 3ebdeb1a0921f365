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

#endif
