// The cost model: how long a plan takes. Pure; the planner, the simulator and every prediction use these same functions.
//
// A step walks the ring k times. A device keeps what fits of its layers (pinned) and reads the rest (streamed) through a window while
// others compute; one reader per device fetches streamed units in the order of use, one at a time, never further ahead than the window
// has free slots. `struct cost_runner` is that device: the exact judge, and the simulator for each FORWARD, ask it how long a visit
// takes. The closed form is for searching: cheap, and a lower bound within the tolerances of cost-model.md, section 9.
//
// A stage may be a tensor-parallel group (partition/group_cost.h): its members compute their parts of each layer at the same time, each with its
// own memory, disk and window; a layer ends when the last of them has, and their exchanges after it.
//
// Times are seconds in doubles, added in the order in which things happen: a simulation by events gives the same bits.
// Source: cost-model.md, sections 2 to 5.
#ifndef HEARTH_PARTITION_COST_H
#define HEARTH_PARTITION_COST_H

#include "base/arena.h"
#include "base/err.h"
#include "base/limits.h"
#include "partition/cluster.h"
#include "partition/group_cost.h"

#include <stdbool.h>
#include <stdint.h>

#define COST_ROUNDS_MAX 64     // k of a plan; beyond 8 nothing was ever gained
#define COST_UNITS_MAX 64      // units per layer
#define COST_UNITS_DEFAULT 8   // finer ones gain nothing
#define COST_JUDGED_TOKENS 24  // over which the judge takes the mean, after 20 that fill windows
#define COST_STREAM_LEAST (-1) // n_streamed: as few as fit
#define COST_GROUPS_MAX 4      // of one plan

// Who evicts what does not fit.
enum cost_policy {
	COST_WINDOW, // explicit windows and pins (ours)
	COST_LRU, // the page cache under demand paging: with one unit too many, all are read in every cycle, during the device's turn
	// Of peers, for the judge and the simulator; the solver and its bound know only the two above.
	COST_DEMAND,    // as COST_WINDOW, but a streamed unit is read while it is computed, not before: pages as they are touched
	COST_LRU_AHEAD, // the page cache, unit by unit (partition/cost_cache.c): after its turn a device asks for what its next one needs
};

struct cost_stage {
	int32_t device;
	int32_t n_layers;   // l, in all rounds together
	int32_t n_streamed; // n, in units; COST_STREAM_LEAST; 0 where everything fits
};

struct cost_plan {
	int32_t head;       // the coordinator's device
	bool head_on_accel; // the output head lies in its accelerator's memory
	int32_t n_rounds;   // k
	int32_t n_stages;
	struct cost_stage stages[STAGES_MAX]; // in ring order
	int32_t n_groups;
	struct cost_group groups[COST_GROUPS_MAX]; // each is the stage whose device is its lead; that stage's n_streamed is not read
};

struct cost_params {
	int32_t units_per_layer; // U
	uint64_t kv_alloc;       // positions of KV that each layer has room for: context times slots
	uint64_t kv_read;        // positions that a token looks at: the planned context
	enum cost_policy policy;
};

// Borrowed, and unchanged while a runner of it lives.
struct cost_case {
	const struct cluster *cluster;
	const struct model_shape *shape;
	const struct cost_plan *plan;
	struct cost_params params;
	const struct cost_part *part; // NULL: whole stages; else stages that are groups are this one member's
};

// One member's part of a group's stage.
struct cost_part {
	int32_t device, n_streamed;
	double bytes, kv, flops, attn; // of each layer's weights, KV, arithmetic, and arithmetic of attention
};

// Where a stage's layers lie.
struct cost_layout {
	int32_t n_accel;                       // g: layers on the accelerator
	int32_t n_units;                       // N: units of the others
	int64_t n_slots;                       // Q: units that fit
	int32_t n_streamed;                    // n
	int32_t window;                        // q: slots for streamed units; 0 when nothing is streamed
	int32_t n_times;                       // what a runner notes: of each slot, or of each unit in a page cache
	double unit_bytes;                     // u, of the largest layer
	uint64_t pinned_bytes, streamed_bytes; // on the CPU's side
	// Of a group: n_accel, unit_bytes and window are 0, the others sums over its members, pinned_bytes with those on accelerators.
};

