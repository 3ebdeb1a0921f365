#include "flow/link_stats.h"

#include <string.h>

#define SAMPLE 64            // weight of a new round trip in the histogram
#define SAMPLES_HELD 256     // when there are so many, all count half: what was measured two to four minutes ago is half forgotten
#define PROBES_HELD 256      // the same of pings behind payloads
#define IDLE_LEAST 4         // round trips before a later one means anything
#define BOUND 4.0            // deviations: Wi-Fi has longer tails than a normal distribution
#define NOISE_US2 400.0      // variance of a round trip at least: clocks and schedulers are no better than 20 us
#define STANDS_OUT 100.0     // squared: a slope of ten deviations is known within a tenth, mostly
#define TOO_LATE 2.0         // times what a payload took at best: the far end was busy
#define FORGETS 1.05         // with each payload the best one counts for less: a link that has become slower is believed after some tens
#define PROBES_LEAST 4.0     // payloads before a rate is told: the first one may have met anything
#define SLOW_US_PER_BYTE 1.0 // 1 MB/s: while nothing is known, a payload takes this long
#define BUSY_ROOM 1.25       // how much longer than known the link counts as busy
#define BUSY_MAX_US 10000000.0 // more would be a guess gone wrong
#define TRIP_MAX_US LINK_RTT_MAX_US // what may be told of it

static double root(double x)
{
	double r = x > 1 ? x : 1;
	for (int i = 0; i < 60; i++)
		r = (r + x / r) / 2;
	return r;
}

void link_stats_init(struct link_stats *s)
{
	*s = (struct link_stats){.n = 0};
}

void link_stats_forget(struct link_stats *s)
{
	s->idle_cookie = s->probe_cookie = 0;
	s->busy_until_ns = 0;
}

// ---- round trips

static int32_t bucket_of(uint32_t us)
{
	int32_t e = 2;
	if (us < 8)
		return (int32_t)us;
	while (us >> (e + 1) != 0)
		e++;
	int32_t i = 8 * (e - 2) + (int32_t)(us >> (e - 3) & 7);
	return i < LINK_STATS_BUCKETS ? i : LINK_STATS_BUCKETS - 1;
}

// middle_of returns the middle of a bucket's range; that of the last ones is past what can be told.
static int32_t middle_of(int32_t bucket)
{
	if (bucket < 8)
		return bucket;
	int32_t e = bucket / 8 + 2;
	int64_t low = (INT64_C(8) + bucket % 8) << (e - 3), width = INT64_C(1) << (e - 3);
	return low + width / 2 < LINK_RTT_MAX_US ? (int32_t)(low + width / 2) : LINK_RTT_MAX_US;
}

static void halve(struct link_stats *s)
{
	s->weight = 0;
	for (int32_t i = 0; i < LINK_STATS_BUCKETS; i++) {
		s->buckets[i] /= 2;
		s->weight += s->buckets[i];
	}
	s->n_idle /= 2;
	s->sum_us /= 2;
	s->sum_squares /= 2;
}

static void add_round_trip(struct link_stats *s, double us)
{
	s->buckets[bucket_of((uint32_t)us)] += SAMPLE;
	s->weight += SAMPLE;
	s->n++;
	s->n_idle++;
	s->sum_us += us;
	s->sum_squares += us * us;
	if (s->weight >= SAMPLES_HELD * SAMPLE)
		halve(s);
}

static double mean(const struct link_stats *s)
{
	return s->sum_us / s->n_idle;
}

static double variance(const struct link_stats *s)
{
	double m = mean(s), v = s->sum_squares / s->n_idle - m * m;
	return v > NOISE_US2 ? v : NOISE_US2;
}

// ---- payloads

// slope returns microseconds a byte; is_sure: it stands out of the noise.
static double slope(const struct link_stats *s, bool *is_sure)
{
	*is_sure = false;
	if (s->sum_bytes_squared <= 0 || s->n_idle < IDLE_LEAST)
		return 0;
	double k = s->sum_bytes_late / s->sum_bytes_squared;
	*is_sure = k > 0 && s->n_probes >= PROBES_LEAST && k * k * s->sum_bytes_squared >= STANDS_OUT * variance(s);
	return k;
}

// bound_of returns a slope that the true one is below, nearly always.
static double bound_of(const struct link_stats *s, double k)
{
	return (k > 0 ? k : 0) + BOUND * root(variance(s) / s->sum_bytes_squared);
}

