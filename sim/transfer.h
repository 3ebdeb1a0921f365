// Transfers of a model's blocks in virtual time: the cores of blocks/ (whom to ask next, whose request is read next, is this the block) over the
// simulated network, with faults drawn from a seed: sources that vanish or fall silent, bytes that are wrong, disks that are full, links
// that crawl.
//
// What must hold: nothing that is stored differs from the model by a bit, ever; the cores' own invariants after every event; and when the
// last fault is over, every machine has what it wants in bounded time. Part of each seed of `hearth sim check` (sim/trial).
// Pure; owns what it allocates.
#ifndef HEARTH_SIM_TRANSFER_H
#define HEARTH_SIM_TRANSFER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define TRANSFER_TEXT_CAP 200

enum transfer_fault {
	TRANSFER_CRASH,   // a machine is away for a while; what it stored stays
	TRANSFER_SILENCE, // two machines do not hear each other, and nobody is told
	TRANSFER_WRONG,   // a machine's blocks are not what they were: flipped bits, another's bytes, too few
	TRANSFER_FULL,    // a machine cannot store anything
	TRANSFER_SLOW,
	TRANSFER_N_FAULTS,
};

struct transfer_result {
	bool failed;
	char failure[TRANSFER_TEXT_CAP];
	int64_t failed_ns, end_ns; // virtual
	uint64_t history;
	uint32_t faults[TRANSFER_N_FAULTS]; // that had something to work on
	uint64_t n_stored, n_wrong, n_refused, n_silent, n_full; // blocks stored; what the sources did
};

MUST_USE enum err transfer_run(uint64_t seed, struct transfer_result *r);

#endif
