// What the files of the coordinator core share. Private to coordinator/*.c.
#ifndef HEARTH_COORDINATOR_COORD_STATE_H
#define HEARTH_COORDINATOR_COORD_STATE_H

#include "base/layer_part.h"
#include "coordinator/coordinator.h"
#include "flow/link_stats.h"
#include "flow/observed_rate.h"
#include "flow/round_trip.h"
#include "flow/backoff.h"

#define STORES_MAX 32        // writes under way
#define LINKS_PER_MEMBER 4   // two, and each one's successor while both live; join links
#define LINK_BLOCK 64        // links whose deadlines are looked at together
#define LINK_BLOCKS_MAX (LINKS_PER_MEMBER * (SWARM_NODES_MAX + 1) / LINK_BLOCK + 1)
#define LINK_PLACES 8192     // a power of two, more than there are links
#define PAIRS_MAX (STAGES_MAX * (GROUP_MEMBERS_MAX + 1) / 2) // of one ring: neighbours, and members of each group with each other
#define PAIR_FIGURES_MAX 512 // ways between two nodes that are remembered: those of eight rings

enum member_state { MEMBER_ABSENT, MEMBER_CONNECTED, MEMBER_READY, MEMBER_REFUSED };

struct member {
	bool used;
	bool is_local;
	struct member_record record;
	enum member_state state;
	bool has_data; // its data link is up
	bool pending;     // its binding is not on disk yet
	bool waits;       // its Hello, for the hash of our own model file
	struct plan_epoch told; // the last plan it was told of on this control link
	bool load_failed;       // its last part, detail says why; until it loads one, or says Hello
	int64_t retry_ns;       // until then no plan counts on it; 0: plans do
	struct backoff backoff; // of that pause
	// Of one that fetches: layers that it said it holds, and what it was asked to fetch.
	struct held_layers held;
	uint64_t ask_serial;
	struct layer_spans asked;
	struct layer_part asked_part;
	bool asks;            // for `asked`, with no answer yet
	int64_t ask_again_ns; // it could not: not before; 0: at any time
	bool leaving;
	bool drained; // an operator wants it without layers
	bool bye_sent;
	int32_t n_flaps;   // times it was lost while it had a part, none of them long ago
	int64_t lost_ns;   // the last time
	int64_t settle_ns; // lost before and back: until then it is only used if nothing goes without it; 0: settled
	char detail[REASON_CAP];
	char remote[ADDR_CAP];
	struct msg_hello hello;
	// What it holds of sessions of an earlier plan: keys and values of the layers in kv, and the states it sent to another stage, over the
	// boundaries in sent (those for the head it does not keep). kv_epoch 0: nothing.
	struct plan_epoch kv_epoch;
	struct layer_set kv, sent;
	struct layer_part kv_part; // of the layers in kv: of use to the same part only
	int32_t chain; // it belongs to; -1: to none. Of one chain, everybody does
	int32_t stage; // in its chain's plan; -1: none
	int32_t place; // among the members of that stage: 0 leads it, and is the stage for the ring
	bool loaded;   // for that plan
	bool next_direct;
	uint64_t n_relayed;
	struct round_trip rtt;      // of its control links
	uint64_t n_heard, n_late;   // frames on all its links; those that were late for theirs
	struct msg_node_report report; // the last one of its process
	struct device_profile profile; // the last one of its machine; n_threads 0: none yet
	struct observed_rate decode, prefill, disk; // bytes, FLOP, and bytes read that it really does
	struct link_stats stats;        // of its data links
	struct link_figures to_node, from_node; // the coordinator's way to it, by them, and its way here as it told
	struct round_trip next_rtt; // to the next stage, by its own measure; of the plan
	struct node_id next_peer;   // that was of
	int32_t first_link;         // of its links; -1: none
};

// Two links of one kind to one member: frames are taken from both until LINK_DOWN, and sent on the newest only. The end of a link is a loss
// when it is the newest, or when frames of the plan were sent on it and it did not end in order.
struct coord_link {
	uint32_t handle; // 0: free
	enum coord_link_kind kind;
	int32_t member;  // index; JOIN links too
	struct liveness life;
	uint64_t order;         // of coming up: the highest is the newest
	struct plan_epoch used; // the last plan of which something was sent on it
	bool retired;           // a successor is up, since retired_ns
	int64_t retired_ns;
	bool closing;           // by us, in order, after that: nothing can be sent on it any more, and its host ends it however silent it is
	uint8_t token_id[TOKEN_ID_BYTES]; // JOIN
	int32_t next;                     // of its member's links; -1: the last
};

