// The solver: the fastest plan for these machines, these links and this model; what bounds it, and who was left out and why. Pure.
//
// Tables of Z_m(l; T) by the closed form choose devices, layers and streams for each number of rounds: exactly by a knapsack where hops are a
// sum over devices (one access point), by a table of all subsets for up to SOLVE_SUBSET_DEVICES devices with any links, and by a rule and
// moves beyond. The exact judge (cost_judge) then decides between these candidates, every machine alone and the incumbent, and between the
// best of them and their neighbours: a plan is never slower than the best machine alone, nor than the incumbent.
//
// The lower bound is proved for what the judge measures: no plan that the wants allow has a smaller value.
//
// Same wants, same result, bit for bit, on every machine; ties go to fewer devices, then fewer bytes read, then lower device numbers.
// Nothing is allocated: memory comes from the caller's arena, which is left as it was. One thread per call; nothing is shared.
// Source: cost-model.md, sections 7 and 8.
#ifndef HEARTH_PARTITION_SOLVE_H
#define HEARTH_PARTITION_SOLVE_H

#include "base/arena.h"
#include "base/err.h"
#include "partition/cost.h"

#include <stdbool.h>
#include <stdint.h>

#define SOLVE_ROUNDS_MAX 8      // k; more gained nothing
#define SOLVE_SUBSET_DEVICES 12 // up to here any link matrix is solved by the table of subsets

// What is minimised: a weighted sum of seconds. All weights 0 mean the time of one token of one stream (TPOT) alone.
struct solve_goal {
	double tpot_weight;
	double streams_weight; // of the seconds per token, over all streams together, when n_streams decode at once
	double ttft_weight;    // of the seconds until a prompt's first token
	int32_t n_streams;     // read when streams_weight > 0: at least 1
	int32_t n_prompt, chunk; // read when ttft_weight > 0: tokens of the prompt, and of one chunk of it
};

// What one device may hold, all rounds together.
struct solve_limit {
	int32_t layers_min; // > 0: it must be used. As layers_max: exactly so many, by hand
	int32_t layers_max; // 0: it must not be used; LAYERS_MAX: no limit
	bool is_trusted;    // may hold the first and last head_layers layers
};

// Borrowed for the call.
struct solve_want {
	const struct cluster *cluster;
	const struct model_shape *shape;
	struct cost_params params;
	int32_t head; // the coordinator's device; first in the ring when it holds layers
	struct solve_goal goal;
	int32_t devices_max;              // layer holders; 0: STAGES_MAX
	int32_t rounds_min, rounds_max;   // 0: 1 and SOLVE_ROUNDS_MAX. A single holder has one round
	int32_t head_layers;              // n > 0: the first and the last n layers only on trusted devices
	const struct solve_limit *limits; // (n_devices); NULL: no limits, and everybody is trusted
	const int32_t *order;             // (n_order): the ring goes through devices in this order, and uses no others; NULL: free
	int32_t n_order;
	bool allow_groups;                 // tensor-parallel groups, too; with head_layers or an order there are none
	const struct cost_plan *incumbent; // a plan to keep unless a better one is found; NULL: none. One with groups counts where these are allowed
};

enum solve_fate {
	SOLVE_USED,
	SOLVE_SLOWER,     // the plan would be slower with it
	SOLVE_NO_LINK,    // it does not reach the head, or nobody in the ring
	SOLVE_NO_ROOM,    // not even one layer fits
	SOLVE_FORBIDDEN,  // by the wants
	SOLVE_NOT_NEEDED, // the plan would be as fast with it, or the number of devices is spent
};

// Whether a group was formed, and why not.
enum solve_groups {
	SOLVE_GROUPS_OFF,     // the wants allow none
	SOLVE_GROUPS_FORMED,
	SOLVE_GROUPS_UNKNOWN, // how the model's layers are divided into heads is not known
	SOLVE_GROUPS_FEW,     // no two machines that may form one reach each other
	SOLVE_GROUPS_LINKS,   // with any two machines, exchanges take longer than sharing a layer saves the slower of them
	SOLVE_GROUPS_SLOWER,  // the best plan with one is slower than the best without
	SOLVE_GROUPS_NO_ROOM, // no plan with one is possible
};

