// The state of a member's forward between two exchanges; private to engine/.
#ifndef HEARTH_ENGINE_MEMBER_RUN_H
#define HEARTH_ENGINE_MEMBER_RUN_H

#include "engine/crew.h"
#include "engine/member.h"

// What is computed next; but for the first and the last, what an exchange has just completed comes first.
enum member_step { STEP_ATTEND, STEP_O, STEP_FFN, STEP_DOWN, STEP_END };

struct member_run {
	struct crew crew;
	bool is_behind; // another one, which has begun before it
	struct engine_item *items;
	int32_t n_items;
	int32_t layer;
	enum member_step step;
	bool is_running;
	struct member_exchange at; // what is waited for
};

// member_run_open returns NULL without memory.
struct member_run *member_run_open(struct engine *e);
void member_run_close(struct member_run *r); // NULL is allowed

// The inputs of o or of down in one layer, which members have columns of.
struct gathered {
	struct engine_input *in;
	enum act_kind kind;
	int32_t block; // values that share a scale; 1: none do
	bool is_attended;
};

// member_at_hop tells whether the exchange that is waited for is of a ring's hops.
bool member_at_hop(const struct member_run *r);

struct gathered gathered_of(struct engine *e, int32_t layer, enum split_exchange x);
struct split_columns gathered_columns(const struct engine *e, const struct gathered *g, int32_t member);

#endif
