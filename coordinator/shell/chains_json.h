// The chains of a cluster, as status and /health show them.
#ifndef HEARTH_COORDINATOR_SHELL_CHAINS_JSON_H
#define HEARTH_COORDINATOR_SHELL_CHAINS_JSON_H

#include "coordinator/coordinator.h"

#include <jansson.h>

// chains_json_add puts "moved", "standing_by" and "chains" into an object; of one chain, nothing. Only names of chains are text, and printable.
void chains_json_add(json_t *to, const struct coord_status *s);

#endif
