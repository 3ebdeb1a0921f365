#include "sim/scenario_keys.h"

#include "base/printable.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WHERE_CAP 120

enum err scenario_fail(const struct scenario_reader *r, const struct toml_value *at, const char *where, const char *fmt, ...)
{
	struct errmsg text;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text.text, sizeof text.text, fmt, ap);
	va_end(ap);
	return errmsg_fail(r->em, ERR_FORMAT, "%.200s:%d: %s: %.250s", r->file, at->line, where, text.text);
}

static enum err refuse_type(const struct scenario_reader *r, const struct toml_value *v, const char *where, const char *want)
{
	return scenario_fail(r, v, where, "got %s, want %s", toml_type_name(v->type), want);
}

static enum err refuse_key(
	const struct scenario_reader *r, const struct toml_value *v, const char *where, const struct scenario_key *keys, size_t n)
{
	char shown[64];
	printable_copy(v->key.data, v->key.len, shown, sizeof shown);
	struct suggest s = suggest_init(shown);
	for (size_t i = 0; i < n; i++)
		suggest_offer(&s, keys[i].name);
	return s.best ? scenario_fail(r, v, where, "unknown key %s, did you mean %s?", shown, s.best)
		      : scenario_fail(r, v, where, "unknown key %s", shown);
}

static bool is_name(struct toml_text t)
{
	if (t.len == 0 || t.len >= NAME_CAP)
		return false;
	for (size_t i = 0; i < t.len; i++) {
		char c = t.data[i];
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
			    c == '-'))
			return false;
	}
	return true;
}

static enum err read_text(
	struct scenario_reader *r, const struct toml_value *v, const char *where, const struct scenario_key *k, char *out)
{
	if (v->type != TOML_STRING)
		return refuse_type(r, v, where, "a string");
	if (k->kind == KEY_NAME && !is_name(v->text))
		return scenario_fail(r, v, where, "want 1 to %d letters, digits, '.', '_' or '-'", NAME_CAP - 1);
	if (v->text.len >= SCENARIO_TEXT_CAP)
		return scenario_fail(r, v, where, "%zu bytes of text, want at most %d", v->text.len, SCENARIO_TEXT_CAP - 1);
	printable_copy(v->text.data, v->text.len, out, k->kind == KEY_NAME ? NAME_CAP : SCENARIO_TEXT_CAP);
	return OK;
}

static enum err read_word(
	struct scenario_reader *r, const struct toml_value *v, const char *where, const struct scenario_key *k, int *out)
{
	if (v->type != TOML_STRING)
		return refuse_type(r, v, where, "a string");
	struct suggest s = suggest_init(v->text.data);
	for (int i = 0; k->choices[i]; i++) {
		if (strcmp(k->choices[i], v->text.data) == 0 && strlen(k->choices[i]) == v->text.len) {
			*out = i;
			return OK;
		}
		suggest_offer(&s, k->choices[i]);
	}
	char list[200] = "", shown[48];
	for (int i = 0; k->choices[i]; i++)
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? ", " : "", k->choices[i]);
	printable_copy(v->text.data, v->text.len, shown, sizeof shown);
	return s.best ? scenario_fail(r, v, where, "got \"%s\", did you mean \"%s\"?", shown, s.best)
		      : scenario_fail(r, v, where, "got \"%s\", want one of %s", shown, list);
}

static enum err check_range(
	struct scenario_reader *r, const struct toml_value *v, const char *where, const struct scenario_key *k, double x)
{
	if (x >= k->min && x <= k->max)
		return OK;
	if (k->kind == KEY_QUANTITY || k->kind == KEY_BYTES) {
		enum quantity q = k->kind == KEY_BYTES ? QUANTITY_BYTES : k->quantity;
		return scenario_fail(r, v, where, "got %s, want %s to %s", quantity_print(q, x).text,
			quantity_print(q, k->min).text, quantity_print(q, k->max).text);
	}
	return scenario_fail(r, v, where, "got %.12g, want %.12g to %.12g", x, k->min, k->max);
}

