#include "sim/trace_set.h"

#include "base/assert.h"

#include <string.h>

enum err trace_set_get(struct trace_set *s, const struct trace_loader *l, const char *path, const struct trace **out, struct errmsg *em)
{
	const char *text;
	size_t len, path_len = strlen(path);
	ASSERT(s->max <= TRACE_SET_MAX);
	for (int32_t i = 0; i < s->n; i++) {
		if (strcmp(s->paths[i], path) == 0) {
			*out = &s->traces[i];
			return OK;
		}
	}
	if (l == NULL)
		return errmsg_fail(em, ERR_NOT_FOUND, "files cannot be read here");
	if (path_len >= TRACE_PATH_CAP)
		return errmsg_fail(em, ERR_LIMIT, "a name of %zu bytes, want at most %d", path_len, TRACE_PATH_CAP - 1);
	if (s->n == s->max)
		return errmsg_fail(em, ERR_LIMIT, "more than %d traces", s->max);
	enum err e = l->load(l->ctx, path, &text, &len, em);
	if (e == OK)
		e = trace_open(path, text, len, TRACE_AUTO, &s->arenas[s->n], &s->traces[s->n], em);
	if (e != OK)
		return e;
	memcpy(s->paths[s->n], path, path_len + 1);
	*out = &s->traces[s->n++];
	return OK;
}

void trace_set_close(struct trace_set *s)
{
	for (int32_t i = 0; i < s->n; i++)
		arena_close(&s->arenas[i]);
	*s = (struct trace_set){0};
}
