// What is under way in one direction of a relayed connection: bytes in order, each piece with the time at which it may leave, then at
// most one end. Bounded in bytes and in pieces; whoever reads stops when it has no room.
//
// Times never decrease. A piece *held* (the network swallowed it) waits, and everything behind it, until relay_queue_release gives a time.
// Knows no socket and no clock. One thread. Memory is taken when the first piece comes and given back by relay_queue_close.
#ifndef HEARTH_SIM_SHELL_RELAY_QUEUE_H
#define HEARTH_SIM_SHELL_RELAY_QUEUE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RELAY_QUEUE_BYTES (4u << 20) // about what a TCP window grows to: 335 Mbit/s at 100 ms one way
#define RELAY_QUEUE_PIECES 8192u     // of one read each
#define RELAY_HELD INT64_MAX         // as a time: not before it is released

enum relay_end {
	RELAY_NO_END,
	RELAY_EOF,   // the sender will send no more
	RELAY_RESET, // the sender is gone
};

struct relay_piece {
	int64_t due_ns;
	uint32_t len;
};

struct relay_queue {
	uint8_t *bytes;             // (RELAY_QUEUE_BYTES) ring; NULL: nothing came yet
	struct relay_piece *pieces; // (RELAY_QUEUE_PIECES) ring
	uint32_t head, used;        // of the bytes
	uint32_t first, n_pieces;
	enum relay_end end;
	int64_t end_due_ns;
	bool is_end_taken;
};

// relay_queue_room returns where up to *len bytes may be written, at most `most`; *len is 0 when there is no room, or after an end.
// ERR_NOMEM.
MUST_USE enum err relay_queue_room(struct relay_queue *q, uint32_t most, uint8_t **where, uint32_t *len);
// relay_queue_push makes a piece of the first len >= 1 bytes of that room.
void relay_queue_push(struct relay_queue *q, uint32_t len, int64_t due_ns);
// relay_queue_push_end: nothing can be pushed afterwards. A reset replaces an end of file that was not taken yet.
void relay_queue_push_end(struct relay_queue *q, enum relay_end end, int64_t due_ns);
bool relay_queue_has_room(const struct relay_queue *q);

// relay_queue_due_ns returns when the next piece, or the end, is due; RELAY_HELD when none is.
int64_t relay_queue_due_ns(const struct relay_queue *q);
// relay_queue_due returns how many bytes from *where on are due, of several pieces as long as they lie together.
uint32_t relay_queue_due(const struct relay_queue *q, int64_t now_ns, const uint8_t **where);
// relay_queue_pop takes len bytes out. For each piece that is then gone late(ctx, due_ns) is called; it may be NULL.
void relay_queue_pop(struct relay_queue *q, uint32_t len, void (*late)(void *ctx, int64_t due_ns), void *ctx);
// relay_queue_take_end returns the end once it is due and nothing stands before it, and only once.
enum relay_end relay_queue_take_end(struct relay_queue *q, int64_t now_ns);
// relay_queue_release gives everything held, and an end held, the time.
void relay_queue_release(struct relay_queue *q, int64_t due_ns);
void relay_queue_close(struct relay_queue *q); // safe on zeroed memory

#endif