static enum err read_number(
	struct scenario_reader *r, const struct toml_value *v, const char *where, const struct scenario_key *k, double *out)
{
	enum quantity q = k->kind == KEY_BYTES ? QUANTITY_BYTES : k->quantity;
	struct errmsg why;
	double x = 0;
	if (k->kind == KEY_INT || k->kind == KEY_U64) {
		if (v->type != TOML_INT)
			return refuse_type(r, v, where, "an integer");
		x = (double)v->i;
	} else if (k->kind == KEY_NUMBER) {
		if (v->type != TOML_INT && v->type != TOML_FLOAT)
			return refuse_type(r, v, where, "a number");
		x = v->type == TOML_INT ? (double)v->i : v->f;
	} else {
		if (v->type != TOML_STRING || strlen(v->text.data) != v->text.len)
			return scenario_fail(r, v, where, "got %s, want a string with a number and one of %s",
				toml_type_name(v->type), quantity_units(q));
		if (quantity_parse(q, v->text.data, &x, &why) != OK)
			return scenario_fail(r, v, where, "%s", why.text);
	}
	*out = x;
	return check_range(r, v, where, k, x);
}

static enum err read_value(
	struct scenario_reader *r, const struct toml_value *v, const char *where, const struct scenario_key *k, char *out)
{
	double x = 0;
	enum err e;
	switch (k->kind) {
	case KEY_NAME:
	case KEY_TEXT:
		return read_text(r, v, where, k, out);
	case KEY_WORD:
		return read_word(r, v, where, k, (int *)(void *)out);
	case KEY_VALUE:
		*(const struct toml_value **)(void *)out = v;
		return OK;
	case KEY_BOOL:
		if (v->type != TOML_BOOL)
			return refuse_type(r, v, where, "true or false");
		*(bool *)out = v->b;
		return OK;
	case KEY_BYTES:
		e = read_number(r, v, where, k, &x);
		if (e == OK)
			*(uint64_t *)(void *)out = (uint64_t)x;
		return e;
	case KEY_U64:
		e = read_number(r, v, where, k, &x);
		if (e == OK)
			*(uint64_t *)(void *)out = (uint64_t)v->i;
		return e;
	case KEY_INT:
		e = read_number(r, v, where, k, &x);
		if (e == OK)
			*(int32_t *)(void *)out = (int32_t)x;
		return e;
	case KEY_QUANTITY:
	case KEY_NUMBER:
		e = read_number(r, v, where, k, &x);
		if (e == OK)
			*(double *)(void *)out = x;
		return e;
	}
	return OK;
}

enum err scenario_note(struct scenario_reader *r, const struct toml_value *at, const char *key, const char *value, const char *why)
{
	if (r->s->n_derived == SCENARIO_DERIVED_MAX)
		return scenario_fail(r, at, key, "more than %d derived figures", SCENARIO_DERIVED_MAX);
	struct scenario_derived *d = &r->s->derived[r->s->n_derived++];
	snprintf(d->name, sizeof d->name, "%.63s.%.30s", r->subject, key);
	snprintf(d->value, sizeof d->value, "%s", value);
	snprintf(d->why, sizeof d->why, "%s", why);
	return OK;
}

static enum err note_derived(
	struct scenario_reader *r, const struct toml_value *value, const struct toml_value *why, const char *where)
{
	if (why->type == TOML_BOOL && !why->b)
		return OK;
	if (why->type != TOML_BOOL && why->type != TOML_STRING)
		return refuse_type(r, why, where, "true, or a string that says where from");
	if (why->type == TOML_STRING && why->text.len >= SCENARIO_TEXT_CAP)
		return scenario_fail(r, why, where, "%zu bytes of text, want at most %d", why->text.len, SCENARIO_TEXT_CAP - 1);
	if (r->s->n_derived == SCENARIO_DERIVED_MAX)
		return scenario_fail(r, why, where, "more than %d derived figures", SCENARIO_DERIVED_MAX);
	struct scenario_derived *d = &r->s->derived[r->s->n_derived++];
	const char *key = strrchr(where, '.');
	snprintf(d->name, sizeof d->name, "%.63s%.30s", r->subject, key ? key : "");
	if (value->type == TOML_STRING)
		printable_copy(value->text.data, value->text.len, d->value, sizeof d->value);
	else if (value->type == TOML_INT)
		snprintf(d->value, sizeof d->value, "%lld", (long long)value->i);
	else if (value->type == TOML_FLOAT)
		snprintf(d->value, sizeof d->value, "%g", value->f);
	if (why->type == TOML_STRING)
		printable_copy(why->text.data, why->text.len, d->why, sizeof d->why);
	return OK;
}

