// How long one link is used to be silent: a window of its longest silences, one for each period that something was heard in, and what follows
// from it: when a silence is late (longer than 99 of 100), and when it is so long that a link which behaves as it did stays silent that long
// once in 10^8 times, which is phi 8 of the accrual detector (Hayashibara and others, 2004).
//
// The longest per period and not every gap between two frames: a link that carries an answer brings a frame every few milliseconds, and a
// history of gaps would forget in a second what the link does in a minute. Integers only, in microseconds: the same on every machine. Phi of a
// normal distribution is 8 at its mean and 5.612 deviations, so that no logarithm is needed. Pure, of fixed size.
#ifndef HEARTH_FLOW_SILENCES_H
#define HEARTH_FLOW_SILENCES_H

#include <stdbool.h>
#include <stdint.h>

#define SILENCES_WINDOW 128    // periods remembered: two minutes
#define SILENCES_LATE_MIN 100  // of them, before anything is late

struct silences {
	uint32_t us[SILENCES_WINDOW]; // a ring
	int32_t n, at;
	uint64_t sum, sum_of_squares;
	int64_t begin_ns; // of the period that goes on
	uint32_t worst_us; // in it
	uint32_t late_us;  // 0: nothing is known
	uint32_t mean_us, deviation_us;
};

// silences_init supposes silences about as long as a period, until there are better ones.
void silences_init(struct silences *s, int64_t period_ns, int64_t now_ns);
// silences_add notes one that has ended. Returns whether it was late.
bool silences_add(struct silences *s, int64_t silence_ns, int64_t period_ns, int64_t now_ns);
// silences_skip leaves out the period that goes on: it was no silence of the link.
void silences_skip(struct silences *s, int64_t now_ns);
// silences_suspect_ns returns the silence at which phi is 8, if the deviation is at least deviation_min_ns.
int64_t silences_suspect_ns(const struct silences *s, int64_t deviation_min_ns);

#endif
