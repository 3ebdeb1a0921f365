// What a model of tools/make_model says to some tokens. What fails aborts.
#ifndef HEARTH_TESTS_SUPPORT_MADE_LOGITS_H
#define HEARTH_TESTS_SUPPORT_MADE_LOGITS_H

#include "engine/engine.h"
#include "tests/support/made_model.h"

#include <stdint.h>

#define MADE_IDS_MAX 64

struct made {
	char dir[SCRATCH_CAP], path[MADE_PATH_CAP];
	struct model *model;
	int32_t ids[MADE_IDS_MAX], n_ids; // the caller's
	int32_t vocab_size, hidden_dim;
};

// made_open makes the model (tests/support/made_model.h) and opens it; made_close removes it.
struct made made_open(const char *shape, const char *type, const char *more);
void made_close(struct made *m);
// made_logits returns those of all ids (n_ids, vocab_size), fed in chunks, computed by so many threads with these kernels (NULL: the best). The caller frees.
float *made_logits(const struct made *m, int32_t chunk, int32_t n_threads, const char *simd);

#endif
