// A trace of a profile: what a prober would measure who sends a request at equal intervals and gets each answer at once.
// Pure; deterministic like sim/profiles.
#ifndef HEARTH_SIM_TRACE_GENERATE_H
#define HEARTH_SIM_TRACE_GENERATE_H

#include "sim/profiles.h"
#include "sim/trace.h"

#include <stddef.h>
#include <stdint.h>

// trace_generate fills n samples, the first at time 0. Requests and answers keep their order, as on a connection; what a restart of
// the access point swallows is lost. Links of one `shared_seed` share that restart.
void trace_generate(const struct profile *p, uint64_t seed, uint64_t shared_seed, int64_t interval_ns, struct trace_sample *samples, size_t n);

#endif
