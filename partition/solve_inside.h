// What the solver's files share. Inside of partition/solve*.c.
//
// A *seat* is a device that may hold layers, with its figures per unit and layer. A *pass* is one question to the tables: the cheapest plan
// with k rounds in which no disk reads longer than disk_cap_s a token.
#ifndef HEARTH_PARTITION_SOLVE_INSIDE_H
#define HEARTH_PARTITION_SOLVE_INSIDE_H

#include "partition/solve.h"

#include <math.h>

#define SOLVE_KEPT 16   // candidates that are improved by moves: one or two of each k
#define SOLVE_EQUAL 1e-12 // relative: values that differ less are a tie

struct solve_seat {
	int32_t device;
	int32_t layers_min, layers_max; // of the wants, within the model's layers
	bool is_trusted;
	double unit_s, accel_s, read_s; // of a mean layer's unit, a mean layer on the accelerator, reading a unit; read_s 0: no disk
	double unit_least_s, read_least_s; // of the smallest layer's
	double visit_s;
	double in_s, out_s; // hop: sum of the sender's out_s and the receiver's in_s, where hops are such sums; else bounds from below
	double in_mean_s, out_mean_s; // what the rule for many devices goes by
	double prefill_unit_s, prefill_accel_s, prefill_read_s; // of one chunk
};

// Where l layers of a seat lie.
struct solve_layout {
	int32_t n_accel, n_units, n_slots; // n_slots < 0: not possible
};

enum solve_costs {
	SOLVE_CLOSED,  // the closed form: near the judge
	SOLVE_BOUND,   // never above the judge
	SOLVE_PREFILL, // one chunk of a prompt
};

enum solve_hops {
	SOLVE_HOPS_SUM,     // one access point: a knapsack
	SOLVE_HOPS_SUBSETS, // the cheapest ring of every subset
	SOLVE_HOPS_RULE,    // too many for that: a knapsack with the mean of each device's links
};

struct solve_pass {
	int32_t n_rounds;
	bool has_disks;
	enum solve_costs costs;
	double disk_cap_s;  // reading of one device for a token
	double stage_cap_s; // visits of one device; INFINITY
	double value_cap_s; // only plans below it are wanted
};

// What a pass found.
struct solve_found {
	bool is_found;
	double sum_s; // visits, hops and head
	int32_t n_holders;
	int32_t *layers;   // (n_seats)
};

struct solve_score {
	double value, token_s, ttft_s, stream_s;
	double read_bytes;
};

struct solve_candidate {
	struct cost_plan plan;
	struct solve_score score;
};

struct solver {
	const struct solve_want *w;
	struct solve_goal goal; // with its weights set
	int32_t n_layers, devices_max, rounds_min, rounds_max;
	bool head_on_accel; // of the present passes
	double head_s;
	double head_hops_s, head_hops_mean_s; // there and back, of a head without layers, where hops are sums
	double layer_mean_bytes;
	double *bytes_least; // (n_layers + 1): sum of the smallest layers; NULL: all are equal
	enum solve_hops hops;
	int32_t n_seats, head_seat; // -1: the head's device holds no layers
	struct solve_seat *seats;
	struct solve_layout *layouts; // (n_seats, n_layers + 1)
	double *table;                // (n_seats, n_layers + 1): of the present pass
	double *rows;                 // (n_seats + 1, n_layers + 1) of the knapsack, or (2^n_seats, n_layers + 1) of the subsets
	double *ring_s;               // (SOLVE_ROUNDS_MAX, 2^n_seats): hops of the cheapest ring of a subset
	double *path_s;               // (2^n, n): of one first device
	int32_t subset_most[1 << SOLVE_SUBSET_DEVICES];   // layers on a subset; -1: it leads nowhere
	double subset_low_s[1 << SOLVE_SUBSET_DEVICES];   // bounds its plans
	struct solve_found room; // for a pass
	struct arena *judge_scratch;
	int64_t n_judged;
	int32_t n_kept;
	struct solve_candidate kept[SOLVE_KEPT]; // distinct, best first
	struct solve_candidate single;           // the best machine alone
	bool has_single;
	double incumbent_s;
	struct solve_device_fate *fates; // (devices)
};

static inline double solve_least(double a, double b)
{
	return a < b ? a : b;
}

static inline double solve_most(double a, double b)
{
	return a > b ? a : b;
}

