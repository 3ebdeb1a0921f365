// The probe: what this machine can do (base/device_profile.h), measured in seconds with the program's own kernels and readers.
//
// Decode rates come from products over memory that no cache holds, each thread with rows of its own; prompts' from batches. With a model's weights at
// hand some of its layers really run, and the rates are corrected by what a whole visit costs beside its products. A slice is short, so that whoever has
// the pool can do something else between two of them; a probe may be dropped at any time. It keeps within `budget_ns` by doing fewer repetitions: every
// figure is what a quarter of those it has pass.
//
// One thread at a time calls it, the pool's owner.
#ifndef HEARTH_ENGINE_PROBE_H
#define HEARTH_ENGINE_PROBE_H

#include "base/device_profile.h"
#include "base/err.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

#define PROBE_BUDGET_NS INT64_C(8000000000) // of slices; what is left of ten seconds is for those that a slow machine draws out
#define PROBE_LEAST_BYTES (UINT64_C(24) << 20) // with less memory nothing can be said

struct probe_config {
	const struct kernels *kernels; // borrowed, like all pointers here
	struct pool *pool;
	const struct model *model;  // its weight types and shapes are measured; NULL: a usual set
	bool has_weights;           // its bytes are all here
	const char *folder;         // where disk may be written to be measured, when the model's file cannot be; NULL: nowhere
	uint64_t bytes_max;         // memory it may take; 0: what is available
	int64_t budget_ns;          // 0: PROBE_BUDGET_NS
	bool skip_threads;          // leave n_threads_best 0
	const char *root;           // of /proc and /sys; NULL: ""
};

struct probe;

// probe_open: ERR_NOMEM; ERR_LIMIT: bytes_max is below PROBE_LEAST_BYTES.
MUST_USE enum err probe_open(const struct probe_config *c, struct probe **out, struct errmsg *em);
void probe_close(struct probe *p); // NULL is allowed
// probe_step does a slice, a tenth of a second at most on most machines; true while there is more to do.
bool probe_step(struct probe *p);
// probe_note_handover adds what it took until a slice began on the engine's thread; hearing of its end is taken to be as long. Part of a visit's fixed cost.
void probe_note_handover(struct probe *p, int64_t ns);
// probe_share returns how much of it is done, 0 to 1; probe_words what is measured now.
double probe_share(const struct probe *p);
const char *probe_words(const struct probe *p);
// probe_result fills *out when there is no more to do; cap_bytes, reserved_bytes and reader are the caller's to set.
void probe_result(const struct probe *p, struct device_profile *out);

// probe_refresh sets what is not measured but so at this moment: memory and conditions. root as in the config.
void probe_refresh(const char *root, struct device_profile *p);

// probe_types lists the weight types of a model that take at least a hundredth of its bytes, the largest part first, or of NULL the usual set;
// returns how many.
int32_t probe_types(const struct model *m, enum dtype out[PROFILE_RATES_MAX]);

#endif
