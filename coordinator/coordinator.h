// The coordinator core: membership, plans, sessions and the head's scheduling, as a pure state machine (DESIGN.md 4).
//
// Never a socket, a clock, a thread, a text: it sees token ids, buffers by number and links by handle. The host
// (coordinator/shell) feeds events and carries out effects in order. One thread owns it. Nothing is allocated after coordinator_init.
//
// A session: SUBMIT -> waits for a slot and a ready plan -> its tokens are embedded chunk by chunk (FORWARD) and sent to stage 0
// (SEND, as credits allow) -> what comes back from the last stage goes to SAMPLE -> SAMPLED -> EMIT a token, which is fed in turn ->
// EMIT an end, exactly one. Several prompt chunks of a session may be in the ring at once; a generated token is one step.
//
// Any loss in the ring (a node, a link between two nodes) makes a new plan under a new plan_epoch: nothing of the old one is waited for.
// Sessions that had a slot keep it, with their tokens, and go on under the new plan: what the stages lost is computed again, no token is
// drawn twice, and as the arithmetic is canonical the answer is the very one it would have been. Without a plan a session waits up to
// session_wait_ns. A stage may be a group of members that share its layers: whoever of them is lost, the others go on with it under the next plan,
// and as its layers are cut anew, they are computed again. A node lost by a reset is waited for a moment (liveness.rejoin_ns); one that returns later is given work when no
// answer is under way, or when nothing goes without it. A ring that does nothing for an answer within stall_ns ends that answer and is
// broken, too: a machine that keeps its links and does not answer is no better than one that is gone.
#ifndef HEARTH_COORDINATOR_COORDINATOR_H
#define HEARTH_COORDINATOR_COORDINATOR_H

#include "base/err.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/sampling.h"
#include "flow/liveness.h"
#include "flow/round_trip.h"
#include "partition/plan.h"
#include "proto/frame.h"
#include "proto/msg.h"

#include <stdbool.h>
#include <stdint.h>

#define COORD_ITEMS_MAX 64      // items of one FORWARD or SAMPLE
#define INVITES_MAX 8           // outstanding (link-protocol.md)
#define TOKEN_ID_BYTES 8
#define STOP_IDS_MAX 16

enum coord_link_kind { COORD_LINK_CONTROL, COORD_LINK_DATA, COORD_LINK_JOIN };

// What is kept on disk of a member and of an invite.
struct member_record {
	struct node_id id;
	uint8_t public_key[KEY_BYTES];
	uint8_t psk[KEY_BYTES];
	char name[NAME_CAP];
};

struct invite_record {
	uint8_t token_id[TOKEN_ID_BYTES];
	uint8_t secret[KEY_BYTES];
	int64_t expires_s; // wall clock, unix seconds
	int32_t n_failures;
	bool bound;        // serves only bound_to from now on
	struct node_id bound_to;
};

// Maxima of one coordinator, from which its memory follows; 0: the default of base/limits.h.
struct coordinator_limits {
	int32_t nodes_max;    // members, the local node aside
	int32_t sessions_max; // requests under way or waiting
};

// A stage of a chain as its operator wants it: a member by its name, or a group of them, the first of which leads.
struct placed_member {
	char name[NAME_CAP];
	uint32_t share; // of the group's layers, in any unit; one alone has all whatever it says
};

struct placed_stage {
	int32_t n_layers;
	int32_t n_members;                   // 1 .. GROUP_MEMBERS_MAX; with several at least one share is not 0
	const struct placed_member *members; // (n_members)
	int32_t hub;                         // member hub - 1 passes on what the others send; 0: each sends to each, as in a mode with sums
	uint32_t stream_share;               // as struct plan_stage's, of one machine
};

struct placed_chain {
	int32_t n_stages;
	const struct placed_stage *stages; // (n_stages) in ring order; together at most STAGES_MAX members
};

