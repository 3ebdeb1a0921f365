// Any bytes as a TOML document: a tree whose links hold, or an error with its place. The same bytes parse the same way twice.
#include "base/toml.h"

#include "tests/support/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int32_t walk(const struct toml_value *v, int depth)
{
	require(depth <= TOML_DEPTH_MAX && v->line >= 1);
	if (v->type == TOML_STRING)
		require(v->text.data[v->text.len] == '\0');
	if (v->type != TOML_ARRAY && v->type != TOML_TABLE)
		return 1;
	int32_t n = 0, sum = 1;
	for (const struct toml_value *c = v->items.first; c; c = c->next, n++) {
		require((c->key.data != NULL) == (v->type == TOML_TABLE));
		if (c->key.data)
			require(toml_find(v, c->key.data) != NULL || memchr(c->key.data, 0, c->key.len) != NULL);
		sum += walk(c, depth + 1);
	}
	require(n == v->items.n);
	return sum;
}

static int32_t parse(const char *text, size_t len)
{
	struct arena a;
	struct errmsg em = {""};
	const struct toml_value *root;
	if (arena_open(toml_arena_bytes(text, len), &a) != OK)
		return 0;
	enum err e = toml_parse("x", text, len, &a, &root, &em);
	require(e == OK || (em.text[0] != '\0' && (e == ERR_FORMAT || e == ERR_LIMIT)));
	int32_t n = e == OK ? walk(root, 0) : -1;
	arena_close(&a);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 8192)
		return 0;
	const char *text = size ? (const char *)data : "";
	require(parse(text, size) == parse(text, size));
	return 0;
}
