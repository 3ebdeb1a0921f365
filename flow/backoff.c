#include "flow/backoff.h"

#define MS INT64_C(1000000)

const struct backoff_limits backoff_defaults = {.first_ns = 100 * MS, .max_ns = 30000 * MS, .steady_ns = 2000 * MS};

void backoff_init(struct backoff *b, const struct backoff_limits *limits, uint64_t seed)
{
	*b = (struct backoff){.limits = limits};
	rng_init(&b->rng, seed);
}

int64_t backoff_next_ns(struct backoff *b)
{
	int64_t pause = b->limits->first_ns;
	for (uint32_t i = 0; i < b->n_failed && pause < b->limits->max_ns; i++)
		pause = pause > b->limits->max_ns / 2 ? b->limits->max_ns : pause * 2;
	if (pause > b->limits->max_ns)
		pause = b->limits->max_ns;
	if (b->n_failed < UINT32_MAX)
		b->n_failed++;
	int64_t half = pause / 2;
	return pause - half + (int64_t)rng_below(&b->rng, (uint64_t)half + 1);
}

void backoff_ended(struct backoff *b, int64_t up_ns)
{
	if (up_ns >= b->limits->steady_ns)
		b->n_failed = 0;
}

void backoff_reset(struct backoff *b)
{
	b->n_failed = 0;
}
