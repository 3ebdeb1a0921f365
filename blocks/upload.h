// Giving blocks to others: whose request is read next, as a pure state machine. It never sees a byte, a file, a link or a clock.
//
// Clients take turns, one block each, so that one that asks for much gets no more than its share. What is read ahead of a client's link is
// bounded, and so are the requests it may have waiting: one more is refused, and no memory grows with what a peer asks for. While this machine
// computes for an answer (WORK), a token bucket holds uploads at a part of what they reach alone, so that a join does not starve decoding.
//
//   ASKED -> READ, when its turn comes -> DONE: the host has sent it (or the client is BLOCKED until its link is WRITABLE)
#ifndef HEARTH_BLOCKS_UPLOAD_H
#define HEARTH_BLOCKS_UPLOAD_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define UPLOAD_CLIENTS_MAX 64
#define UPLOAD_QUEUE_MAX 64      // requests of one client that wait: as many as a fetch may have under way
#define UPLOAD_READS_MAX 8       // blocks being read at once, at most
#define UPLOAD_EFFECTS_MAX 16

struct upload_limits {
	int32_t reads_max;       // blocks being read at once
	int64_t busy_ns;         // after WORK, uploads are held back for so long
	uint64_t rate_max;       // bytes per second at any time; 0: no limit
	uint64_t busy_rate;      // bytes per second while this machine works; 0: a quarter of the best rate seen without work
	uint64_t busy_rate_min;  // of that quarter, and before any rate was seen
};
extern const struct upload_limits upload_limits_default;

enum upload_event_type {
	UPLOAD_EV_CLIENT_UP,
	UPLOAD_EV_CLIENT_DOWN,
	UPLOAD_EV_ASKED,
	UPLOAD_EV_DONE,     // a READ has ended, its block sent or refused
	UPLOAD_EV_BLOCKED,  // the client's link takes no more for now
	UPLOAD_EV_WRITABLE,
	UPLOAD_EV_WORK,     // this machine computes for an answer
	UPLOAD_EV_TICK,
};

struct upload_event {
	enum upload_event_type type;
	int64_t now_ns;
	uint32_t client; // the host's handle, not 0
	uint32_t block;
	uint32_t bytes;  // ASKED: of the block
};

enum upload_effect_type { UPLOAD_FX_READ, UPLOAD_FX_REFUSE }; // REFUSE: it has too many waiting

struct upload_effect {
	enum upload_effect_type type;
	uint32_t client, block;
};

struct upload_effects {
	int32_t n;
	struct upload_effect at[UPLOAD_EFFECTS_MAX];
};

struct upload_client {
	uint32_t handle; // 0: free
	bool is_blocked;
	int32_t n_waiting, first; // ring
	struct {
		uint32_t block, bytes;
	} waiting[UPLOAD_QUEUE_MAX];
	uint64_t n_blocks; // for a person
};

struct upload {
	struct upload_limits limits;
	int64_t now_ns;
	struct upload_client clients[UPLOAD_CLIENTS_MAX];
	uint32_t turn;
	int32_t n_reading;
	int64_t work_ns;    // the last WORK; far in the past before any
	int64_t tokens;     // bytes that may be read now; below zero: owed
	int64_t filled_ns;
	int64_t seen_ns;    // where the count of free_bytes began: an unlimited time with something to do
	uint64_t free_bytes;
	uint64_t best_rate; // bytes per second without work
	uint64_t n_blocks, n_bytes; // read so far
};

void upload_init(struct upload *u, const struct upload_limits *limits, int64_t now_ns);
// upload_step handles one event and fills fx, which it empties first.
void upload_step(struct upload *u, const struct upload_event *ev, struct upload_effects *fx);
int64_t upload_deadline_ns(const struct upload *u); // INT64_MAX: never
void upload_check(const struct upload *u);
// upload_rate returns the limit of now in bytes per second; 0: none.
uint64_t upload_rate(const struct upload *u);

#endif
