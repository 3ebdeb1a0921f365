// What is known of machines and links, as JSON: for the status, and for `hearth probe`.
#ifndef HEARTH_COORDINATOR_SHELL_FIGURES_JSON_H
#define HEARTH_COORDINATOR_SHELL_FIGURES_JSON_H

#include "coordinator/coordinator.h"

#include <jansson.h>

// figures_json_profile returns a new object with what was measured of a machine, without its conditions; NULL: out of memory.
json_t *figures_json_profile(const struct device_profile *p);
// figures_json_add_conditions puts those that are known into an object.
void figures_json_add_conditions(json_t *o, const struct device_conditions *c);
// figures_json_add puts "profile", "links" and what was observed into a member's object, each where it is known.
void figures_json_add(json_t *o, const struct coord_member_status *m);

#endif
