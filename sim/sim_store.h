// What the coordinator's disk holds in the simulator, and what a crash or a loss of power leaves of it. Each write is a transaction:
// whole or not at all. Pure.
#ifndef HEARTH_SIM_SIM_STORE_H
#define HEARTH_SIM_SIM_STORE_H

#include "coordinator/coordinator.h"

#include <stdint.h>

#define SIM_WRITES_MAX 64 // under way at once, as in coordinator/shell/coord_store

struct sim_db_image {
	struct member_epoch member_epoch;
	int32_t n_members, n_invites;
	struct member_record members[SWARM_NODES_MAX];
	struct invite_record invites[INVITES_MAX];
};

struct sim_db {
	struct sim_db_image disk;   // what the process wrote: a crash of the process leaves it
	struct sim_db_image synced; // what a loss of power leaves
};

struct sim_db_write {
	uint32_t id;
	enum coord_store_op op;
	struct member_record member;
	struct invite_record invite;
	struct member_epoch member_epoch;
};

void sim_db_apply(struct sim_db_image *d, const struct sim_db_write *w);

#endif
