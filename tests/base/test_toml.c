// base/toml against Python's tomllib: tests/golden/toml, made by tools/oracle/toml_reference.py, and what a tree does not show.
#include "base/toml.h"

#include <dirent.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN "tests/golden/toml"

struct document {
	struct arena arena;
	const struct toml_value *root;
	struct errmsg em;
	enum err e;
};

// read_document copies the text into an allocation of exactly its size, so that a sanitizer sees the first byte read behind it.
static void read_document(struct document *d, const char *name, const char *text, size_t len)
{
	memset(d, 0, sizeof *d);
	char *exact = malloc(len + (len == 0));
	assert_non_null(exact);
	memcpy(exact, text, len);
	assert_int_equal(arena_open(toml_arena_bytes(exact, len), &d->arena), OK);
	d->e = toml_parse(name, exact, len, &d->arena, &d->root, &d->em);
	free(exact);
}

static void close_document(struct document *d)
{
	arena_close(&d->arena);
}

static char *read_file(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	assert_non_null(f);
	char *text = malloc(1 << 20);
	assert_non_null(text);
	*len = fread(text, 1, 1 << 20, f);
	fclose(f);
	return text;
}

static json_t *pair(const char *type, json_t *value)
{
	return json_pack("[s, o]", type, value);
}

static json_t *text_json(struct toml_text t)
{
	return json_stringn(t.data, t.len);
}

static json_t *float_json(double f)
{
	uint64_t bits;
	char text[20];
	memcpy(&bits, &f, sizeof bits);
	snprintf(text, sizeof text, "%016llx", (unsigned long long)bits);
	return pair("float", json_string(f == f ? text : "nan"));
}

static json_t *int_json(int64_t i)
{
	char text[24];
	snprintf(text, sizeof text, "%lld", (long long)i);
	return pair("int", json_string(text));
}

static json_t *time_json(const struct toml_value *v)
{
	static const char *const names[] = {"offset-datetime", "local-datetime", "local-date", "local-time"};
	const struct toml_time *t = &v->time;
	char date[16] = "", clock[24] = "", offset[16] = "", text[64];
	if (v->type != TOML_LOCAL_TIME)
		snprintf(date, sizeof date, "%04d-%02d-%02d", t->year, t->month, t->day);
	if (v->type != TOML_LOCAL_DATE)
		snprintf(clock, sizeof clock, "%02d:%02d:%02d.%06u", t->hour, t->minute, t->second, (unsigned)(t->ns / 1000));
	int minutes = abs(t->offset_minutes);
	if (v->type == TOML_OFFSET_DATETIME)
		snprintf(offset, sizeof offset, "%c%02d:%02d", t->offset_minutes < 0 ? '-' : '+', minutes / 60, minutes % 60);
	snprintf(text, sizeof text, "%s%s%s%s", date, date[0] && clock[0] ? "T" : "", clock, offset);
	return pair(names[v->type - TOML_OFFSET_DATETIME], json_string(text));
}

static json_t *tree_json(const struct toml_value *v)
{
	json_t *list;
	switch (v->type) {
	case TOML_STRING: return pair("string", text_json(v->text));
	case TOML_INT: return int_json(v->i);
	case TOML_FLOAT: return float_json(v->f);
	case TOML_BOOL: return pair("bool", json_boolean(v->b));
	case TOML_ARRAY:
	case TOML_TABLE: break;
	default: return time_json(v);
	}
	list = json_array();
	for (const struct toml_value *c = v->items.first; c; c = c->next)
		json_array_append_new(list, v->type == TOML_ARRAY ? tree_json(c) : json_pack("[o, o]", text_json(c->key), tree_json(c)));
	assert_int_equal(json_array_size(list), v->items.n);
	return pair(v->type == TOML_ARRAY ? "array" : "table", list);
}

