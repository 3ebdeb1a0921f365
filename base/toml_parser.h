// The inside of toml.h: one parser, its cursor, and what its files call of each other. Included by base/toml*.c only.
//
// toml_scan.c   checks the bytes once: UTF-8, no control characters; counts what the tree needs
// toml.c        statements: headers, pairs, keys, and which table may still be extended
// toml_value.c  values: dispatch, arrays, inline tables
// toml_string.c, toml_number.c, toml_time.c   one value each
#ifndef HEARTH_BASE_TOML_PARSER_H
#define HEARTH_BASE_TOML_PARSER_H

#include "base/toml.h"

#include <string.h>

// What may still happen to a table or an array.
enum toml_form {
	FORM_OPEN,      // a table that headers of sub-tables made: its own header may follow
	FORM_HEADER,    // has had its header: sub-tables may follow, through headers only
	FORM_DOTTED,    // made or passed by a dotted key: more dotted keys may follow, no header
	FORM_OF_TABLES, // an array that [[header]] made: further ones append
	FORM_FROZEN,    // an inline table or a written-out array: complete
};

struct toml_parser {
	const char *name;
	const char *text, *end;
	const char *at;     // next byte
	const char *marked; // toml_line has counted up to here
	int32_t marked_line;
	struct errmsg *em;

	struct toml_value *values; // (values_cap), from the arena
	size_t n_values, values_cap;
	char *pool; // decoded text; never longer than what it is decoded from
	size_t pool_len;
	struct toml_value **index; // (index_mask + 1), open addressing: every pair of every table by (table, key)
	size_t index_mask;

	struct toml_value *table; // where pairs go now
};

struct toml_counts {
	size_t values;
	size_t pool_bytes;
	size_t index_slots; // a power of two
};

// toml_count bounds what a document of these bytes can need, whether or not it is TOML.
struct toml_counts toml_count(const char *text, size_t len);
// toml_check_bytes refuses what no TOML document may hold anywhere.
MUST_USE enum err toml_check_bytes(const struct toml_parser *p);
// toml_fail writes "name:line:column: ..." for the byte `at` and returns `e`.
enum err toml_fail(const struct toml_parser *p, enum err e, const char *at, const char *fmt, ...) PRINTF_LIKE(4, 5);
// toml_fail_got fails with ERR_FORMAT at the cursor: "got 'x', want <want>".
enum err toml_fail_got(const struct toml_parser *p, const char *want);
// toml_line returns the line of the cursor; the cursor never goes back behind an earlier call.
int32_t toml_line(struct toml_parser *p);
// toml_skip_blanks passes spaces and tabs; toml_skip_empty passes line ends and comments too.
void toml_skip_blanks(struct toml_parser *p);
void toml_skip_empty(struct toml_parser *p);

// toml_peek returns the byte `ahead` of the cursor, or -1 past the end.
static inline int toml_peek(const struct toml_parser *p, size_t ahead)
{
	return ahead < (size_t)(p->end - p->at) ? (unsigned char)p->at[ahead] : -1;
}

static inline bool toml_starts(const struct toml_parser *p, const char *word)
{
	size_t n = strlen(word);
	return n <= (size_t)(p->end - p->at) && memcmp(p->at, word, n) == 0;
}

static inline bool toml_is_digit(int c)
{
	return c >= '0' && c <= '9';
}

// toml_add_value makes a value inside `parent` (an array, or a table: then under `key`, which it does not yet have).
MUST_USE enum err toml_add_value(struct toml_parser *p, struct toml_value *parent, struct toml_text key, struct toml_value **out);
// toml_read_pair reads "a.b.c = value" into `table`.
MUST_USE enum err toml_read_pair(struct toml_parser *p, struct toml_value *table);
// toml_read_value fills `v` from what is at the cursor.
MUST_USE enum err toml_read_value(struct toml_parser *p, struct toml_value *v);
// toml_read_string reads any of the four kinds of string; toml_read_line_string those of one line (keys).
MUST_USE enum err toml_read_string(struct toml_parser *p, struct toml_text *out);
MUST_USE enum err toml_read_line_string(struct toml_parser *p, struct toml_text *out);
// toml_read_number reads an integer or a float, inf and nan too.
MUST_USE enum err toml_read_number(struct toml_parser *p, struct toml_value *v);
// toml_is_time tells whether a date or a time begins at the cursor.
bool toml_is_time(const struct toml_parser *p);
MUST_USE enum err toml_read_time(struct toml_parser *p, struct toml_value *v);

#endif