// cost_streamed_share is the part of its streamed bytes that a stage reads for a batch of n tokens: 1, unless they are experts' and not all are used.
double cost_streamed_share(const struct cost_case *c, const struct cost_layout *l, int32_t n_tokens);
// cost_check refuses a case that cannot be: bad figures, layers that do not add up, a pair of neighbours without a link, a device that
// cannot hold its part. One sentence, with the arithmetic. Every function below expects a case that passed.
MUST_USE enum err cost_check(const struct cost_case *c, struct errmsg *em);
// cost_layout_of is that of one stage; cost_check has called it for each.
MUST_USE enum err cost_layout_of(const struct cost_case *c, int32_t stage, struct cost_layout *out, struct errmsg *em);

// What one visit computes: the tokens of one or several sequences.
struct cost_batch {
	int32_t n_tokens;
	uint64_t kv_read;    // positions read, summed over sequences
	uint64_t attn_pairs; // positions looked at, summed over tokens
};

// cost_decode is one token that looks at `positions`; cost_chunk is n tokens of one prompt, the first of them at position pos.
struct cost_batch cost_decode(uint64_t positions);
struct cost_batch cost_chunk(uint64_t pos, int32_t n_tokens);

struct cost_use {
	double busy_s;     // computing, with the visit's fixed cost
	double stall_s;    // waiting for the disk
	double read_bytes; // of the units this visit used
	// Of a group, whose busy and stall times are those of whoever was last, layer by layer.
	double exchange_s;
	double read_s; // the longest of its members' disks
};

typedef void cost_read_fn(void *ctx, int32_t stage, double begin_s, double end_s);

// What a device asked its page cache for.
struct cost_asked {
	double since_s, turn_s; // when it asked, and when its present turn began
	int64_t next, end; // units, in the order of use
	double tick;       // of the last use or read: the page cache evicts what has the smallest
	int64_t n_resident;
};

// What a layer takes a device, for one kind of batch.
struct cost_pace {
	struct cost_batch batch; // n_tokens 0: none yet
	double accel_s, unit_s, read_s; // of a layer on the accelerator, of a unit, of reading one; 0 where there are none
};

// One device's stage in time. `ends` is the caller's.
struct cost_runner {
	const struct cost_case *c;
	int32_t stage;
	struct cost_layout layout;
	double *ends;          // (layout.n_times): when the last streamed units were computed
	struct cost_pace pace; // of the last batch, where all layers are equal
	int32_t slot;          // of the window: where the next streamed unit goes, number j mod q
	double read_end_s;     // R of the last
	struct cost_asked asked; // COST_LRU_AHEAD
	cost_read_fn *on_read; // NULL, or told of each read when the unit is used; in order, maybe after later events elsewhere
	void *on_read_ctx;
	struct cost_crew *crew; // of a group; NULL
};

// A group's members in time.
struct cost_crew {
	const struct cost_group *group;
	struct group_split split;
	struct group_work work;
	struct cost_part parts[GROUP_MEMBERS_MAX];
	struct cost_case cases[GROUP_MEMBERS_MAX];
	struct cost_runner runners[GROUP_MEMBERS_MAX];
	int32_t n_tokens; // for which the two below hold
	double layer_s;   // exchanges of one layer
	double start_s;   // the lead's broadcast, which begins a visit
};

// cost_group_of returns the group that a stage is, or NULL.
static inline const struct cost_group *cost_group_of(const struct cost_plan *p, int32_t stage)
{
	for (int32_t i = 0; i < p->n_groups; i++)
		if (p->groups[i].devices[0] == p->stages[stage].device)
			return &p->groups[i];
	return NULL;
}

