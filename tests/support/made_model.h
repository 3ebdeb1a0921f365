// Models that tools/make_model writes for one test: tiny, their vocabulary that of tools/make_tiny_model.py, gone with the scratch directory.
// Needs python3 and runs in the source tree, as tests do. What fails aborts.
#ifndef HEARTH_TESTS_SUPPORT_MADE_MODEL_H
#define HEARTH_TESTS_SUPPORT_MADE_MODEL_H

#include "tests/support/scratch.h"

#define MADE_PATH_CAP (SCRATCH_CAP + 32)

// made_model writes dir/made.gguf of a shape and a type, as the command line spells them, and its path. `more` are further words, or "".
void made_model(const char *dir, const char *shape, const char *type, const char *more, char path[MADE_PATH_CAP]);

#endif