// each_case calls `check` with the path, without its ".toml", of every case in a folder; returns how many there were.
static int each_case(const char *folder, void (*check)(const char *stem))
{
	DIR *dir = opendir(folder);
	assert_non_null(dir);
	int n = 0;
	for (struct dirent *d; (d = readdir(dir)) != NULL;) {
		size_t len = strlen(d->d_name);
		char stem[600];
		if (len < 5 || strcmp(d->d_name + len - 5, ".toml") != 0)
			continue;
		snprintf(stem, sizeof stem, "%s/%.*s", folder, (int)len - 5, d->d_name);
		check(stem);
		n++;
	}
	closedir(dir);
	return n;
}

static void check_valid(const char *stem)
{
	char path[700];
	size_t len;
	snprintf(path, sizeof path, "%s.toml", stem);
	char *text = read_file(path, &len);
	struct document d;
	read_document(&d, path, text, len);
	if (d.e != OK)
		fail_msg("%s", d.em.text);
	snprintf(path, sizeof path, "%s.json", stem);
	json_t *want = json_load_file(path, JSON_ALLOW_NUL, NULL), *got = tree_json(d.root);
	assert_non_null(want);
	if (!json_equal(want, got))
		fail_msg("%s: got %s", path, json_dumps(got, 0));
	json_decref(want);
	json_decref(got);
	close_document(&d);
	free(text);
}

static void check_invalid(const char *stem)
{
	char path[700];
	size_t len;
	snprintf(path, sizeof path, "%s.toml", stem);
	char *text = read_file(path, &len);
	struct document d;
	read_document(&d, "case", text, len);
	if (d.e != ERR_FORMAT && d.e != ERR_LIMIT)
		fail_msg("%s: not refused", path);
	int line, column, end = 0;
	assert_int_equal(sscanf(d.em.text, "case:%d:%d: %n", &line, &column, &end), 2);
	assert_true(end > 0 && d.em.text[end] != '\0' && line >= 1 && column >= 1);
	close_document(&d);
	free(text);
}

static void valid_documents_give_the_tree_of_tomllib(void **state)
{
	(void)state;
	assert_true(each_case(GOLDEN "/valid", check_valid) >= 150);
}

static void invalid_documents_are_refused_with_their_place(void **state)
{
	(void)state;
	assert_true(each_case(GOLDEN "/invalid", check_invalid) >= 300);
}

// Every prefix of every valid document is read or refused without reading a byte behind it.
static void check_prefixes(const char *stem)
{
	char path[700];
	size_t len;
	snprintf(path, sizeof path, "%s.toml", stem);
	char *text = read_file(path, &len);
	for (size_t n = 0; n < len && n < 600; n++) {
		struct document d;
		read_document(&d, "cut", text, n);
		assert_true(d.e == OK || d.em.text[0] != '\0');
		close_document(&d);
	}
	free(text);
}

static void a_document_cut_anywhere_is_survived(void **state)
{
	(void)state;
	each_case(GOLDEN "/valid", check_prefixes);
}

static void assert_refused(const char *text, enum err e, const char *message)
{
	struct document d;
	read_document(&d, "home.toml", text, strlen(text));
	assert_int_equal(d.e, e);
	assert_string_equal(d.em.text, message);
	close_document(&d);
}

