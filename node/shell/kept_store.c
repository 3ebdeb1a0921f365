#include "node/shell/kept_store.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

#define CAP_MIN 65536

static bool make_room(struct kept_entry *s, size_t len)
{
	size_t cap = s->cap < CAP_MIN ? CAP_MIN : s->cap;
	while (cap < len)
		cap += cap / 2;
	if (cap == s->cap)
		return true;
	uint8_t *rows = realloc(s->rows, cap);
	if (rows == NULL)
		return false;
	s->rows = rows;
	s->cap = cap;
	return true;
}

void kept_store_put(struct kept_store *k, int32_t entry, size_t off, const uint8_t *data, size_t len)
{
	ASSERT(entry >= 0 && entry < KEPT_MAX);
	struct kept_entry *s = &k->entries[entry];
	if (off > s->len)
		return; // dropped for want of memory
	if (!make_room(s, off + len)) {
		kept_store_drop(k, entry);
		return;
	}
	memcpy(s->rows + off, data, len);
	s->len = off + len > s->len ? off + len : s->len;
}

void kept_store_get(const struct kept_store *k, int32_t entry, size_t off, uint8_t *out, size_t len)
{
	ASSERT(entry >= 0 && entry < KEPT_MAX);
	const struct kept_entry *s = &k->entries[entry];
	if (off + len <= s->len)
		memcpy(out, s->rows + off, len);
	else
		memset(out, 0xff, len);
}

void kept_store_drop(struct kept_store *k, int32_t entry)
{
	free(k->entries[entry].rows);
	k->entries[entry] = (struct kept_entry){0};
}

void kept_store_close(struct kept_store *k)
{
	for (int32_t i = 0; i < SESSIONS_MAX; i++)
		kept_store_drop(k, i);
}