struct coordinator_config {
	struct coordinator_limits limits;
	// Chains: whole rings, each of which holds every layer. A session belongs to one of them, the least loaded when it gets a slot. A member is in one
	// chain, or stands by. Without a placement the members that are there at the first plan are dealt to the chains; with one each chain begins as it says
	// (members that it does not name stand by, and the node beside the coordinator is named like any other). Who is lost is replaced by who stands by.
	int32_t n_chains; // 0: one. At most CHAINS_MAX
	const struct placed_chain *placement; // (n_chains) borrowed while the coordinator lives; NULL: none
	struct node_id self;
	uint8_t cluster_id[CLUSTER_ID_BYTES];
	uint8_t model_hash[HASH_BYTES];
	bool model_unknown; // its hash comes with COORD_EV_MODEL: until then nodes that others than this machine run wait
	int32_t n_layers, hidden_dim, vocab_size;
	enum wire_type wire;
	bool has_output; // lm_head is the last stage's, whose members make logits: the head only embeds and samples
	int32_t n_slots;       // of each chain: 1 .. SESSIONS_MAX
	int32_t ctx_len;
	uint64_t layer_kv_bytes; // of one layer's cache for all slots; 0: not known
	int32_t chunk_max;     // tokens of one prefill step; a step frame fits DATA_RECORD_MAX
	int32_t hop_credits; // steps one hop may hold, all rounds together
	int32_t n_rounds;    // of a step, where it can have as many (partition/plan.h)
	int32_t split[STAGES_MAX];
	int32_t n_split;       // 0: no split is given
	uint32_t split_streams[STAGES_MAX]; // with a split, as struct plan_stage's stream_share
	enum split_mode group_mode; // of the placement's groups
	enum wire_type group_payload;
	bool may_group;        // plans by cost: machines may share layers
	bool by_cost;          // without one, and without a placement, layers go where PLANNED says; else evenly over who is there
	int32_t n_nodes_min;   // joined nodes without which there is no plan
	bool has_local_node;   // the coordinator's machine is stage 0
	char local_name[NAME_CAP];
	int32_t stop_ids[STOP_IDS_MAX];
	int32_t n_stop_ids;
	struct address_list addresses; // for JoinGrant
	struct liveness_limits liveness;
	int64_t session_wait_ns;
	int64_t stall_ns; // an answer that waits for the ring this long ends, and the ring begins again; 0: STALL_S_DEFAULT
};

enum coord_event_type {
	COORD_EV_RESTORED,    // first event: what was on disk
	COORD_EV_MODEL,       // the hash of this machine's model file is known now
	COORD_EV_LINK_UP,
	COORD_EV_LINK_DOWN,
	COORD_EV_MESSAGE,
	COORD_EV_JOIN,        // a join handshake's M3 opened; answered by ACCEPT or REFUSE of the link, when the binding is on disk
	COORD_EV_JOIN_FAILED, // an M3 for this token whose m3s opened and whose m3p did not
	COORD_EV_SUBMIT,
	COORD_EV_CANCEL,
	COORD_EV_INVITE,      // operator
	COORD_EV_REVOKE,      // operator
	COORD_EV_DRAIN,       // operator: a member shall hold no layers, or may again
	COORD_EV_FORWARD_DONE,
	COORD_EV_SAMPLED,
	COORD_EV_STORED,
	COORD_EV_PROBED,      // of this machine, when no node is beside the coordinator: the local node tells by itself
	COORD_EV_RANDOM,
	COORD_EV_PLANNED,
	COORD_EV_TICK,
};

struct coord_sampled {
	int32_t token; // when drawn
	enum err err;  // ERR_NON_FINITE: logits or state
	const char *text; // what failed for this one, when err; NULL or "": nothing is known
};

