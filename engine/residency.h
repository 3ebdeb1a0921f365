// Where weights are while they are used: the one way by which the engine comes to them.
//
// residency_acquire makes a unit's bytes readable, waiting for the disk when they are not there yet; its views are valid until
// residency_release. Units are acquired and released in the order of the table, over and over; a call that begins elsewhere (a part
// of the layers computed again) is served too, and only costs what was read ahead in vain.
// Without a cap every unit is a view of the mapped file, and acquire and release do nothing.
//
// One thread at a time acquires and releases; any may read views. Borrows files and units.
#ifndef HEARTH_ENGINE_RESIDENCY_H
#define HEARTH_ENGINE_RESIDENCY_H

#include "base/err.h"
#include "engine/unit_table.h"
#include "model/weight_files.h"

#include <stdbool.h>
#include <stdint.h>

struct residency;

struct residency_config {
	const struct weight_files *files; // borrowed
	const struct unit_table *units;   // borrowed, in the order of use
};

// residency_open: ERR_NOMEM, ERR_IO (a weight that cannot be read, with file and offset).
MUST_USE enum err residency_open(const struct residency_config *c, struct residency **out, struct errmsg *em);
void residency_close(struct residency *r); // NULL is allowed; nothing is acquired
// residency_acquire: ERR_IO names file and offset; the unit is not acquired then, and the next call tries again.
MUST_USE enum err residency_acquire(struct residency *r, int32_t unit, struct errmsg *em);
void residency_release(struct residency *r, int32_t unit);
// residency_view returns the bytes of a part of an acquired unit; no alignment is promised. NULL for a part without rows.
const void *residency_view(const struct residency *r, int32_t unit, int32_t part);

#endif
