// Traces with their memory: one opened from its text, and the set of those that a description names. In a set each file is read once,
// however often it is named; files come through the caller's loader.
//
// The set owns the traces and is not copied: what it gives away points into it. Zeroed but for `max` it is empty. One thread while reading.
#ifndef HEARTH_SIM_TRACE_SET_H
#define HEARTH_SIM_TRACE_SET_H

#include "base/arena.h"
#include "sim/trace.h"

#define TRACE_SET_MAX 32
#define TRACE_PATH_CAP 512

// trace_open reads a trace into an arena of its own, which the caller closes; on failure the caller owes nothing. What trace_count says, or
// ERR_NOMEM.
MUST_USE enum err trace_open(const char *name, const char *text, size_t len, enum trace_format f, struct arena *out, struct trace *t,
	struct errmsg *em);

// The text of a trace; valid until the next call, or until who was given the loader returns.
struct trace_loader {
	void *ctx;
	enum err (*load)(void *ctx, const char *path, const char **text, size_t *len, struct errmsg *em);
};

struct trace_set {
	int32_t n;
	int32_t max; // the owner's bound, at most TRACE_SET_MAX
	struct trace traces[TRACE_SET_MAX];
	struct arena arenas[TRACE_SET_MAX];
	char paths[TRACE_SET_MAX][TRACE_PATH_CAP];
};

// trace_set_get returns the trace of that name, which stays until trace_set_close. A NULL loader reads nothing. ERR_LIMIT: `max` others are
// there, or the name is too long; else what the loader or trace_open says.
MUST_USE enum err trace_set_get(struct trace_set *s, const struct trace_loader *l, const char *path, const struct trace **out, struct errmsg *em);
void trace_set_close(struct trace_set *s); // safe on zeroed memory

#endif
