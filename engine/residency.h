// Where weights are while they are used: the one way by which the engine comes to them.
//
// residency_acquire makes a unit's bytes readable, waiting for the disk when they are not there yet; its views are valid until
// residency_release. Without a cap every unit is a view of the mapped file, and acquire and release do nothing. With one, what fits is
// pinned, and the rest is read ahead into a window by a thread, in exactly the order of the table, over and over, and let go once it was
// used (base/window_layout.h, engine/weight_reader.h). When all fits nothing is let go or read twice.
//
// Units are acquired in the order of the table, at most two at a time, and released in the same order. A call that begins elsewhere (some
// of the layers computed again, a step that failed halfway) is served too, and only costs what was read ahead in vain; nothing
// may be acquired then.
// One thread at a time acquires and releases; any may read views and stats. Borrows files and units.
#ifndef HEARTH_ENGINE_RESIDENCY_H
#define HEARTH_ENGINE_RESIDENCY_H

#include "base/err.h"
#include "base/log.h"
#include "engine/unit_table.h"
#include "engine/weight_reader.h"
#include "model/weight_files.h"

#include <stdbool.h>
#include <stdint.h>

struct residency;

// What weights may take. All zero: no cap.
struct residency_limits {
	bool is_capped;
	uint64_t bytes;         // pins and window together
	uint64_t anon_bytes;    // the same for a reader whose memory is our own (direct)
	enum weight_way reader;
	uint32_t stream_share;  // what a plan streams at least, where not all fits (window_layout_streams); 0: as little as keeps the disk busy
	const struct log *log;  // NULL: says nothing
};

struct residency_config {
	const struct weight_files *files; // borrowed
	const struct unit_table *units;   // borrowed, in the order of use
	struct residency_limits limits;
};

struct residency_stats {
	enum weight_way reader; // READER_AUTO: views of the mapped file, nothing is read by us
	bool is_locked;          // mlock held for everything pinned
	int32_t n_units, n_streamed, window;
	uint64_t pinned_bytes, streamed_bytes, window_bytes;
	// Since it was opened:
	uint64_t read_bytes;     // of streamed units
	uint64_t wasted_bytes;   // of them, let go without having been used
	int64_t read_ns;         // time during which something was read
	int64_t stall_ns;        // time that residency_acquire waited
};

// residency_open reads what is pinned. ERR_LIMIT: the cap holds not even the smallest window (the message has the arithmetic); ERR_NOMEM;
// ERR_IO, with file and offset.
MUST_USE enum err residency_open(const struct residency_config *c, struct residency **out, struct errmsg *em);
void residency_close(struct residency *r); // NULL is allowed; nothing is acquired
// residency_acquire: ERR_IO names file and offset; the unit is not acquired then, and the next call tries again.
MUST_USE enum err residency_acquire(struct residency *r, int32_t unit, struct errmsg *em);
void residency_release(struct residency *r, int32_t unit);
// residency_view returns the bytes of a part of an acquired unit; no alignment is promised. NULL for a part without rows.
const void *residency_view(const struct residency *r, int32_t unit, int32_t part);
void residency_get_stats(struct residency *r, struct residency_stats *out);

#define RESIDENCY_TEXT_CAP 160
// residency_describe writes for a person where weights are: "412.0 MiB pinned (locked), 1208.4 MiB streamed by mmap through 8.0 MiB".
void residency_describe(const struct residency_stats *s, char out[RESIDENCY_TEXT_CAP]);

// residency_whole returns the bytes that pinning all of these units takes, residency_least the smallest window for them.
uint64_t residency_whole(const struct unit_table *units);
uint64_t residency_least(const struct unit_table *units);

#endif
