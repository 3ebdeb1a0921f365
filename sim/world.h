// The virtual world: one coordinator and its nodes, the real cores, on machines joined by simulated links, in virtual time.
//
// Every message is really encoded and decoded by the cores; with `encrypt` it also passes LNK1's handshake and records. What the
// shells do (dial, back off, keep one of two links, carry out effects, store) is done here by hosts that use the same pure code
// (flow/backoff, flow/dup_link, proto/lnk1), so that what the simulator finds is true of the program. Computing is answered by
// sim/sim_model: a chain of hashes, or a real model; how long it takes is the scenario's.
//
// Machine 0 is the coordinator's; with has_local_node it is also node 0, as `hearth serve` has it. Node i lives on machine i. SIM_HEAD
// names the coordinator's core. Same config, same history: sim_world_history is equal on every machine.
// One thread. Nothing is read from a clock, a file or the system's random source.
#ifndef HEARTH_SIM_WORLD_H
#define HEARTH_SIM_WORLD_H

#include "base/err.h"
#include "base/ids.h"
#include "base/limits.h"
#include "base/sampling.h"
#include "coordinator/coordinator.h"
#include "node/node.h"
#include "sim/sim_model.h"

#include <stdbool.h>
#include <stdint.h>

struct network; // sim/network.h

#define SIM_HEAD (-1)
#define SIM_MACHINES_MAX (NODES_MAX + 1) // of a household
#define SIM_SWARM_MAX (SWARM_NODES_MAX + 1) // of a world
#define SIM_REQUESTS_MAX 1024 // of a world's life, when its config does not say
#define SIM_TEXT_CAP 512

// ---- What is computed, and how long it takes

enum sim_work_kind { SIM_EMBED, SIM_FORWARD, SIM_SAMPLE, SIM_LOAD, SIM_STORE };

struct sim_work {
	enum sim_work_kind kind;
	int32_t machine;
	int32_t layer_begin, layer_end; // FORWARD, LOAD
	int32_t n_items;                // sequences of the batch
	int32_t n_tokens;               // FORWARD, EMBED: tokens of the batch. SAMPLE: rows through lm_head
	int64_t n_past;                 // FORWARD: KV positions before the batch, all items together
	int64_t n_pairs;                // FORWARD: positions looked at, summed over tokens
	uint32_t stream_share;          // LOAD: as the node was told
	int64_t part_num, part_den;     // FORWARD as far as the next exchange of a group: this much of the layer; part_den 0: all of the layers
	bool goes_on;                   // of a group: it has begun before
	int64_t begin_ns;
};

// What a machine takes when the scenario gives no function of its own.
struct sim_speed {
	int64_t visit_ns;       // each FORWARD
	int64_t layer_ns;       // reading a layer's weights, once per FORWARD
	int64_t token_layer_ns; // one token in one layer
	int64_t head_ns;        // SAMPLE, and each row another token_layer_ns
	int64_t load_layer_ns;  // LOAD, each layer
	int64_t store_ns;       // one fsync
};

struct sim_machine {
	char name[NAME_CAP];
	struct sim_speed speed;
	bool is_enrolled;     // a member from the start; else it joins when sim_world_invite says so
	int32_t layers_max;   // it has memory for; 0: it does not say
	struct device_profile profile; // what it tells of itself; n_threads 0: nothing
	int64_t fetch_layer_ns; // it has no model file, and a layer's blocks take so long to come; 0: it has the file
};

// ---- What an observer sees

enum sim_record_type {
	SIM_REC_WORK,   // machine computes [begin_ns, end_ns): work
	SIM_REC_SEND,   // a message from machine to peer: handed over at begin_ns, arrives at end_ns (INT64_MAX: never)
	SIM_REC_SUBMIT, // request at begin_ns
	SIM_REC_TOKEN,  // request's token number `index` shown
	SIM_REC_END,    // request ended; text says why when it failed
	SIM_REC_PLAN,   // the coordinator sends a new plan: epoch, index = stages
	SIM_REC_STAGE,  // one span of it, before SIM_REC_PLAN: machine has work.layer_begin to layer_end, index = its place on a step's road
	SIM_REC_FAULT,  // text names it
	SIM_REC_LINK,   // a link of machine to peer came up or ended: text says which; index: its serial number
	SIM_REC_LOG,    // a core's line
};

struct sim_record {
	enum sim_record_type type;
	int64_t begin_ns, end_ns;
	int32_t machine, peer;
	bool is_head;          // of machine 0: the coordinator's part, not node 0's
	struct sim_work work;  // WORK; STAGE: its layers
	uint64_t bytes;        // SEND: on the wire
	bool is_step;          // SEND: hidden states; else control, credits, pings, handshakes
	int32_t request;       // SUBMIT, TOKEN, END; SEND of a step: -1 when unknown
	int32_t index, token;  // TOKEN
	enum coord_end end;    // END
	struct plan_epoch epoch;
	const char *text;      // valid during the call
};