static void an_error_says_line_character_got_and_wanted(void **state)
{
	(void)state;
	assert_refused("a = 1\nb = é", ERR_FORMAT, "home.toml:2:5: got 'é', want a value (a text stands in quotes)");
	assert_refused("é", ERR_FORMAT, "home.toml:1:1: got 'é', want a key");
	assert_refused("\"éé\" 1", ERR_FORMAT, "home.toml:1:6: got '1', want '=' after a key");
	assert_refused("a = \"x\"\n\n[t]\nb = 1\nb = 2", ERR_FORMAT, "home.toml:5:1: key b is already set (line 4)");
	assert_refused("a = 1 b", ERR_FORMAT, "home.toml:1:7: got 'b', want the end of the line");
	assert_refused("a = [\n1\n", ERR_FORMAT, "home.toml:3:1: got the end of the file, want ',' or ']' in an array");
	assert_refused("a =\n", ERR_FORMAT, "home.toml:1:4: got the end of the line, want a value (a text stands in quotes)");
	assert_refused("a = \"x\ty\x01\"", ERR_FORMAT,
		"home.toml:1:9: control character 0x01, which must be written as an escape in a string");
	assert_refused("a = 'x\xff'", ERR_FORMAT, "home.toml:1:7: byte 0xff is not UTF-8");
	assert_refused("a = 2021-02-29", ERR_FORMAT, "home.toml:1:13: got 29 for the day, want 1 to 28");
	assert_refused("a = [{}]\n[a.b]", ERR_FORMAT, "home.toml:2:2: key a is complete and cannot be extended (line 1)");
	assert_refused("a = 1\n[a.b]", ERR_FORMAT, "home.toml:2:2: key a already has a value that is no table (line 1)");
	assert_refused("a = 007", ERR_FORMAT, "home.toml:1:5: a number that begins with 0 (octal is written 0o...)");
	assert_refused("a = \"C:\\home\"", ERR_FORMAT,
		"home.toml:1:9: got 'h', want one of b t n f r \" \\ u U after \\ (a text in '...' takes \\ as it is)");
}

static void every_value_knows_its_line(void **state)
{
	(void)state;
	static const char text[] = "# c\na = 1\nb = [\n  1,\n\n  2, \"\"\"\n\n\"\"\", 3]\n[t.u]\r\nc = 4\n[[v]]\n[t]\n";
	struct document d;
	read_document(&d, "x", text, sizeof text - 1);
	assert_int_equal(d.e, OK);
	assert_int_equal(toml_find(d.root, "a")->line, 2);
	static const int32_t lines[] = {4, 6, 6, 8};
	const struct toml_value *b = toml_find(d.root, "b");
	assert_int_equal(b->line, 3);
	int i = 0;
	for (const struct toml_value *v = b->items.first; v; v = v->next)
		assert_int_equal(v->line, lines[i++]);
	assert_int_equal(i, 4);
	const struct toml_value *t = toml_find(d.root, "t");
	assert_int_equal(t->line, 12);
	assert_int_equal(toml_find(t, "u")->line, 9);
	assert_int_equal(toml_find(toml_find(t, "u"), "c")->line, 10);
	assert_int_equal(toml_find(d.root, "v")->items.first->line, 11);
	assert_null(toml_find(d.root, "c"));
	assert_null(toml_find(d.root, ""));
	close_document(&d);
}

static void a_second_has_nine_digits_and_the_rest_is_cut_off(void **state)
{
	(void)state;
	static const char text[] = "a = 00:00:00.123456789999\nb = 00:00:00.000000001\nc = 00:00:00.5\n";
	struct document d;
	read_document(&d, "x", text, sizeof text - 1);
	assert_int_equal(d.e, OK);
	assert_int_equal(toml_find(d.root, "a")->time.ns, 123456789);
	assert_int_equal(toml_find(d.root, "b")->time.ns, 1);
	assert_int_equal(toml_find(d.root, "c")->time.ns, 500000000);
	close_document(&d);
}

static char *repeat(const char *word, size_t n)
{
	size_t len = strlen(word);
	char *text = malloc(n * len + 1);
	assert_non_null(text);
	for (size_t i = 0; i < n; i++)
		memcpy(text + i * len, word, len);
	text[n * len] = '\0';
	return text;
}

static enum err parse_nested(const char *open, const char *close, const char *middle, size_t n)
{
	char *head = repeat(open, n), *tail = repeat(close, n), *text = malloc(1 << 16);
	assert_non_null(text);
	snprintf(text, 1 << 16, "a = %s%s%s\n", head, middle, tail);
	struct document d;
	read_document(&d, "x", text, strlen(text));
	close_document(&d);
	free(head);
	free(tail);
	free(text);
	return d.e;
}

