// What the files of the virtual world share. Private to sim/*.c.
#ifndef HEARTH_SIM_WORLD_STATE_H
#define HEARTH_SIM_WORLD_STATE_H

#include "base/bytes.h"
#include "flow/backoff.h"
#include "flow/dup_link.h"
#include "proto/frame.h"
#include "proto/lnk1.h"
#include "sim/checks.h"
#include "sim/event_queue.h"
#include "sim/network.h"
#include "sim/sim_chain.h"
#include "sim/sim_crypto.h"
#include "sim/sim_mix.h"
#include "sim/sim_store.h"
#include "sim/world.h"

#define SIM_TICKETS_MAX 64
#define SIM_EVENTS_CAP 16384   // of a household, waiting at once: frames under way, timers, completions
#define SIM_EVENTS_EACH 64     // of each machine of a swarm
#define SIM_CONNS_CAP 1024     // of a household; a power of two
#define SIM_CONNS_EACH 8       // of each machine of a swarm
#define SIM_FIRST_SERIAL 16    // of connections; local links are LOCAL_CONTROL and LOCAL_DATA
#define SIM_LOCAL_CONTROL 1
#define SIM_LOCAL_DATA 2
#define SIM_LOCAL_NS 20000     // a frame between coordinator and the node beside it
#define SIM_DIALERS_MAX (2 + NODE_PEERS_MAX) // coordinator control and data, the plan's peers
#define SIM_KEPT_ORDERS 72     // writes and a read: more than a node core has under way
#define SIM_PORT 7434          // where simulated nodes accept each other's links
#define SIM_CONNECT_NS INT64_C(5000000000)   // the limits of net/link.c
#define SIM_HANDSHAKE_NS INT64_C(3000000000)
#define SIM_CLOSE_NS INT64_C(8000000000)
#define SIM_JOIN_PATIENCE_NS INT64_C(15000000000) // of `hearth join`, and what its user waits before the next try
#define SIM_JOIN_AGAIN_NS INT64_C(5000000000)
#define SIM_INVITE_TTL_S 600
#define SIM_WALL_START_S 1700000000

// A timer's event: set when stamp is not 0. The event clears it before it is carried out.
struct sim_timer {
	uint32_t place;
	uint64_t stamp;
};

// ---- packets and connections

enum sim_packet_kind { PK_SYN, PK_SYNACK, PK_M1, PK_M2, PK_M3, PK_M4, PK_FRAME, PK_FINAL, PK_RST };

struct sim_packet {
	struct sim_packet *next; // of what a cut holds back
	enum sim_packet_kind kind;
	bool is_flipped;
	bool is_data, is_step; // a step or a credit; a step
	uint32_t stored;    // bytes in data
	uint32_t frame_len; // as the core sees it: rows on the wire are larger than rows kept
	uint8_t data[];
};

enum sim_end_state { END_NONE, END_CONNECTING, END_SHAKING, END_JUDGED, END_UP, END_CLOSING, END_CUT, END_DEAD };

struct sim_end {
	enum sim_end_state state;
	int32_t party;     // SIM_HEAD or a node
	struct sim_timer timer;
	bool flip_next;    // the next record it sends
	bool was_told;     // its host knows it
	bool has_dropped;  // its host wanted to send when it could not any more: it does not end in order
	int64_t last_arrival_ns; // of what it sent
	struct sim_packet *held, **held_last; // what it sent into a cut
};

// One connection with its LNK1 link. End 0 dialled, end 1 accepted.
struct sim_conn {
	uint32_t serial; // 0: free
	enum lnk1_kind kind;
	enum lnk1_mode mode;
	int32_t flow;
	uint32_t n_in_flight;
	struct sim_end end[2];
	struct sim_shake shake;
};

// Why a link ended. SIM_DOWN_DROPPED: closed, and a frame could not be sent.
enum sim_down { SIM_DOWN_CLOSED, SIM_DOWN_PEER_CLOSED, SIM_DOWN_LOST, SIM_DOWN_TIMEOUT, SIM_DOWN_REFUSED, SIM_DOWN_RECORD, SIM_DOWN_DROPPED };

// ---- processes

struct sim_dialer {
	bool is_used, is_coordinator;
	enum node_link_kind kind;
	struct node_id peer;
	struct msg_peer who;  // a neighbour
	struct backoff backoff;
	uint32_t up, next;    // connections; 0: none
	int64_t up_ns;
	struct sim_timer timer;
};