struct solve_group_note {
	enum solve_groups why;
	double plain_s;          // value of the best plan without groups
	double with_s;           // of the best one with groups; 0: none was judged
	struct cost_group group; // FORMED, SLOWER: the best plan's first; LINKS: the one that came nearest; n_members 0: none
	double layer_s, exchange_s, alone_s; // of one layer and token in it: all, its exchanges, and its slowest member without the others
};

struct solve_device_fate {
	enum solve_fate fate;
	double with_s; // SOLVE_SLOWER: the best value found with it; 0: not tried
};

struct solve_result {
	struct cost_plan plan;
	struct cost_verdict verdict; // of the judge on this plan
	double value;                // of the goal: seconds
	double ttft_s, stream_s;     // seconds of the goal's other two parts; 0 where their weight is 0
	double bound;                // no plan without groups has a smaller value
	double gap;                  // value / bound - 1
	int64_t n_judged;            // plans that the judge saw
	int32_t single;              // the best machine alone; -1: none can hold the model
	double single_s;             // its value
	struct solve_group_note groups;
	double incumbent_s;          // the incumbent's value; -1: none was given, or it is not possible with these wants
	struct solve_device_fate *fates; // (n_devices), the caller's, set before the call; NULL: not wanted
};

// solve_scratch_bytes returns what the arena must have free. 0: the wants are out of range, and solve says what is wrong.
size_t solve_scratch_bytes(const struct solve_want *w);
// solve returns the best plan. `out->fates` is set by the caller. ERR_RANGE: figures that no machine has, or wants that contradict each other;
// ERR_NOT_FOUND: no plan is possible, with the arithmetic; ERR_NOMEM: less than solve_scratch_bytes.
MUST_USE enum err solve(const struct solve_want *w, struct arena *scratch, struct solve_result *out, struct errmsg *em);
// solve_fate_words says it in words: "the plan would be slower with it".
const char *solve_fate_words(enum solve_fate f);
const char *solve_groups_words(enum solve_groups g);

// Which term decides how long a token takes.
enum solve_term {
	SOLVE_TERM_COMPUTE, // a device's work
	SOLVE_TERM_STALL,   // a device waits for its disk in its turn
	SOLVE_TERM_DISK,    // a disk that never rests sets the pace
	SOLVE_TERM_HOPS,    // the links
	SOLVE_TERM_HEAD,    // the output head
	SOLVE_TERM_EXCHANGES, // what members of a group send each other
};

struct solve_stage_account {
	int32_t device, n_layers, n_accel; // layers on the accelerator
	int32_t n_streamed, n_units;       // units of its CPU layers
	uint64_t accel_bytes, pinned_bytes, streamed_bytes; // streamed: read for a token, of experts those that it uses
	uint64_t window_bytes;
	double overflow_s; // x_m: reading once what does not fit
	double busy_s, stall_s, read_s; // per token, by the judge
	double hop_s;      // per token: sending onwards
	double exchange_s; // per token: of a group, whose bytes are sums over its members, those on accelerators among the pinned ones
	double spare_s;    // T less the longer of its visits and its reads: it could do so much more
	enum solve_term term; // what its longest part is
};

// A token's time, taken apart. Seconds; busy + stalls + exchanges + hops + head = token.
struct solve_account {
	double token_s, busy_s, stall_s, exchange_s, hop_s, head_s;
	enum solve_term bottleneck; // the largest part
	int32_t bottleneck_stage;   // whose; -1: links or head
	bool is_tight;              // overflows that nothing hides exceed the hops: more rounds or more memory would pay
	int32_t n_stages;
	struct solve_stage_account stages[STAGES_MAX];
};

// solve_account_for takes the time of a plan apart (any plan that cost_check lets pass). Scratch: cost_judge_bytes. ERR_NOMEM.
MUST_USE enum err solve_account_for(const struct cost_case *c, struct arena *scratch, struct solve_account *out);
const char *solve_term_words(enum solve_term t);

#endif
