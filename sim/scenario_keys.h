// One table of a scenario file into one struct, by a list of keys: the inside of sim/scenario*.c and of sim/shell/topology.c.
#ifndef HEARTH_SIM_SCENARIO_KEYS_H
#define HEARTH_SIM_SCENARIO_KEYS_H

#include "base/suggest.h"
#include "base/toml.h"
#include "sim/quantity.h"
#include "sim/scenario.h"

enum scenario_key_kind {
	KEY_NAME,     // char[NAME_CAP]: letters, digits, '.', '_', '-'
	KEY_TEXT,     // char[SCENARIO_TEXT_CAP]
	KEY_BYTES,    // uint64_t
	KEY_QUANTITY, // double
	KEY_NUMBER,   // double without a unit
	KEY_INT,      // int32_t
	KEY_U64,
	KEY_BOOL,
	KEY_WORD,  // int: index into choices
	KEY_VALUE, // const struct toml_value *: the caller reads it
};

struct scenario_key {
	const char *name;
	enum scenario_key_kind kind;
	size_t offset;
	double min, max;        // BYTES, QUANTITY, NUMBER, INT
	enum quantity quantity; // QUANTITY
	uint32_t bit;           // of a figure that may be derived, for *derived
	const char *const *choices;
	bool is_required;
};

struct scenario_reader {
	const char *file;
	struct errmsg *em;
	struct scenario *s; // its list of derived figures; NULL: figures cannot be derived
	struct cluster_link *matrix; // s->cluster's, while the plan is read
	struct cluster_link *attach; // room for s->cluster's
	struct trace_set *traces;
	const struct trace_loader *loader;
	const char *subject; // who a derived figure is of: "D3", "model"
};

// scenario_fail writes "file:line: where: ..." and returns ERR_FORMAT.
enum err scenario_fail(const struct scenario_reader *r, const struct toml_value *at, const char *where, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
// scenario_no_such fails with "there is no WHAT NAME", and with the nearest of the names that were offered to `s`.
enum err scenario_no_such(const struct scenario_reader *r, const struct toml_value *at, const char *where, const char *what,
	const struct suggest *s);
// scenario_read_table fills the struct `out` by the keys' offsets; `where` is the table's name. *derived (may be NULL) gets the bits.
MUST_USE enum err scenario_read_table(struct scenario_reader *r, const struct toml_value *table, const char *where,
	const struct scenario_key *keys, size_t n_keys, void *out, uint32_t *derived);

// What the keys `profile` (of a table that was read; its text, which may be empty: NULL then) and `trace` name. `where` is the table's name.
MUST_USE enum err scenario_find_profile(const struct scenario_reader *r, const struct toml_value *table, const char *where, const char *name,
	const struct profile **out);
MUST_USE enum err scenario_read_trace(const struct scenario_reader *r, const struct toml_value *v, const char *where, const struct trace **out);

// The parts of a file; each reads its tables of the root into r->s. In this order, as each needs those before it.
MUST_USE enum err scenario_read_model(struct scenario_reader *r, const struct toml_value *table);
MUST_USE enum err scenario_read_machines(struct scenario_reader *r, const struct toml_value *access_points,
	const struct toml_value *network, const struct toml_value *devices, const struct toml_value *links);
MUST_USE enum err scenario_read_swarm(struct scenario_reader *r, const struct toml_value *placement, const struct toml_value *volunteers,
	const struct toml_value *traffic);
MUST_USE enum err scenario_read_plan(struct scenario_reader *r, const struct toml_value *plan, const struct toml_value *group);
// scenario_read_coordinator reads the coordinator's name alone, for a planner; the table may be NULL.
MUST_USE enum err scenario_read_coordinator(struct scenario_reader *r, const struct toml_value *plan);
// scenario_note lists a figure of the subject that the file leaves out and this program assumes, with its reason.
MUST_USE enum err scenario_note(struct scenario_reader *r, const struct toml_value *at, const char *key, const char *value, const char *why);

// scenario_find_device puts the number of the device of that name into *out, or fails at `where`, with a suggestion.
MUST_USE enum err scenario_find_device(
	struct scenario_reader *r, const struct toml_value *at, const char *where, struct toml_text name, int32_t *out);
// scenario_tables fails unless v is [[where]]: an array of at most max tables, of which it looks at the first.
MUST_USE enum err scenario_tables(struct scenario_reader *r, const struct toml_value *v, const char *where, int32_t max);

#endif
