#include "base/arena.h"

#include "base/bytes.h"

#include <stdlib.h>

#define ALIGN ((size_t)64) // a cache line, and the widest vector

enum err arena_open(size_t cap, struct arena *a)
{
	*a = (struct arena){0};
	size_t rounded;
	if (!add_size(cap, ALIGN - 1, &rounded))
		return ERR_NOMEM;
	rounded &= ~(ALIGN - 1);
	if (rounded == 0)
		rounded = ALIGN;
	a->data = aligned_alloc(ALIGN, rounded);
	if (a->data == NULL)
		return ERR_NOMEM;
	a->cap = rounded;
	return OK;
}

void arena_close(struct arena *a)
{
	free(a->data);
	*a = (struct arena){0};
}

void *arena_alloc_raw(struct arena *a, size_t n, size_t size)
{
	size_t bytes, rounded;
	if (!mul_size(n, size, &bytes) || !add_size(bytes, ALIGN - 1, &rounded))
		return NULL;
	rounded &= ~(ALIGN - 1);
	if (rounded > a->cap - a->used)
		return NULL;
	void *p = a->data + a->used;
	a->used += rounded;
	return p;
}

void *arena_alloc(struct arena *a, size_t n, size_t size)
{
	void *p = arena_alloc_raw(a, n, size);
	if (p != NULL)
		memset(p, 0, n * size);
	return p;
}
