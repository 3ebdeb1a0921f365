#include "flow/silences.h"

#define PHI_8_DEVIATIONS_E3 5612 // of a normal distribution one in 10^8 lies above its mean and so many thousandths of deviations
#define US_MAX 16000000          // a longer silence counts as this one: sums of squares stay far below 2^64

static uint32_t to_us(int64_t ns)
{
	int64_t us = ns / 1000;
	return us < 0 ? 0 : us > US_MAX ? US_MAX : (uint32_t)us;
}

static uint32_t root(uint64_t x)
{
	uint64_t r = 0;
	for (uint64_t bit = UINT64_C(1) << 31; bit > 0; bit >>= 1)
		if ((r | bit) * (r | bit) <= x)
			r |= bit;
	return (uint32_t)r;
}

// late_of: of n, one in a hundred may be longer.
static uint32_t late_of(const struct silences *s)
{
	uint32_t first = 0, second = 0; // the two longest: n is below 200
	_Static_assert(SILENCES_WINDOW < 200, "two are enough");
	for (int32_t i = 0; i < s->n; i++) {
		uint32_t x = s->us[i];
		if (x > first) {
			second = first;
			first = x;
		} else if (x > second) {
			second = x;
		}
	}
	return s->n < SILENCES_LATE_MIN ? 0 : second;
}

static void push(struct silences *s, uint32_t us)
{
	if (s->n == SILENCES_WINDOW) {
		uint64_t old = s->us[s->at];
		s->sum -= old;
		s->sum_of_squares -= old * old;
	} else {
		s->n++;
	}
	s->us[s->at] = us;
	s->at = (s->at + 1) % SILENCES_WINDOW;
	s->sum += us;
	s->sum_of_squares += (uint64_t)us * us;
	uint64_t n = (uint64_t)s->n;
	s->mean_us = (uint32_t)(s->sum / n);
	s->deviation_us = root((s->sum_of_squares * n - s->sum * s->sum) / (n * n));
	s->late_us = late_of(s);
}

void silences_init(struct silences *s, int64_t period_ns, int64_t now_ns)
{
	*s = (struct silences){.begin_ns = now_ns};
	push(s, to_us(period_ns * 3 / 4));
	push(s, to_us(period_ns * 5 / 4));
}

bool silences_add(struct silences *s, int64_t silence_ns, int64_t period_ns, int64_t now_ns)
{
	uint32_t us = to_us(silence_ns);
	bool is_late = s->late_us > 0 && us > s->late_us;
	s->worst_us = us > s->worst_us ? us : s->worst_us;
	if (now_ns - s->begin_ns >= period_ns) {
		push(s, s->worst_us);
		silences_skip(s, now_ns);
	}
	return is_late;
}

void silences_skip(struct silences *s, int64_t now_ns)
{
	s->begin_ns = now_ns;
	s->worst_us = 0;
}

int64_t silences_suspect_ns(const struct silences *s, int64_t deviation_min_ns)
{
	int64_t deviation_ns = (int64_t)s->deviation_us * 1000;
	deviation_ns = deviation_ns > deviation_min_ns ? deviation_ns : deviation_min_ns;
	return (int64_t)s->mean_us * 1000 + deviation_ns * PHI_8_DEVIATIONS_E3 / 1000;
}
