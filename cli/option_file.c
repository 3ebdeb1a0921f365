#include "cli/option_file.h"

#include "base/printable.h"
#include "base/toml.h"
#include "cli/option_values.h"
#include "base/suggest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_CAP 64 // "table.key" with its NUL; longer ones are no keys of ours

struct config_file {
	struct options *o;
	uint32_t command;
	const char *name;
	struct errmsg *em;
};

// takes_string tells which kinds are written as a TOML string; numbers in quotes are refused.
static bool takes_string(enum option_kind kind)
{
	return kind == OPTION_STRING || kind == OPTION_PATH || kind == OPTION_NAME || kind == OPTION_ENUM || kind == OPTION_WORD ||
		kind == OPTION_HOST_PORT || kind == OPTION_ADDRESS || kind == OPTION_SIZE;
}

static enum err set_string(const struct option *opt, struct options *o, const char *where, struct toml_text text, struct errmsg *em)
{
	if (strlen(text.data) != text.len)
		return option_refuse(opt, where, "a string with a NUL character", em);
	char shown[64], got[70];
	snprintf(got, sizeof got, "\"%s\"", printable_copy(text.data, text.len, shown, sizeof shown));
	return takes_string(opt->kind) ? option_set_text(opt, o, where, text.data, em) : option_refuse(opt, where, got, em);
}

static enum err add_item(const struct option *opt, struct options *o, const char *where, const struct toml_value *v, struct errmsg *em)
{
	if (v->type == TOML_INT)
		return option_add_int(opt, o, where, v->i, em);
	if (v->type == TOML_STRING && opt->kind == OPTION_HOST_PORT_LIST && strlen(v->text.data) == v->text.len)
		return option_add_text(opt, o, where, v->text.data, em);
	char got[64];
	snprintf(got, sizeof got, "%s in the array", toml_type_name(v->type));
	return option_refuse(opt, where, got, em);
}

static enum err set_array(const struct option *opt, struct options *o, const char *where, const struct toml_value *array,
	struct errmsg *em)
{
	if (!option_clear_list(opt, o))
		return option_refuse(opt, where, "an array", em);
	if (array->items.n == 0)
		return option_refuse(opt, where, "an empty array", em);
	for (const struct toml_value *v = array->items.first; v; v = v->next) {
		enum err e = add_item(opt, o, where, v, em);
		if (e != OK)
			return e;
	}
	return OK;
}

static enum err set_value(const struct option *opt, struct options *o, const char *where, const struct toml_value *v, struct errmsg *em)
{
	switch (v->type) {
	case TOML_STRING: return set_string(opt, o, where, v->text, em);
	case TOML_INT: return option_set_int(opt, o, where, v->i, em);
	case TOML_FLOAT: return option_set_float(opt, o, where, v->f, em);
	case TOML_BOOL: return option_set_bool(opt, o, where, v->b, em);
	case TOML_ARRAY: return set_array(opt, o, where, v, em);
	default: return option_refuse(opt, where, toml_type_name(v->type), em);
	}
}

// find_entry returns the table index of a key: this command's entry, else any one's; n_options() when there is none.
static size_t find_entry(const struct config_file *c, const char *key)
{
	size_t found = n_options();
	for (size_t i = 0; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		if (opt->key == NULL || strcmp(opt->key, key) != 0)
			continue;
		if (opt->commands & c->command)
			return i;
		if (found == n_options())
			found = i;
	}
	return found;
}

static bool is_table_name(const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < n_options(); i++) {
		const char *key = option_at(i)->key;
		if (key && strncmp(key, name, n) == 0 && key[n] == '.')
			return true;
	}
	return false;
}

static const char *last_part(const char *key)
{
	const char *dot = strrchr(key, '.');
	return dot ? dot + 1 : key;
}

// elsewhere returns a key of that name in another table, this command's if it has one; NULL: there is none.
static const char *elsewhere(const struct config_file *c, const char *key)
{
	const char *found = NULL;
	for (size_t i = 0; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		if (opt->key != NULL && strcmp(last_part(opt->key), last_part(key)) == 0 && (found == NULL || (opt->commands & c->command)))
			found = opt->key;
	}
	return found;
}

static enum err refuse_key(const struct config_file *c, const struct toml_value *v, const char *key)
{
	struct suggest s = suggest_init(key);
	for (size_t i = 0; i < n_options(); i++)
		if (option_at(i)->key)
			suggest_offer(&s, option_at(i)->key);
	if (s.best == NULL)
		s.best = elsewhere(c, key);
	char shown[KEY_CAP];
	printable_copy(key, strlen(key), shown, sizeof shown);
	if (s.best)
		return errmsg_fail(c->em, ERR_FORMAT, "%.200s:%d: unknown key %s, did you mean %s?", c->name, v->line, shown, s.best);
	return errmsg_fail(c->em, ERR_FORMAT, "%.200s:%d: unknown key %s", c->name, v->line, shown);
}

