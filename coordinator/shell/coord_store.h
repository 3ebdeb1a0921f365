// The coordinator's memory across restarts: STATE/cluster.db (coord_db), written by a thread of its own.
//
// A write is on disk when its completion comes. Writes run in order, completions on the loop's thread.
// Thread rule: open, submit and close belong to the loop's thread.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_STORE_H
#define HEARTH_COORDINATOR_SHELL_COORD_STORE_H

#include "base/err.h"
#include "coordinator/shell/coord_db.h"
#include "net/loop.h"

#include <stdint.h>

#define COORD_STORE_QUEUE_MAX 64  // writes that wait; the core has at most 32 under way
#define COORD_STORE_DONES_MAX 256 // completions that the loop has not taken yet

struct coord_store;

// text says what went wrong, for a person; valid during the call.
typedef void (*coord_store_done)(void *ctx, uint32_t id, enum err err, const char *text);

// coord_store_open: as coord_db_open.
MUST_USE enum err coord_store_open(const char *path, const uint8_t new_cluster_id[CLUSTER_ID_BYTES], struct loop *loop, coord_store_done done,
	void *ctx, struct coord_store **store, struct coord_restored *out, struct errmsg *em);
// coord_store_submit queues a copy of `w`; done comes exactly once, in order. COORD_STORE_QUEUE_MAX are waiting: done with ERR_BUSY, at
// once. At most COORD_STORE_DONES_MAX submits between two turns of the loop.
void coord_store_submit(struct coord_store *s, const struct coord_write *w);
// coord_store_close finishes what is queued; no done is called afterwards. NULL is allowed.
void coord_store_close(struct coord_store *s);

#endif