// A pairwise psk of two machines with a link, kept while both stay members, so that a new plan breaks no link.
struct pair {
	struct node_id a, b;
	uint8_t psk[KEY_BYTES];
	bool used;
};

enum plan_state {
	PLAN_NONE,    // waiting_for says what is missing
	PLAN_KEYS,    // drawing pairwise psks
	PLAN_LOADING, // sent, not every stage is ready
	PLAN_READY,
};

// What a node told of its way to another one. Outlives plans: whoever was a neighbour once need not be measured again.
struct pair_figures {
	struct node_id from, to;
	struct link_figures figures;
	int64_t told_ns; // 0: a free place
};

// The members that may hold layers of a chain, in the order of their places: the node on this machine first.
struct candidates {
	int32_t n;
	struct node_id nodes[STAGES_MAX];
	const char *names[STAGES_MAX];
};

// What the solver was asked last about a chain, and what it answered.
struct proposal {
	uint32_t id; // under way; 0: nothing is
	int32_t n;   // the members it was asked about
	struct node_id nodes[STAGES_MAX];
	bool is_wanted; // the next plan is this one, else it is only compared with the plan there is
	bool is_known;  // an answer about them came
	enum err err;   // no figures, or no plan
	struct plan plan;
	double token_s, current_s, move_s; // of PLANNED
	char left_out[REASON_CAP], groups[REASON_CAP]; // likewise
	int64_t look_ns;        // when the solver is asked again
	int64_t gain_since_ns;  // its answers have been worth a change since then; 0: they are not
	int64_t next_change_ns; // no change for speed before
	struct backoff changes;
};

// A chain: one whole ring of machines, which hold every layer of the model once, with its own plans, credits and slots. A member is in one
// chain at most, and so is a session. Plan epochs are counted over all chains: an epoch names a chain, too.
struct chain {
	int32_t index;
	struct plan plan;
	int32_t members[STAGES_MAX]; // leads of its stages, as it was made: where member_of_stage looks first
	enum plan_state plan_state;
	bool plan_dirty; // membership changed since the plan was made
	bool plan_repaired; // made to move little: a better one is made when no answer is under way
	bool plan_moves;    // a better one is worth it even under answers
	struct proposal proposal;
	int64_t grace_ns; // until then who was lost by a reset may come back before a plan is made without it
	char waiting_for[REASON_CAP];
	struct plan base; // of a placement: its layers, and who holds them now; n_stages 0: no plan yet
	int32_t n_wanted; // of members that were dealt: how many it began with
	struct plan prospect; // what it would have if every block were everywhere; n_stages 0: none, or nobody fetches
	int64_t prospect_ns;  // since when
	bool prospect_moves;  // it is worth a change even under answers

	int32_t *slot_owner; // (n_slots) session index; -1: free
	int32_t hop_credits; // of each hop in each round, under this plan
	int32_t credits_out; // steps stage 0 still takes of the head
	int64_t credited_ns; // when it last took one
	bool draining;       // steps are on a link to it that has a successor: none is sent until all credits are back
	int32_t relays[SPANS_MAX]; // steps from this span to the next that were relayed and not credited back
	uint32_t relay_link[SPANS_MAX]; // that they are on: the next one of them goes there, too, so that none overtakes another
	int32_t n_held;      // steps from the last stage not credited back
};

enum session_state { SESSION_FREE, SESSION_WAITING, SESSION_ACTIVE };

