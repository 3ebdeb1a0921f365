// The coordinator's memory across restarts: members, invites and the member_epoch, in STATE/cluster.db (SQLite).
//
// A write is on disk (synchronous FULL) when its completion comes; deleted secrets are overwritten (secure_delete), and no journal keeps
// them. Writes run in order on a thread of their own, completions on the loop's. The file is locked while it is open. One that is not ours,
// of another version, or damaged, is refused at open and not touched: `meta.digest` is the BLAKE2b-256 over all rows, so that a bit that
// flipped in a key is found here and not by a member that is shut out. An empty file is a damaged one: a new one appears under its name
// only when it is complete. Thread rule: open, submit and close belong to the loop's thread.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_STORE_H
#define HEARTH_COORDINATOR_SHELL_COORD_STORE_H

#include "base/err.h"
#include "coordinator/coordinator.h"
#include "net/loop.h"

#include <stdint.h>

#define COORD_STORE_QUEUE_MAX 64  // writes that wait; the core has at most 32 under way
#define COORD_STORE_DONES_MAX 256 // completions that the loop has not taken yet

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

// text says what went wrong, for a person; valid during the call.
typedef void (*coord_store_done)(void *ctx, uint32_t id, enum err err, const char *text);

// coord_store_open opens or makes the file (mode 0600), and reads everything into `out`. A new one gets `new_cluster_id`. ERR_FORMAT: not
// ours, or damaged; ERR_UNSUPPORTED: another version; ERR_AUTH: mode or owner; ERR_BUSY: another program has it open; ERR_IO.
MUST_USE enum err coord_store_open(const char *path, const uint8_t new_cluster_id[CLUSTER_ID_BYTES], struct loop *loop, coord_store_done done,
	void *ctx, struct coord_store **store, struct coord_restored *out, struct errmsg *em);
// coord_store_submit queues a copy of `w`; done comes exactly once, in order. COORD_STORE_QUEUE_MAX are waiting: done with ERR_BUSY, at
// once. At most COORD_STORE_DONES_MAX submits between two turns of the loop.
void coord_store_submit(struct coord_store *s, const struct coord_write *w);
// coord_store_close finishes what is queued; no done is called afterwards. NULL is allowed.
void coord_store_close(struct coord_store *s);

#endif
