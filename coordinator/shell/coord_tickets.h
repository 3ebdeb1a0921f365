// Commands of operators under way at the coordinator: who waits for which answer, and the secrets of an invite until it may be shown. Plain
// storage; the loop's thread only.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_TICKETS_H
#define HEARTH_COORDINATOR_SHELL_COORD_TICKETS_H

#include "base/err.h"
#include "proto/invite.h"

#include <stdint.h>

#define COORD_TICKETS_MAX 16 // one per client of the admin socket

// `done` comes once; text says what went wrong. The invite is without addresses; NULL on error.
typedef void (*coord_invited)(void *ctx, enum err err, const char *text, const struct invite *invite);
typedef void (*coord_answered)(void *ctx, enum err err, const char *text);

struct coord_ticket {
	uint64_t ticket; // 0: free
	coord_invited invited;
	coord_answered answered;
	void *ctx;
	struct invite invite;
};

struct coord_tickets {
	uint64_t last;
	struct coord_ticket at[COORD_TICKETS_MAX];
};

// coord_tickets_invite takes a place and draws an invite of this server, good for ttl_s. NULL: all places are taken, and done was told so.
struct coord_ticket *coord_tickets_invite(struct coord_tickets *t, const uint8_t server_pk[LNK1_KEY_LEN], int64_t ttl_s, coord_invited done,
	void *ctx);
// coord_tickets_plain takes a place for a command that is answered with words alone. NULL as above.
struct coord_ticket *coord_tickets_plain(struct coord_tickets *t, coord_answered done, void *ctx);
// coord_tickets_answer tells who waits, and frees the place.
void coord_tickets_answer(struct coord_tickets *t, uint64_t ticket, enum err err, const char *text);
// coord_tickets_end answers all that is under way with ERR_CLOSED.
void coord_tickets_end(struct coord_tickets *t, const char *text);

#endif
