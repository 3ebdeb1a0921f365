// The state of a member's forward between two exchanges; private to engine/.
#ifndef HEARTH_ENGINE_MEMBER_RUN_H
#define HEARTH_ENGINE_MEMBER_RUN_H

#include "engine/engine_state.h"

// member_run_open returns NULL without memory.
struct member_run *member_run_open(struct engine *e);
void member_run_close(struct member_run *r); // NULL is allowed

#endif
