// What the files of the node core share. Private to node/*.c.
#ifndef HEARTH_NODE_NODE_STATE_H
#define HEARTH_NODE_NODE_STATE_H

#include "node/node.h"

// A link that is up.
struct node_link {
	uint32_t handle; // 0: free
	struct node_id peer;
	enum node_link_kind kind;
	struct liveness life;
	int64_t up_ns;
	struct member_epoch epoch; // when it came up: a grown one wants a new handshake
	bool refreshing; // a successor was asked for
};

// What a KV slot computes now.
struct node_slot {
	struct session_id session; // 0: free
	uint32_t next_seq;
	uint32_t next_pos;
	bool direct;               // route of this session's steps: fixed at its first, so that none overtakes another
};

// A step in one of the node's buffers: buffer i belongs to work[i].
enum work_state { WORK_FREE, WORK_QUEUED, WORK_RUNNING, WORK_OUT };
struct work {
	enum work_state state;
	bool dead;        // cancelled or of an old plan while RUNNING: not sent
	bool direct;      // the route its session took at its first step
	struct step step; // as it arrived
};

// A first-in first-out list of buffers.
struct work_list {
	int32_t n;
	int32_t at[HOP_CREDITS_MAX];
};

struct node {
	struct node_config config;
	struct node_link links[NODE_LINKS_MAX];
	int64_t now_ns;

	bool welcomed;
	bool leaving;
	struct member_epoch member_epoch; // on disk
	int64_t stepped_ns; // when the last event came: a long gap was our own
	int64_t leave_ns;   // when an orderly leave began

	// The plan. plan.epoch 0: none. `loaded` once the engine fits it.
	struct msg_plan plan;
	bool loaded;
	uint32_t load_id;     // 0: no LOAD under way
	struct msg_plan next; // arrived while the engine was busy with the old one
	bool has_next;
	struct msg_plan engine; // what the engine was loaded for; epoch 0: nothing

	struct node_slot slots[SESSIONS_MAX];
	struct work work[HOP_CREDITS_MAX];
	struct work_list queue, out; // waiting for the engine; waiting for a credit
	uint32_t forward_id;         // 0: the engine is free
	int32_t n_items;
	struct node_forward_item items[NODE_ITEMS_MAX];
	int32_t credits_out; // steps the next hop still takes
	int32_t n_held;      // steps received and not credited back

	uint32_t next_id;
	int64_t last_step_ns; // when one came in
	uint64_t n_steps, n_tokens;
};

// Effects: each takes the next place and returns it for the caller to fill.
struct node_effect *node_fx(struct node_effects *fx, enum node_effect_type type);
// node_fx_bytes copies bytes that an effect points to.
const uint8_t *node_fx_bytes(struct node_effects *fx, const void *data, size_t len);
void node_log(struct node_effects *fx, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);
void node_send_msg(struct node *n, struct node_effects *fx, const struct msg *m); // to the coordinator, when its link is up

// links
struct node_link *node_link_of(struct node *n, struct node_id peer, enum node_link_kind kind);
struct node_link *node_next_direct(struct node *n); // the direct data link to the next stage, or NULL
struct node_link *node_prev_direct(struct node *n);
struct node_id node_peer_id(const uint8_t public_key[KEY_BYTES]);

// stage.c
void stage_reset(struct node *n);
void stage_on_frame(struct node *n, struct node_link *l, const uint8_t *data, size_t len, struct node_effects *fx);
void stage_on_forward_done(struct node *n, const struct node_event *ev, struct node_effects *fx);
void stage_on_cancel(struct node *n, struct session_id session, struct node_effects *fx);
void stage_pump(struct node *n, struct node_effects *fx);
size_t stage_buf_bytes(const struct node *n);

#endif
