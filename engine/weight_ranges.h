// Which bytes of a model file an engine reads: what a machine without the file has to fetch before it opens one. Private to engine/ but for the list.
//
// Of matrices that are cut by rows a member of a group reads its rows; of those whose columns are dealt by lanes every row, since a row has some of each
// member's; experts that are its own; norms, biases of its heads and the router. With has_output its
// rows of lm_head, too.
#ifndef HEARTH_ENGINE_WEIGHT_RANGES_H
#define HEARTH_ENGINE_WEIGHT_RANGES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct weight_range {
	uint64_t at, bytes; // in the model file; bytes is not 0
};

struct weight_ranges {
	struct weight_range *at; // (n), owned, in no order; some may overlap
	size_t n, cap;
};

struct engine_config;
// weight_ranges_list lists what an engine of that config reads of its layers. Allocates nothing else; fails as engine_open does.
MUST_USE enum err weight_ranges_list(const struct engine_config *c, struct weight_ranges *out, struct errmsg *em);
void weight_ranges_deinit(struct weight_ranges *r); // safe on zeroed memory

#endif
