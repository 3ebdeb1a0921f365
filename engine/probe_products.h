// Products as the engine runs them, over memory that no cache holds, for measuring: private to engine/probe.
//
// Matrices are laid over one large buffer, one after the other, each with data of its own; a decode slice walks on where the last one ended, so
// that nothing is read twice before all of it was. Shares of rows are handed out one by one, with a barrier behind each matrix, and the
// activations are quantised before each: as engine/crew does. One thread owns it.
#ifndef HEARTH_ENGINE_PROBE_PRODUCTS_H
#define HEARTH_ENGINE_PROBE_PRODUCTS_H

#include "base/dtype.h"
#include "base/err.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct probe_matrix {
	enum dtype type;
	int32_t rows, cols;
};

#define PROBE_COLS_MAX 65536 // wider matrices are measured as if they were so wide
#define PROBE_BATCH 128      // tokens of a prefill slice

struct probe_products;

// probe_products_open takes `bytes` for weights, and what activations need. ERR_NOMEM.
MUST_USE enum err probe_products_open(const struct kernels *k, size_t bytes, struct probe_products **out, struct errmsg *em);
void probe_products_close(struct probe_products *p); // NULL is allowed
// probe_products_fill writes the next part of the buffer, small numbers in any type; true while there is more to write.
bool probe_products_fill(struct probe_products *p);
// probe_products_decode computes with one token for about `ns`; returns weight bytes/s.
double probe_products_decode(struct probe_products *p, struct pool *pool, const struct probe_matrix *m, int32_t n, int64_t ns);
// probe_products_prefill does the same with a batch; returns FLOP/s.
double probe_products_prefill(struct probe_products *p, struct pool *pool, const struct probe_matrix *m, int32_t n, int64_t ns);

#endif
