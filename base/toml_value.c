#include "base/toml_parser.h"

// read_array reads "[1, 2]": line ends and comments may stand anywhere between, a comma may end it.
static enum err read_array(struct toml_parser *p, struct toml_value *array)
{
	array->type = TOML_ARRAY;
	array->form = FORM_FROZEN;
	p->at++;
	for (;;) {
		toml_skip_empty(p);
		if (toml_peek(p, 0) == ']')
			break;
		struct toml_value *v;
		enum err e = toml_add_value(p, array, (struct toml_text){0}, &v);
		if (e == OK)
			e = toml_read_value(p, v);
		if (e != OK)
			return e;
		toml_skip_empty(p);
		if (toml_peek(p, 0) == ']')
			break;
		if (toml_peek(p, 0) != ',')
			return toml_fail_got(p, "',' or ']' in an array");
		p->at++;
	}
	p->at++;
	return OK;
}

// read_inline_table reads "{a = 1, b.c = 2}": on one line, without a comma at the end.
static enum err read_inline_table(struct toml_parser *p, struct toml_value *table)
{
	table->type = TOML_TABLE;
	table->form = FORM_FROZEN;
	p->at++;
	toml_skip_blanks(p);
	if (toml_peek(p, 0) == '}') {
		p->at++;
		return OK;
	}
	for (;;) {
		enum err e = toml_read_pair(p, table);
		if (e != OK)
			return e;
		toml_skip_blanks(p);
		int c = toml_peek(p, 0);
		if (c != ',' && c != '}')
			return toml_fail_got(p, "',' or '}' in an inline table");
		p->at++;
		if (c == '}')
			return OK;
	}
}

static enum err read_bool(struct toml_parser *p, struct toml_value *v)
{
	v->type = TOML_BOOL;
	v->b = toml_starts(p, "true");
	if (!v->b && !toml_starts(p, "false"))
		return toml_fail_got(p, "a value (a text stands in quotes)");
	p->at += v->b ? 4 : 5;
	return OK;
}

// Recursion (arrays and inline tables call back) is bounded: toml_add_value refuses the item that would go deeper than TOML_DEPTH_MAX.
enum err toml_read_value(struct toml_parser *p, struct toml_value *v)
{
	int c = toml_peek(p, 0);
	switch (c) {
	case '[': return read_array(p, v);
	case '{': return read_inline_table(p, v);
	case '"':
	case '\'': v->type = TOML_STRING; return toml_read_string(p, &v->text);
	case 't':
	case 'f': return read_bool(p, v);
	default: break;
	}
	if (toml_is_time(p))
		return toml_read_time(p, v);
	if (toml_is_digit(c) || c == '+' || c == '-' || c == 'i' || c == 'n')
		return toml_read_number(p, v);
	return toml_fail_got(p, "a value (a text stands in quotes)");
}
