// What one end of a link learns of it from live traffic: how long round trips take (as a distribution), and how fast bytes go there.
//
// Round trips are those of pings on an idle link; how long it is busy with what was sent is known roughly, and pings that stand behind a payload count
// for the rate only: behind a frame of b bytes a ping returns b / rate later than it would alone. Each such ping gives one bad estimate; the
// slope over many, of all sizes, with the idle mean as the line's beginning, gives a good one. Whether it is good follows from the deviation of idle round
// trips: a rate is only told when it stands out of the noise, else a bound below it. A payload also sets the far end to work, with every core: a ping
// that returns much later than the best of its kind lately did has waited for that, and tells nothing of the link.
//
// What is old counts less: sums and the histogram are halved when they are full. Fixed size, integers and IEEE doubles: the same on every machine.
// Pure. What a peer sends back is checked: a cookie that is not that of a ping under way is no measurement.
#ifndef HEARTH_FLOW_LINK_STATS_H
#define HEARTH_FLOW_LINK_STATS_H

#include "proto/msg.h"

#include <stdbool.h>
#include <stdint.h>

#define LINK_STATS_BUCKETS 192        // of round trips in microseconds: 8 for each power of two
#define LINK_STATS_PROBE_NS 200000000 // between two pings behind payloads
#define LINK_STATS_PROBE_LEAST 1024   // bytes of a payload that are worth one

struct link_stats {
	uint64_t n; // round trips on the idle link
	uint16_t buckets[LINK_STATS_BUCKETS];
	uint32_t weight; // of all buckets
	double n_idle, sum_us, sum_squares;
	double n_probes, sum_bytes_squared, sum_bytes_late; // bytes^2; bytes times microseconds later than idle
	double least_us_per_byte; // that a payload took lately, with what noise may hide of it; 0: none was measured
	double us_per_byte;     // as far as is known, or a bound above it; 0: nothing is known
	int64_t busy_until_ns;  // what was sent is on its way until then
	int64_t probed_ns;      // when the last ping behind a payload was sent
	uint64_t idle_cookie, probe_cookie; // of pings under way; 0: none
	double probe_bytes;
};

void link_stats_init(struct link_stats *s);
// link_stats_forget: a new connection; what is under way does not come back.
void link_stats_forget(struct link_stats *s);
// link_stats_pinged: a ping with the cookie `now_ns` is sent, for whatever reason but link_stats_sent.
void link_stats_pinged(struct link_stats *s, int64_t now_ns);
// link_stats_sent: a payload is sent. True: the caller sends a ping with the cookie `now_ns` right behind it.
bool link_stats_sent(struct link_stats *s, uint64_t bytes, int64_t now_ns);
// link_stats_ponged takes the cookie of a PONG. Returns whether it told something.
bool link_stats_ponged(struct link_stats *s, uint64_t cookie, int64_t now_ns);
// link_stats_figures: n 0 when there is nothing to tell yet.
void link_stats_figures(const struct link_stats *s, struct link_figures *out);

#endif