// is_too_late also notes how fast a payload has been.
static bool is_too_late(struct link_stats *s, double late_us)
{
	double took = ((late_us > 0 ? late_us : 0) + BOUND * root(variance(s))) / s->probe_bytes, least = s->least_us_per_byte * FORGETS;
	s->least_us_per_byte = least > 0 && least < took ? least : took;
	return took > TOO_LATE * s->least_us_per_byte;
}

static void add_probe(struct link_stats *s, double us)
{
	bool is_sure;
	if (s->n_idle < IDLE_LEAST)
		return; // nothing to compare with
	double late_us = us - mean(s);
	if (is_too_late(s, late_us))
		return;
	s->n_probes++;
	s->sum_bytes_squared += s->probe_bytes * s->probe_bytes;
	s->sum_bytes_late += s->probe_bytes * late_us;
	double k = slope(s, &is_sure);
	s->us_per_byte = is_sure ? k : bound_of(s, k);
	if (s->n_probes < PROBES_HELD)
		return;
	s->n_probes /= 2;
	s->sum_bytes_squared /= 2;
	s->sum_bytes_late /= 2;
}

void link_stats_pinged(struct link_stats *s, int64_t now_ns)
{
	s->idle_cookie = now_ns >= s->busy_until_ns ? (uint64_t)now_ns : 0;
}

bool link_stats_sent(struct link_stats *s, uint64_t bytes, int64_t now_ns)
{
	bool is_idle = now_ns >= s->busy_until_ns;
	double per_byte = s->us_per_byte > 0 ? s->us_per_byte : SLOW_US_PER_BYTE, us = (double)bytes * per_byte * BUSY_ROOM;
	int64_t until_ns = (is_idle ? now_ns : s->busy_until_ns) + (int64_t)((us < BUSY_MAX_US ? us : BUSY_MAX_US) * 1000);
	s->busy_until_ns = until_ns < now_ns + (int64_t)BUSY_MAX_US * 1000 ? until_ns : now_ns + (int64_t)BUSY_MAX_US * 1000;
	if (!is_idle || bytes < LINK_STATS_PROBE_LEAST || (s->probed_ns != 0 && now_ns - s->probed_ns < LINK_STATS_PROBE_NS))
		return false;
	s->probed_ns = now_ns;
	s->probe_cookie = (uint64_t)now_ns;
	s->probe_bytes = (double)bytes;
	return true;
}

bool link_stats_ponged(struct link_stats *s, uint64_t cookie, int64_t now_ns)
{
	double us = cookie <= (uint64_t)now_ns ? (double)((uint64_t)now_ns - cookie) / 1000 : -1;
	if (cookie == 0 || us < 0 || us > TRIP_MAX_US)
		return false;
	if (cookie == s->probe_cookie) {
		s->probe_cookie = 0;
		add_probe(s, us);
		return true;
	}
	if (cookie != s->idle_cookie)
		return false;
	s->idle_cookie = 0;
	add_round_trip(s, us);
	return true;
}

// ---- figures

static int32_t quantile(const struct link_stats *s, uint32_t per_cent)
{
	uint64_t want = ((uint64_t)s->weight * per_cent + 99) / 100, sum = 0;
	for (int32_t i = 0; i < LINK_STATS_BUCKETS; i++) {
		sum += s->buckets[i];
		if (sum >= want && sum > 0)
			return middle_of(i);
	}
	return 0;
}

static uint64_t rate_of(double us_per_byte)
{
	double rate = 1e6 / us_per_byte;
	return rate < (double)PROFILE_RATE_MAX ? (uint64_t)rate : PROFILE_RATE_MAX;
}

void link_stats_figures(const struct link_stats *s, struct link_figures *out)
{
	*out = (struct link_figures){.n = s->n};
	if (s->n == 0 || s->n_idle <= 0)
		return;
	out->p50_us = quantile(s, 50);
	out->p90_us = quantile(s, 90);
	out->p99_us = quantile(s, 99);
	out->mean_us = (int32_t)(mean(s) + 0.5);
	if (s->sum_bytes_squared <= 0)
		return;
	bool is_sure;
	double k = slope(s, &is_sure);
	out->rate_bps = is_sure ? rate_of(k) : 0;
	out->rate_least_bps = s->n_idle >= IDLE_LEAST ? rate_of(bound_of(s, k)) : 0;
}