static void nesting_is_bounded_on_both_sides(void **state)
{
	(void)state;
	// The root is depth 0, the value of `a` depth 1; an item inside the innermost is one deeper.
	assert_int_equal(parse_nested("[", "]", "", TOML_DEPTH_MAX), OK);
	assert_int_equal(parse_nested("[", "]", "1", TOML_DEPTH_MAX), ERR_LIMIT);
	assert_int_equal(parse_nested("[", "]", "1", TOML_DEPTH_MAX - 1), OK);
	assert_int_equal(parse_nested("{b=", "}", "1", TOML_DEPTH_MAX - 1), OK);
	assert_int_equal(parse_nested("{b=", "}", "1", TOML_DEPTH_MAX), ERR_LIMIT);
	assert_int_equal(parse_nested("[", "]", "", 10000), ERR_LIMIT);
	assert_int_equal(parse_nested("[{b=", "}]", "", 5000), ERR_LIMIT);
}

static void the_arena_asked_for_suffices_for_any_text(void **state)
{
	(void)state;
	// What fills the tree fastest, a document as long as is allowed of each. Never ERR_LIMIT for want of room.
	static const char *const words[] = {"[a]\n", "a.", "[", "{", "a=1\n", ",", "[[a]]\n", "''=[[],[]]\n", "\"\\u0000\"", "x=[{},{}]#\n"};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		char *text = repeat(words[i], TOML_BYTES_MAX / strlen(words[i]));
		struct document d;
		read_document(&d, "x", text, strlen(text));
		assert_true(d.e != ERR_LIMIT || strstr(d.em.text, "nested deeper") != NULL);
		assert_true(toml_arena_bytes(text, strlen(text)) <= (size_t)110 * TOML_BYTES_MAX);
		close_document(&d);
		free(text);
	}
}

static void a_hundred_thousand_keys_are_quick_and_found(void **state)
{
	(void)state;
	char *text = malloc(TOML_BYTES_MAX);
	assert_non_null(text);
	size_t len = 0;
	int n = 0;
	while (len + 16 < TOML_BYTES_MAX)
		len += (size_t)sprintf(text + len, "%x=1\n", n++);
	struct document d;
	read_document(&d, "x", text, len); // quadratic look-ups would take minutes
	assert_int_equal(d.e, OK);
	assert_int_equal(d.root->items.n, n);
	assert_true(n > 100000);
	close_document(&d);
	free(text);
}

static void a_document_over_the_limits_is_refused(void **state)
{
	(void)state;
	char *text = malloc(TOML_BYTES_MAX + 1);
	assert_non_null(text);
	memset(text, ' ', TOML_BYTES_MAX + 1);
	struct arena a;
	const struct toml_value *root;
	struct errmsg em;
	assert_int_equal(toml_arena_bytes(text, TOML_BYTES_MAX + 1), 0);
	assert_int_equal(arena_open(toml_arena_bytes(text, TOML_BYTES_MAX), &a), OK);
	assert_int_equal(toml_parse("x", text, TOML_BYTES_MAX + 1, &a, &root, &em), ERR_LIMIT);
	assert_int_equal(toml_parse("x", text, TOML_BYTES_MAX, &a, &root, &em), OK);
	// The arena is full now: a second document finds no room.
	assert_int_equal(toml_parse("x", text, TOML_BYTES_MAX, &a, &root, &em), ERR_LIMIT);
	arena_close(&a);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(valid_documents_give_the_tree_of_tomllib),
		cmocka_unit_test(invalid_documents_are_refused_with_their_place),
		cmocka_unit_test(a_document_cut_anywhere_is_survived),
		cmocka_unit_test(an_error_says_line_character_got_and_wanted),
		cmocka_unit_test(every_value_knows_its_line),
		cmocka_unit_test(a_second_has_nine_digits_and_the_rest_is_cut_off),
		cmocka_unit_test(nesting_is_bounded_on_both_sides),
		cmocka_unit_test(the_arena_asked_for_suffices_for_any_text),
		cmocka_unit_test(a_hundred_thousand_keys_are_quick_and_found),
		cmocka_unit_test(a_document_over_the_limits_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
