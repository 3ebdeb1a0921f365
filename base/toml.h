// TOML 1.0.0 (toml.io/en/v1.0.0), all of it: text in memory becomes a tree in an arena.
//
// The arena holds everything, decoded strings too; the text may go after parsing. Nothing is allocated elsewhere and nothing grows:
// toml_arena_bytes counts beforehand. Nesting is bounded by TOML_DEPTH_MAX, whichever way it is written. Where the specification
// leaves room we do as Python's tomllib does, except that an integer beyond 64 bits is an error. Line ends inside multi-line strings
// become "\n". A byte order mark is refused. One thread per document.
#ifndef HEARTH_BASE_TOML_H
#define HEARTH_BASE_TOML_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOML_DEPTH_MAX 64          // tables and arrays inside each other; people write three
#define TOML_BYTES_MAX (1 << 20) // of one document; a config file is a page, a description of 1,000 machines 200 KB

enum toml_type {
	TOML_STRING,
	TOML_INT,
	TOML_FLOAT,
	TOML_BOOL,
	TOML_OFFSET_DATETIME, // a moment: local date and time with an offset from UTC
	TOML_LOCAL_DATETIME,
	TOML_LOCAL_DATE,
	TOML_LOCAL_TIME,
	TOML_ARRAY,
	TOML_TABLE,
};

struct toml_text {
	const char *data; // UTF-8, NUL-terminated; may also hold NULs ("\u0000")
	size_t len;       // bytes without the terminator
};

// Fields that the type lacks are zero. Checked: month, day of that month, hour, minute, second (no leap second), offset.
struct toml_time {
	int16_t year;           // 0 to 9999
	uint8_t month, day;     // from 1
	uint8_t hour, minute, second;
	int16_t offset_minutes; // east of UTC
	uint32_t ns;            // digits beyond the ninth are cut off
};

// Items of an array, or the pairs of a table, in the order in which they first appear.
struct toml_items {
	struct toml_value *first; // NULL: empty
	struct toml_value *last;
	int32_t n;
};

struct toml_value {
	enum toml_type type;
	int32_t line; // from 1: where it is written; a table's header or first mention
	struct toml_text key; // in a table; data is NULL in an array and for the root
	struct toml_value *next; // in the array or table
	union {
		struct toml_text text;   // TOML_STRING
		int64_t i;               // TOML_INT
		double f;                // TOML_FLOAT
		bool b;                  // TOML_BOOL
		struct toml_time time;   // the four of dates and times
		struct toml_items items; // TOML_ARRAY, TOML_TABLE
	};

	// The parser's: who holds it, and what may still be added.
	const struct toml_value *parent;
	uint8_t depth;
	uint8_t form;
};

// toml_arena_bytes returns a capacity that suffices for this text: up to 110 times its length for "[[[[", 5 to 20 times for what
// people write.
size_t toml_arena_bytes(const char *text, size_t len);
// toml_parse reads a document; *root is its top table. `name` stands before messages: "home.toml:12:7: ...", line and character from 1.
// ERR_FORMAT: not TOML. ERR_LIMIT: longer or deeper than the limits, or the arena is too small.
MUST_USE enum err toml_parse(const char *name, const char *text, size_t len, struct arena *a, const struct toml_value **root,
	struct errmsg *em);
// toml_find returns the value of a key in a table, or NULL. Linear.
const struct toml_value *toml_find(const struct toml_value *table, const char *key);
// toml_type_name returns "a string", "an integer", ...
const char *toml_type_name(enum toml_type t);

#endif
