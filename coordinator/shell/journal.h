// The journal of requests: each request whose answer is not complete has one file in STATE/journal, so that a coordinator that was killed
// computes it again (DESIGN.md 10). The file is on disk before the answer's first token is shown, and goes when the answer ends: its bytes are
// overwritten first, since prompts are private.
//
// A file per request, put there by base/durable_file. Measured on ext4 with other load (medians over 100 requests, prompts of 250 and of 4,000
// tokens): 4 to 12 ms to put one and 2 to 9 ms to remove it; as rows of an SQLite table (synchronous FULL, secure_delete, as coord_store.h
// keeps) 7 to 24 ms each. One file for all, written in place, would take 1 to 8 ms, and an allocator inside a file that a crash may tear. It runs on a thread of its
// own while the prompt is computed, so a request pays only for what is longer than that. It is not in cluster.db: a damaged prompt must not
// keep a cluster from starting.
//
// A name is "NUMBER-TRIES.request": 16 hexadecimal digits in the order of arrival, and how many coordinators have begun it again; a request
// that may be what kills them is given up after JOURNAL_TRIES_MAX. No name holds a request's id, which is its credential.
//
// Thread rule: the loop's thread. What goes wrong ends no answer: it is reported, and the answer goes on.
#ifndef HEARTH_COORDINATOR_SHELL_JOURNAL_H
#define HEARTH_COORDINATOR_SHELL_JOURNAL_H

#include "base/err.h"
#include "base/log.h"
#include "coordinator/shell/request_record.h"
#include "net/loop.h"

#include <stdbool.h>
#include <stdint.h>

#define JOURNAL_QUEUE_MAX 128                     // requests that wait for the disk: as many as the runtime takes
#define JOURNAL_QUEUE_BYTES (32u * 1024 * 1024)   // of all that wait: as of bodies that arrive (http_server.h)
#define JOURNAL_TRIES_MAX 8

struct journal;

struct journal_key {
	uint64_t number; // 0: none
	int32_t n_tries;
};

// text says what went wrong; valid during the call.
typedef void (*journal_done)(void *ctx, struct journal_key key, enum err err, const char *text);
struct journal_loader {
	void *ctx;
	// fits tells whether this coordinator can compute it; what does not fit stays in the folder as it is, for one that can.
	bool (*fits)(void *ctx, const struct request_record *r);
	// take owns what r points to.
	void (*take)(void *ctx, struct journal_key key, struct request_record *r);
};

// journal_open makes the folder (mode 0700) when it is missing. done comes from the loop.
MUST_USE enum err journal_open(struct loop *loop, const struct log *log, const char *dir, journal_done done, void *ctx, struct journal **out,
	struct errmsg *em);
// journal_load, once, right after open: fits and take are called for each request that was under way, the oldest first. What is damaged or was begun too often is removed,
// what cannot be read left out; both are logged.
void journal_load(struct journal *j, const struct journal_loader *loader);
// journal_put writes r; done comes exactly once, unless journal_remove comes before.
struct journal_key journal_put(struct journal *j, const struct request_record *r);
// journal_remove overwrites the file and removes it, after the put when that is still under way. Failures are logged.
void journal_remove(struct journal *j, struct journal_key key);
// journal_close finishes what waits; no done is called afterwards. NULL is allowed.
void journal_close(struct journal *j);

// journal_erase removes every request of an earlier run, for who wants none on disk. No journal of it is open.
void journal_erase(const struct log *log, const char *dir);

#endif
