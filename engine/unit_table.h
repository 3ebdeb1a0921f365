// Units of weights: what is pinned, or read and released, as one piece. In the order in which the engine uses them.
//
// A unit is one phase's matrices of one layer, or a block of their rows: q, k and v; o; gate and up; down; the output head; one expert
// (gate, up and down of it, in a table of their own, since their order of use is the router's).
// Each of its parts is a run of bytes of the model file. How finely phases are cut changes no bit of a result: a row is computed the
// same way wherever it lies. Vectors (norms, biases) and routers are no units, the engine keeps copies.
// Pure but for the table's own memory.
#ifndef HEARTH_ENGINE_UNIT_TABLE_H
#define HEARTH_ENGINE_UNIT_TABLE_H

#include "base/err.h"
#include "model/model.h"

#include <stdint.h>

#define UNIT_PARTS_MAX 3
#define UNIT_ROWS 32           // rows are cut in multiples of what a kernel works on at once
#define UNIT_UNCUT UINT64_MAX  // a unit may be as large as its phase

enum unit_kind { UNIT_QKV, UNIT_O, UNIT_GATE_UP, UNIT_DOWN, UNIT_OUTPUT, UNIT_EXPERT, N_UNIT_KINDS };

struct unit_part {
	uint64_t at, bytes;         // in the model file; bytes 0: this block has no row of this matrix
	int32_t row_begin, row_end; // of the matrix
};

struct unit {
	int32_t layer; // of the whole model; n_layers: the head
	enum unit_kind kind;
	int32_t n_parts;
	struct unit_part parts[UNIT_PARTS_MAX]; // in the order of the kind's name
	uint64_t bytes;                         // of all parts
};

struct unit_table {
	struct unit *units; // (n), owned
	int32_t n;
	int32_t cap;
};

// A run of units: those of one phase.
struct unit_run {
	int32_t begin, end;
};

// unit_table_add appends the matrices of one phase, cut by rows so that no unit is larger than bytes_max (or than UNIT_ROWS rows of each
// matrix). ERR_NOMEM. *run gets the new units.
MUST_USE enum err unit_table_add(struct unit_table *t, int32_t layer, enum unit_kind kind, const struct tensor_view *const *matrices,
	int32_t n_matrices, uint64_t bytes_max, struct unit_run *run);
uint64_t unit_table_bytes(const struct unit_table *t);
void unit_table_deinit(struct unit_table *t); // safe on zeroed memory

#endif