struct coord_event {
	enum coord_event_type type;
	int64_t now_ns; // monotonic
	int64_t wall_s; // unix seconds, for invites only
	union {
		struct {
			struct member_epoch member_epoch;
			const struct member_record *members;
			int32_t n_members;
			const struct invite_record *invites;
			int32_t n_invites;
		} restored;
		struct {
			uint8_t hash[HASH_BYTES];
		} model;
		struct {
			uint32_t link; // the host's handle, never 0, never reused within 2^32 links
			struct node_id peer;
			enum coord_link_kind kind;
			const char *remote; // host part of the peer's address, "" for the local node
		} link_up;
		struct {
			uint32_t link;
			bool orderly; // both ends closed it, and every frame of either, pings aside, has arrived; false when in doubt
			const char *reason;
		} link_down;
		struct {
			uint32_t link;
			const uint8_t *data; // one frame, valid until the effects are carried out
			size_t len;
		} message;
		struct {
			uint32_t link;
			uint8_t token_id[TOKEN_ID_BYTES];
			struct node_id id;
			uint8_t public_key[KEY_BYTES];
			uint8_t random[KEY_BYTES]; // becomes the member's psk when it is new
		} join;
		struct {
			uint8_t token_id[TOKEN_ID_BYTES];
		} join_failed;
		struct {
			uint64_t req; // the host's handle
			const int32_t *tokens; // copied
			int32_t n_tokens;
			int32_t n_predict;     // tokens at most
			struct sampling sampling;
			bool hash_logits;      // the head wants the hidden state of every position
			bool ignore_stop;      // stop ids do not end it
		} submit;
		struct {
			uint64_t req;
		} cancel;
		struct {
			uint64_t ticket;
			uint8_t token_id[TOKEN_ID_BYTES];
			uint8_t secret[KEY_BYTES];
			int64_t ttl_s;
		} invite;
		struct {
			uint64_t ticket;
			const char *who; // name, or hexadecimal NodeID (a prefix of 8 digits or more)
			bool undo;       // DRAIN
		} revoke; // also drain
		struct {
			uint32_t id;
			const enum err *errs; // in the order of the effect; NULL: all are OK
			const char *const *texts; // of each failure; NULL, or "" in a place: nothing is known
		} forward_done;
		struct {
			uint32_t id;
			const struct coord_sampled *items; // in the order of the effect
		} sampled;
		struct {
			uint32_t id;
			enum err err;
		} stored;
		struct {
			const struct device_profile *profile; // copied
		} probed;
		struct {
			uint8_t bytes[KEY_BYTES];
		} random;
		struct {
			uint32_t id;
			enum err err; // some member's figures are not known, or no plan can be
			const char *text; // why; when OK, who is left out and why, or ""
			const char *groups; // when OK: who shares layers and why, or why nobody does, or ""; NULL as ""
			const struct plan *plan; // when OK: over members of the effect, the node on this machine first if it is in
			double token_s;   // predicted; with the same figures current_s of the plan of the effect. INFINITY: none, or it cannot be
			double current_s;
			double move_s;    // until every machine has loaded what it does not have under the current plan
		} planned;
	} u;
};

// FORWARD on the head: embedding of n_tokens tokens into buf, in the wire type.
struct coord_embed_item {
	const int32_t *tokens; // valid until FORWARD_DONE
	int32_t n_tokens;
	int32_t pos; // of the first
	int32_t buf;
};

// SAMPLE: final norm and lm_head of n_rows hidden states in buf, in position order; draw from the last one when `draw`.
struct coord_sample_item {
	uint64_t req;
	int32_t slot;   // identifies the session's running hash: 0 .. n_chains * n_slots - 1
	int32_t buf;
	int32_t n_rows;
	enum head_want want; // what buf has instead of hidden states, of one token (base/head_reply.h): what a peer sent
	bool hash;      // add the logits of every row to the session's hash
	bool first;     // the session's first rows: the hash starts
	bool draw;
	int32_t pos;    // of the token to draw
	struct sampling sampling;
};

enum coord_store_op {
	STORE_INVITE,        // put invite
	STORE_BIND,          // put member and invite, in one transaction
	STORE_INVITE_DELETE, // invite.token_id
	STORE_NAME,          // member.name of member.id, if that is still a member
	STORE_REVOKE,        // delete member.id and every invite bound to it, set member_epoch, in one transaction
};

enum coord_end { COORD_END_STOP, COORD_END_LENGTH, COORD_END_CANCELLED, COORD_END_ERROR };

