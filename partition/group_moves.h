// Moves of a plan with groups, measured by the closed form: its shares, modes, members, layers, rounds and streams. Inside of partition/solve_groups.c.
#ifndef HEARTH_PARTITION_GROUP_MOVES_H
#define HEARTH_PARTITION_GROUP_MOVES_H

#include "partition/solve_groups.h"

#define GROUP_SEATS_FEW 8   // machines of which each start can be balanced before the best are taken
#define GROUP_STARTS_KEPT 4 // that are improved by moves and judged

struct group_start {
	struct cost_plan plan;
	double token_s; // by the closed form
};

struct group_search {
	struct solver *s;
	int64_t work_left;   // layers of members that the closed form may still walk over
	int32_t polish_left; // plans that the judge may still be asked about
	int32_t n_picks;
	struct group_pick picks[GROUP_PICKS_MAX];
	int32_t n_starts;
	struct group_start starts[GROUP_STARTS_KEPT]; // best first
};

// group_moves_climb moves a plan until nothing gains, or the work is spent.
void group_moves_climb(struct group_search *q, struct group_start *at);
// group_moves_modes tries each mode with shares by rates, gathering also with whole KV heads; with `balances`, what comes near is balanced first.
bool group_moves_modes(struct group_search *q, struct group_start *at, int32_t stage, bool balances);
// group_moves_head puts the output head into the other memory of its device; false: it has none that is large enough.
bool group_moves_head(const struct solver *s, struct cost_plan *p);
// group_moves_eighths tries each mode with every number of eighths as shares of up to three members; it spends at most `most` of the work.
bool group_moves_eighths(struct group_search *q, struct group_start *at, int32_t stage, int64_t most);

// group_members_move lets machines change places: into a group, out of one into a stage of its own or into none, and with each other.
bool group_members_move(struct group_search *q, struct group_start *at);
void group_members_swap(struct cost_group *g, int32_t a, int32_t b);

// group_moves_try takes a plan when it is faster.
bool group_moves_try(struct group_search *q, struct group_start *at, const struct cost_plan *p);
// group_moves_token_s is a plan's time by the closed form; INFINITY: not possible, or the work is spent.
double group_moves_token_s(struct group_search *q, const struct cost_plan *p);
bool group_moves_possible(const struct solver *s, const struct cost_plan *p);
// group_moves_loosen takes as few streamed units as fit: with other layers the old ones may be none.
void group_moves_loosen(struct cost_plan *p);
// group_moves_layers_of returns how many layers a device holds, in a group or alone; group_moves_group_at the number of a stage's group; -1: none.
int32_t group_moves_layers_of(const struct cost_plan *p, int32_t device);
int32_t group_moves_group_at(const struct cost_plan *p, int32_t stage);
struct cost_case group_moves_case(const struct solver *s, const struct cost_plan *p);

#endif
