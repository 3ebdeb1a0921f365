// Which layers and units a stage computes in which round: the one place that knows the order (cost-model.md, section 2).
// Inside of partition/cost*.c.
#ifndef HEARTH_PARTITION_COST_ROUND_H
#define HEARTH_PARTITION_COST_ROUND_H

#include "partition/cost.h"

// `part` things spread evenly over `whole` places: place i takes one when floor((i + 1) part / whole) > floor(i part / whole).
struct cost_spread {
	int64_t part, whole;
	int64_t left; // i part mod whole, of the next place
};

static inline struct cost_spread cost_spread_at(int64_t part, int64_t whole, int64_t i)
{
	return (struct cost_spread){.part = part, .whole = whole, .left = whole > 0 ? i * part % whole : 0};
}

static inline bool cost_spread_next(struct cost_spread *s)
{
	s->left += s->part;
	if (s->left < s->whole)
		return false;
	s->left -= s->whole;
	return true;
}

// cost_spread_take is cost_spread_next n times: how many took one.
static inline int32_t cost_spread_take(struct cost_spread *s, int32_t n)
{
	if (s->part == 0)
		return 0;
	int64_t left = s->left + n * s->part;
	s->left = left % s->whole;
	return (int32_t)(left / s->whole);
}

// One layer of a visit.
struct cost_item {
	int32_t layer; // of the model
	bool on_accel;
};

struct cost_round {
	int32_t n_left;              // layers to come
	int32_t layer;               // of the model
	struct cost_spread accel;    // over the stage's layers
	struct cost_spread streamed; // over its CPU units: the caller advances it unit by unit
	int64_t unit;                // number of its first CPU unit, among the stage's
};

struct cost_round cost_round_begin(const struct cost_case *c, int32_t stage, const struct cost_layout *l, int32_t round);
bool cost_round_next(struct cost_round *r, struct cost_item *out);

// cost_reads_in_turn: which experts a token uses is known when it is there, so that none is read before.
static inline bool cost_reads_in_turn(const struct cost_case *c)
{
	return c->shape->expert_share > 0 && c->params.policy == COST_WINDOW;
}

// Seconds of one layer on the accelerator, of one unit on the CPU, of reading one.
double cost_accel_s(const struct cost_case *c, const struct cluster_device *d, int32_t layer, const struct cost_batch *b);
double cost_unit_s(const struct cost_case *c, const struct cluster_device *d, int32_t layer, const struct cost_batch *b);
double cost_read_s(const struct cost_case *c, const struct cluster_device *d, int32_t layer, const struct cost_layout *l, const struct cost_batch *b);

// The page cache (COST_LRU_AHEAD), in cost_cache.c. cost_cache_take waits for a unit and computes it, like a streamed one; cost_cache_ask asks for
// the units of the next round.
double cost_cache_take(struct cost_runner *r, int64_t unit, double t, double read_s, double unit_s, struct cost_use *use);
void cost_cache_ask(struct cost_runner *r, int32_t round, double now_s);

// cost_group_visit is cost_runner_visit of a group, cost_group_layout and cost_group_check what they say (cost_crew.c).
double cost_group_visit(struct cost_runner *r, int32_t round, double start_s, const struct cost_batch *b, struct cost_use *use);
enum err cost_group_layout(const struct cost_case *c, int32_t stage, struct cost_layout *out, struct errmsg *em);
enum err cost_group_check(const struct cost_case *c, struct errmsg *em);
// cost_crew_slack_s is what a layer takes longer than its slowest member, as members wait for each other at every exchange, not at its end alone.
double cost_crew_slack_s(const struct cost_crew *w, int32_t layer, const struct cost_batch *b, const double *work_s);
// cost_runner_begin and _end are around the layers of a visit, in which cost_runner_layer returns when one that begins at t ends.
void cost_runner_begin(struct cost_runner *r, double start_s);
double cost_runner_layer(struct cost_runner *r, struct cost_round *at, const struct cost_item *item, double t, const struct cost_batch *b, struct cost_use *use);
void cost_runner_end(struct cost_runner *r, int32_t round, double t);

static inline const struct cluster_device *cost_device_of(const struct cost_case *c, int32_t stage)
{
	return &c->cluster->devices[c->part ? c->part->device : c->plan->stages[stage].device];
}

#endif
