// Plans with tensor-parallel groups: which machines to try together, and the best ring over them. Inside of partition/solve*.c.
//
// Machines with good links are put together one by one from each fast one on; sets whose exchanges take longer than sharing a layer saves their
// slowest member are left out (cost-model.md, section 6). Each of the best sets becomes a plan in two ways, a group that holds everything
// and a stage in the place of its members, and is improved by moves that the closed form measures. The exact judge decides between
// the best of them and the plan without groups: which stays unless a group is faster. All of it is a bounded number of steps.
#ifndef HEARTH_PARTITION_SOLVE_GROUPS_H
#define HEARTH_PARTITION_SOLVE_GROUPS_H

#include "partition/solve_inside.h"

#define GROUP_PICKS_MAX 12

struct group_pick {
	struct cost_group group; // with mode, forms and shares by rates
	double layer_s;          // estimate for one layer of one token, with its exchanges
	double exchange_s;       // the exchanges' part
	double slowest_s, fastest_s; // what its slowest and its fastest member take for a layer alone
};

// group_may tells whether the wants let a device be a member; it then holds any number of layers.
bool group_may(const struct solver *s, int32_t device);
// group_picks fills the best sets, best first; returns how many. *best is the nearest to being one, also where there is none; its n_members
// is 0 where no two machines may form a group.
int32_t group_picks(const struct solver *s, struct group_pick out[GROUP_PICKS_MAX], struct group_pick *best);
// group_choose sets mode, forms and hub to what makes a layer fastest with these members and shares, of what members can carry out, and fills the
// other figures.
void group_choose(const struct solver *s, struct group_pick *p);

// solve_groups looks for a plan with groups that is faster than out's; scratch is s->judge_scratch.
void solve_groups(struct solver *s, struct solve_result *out);

#endif
