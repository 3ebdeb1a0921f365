// The threads of one forward, walking through its phases together; private to engine/.
//
// A phase is work that needs nothing from another thread's part of the same phase. Units of a phase are handed out one by one (crew_take),
// so that a slow core does not hold up the others; results never depend on who does which.
#ifndef HEARTH_ENGINE_CREW_H
#define HEARTH_ENGINE_CREW_H

#include "engine/engine_state.h"

#include <stdatomic.h>

struct crew {
	struct engine *e;
	int32_t n_tokens;
	int32_t n_tiles;
	int32_t layer_begin, layer_end; // that run
	// Next unit of the phases with even and odd numbers: one is reset while the other is in use.
	_Atomic int32_t next[2];
};

// One thread of it.
struct hand {
	struct crew *crew;
	int32_t idx, n_hands;
	uint32_t phase;
};

// crew_take hands out the next of n_units; false when the phase has none left.
bool crew_take(struct hand *h, int32_t n_units, int32_t *unit);
// crew_end_phase waits for the others.
void crew_end_phase(struct hand *h);
// crew_tokens gives the tokens that are this thread's in every per-token phase.
void crew_tokens(const struct hand *h, int32_t *begin, int32_t *end);

// Up to three products of one phase, whose outputs are one list of rows.
struct product {
	const struct weight *w;
	const struct engine_input *in;
	float *y; // (n_tokens, w->rows)
};
void crew_products(struct hand *h, const struct product *p, int32_t n);
// crew_quantise makes the forms of tokens [begin, end) of an input.
void crew_quantise(struct hand *h, struct engine_input *in, int32_t begin, int32_t end);
// crew_set_input names the batch's tokens to an input's forms, before the threads start.
void crew_set_input(struct engine_input *in, int32_t n_tokens);
// crew_rows_per_unit returns how many of `rows` rows make a unit.
int32_t crew_rows_per_unit(const struct hand *h, int32_t rows);

#endif
