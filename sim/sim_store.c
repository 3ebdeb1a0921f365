#include "sim/sim_store.h"

#include <string.h>

static void put_member(struct sim_db_image *d, const struct member_record *m)
{
	int32_t i = 0;
	while (i < d->n_members && !node_id_is(d->members[i].id, m->id))
		i++;
	if (i == SWARM_NODES_MAX)
		return;
	d->members[i] = *m;
	d->n_members += i == d->n_members;
}

static void put_name(struct sim_db_image *d, const struct member_record *m)
{
	for (int32_t i = 0; i < d->n_members; i++)
		if (node_id_is(d->members[i].id, m->id))
			memcpy(d->members[i].name, m->name, sizeof m->name);
}

static void put_invite(struct sim_db_image *d, const struct invite_record *r)
{
	int32_t i = 0;
	while (i < d->n_invites && memcmp(d->invites[i].token_id, r->token_id, TOKEN_ID_BYTES) != 0)
		i++;
	if (i == INVITES_MAX)
		return;
	d->invites[i] = *r;
	d->n_invites += i == d->n_invites;
}

static void delete_invite(struct sim_db_image *d, int32_t i)
{
	d->invites[i] = d->invites[--d->n_invites];
}

static void revoke(struct sim_db_image *d, const struct sim_db_write *w)
{
	for (int32_t i = 0; i < d->n_members; i++)
		if (node_id_is(d->members[i].id, w->member.id))
			d->members[i--] = d->members[--d->n_members];
	for (int32_t i = 0; i < d->n_invites; i++)
		if (d->invites[i].bound && node_id_is(d->invites[i].bound_to, w->member.id))
			delete_invite(d, i--);
	d->member_epoch = w->member_epoch;
}

void sim_db_apply(struct sim_db_image *d, const struct sim_db_write *w)
{
	switch (w->op) {
	case STORE_INVITE: put_invite(d, &w->invite); break;
	case STORE_BIND:
		put_member(d, &w->member);
		put_invite(d, &w->invite);
		break;
	case STORE_INVITE_DELETE:
		for (int32_t i = 0; i < d->n_invites; i++)
			if (memcmp(d->invites[i].token_id, w->invite.token_id, TOKEN_ID_BYTES) == 0)
				delete_invite(d, i--);
		break;
	case STORE_NAME: put_name(d, &w->member); break;
	case STORE_REVOKE: revoke(d, w); break;
	}
}
