#include "base/err.h"

#include <stdio.h>
#include <string.h>

const char *err_words(enum err e)
{
	static const char *const words[] = {
#define X(name, words) words,
		ERR_TABLE(X)
#undef X
	};
	return (size_t)e < ARRAY_LEN(words) ? words[e] : "unknown error";
}

enum err errmsg_fail(struct errmsg *em, enum err e, const char *fmt, ...)
{
	if (em == NULL)
		return e;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(em->text, sizeof em->text, fmt, ap);
	va_end(ap);
	return e;
}

enum err errmsg_prefix(struct errmsg *em, enum err e, const char *fmt, ...)
{
	if (em == NULL)
		return e;
	char head[ERRMSG_CAP];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(head, sizeof head, fmt, ap);
	va_end(ap);

	char tail[ERRMSG_CAP];
	memcpy(tail, em->text, sizeof tail);
	// The cut falls on the tail: who reports matters more than the last words of what.
	int n = snprintf(em->text, sizeof em->text, "%.255s: ", head);
	snprintf(em->text + n, sizeof em->text - (size_t)n, "%s", tail);
	return e;
}
