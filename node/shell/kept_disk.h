// Rows of kept states on disk (NODE_FX_KEEP_DISK, FETCH_DISK): one file without a name, and a thread that writes and reads it.
//
// The file is made with O_TMPFILE where that works, else under a name that is removed at once: nobody finds it, and nothing of it is left when the
// process ends, however that happens. Each row is sealed with ChaCha20-Poly1305 under a key that is drawn here and never leaves memory; the
// nonce counts rows, so that none is used twice; session, layer, entry and position are authenticated with it: a row that is another one's, an
// old one's at that place, or damaged, does not open. Frame: counter (8 bytes), sealed row, tag (16 bytes).
//
// What may be where is the core's (node/kept.c): it bounds the bytes on disk and those on their way. Orders are carried out one after the other;
// none waits for the disk on the caller's thread. Loop's thread, but for the thread inside.
#ifndef HEARTH_NODE_SHELL_KEPT_DISK_H
#define HEARTH_NODE_SHELL_KEPT_DISK_H

#include "base/err.h"
#include "net/loop.h"
#include "node/node.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kept_disk;

struct kept_disk_done {
	uint32_t id;
	bool is_read;
	enum err err;        // ERR_IO, ERR_AUTH (a row is not what was written there), ERR_NOMEM
	const char *text;    // when err
	const uint8_t *rows; // of a read that went well, until the callback returns: (len), for buffer `buf` from byte `off` on
	size_t len, off;
	int32_t buf;
};

// Called from the loop, in the order of the orders.
typedef void (*kept_disk_fn)(void *ctx, const struct kept_disk_done *done);

// kept_disk_bytes returns the memory it takes at most while a stage's buffers have buf_bytes each, for whoever parts a memory cap: rows on their way
// to disk, those of a read, buffers kept for the next order, and frames that are sealed or opened together.
uint64_t kept_disk_bytes(size_t buf_bytes);

// kept_disk_open makes the file in a directory. ERR_IO: it cannot be made there.
MUST_USE enum err kept_disk_open(const char *dir, struct loop *loop, kept_disk_fn done, void *ctx, struct kept_disk **out, struct errmsg *em);
// kept_disk_write copies the rows and returns; kept_disk_read returns. `f` is the effect's; both answer through the callback, whatever happens.
void kept_disk_write(struct kept_disk *d, const struct node_effect *f, const uint8_t *rows);
void kept_disk_read(struct kept_disk *d, const struct node_effect *f);
// kept_disk_fd is for tests, who damage what is there.
int kept_disk_fd(const struct kept_disk *d);
// kept_disk_close ends what is under way, wipes the key and tells nobody. NULL is allowed.
void kept_disk_close(struct kept_disk *d);

#endif