static enum err refuse_table(const struct config_file *c, const struct toml_value *v, const char *name)
{
	struct suggest s = suggest_init(name);
	char names[OPTIONS_MAX][KEY_CAP];
	for (size_t i = 0; i < n_options(); i++) {
		const char *key = option_at(i)->key, *dot = key ? strchr(key, '.') : NULL;
		if (dot == NULL)
			continue;
		snprintf(names[i], KEY_CAP, "%.*s", (int)(dot - key), key);
		suggest_offer(&s, names[i]);
	}
	char shown[KEY_CAP];
	printable_copy(name, strlen(name), shown, sizeof shown);
	if (s.best)
		return errmsg_fail(c->em, ERR_FORMAT, "%.200s:%d: unknown table %s, did you mean %s?", c->name, v->line, shown, s.best);
	return errmsg_fail(c->em, ERR_FORMAT, "%.200s:%d: unknown table %s", c->name, v->line, shown);
}

// apply_key checks a value with its option, and keeps it when this command has the option and the command line left it alone.
static enum err apply_key(const struct config_file *c, const struct toml_value *v, const char *key)
{
	size_t i = find_entry(c, key);
	if (i == n_options())
		return refuse_key(c, v, key);
	const struct option *opt = option_at(i);
	bool keep = (opt->commands & c->command) && c->o->origins[i] != FROM_COMMAND_LINE;
	struct options scratch = *c->o;
	char where[320];
	snprintf(where, sizeof where, "%.200s:%d: %s", c->name, v->line, key);
	enum err e = set_value(opt, keep ? c->o : &scratch, where, v, c->em);
	if (e != OK)
		return ERR_RANGE; // a setter says ERR_USAGE, which is for the command line
	if (keep)
		c->o->origins[i] = FROM_FILE;
	return OK;
}

// key_text copies a key; one that holds a NUL or does not fit is cut, and then matches nothing of ours.
static void key_text(char out[KEY_CAP], const char *table, struct toml_text key)
{
	snprintf(out, KEY_CAP, "%s%s%.*s%s", table, table[0] ? "." : "", (int)(key.len < KEY_CAP ? key.len : KEY_CAP), key.data,
		strlen(key.data) != key.len ? "?" : "");
}

static enum err apply_table(const struct config_file *c, const struct toml_value *table, const char *name)
{
	for (const struct toml_value *v = table->items.first; v; v = v->next) {
		char key[KEY_CAP];
		key_text(key, name, v->key);
		enum err e = apply_key(c, v, key);
		if (e != OK)
			return e;
	}
	return OK;
}

static enum err apply_root(const struct config_file *c, const struct toml_value *root)
{
	enum err e = OK;
	for (const struct toml_value *v = root->items.first; v && e == OK; v = v->next) {
		char key[KEY_CAP];
		key_text(key, "", v->key);
		bool is_known_table = is_table_name(key);
		if (v->type == TOML_TABLE && is_known_table)
			e = apply_table(c, v, key);
		else if (is_known_table)
			e = errmsg_fail(c->em, ERR_FORMAT, "%.200s:%d: %s: got %s, want a table", c->name, v->line, key, toml_type_name(v->type));
		else if (v->type == TOML_TABLE && find_entry(c, key) == n_options())
			e = refuse_table(c, v, key);
		else
			e = apply_key(c, v, key);
	}
	return e;
}

enum err option_file_apply(struct options *o, uint32_t command, const char *name, const char *text, size_t len, struct errmsg *em)
{
	// The tree holds the strings that options borrow, so it stays until options_deinit.
	const struct toml_value *root;
	enum err e = arena_open(toml_arena_bytes(text, len), &o->config_text);
	if (e != OK)
		return errmsg_fail(em, e, "%.200s: no memory for its text", name);
	e = toml_parse(name, text, len, &o->config_text, &root, em);
	if (e != OK)
		return e;
	struct config_file c = {.o = o, .command = command, .name = name, .em = em};
	return apply_root(&c, root);
}

// read_all fills `text` from a file that may be a pipe. One byte more than allowed tells that it is too long.
static enum err read_all(int fd, const char *path, char *text, size_t cap, size_t *len, struct errmsg *em)
{
	while (*len < cap) {
		ssize_t n = read(fd, text + *len, cap - *len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errmsg_fail(em, ERR_IO, "%.200s: cannot read: %s", path, strerror(errno));
		if (n == 0)
			return OK;
		*len += (size_t)n;
	}
	return errmsg_fail(em, ERR_LIMIT, "%.200s: more than %d bytes, is this a config file?", path, TOML_BYTES_MAX);
}

enum err option_file_read(struct options *o, uint32_t command, const char *path, struct errmsg *em)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errmsg_fail(em, ERR_IO, "%.200s: cannot open: %s", path, strerror(errno));
	size_t cap = TOML_BYTES_MAX + 1, len = 0;
	char *text = malloc(cap);
	enum err e = text ? read_all(fd, path, text, cap, &len, em) : errmsg_fail(em, ERR_NOMEM, "%.200s: no memory", path);
	if (e == OK)
		e = option_file_apply(o, command, path, text, len, em);
	free(text);
	close(fd);
	return e;
}
