// The two faces of `hearth sim run`: for people, and for programs.
#ifndef HEARTH_CLI_SIM_RUN_H
#define HEARTH_CLI_SIM_RUN_H

#include "model/mapped_file.h"
#include "sim/prediction.h"
#include "sim/scenario.h"
#include "sim/swarm.h"

#include <stdio.h>

// sim_run_is_model tells whether a file says that it is a GGUF model, which is none of ours.
bool sim_run_is_model(const struct mapped_file *f);
// sim_run_open reads a scenario and the files it names.
MUST_USE enum err sim_run_open(const char *path, struct scenario *s, struct errmsg *em);
// sim_run_open_cluster reads only its machines and links, see scenario_open_cluster.
MUST_USE enum err sim_run_open_cluster(const char *path, struct scenario *s, struct errmsg *em);
void sim_run_print(FILE *to, const struct scenario *s, const struct prediction *p);
MUST_USE enum err sim_run_print_json(FILE *to, const struct scenario *s, const struct prediction *p);
// Of a scenario with a placement.
void sim_run_print_swarm(FILE *to, const struct scenario *s, const struct swarm_result *r);
void sim_run_print_swarm_json(FILE *to, const struct scenario *s, const struct swarm_result *r);

#endif
