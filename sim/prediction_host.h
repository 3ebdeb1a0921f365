// The hosts of sim/prediction.c: each runs a scenario's requests and fills p->report.
#ifndef HEARTH_SIM_PREDICTION_HOST_H
#define HEARTH_SIM_PREDICTION_HOST_H

#include "sim/prediction.h"
#include "sim/quantity.h"

MUST_USE enum err prediction_on_world(const struct scenario *s, struct prediction *p, struct errmsg *em);
MUST_USE enum err prediction_of_group(const struct scenario *s, struct prediction *p, struct errmsg *em);

#endif