struct session {
	enum session_state state;
	struct session_id id;
	uint64_t req;
	int64_t since_ns; // submitted, or waiting for a cluster since
	uint64_t order; // who waits longer goes first
	int32_t *tokens; // (ctx_len): prompt, then what was generated
	int32_t n_prompt, n_tokens, n_max; // n_max: prompt + n_predict, at most ctx_len
	struct sampling sampling;
	bool hash_logits, ignore_stop;
	int32_t chain;     // when active
	int32_t slot;      // of the chain, when active
	int32_t head_slot; // of the head's engine, when active: stays when the session moves to another chain
	int32_t n_embedded; // tokens that have gone to the embedding
	bool embedding;     // the worker reads `tokens`: the entry is not reused, even when the session has ended
	bool is_ready;      // its next step waits for a credit
	int32_t ready_buf;  // with these states; -1: none
	int32_t ready_n;    // tokens of it
	uint32_t seq_sent, seq_back; // steps
	uint16_t sent_n[STAGES_MAX + 1]; // tokens of each step under way, at seq modulo its length: steps_ahead() is never more
	int32_t pos_back;            // positions that have come back
	int32_t replay_to;           // positions before it were done under an earlier plan: computed again for the stages' sake, not for ours
	int32_t layer_begin, layer_end; // what is computed again of those positions; 0, 0: every layer
	struct plan_epoch kv_epoch;  // the plan under which every stage has computed every position that came back; 0: none
	int32_t n_lost;              // plans lost since its last token
	int64_t progress_ns;         // when the ring last did something for it, or began to be waited for
	int64_t pass_ns;             // when the first step left of a pass over all its tokens that is not over yet; 0: none
	int64_t position_ns;         // what a position of the last such pass took; 0: not known
	int64_t move_ns;             // halted: to another chain at this time, when its own has no plan until then
	bool hash_started;
};

// A reply of a ring that waits for SAMPLE.
struct reply {
	struct session_id session;
	int32_t chain;
	int32_t buf;
	int32_t pos; // of its first position
	int32_t n_rows;
	enum head_want want;
	bool draw;
};

enum store_for { STORE_FOR_NOBODY, STORE_FOR_INVITE, STORE_FOR_JOIN, STORE_FOR_ACK, STORE_FOR_NAME, STORE_FOR_REVOKE };

struct store_wait {
	uint32_t id; // 0: free
	enum store_for what;
	uint64_t ticket;           // INVITE, REVOKE
	uint32_t link;             // JOIN, ACK
	struct node_id node;       // JOIN, NAME, REVOKE
	struct member_epoch member_epoch; // REVOKE: as written
	uint8_t token_id[TOKEN_ID_BYTES]; // INVITE, JOIN, ACK
};

struct coordinator {
	struct coordinator_config config;
	int64_t now_ns, stepped_ns, deadline_ns;
	int64_t wall_s;
	struct member_epoch member_epoch;
	int32_t n_members; // places: the local node's, always members[0] when there is one, and limits.nodes_max others
	struct member *members; // (n_members)
	struct invite_record invites[INVITES_MAX];
	bool invite_used[INVITES_MAX];
	bool invite_on_disk[INVITES_MAX];
	int32_t n_links;
	struct coord_link *links; // (n_links) places
	uint64_t n_links_up; // so far
	int64_t link_bound_ns[LINK_BLOCKS_MAX]; // no link of a block of LINK_BLOCK has an earlier deadline
	int32_t link_places[LINK_PLACES]; // where a link with a handle modulo LINK_PLACES was put last
	bool pauses_changed;        // retry_ns or settle_ns of a member was set
	int64_t pause_deadline_ns;  // the earliest of them, unless they changed
	struct store_wait stores[STORES_MAX];

	int32_t n_chains;
	struct chain *chains; // (n_chains)
	bool is_single;  // one chain without a placement: every member belongs to it
	bool is_dealt;   // members have been given to chains
	int64_t enough_ns; // of a placement: since then enough members are there to begin; 0: not yet
	bool has_news;   // members or plans changed since the last pump
	bool had_plan;   // one has been ready once
	uint64_t last_epoch;
	struct pair *pairs; // (n_chains * PAIRS_MAX) places
	struct pair_figures pair_figures[PAIR_FIGURES_MAX];
	struct device_profile own_profile; // of this machine; n_threads 0: none yet
	bool random_asked;

	int32_t n_sessions;
	struct session *sessions; // (n_sessions) places
	int32_t n_head_slots;
	int32_t *head_owner; // (n_head_slots) session index; -1: free
	uint64_t last_session, last_order;
	int32_t n_bufs;
	bool *buf_used; // (n_bufs)

	// The head's engine serves all chains.
	uint32_t forward_id; // 0: no embedding under way
	int32_t n_embed;
	struct coord_embed_item embed[COORD_ITEMS_MAX];
	int32_t embed_session[COORD_ITEMS_MAX]; // index
	struct session_id embed_id[COORD_ITEMS_MAX];
	struct plan_epoch embed_epoch[COORD_ITEMS_MAX];

