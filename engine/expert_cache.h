// Experts under a memory cap: the most used stay in memory, the others are read when a router has chosen them, or is likely to.
//
// An expert's three matrices are one unit. It is read when a step acquires it and it is not here, in place of the one that has been used least:
// uses count less the longer ago they were (LRFU, Lee et al., IEEE Transactions on Computers 50(12), 2001). Units that a step expects to
// need soon can be named; they are read by the same thread, behind those that are waited for. What was read ahead and is let go unused
// counts apart (wasted_bytes).
// One thread acquires, expects and releases; any may ask for stats. Borrows files and units.
#ifndef HEARTH_ENGINE_EXPERT_CACHE_H
#define HEARTH_ENGINE_EXPERT_CACHE_H

#include "base/err.h"
#include "engine/unit_table.h"
#include "engine/weight_reader.h"
#include "model/weight_files.h"

#include <stdint.h>

struct expert_cache;

struct expert_cache_config {
	const struct weight_files *files; // borrowed
	const struct unit_table *units;   // borrowed; in any order
	enum weight_way reader;           // not READER_AUTO
	uint64_t bytes;                   // that experts may take
	int32_t n_slots_min;              // experts that a step needs at once, at least
	int32_t steps_remembered;         // acquisitions after which a use counts half
};

struct expert_cache_stats {
	int32_t n_slots;         // experts that fit
	uint64_t acquired_bytes; // asked for
	uint64_t read_bytes;     // read, whether asked for or ahead
	uint64_t ahead_bytes;    // of them, read ahead
	uint64_t wasted_bytes;   // of those, let go unused
	uint64_t unused_bytes;   // of those, here and not used yet
	int64_t read_ns;         // time during which something was read
	int64_t stall_ns;        // time that expert_cache_acquire waited
};

// expert_cache_open reads nothing yet. ERR_LIMIT: fewer than n_slots_min fit (the message has the arithmetic); ERR_NOMEM; ERR_UNSUPPORTED: this
// reader cannot read these files.
MUST_USE enum err expert_cache_open(const struct expert_cache_config *c, struct expert_cache **out, struct errmsg *em);
void expert_cache_close(struct expert_cache *c); // NULL is allowed; nothing is acquired
int32_t expert_cache_n_slots(const struct expert_cache *c);
// expert_cache_least returns what n_slots experts take.
uint64_t expert_cache_least(const struct unit_table *units, int32_t n_slots);

// expert_cache_acquire brings n different units into memory, at most n_slots with those acquired already, and keeps them until they are
// released. ERR_IO names file and offset; none is acquired then.
MUST_USE enum err expert_cache_acquire(struct expert_cache *c, const int32_t *units, int32_t n, struct errmsg *em);
void expert_cache_release(struct expert_cache *c, const int32_t *units, int32_t n);
// expert_cache_expect begins to read units that are not here, as far as that drops nothing that is in use or expected itself.
void expert_cache_expect(struct expert_cache *c, const int32_t *units, int32_t n);
// expert_cache_view returns the bytes of a part of an acquired unit.
const void *expert_cache_view(const struct expert_cache *c, int32_t unit, int32_t part);
// expert_cache_settle waits until nothing is being read.
void expert_cache_settle(struct expert_cache *c);
void expert_cache_get_stats(struct expert_cache *c, struct expert_cache_stats *out);

#endif
