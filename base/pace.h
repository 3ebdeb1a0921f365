// Standing for something slower: whoever computes rests until it has taken `factor` times as long. Pure: the caller says what time it is, and sleeps.
//
// pace_begin when computing begins, or goes on after waiting for something else; pace_due before waiting, and at the end: it says how long to rest now.
// Little is owed until later, and who slept too long has that much to his credit, so that many short rests are as long as one.
#ifndef HEARTH_BASE_PACE_H
#define HEARTH_BASE_PACE_H

#include <stdint.h>

#define PACE_LEAST_NS 200000 // a shorter sleep is mostly waking up

struct pace {
	double factor; // 1 and less: never rests
	int64_t from_ns, owed_ns;
};

static inline void pace_begin(struct pace *p, int64_t now_ns)
{
	p->from_ns = now_ns;
}

static inline int64_t pace_due(struct pace *p, int64_t now_ns)
{
	if (p->factor > 1)
		p->owed_ns += (int64_t)((p->factor - 1) * (double)(now_ns - p->from_ns));
	p->from_ns = now_ns;
	return p->owed_ns >= PACE_LEAST_NS ? p->owed_ns : 0;
}

static inline void pace_rested(struct pace *p, int64_t ns)
{
	p->owed_ns -= ns;
}

#endif