	struct reply *replies; // (n_chains * hop_credits) in the order they came
	int32_t n_replies;
	uint32_t sample_id; // 0: no sampling under way
	int32_t n_sample;
	struct coord_sample_item sample[COORD_ITEMS_MAX];
	struct session_id sample_session[COORD_ITEMS_MAX];
	int32_t sample_chain[COORD_ITEMS_MAX];
	struct plan_epoch sample_epoch[COORD_ITEMS_MAX];

	uint32_t next_id;
	uint64_t n_requests, n_tokens, n_recovered, n_moved, n_better;
};

// coordinator.c
struct coord_effect *coord_fx(struct coord_effects *fx, enum coord_effect_type type);
const uint8_t *coord_fx_bytes(struct coord_effects *fx, const void *data, size_t len);
const char *coord_fx_text(struct coord_effects *fx, const char *text);
void coord_log(struct coord_effects *fx, int level, const char *fmt, ...) PRINTF_LIKE(3, 4);
void coord_answer(struct coord_effects *fx, uint64_t ticket, enum err err, const char *fmt, ...) PRINTF_LIKE(4, 5);
void coord_close(struct coord_effects *fx, uint32_t link, bool orderly);
void coord_send_msg(struct coordinator *c, int32_t member, const struct msg *m, struct coord_effects *fx);
void coord_send_bytes(struct coord_effects *fx, uint32_t link, const uint8_t *data, size_t len);
// coord_lose_member: a link of a member in a ring is gone, and the plan with it. Its answers wait for the next one.
void coord_lose_member(struct coordinator *c, int32_t member, const char *reason, struct coord_effects *fx);

