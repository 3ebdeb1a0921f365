// The two faces of `hearth sim run`: for people, and for programs.
#ifndef HEARTH_CLI_SIM_RUN_H
#define HEARTH_CLI_SIM_RUN_H

#include "sim/prediction.h"

#include <stdio.h>

void sim_run_print(FILE *to, const struct scenario *s, const struct prediction *p);
MUST_USE enum err sim_run_print_json(FILE *to, const struct scenario *s, const struct prediction *p);

#endif