struct sim_observer {
	void *ctx;
	void (*on)(void *ctx, const struct sim_record *r); // NULL: nobody looks
};

// ---- The scenario

struct sim_config {
	uint64_t seed;
	int32_t n_machines;    // the coordinator's included
	const struct sim_machine *machines;
	bool has_local_node;
	struct network *network; // borrowed, one fresh network of n_machines machines

	struct sim_model_config model;
	enum wire_type wire;
	int32_t n_slots, ctx_len, chunk_max, hop_credits, n_nodes_min;
	int32_t n_rounds;        // 0: one
	int32_t split[STAGES_MAX], n_split;
	uint32_t split_streams[STAGES_MAX]; // as struct plan_stage's stream_share
	bool may_group;          // and groups with them; the model is shared
	bool by_cost;            // plans are drawn, as the solver might give them; without a split or a placement
	int32_t requests_max;    // of the world's life; 0: SIM_REQUESTS_MAX
	int32_t sessions_max;    // of the coordinator; 0: its default
	int32_t n_chains;        // 0: one
	const struct placed_chain *placement; // (n_chains) by machines' names, borrowed; NULL: the coordinator deals
	enum split_mode group_mode;           // of its groups
	bool has_output;                      // lm_head is the last stage's; with a chain of hashes, and one round
	bool has_stop;           // token 0 ends an answer
	int64_t session_wait_ns; // 0: the program's default
	int64_t stall_ns;        // of coordinator_config; 0: the program's default
	uint64_t keep_bytes;     // of states each node keeps of what it sent
	uint64_t keep_disk_bytes; // and on its disk, of what passes them
	int64_t link_age_ns;     // 0: the program's default, an hour
	struct liveness_limits liveness; // zeroed: the program's default

	bool encrypt;       // really LNK1; else messages of the same sizes
	bool check_each;    // x_check after each step of a core (the seeds of `sim check`; a prediction needs it not)
	bool recovery;      // checks: the loss of a node may end no answer
	bool journal;       // requests are on disk: a coordinator that starts again takes them up, as its HTTP API does
	uint64_t events_max; // more is a failure: something goes round in circles. 0: no bound

	void *duration_ctx;
	int64_t (*duration_ns)(void *ctx, const struct sim_work *work); // NULL: machines[].speed
	struct sim_observer observer;
};

struct sim_world;

// sim_world_open: ERR_NOMEM, or ERR_RANGE with a message about the scenario. Nothing has happened yet; time is 0.
MUST_USE enum err sim_world_open(const struct sim_config *c, struct sim_world **out, struct errmsg *em);
void sim_world_close(struct sim_world *w); // NULL is allowed

// sim_world_run carries out everything up to `until_ns`, or stops at the first failed check: false, sim_world_failure says which.
bool sim_world_run(struct sim_world *w, int64_t until_ns);
int64_t sim_world_now_ns(const struct sim_world *w);
const char *sim_world_failure(const struct sim_world *w); // NULL: none
// sim_world_tell_failure: ERR_STATE, with the time and what failed.
MUST_USE enum err sim_world_tell_failure(const struct sim_world *w, struct errmsg *em);
uint64_t sim_world_history(const struct sim_world *w);

// ---- Requests

struct sim_request {
	int64_t at_ns;         // when the client asks
	int32_t n_prompt;      // tokens drawn from the world's seed and the request's number
	int32_t n_predict;
	struct sampling sampling;
	bool hash_logits;
	bool must_succeed;     // asked for after the last fault: any error is a failure
	int64_t cancel_ns;     // after at_ns; 0: never
};

enum sim_request_state {
	SIM_REQ_PLANNED,
	SIM_REQ_OPEN,    // accepted
	SIM_REQ_REFUSED, // nobody listened
	SIM_REQ_HELD,    // the coordinator crashed; it is in the journal
	SIM_REQ_LOST,    // the coordinator crashed; its client saw a broken connection
	SIM_REQ_ENDED,
};

struct sim_request_view {
	enum sim_request_state state;
	enum coord_end end;   // ENDED
	enum err err;         // of an end with an error
	int64_t submit_ns, first_ns, last_ns, end_ns; // 0: not yet
	int32_t n_prompt, n_tokens;
};

// sim_world_submit returns the request's number.
int32_t sim_world_submit(struct sim_world *w, const struct sim_request *r);
int32_t sim_world_n_requests(const struct sim_world *w);
void sim_world_request(const struct sim_world *w, int32_t request, struct sim_request_view *out);
// sim_world_n_open counts requests that are planned or accepted and have not ended.
int32_t sim_world_n_open(const struct sim_world *w);

// ---- What an operator and fate do, at the present moment of the world

