#include "flow/observed_rate.h"

void observed_rate_begin(struct observed_rate *r)
{
	r->has_base = false;
}

void observed_rate_report(struct observed_rate *r, uint64_t units, uint64_t us)
{
	bool is_later = r->has_base && units >= r->last_units && us >= r->last_us;
	if (is_later && us > r->last_us) {
		r->units += (double)(units - r->last_units);
		r->us += (double)(us - r->last_us);
	}
	r->has_base = true;
	r->last_units = units;
	r->last_us = us;
	while (r->us > OBSERVED_HELD_US) {
		r->units /= 2;
		r->us /= 2;
	}
}

double observed_rate_per_s(const struct observed_rate *r)
{
	return r->us >= OBSERVED_LEAST_US ? r->units * 1e6 / r->us : 0;
}
