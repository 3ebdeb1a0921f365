// Faults of a simulated world, drawn from a seed: what happens to whom, when, for how long.
//
// A plan is drawn whole before anything runs, so that leaving out a class or a stretch of time (--shrink) moves no other fault.
// Pure but for what it does to the world and its network.
#ifndef HEARTH_SIM_FAULTS_H
#define HEARTH_SIM_FAULTS_H

#include "sim/network.h"
#include "sim/world.h"

#include <stdint.h>

#define SIM_FAULTS_MAX 24

// X(name, word, what happens)
#define SIM_FAULT_TABLE(X)                                                                                             \
	X(FAULT_CRASH, "crash", "a node's process is killed and starts again with what its disk holds")                    \
	X(FAULT_POWER, "power", "a machine loses power: no word to anybody, what was not synced is gone")                  \
	X(FAULT_PAUSE, "pause", "a process stands still, often for longer than silence is forgiven")                       \
	X(FAULT_SLOW, "slow", "a machine computes 2 to 20 times slower")                                                   \
	X(FAULT_MEMORY, "memory", "a machine has no memory for its layers")                                                \
	X(FAULT_DISK_FULL, "disk-full", "writes fail")                                                                     \
	X(FAULT_DISK_EIO, "disk-eio", "writes fail, and may have happened")                                                \
	X(FAULT_TORN_WRITE, "torn-write", "the power goes in the middle of a write")                                       \
	X(FAULT_LOST_SYNC, "lost-sync", "the disk says that it wrote, then the power goes")                                \
	X(FAULT_BIT_FLIP, "bit-flip", "a bit of the disk turns: the process refuses to start, or a kept state is no good")         \
	X(FAULT_CIPHERTEXT, "ciphertext", "a bit of a record turns on its way")                                            \
	X(FAULT_CLOCK, "clock", "the coordinator's wall clock jumps")                                                      \
	X(FAULT_HEAD_CRASH, "head-crash", "the coordinator is killed and starts again")                                    \
	X(FAULT_HEAD_POWER, "head-power", "the coordinator's machine loses power")                                         \
	X(FAULT_HEAD_PAUSE, "head-pause", "the coordinator stands still")                                                  \
	X(FAULT_RESET, "reset", "connections break, both ends hear it")                                                    \
	X(FAULT_CUT, "cut", "a pair of machines, or one and all others, cannot connect: resets")                           \
	X(FAULT_BLACK_HOLE, "black-hole", "the same, in silence")                                                          \
	X(FAULT_ONE_WAY, "one-way", "the same in one direction only")                                                      \
	X(FAULT_PARTITION, "partition", "two groups of machines do not hear each other")                                   \
	X(FAULT_STALL, "stall", "a link holds back what it carries, then delivers it")                                     \
	X(FAULT_FLOW_STALL, "flow-stall", "connections hold back what they carry, each for itself, then deliver it")                \
	X(FAULT_LOSSY, "slow-link", "a link has a tenth of its rate and ten times its delay")                              \
	X(FAULT_JOIN, "join", "a machine is invited and joins")                                                            \
	X(FAULT_REVOKE, "revoke", "a member is shut out for good")                                                         \
	X(FAULT_LEAVE, "leave", "a node leaves in order and comes back")

enum sim_fault_class {
#define X(name, word, words) name,
	SIM_FAULT_TABLE(X)
#undef X
		SIM_N_FAULTS
};

const char *fault_word(enum sim_fault_class c);
const char *fault_words(enum sim_fault_class c);
// fault_find returns the class of that word, or SIM_N_FAULTS.
enum sim_fault_class fault_find(const char *word, size_t len);

#define SIM_ALL_FAULTS ((UINT32_C(1) << SIM_N_FAULTS) - 1)

struct sim_fault {
	enum sim_fault_class kind;
	int64_t at_ns, for_ns;
	int32_t machine, other; // other: NETWORK_ALL, or the second of a pair
	uint64_t draw;          // what else is to be drawn
};

struct sim_fault_plan {
	int32_t n;
	struct sim_fault at[SIM_FAULTS_MAX]; // by time
};

struct fault_params {
	uint64_t seed;
	uint32_t classes;         // bits of enum sim_fault_class that may be drawn
	int64_t from_ns, until_ns;
	int32_t n_machines;       // the coordinator's included
	int32_t n_strangers;      // the last ones are no members yet
	int32_t n_faults;         // to draw; a write fault brings what writes, too
};

// faults_draw fills p. Each machine is in range, each time in the window.
void faults_draw(struct sim_fault_plan *p, const struct fault_params *params);

// fault_begin does it to the world at its present time; fault_end undoes what lasts. Returns false when it has nothing to work on (the
// machine is down already, no member is left to revoke).
bool fault_begin(const struct sim_fault *f, struct sim_world *w, struct network *n);
void fault_end(const struct sim_fault *f, struct sim_world *w, struct network *n);

#endif