// unwrap_derived takes "{ value = ..., derived = ... }" apart.
static enum err unwrap_derived(struct scenario_reader *r, const struct toml_value **v, const char *where, bool *is_derived)
{
	static const struct scenario_key keys[] = {{.name = "value"}, {.name = "derived"}};
	const struct toml_value *table = *v, *value = toml_find(table, "value"), *why = toml_find(table, "derived");
	for (const struct toml_value *c = table->items.first; c; c = c->next)
		if (c != value && c != why)
			return refuse_key(r, c, where, keys, ARRAY_LEN(keys));
	if (value == NULL)
		return scenario_fail(r, table, where, "a table without `value`");
	*v = value;
	*is_derived = why != NULL && !(why->type == TOML_BOOL && !why->b);
	return why ? note_derived(r, value, why, where) : OK;
}

static enum err read_key(struct scenario_reader *r, const struct toml_value *v, const char *where, const struct scenario_key *k,
	void *out, uint32_t *derived)
{
	char full[WHERE_CAP];
	snprintf(full, sizeof full, "%.60s.%.50s", where, k->name);
	bool is_derived = false,
	     is_figure = k->kind == KEY_BYTES || k->kind == KEY_QUANTITY || k->kind == KEY_NUMBER || k->kind == KEY_INT;
	enum err e = v->type == TOML_TABLE && is_figure && r->s ? unwrap_derived(r, &v, full, &is_derived) : OK;
	if (e == OK)
		e = read_value(r, v, full, k, (char *)out + k->offset);
	if (e == OK && is_derived && derived)
		*derived |= k->bit;
	return e;
}

enum err scenario_read_table(struct scenario_reader *r, const struct toml_value *table, const char *where,
	const struct scenario_key *keys, size_t n_keys, void *out, uint32_t *derived)
{
	if (table->type != TOML_TABLE)
		return refuse_type(r, table, where, "a table");
	for (const struct toml_value *v = table->items.first; v; v = v->next) {
		size_t i = 0;
		while (i < n_keys && (strlen(keys[i].name) != v->key.len || memcmp(keys[i].name, v->key.data, v->key.len) != 0))
			i++;
		enum err e = i < n_keys ? read_key(r, v, where, &keys[i], out, derived) : refuse_key(r, v, where, keys, n_keys);
		if (e != OK)
			return e;
	}
	for (size_t i = 0; i < n_keys; i++)
		if (keys[i].is_required && toml_find(table, keys[i].name) == NULL)
			return scenario_fail(r, table, where, "%s is missing", keys[i].name);
	return OK;
}

// ---- Names

enum err scenario_no_such(const struct scenario_reader *r, const struct toml_value *at, const char *where, const char *what,
	const struct suggest *s)
{
	if (s->best)
		return scenario_fail(r, at, where, "there is no %s %s, did you mean %s?", what, s->word, s->best);
	return scenario_fail(r, at, where, "there is no %s %s", what, s->word);
}

enum err scenario_find_profile(const struct scenario_reader *r, const struct toml_value *table, const char *where, const char *name,
	const struct profile **out)
{
	char full[WHERE_CAP];
	struct suggest s = suggest_init(name);
	*out = name[0] ? profile_find(name) : NULL;
	if (name[0] == '\0' || *out)
		return OK;
	for (size_t i = 0; i < n_profiles(); i++)
		suggest_offer(&s, profile_at(i)->name);
	snprintf(full, sizeof full, "%.60s.profile", where);
	return scenario_no_such(r, toml_find(table, "profile"), full, "profile", &s);
}

enum err scenario_read_trace(const struct scenario_reader *r, const struct toml_value *v, const char *where, const struct trace **out)
{
	char full[WHERE_CAP];
	struct errmsg why;
	snprintf(full, sizeof full, "%.60s.trace", where);
	if (v->type != TOML_STRING || v->text.len == 0 || v->text.len >= TRACE_PATH_CAP || strlen(v->text.data) != v->text.len)
		return scenario_fail(r, v, full, "want the name of a file");
	return trace_set_get(r->traces, r->loader, v->text.data, out, &why) == OK ? OK : scenario_fail(r, v, full, "%s", why.text);
}
