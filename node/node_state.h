// What the files of the node core share. Private to node/*.c.
#ifndef HEARTH_NODE_NODE_STATE_H
#define HEARTH_NODE_NODE_STATE_H

#include "flow/link_stats.h"
#include "flow/round_trip.h"
#include "node/node.h"

#define KEPT_BLOCKS_MAX 1024
#define KEPT_WRITES_MAX 64

// A link that is up. Its end is a loss when it is the newest of its kind to its peer, or when it did not end in order and frames of the plan
// may have been on it: ours, or those of the far end, who may learn of the successor later than we do.
struct node_link {
	uint32_t handle; // 0: free
	struct node_id peer;
	enum node_link_kind kind;
	struct liveness life;
	int64_t up_ns;
	uint64_t order;            // of coming up: the highest is the newest
	struct member_epoch epoch; // when it came up: a grown one wants a new handshake
	struct plan_epoch used;    // the last plan of which something was sent on it
	bool refreshing;           // a successor was asked for
	bool retired;              // a successor is up: received from only, since retired_ns
	int64_t retired_ns;
	bool closing;              // by us: nothing can be sent on it any more, and its host ends it however silent it is
	struct round_trip rtt;
	struct link_stats stats;   // of a data link; goes over to its successor
	int64_t told_ns;           // when the coordinator was told of its own last
	bool has_strayed;          // a frame that its peer has no business to send was logged
};

// What a KV slot computes now.
struct node_slot {
	struct session_id session; // 0: free
	uint32_t next_seq[ROUNDS_MAX], next_pos[ROUNDS_MAX]; // in each round
	bool direct;               // route of this session's steps: fixed at its first, so that none overtakes another
};

// What a slot's kept states of one round are: rows of positions 0 to n - 1 as they left `layer`. After a new plan with another last layer the
// rows are replaced in place, from position 0 on: those from n to old_n - 1 are still what left old_layer.
struct node_kept {
	struct session_id session; // 0: none
	int32_t layer, n;
	int32_t old_layer, old_n;
	int32_t n_mem, n_rows; // places taken: positions below n_mem in memory, those up to n_rows on disk
	int64_t last_ns;       // when something was added
};

// Where rows are on disk: the file is cut into about KEPT_BLOCKS_MAX blocks, and a block belongs to one entry. The row of a position stands in
// the block of index pos / rows, at pos % rows.
struct kept_block {
	int32_t entry; // -1: free
	int32_t index;
};

struct kept_blocks {
	size_t frame_bytes;      // of one row
	int32_t rows, n, n_used; // rows of a block; blocks
	struct kept_block at[KEPT_BLOCKS_MAX];
};

// A write under way.
struct kept_write {
	uint32_t id; // 0: free
	int32_t entry;
	struct session_id session;
	uint64_t bytes;
};

// What this stage does for a step: its input comes with it, was kept here, or is not needed; it runs layers (none where begin == end);
// the state goes on, or only the step does.
struct task {
	bool from_payload, from_kept;
	int32_t layer_begin, layer_end;
	bool goes_on;
};

// A step in one of the node's buffers: buffer i belongs to work[i].
enum work_state { WORK_FREE, WORK_QUEUED, WORK_RUNNING, WORK_OUT };
struct work {
	enum work_state state;
	bool dead;        // cancelled or of an old plan while RUNNING: not sent
	bool direct;      // the route its session took at its first step
	bool relayed;     // it came through the coordinator: its credit goes back the same way, because the coordinator counts them
	bool fetching;    // its rows are on their way from disk; it stays where it is in its list
	int32_t round;
	struct task task;
	struct step step; // as it arrived
};

// A first-in first-out list of buffers.
struct work_list {
	int32_t n;
	int32_t at[HOP_CREDITS_MAX];
};

// One round's traffic. Each round has its own credits and its own list: a step that cannot go on in one never blocks another, and as a step
// only ever waits for a place in a later round, none waits for ever.
struct node_round {
	struct work_list out; // waiting for a credit
	int32_t credits_out;  // steps the next hop still takes
	bool draining;        // steps are on a link that has a successor: none is sent until all credits are back
	int32_t n_held;       // steps received and not credited back
};

// What one member contributes to an exchange, or the lead tells of a forward, as far as it is here.
struct group_part {
	uint64_t forward; // 0: nothing is
	int32_t exchange;
	uint32_t got, total;
	uint64_t failed;
	bool is_whole;
};