struct sim_node_job {
	bool is_busy;
	int32_t place;   // of a group's: the core's
	bool is_behind;
	bool is_waiting; // in an exchange of a group, until it is continued or given up
	bool is_at_head; // in the last one of them, that of lm_head
	int32_t which;   // part buffers that it is continued with; -1: it has just begun
	uint32_t id;
	int32_t layer_begin, layer_end;
	int32_t n;
	struct node_forward_item items[NODE_ITEMS_MAX];
	uint64_t digests[NODE_ITEMS_MAX]; // of the buffers when the engine took them
	uint64_t epoch;                   // of the plan under which it began
	uint64_t parts_digest;            // of the contributions that it reads
	struct sim_exchange exchange;     // of a group: the one that it waits in
};

// A write or a read of kept states under way, and one row on disk.
struct sim_kept_order {
	struct node_effect f;        // its runs are (n_runs) here, owned
	uint8_t *rows;               // of a write, (n_tokens, row_kept), owned
};

struct sim_kept_frame {
	struct session_id session;
	int32_t layer, entry, pos;
	bool is_written, is_damaged; // damaged: by a fault, and it does not open any more
};

// The file of kept states: gone with the process.
struct sim_kept_disk {
	int32_t n_frames;               // 0: none was made
	struct sim_kept_frame *frames;  // (n_frames), owned
	uint8_t *rows;                  // (n_frames, row_kept), owned
	int64_t free_ns;                // when what was asked for will be done
	int32_t n_orders;
	struct sim_kept_order orders[SIM_KEPT_ORDERS]; // in order
	uint8_t *fetched;               // (n_tokens, row_kept) of the FETCHED that is told now, owned
	struct node_effect read;        // what that answers
};

// The disk of a node: its membership.
struct sim_membership {
	bool is_member;
	uint8_t psk[KEY_BYTES];
	uint64_t member_epoch;
};

struct sim_node {
	bool exists;     // machine 0 has one only with has_local_node
	int32_t machine;
	struct lnk1_keypair keys;
	struct node_id id;
	char name[NAME_CAP];

	bool is_running; // the core is live
	struct node *core;
	struct sim_timer tick;
	int64_t tick_ns;
	struct sim_dialer dialers[SIM_DIALERS_MAX];
	uint32_t links[NODE_LINKS_MAX]; // connections the core knows
	struct sim_membership own;      // as the process read it
	uint64_t boot;

	struct sim_engine *engine;
	uint8_t *bufs;
	size_t buf_kept;   // bytes of one buffer
	int32_t n_bufs;
	struct sim_node_job forwards[NODE_FORWARDS_MAX];
	int64_t free_ns;     // when its engine is done with what it was given
	struct node_effect load; // the last one asked for, done or not: what the engine has
	struct msg_group load_group; // of it; n_members 0: none
	uint8_t *parts;      // of a group's engine: two buffers for each member
	int32_t n_members, member;
	size_t part_bytes;
	uint32_t blocks[LAYERS_MAX]; // of a machine without the model file: which 32nds of each layer are on its disk
	struct node_effect prepare; // under way, when prepares
	int64_t prepare_ns;         // since when
	bool prepares;
	uint8_t *sent[KEPT_MAX]; // by entry: (ctx_len, row_kept) of what the core keeps of what it sent; NULL: nothing
	int32_t n_sent[KEPT_MAX]; // rows of it
	struct sim_kept_disk kept_disk;
	bool store_is_busy;
	uint32_t store_id;
	uint64_t store_epoch;

	bool has_invite, has_grant, is_joining; // joining: `hearth join` runs, its core does not yet
	uint8_t token_id[TOKEN_ID_BYTES], token_secret[KEY_BYTES];
	uint32_t join_conn;
	struct sim_timer join_timer;
	bool was_revoked;     // an operator was told so: its key gets no session any more
	struct sim_membership disk, synced; // what a crash leaves, and what a loss of power leaves
};

struct sim_head_job {
	bool is_busy, is_embed;
	uint32_t id;
	int32_t n;
	struct coord_embed_item embed[COORD_ITEMS_MAX];
	struct coord_sample_item sample[COORD_ITEMS_MAX];
	uint64_t digests[COORD_ITEMS_MAX];
};

// An operator's command under way.
struct sim_ticket {
	uint64_t ticket; // 0: free
	int32_t machine;
	bool is_revoke;
	uint8_t token_id[TOKEN_ID_BYTES], secret[KEY_BYTES];
};

