// An arena: one allocation, sized from a limit or a file, from which everything of one owner is carved.
// Not thread-safe. Pointers live until arena_close.
#ifndef HEARTH_BASE_ARENA_H
#define HEARTH_BASE_ARENA_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct arena {
	uint8_t *data; // (cap), owned
	size_t used;
	size_t cap;
};

// arena_open allocates `cap` bytes. ERR_NOMEM when there is none; the caller owes nothing then.
MUST_USE enum err arena_open(size_t cap, struct arena *a);
// arena_close frees it all; safe on a zeroed arena.
void arena_close(struct arena *a);
// arena_alloc returns n * size zeroed bytes aligned to 64, or NULL when the product wraps or the arena is full.
void *arena_alloc(struct arena *a, size_t n, size_t size);
// arena_alloc_raw does the same without zeroing: pages that nobody writes stay out of memory (a KV cache's unused end).
void *arena_alloc_raw(struct arena *a, size_t n, size_t size);

#endif
