// Liveness of one link: when to send a ping, when silence makes the peer suspect, and when it means the peer is dead. Pure; thresholds from
// wifi-profiles.md: a Wi-Fi link stalls for seconds and lives, so death by silence comes at 8 s and not before; any received byte is a heartbeat.
// What is suspicious depends on what the link is used to (flow/silences): phi 8, and never before suspect_after_ns.
#ifndef HEARTH_FLOW_LIVENESS_H
#define HEARTH_FLOW_LIVENESS_H

#include "flow/silences.h"

#include <stdbool.h>
#include <stdint.h>

struct liveness_limits {
	int64_t ping_after_ns; // a link that sent nothing for this long sends a ping
	int64_t suspect_after_ns; // a shorter silence is not suspicious, however regular the link was
	int64_t deviation_ns;  // of silences, at least: a link as regular as a clock is no reason to suspect it early
	int64_t dead_after_ns; // silence that means death
	int64_t late_loop_ns;  // my own loop was away this long: silence proves nothing, timers start again
	int64_t rejoin_ns;     // after a reset: by then three reconnects, 100, 200 and 400 ms apart, have failed, and the peer is dead
	int64_t settle_ns;     // of health, before one that was lost is given work others do already
	int64_t flap_ns;       // the same for one that was lost twice; doubles each time ..
	int64_t flap_max_ns;   // .. up to this
};

extern const struct liveness_limits liveness_defaults;

struct liveness {
	int64_t heard_ns; // last byte in
	int64_t sent_ns;  // last ping out
	struct silences silences;
};

enum liveness_verdict { LIVENESS_FINE, LIVENESS_PING, LIVENESS_DEAD };

// liveness_with returns the defaults with another time to death, and pings that suit it.
struct liveness_limits liveness_with(int64_t dead_after_ns);
void liveness_init(struct liveness *l, const struct liveness_limits *limits, int64_t now_ns);
// liveness_heard ends a silence. Returns whether it was late for this link: a figure to show, nothing follows from it.
bool liveness_heard(struct liveness *l, const struct liveness_limits *limits, int64_t now_ns);
// liveness_restart forgives all silence so far: the caller was late itself.
void liveness_restart(struct liveness *l, int64_t now_ns);
// liveness_step says what is due; LIVENESS_PING means that the caller sends a ping now.
enum liveness_verdict liveness_step(struct liveness *l, const struct liveness_limits *limits, int64_t now_ns);
// liveness_suspect_ns returns how long a silence is suspicious; liveness_is_suspect: this one is.
int64_t liveness_suspect_ns(const struct liveness *l, const struct liveness_limits *limits);
bool liveness_is_suspect(const struct liveness *l, const struct liveness_limits *limits, int64_t now_ns);
// liveness_was_well tells whether at an earlier time the silence there is now was not suspicious yet.
bool liveness_was_well(const struct liveness *l, const struct liveness_limits *limits, int64_t then_ns);
// liveness_deadline_ns returns when liveness_step wants to be called again.
int64_t liveness_deadline_ns(const struct liveness *l, const struct liveness_limits *limits);

#endif
