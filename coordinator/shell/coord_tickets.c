#include "coordinator/shell/coord_tickets.h"

#include "base/assert.h"

#include <sodium.h>
#include <string.h>
#include <time.h>

static struct coord_ticket *find(struct coord_tickets *t, uint64_t ticket)
{
	for (size_t i = 0; i < COORD_TICKETS_MAX; i++)
		if (t->at[i].ticket == ticket)
			return &t->at[i];
	return NULL;
}

static void tell(const struct coord_ticket *t, enum err err, const char *text)
{
	if (t->invited)
		t->invited(t->ctx, err, text, err == OK ? &t->invite : NULL);
	else
		t->answered(t->ctx, err, text);
}

static struct coord_ticket *take(struct coord_tickets *t, const struct coord_ticket *like)
{
	struct coord_ticket *place = find(t, 0);
	if (place == NULL) {
		tell(like, ERR_BUSY, "too many admin commands at once");
		return NULL;
	}
	*place = *like;
	place->ticket = ++t->last;
	return place;
}

struct coord_ticket *coord_tickets_invite(struct coord_tickets *t, const uint8_t server_pk[LNK1_KEY_LEN], int64_t ttl_s, coord_invited done,
	void *ctx)
{
	struct coord_ticket *place = take(t, &(struct coord_ticket){.invited = done, .ctx = ctx});
	if (place == NULL)
		return NULL;
	struct invite *in = &place->invite;
	memcpy(in->server_pk, server_pk, sizeof in->server_pk);
	do
		randombytes_buf(in->token_id, sizeof in->token_id);
	while (sodium_is_zero(in->token_id, sizeof in->token_id));
	randombytes_buf(in->token_secret, sizeof in->token_secret);
	in->expiry_s = (uint64_t)(time(NULL) + ttl_s);
	return place;
}

struct coord_ticket *coord_tickets_plain(struct coord_tickets *t, coord_answered done, void *ctx)
{
	return take(t, &(struct coord_ticket){.answered = done, .ctx = ctx});
}

void coord_tickets_answer(struct coord_tickets *t, uint64_t ticket, enum err err, const char *text)
{
	struct coord_ticket *place = find(t, ticket);
	ASSERT(ticket != 0);
	ASSERT(place != NULL);
	struct coord_ticket copy = *place; // whoever is told may ask again at once
	sodium_memzero(place, sizeof *place);
	tell(&copy, err, text);
	sodium_memzero(&copy, sizeof copy);
}

void coord_tickets_end(struct coord_tickets *t, const char *text)
{
	for (size_t i = 0; i < COORD_TICKETS_MAX; i++)
		if (t->at[i].ticket != 0)
			coord_tickets_answer(t, t->at[i].ticket, ERR_CLOSED, text);
}