enum coord_effect_type {
	COORD_FX_SEND,   // head bytes, then len bytes of buf from off; copied before the step's effects are done
	COORD_FX_RELAY,  // send the current message's bytes on `link`
	COORD_FX_TAKE,   // copy len bytes of the current message from msg_off into buf
	COORD_FX_CLOSE,  // LINK_DOWN follows; not orderly: at once, whatever is on its way
	COORD_FX_ACCEPT, // of a join handshake: send M4
	COORD_FX_REFUSE,
	COORD_FX_FORWARD,
	COORD_FX_SAMPLE,
	COORD_FX_EMIT,   // one token
	COORD_FX_END,    // the session's one end
	COORD_FX_STORE,  // fsync; answers STORED
	COORD_FX_ANSWER, // to an operator
	COORD_FX_NEED_RANDOM, // answers RANDOM
	COORD_FX_PLAN,   // the fastest plan over some members; answers PLANNED
	COORD_FX_LOG,
	COORD_FX_DISCONNECT, // end every link of a node at once, blocks links too: no LINK_DOWN follows
};

struct coord_effect {
	enum coord_effect_type type;
	union {
		struct {
			uint32_t link;
			const uint8_t *head;
			size_t head_len;
			int32_t buf; // -1: none
			size_t off, len;
		} send;
		struct {
			uint32_t link;
			bool orderly;
		} close; // also relay, accept, refuse
		struct {
			struct node_id node;
		} disconnect;
		struct {
			int32_t buf;
			size_t msg_off, len;
		} take;
		struct {
			uint32_t id;
			int32_t n_items;
			const struct coord_embed_item *items; // valid until FORWARD_DONE
		} forward;
		struct {
			uint32_t id;
			int32_t n_items;
			const struct coord_sample_item *items; // valid until SAMPLED
		} sample;
		struct {
			uint64_t req;
			int32_t token;
			int32_t pos;
		} emit;
		struct {
			uint64_t req;
			int32_t slot; // -1: never had one
			enum coord_end end;
			enum err err;     // when COORD_END_ERROR
			const char *text; // "" unless COORD_END_ERROR
		} end;
		struct {
			uint32_t id;
			enum coord_store_op op;
			struct member_record member;
			struct invite_record invite;
			struct member_epoch member_epoch;
		} store;
		struct {
			uint32_t id;
			int32_t chain; // of one chain only the answer to the newest id is waited for
			int32_t n;
			const struct node_id *nodes; // (n) copied before the step's effects are done; current, too
			const struct plan *current;  // NULL: there is none
		} plan;
		struct {
			uint64_t ticket;
			enum err err;
			const char *text;
		} answer;
		struct {
			int level; // enum log_level
			const char *text;
		} log;
	} u;
};

struct coord_effects {
	int32_t n, n_max;
	size_t n_bytes, bytes_max;
	uint8_t *bytes; // (bytes_max), behind the effects
	struct coord_effect at[];
};

struct coordinator;

// Memory it wants of its host, by the limits of a config: coordinator_size() bytes, aligned like what malloc returns; coordinator_n_tokens() ids of
// the sessions' tokens; and for what a step returns coordinator_effects_size() bytes. Buffers: coordinator_n_bufs() of coordinator_buf_bytes() each.
size_t coordinator_size(const struct coordinator_config *config);
size_t coordinator_n_tokens(const struct coordinator_config *config);
size_t coordinator_effects_size(const struct coordinator_config *config);
void coordinator_effects_init(const struct coordinator_config *config, struct coord_effects *fx);
int32_t coordinator_n_chains(const struct coordinator_config *config);
int32_t coordinator_n_sessions(const struct coordinator_config *config); // at most, under way or waiting
void coordinator_init(struct coordinator *c, const struct coordinator_config *config, int32_t *token_memory);
int32_t coordinator_n_bufs(const struct coordinator_config *config);
size_t coordinator_buf_bytes(const struct coordinator_config *config);

