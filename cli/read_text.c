#include "cli/read_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STEP ((size_t)1 << 20)

// read_more fills a buffer that grows; one byte more than `max` shows that there is too much.
static enum err read_more(const char *name, FILE *from, size_t max, char **text, size_t *len, struct errmsg *em)
{
	size_t cap = 0;
	do {
		if (*len == cap) {
			size_t wanted = cap ? 2 * cap : STEP;
			cap = wanted < max + 1 ? wanted : max + 1;
			char *grown = realloc(*text, cap);
			if (grown == NULL)
				return errmsg_fail(em, ERR_NOMEM, "%s: no memory for %zu bytes", name, cap);
			*text = grown;
		}
		*len += fread(*text + *len, 1, cap - *len, from);
		if (*len > max)
			return errmsg_fail(em, ERR_LIMIT, "%s: more than %zu bytes", name, max);
	} while (!feof(from) && !ferror(from));
	return ferror(from) ? errmsg_fail(em, ERR_IO, "%s: %s", name, strerror(errno)) : OK;
}

enum err read_text(const char *name, FILE *from, size_t max, char **text, size_t *len, struct errmsg *em)
{
	*text = NULL;
	*len = 0;
	enum err e = read_more(name, from, max, text, len, em);
	if (e != OK) {
		free(*text);
		*text = NULL;
		*len = 0;
	}
	return e;
}
