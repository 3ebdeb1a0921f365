// The head's engine for the coordinator's host: the buffers that hidden states lie in, the FORWARD (embedding) and SAMPLE jobs on the worker, and
// the running hash of each slot's logits. Their ends come back as events, from the loop.
//
// One FORWARD and one SAMPLE are under way at a time, as the core has it. Thread rule: the loop's thread; the jobs run on the worker's.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_HEAD_H
#define HEARTH_COORDINATOR_SHELL_COORD_HEAD_H

#include "base/err.h"
#include "base/log.h"
#include "coordinator/coordinator.h"
#include "engine/logits_hash.h"
#include "engine/residency.h"
#include "engine/worker.h"
#include "model/model.h"
#include "net/loop.h"

struct coord_head;

struct coord_head_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct log *log;
	struct worker *worker;
	const struct model *model;
	const struct coordinator_config *core;
	struct residency_limits weights; // the output head's; zero: no cap
	void *ctx;
	void (*on_event)(void *ctx, struct coord_event *ev); // FORWARD_DONE, SAMPLED
};

MUST_USE enum err coord_head_open(const struct coord_head_params *p, struct coord_head **out, struct errmsg *em);
// coord_head_close runs the loop until the jobs under way have ended; their events still come. NULL is allowed.
void coord_head_close(struct coord_head *h);
// coord_head_bytes returns the place of len bytes from off in a buffer.
uint8_t *coord_head_bytes(struct coord_head *h, int32_t buf, size_t off, size_t len);
void coord_head_forward(struct coord_head *h, const struct coord_effect *f); // COORD_FX_FORWARD
void coord_head_sample(struct coord_head *h, const struct coord_effect *f);  // COORD_FX_SAMPLE
// coord_head_hash writes the hash of all logits of the session in `slot` so far. Not while its SAMPLE is under way.
void coord_head_hash(const struct coord_head *h, int32_t slot, char hex[2 * LOGITS_HASH_BYTES + 1]);

void coord_head_weight_stats(const struct coord_head *h, struct residency_stats *out);

#endif
