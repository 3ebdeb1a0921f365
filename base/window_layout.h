// Which units of weights stay in memory and which are read anew in each cycle: one arithmetic for the engine, the planner and the simulator.
// Pure.
//
// N units are used in order, over and over. When they fit they are all pinned. Otherwise n of them are streamed through a window of q slots,
// each as large as the largest unit, and N - n are pinned: streaming more makes the window larger. Streamed units are spread evenly, so
// that work on pinned ones lies between them, during which reading goes on.
// Source: cost-model.md, section 2. With equal units u in C bytes: Q = floor(C / u), q = Q - (N - n).
#ifndef HEARTH_BASE_WINDOW_LAYOUT_H
#define HEARTH_BASE_WINDOW_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_MIN 2 // one slot is computed from while the other is read
#define WINDOW_SHARE_WHOLE 65536 // in which a plan says what share of a machine's weights is streamed

struct window_layout {
	int32_t n_units;    // N
	int32_t n_streamed; // n; 0: everything is pinned
	int32_t window;     // q; 0 with n
	uint64_t pinned_bytes, streamed_bytes, window_bytes;
};

// window_layout_fit lays units (n_units, their bytes in memory) out in `bytes`: the fewest streamed, but at least n_streamed_min, whose window has
// window_want slots; with less room the largest window of at least WINDOW_MIN. False: not even that fits, and window_layout_least
// tells what would.
bool window_layout_fit(const uint64_t *unit_bytes, int32_t n_units, uint64_t bytes, int32_t window_want, int32_t n_streamed_min,
	struct window_layout *out);
uint64_t window_layout_least(const uint64_t *unit_bytes, int32_t n_units);
// window_layout_streams returns how many of these units a plan's share (0 .. WINDOW_SHARE_WHOLE) is. It counts equal units, and these are not: so many
// that the window is no smaller than planned, a slot that holds nothing whole left out. 0 for 0.
int32_t window_layout_streams(const uint64_t *unit_bytes, int32_t n_units, uint32_t share);

// window_share_of says that n of n_units equal units are streamed, window_share_units is what was said.
static inline uint32_t window_share_of(int32_t n, int32_t n_units)
{
	return (uint32_t)(((int64_t)n * WINDOW_SHARE_WHOLE + n_units - 1) / n_units);
}

static inline int32_t window_share_units(uint32_t share, int32_t n_units)
{
	return (int32_t)((int64_t)share * n_units / WINDOW_SHARE_WHOLE);
}

// window_layout_is_streamed: unit i is when floor((i + 1) n / N) > floor(i n / N).
static inline bool window_layout_is_streamed(const struct window_layout *l, int32_t i)
{
	int64_t n = l->n_streamed;
	return n > 0 && (i + 1) * n / l->n_units > i * n / l->n_units;
}

#endif
