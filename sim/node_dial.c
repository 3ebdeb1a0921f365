// How a simulated node keeps its links up: node/shell/dialer in virtual time, with its back-off and its rules.
#include "sim/world_state.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

static void again_after_pause(struct sim_world *w, struct sim_node *n, struct sim_dialer *d)
{
	sim_cancel(w, &d->timer);
	sim_set_timer(w, w->now_ns + backoff_next_ns(&d->backoff), EV_DIAL, n->machine, &d->timer)->arg = (int32_t)(d - n->dialers);
}

// machine_at reads "10.0.A.B:PORT", the address that the coordinator saw and handed on; -1: no machine of this world.
static int32_t machine_at(const struct sim_world *w, const char *addr)
{
	int a, b, port;
	if (sscanf(addr, "10.0.%d.%d:%d", &a, &b, &port) != 3 || port != SIM_PORT)
		return -1;
	int32_t machine = 256 * a + b;
	return machine > 0 && machine < w->n_nodes ? machine : -1;
}

// has_neighbours_link: the neighbour's own dialling has brought a link already.
static bool has_neighbours_link(struct sim_world *w, const struct sim_node *n, struct node_id peer)
{
	for (size_t i = 0; i < ARRAY_LEN(n->links); i++) {
		const struct sim_conn *c = sim_conn_find(w, n->links[i]);
		if (c == NULL || c->end[1].party != n->machine)
			continue;
		if (node_id_is(w->nodes[c->end[0].party].id, peer))
			return true;
	}
	return false;
}

void sim_dial_attempt(struct sim_world *w, struct sim_node *n, struct sim_dialer *d)
{
	struct sim_dial dial = {.node = n->machine, .kind = d->kind == NODE_LINK_CONTROL ? LNK1_CONTROL : LNK1_DATA, .mode = LNK1_MEMBER,
		.member_epoch = node_member_epoch(n->core).v};
	ASSERT(d->next == 0);
	if (d->is_coordinator) {
		dial.server_pk = w->head.keys.pk;
		dial.psk = n->own.psk;
	} else {
		dial.machine = machine_at(w, d->who.addresses.at[0]);
		dial.server_pk = d->who.public_key;
		dial.psk = d->who.psk;
		if (dial.machine < 0)
			sim_world_fail(w, "node %d was given the address %s", n->machine, d->who.addresses.at[0]);
		if (dial.machine < 0 || has_neighbours_link(w, n, d->peer)) {
			again_after_pause(w, n, d);
			return;
		}
	}
	d->next = sim_link_dial(w, &dial);
}

void sim_dial_connect(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	struct sim_dialer *d = NULL;
	for (size_t i = 0; d == NULL && i < ARRAY_LEN(n->dialers); i++)
		if (!n->dialers[i].is_used)
			d = &n->dialers[i];
	if (d == NULL) {
		sim_world_fail(w, "node %d wants more than %d peers", n->machine, SIM_DIALERS_MAX);
		return;
	}
	*d = (struct sim_dialer){.is_used = true, .is_coordinator = f->u.connect.who == NULL, .kind = f->u.connect.kind, .peer = f->u.connect.peer};
	if (!d->is_coordinator)
		d->who = *f->u.connect.who;
	backoff_init(&d->backoff, &backoff_defaults, sim_mix(w->config.seed, (uint64_t)n->machine << 32 ^ n->boot << 8 ^ (uint64_t)(d - n->dialers)));
	if (d->is_coordinator || d->who.addresses.n > 0)
		sim_set_timer(w, w->now_ns, EV_DIAL, n->machine, &d->timer)->arg = (int32_t)(d - n->dialers);
}

static void close_dialer(struct sim_world *w, struct sim_node *n, struct sim_dialer *d)
{
	uint32_t up = d->up, next = d->next;
	sim_cancel(w, &d->timer);
	*d = (struct sim_dialer){0};
	sim_link_abort(w, n->machine, next);
	sim_link_abort(w, n->machine, up);
}

void sim_dial_disconnect(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	for (size_t i = 0; i < ARRAY_LEN(n->dialers); i++) {
		struct sim_dialer *d = &n->dialers[i];
		if (d->is_used && d->kind == f->u.connect.kind && node_id_is(d->peer, f->u.connect.peer))
			close_dialer(w, n, d);
	}
	for (size_t i = 0; i < ARRAY_LEN(n->links); i++) {
		const struct sim_conn *c = sim_conn_find(w, n->links[i]);
		int32_t peer = c != NULL ? sim_link_peer(c, n->machine) : SIM_HEAD;
		if (peer == SIM_HEAD || !node_id_is(w->nodes[peer].id, f->u.connect.peer))
			continue;
		uint32_t serial = n->links[i];
		n->links[i] = 0;
		sim_link_abort(w, n->machine, serial);
	}
}

void sim_dial_refresh(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	for (size_t i = 0; i < ARRAY_LEN(n->dialers); i++) {
		struct sim_dialer *d = &n->dialers[i];
		if (!d->is_used || d->kind != f->u.connect.kind || !node_id_is(d->peer, f->u.connect.peer))
			continue;
		if (d->up == 0 || d->next != 0 || sim_timer_is_set(&d->timer))
			continue; // a new link is on its way already
		sim_set_timer(w, w->now_ns, EV_DIAL, n->machine, &d->timer)->arg = (int32_t)i;
	}
}

void sim_dial_on_up(struct sim_world *w, struct sim_node *n, struct sim_conn *c)
{
	for (size_t i = 0; i < ARRAY_LEN(n->dialers); i++) {
		struct sim_dialer *d = &n->dialers[i];
		if (!d->is_used || d->next != c->serial)
			continue;
		uint32_t old = d->up;
		d->up = c->serial;
		d->next = 0;
		d->up_ns = w->now_ns;
		sim_link_close(w, n->machine, old); // its end is none of the dialer's any more
		return;
	}
}

bool sim_dial_on_down(struct sim_world *w, struct sim_node *n, uint32_t serial)
{
	for (size_t i = 0; i < ARRAY_LEN(n->dialers); i++) {
		struct sim_dialer *d = &n->dialers[i];
		if (d->is_used && d->next == serial) {
			d->next = 0;
			again_after_pause(w, n, d);
			return false;
		}
		if (!d->is_used || d->up != serial)
			continue;
		backoff_ended(&d->backoff, w->now_ns - d->up_ns);
		d->up = 0;
		if (d->next == 0) // a renewal under way becomes the new link
			again_after_pause(w, n, d);
	}
	return true;
}

void sim_dial_stop(struct sim_world *w, struct sim_node *n)
{
	for (size_t i = 0; i < ARRAY_LEN(n->dialers); i++) {
		sim_cancel(w, &n->dialers[i].timer);
		n->dialers[i] = (struct sim_dialer){0};
	}
}