// solve.c: solve_open takes memory for a solver and finds its seats, of wants that passed solve_check_want. The arena is given back by the caller.
enum err solve_check_want(const struct solve_want *w, struct errmsg *em);
enum err solve_open(const struct solve_want *w, struct arena *scratch, struct solver **out, struct errmsg *em);

// solve_table.c: solve_seats_place computes what depends on where the output head lies. solve_stage_s is Z_m(l; T) of a pass, and with how many
// streamed units; INFINITY: not possible. solve_table_fill does it for all.
void solve_seats_place(struct solver *s, bool head_on_accel);
double solve_stage_s(const struct solver *s, const struct solve_pass *q, int32_t seat, int32_t l, int32_t *n_streamed);
void solve_table_fill(struct solver *s, const struct solve_pass *q);
// solve_streams_lower takes as few streamed units as cost no time.
int32_t solve_streams_lower(const struct solver *s, int32_t n_rounds, int32_t seat, int32_t l, int32_t n_streamed);
// solve_visits_s are the visits of one token with n streamed units.
double solve_visits_s(
	const struct solver *s, int32_t n_rounds, enum solve_costs costs, int32_t seat, int32_t l, int32_t n_streamed);

int32_t solve_streams_least(const struct solver *s, int32_t seat, int32_t l);
int32_t solve_streams_most(const struct solver *s, int32_t seat, int32_t l);

// solve_seats.c: solve_seats_find fills seats, their figures and hops; the others' fates say why they have none. solve_refuse says why there is
// no plan at all. solve_fates says why devices are not in the plan.
void solve_seats_find(struct solver *s, int32_t subset_devices);
enum err solve_refuse(struct solver *s, struct errmsg *em);
void solve_fates(struct solver *s, struct solve_result *out);
int32_t solve_seat_of(const struct solver *s, int32_t device); // -1: none
bool solve_head_fits(const struct solve_want *w, bool on_accel);

// solve_knapsack.c, solve_subsets.c: the cheapest plan of a pass, by the table.
void solve_knapsack(struct solver *s, const struct solve_pass *q, struct solve_found *out);
// solve_subsets_init fills ring_s; by trust: as rings that begin and end at a trusted device.
void solve_subsets_init(struct solver *s, bool by_trust);
void solve_subsets(struct solver *s, const struct solve_pass *q, struct solve_found *out);

// solve_ring.c: solve_paths fills path_s (2^n, n) with the cheapest paths from `first` through a set to its last.
void solve_paths(const double *hop_s, int32_t n, int32_t first, double *path_s);
// solve_ring_order puts a plan's stages into the cheapest order (exactly for up to 12). false: no ring joins them.
bool solve_ring_order(struct solver *s, struct cost_plan *p);
// solve_ring_place puts the last stage where it costs least, the others as they are. false: nowhere.
bool solve_ring_place(const struct solver *s, struct cost_plan *p);
// solve_shift moves stage a to place b.
void solve_shift(struct cost_plan *p, int32_t a, int32_t b);
double solve_ring_hops_s(const struct solver *s, const struct cost_plan *p); // INFINITY where a link is missing

// solve_judge.c: solve_judge_plan gives a plan's score; false: it is not possible with these wants, or no better than `cutoff`.
bool solve_judge_plan(struct solver *s, const struct cost_plan *p, double cutoff, struct solve_score *out);
// solve_score_parts is the judge alone, of a plan that is possible.
bool solve_score_parts(struct solver *s, const struct cost_plan *p, struct solve_score *out);
bool solve_is_possible(const struct solver *s, const struct cost_plan *p);
bool solve_is_better(const struct solve_candidate *a, const struct solve_candidate *b);
bool solve_is_same(const struct cost_plan *a, const struct cost_plan *b);
// solve_keep judges a candidate and keeps it when it is one of the best.
void solve_keep(struct solver *s, const struct cost_plan *p);

// solve_search.c: solve_pass_run fills the table and asks it. solve_search keeps candidates for the present place of the output head.
void solve_pass_run(struct solver *s, const struct solve_pass *q, struct solve_found *out);
void solve_search(struct solver *s, struct solve_found *room);
// solve_moves.c: solve_moves improves what is kept; kept[0] is the best then. solve_insert gives a seat n layers of a stage.
void solve_moves(struct solver *s);
bool solve_insert(struct solver *s, const struct cost_plan *p, int32_t donor, int32_t seat, int32_t n_layers, struct cost_plan *out);
// solve_bound.c
double solve_bound(struct solver *s, struct solve_found *room);

#endif
