// This machine's static X25519 pair: its file and its memory.
//
// The file has 80 bytes: "HEARTHK1" | protection u32 = 0 (none) | zero u32 | secret 32 | public 32. It has mode 0600 from its
// first byte, and appears under its name only when it is complete and on disk (base/durable_file). A file that others may read, of another
// size, not a regular file, or whose halves do not belong together is refused, not repaired.
// In memory the pair lies in sodium_malloc: locked where the system allows it, between guard pages, outside core dumps, and
// read-only. Thread rule: opened and closed by one thread; read by any.
#ifndef HEARTH_NET_KEYS_H
#define HEARTH_NET_KEYS_H

#include "base/err.h"
#include "proto/lnk1.h"

#define KEYS_FILE_LEN 80

struct keys {
	struct lnk1_keypair *pair;     // sodium_malloc, read-only
	uint8_t node_id[LNK1_KEY_LEN]; // BLAKE2b-256(public key)
};

// keys_open loads the pair at `path`, and makes a new one there first when the file does not exist. One process at a time does so: the
// caller holds the state directory's lock.
MUST_USE enum err keys_open(struct keys *k, const char *path, struct errmsg *em);

// keys_load loads the pair at `path`. ERR_NOT_FOUND; ERR_AUTH: mode or owner; ERR_FORMAT: content.
MUST_USE enum err keys_load(struct keys *k, const char *path, struct errmsg *em);

// keys_close wipes and frees; safe on zeroed memory.
void keys_close(struct keys *k);

// keys_forbid_core_dumps keeps the whole process out of core dumps, piped ones included: psks and session keys lie in
// ordinary memory. Called once, first thing in main.
MUST_USE enum err keys_forbid_core_dumps(struct errmsg *em);

#endif
