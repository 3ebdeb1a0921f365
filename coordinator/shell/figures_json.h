// What members told of their machines and links, as part of the status's JSON.
#ifndef HEARTH_COORDINATOR_SHELL_FIGURES_JSON_H
#define HEARTH_COORDINATOR_SHELL_FIGURES_JSON_H

#include "coordinator/coordinator.h"

#include <jansson.h>

// figures_json_add puts "profile", "links" and what was observed into a member's object, each where it is known.
void figures_json_add(json_t *o, const struct coord_member_status *m);

#endif
