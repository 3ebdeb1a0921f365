#include "sim/trace_set.h"

#include "base/assert.h"

#include <string.h>

enum err trace_open(const char *name, const char *text, size_t len, enum trace_format f, struct arena *out, struct trace *t, struct errmsg *em)
{
	size_t n = 0;
	enum err e = trace_count(name, text, len, &f, &n, em);
	if (e != OK)
		return e;
	if (arena_open(n * trace_entry_bytes(f), out) != OK) // n is bounded: no overflow
		return errmsg_fail(em, ERR_NOMEM, "%s: no memory for %zu entries", name, n);
	void *entries = arena_alloc(out, n, trace_entry_bytes(f));
	ASSERT(entries != NULL);
	trace_read(text, len, f, n, entries, t);
	return OK;
}

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
