// One exchange of a group that computes a layer together, played message by message over a simulated network.
//
// Every member contributes `bytes`, and at the end every member has heard of all: through a centre (star), up and down a tree of depth two,
// round a ring, by reduce-scatter and gather over direct links, or each to each. Machine i of the network is member i; member 0 is the
// centre and the root. An exchange is a number of steps; a member sends its messages of a step when it has handled all it was sent in
// the steps before. Source: cost-model.md, section 6.
#ifndef HEARTH_SIM_EXCHANGE_H
#define HEARTH_SIM_EXCHANGE_H

#include "sim/network.h"
#include "sim/scenario.h"

#define EXCHANGE_MEMBERS_MAX 64
#define EXCHANGE_STEPS_MAX (2 * (EXCHANGE_MEMBERS_MAX - 1)) // of a ring

struct exchange {
	struct network *network; // borrowed
	enum scenario_exchange kind;
	int32_t n_members;
	int64_t software_ns; // of handling one message at its receiver
	int32_t n_steps;
	int32_t flows[EXCHANGE_MEMBERS_MAX][EXCHANGE_MEMBERS_MAX];  // from, to
	int32_t expected[EXCHANGE_STEPS_MAX][EXCHANGE_MEMBERS_MAX]; // messages to a member in a step
	void *ctx;
	void (*on_message)(void *ctx, int32_t from, int32_t to, int64_t begin_ns, int64_t end_ns); // NULL: nobody looks
};

// exchange_init opens a flow for each ordered pair that the kind uses. ERR_LIMIT: the network has too few.
MUST_USE enum err exchange_init(struct exchange *x, struct network *n, enum scenario_exchange kind, int32_t n_members,
	int64_t software_ns, struct errmsg *em);
// exchange_run returns when the last member has everything. begin_ns never decreases from call to call. ERR_CLOSED: a message was lost.
MUST_USE enum err exchange_run(struct exchange *x, double bytes, int64_t begin_ns, int64_t *end_ns);
// exchange_model_s is the formula for links of one delay and rate.
double exchange_model_s(
	enum scenario_exchange kind, int32_t n_members, double delay_s, double rate, double software_s, double bytes);

#endif