// A forward under way while `id` is not 0. Of a group's, which waits in its exchange while it is not computed, numbers are told over all: odd and even ones
// have a place each, so that one is computed while another waits. A stage that is no group uses the first place only.
struct node_forward {
	uint32_t id;
	int32_t n_items;
	struct node_forward_item items[NODE_ITEMS_MAX];
	// In a group.
	uint64_t forward;    // the one under way here, or the last one
	int32_t exchange;    // of it: computed towards, or waited in
	uint64_t n_passed;   // exchanges here since the plan began: the number of this one
	int32_t layer_begin, layer_end;
	bool is_computing;   // the engine is at work: it answers
	bool is_dead;        // and nobody wants what it computes
	bool has_refused;    // this forward, before it computed anything of use
	uint64_t failed, failed_there; // items, here and by other members
	uint32_t bytes[GROUP_MEMBERS_MAX]; // what each other one sends here in the exchange that is waited in
	struct split_sent to[GROUP_MEMBERS_MAX]; // what goes from here to each
	struct session_id sessions[NODE_ITEMS_MAX]; // of a fellow's items
	struct group_part parts[GROUP_MEMBERS_MAX][GROUP_MEMBERS_MAX + 1]; // as part buffers (node_part_ways)
	struct group_part told;  // to a fellow: the forward that comes next here
	struct part_start start; // what it is, from its first frame on
};

// A group at work.
struct node_group {
	struct node_id ids[GROUP_MEMBERS_MAX];
	size_t part_bytes; // of the engine's part buffers
	uint64_t n_begun;  // forwards, since the plan began
	bool is_cut;       // nothing is begun or taken until there is another plan
	bool stays[GROUP_MEMBERS_MAX]; // another member's weights are all in its memory, as it told with its last contribution
};

struct node {
	struct node_config config;
	struct node_link links[NODE_LINKS_MAX];
	uint64_t n_links_up; // so far
	int64_t now_ns;

	bool welcomed;
	bool leaving;
	struct member_epoch member_epoch; // on disk
	int64_t stepped_ns; // when the last event came: a long gap was our own
	int64_t leave_ns;   // when an orderly leave began

	// The plan. plan.epoch 0: none; plan.n_stages 0: it has no part for us. `loaded` once the engine fits it.
	struct msg_plan plan;
	int64_t plan_ns; // when it was adopted
	struct plan_epoch newest_epoch; // of any plan since the control link was lost: two links may bring two plans in any order
	bool loaded;
	uint32_t load_id;     // 0: no LOAD under way
	struct msg_plan next; // arrived while the engine was busy with the old one
	bool has_next;
	struct msg_plan engine; // what the engine was loaded for; epoch 0: nothing
	bool has_memory;        // a LOAD was asked for, and no UNLOAD since

	// What the coordinator would have it hold; serial 0: nothing that it waits for.
	uint64_t prepare_serial, prepare_newest; // newest: since the control link was lost
	struct layer_spans prepare_layers;
	struct layer_part prepare_part; // of them
	bool prepare_output;            // and of the output head
	uint32_t prepare_id;           // 0: no PREPARE under way
	struct layer_spans preparing;  // its layers
	struct layer_part preparing_part;
	bool preparing_output;
	bool prepare_stops;
	bool load_waits;               // the plan's LOAD, for the end of a PREPARE
	struct held_layers held;       // what is known to be here, of a node that fetches

	struct node_slot slots[SESSIONS_MAX];
	struct session_id kv_session[SESSIONS_MAX]; // whose keys and values a slot holds, over plans
	struct node_kept kept[KEPT_MAX]; // a slot's rounds side by side
	uint64_t kept_bytes;             // in memory
	size_t kept_row_bytes;
	struct kept_blocks blocks;
	struct kept_write writes[KEPT_WRITES_MAX];
	uint64_t writing_bytes;          // of them all
	struct work_list reads;          // buffers that wait for rows from disk, in order: one read is under way at a time
	uint32_t read_id;                // 0: none is
	int32_t read_buf;                // for which, while it still waits; -1: it does not
	bool disk_has_failed;            // said, and no write has gone well since
	bool has_kept; // kv_session and kept are worth asking for
	struct work work[HOP_CREDITS_MAX];
	struct work_list queue;      // waiting for the engine
	struct node_round rounds[ROUNDS_MAX];
	struct node_forward forwards[NODE_FORWARDS_MAX];
	struct node_forward *at;     // the one that is being handled
	struct node_group group;

	uint32_t next_id;
	int64_t last_step_ns; // when one came in
	uint64_t n_steps, n_tokens;
	struct device_profile profile; // n_threads 0: not known
	bool is_probing, probe_is_stopped;
	int32_t n_probes_failed;
	int64_t welcomed_ns;           // first
	struct msg_node_report report, reported; // as it is, and as the coordinator knows it
	int64_t report_ns; // not before
	int32_t n_cold;    // FORWARDs to come that may read weights for the first time: they say nothing of the machine
};

