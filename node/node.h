// The node core: one stage of the ring as a pure state machine (DESIGN.md 4).
//
// Knows a plan, links, slots and credits; never a socket, a clock, a weight. The host (node/shell) feeds events and carries out the
// effects in order. One thread owns it. Nothing is allocated after node_init.
//
// Life of a step here: MESSAGE (a step frame) -> TAKE its payload into a buffer -> the queue; when the engine is free, FORWARD
// everything that waits, one item per slot -> FORWARD_DONE -> SEND to the next hop when it has a credit, and a CREDIT back to the
// previous one. Buffers hold hidden states in the plan's wire type, as they travel: the engine's worker decodes and encodes.
//
// Two links of one kind to one peer (a renewal; both dialled): frames are taken from both until LINK_DOWN, and sent on the newest only.
// A hop that has steps on an older link sends none until their credits are back, so that none overtakes another. The older link is closed
// when the far end has had time to hear of the newer; when it ends in order nothing was lost, else all that was sent on it may be.
//
// A plan_epoch is the unit of forgetting: any loss on a hop makes the coordinator send a new plan, which empties the queue, the slots
// and the credit counts, so that nothing lost is ever waited for. Frames of another epoch change nothing. What is not forgotten: the keys
// and values of layers that stay here, and the states that were sent on (KEEP), so that after a loss only what was lost is computed again
// (proto/frame.h, steps with a layer range). Both belong to a session; a step that builds on what is not here fails (STEP_NOT_KEPT).
//
// A stage may be a group of nodes (proto/frame.h, part frames), each with its part of every layer. The ring sees its first member, the lead: steps,
// credits and kept states are as above. A forward is computed by all members at a time: the lead tells the others (fellows) what, and each goes
// from exchange to exchange: FORWARD -> EXCHANGE, own contribution in the own part buffer -> SEND to each other member, TAKE theirs -> CONTINUE when
// all are here -> EXCHANGE ... -> FORWARD_DONE. Nobody is ever more than one exchange ahead of anybody, so two part buffers for each member do; in a
// ring members hear of the one before them only, and take more (turns.h). While a
// forward waits, another one may be computed: two are under way, with part buffers of their own. What builds on the older one (the next chunk of
// a prompt) stays behind it in each layer: it never computes towards an exchange that the older one has not passed.
// A member that fails an item tells the coordinator and the others, whose lead drops it. What ends a forward for one member alone, or the loss of a
// link between two, is told as a broken link: the plan that follows empties everything.
//
// A node without the model file (`fetches`) is told which part it would have before a plan counts on it (Prepare): it fetches, the engine computes
// on, and it says when those layers are here. A plan that comes meanwhile goes first.
#ifndef HEARTH_NODE_NODE_H
#define HEARTH_NODE_NODE_H

#include "base/err.h"
#include "base/ids.h"
#include "base/limits.h"
#include "flow/liveness.h"
#include "proto/frame.h"
#include "proto/msg.h"

#include <stdbool.h>
#include <stdint.h>

#define KEPT_MAX (SESSIONS_MAX * ROUNDS_MAX) // entries of kept states: of each slot, what was sent in each round
#define NODE_ITEMS_MAX 64      // sequences of one FORWARD; PART_ITEMS_MAX
#define NODE_FORWARDS_MAX 2    // of a group under way at once: MEMBER_FORWARDS_MAX
#define NODE_FELLOW_BUFS (2 * NODE_FORWARDS_MAX) // each forward under way, and the one that is told next in its place
#define NODE_EFFECTS_MAX 4608  // a step's worst case: every buffer's step sent, kept in memory and on disk, credited; every entry dropped; and a forward begun in a group
#define NODE_EFFECT_BYTES 196608
#define NODE_KEPT_FRAME_EXTRA 24 // bytes of a row on disk beside the row: what makes it private and proves it whole
#define NODE_KEPT_WRITING_BUFS 4 // buffers' worth of rows on their way to disk at most: a disk that is slower than the engine must not fill memory
#define NODE_PEERS_MAX (2 + GROUP_MEMBERS_MAX - 1) // the ring's neighbours, and the other members of a group
#define NODE_LINKS_MAX (8 + 2 * NODE_PEERS_MAX) // coordinator control and data, peers; each one's successor, and what both ends dialled at once, while they live