void coordinator_step(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
int64_t coordinator_deadline_ns(const struct coordinator *c);
void coordinator_check(const struct coordinator *c);

// Answers for the host's listener. Pure.
bool coordinator_find_psk(const struct coordinator *c, const uint8_t public_key[KEY_BYTES], uint8_t psk[KEY_BYTES]);
bool coordinator_find_token(const struct coordinator *c, const uint8_t token_id[TOKEN_ID_BYTES], int64_t wall_s, uint8_t secret[KEY_BYTES]);
// coordinator_find_peer tells how another member reaches this one: key, name, addresses where they are known; psk is left zero.
bool coordinator_find_peer(const struct coordinator *c, struct node_id id, struct msg_peer *out);
struct member_epoch coordinator_member_epoch(const struct coordinator *c);

// coordinator_find_chain returns the chain whose plan has this epoch, coordinator_chain_of the one a request is computed in; -1: none.
int32_t coordinator_find_chain(const struct coordinator *c, struct plan_epoch epoch);
int32_t coordinator_chain_of(const struct coordinator *c, uint64_t req);
uint32_t coordinator_n_moved(const struct coordinator *c); // answers that went on in another chain
uint32_t coordinator_n_better(const struct coordinator *c); // moves of a chain to a faster plan

// What status shows.
struct coord_member_status {
	struct node_id id;
	char name[NAME_CAP];
	char state[32];      // "ready", "standby", "fetching", "connected", "absent", "leaving", "draining", "drained", "suspect", "cannot load", "refused"
	char detail[REASON_CAP]; // why it is refused or was lost; ""
	char remote[ADDR_CAP];
	uint16_t port;       // where it listens for other nodes; 0: nowhere
	bool is_local;
	int32_t chain;       // -1: it stands by
	int32_t stage;       // -1: not in a plan
	int32_t place, n_members; // in its stage's group, the lead is 0; n_members 1: it is the stage
	uint32_t share, share_sum; // it has this part of each of its layers
	struct layer_spans layers; // of its stage, in each round
	uint32_t stream_share;     // as its plan has it
	uint32_t n_threads;
	char simd[SIMD_NAME_CAP];
	char next_link[16];  // how it reaches the next stage: "direct", "relay", "head"; "group": it does not lead its own
	uint64_t n_relayed;  // frames the coordinator passed on for it
	struct round_trip rtt;      // between it and the coordinator, once a second
	struct round_trip next_rtt; // between it and the next stage, over their direct link; n 0: none yet
	struct device_profile profile; // n_threads 0: it has not told
	double decode_bps, prefill_flops; // as observed: weight bytes and FLOP per second of its computing; 0: too little was seen
	struct link_figures to_node, from_node; // the coordinator's way to it and back, each as its sender sees it
	struct link_figures next_link_figures;  // its way to the next stage
	uint64_t n_heard, n_late;   // frames it sent us; those that ended a silence longer than 99 of 100 of that link
	struct msg_node_report report; // zeroes: none yet, or nothing to report
};

struct coord_chain_status {
	struct plan_epoch plan_epoch; // of its last plan; 0: none yet
	bool ready;
	char waiting_for[REASON_CAP]; // when not ready
	int32_t n_stages, n_nodes;    // of that plan; n_nodes counts each member of a group
	int32_t n_active;             // sessions
	int32_t n_steps;              // under way
	int32_t n_rounds;
	double predicted_s;           // per token, as the planner saw this plan last; 0: it was not asked about it
	char left_out[REASON_CAP];    // machines it does not use, and why; ""
	char groups[REASON_CAP];      // machines that share layers in it and why, or why none do; ""
};

struct coord_status {
	int32_t members_cap;
	struct coord_member_status *members; // (members_cap) the caller's; both are set before the call
	int32_t n_members;                   // there are; the first members_cap of them are told of
	struct plan_epoch plan_epoch;        // of the first chain
	struct member_epoch member_epoch;
	bool ready;                   // a chain is
	char waiting_for[REASON_CAP]; // when not ready
	int32_t n_active, n_waiting;  // sessions
	int32_t n_invites;
	int32_t n_bufs_used;
	uint64_t n_requests, n_tokens;
	uint64_t n_recovered; // answers that went on under a new plan
	uint64_t n_moved;     // answers that went on in another chain
	uint64_t n_better;    // moves of a chain to a faster plan
	int32_t n_chains;
	int32_t n_standing_by; // members that could hold layers, and are in no chain
	struct coord_chain_status chains[CHAINS_MAX];
};
int32_t coordinator_n_members_max(const struct coordinator_config *config);
void coordinator_status(const struct coordinator *c, struct coord_status *out);

#endif
