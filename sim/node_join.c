// `hearth join` with an invite, in virtual time: node/shell/membership's attempt, and a user who tries again.
#include "sim/world_state.h"

static void try_later(struct sim_world *w, struct sim_node *n)
{
	if (n->has_invite && !sim_timer_is_set(&n->join_timer))
		sim_set_timer(w, w->now_ns + SIM_JOIN_AGAIN_NS, EV_JOIN, n->machine, &n->join_timer);
}

void sim_join_try(struct sim_world *w, struct sim_node *n)
{
	sim_cancel(w, &n->join_timer);
	if (n->disk.is_member) {
		sim_node_start(w, n);
		return;
	}
	if (!n->has_invite || n->join_conn != 0 || !w->hosts[n->machine].is_on)
		return;
	struct sim_dial d = {.node = n->machine, .machine = 0, .kind = LNK1_CONTROL, .mode = LNK1_JOIN, .server_pk = w->head.keys.pk,
		.token_id = n->token_id, .token_secret = n->token_secret};
	n->is_joining = true;
	n->has_grant = false;
	n->join_conn = sim_link_dial(w, &d);
	sim_set_timer(w, w->now_ns + SIM_JOIN_PATIENCE_NS, EV_JOIN_PATIENCE, n->machine, &n->join_timer);
}

void sim_join_over(struct sim_world *w, struct sim_node *n)
{
	n->join_conn = 0;
	n->is_joining = false;
	sim_cancel(w, &n->join_timer);
	if (n->disk.is_member)
		sim_node_start(w, n);
	else
		try_later(w, n);
}

void sim_join_on_frame(struct sim_world *w, struct sim_node *n, const uint8_t *frame, size_t len)
{
	struct msg m;
	struct errmsg em;
	uint8_t out[MSG_ENCODED_MAX];
	uint32_t conn = n->join_conn;
	if (n->has_grant || msg_decode(frame, len, &m, &em) != OK || m.type != MSG_JOIN_GRANT) {
		sim_world_fail(w, "node %d was sent something other than a grant", n->machine);
		return;
	}
	struct sim_membership own = {.is_member = true, .member_epoch = m.u.join_grant.member_epoch.v};
	memcpy(own.psk, m.u.join_grant.psk, KEY_BYTES);
	uint32_t life = w->hosts[n->machine].life;
	if (sim_node_keep(w, n, &own) != OK) { // not acknowledged: the invite stays ours to try again
		if (w->hosts[n->machine].life != life)
			return;
		sim_link_abort(w, n->machine, conn);
		sim_join_over(w, n);
		return;
	}
	n->has_grant = true;
	struct msg ack = {.type = MSG_JOIN_ACK};
	size_t out_len = msg_encode(&ack, out);
	sim_link_send(w, n->machine, conn, &(struct sim_send){.head = out, .head_len = out_len});
}

void sim_join_on_patience(struct sim_world *w, struct sim_node *n)
{
	uint32_t conn = n->join_conn;
	if (conn == 0)
		return;
	sim_link_abort(w, n->machine, conn);
	sim_join_over(w, n);
}

void sim_join_stop(struct sim_world *w, struct sim_node *n)
{
	sim_cancel(w, &n->join_timer);
	n->join_conn = 0;
	n->is_joining = false;
}