enum node_link_kind { NODE_LINK_CONTROL, NODE_LINK_DATA };

struct node_config {
	struct node_id self;
	struct node_id coordinator;
	char name[NAME_CAP];
	uint8_t model_hash[HASH_BYTES];
	int32_t n_layers;      // of the model file: a plan beyond it is refused
	int32_t layers_max;    // it has memory for, as it tells the coordinator; 0: it does not say
	int32_t hidden_dim;
	int32_t vocab_size;
	bool fetches;          // it has no model file: what layers need is fetched (PREPARE, or else LOAD) before they are loaded
	uint32_t n_threads;
	char simd[SIMD_NAME_CAP];
	uint16_t port;         // where it accepts node-to-node links; 0: nowhere
	struct address_list addresses;
	struct member_epoch member_epoch; // last one stored
	bool local;            // on the coordinator's machine: no liveness checks, never dials
	struct liveness_limits liveness;
	int64_t link_age_ns;   // a link older than this is made again (link-protocol.md: an hour)
	uint64_t keep_bytes;   // of states it sent that it keeps, so that a lost successor can be fed again; 0: none
	uint64_t keep_disk_bytes; // what passes them goes to disk, up to these; 0: none does
	bool may_probe; // it measures its machine while it has nothing to do, unless PROBED has told already
};

enum node_event_type {
	NODE_EV_START,        // first event
	NODE_EV_LINK_UP,
	NODE_EV_LINK_DOWN,
	NODE_EV_MESSAGE,
	NODE_EV_LOADED,
	NODE_EV_PREPARED,
	NODE_EV_EXCHANGE,     // a FORWARD or CONTINUE of a group has got as far as its next exchange; its own contribution is in its part buffer
	NODE_EV_FORWARD_DONE,
	NODE_EV_STORED,
	NODE_EV_KEPT,         // a KEEP_DISK is done
	NODE_EV_FETCHED,      // a FETCH_DISK is done; its rows are there for TAKE_FETCHED in this step
	NODE_EV_PROBED,       // what this machine can do: after PROBE, and whenever the host knows it by itself
	NODE_EV_WEIGHTS,      // where the engine has its weights has changed
	NODE_EV_LEAVE,        // operator: go in order
	NODE_EV_TICK,
};

// What a FORWARD took, for comparing with what the machine was measured to do. All zero: not known.
struct node_cost {
	uint64_t compute_ns;   // without waiting for the disk
	uint64_t weight_bytes; // of the layers, once, and of the keys and values that were looked at
	uint64_t token_flop;   // of one token
};

struct node_event {
	enum node_event_type type;
	int64_t now_ns;
	union {
		struct {
			uint32_t link; // the host's handle, never reused within 2^32 links
			struct node_id peer;
			enum node_link_kind kind;
			bool spare; // both ends dialled, and the other link stays (flow/dup_link): this one is received from, as its peer may use it
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
			uint32_t id;
			enum err err;
			bool lost_kv;     // there was no memory to carry over what layers that stay have computed
			const char *text; // when err
			struct msg_weight_report weights; // as they are now; steps is not read
			size_t part_bytes; // of a group's part buffers: no contribution of chunk_max tokens is longer
		} loaded;
		struct {
			uint32_t id;
			enum err err;
			const char *text; // when err
		} prepared;
		struct {
			uint32_t id;
			const enum err *errs; // (n_items) in the order of the effect
			const char *const *texts; // of each failure; NULL, or "" in a place: nothing is known
			struct msg_weight_report weights; // as above
			struct node_cost cost; // not read in a group
			bool was_cut; // in a group: it has ended before its last exchange, because of the items with an error: the others wait for what will not come
		} forward_done;
		struct {
			uint32_t id;
			const uint32_t *bytes; // (n_members) what each contributes to this member, 0 to part_bytes
			const struct split_sent *to; // (n_members) what of its own part buffer is for whom; NULL: bytes[self] from its beginning, for each
			uint64_t failed; // bit i: item i has failed here; FORWARD_DONE will say how
		} exchange;
		struct {
			uint32_t id;
			enum err err;
		} stored;
		struct {
			uint32_t id;
			enum err err;     // ERR_AUTH: what is there is not what was written
			const char *text; // when err; NULL or "": nothing is known
		} disk; // KEPT, FETCHED
		struct {
			enum err err; // ERR_CANCELLED: stopped; else it cannot be measured
			const char *text; // when err
			const struct device_profile *profile; // copied; when OK
		} probed;
		struct msg_weight_report weights; // steps is not read
	} u;
};

