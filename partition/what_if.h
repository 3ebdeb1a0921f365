// What if: the same question to the solver (partition/solve.h) with one thing changed, and how fast the best plan is then. Pure.
//
// A change is a value; what_if_ask makes the changed wants in memory from the caller's arena, which is left as it was. The wants themselves
// are never touched. What a change cannot tell by itself, other links or another quantisation, comes with it.
#ifndef HEARTH_PARTITION_WHAT_IF_H
#define HEARTH_PARTITION_WHAT_IF_H

#include "partition/solve.h"

// The accelerator that `WHAT_IF_ACCELERATOR` adds: a usual graphics card, some years old.
#define WHAT_IF_ACCEL_BYTES (UINT64_C(15) << 29) // 7.5 GiB of 8
#define WHAT_IF_ACCEL_RATE 250e9                 // bytes/s
#define WHAT_IF_ACCEL_FLOPS 8e12

enum what_if_kind {
	WHAT_IF_ONE_ROUND,   // one trip round the ring
	WHAT_IF_NO_DISKS,    // nothing may be streamed
	WHAT_IF_WITHOUT,     // `device` holds no layers
	WHAT_IF_MEMORY,      // `device` has twice the memory
	WHAT_IF_ACCELERATOR, // `device` has one of its own
	WHAT_IF_LINKS,       // the links of `as`; device -1: of everybody
	WHAT_IF_QUANT,       // `shape`
};

struct what_if {
	enum what_if_kind kind;
	int32_t device;                   // -1: none in particular
	const struct cluster *as;         // LINKS: its links or ways to the access point instead of the cluster's
	const struct model_shape *shape;  // QUANT
};

struct what_if_answer {
	enum err status;    // OK, or why there is no plan, which em tells
	double value;       // of the goal, seconds
	double token_s;
	struct cost_plan plan;
};

// what_if_ask solves the changed wants. `now` is the plan without the change: it stays a candidate where the change can only help. A question without
// an answer (no plan is possible) is no error: status says so, em why. ERR_NOMEM: less than what_if_scratch_bytes.
MUST_USE enum err what_if_ask(const struct solve_want *w, const struct cost_plan *now, const struct what_if *q, struct arena *scratch,
	struct what_if_answer *out, struct errmsg *em);
size_t what_if_scratch_bytes(const struct solve_want *w);
// what_if_makes_sense tells whether the question is one for this plan: a single stage has one round, who holds nothing is not missed.
bool what_if_makes_sense(const struct solve_want *w, const struct cost_plan *now, const struct what_if *q);

#endif