// Effects: each takes the next place and returns it for the caller to fill.
struct node_effect *node_fx(struct node_effects *fx, enum node_effect_type type);
// node_fx_bytes copies bytes that an effect points to.
const uint8_t *node_fx_bytes(struct node_effects *fx, const void *data, size_t len);
void node_log(struct node_effects *fx, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);
void node_send_msg(struct node *n, struct node_effects *fx, const struct msg *m); // to the coordinator, when its link is up
void node_fx_send(struct node_effects *fx, uint32_t link, const uint8_t *data, size_t len);
void node_fx_close(struct node_effects *fx, uint32_t link, bool orderly);

// node.c
void node_say_hello(struct node *n, struct node_effects *fx);
// node_report_next_link tells the coordinator how steps go to the next stage, and whether what was on a neighbour's or member's link may be lost.
void node_report_next_link(struct node *n, bool broken, struct node_effects *fx);
// node_on_coordinator_lost: frames to or from the coordinator may be lost, and the plan with them.
void node_on_coordinator_lost(struct node *n, enum node_link_kind kind, struct node_effects *fx);

// node_links.c
// node_links_has_calm: no step has come for a while, and none is being worked on.
bool node_links_has_calm(const struct node *n);
int64_t node_links_calm_ns(const struct node *n); // when that is so at the earliest, if none comes
void node_links_on_up(struct node *n, const struct node_event *ev, struct node_effects *fx);
void node_links_on_down(struct node *n, const struct node_event *ev, struct node_effects *fx);
void node_links_tick(struct node *n, struct node_effects *fx);
int64_t node_links_deadline_ns(const struct node *n);
// node_links_forgive restarts all timers of silence: this machine was away itself.
void node_links_forgive(struct node *n);
// node_links_forget: what joins us to a peer ends, and is no longer ours to hear of.
void node_links_forget(struct node *n, struct node_id peer);
// node_links_on_sent: a step with so many bytes of hidden states goes out on a data link.
void node_links_on_sent(struct node *n, struct node_link *l, uint64_t bytes, struct node_effects *fx);
struct node_link *node_link_find(struct node *n, uint32_t handle);
// node_link_of returns the link to send on, the newest; or NULL.
struct node_link *node_link_of(struct node *n, struct node_id peer, enum node_link_kind kind);
struct node_link *node_next_direct(struct node *n); // the direct data link to the next stage, or NULL
struct node_link *node_prev_direct(struct node *n);
// node_link_blame closes a link whose peer broke the protocol: nothing it sends can be trusted to be complete.
void node_link_blame(struct node_link *l, const char *what, struct node_effects *fx);
// node_link_ignore: what came is not the peer's business, and does no harm.
void node_link_ignore(struct node_link *l, const char *what, struct node_effects *fx);
struct node_id node_peer_id(const uint8_t public_key[KEY_BYTES]);
bool node_peer_is(const struct msg_peer *p, struct node_id id);

void node_load(struct node *n, struct node_effects *fx); // what the plan wants, when nothing is loaded or prepared
struct layer_part node_part_of(const struct msg_group *g); // this member's; all of a layer where there is no group

// prepare.c
void prepare_on_message(struct node *n, const struct msg *m, struct node_effects *fx);
void prepare_on_done(struct node *n, const struct node_event *ev, struct node_effects *fx);
void prepare_pump(struct node *n, struct node_effects *fx);
// prepare_on_loaded: the engine has its layers, or an error.
void prepare_on_loaded(struct node *n, enum err err);
// prepare_lose: who asked for it is gone. What is being fetched goes on: whoever comes will want much of it.
void prepare_lose(struct node *n);

// kept.c
// kept_has tells whether the rows that enter a step's first layer are here; kept_fetch gets them, after that.
bool kept_has(const struct node *n, const struct step *s);
// True from kept_fetch: some are on disk, and kept_read is to be called; it returns the id of the read (0: they are here no more), and kept_take
// puts into buf what it brought.
bool kept_fetch(struct node *n, const struct step *s, int32_t buf, struct node_effects *fx);
MUST_USE uint32_t kept_read(struct node *n, const struct step *s, int32_t buf, struct node_effects *fx);
void kept_take(struct node *n, const struct step *s, int32_t buf, struct node_effects *fx);
// kept_on_unread: what was kept of a session could not be read, and is given up.
void kept_on_unread(struct node *n, struct session_id session, enum err err, const char *text, struct node_effects *fx);
void kept_on_written(struct node *n, const struct node_event *ev, struct node_effects *fx);
// kept_put keeps what is sent: the rows of buf, as they leave a round's span. Without room the slot's of that round are given up.
void kept_put(struct node *n, const struct step *s, int32_t round, int32_t buf, size_t row_bytes, struct node_effects *fx);
// kept_end: a session is over.
void kept_end(struct node *n, struct session_id session, struct node_effects *fx);
// kept_forget: keys, values and kept states of every session are gone or void.
void kept_forget(struct node *n, struct node_effects *fx);