struct node_forward_item {
	int32_t buf, row; // wire-type hidden states of n_tokens tokens from that row on, in and out
	int32_t slot;
	int32_t pos;
	int32_t n_tokens;
	enum head_want want;  // of its last token: where the buffer begins it gets this instead of states; of a group, that of the first member
};

// Frames that stand side by side.
struct node_disk_run {
	uint32_t frame;
	int32_t n_rows;
};

// Where a buffer is: one of LOAD's n_bufs, or a part buffer, of part_bytes.
enum node_pool { NODE_BUFS, NODE_PARTS };

// node_part_ways returns how many part buffers each member of a group has for a forward.
static inline int32_t node_part_ways(enum split_mode mode, int32_t n_members)
{
	return split_is_ring(mode) ? n_members + 1 : 2;
}

// node_part_bufs returns how many that are, of all members and forwards; 0: no group.
static inline int32_t node_part_bufs(enum split_mode mode, int32_t n_members)
{
	return NODE_FORWARDS_MAX * node_part_ways(mode, n_members) * n_members;
}

// node_part_buf names one of a member's part buffers for a forward. A member's own contribution is always in its first.
static inline int32_t node_part_buf(int32_t n_members, int32_t member, int32_t forward, int32_t which)
{
	return (which * NODE_FORWARDS_MAX + forward) * n_members + member;
}

enum node_effect_type {
	NODE_FX_CONNECT,    // keep links of this kind to this peer up until DISCONNECT
	NODE_FX_DISCONNECT, // stop dialling the peer, and close its links
	NODE_FX_REFRESH,    // make a new link of this kind to this peer; the old one stays until it is up
	NODE_FX_CLOSE,      // close one link: LINK_DOWN follows; not orderly: at once, whatever is on its way
	NODE_FX_SEND,       // head bytes, then len bytes of buf from off; copied before the step's effects are done
	NODE_FX_TAKE,       // copy len bytes of the current message from msg_off into buf, at off
	NODE_FX_LOAD,       // open an engine for the layers, and n_bufs buffers of chunk_max tokens; what layers of the engine before it have
	                    // computed stays, where slots, context and the part of a group are the same; answers LOADED. In a group: for this member's part of the
	                    // layers, and node_part_bufs part buffers (node_part_buf)
	NODE_FX_STOP_LOAD,  // the LOAD under way is for a plan that is none any more: it may end early, with an error
	NODE_FX_PREPARE,    // fetch what this part of these layers needs, beside what the engine has, which goes on computing; answers PREPARED. Only where nothing is being
	                    // loaded or prepared
	NODE_FX_STOP_PREPARE, // it may end early, with an error; what was fetched stays
	NODE_FX_UNLOAD,     // close the engine and free the buffers: no plan needs this node. Only while no LOAD or FORWARD is under way
	NODE_FX_FORWARD,    // answers FORWARD_DONE; in a group, until it has ended, EXCHANGE. There a new one in its place, LOAD or UNLOAD may also come while one waits in an
	                    // exchange, which is given up: its positions count as not computed
	NODE_FX_CONTINUE,   // the other members' contributions of this exchange are in their part buffers: answers like FORWARD
	NODE_FX_KEEP,       // copy n_tokens rows of buf to an entry of kept states, from position pos on
	NODE_FX_FETCH,      // copy n_tokens rows from there to buf
	NODE_FX_DROP,       // free the entry's rows in memory
	// Rows on disk: frames of row_bytes + NODE_KEPT_FRAME_EXTRA in one file, which the core gives out. Writes and reads are done in the order in
	// which they were asked for; a row is written again at its place. What is read proves that it was written there for the same session, layer
	// and position.
	NODE_FX_KEEP_DISK,  // copy n_tokens rows of buf, from its row `row` on, and write them to the frames of `runs`; answers KEPT
	NODE_FX_FETCH_DISK, // read n_tokens rows, which belong to buf from its row `row` on; answers FETCHED
	NODE_FX_TAKE_FETCHED, // copy the rows that FETCHED brought to where FETCH_DISK said: buf is still waiting for them
	NODE_FX_STORE,      // keep the member_epoch (fsync); answers STORED
	NODE_FX_PROBE,      // measure this machine, in the gaps between other work; answers PROBED
	NODE_FX_STOP_PROBE, // there is something to do: the PROBE under way ends early
	NODE_FX_LOG,
	NODE_FX_EXIT,       // the program ends: err OK after an orderly leave
};

