// Words for fates and terms.
#include "partition/solve.h"

const char *solve_fate_words(enum solve_fate f)
{
	switch (f) {
	case SOLVE_USED:
		return "it holds layers";
	case SOLVE_SLOWER:
		return "the plan would be slower with it";
	case SOLVE_NO_LINK:
		return "no other machine reaches it";
	case SOLVE_NO_ROOM:
		return "not even one layer fits";
	case SOLVE_FORBIDDEN:
		return "it must not hold layers";
	case SOLVE_NOT_NEEDED:
		return "the plan is as fast without it";
	}
	return "unknown";
}

const char *solve_groups_words(enum solve_groups g)
{
	switch (g) {
	case SOLVE_GROUPS_OFF:
		return "groups were not asked for";
	case SOLVE_GROUPS_FORMED:
		return "computing layers together is faster";
	case SOLVE_GROUPS_UNKNOWN:
		return "how the model's layers are divided into heads is not known";
	case SOLVE_GROUPS_FEW:
		return "no two machines that may form a group reach each other";
	case SOLVE_GROUPS_LINKS:
		return "exchanges take longer than sharing a layer saves";
	case SOLVE_GROUPS_SLOWER:
		return "the best plan with a group is slower";
	case SOLVE_GROUPS_NO_ROOM:
		return "no plan with a group is possible";
	}
	return "unknown";
}

const char *solve_term_words(enum solve_term t)
{
	switch (t) {
	case SOLVE_TERM_COMPUTE:
		return "computing";
	case SOLVE_TERM_STALL:
		return "waiting for the disk";
	case SOLVE_TERM_DISK:
		return "a disk that never rests";
	case SOLVE_TERM_HOPS:
		return "the links";
	case SOLVE_TERM_HEAD:
		return "the output head";
	case SOLVE_TERM_EXCHANGES:
		return "exchanges of its group";
	}
	return "unknown";
}
