// Statements, keys, and the rules of which table may still be extended. The rest is behind toml_parser.h.
#include "base/toml_parser.h"

#include "base/assert.h"
#include "base/printable.h"

#include <stdio.h>

const char *toml_type_name(enum toml_type t)
{
	static const char *const names[] = {"a string", "an integer", "a float", "a boolean", "a date-time with offset", "a local date-time",
		"a local date", "a local time", "an array", "a table"};
	ASSERT((size_t)t < ARRAY_LEN(names));
	return names[t];
}

const struct toml_value *toml_find(const struct toml_value *table, const char *key)
{
	ASSERT(table->type == TOML_TABLE);
	size_t len = strlen(key);
	for (const struct toml_value *v = table->items.first; v; v = v->next)
		if (v->key.len == len && memcmp(v->key.data, key, len) == 0)
			return v;
	return NULL;
}

// find_slot returns the index slot that holds (table, key), or the empty one where it belongs. FNV-1a; half of the slots stay empty.
static struct toml_value **find_slot(struct toml_parser *p, const struct toml_value *table, struct toml_text key)
{
	uint64_t h = 0xcbf29ce484222325u ^ (uint64_t)(table - p->values);
	for (size_t i = 0; i < key.len; i++)
		h = (h ^ (unsigned char)key.data[i]) * 0x100000001b3u;
	for (size_t slot = (size_t)(h ^ h >> 32);; slot++) {
		struct toml_value **at = &p->index[slot & p->index_mask];
		if (*at == NULL || ((*at)->parent == table && (*at)->key.len == key.len && memcmp((*at)->key.data, key.data, key.len) == 0))
			return at;
	}
}

enum err toml_add_value(struct toml_parser *p, struct toml_value *parent, struct toml_text key, struct toml_value **out)
{
	if (parent->depth == TOML_DEPTH_MAX)
		return toml_fail(p, ERR_LIMIT, p->at, "nested deeper than %d", TOML_DEPTH_MAX);
	ASSERT(p->n_values < p->values_cap);
	struct toml_value *v = &p->values[p->n_values++];
	v->key = key;
	v->parent = parent;
	v->depth = (uint8_t)(parent->depth + 1);
	v->line = toml_line(p);
	if (parent->type == TOML_TABLE)
		*find_slot(p, parent, key) = v;
	if (parent->items.last)
		parent->items.last->next = v;
	else
		parent->items.first = v;
	parent->items.last = v;
	parent->items.n++;
	*out = v;
	return OK;
}

static enum err add_table(struct toml_parser *p, struct toml_value *parent, struct toml_text key, enum toml_form form,
	struct toml_value **out)
{
	enum err e = toml_add_value(p, parent, key, out);
	if (e != OK)
		return e;
	(*out)->type = TOML_TABLE;
	(*out)->form = (uint8_t)form;
	return OK;
}

static bool is_bare_key_char(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || toml_is_digit(c) || c == '-' || c == '_';
}

static enum err read_key_part(struct toml_parser *p, struct toml_text *key)
{
	int c = toml_peek(p, 0);
	if (c == '"' || c == '\'')
		return toml_read_line_string(p, key);
	if (!is_bare_key_char(c))
		return toml_fail_got(p, "a key");
	char *start = p->pool + p->pool_len;
	size_t n = 0;
	for (; is_bare_key_char(toml_peek(p, 0)); p->at++)
		start[n++] = *p->at;
	start[n] = '\0';
	p->pool_len += n + 1;
	*key = (struct toml_text){.data = start, .len = n};
	return OK;
}

static enum err refuse_key(const struct toml_parser *p, const char *at, struct toml_text key, const struct toml_value *old,
	const char *why)
{
	char shown[48];
	return toml_fail(p, ERR_FORMAT, at, "key %s %s (line %d)", printable_copy(key.data, key.len, shown, sizeof shown), why, old->line);
}

// descend_dotted steps into `key` of a pair "key.more = value". Only tables that dotted keys of this same section made, or that
// have not been written out anywhere, take more. The section needs no check: a FORM_DOTTED table of an earlier one lies below that
// section's table, which has its header and cannot be passed, and no header may name a table between the two.
static enum err descend_dotted(struct toml_parser *p, const char *at, struct toml_text key, struct toml_value **table)
{
	struct toml_value *v = *find_slot(p, *table, key);
	if (v == NULL)
		return add_table(p, *table, key, FORM_DOTTED, table);
	if (v->type != TOML_TABLE)
		return refuse_key(p, at, key, v, "already has a value that is no table");
	if (v->form == FORM_FROZEN)
		return refuse_key(p, at, key, v, "is an inline table, which cannot be extended");
	if (v->form == FORM_HEADER)
		return refuse_key(p, at, key, v, "is a table defined elsewhere, extend it there");
	v->form = FORM_DOTTED;
	*table = v;
	return OK;
}

// descend_header steps into `key` of a header "[key.more]"; of an array of tables it takes the last.
static enum err descend_header(struct toml_parser *p, const char *at, struct toml_text key, struct toml_value **table)
{
	struct toml_value *v = *find_slot(p, *table, key);
	if (v == NULL)
		return add_table(p, *table, key, FORM_OPEN, table);
	if (v->form == FORM_OF_TABLES)
		v = v->items.last;
	else if (v->type != TOML_TABLE || v->form == FORM_FROZEN)
		return refuse_key(p, at, key, v, v->form == FORM_FROZEN ? "is complete and cannot be extended" : "already has a value that is no table");
	*table = v;
	return OK;
}

