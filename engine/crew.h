// The threads of one forward, walking through its phases together; private to engine/.
//
// A phase is work that needs nothing from another thread's part of the same phase. Shares of a phase are handed out one by one (crew_take),
// so that a slow core does not hold up the others; results never depend on who does which.
//
// Weights are acquired and released by the first hand, in the gap between two phases: it finishes its own share first, so that waiting
// for the disk costs nobody's computing, and the others wait for it at the end of the phase as they do anyway.
#ifndef HEARTH_ENGINE_CREW_H
#define HEARTH_ENGINE_CREW_H

#include "engine/engine_state.h"

#include <stdatomic.h>

struct crew {
	struct engine *e;
	int32_t n_tokens;
	int32_t n_tiles;
	int32_t layer_begin, layer_end; // that run
	struct errmsg *em;
	enum err err;                    // why weights could not be had
	_Atomic uint32_t failed_phase;   // the phase that cannot begin; 0: none
	// Next share of the phases with even and odd numbers: one is reset while the other is in use.
	_Atomic int32_t next[2];
};

// One thread of it.
struct hand {
	struct crew *crew;
	int32_t idx, n_hands;
	uint32_t phase;
};

// crew_take hands out the next of n shares; false when the phase has none left.
bool crew_take(struct hand *h, int32_t n, int32_t *share);
// crew_end_phase waits for the others.
void crew_end_phase(struct hand *h);
// crew_end_phase_if ends a phase that the first hand's `err` decides about. False: that was none, and every hand returns.
bool crew_end_phase_if(struct hand *h, enum err err);
// crew_tokens gives the tokens that are this thread's in every per-token phase.
void crew_tokens(const struct hand *h, int32_t *begin, int32_t *end);

// crew_begin_units ends a phase like crew_end_phase, and the next begins with the first of a run of units. False: it could not be had,
// and every hand returns. An empty run has nothing to wait for and nothing to compute.
bool crew_begin_units(struct hand *h, const struct unit_run *run);
// crew_run_units computes a run that has begun, unit by unit, ends the phase and leaves nothing acquired. False as above.
typedef void crew_unit_fn(struct hand *h, const void *ctx, int32_t unit);
bool crew_run_units(struct hand *h, const struct unit_run *run, crew_unit_fn *fn, const void *ctx);
// crew_unit_weight gives the rows of a matrix that an acquired unit has as its part `part`; *row_begin is the first of them.
struct weight crew_unit_weight(const struct hand *h, int32_t unit, int32_t part, const struct weight *shape, int32_t *row_begin);

// Up to three products of one phase, whose outputs are one list of rows. Each is a matrix that the unit has a part of.
struct product {
	const struct weight *w; // its shape
	const struct engine_input *in;
	float *y; // (n_tokens, w->rows)
	size_t y_stride; // from one token to the next
};
void crew_products(struct hand *h, int32_t unit, const struct product *p, int32_t n);
// crew_quantise makes the forms of tokens [begin, end) of an input.
void crew_quantise(struct hand *h, struct engine_input *in, int32_t begin, int32_t end);
// crew_set_input names the batch's tokens to an input's forms, before the threads start.
void crew_set_input(struct engine_input *in, int32_t n_tokens);
// crew_rows_per_share returns how many of `rows` rows make a share.
int32_t crew_rows_per_share(const struct hand *h, int32_t rows);

#endif
