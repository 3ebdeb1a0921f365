// Plans with tensor-parallel groups: which machines to try together, and the best ring over them. Inside of partition/solve*.c.
//
// Machines with good links are put together one by one from each fast one on; sets that take longer for a layer than their slowest member, and than
// the plan without groups anywhere, are left out (cost-model.md, section 6). Each of the best sets becomes a plan in two ways, a group that holds everything
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

// group_may tells whether the wants let a device be a member; its part of the layers may then still be more than they let it hold.
bool group_may(const struct solver *s, int32_t device);
// group_picks fills the best sets, best first; returns how many. worst_s is the most that a layer takes in the plan without groups; is_strict: a
// group must take less than that, else less than that or than its slowest member. *best is the
// nearest to being one, also where there is none; its n_members is 0 where no two machines may form a group.
int32_t group_picks(const struct solver *s, double worst_s, bool is_strict, struct group_pick out[GROUP_PICKS_MAX], struct group_pick *best);
// group_choose sets shares, forms and hub to what makes one of n layers fastest with these members, of what they can carry out, in a mode or in the best
// one, and fills the other figures. by_heads: gathering, shares are whole KV heads, as attention is cut anyway. layer_s is INFINITY where the mode is not possible. group_measure fills them for a group as it is.
void group_choose(const struct solver *s, struct group_pick *p, enum group_mode mode, int32_t n_layers, bool by_heads);
void group_choose_any(const struct solver *s, struct group_pick *p, int32_t n_layers);
void group_measure(const struct solver *s, struct group_pick *p);

// group_order puts members behind the lead in the order in which hops of `bytes` go round the ring in the least time: exact for eight members, the best order found
// in a bounded search for more. false: the one they have is as good.
bool group_order(const struct cluster *c, double bytes, struct cost_group *g);

// solve_groups looks for a plan with groups that is faster than out's; scratch is s->judge_scratch.
void solve_groups(struct solver *s, struct solve_result *out);

#endif