// coord_links.c
void coord_links_on_up(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void coord_links_on_down(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
// coord_links_end ends all links of a member that is none any more, those included whose LINK_DOWN is not awaited.
void coord_links_end(struct coordinator *c, int32_t member, struct coord_effects *fx);
// coord_links_on_sent: a step with so many bytes of hidden states goes out on a data link. coord_links_on_pong: a PONG came.
void coord_links_on_sent(struct coordinator *c, const struct coord_link *l, uint64_t bytes, struct coord_effects *fx);
void coord_links_on_pong(struct coordinator *c, const struct coord_link *l, uint64_t cookie);
void coord_links_tick(struct coordinator *c, struct coord_effects *fx);
int64_t coord_links_deadline_ns(struct coordinator *c);
// coord_links_is_suspect: one of a member's links has been silent for longer than a healthy one is.
bool coord_links_is_suspect(const struct coordinator *c, int32_t member);
// coord_links_forgive restarts all timers of silence: this machine was away itself.
void coord_links_forgive(struct coordinator *c);
struct coord_link *coord_link_find(struct coordinator *c, uint32_t handle);
// coord_link_of returns the link to send on, the newest; or NULL.
struct coord_link *coord_link_of(struct coordinator *c, int32_t member, enum coord_link_kind kind);
// coord_link_use notes that something of its member's plan is sent on a link.
void coord_link_use(struct coordinator *c, struct coord_link *l);

// members.c
int32_t member_find(const struct coordinator *c, struct node_id id);
// member_chain returns the chain a member belongs to, or NULL.
struct chain *member_chain(const struct coordinator *c, int32_t member);
// member_of_stage returns who leads a stage of the chain's plan, member_of_seat whoever is in it; -1: it is no member any more.
int32_t member_of_stage(const struct coordinator *c, const struct chain *ch, int32_t stage);
int32_t member_of_seat(const struct coordinator *c, const struct chain *ch, struct plan_seat at);
bool member_is_eligible(const struct member *m);
void members_restore(struct coordinator *c, const struct coord_event *ev);
void members_on_model(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void members_on_join(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void members_on_join_failed(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void members_on_join_link(struct coordinator *c, struct coord_link *l, struct coord_effects *fx);
void members_on_join_message(struct coordinator *c, struct coord_link *l, const struct msg *m, struct coord_effects *fx);
void members_on_invite(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void members_on_drain(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void members_on_revoke(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void members_on_stored(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void members_on_hello(struct coordinator *c, int32_t member, const struct msg_hello *h, struct coord_effects *fx);
// members_expire forgets invites that are over, secrets and all.
void members_expire(struct coordinator *c, struct coord_effects *fx);
int64_t members_deadline_ns(const struct coordinator *c);

// member_figures.c: what is known of machines and of the ways between them.
void member_figures_on_profile(struct coordinator *c, int32_t member, const struct device_profile *p);
void member_figures_on_own(struct coordinator *c, const struct device_profile *p); // of the coordinator's machine
void member_figures_on_loaded(struct coordinator *c, int32_t member); // its layers, or failed to
void member_figures_on_report(struct coordinator *c, int32_t member, const struct msg_node_report *r);
void member_figures_on_link(struct coordinator *c, int32_t member, const struct msg *m);
// member_layers_max bounds how many layers a member can hold, LAYERS_MAX when nothing is known: what it says (a simulated volunteer), else of how many its
// cap holds the KV cache, since weights are streamed where they do not fit. A live node says nothing: its engine refuses, with the arithmetic, before it loads.
int32_t member_layers_max(const struct coordinator *c, const struct member *m);
// member_figures_of_pair returns what is known of a way between two nodes, or NULL.
const struct link_figures *member_figures_of_pair(const struct coordinator *c, struct node_id from, struct node_id to);
// member_figures_forget: a node is no member any more.
void member_figures_forget(struct coordinator *c, struct node_id id);

// planning.c
bool planning_say_missing(const struct coordinator *c, char why[REASON_CAP], const char *what, int32_t have, int32_t want);
void planning_init_member(struct member *m);
void planning_pump(struct coordinator *c, struct coord_effects *fx);
// planning_next returns the stage behind a stage, or -1: its steps go to the head only.
int32_t planning_next(const struct plan *p, int32_t stage);
// planning_is_between_machines: there is a hop from a stage to the next, and it leaves the coordinator's machine out.
bool planning_is_between_machines(const struct coordinator *c, const struct chain *ch, int32_t stage);
// planning_is_possible tells whether those who may hold layers now are enough for a plan; `why` says what is missing.
bool planning_is_possible(const struct coordinator *c, const struct chain *ch, char why[REASON_CAP]);
// planning_note: a member came, went or changed; NULL: one that is forgotten. Its own chain looks again when it has no ready plan, and with is_news in
// any case; one that stands by is looked at by chains that lack somebody.
void planning_note(struct coordinator *c, const struct member *m, bool is_news);
void planning_on_random(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
// planning_on_weights_lost: a member cannot read its weights any more. When the others can do without it, the chain loses it as if its link had gone,
// and it stands back for a while; false: they cannot, and nothing changes.
bool planning_on_weights_lost(struct coordinator *c, int32_t member, const char *error, struct coord_effects *fx);
void planning_on_loaded(struct coordinator *c, int32_t member, struct plan_epoch epoch, const char *error, struct coord_effects *fx);
// planning_drop: what is on its way in a chain may be lost, credits too. Its next plan begins with full credits under a new plan_epoch; its answers
// wait for it.
void planning_drop(struct coordinator *c, struct chain *ch, struct coord_effects *fx);
// planning_retry counts again on members whose pause is over: after a failed load (where nothing works without them, that makes a new plan), and
// after a loss.
void planning_retry(struct coordinator *c);
int64_t planning_deadline_ns(struct coordinator *c);

// planning_split parts the layers among these: evenly, or as the operator gave them. False: that is not possible, and `why` says so.
bool planning_split(const struct coordinator *c, const struct candidates *who, struct plan *out, char why[REASON_CAP]);
// planning_is_somebody tells whether there is anybody to plan with; if not, `why` says who is missing.
bool planning_is_somebody(const struct coordinator *c, const struct chain *ch, int32_t n, char why[REASON_CAP]);
// planning_find_candidates: `names` are borrowed of the members.
void planning_find_candidates(const struct coordinator *c, const struct chain *ch, struct candidates *out);
bool planning_same_stages(const struct plan *a, const struct plan *b);
// planning_same_streams: and they stream as much. What differs in that only is no other plan: no layers are loaded anew for it.
bool planning_same_streams(const struct plan *a, const struct plan *b);

// pairs.c: two machines are found in either order.
struct pair *pairs_find(struct coordinator *c, struct node_id a, struct node_id b); // or NULL
struct pair *pairs_find_hop(struct coordinator *c, const struct plan *p, int32_t stage); // of a stage's lead and the next one's; or NULL
// pairs_missing finds two that have a link under the chain's plan, and no key for it yet.
bool pairs_missing(struct coordinator *c, const struct chain *ch, struct pair *out);
struct pair *pairs_free(struct coordinator *c); // a place that no plan needs, or NULL
void pairs_forget(struct coordinator *c, struct node_id id); // it is no member any more

// briefing.c
// briefing_send tells a member its part of the chain's plan. All keys are drawn.
void briefing_send(struct coordinator *c, const struct chain *ch, struct plan_seat at, struct coord_effects *fx);
// briefing_tell_outsiders: who is here without a part must not go on with an old one, its memory and its dialling.
void briefing_tell_outsiders(struct coordinator *c, struct coord_effects *fx);

// proposals.c
enum proposal_verdict { PROPOSAL_PLAN, PROPOSAL_ASK, PROPOSAL_UNKNOWN };
void proposals_init(struct chain *ch);
// proposals_choose fills `out` with the solver's plan for these members. ASK: it must be asked first; UNKNOWN: it has none.
enum proposal_verdict proposals_choose(const struct coordinator *c, const struct chain *ch, const struct candidates *who, struct plan *out);
// proposals_ask: is_wanted says that the answer becomes the plan.
void proposals_ask(struct coordinator *c, struct chain *ch, const struct candidates *who, bool is_wanted, struct coord_effects *fx);
void proposals_on_planned(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
// proposals_status tells what the planner says of the plan there is.
void proposals_status(const struct chain *ch, struct coord_chain_status *out);
// proposals_on_figures: a member told its profile. With the first one it is planned with; a later one is looked at soon.
void proposals_on_figures(struct coordinator *c, int32_t member, bool is_first);
// proposals_tick asks about chains that run.
void proposals_tick(struct coordinator *c, struct coord_effects *fx);
int64_t proposals_deadline_ns(const struct coordinator *c);

// prefetch.c
// prefetch_renew looks what each chain would have if every block were everywhere; prefetch_ask asks members for the blocks of that. Both when members
// or plans changed.
void prefetch_renew(struct coordinator *c, struct coord_effects *fx);
void prefetch_ask(struct coordinator *c, struct coord_effects *fx);
// prefetch_is_here: every stage of the plan holds its layers' blocks.
bool prefetch_is_here(const struct coordinator *c, const struct plan *p);
bool prefetch_holds(const struct coordinator *c, const struct member *m, const struct plan_stage *st, int32_t place);
// prefetch_is_due: what a chain would have is here, and it has not got it.
bool prefetch_is_due(const struct coordinator *c, const struct chain *ch);
// prefetch_can_keep: the chain's last plan needs no block that is not here, and nobody of it is gone.
bool prefetch_can_keep(const struct coordinator *c, const struct chain *ch);
// prefetch_choose finds a plan for which nobody waits for blocks. False: there is none.
bool prefetch_choose(const struct coordinator *c, const struct chain *ch, const struct candidates *who, struct plan *out);
void prefetch_forget(struct member *m); // its control link is gone
void prefetch_on_hello(struct member *m, const struct msg_hello *h);
void prefetch_on_loaded(const struct coordinator *c, struct member *m, const struct plan_stage *st);
void prefetch_on_prepared(struct coordinator *c, int32_t member, uint64_t serial, const char *error, struct coord_effects *fx);
bool prefetch_retry(struct coordinator *c, struct member *m); // true: its pause is over
void prefetch_check(const struct coordinator *c);

// placement.c
// placement_update gives members to chains, and takes from them who is not needed.
void placement_update(struct coordinator *c);
// placement_choose fills `out` for a chain of a placement, and `base` with who holds its layers then; false: `why` says what is missing. is_now: only
// such as stand by with their blocks take a gap.
bool placement_choose(const struct coordinator *c, const struct chain *ch, bool is_now, struct plan *out, struct plan *base, char why[REASON_CAP]);
// placement_on_plan: a chain's plan was made. Who is in it belongs to the chain.
void placement_on_plan(struct coordinator *c, struct chain *ch);
// placement_spares finds members that stand by for the gaps of a lost plan; returns how many.
int32_t placement_spares(const struct coordinator *c, const struct chain *ch, struct node_id *out, int32_t cap);
int64_t placement_deadline_ns(const struct coordinator *c);
int32_t placement_n_spares(const struct coordinator *c); // members that stand by
// placement_layers returns how many layers' worth of memory a place of a stage takes.
int32_t placement_layers(const struct plan_stage *st, int32_t place);
// placement_can_take: as far as is known it has memory for that place. A member of a group may have fewer KV heads than its share of the layers, so that
// its cap alone says nothing.
bool placement_can_take(const struct coordinator *c, const struct member *m, const struct plan_stage *st, int32_t place);
// placement_is_enough: before its first plan a cluster waits for n_nodes_min; `why` says how many are there.
bool placement_is_enough(const struct coordinator *c, char why[REASON_CAP]);

// admission.c
// admission_pump gives slots: first to sessions whose chain is lost, then to those that wait.
void admission_pump(struct coordinator *c, struct coord_effects *fx);
int64_t admission_deadline_ns(const struct coordinator *c);
// admission_note_halt: a session waits for a plan of its chain from now on.
void admission_note_halt(const struct coordinator *c, struct session *s);
uint32_t admission_n_steps(const struct coordinator *c, const struct chain *ch); // of a chain, under way

// recovery.c
// recovery_note_ready: a chain's plan is ready. Decides for each of its halted sessions what must be computed again, and notes who holds what from
// now on.
void recovery_note_ready(struct coordinator *c, struct chain *ch, struct coord_effects *fx);
// recovery_note_part: a member gets its part of a stage, and keeps of what it holds what lies in that.
void recovery_note_part(struct member *m, const struct plan_stage *st, int32_t place);

// sessions.c
void sessions_init(struct coordinator *c, int32_t *token_memory);
void sessions_on_submit(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void sessions_on_cancel(struct coordinator *c, uint64_t req, struct coord_effects *fx);
void sessions_on_forward_done(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
void sessions_on_sampled(struct coordinator *c, const struct coord_event *ev, struct coord_effects *fx);
struct session *sessions_find_active(struct coordinator *c, struct session_id id);
void sessions_end(struct coordinator *c, struct session *s, enum coord_end end, enum err err, const char *text, struct coord_effects *fx);
// sessions_buf_take returns -1 when all are in use, which is our bug.
int32_t sessions_buf_take(struct coordinator *c);
void sessions_buf_give(struct coordinator *c, int32_t buf);
// sessions_halt: a chain's plan is gone, and with it what was on its way. Sessions keep their slots and tokens, and go on under the next plan
// from where they were: what was lost is computed again, nothing is sampled twice. From here on session_wait_ns counts.
void sessions_halt(struct coordinator *c, struct chain *ch, struct coord_effects *fx);
// sessions_restart: a stage does not hold what a session's steps build on. Everything is computed again from its tokens.
void sessions_restart(struct coordinator *c, struct session *s, struct coord_effects *fx);
void sessions_expire(struct coordinator *c, struct coord_effects *fx);
void sessions_pump(struct coordinator *c, struct coord_effects *fx);
int32_t sessions_count(const struct coordinator *c, enum session_state state);
int32_t sessions_count_active(const struct coordinator *c, const struct chain *ch); // of one chain
int64_t sessions_deadline_ns(const struct coordinator *c);

// ring.c
// ring_reset: a new plan begins with full credits.
void ring_reset(struct coordinator *c, struct chain *ch);
void ring_on_frame(struct coordinator *c, struct coord_link *l, const uint8_t *data, size_t len, struct coord_effects *fx);
void ring_on_step_failed(struct coordinator *c, int32_t member, const struct msg *m, struct coord_effects *fx);
void ring_send_steps(struct coordinator *c, struct chain *ch, struct coord_effects *fx);
// ring_give_credit: the head is done with a step of the last stage.
void ring_give_credit(struct coordinator *c, struct chain *ch, struct coord_effects *fx);
// ring_on_retired: a data link of a member has a successor.
void ring_on_retired(struct coordinator *c, int32_t member);
// ring_check_stalls gives a ring up when an answer waited for it longer than stall_ns.
void ring_check_stalls(struct coordinator *c, struct coord_effects *fx);
int64_t ring_deadline_ns(const struct coordinator *c);
// ring_forgive: this machine was away itself, so that nobody was slow.
void ring_forgive(struct coordinator *c);

#endif