void sim_world_invite(struct sim_world *w, int32_t machine);  // an invite for a machine that is no member; it joins with it
void sim_world_revoke(struct sim_world *w, int32_t machine);
void sim_world_leave(struct sim_world *w, int32_t machine);   // `hearth drain` on the machine itself
void sim_world_crash(struct sim_world *w, int32_t machine, bool power); // the process; with power the whole machine, and what was not synced
void sim_world_start(struct sim_world *w, int32_t machine);   // again, with what its disk holds; nothing happens when it runs
void sim_world_pause(struct sim_world *w, int32_t machine, int64_t until_ns); // the process stands still (SIGSTOP, a lid)
void sim_world_slow(struct sim_world *w, int32_t machine, int32_t percent); // of the normal duration; 100: normal again
void sim_world_out_of_memory(struct sim_world *w, int32_t machine, bool is_out); // LOAD fails while it is so
void sim_world_step_clock(struct sim_world *w, int64_t by_s); // the coordinator's wall clock
void sim_world_flip(struct sim_world *w, int32_t machine, uint64_t draw); // one bit of the next record on one of its links
void sim_world_reset(struct sim_world *w, int32_t machine, uint64_t draw); // one of its connections breaks, both ends hear it
// sim_world_stall holds back one direction of one of its connections.
void sim_world_stall(struct sim_world *w, int32_t machine, uint64_t draw, int64_t for_ns);
// sim_world_healed: cuts of the network were healed: what they swallowed is sent again.
void sim_world_healed(struct sim_world *w);

// Storage of the coordinator (machine 0) or a node.
enum sim_disk_fault {
	SIM_DISK_OK,
	SIM_DISK_FULL,      // writes fail, nothing is written
	SIM_DISK_EIO,       // writes fail; whether they reached the disk is known after a restart
	SIM_DISK_LOST_SYNC, // writes succeed, and are lost when the power goes
};
void sim_world_disk(struct sim_world *w, int32_t machine, enum sim_disk_fault fault);
// sim_world_flip_disk turns a bit of what is stored: the next start refuses it, until sim_world_restore_disk brings a backup.
void sim_world_flip_disk(struct sim_world *w, int32_t machine);
// sim_world_flip_kept turns a bit of a kept state on a node's disk. False: there is none.
bool sim_world_flip_kept(struct sim_world *w, int32_t machine, uint64_t draw);
void sim_world_restore_disk(struct sim_world *w, int32_t machine);
// sim_world_tear makes the next write one that stops in the middle: the power goes with it.
void sim_world_tear(struct sim_world *w, int32_t machine);

// ---- Looking

int32_t sim_world_chain_of(const struct sim_world *w, int32_t request); // that a request is computed in; -1: none
bool sim_world_is_up(const struct sim_world *w, int32_t machine);      // its process runs and is not paused
bool sim_world_is_member(const struct sim_world *w, int32_t machine);  // coordinator and machine agree on it, by what their disks hold
void sim_world_status(const struct sim_world *w, struct coord_status *out); // zeroed while the coordinator is down
// sim_world_expect_rest demands what must hold when no request is open and nothing is on its way: every pool empty, every credit home.
void sim_world_expect_rest(struct sim_world *w);
// sim_world_mark_fault tells the observer and the history that something is done to a machine.
void sim_world_mark_fault(struct sim_world *w, int32_t machine, const char *text);
int32_t sim_world_n_machines(const struct sim_world *w);
bool sim_world_is_quiet(const struct sim_world *w); // no step, credit or work is under way
void sim_world_fail(struct sim_world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);

struct sim_counts {
	uint64_t n_events, n_steps_of_cores, n_frames, n_tokens;
	uint32_t n_plans;        // sent
	uint32_t n_piped;        // of them, with more than one round
	uint32_t n_handshakes, n_links_lost;
	uint32_t n_ended_well, n_ended_badly, n_cancelled, n_lost, n_refused; // requests
	uint32_t n_node_losses;  // a machine of the running plan went down
	uint32_t n_double_losses; // a second one before the plan was replaced
	uint32_t n_recovered;    // answers that went on after a new plan
	uint32_t n_moved;        // answers that went on in another chain
	uint32_t n_better;       // moves of a chain to a plan that is faster
	uint32_t n_taken_up;     // requests that another run of the coordinator took from the journal
	uint32_t n_batched;      // FORWARDs of several sequences
	uint32_t n_partial;      // FORWARDs of some of a stage's layers only: those that were lost
	uint32_t n_fetched;      // states that a stage had kept in memory and sent again
	uint32_t n_kept_disk;    // states written to disk
	uint32_t n_fetched_disk; // and read back
	uint32_t n_disk_refused; // writes and reads of them that failed
	uint32_t n_prepared;     // parts that were fetched before a plan counted on them
	uint32_t n_waited;       // LOADs that had to wait for blocks
	uint32_t n_shared;       // stages of plans sent that are groups
	uint32_t n_exchanges;    // that members of groups have passed
	uint32_t n_beside;       // forwards of a group begun while another one was under way
	uint32_t n_heads;        // forwards after which a last stage gave what is left of logits
	uint32_t n_given_up;     // forwards that a member of a group waited in
	uint32_t n_group_losses; // of a running plan, of a machine that shares its layers
};
struct sim_counts sim_world_counts(const struct sim_world *w);

#endif
