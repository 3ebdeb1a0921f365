// The machine's owner comes first: how much memory a stage's weights may take while other programs are short of it. Pure.
//
// What is not kept is read again for each token (engine/residency.h), so that giving way costs time and changes no bit. Less at the second look
// in a row that finds the machine short of memory, a quarter of the weights at a time or what is missing; then the next look that counts is some
// seconds later, as the kernel's figure is of the last ten. More, a quarter at a time, after a quiet minute, and later each time when that was too early.
#ifndef HEARTH_ENGINE_GIVE_MEMORY_H
#define HEARTH_ENGINE_GIVE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#define GIVE_MEMORY_ALL UINT64_MAX // weights take what they want

struct give_memory {
	uint64_t full, least; // bytes of the stage's weights: all that may be kept, and what they cannot do with less; 0: there is none
	uint64_t hold;        // what they may take; GIVE_MEMORY_ALL
	uint64_t top;         // with which it is over
	int32_t n_short, n_quiet; // looks in a row
	int32_t n_wait;           // looks to come that count for nothing
	int32_t quiet_want;       // looks before it takes back
	int32_t since_more;       // looks since it last took back
};

// What the system tells.
struct memory_look {
	int32_t pressure; // hundredths of a per cent of the last ten seconds in which somebody waited for memory; -1: not known
	uint64_t available_bytes, total_bytes;
};

void give_memory_init(struct give_memory *g);
// give_memory_stage tells what the present stage's weights take.
void give_memory_stage(struct give_memory *g, uint64_t full, uint64_t least);
// give_memory_is_short: other programs lack memory at this moment.
bool give_memory_is_short(const struct memory_look *l);
// give_memory_look returns what weights may take from now on: GIVE_MEMORY_ALL, or at least g->least.
uint64_t give_memory_look(struct give_memory *g, const struct memory_look *l);

#endif
