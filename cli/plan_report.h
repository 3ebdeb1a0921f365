// Everything `hearth plan` found out, for its three faces: text, JSON, and a picture.
#ifndef HEARTH_CLI_PLAN_REPORT_H
#define HEARTH_CLI_PLAN_REPORT_H

#include "cli/options.h"
#include "partition/solve.h"
#include "partition/what_if.h"
#include "sim/plan_model.h"
#include "sim/scenario.h"

#include <stdio.h>

#define PLAN_QUESTIONS_MAX (4 * SCENARIO_DEVICES_MAX + 16)

struct plan_question {
	struct what_if what_if;
	char text[NAME_CAP + 64]; // "with twice the memory of laptop-ben"
	struct what_if_answer answer;
	struct errmsg why; // of an answer without a plan
};

struct plan_report {
	const struct scenario *cluster; // borrowed: the machines, their kinds, what was assumed
	const struct plan_model *model; // borrowed
	struct solve_want want;         // points into this struct
	struct solve_limit limits[SCENARIO_DEVICES_MAX];
	int32_t order[SCENARIO_DEVICES_MAX];
	int32_t ctx_len, n_prompt, chunk;
	struct solve_device_fate fates[SCENARIO_DEVICES_MAX];
	struct solve_result result; // its fates are those above
	struct solve_account account;
	double ttft_s;
	int32_t n_questions;
	struct plan_question questions[PLAN_QUESTIONS_MAX];
};

// One group of the plan.
struct plan_member {
	int32_t device;
	double share; // of each layer's weights
	uint64_t accel_bytes, memory_bytes, streamed_bytes;
	double sent_bytes, received_bytes; // per token
};

struct plan_group_figures {
	const struct cost_group *group;
	struct group_traffic traffic; // of a token
	struct plan_member members[GROUP_MEMBERS_MAX];
};

struct plan_names {
	char text[GROUP_MEMBERS_MAX * NAME_CAP + NAME_CAP];
};

// plan_want_fill turns options into wants. ERR_USAGE: a name that is no machine, two options that contradict each other.
MUST_USE enum err plan_want_fill(const struct options *o, struct plan_report *r, struct errmsg *em);
// plan_questions_ask solves every what-if that makes sense for the plan; ERR_NOMEM.
MUST_USE enum err plan_questions_ask(struct plan_report *r, struct errmsg *em);

// plan_case is the plan as the judge is given it.
struct cost_case plan_case(const struct plan_report *r);
// plan_wait_s is the part of a token's time in which a stage neither computes nor waits for its disk.
double plan_wait_s(const struct plan_report *r, int32_t stage);
// plan_slow_disk tells whether a stage reads more than others' work hides: it then waits for its disk.
bool plan_slow_disk(const struct plan_report *r, int32_t stage);

// plan_group_fill: false: the stage is one machine.
bool plan_group_fill(const struct plan_report *r, int32_t stage, struct plan_group_figures *out);
// plan_stage_names is "desk", or "desk+pi" of a group; plan_group_form is "reduce: pair".
struct plan_names plan_stage_names(const struct plan_report *r, int32_t stage);
struct plan_names plan_group_form(const struct cost_group *g, const struct plan_report *r);
void plan_print_groups(FILE *to, const struct plan_report *r);
void plan_print_groups_why(FILE *to, const struct plan_report *r);
// plan_stream_percent is what --streams takes, so that a stage's window is the plan's.
int32_t plan_stream_percent(const struct plan_report *r, int32_t stage);
// plan_print_by_hand prints the words of `hearth serve` that place layers like the plan; nothing where no words do.
void plan_print_by_hand(FILE *to, const struct plan_report *r);

void plan_print_text(FILE *to, const struct plan_report *r);
MUST_USE enum err plan_print_json(FILE *to, const struct plan_report *r);
// plan_print_svg draws until `to` refuses; the caller looks at ferror. ERR_NOMEM.
MUST_USE enum err plan_print_svg(FILE *to, const struct plan_report *r, struct errmsg *em);

#endif
