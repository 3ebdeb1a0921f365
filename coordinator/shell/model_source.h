// A model, as what makes its manifest wants it.
#ifndef HEARTH_COORDINATOR_SHELL_MODEL_SOURCE_H
#define HEARTH_COORDINATOR_SHELL_MODEL_SOURCE_H

#include "base/err.h"
#include "blocks/shell/manifest_build.h"
#include "model/model.h"

// model_source_open fills all but `progress`; names are borrowed of the model. model_source_close frees what it made; safe on zeroed memory.
MUST_USE enum err model_source_open(const struct model *m, struct manifest_source *out, struct errmsg *em);
void model_source_close(struct manifest_source *s);

#endif