// What the coordinator asked its planner.
#define SIM_ASKS_MAX 64
struct sim_ask {
	uint32_t id;
	int32_t n;
	struct node_id nodes[STAGES_MAX];
	bool has_current;
};

struct sim_head {
	bool is_running, is_stepping;
	struct lnk1_keypair keys;
	struct node_id id;
	struct coordinator *core;
	struct coordinator_config config;
	int32_t *tokens;
	struct sim_timer tick;
	int64_t tick_ns;
	struct sim_engine *engine;
	uint8_t *bufs;
	size_t buf_kept;
	struct sim_head_job embed, sample;
	struct sim_db db;
	struct sim_db_write writes[SIM_WRITES_MAX]; // under way, in order
	int32_t n_writes;
	int64_t write_free_ns;
	uint64_t last_ticket;
	struct sim_ticket tickets[SIM_TICKETS_MAX];
	int64_t clock_step_s;
	struct sim_ask asks[SIM_ASKS_MAX]; // by id
};

struct sim_host {
	bool is_on;        // the machine has power
	uint32_t life;     // of its processes: completions of an earlier one are void
	int64_t paused_until_ns; // 0: not paused
	int32_t slow_percent;
	bool out_of_memory;
	enum sim_disk_fault disk;
	bool disk_damaged, tear_next;
};

// ---- requests

struct sim_req {
	struct sim_request ask;
	enum sim_request_state state;
	enum coord_end end;
	enum err err;
	int64_t submit_ns, first_ns, last_ns, end_ns;
	bool is_cancelled;
	int32_t n_shown;     // tokens its client has; fewer than n_got, but for an answer that is computed again
	bool calm;           // no fault had happened when it was asked
	int32_t *tokens;     // prompt and the answer of one machine without faults
	int32_t n_prompt, n_want, n_got;
	bool stops;          // that answer ends with a stop token
	uint64_t hash;       // of its logits
	uint64_t plan_at_first, plan_at_last; // epochs of its chain when the first and the latest token came
};

// ---- events

enum sim_event_type {
	EV_PACKET,    // arg: the end it arrives at
	EV_LOCAL,     // who, id: link; packet
	EV_END_TIMER, // id: connection, arg: end
	EV_DIAL,      // who, arg: dialer
	EV_JOIN,      // who: the next try
	EV_JOIN_PATIENCE,
	EV_TICK,
	EV_EMBEDDED, EV_SAMPLED, EV_FORWARDED, EV_LOADED, EV_PREPARED, EV_STORED, EV_KEPT, // who, id
	EV_RANDOM,
	EV_PLANNED, // who, id
	EV_SUBMIT, EV_CANCEL, // arg: request
	EV_TELL_END,  // id: connection, arg: end: a close that its host hears of from the loop
	EV_JUDGE,     // id: a join's connection, arg: accept
	EV_RESUME,    // who
};

struct sim_event {
	enum sim_event_type type;
	int32_t who; // SIM_HEAD or a node; whose process it is for
	int32_t arg;
	uint32_t id;
	uint32_t life;
	struct sim_timer *timer;   // NULL: of none; void when that holds another stamp
	uint64_t stamp;
	struct sim_packet *packet; // owned
};

struct sim_world {
	struct sim_config config;
	int32_t n_nodes; // places in nodes[]; node i lives on machine i
	struct sim_machine *machines; // (n_nodes)
	struct sim_host *hosts;       // (n_nodes)
	uint32_t events_cap, conns_cap; // conns_cap is a power of two
	int32_t reqs_cap;
	int64_t now_ns;
	bool has_failed;
	char failure[SIM_TEXT_CAP];
	uint64_t history;
	struct sim_counts counts;
	uint64_t n_at_this_time, last_stamp;
	bool lied_sync; // the coordinator's disk has lost or may lose what it said it had

	struct event_queue queue;
	struct sim_event *events; // (events_cap + 1) by place
	struct sim_event *deferred; // (events_cap) for paused processes, in order of arrival
	int32_t n_deferred;

	struct sim_conn *conns; // (conns_cap) by serial
	uint32_t last_serial;
	struct rng rng_crypto, rng_fault, rng_plan;
	struct sim_nonces nonces;

	struct sim_model model;
	struct sim_head head;
	struct sim_node *nodes; // (n_nodes)
	struct coord_effects *coord_fx;
	struct node_effects *node_fx;
	const uint8_t *message; // what the core looks at now: as kept
	size_t message_stored;
	size_t message_len; // as the core sees it