struct node_effect {
	enum node_effect_type type;
	union {
		struct {
			struct node_id peer;
			enum node_link_kind kind;
			const struct msg_peer *who; // CONNECT: keys and addresses, which the host copies; NULL for the coordinator, whom the host knows
		} connect; // also disconnect, refresh
		struct {
			uint32_t link;
			bool orderly;
		} close;
		struct {
			uint32_t link;
			const uint8_t *head;
			size_t head_len;
			enum node_pool pool;
			int32_t buf; // -1: none
			size_t off, len;
		} send;
		struct {
			enum node_pool pool;
			int32_t buf;
			size_t off, msg_off, len;
		} take;
		struct {
			uint32_t id;
			struct layer_spans layers;
			int32_t n_slots, ctx_len, chunk_max, n_bufs;
			size_t buf_bytes;
			enum wire_type wire;
			bool has_output; // with lm_head, or this member's rows of it
			uint32_t stream_share; // as the plan has it
			const struct msg_group *group; // n_members 0: none; valid until the effects are carried out
		} load;
		struct {
			uint32_t id;
			struct layer_spans layers;
			struct layer_part part;
			bool has_output; // and of the output head
		} prepare;
		struct {
			uint32_t id;
			int32_t forward; // of a group: its place, below NODE_FORWARDS_MAX; the host computes one after the other, in the order of effects
			bool is_behind;  // it uses slots of the one in the other place, which has begun before it and ends before it
			int32_t layer_begin, layer_end; // in one of the engine's spans: a part of it when lost ones are computed again
			int32_t n_items;
			const struct node_forward_item *items; // valid until FORWARD_DONE, or until it is given up
		} forward;
		struct {
			uint32_t id; // the FORWARD's
			int32_t forward; // its place
			int32_t which; // of each member's part buffers
		} resume; // CONTINUE
		struct {
			int32_t entry; // below KEPT_MAX
			int32_t pos, n_tokens, buf;
			size_t row_bytes;
		} keep; // also fetch, drop
		struct {
			uint32_t id;
			struct session_id session;
			int32_t layer;
			int32_t entry, pos, n_tokens, buf, row;
			size_t row_bytes;
			int32_t n_runs;
			const struct node_disk_run *runs;
		} disk; // KEEP_DISK, FETCH_DISK
		struct {
			uint32_t id;
			struct member_epoch member_epoch;
		} store;
		struct {
			int level; // enum log_level
			const char *text;
		} log;
		struct {
			enum err err;
			const char *text;
		} exit;
	} u;
};

struct node_effects {
	int32_t n;
	struct node_effect at[NODE_EFFECTS_MAX];
	size_t n_bytes; // of bytes used; what effects point into
	uint8_t bytes[NODE_EFFECT_BYTES];
};

struct node; // size from node_size()

size_t node_size(void);
// node_init sets up caller's memory of node_size() bytes.
void node_init(struct node *n, const struct node_config *c);
// node_step handles one event and appends to fx, which it empties first.
void node_step(struct node *n, const struct node_event *ev, struct node_effects *fx);
// node_deadline_ns returns when a TICK is wanted at the latest; INT64_MAX: never.
int64_t node_deadline_ns(const struct node *n);
// node_check asserts the invariants: credits and buffers are conserved, slots and queue agree.
void node_check(const struct node *n);

// node_find_psk answers the host's listener: the pairwise psk of a peer of the current plan. False: unknown or revoked.
bool node_find_psk(const struct node *n, const uint8_t public_key[KEY_BYTES], uint8_t psk[KEY_BYTES]);

struct member_epoch node_member_epoch(const struct node *n);

struct node_status {
	bool connected;           // control link up and welcomed
	struct plan_epoch epoch;
	int32_t stage, n_stages; // when epoch is not 0; n_stages 0: the plan has no part for this node
	struct layer_spans layers;
	bool loaded, direct;      // direct: to the next node
	int32_t n_bufs_used;
	uint64_t n_steps, n_tokens;
};
void node_status_get(const struct node *n, struct node_status *out);

#endif