// cost_crew_init puts a group's members at its stage, without runners; their cases point into *out.
void cost_crew_init(struct cost_crew *out, const struct cost_case *c, int32_t stage);
// cost_crew_tokens computes layer_s and start_s for n tokens.
void cost_crew_tokens(struct cost_crew *w, const struct cost_case *c, int32_t n_tokens);
// cost_crew_token is all that its members send each other for one token, in all rounds.
void cost_crew_token(const struct cost_crew *w, const struct cost_case *c, int32_t stage, struct group_traffic *out);
// cost_runner_open starts a stage of either kind with memory from the arena, as cost_judge_bytes counts it. ERR_NOMEM.
MUST_USE enum err cost_runner_open(struct cost_runner *r, const struct cost_case *c, int32_t stage, double start_s, struct arena *a);

// cost_runner_init starts a stage that is no group at start_s with an empty window. `ends` has room for layout.n_times doubles (cost_layout_of).
void cost_runner_init(struct cost_runner *r, const struct cost_case *c, int32_t stage, double start_s, double *ends);
// cost_runner_visit returns when a visit that begins at start_s ends. Visits of a runner come in order, and rounds cyclically.
double cost_runner_visit(struct cost_runner *r, int32_t round, double start_s, const struct cost_batch *b, struct cost_use *use);
// cost_runner_round returns in which round the stage runs layers [begin, end); -1: in none.
int32_t cost_runner_round(const struct cost_runner *r, int32_t layer_begin, int32_t layer_end);
// cost_head_s is the time of the output head for n rows.
double cost_head_s(const struct cost_case *c, int32_t n_rows);
// cost_hop_s is the time of n hidden states from one device to another; 0 to itself. The pair is one of the plan.
double cost_hop_s(const struct cost_case *c, int32_t from, int32_t to, int32_t n_tokens);

struct cost_device_share {
	double busy_s, stall_s; // per token
	double read_s;          // the disk's, per token
	double exchange_s;      // of a group, per token
};

struct cost_verdict {
	double token_s; // T: mean period of 24 tokens after 20
	double hop_s;   // all hops of one token
	double head_s;
	struct cost_device_share stages[STAGES_MAX];
};

// cost_judge is the exact judge. Scratch memory comes from the arena, which is left as it was: cost_judge_bytes suffice. ERR_NOMEM.
MUST_USE enum err cost_judge(const struct cost_case *c, struct arena *scratch, struct cost_verdict *out);
size_t cost_judge_bytes(const struct cost_case *c);

// cost_streams is the time per token, of all streams together, while n decode: each for itself while nothing is streamed, until the busiest
// machine never rests; in one batch where weights are, so that each is read once for all. Scratch and errors as cost_judge.
MUST_USE enum err cost_streams(const struct cost_case *c, int32_t n_streams, struct arena *scratch, double *out);

// cost_ttft is the time from the prompt's arrival until its first token is drawn, on an idle ring, whose windows are full: chunks follow each other
// through the stages; with more than one round one by one.
MUST_USE enum err cost_ttft(const struct cost_case *c, int32_t n_prompt, int32_t chunk, struct arena *scratch, double *out);

struct cost_closed {
	double token_s;       // T
	double visits_s;      // sum of Z
	double hop_s, head_s; // H, head
	double disk_s;        // longest n rho
	int32_t disk_stage;   // whose; -1: nothing is streamed
	double z_s[STAGES_MAX];
};

// cost_members_s is what each member of a group's stage takes for a token by the closed form, without the exchanges.
void cost_members_s(const struct cost_case *c, int32_t stage, double z_s[GROUP_MEMBERS_MAX]);
// cost_closed is the closed form; cost_closed_corrected adds the correction for unequal rounds (slower, never lower).
void cost_closed(const struct cost_case *c, struct cost_closed *out);
double cost_closed_corrected(const struct cost_case *c);
// cost_bound is a bound that the judge is never below, whatever the plan.
double cost_bound(const struct cost_case *c);

// cost_choose_streams sets n_streamed of every stage of *plan (the case's) to what the closed form likes best, fewest bytes first.
MUST_USE enum err cost_choose_streams(const struct cost_case *c, struct cost_plan *plan, struct errmsg *em);

#endif
