// STATE/cluster.db: members, invites and the member_epoch as rows of SQLite.
//
// What coord_db_write returned OK for is on disk (synchronous FULL); deleted secrets are overwritten (secure_delete), and no journal keeps
// them. The file is locked while it is open. One that is not ours, of another version, or damaged, is refused at open and not touched:
// `meta.digest` is the BLAKE2b-256 over all rows, so that a bit that flipped in a key is found here and not by a member that is shut out.
// An empty file is a damaged one: a new one appears under its name only when it is complete. Thread rule: one thread at a time.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_DB_H
#define HEARTH_COORDINATOR_SHELL_COORD_DB_H

#include "base/err.h"
#include "coordinator/coordinator.h"

#include <stdint.h>

struct sqlite3;

// One write: what a COORD_FX_STORE effect carries.
struct coord_write {
	uint32_t id;
	enum coord_store_op op;
	struct member_record member;
	struct invite_record invite;
	struct member_epoch member_epoch;
};

struct coord_restored {
	struct member_epoch member_epoch;
	uint8_t cluster_id[CLUSTER_ID_BYTES];
	int32_t n_members;
	struct member_record members[SWARM_NODES_MAX];
	int32_t n_invites;
	struct invite_record invites[INVITES_MAX];
};

// coord_db_open opens or makes the file (mode 0600), and reads everything into `out`. A new one gets `new_cluster_id`. ERR_FORMAT: not
// ours, or damaged; ERR_UNSUPPORTED: another version; ERR_AUTH: mode or owner; ERR_BUSY: another program has it open; ERR_IO.
MUST_USE enum err coord_db_open(const char *path, const uint8_t new_cluster_id[CLUSTER_ID_BYTES], struct sqlite3 **db, struct coord_restored *out,
	struct errmsg *em);
// coord_db_write does all of one write or nothing of it.
MUST_USE enum err coord_db_write(struct sqlite3 *db, const struct coord_write *w, struct errmsg *em);
void coord_db_close(struct sqlite3 *db); // NULL is allowed

#endif