// kept_blocks.c
void kept_blocks_lay_out(struct kept_blocks *b, uint64_t bytes, size_t row_bytes);
// kept_blocks_reserve sees that an entry has places for positions [begin, end). False: there are not enough, and none was taken.
bool kept_blocks_reserve(struct kept_blocks *b, int32_t entry, int32_t begin, int32_t end);
// kept_blocks_runs writes where they are, and returns how many runs that takes.
int32_t kept_blocks_runs(const struct kept_blocks *b, int32_t entry, int32_t begin, int32_t end, struct node_disk_run runs[KEPT_BLOCKS_MAX]);
void kept_blocks_free(struct kept_blocks *b, int32_t entry);

// node_probe.c: measuring this machine, and telling the coordinator.
void node_probe_tell(struct node *n, struct node_effects *fx);
void node_probe_on_probed(struct node *n, const struct node_event *ev, struct node_effects *fx);
void node_probe_pump(struct node *n, struct node_effects *fx);
int64_t node_probe_deadline_ns(const struct node *n);

// stage.c
void stage_reset(struct node *n);
// stage_drain: a link that steps may be on has a successor.
void stage_drain(struct node *n);
void stage_on_frame(struct node *n, struct node_link *l, const uint8_t *data, size_t len, struct node_effects *fx);
void stage_on_forward_done(struct node *n, const struct node_event *ev, struct node_effects *fx);
void stage_on_fetched(struct node *n, const struct node_event *ev, struct node_effects *fx);
void stage_on_cancel(struct node *n, struct session_id session, struct node_effects *fx);
void stage_pump(struct node *n, struct node_effects *fx);
size_t stage_row_bytes(const struct node *n);
// stage_has_output: this stage's engine has lm_head.
bool stage_has_output(const struct node *n);
size_t stage_buf_bytes(const struct node *n);
// For node_group.c: what a lead's forward was about.
struct session_id stage_session_of(const struct node *n, int32_t buf); // 0: nobody wants it any more
void stage_report_failure(struct node *n, struct session_id session, enum step_failure code, const char *text, struct node_effects *fx);
void stage_report_error(struct node *n, struct session_id session, const struct node_event *ev, int32_t item, struct node_effects *fx);
// stage_has_forward tells whether one is under way.
bool stage_has_forward(const struct node *n);
struct node_forward *stage_find_forward(struct node *n, uint32_t id); // NULL: it is none under way
// Of the forward that is being handled.
void stage_drop_running(struct node *n, struct node_effects *fx);
// stage_requeue_running puts what runs back to the front of the queue, without the items of a bit of `failed`.
void stage_requeue_running(struct node *n, uint64_t failed, struct node_effects *fx);

// node_group.c: this node as a member of a group. Nothing happens in the others while the plan has none.
void node_group_reset(struct node *n);
// node_group_begin: the lead computes the items of n->at.
void node_group_begin(struct node *n, const struct part_start *s, struct node_effects *fx);
// node_group_next returns where the lead's next forward goes; NULL: as many as may be are under way: one, unless every member has told that it streams no weights.
struct node_forward *node_group_next(struct node *n);
// node_group_holds: another forward under way uses this slot, and what would come behind it has to wait.
bool node_group_holds(const struct node *n, int32_t slot, int32_t layer_begin, int32_t layer_end);
void node_group_on_part(struct node *n, struct node_link *l, const uint8_t *data, size_t len, struct node_effects *fx);
void node_group_on_exchange(struct node *n, const struct node_event *ev, struct node_effects *fx);
// node_group_on_forward_done returns whether that was all; else the lead's items are as a stage's.
bool node_group_on_forward_done(struct node *n, const struct node_event *ev, struct node_effects *fx);
// node_group_has_failed: another member has failed an item of this forward.
bool node_group_has_failed(const struct node *n, int32_t item);
void node_group_pump(struct node *n, struct node_effects *fx);
void node_group_check(const struct node *n);

#endif