// read_key reads "a.b.c": *table moves from where it is to the table of the last part, which becomes *last, found at *at.
static enum err read_key(struct toml_parser *p,
	enum err (*descend)(struct toml_parser *p, const char *at, struct toml_text key, struct toml_value **table),
	struct toml_value **table, struct toml_text *last, const char **at)
{
	for (;;) {
		toml_skip_blanks(p);
		*at = p->at;
		enum err e = read_key_part(p, last);
		if (e != OK)
			return e;
		toml_skip_blanks(p);
		if (toml_peek(p, 0) != '.')
			return OK;
		e = descend(p, *at, *last, table);
		if (e != OK)
			return e;
		p->at++;
	}
}

enum err toml_read_pair(struct toml_parser *p, struct toml_value *table)
{
	struct toml_text key;
	const char *at;
	enum err e = read_key(p, descend_dotted, &table, &key, &at);
	if (e != OK)
		return e;
	if (toml_peek(p, 0) != '=')
		return toml_fail_got(p, "'=' after a key");
	const struct toml_value *old = *find_slot(p, table, key);
	if (old)
		return refuse_key(p, at, key, old, "is already set");
	p->at++;
	toml_skip_blanks(p);
	struct toml_value *v;
	e = toml_add_value(p, table, key, &v);
	return e == OK ? toml_read_value(p, v) : e;
}

static enum err open_table(struct toml_parser *p, const char *at, struct toml_value *parent, struct toml_text key)
{
	struct toml_value *v = *find_slot(p, parent, key);
	if (v == NULL)
		return add_table(p, parent, key, FORM_HEADER, &p->table);
	if (v->type != TOML_TABLE)
		return refuse_key(p, at, key, v, v->form == FORM_OF_TABLES ? "is an array of tables, want [[...]]" : "already has a value");
	if (v->form != FORM_OPEN)
		return refuse_key(p, at, key, v, "is a table that is already defined");
	v->form = FORM_HEADER;
	v->line = toml_line(p);
	p->table = v;
	return OK;
}

static enum err open_array_item(struct toml_parser *p, const char *at, struct toml_value *parent, struct toml_text key)
{
	struct toml_value *v = *find_slot(p, parent, key);
	if (v && v->form != FORM_OF_TABLES)
		return refuse_key(p, at, key, v, "is already defined and no array of tables");
	if (v == NULL) {
		enum err e = toml_add_value(p, parent, key, &v);
		if (e != OK)
			return e;
		v->type = TOML_ARRAY;
		v->form = FORM_OF_TABLES;
	}
	return add_table(p, v, (struct toml_text){0}, FORM_HEADER, &p->table);
}

// read_header reads "[a.b]" or "[[a.b]]"; the two brackets of the latter stand together.
static enum err read_header(struct toml_parser *p, struct toml_value *root)
{
	bool is_array = toml_peek(p, 1) == '[';
	p->at += is_array ? 2 : 1;
	struct toml_value *parent = root;
	struct toml_text key;
	const char *at;
	enum err e = read_key(p, descend_header, &parent, &key, &at);
	if (e != OK)
		return e;
	if (!toml_starts(p, is_array ? "]]" : "]"))
		return toml_fail_got(p, is_array ? "']]' after the name of an array of tables" : "']' after the name of a table");
	p->at += is_array ? 2 : 1;
	return is_array ? open_array_item(p, at, parent, key) : open_table(p, at, parent, key);
}

static enum err end_line(struct toml_parser *p)
{
	toml_skip_blanks(p);
	int c = toml_peek(p, 0);
	return c == -1 || c == '\n' || c == '\r' || c == '#' ? OK : toml_fail_got(p, "the end of the line");
}

static enum err read_statements(struct toml_parser *p, struct toml_value *root)
{
	for (;;) {
		toml_skip_empty(p);
		if (p->at == p->end)
			return OK;
		enum err e = toml_peek(p, 0) == '[' ? read_header(p, root) : toml_read_pair(p, p->table);
		if (e == OK)
			e = end_line(p);
		if (e != OK)
			return e;
	}
}

static bool take_storage(struct toml_parser *p, struct arena *a, struct toml_counts n)
{
	p->values = arena_alloc(a, n.values, sizeof p->values[0]);
	p->values_cap = n.values;
	p->pool = arena_alloc(a, n.pool_bytes, 1);
	p->index = arena_alloc(a, n.index_slots, sizeof(struct toml_value *));
	p->index_mask = n.index_slots - 1;
	return p->values && p->pool && p->index;
}

enum err toml_parse(const char *name, const char *text, size_t len, struct arena *a, const struct toml_value **root,
	struct errmsg *em)
{
	if (len > TOML_BYTES_MAX)
		return errmsg_fail(em, ERR_LIMIT, "%.200s: %zu bytes, want at most %d", name, len, TOML_BYTES_MAX);
	struct toml_parser p = {
		.name = name, .text = text, .end = text + len, .at = text, .marked = text, .marked_line = 1, .em = em};
	enum err e = toml_check_bytes(&p);
	if (e != OK)
		return e;
	if (!take_storage(&p, a, toml_count(text, len)))
		return errmsg_fail(em, ERR_LIMIT, "%.200s: no room for its tree of %zu bytes", name, toml_arena_bytes(text, len));
	struct toml_value *top = &p.values[p.n_values++];
	*top = (struct toml_value){.type = TOML_TABLE, .line = 1, .form = FORM_HEADER};
	p.table = top;
	e = read_statements(&p, top);
	if (e == OK)
		*root = top;
	return e;
}