	struct sim_req *reqs; // (reqs_cap)
	int32_t n_reqs, n_open;
	bool had_fault;
	struct sim_ledger ledgers[CHAINS_MAX]; // by chain
	uint64_t epochs[SIM_EPOCHS_MAX]; // of all plans so far
	uint32_t n_epochs;
	int32_t n_fetchers; // machines without the model file
	uint32_t n_data_in_flight;
	int64_t local_ns[2]; // when the last frame between coordinator and node 0 arrives: to the head, to the node
};

static inline int32_t sim_machine_of(int32_t party)
{
	return party < 0 ? 0 : party;
}

static inline void sim_note(struct sim_world *w, uint64_t a, uint64_t b)
{
	w->history = sim_mix(sim_mix(w->history, a), b);
}

// world.c
struct sim_event *sim_at(struct sim_world *w, int64_t at_ns, enum sim_event_type type, int32_t who);
struct sim_event *sim_set_timer(struct sim_world *w, int64_t at_ns, enum sim_event_type type, int32_t who, struct sim_timer *t);
void sim_cancel(struct sim_world *w, struct sim_timer *t);
static inline bool sim_timer_is_set(const struct sim_timer *t)
{
	return t->stamp != 0;
}
int64_t sim_duration(struct sim_world *w, struct sim_work *work); // and tells the observer
void sim_tell(struct sim_world *w, const struct sim_record *r);
void sim_log(struct sim_world *w, int32_t party, const char *text);

// sim_link.c
struct sim_conn *sim_conn_find(struct sim_world *w, uint32_t serial);
// sim_link_dial opens a connection; its events go to the node's host. 0: no more connections.
struct sim_dial {
	int32_t node, machine; // from, to
	enum lnk1_kind kind;
	enum lnk1_mode mode;
	const uint8_t *server_pk, *psk, *token_id, *token_secret;
	uint64_t member_epoch;
};
uint32_t sim_link_dial(struct sim_world *w, const struct sim_dial *d);
struct sim_send {
	const uint8_t *head;
	size_t head_len;
	const uint8_t *rows; // as kept
	size_t rows_kept, rows_real;
};
// Sends on a link that is up; else nothing happens. The sender's end is found by its party.
void sim_link_send(struct sim_world *w, int32_t party, uint32_t serial, const struct sim_send *s);
void sim_link_close(struct sim_world *w, int32_t party, uint32_t serial);
void sim_link_cut(struct sim_world *w, int32_t party, uint32_t serial);
void sim_link_abort(struct sim_world *w, int32_t party, uint32_t serial);
// sim_head_disconnect aborts every link that the coordinator has with a node.
void sim_head_disconnect(struct sim_world *w, struct node_id node);
void sim_link_judge(struct sim_world *w, uint32_t serial, bool accept);
// sim_judge_later does it from the queue: a core is not called back from inside its own effects.
void sim_judge_later(struct sim_world *w, uint32_t serial, bool accept);
void sim_link_on_packet(struct sim_world *w, struct sim_event *ev);
void sim_link_on_timer(struct sim_world *w, const struct sim_event *ev);
void sim_link_tell_end(struct sim_world *w, const struct sim_event *ev);
// sim_link_drop_all ends what a dead process held; without power nobody hears of it.
void sim_link_drop_all(struct sim_world *w, int32_t party, bool power);
int32_t sim_link_peer(const struct sim_conn *c, int32_t party);
struct sim_packet *sim_packet_new(enum sim_packet_kind kind, const struct sim_send *s);

// node_host.c
void sim_node_start(struct sim_world *w, struct sim_node *n);
void sim_node_stop(struct sim_world *w, struct sim_node *n);
void sim_node_step(struct sim_world *w, struct sim_node *n, struct node_event *ev);
// sim_node_missing counts the 32nds of layers that a part of them needs and that are not on its disk.
int64_t sim_node_missing(struct sim_node *n, const struct layer_spans *layers, const struct layer_part *part);
void sim_node_on_frame(struct sim_world *w, struct sim_node *n, uint32_t link, const struct sim_packet *p, const uint8_t *frame);
void sim_node_on_up(struct sim_world *w, struct sim_node *n, struct sim_conn *c, bool by_us);
void sim_node_on_down(struct sim_world *w, struct sim_node *n, uint32_t serial, enum sim_down why);
void sim_node_on_event(struct sim_world *w, struct sim_event *ev);
// sim_node_keep writes its membership.
enum err sim_node_keep(struct sim_world *w, struct sim_node *n, const struct sim_membership *m);
// sim_local_send passes a frame between the coordinator and the node beside it.
void sim_local_send(struct sim_world *w, int32_t to, uint32_t link, const struct sim_send *s);

