// The sampler: logits of one position to one token (rule 17a of kernels/canonical.h). No state but scratch memory.
#ifndef HEARTH_ENGINE_SAMPLER_H
#define HEARTH_ENGINE_SAMPLER_H

#include "base/err.h"
#include "base/sampling.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct candidate {
	float value;
	int32_t id;
};

// candidate_is_before is the total order: value descending, id ascending.
static inline bool candidate_is_before(struct candidate a, struct candidate b)
{
	return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// sampler_check refuses parameters out of range; the message names the one. Shared by command line and HTTP.
MUST_USE enum err sampler_check(const struct sampling *s, struct errmsg *em);
#define SAMPLER_SCRATCH(n) (2 * (size_t)(n)) // candidates of scratch that sampler_draw wants for n logits
// sampler_draw draws the token of position `pos` (its own index in the text). scratch holds SAMPLER_SCRATCH(n) candidates. ERR_NON_FINITE when a
// logit is NaN or infinite: no token then.
MUST_USE enum err sampler_draw(const struct sampling *s, const float *logits, int32_t n, uint64_t pos, struct candidate *scratch, int32_t *token);
// sampler_draw_best draws the same token from the first n candidates of the order alone, which are finite and as many as s looks at
// (sampling_takes_best).
int32_t sampler_draw_best(const struct sampling *s, const struct candidate *best, int32_t n, uint64_t pos);

#endif
