// Reading a whole stream: a file, a pipe, standard input.
#ifndef HEARTH_CLI_READ_TEXT_H
#define HEARTH_CLI_READ_TEXT_H

#include "base/err.h"

#include <stddef.h>
#include <stdio.h>

// read_text reads `from` to its end, at most `max` bytes; `name` is for the words. *text is the caller's to free; NULL after an error: ERR_LIMIT,
// longer; ERR_IO; ERR_NOMEM.
MUST_USE enum err read_text(const char *name, FILE *from, size_t max, char **text, size_t *len, struct errmsg *em);

#endif