uint8_t *sim_node_buf(struct sim_node *n, int32_t buf);
uint8_t *sim_node_part(struct sim_node *n, int32_t buf);

// node_forward.c: the engine at work, alone or from exchange to exchange of a group.
void sim_forward_begin(struct sim_world *w, struct sim_node *n, const struct node_effect *f);
void sim_forward_continue(struct sim_world *w, struct sim_node *n, const struct node_effect *f);
void sim_forward_on_done(struct sim_world *w, struct sim_node *n, uint32_t id);
bool sim_forward_is_busy(const struct sim_node *n);
bool sim_forward_waits(const struct sim_node *n, uint64_t epoch); // in an exchange, in this plan
void sim_forward_take_part(struct sim_world *w, struct sim_node *n, const struct node_effect *f);
// sim_forward_set_group makes the engine the one of load_group, with its part buffers; without an engine it lets go of them.
enum err sim_forward_set_group(struct sim_world *w, struct sim_node *n, struct errmsg *em);

// node_kept.c
void sim_kept_carry_out(struct sim_world *w, struct sim_node *n, const struct node_effect *f);
void sim_kept_on_done(struct sim_world *w, struct sim_node *n);
void sim_kept_stop(struct sim_node *n);
// sim_kept_flip damages a row that is on disk. False: there is none.
bool sim_kept_flip(struct sim_node *n, uint64_t draw);

// node_dial.c
void sim_dial_connect(struct sim_world *w, struct sim_node *n, const struct node_effect *f);
void sim_dial_disconnect(struct sim_world *w, struct sim_node *n, const struct node_effect *f);
void sim_dial_refresh(struct sim_world *w, struct sim_node *n, const struct node_effect *f);
void sim_dial_attempt(struct sim_world *w, struct sim_node *n, struct sim_dialer *d);
// sim_dial_on_up, _on_down: a connection this node opened. False from on_down: it never was up, the core knows nothing of it.
void sim_dial_on_up(struct sim_world *w, struct sim_node *n, struct sim_conn *c);
bool sim_dial_on_down(struct sim_world *w, struct sim_node *n, uint32_t serial);
void sim_dial_stop(struct sim_world *w, struct sim_node *n);

// node_join.c
void sim_join_try(struct sim_world *w, struct sim_node *n);
void sim_join_on_frame(struct sim_world *w, struct sim_node *n, const uint8_t *frame, size_t len);
// sim_join_over: its connection ended. With a grant on disk the node starts in member mode, else its user tries again.
void sim_join_over(struct sim_world *w, struct sim_node *n);
void sim_join_on_patience(struct sim_world *w, struct sim_node *n);
void sim_join_stop(struct sim_world *w, struct sim_node *n);

// coord_host.c
void sim_head_start(struct sim_world *w);
void sim_head_stop(struct sim_world *w, bool power);
void sim_head_step(struct sim_world *w, struct coord_event *ev);

// sim_planner.c
void sim_planner_ask(struct sim_world *w, const struct coord_effect *f);
void sim_planner_answer(struct sim_world *w, uint32_t id);
void sim_head_on_frame(struct sim_world *w, uint32_t link, const struct sim_packet *p, const uint8_t *frame);
void sim_head_on_up(struct sim_world *w, struct sim_conn *c);
void sim_head_on_join(struct sim_world *w, struct sim_conn *c, int32_t node);
void sim_head_on_down(struct sim_world *w, uint32_t serial, enum sim_down why);
void sim_head_on_event(struct sim_world *w, struct sim_event *ev);
int64_t sim_wall_s(const struct sim_world *w);

// clients.c
void sim_client_submit(struct sim_world *w, int32_t request);
void sim_client_on_emit(struct sim_world *w, uint64_t req, int32_t token, int32_t pos);
void sim_client_on_end(struct sim_world *w, const struct coord_effect *f);
void sim_client_lose_all(struct sim_world *w); // the coordinator crashed
void sim_client_take_up(struct sim_world *w);  // and is there again

const char *sim_down_words(enum sim_down d);

// sim_is_reply tells whether a frame brings the head what a last stage has made of logits, which is one row here, whatever it takes in the wire.
static inline bool sim_is_reply(const uint8_t *frame)
{
	return frame[0] == FRAME_STEP && frame[2] >= REPLY_BEST && load_u16(frame + 6) == SPAN_HEAD;
}

#endif
