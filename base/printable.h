// Text that strangers wrote, made fit for a terminal, a log or an error message.
#ifndef HEARTH_BASE_PRINTABLE_H
#define HEARTH_BASE_PRINTABLE_H

#include <stddef.h>

// printable_copy writes src[0..len) to out as valid UTF-8 without control characters (C0, DEL, C1, line and paragraph
// separators, and the marks that reorder text): each such character, and each byte that is no UTF-8, becomes '?'. What does not fit into cap - 1 bytes
// is cut at a character and ends in "..." when there is room. Always NUL-terminated (cap >= 1). Returns out.
const char *printable_copy(const char *src, size_t len, char *out, size_t cap);

#endif
