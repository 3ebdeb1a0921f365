// The machine's owner comes first: how many threads may compute while other programs want the processors too. Pure.
//
// Fewer at the second look in a row that finds others at work, so that a moment's burst changes nothing; more, one by one, when it has been
// quieter for a while. Results never depend on it (kernels/pool.h).
#ifndef HEARTH_ENGINE_GIVE_WAY_H
#define HEARTH_ENGINE_GIVE_WAY_H

#include <stdint.h>

#define GIVE_WAY_LOOK_S 2 // between two looks

struct give_way {
	int32_t n_max, n_now;
	int32_t n_busy, n_quiet; // looks in a row that wanted fewer; that would have allowed more
	int32_t least_busy;      // what the busy ones wanted at most
};

// give_way_init: all n_max threads compute.
void give_way_init(struct give_way *g, int32_t n_max);
// give_way_look takes how many processors' worth of time others used since the last look, of n_cpus, and returns how many threads may compute.
int32_t give_way_look(struct give_way *g, double by_others, int32_t n_cpus);

#endif
