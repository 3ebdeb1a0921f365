// The coordinator's memory across restarts: members, invites and the member_epoch, in STATE/cluster.db (SQLite).
//
// A write is on disk (synchronous FULL) when its completion comes; deleted secrets are overwritten (secure_delete). Writes run in
// order on a thread of their own, completions on the loop's. A file that is not ours, of a newer version, or damaged, is refused at
// open and not touched. Thread rule: open, load, submit and close belong to the loop's thread.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_STORE_H
#define HEARTH_COORDINATOR_SHELL_COORD_STORE_H

#include "base/err.h"
#include "coordinator/coordinator.h"
#include "net/loop.h"

#include <stdint.h>

struct coord_store;

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
	struct member_record members[NODES_MAX];
	int32_t n_invites;
	struct invite_record invites[INVITES_MAX];
};

typedef void (*coord_store_done)(void *ctx, uint32_t id, enum err err);

// coord_store_open opens or makes the file (mode 0600), and reads everything into `out`. A new one gets `new_cluster_id`.
MUST_USE enum err coord_store_open(const char *path, const uint8_t new_cluster_id[CLUSTER_ID_BYTES], struct loop *loop, coord_store_done done,
	void *ctx, struct coord_store **store, struct coord_restored *out, struct errmsg *em);
// coord_store_submit queues a copy of `w`; done comes exactly once. More than 64 waiting: done with ERR_BUSY.
void coord_store_submit(struct coord_store *s, const struct coord_write *w);
// coord_store_close finishes what is queued; no done is called afterwards. NULL is allowed.
void coord_store_close(struct coord_store *s);

#endif
