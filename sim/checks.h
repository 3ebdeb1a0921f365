// What must always hold (DESIGN.md 12), as far as it can be seen from outside the cores: a ledger of the ring's credits, frames of old
// plans, keys that were revoked. Tokens and ends of requests are in sim/clients.c, nonces in sim/sim_crypto.c, and each core's own
// x_check runs after each of its steps. A check that fails stops the world (sim_world_fail). Private to sim/*.c.
#ifndef HEARTH_SIM_CHECKS_H
#define HEARTH_SIM_CHECKS_H

#include "base/limits.h"
#include "proto/frame.h"
#include "proto/msg.h"

#include <stdint.h>

struct sim_world;
struct sim_conn;
struct sim_node;

// Steps and credits of one hop under the running plan. Hop h leads to span h, the last one to the head.
struct sim_hop {
	uint64_t steps_sent, steps_come, credits_sent, credits_come;
};

#define SIM_EPOCHS_MAX 4096 // remembered of one world's plans

struct sim_ledger {
	uint64_t epoch;
	int32_t n_stages, n_spans, hop_credits;
	int32_t n_machines; // told so far: leads, and the other members of groups
	int32_t machine[STAGES_MAX];
	bool is_shared[STAGES_MAX]; // it is one of a group
	bool lost[STAGES_MAX];
	int32_t n_lost;    // machines of the plan that went down since it was sent
	uint64_t parts_sent, parts_come; // frames of contributions
	bool is_easy;      // the one before it could have gone on: nobody waits for blocks because of it
	struct sim_hop hops[SPANS_MAX + 1];
};

// The coordinator sends this plan to a machine's node.
void checks_on_plan(struct sim_world *w, int32_t machine, const struct msg_plan *p);
// checks_on_head_start: another run of the coordinator may count its plans from below, but never gives a number again.
void checks_on_head_start(struct sim_world *w);
void checks_on_loss(struct sim_world *w, int32_t machine);
// A frame leaves the party that made it, or has reached the one it is for (relays do not count). head: its first head_len bytes.
void checks_on_sent(struct sim_world *w, const uint8_t *head, size_t head_len);
void checks_on_come(struct sim_world *w, int32_t party, const uint8_t *head, size_t head_len);
// checks_epoch_of returns the epoch of the plan that a machine has a part in; 0: none.
uint64_t checks_epoch_of(const struct sim_world *w, int32_t machine);
// checks_on_stale: the step for a data frame is done, with this many effects: one of another plan than the receiver's must have none.
void checks_on_stale(struct sim_world *w, int32_t party, uint64_t epoch, const uint8_t *head, size_t head_len, int32_t n_effects);
// checks_on_session: a server has just accepted this node's key.
void checks_on_session(struct sim_world *w, int32_t server, const struct sim_node *client);
// checks_on_revoke_answered: an operator is told that this node is out.
void checks_on_revoke_answered(struct sim_world *w, const struct sim_node *node);
// checks_on_revoked: a member has heard that this node is out, and carried out what it wanted.
void checks_on_revoked(struct sim_world *w, int32_t party, struct node_id who);

#endif
