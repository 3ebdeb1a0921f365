#include "flow/liveness.h"

const struct liveness_limits liveness_defaults = {
	.ping_after_ns = 1000000000,
	.suspect_after_ns = 1500000000,
	.deviation_ns = 100000000,
	.dead_after_ns = 8000000000,
	.late_loop_ns = 1000000000,
	.rejoin_ns = 1000000000,
	.settle_ns = 3000000000,
	.flap_ns = 10000000000,
	.flap_max_ns = 300000000000,
};

struct liveness_limits liveness_with(int64_t dead_after_ns)
{
	struct liveness_limits l = liveness_defaults;
	if (dead_after_ns < l.dead_after_ns) {
		l.ping_after_ns = l.late_loop_ns = dead_after_ns / 8;
		l.suspect_after_ns = dead_after_ns / 16 * 3;
		l.deviation_ns = dead_after_ns / 80;
	}
	l.dead_after_ns = dead_after_ns;
	return l;
}

void liveness_init(struct liveness *l, const struct liveness_limits *limits, int64_t now_ns)
{
	*l = (struct liveness){.heard_ns = now_ns, .sent_ns = now_ns};
	silences_init(&l->silences, limits->ping_after_ns, now_ns);
}

bool liveness_heard(struct liveness *l, const struct liveness_limits *limits, int64_t now_ns)
{
	int64_t silence_ns = now_ns - l->heard_ns;
	l->heard_ns = now_ns;
	return silences_add(&l->silences, silence_ns, limits->ping_after_ns, now_ns);
}

void liveness_restart(struct liveness *l, int64_t now_ns)
{
	l->heard_ns = now_ns;
	silences_skip(&l->silences, now_ns);
}

enum liveness_verdict liveness_step(struct liveness *l, const struct liveness_limits *limits, int64_t now_ns)
{
	if (now_ns - l->heard_ns >= limits->dead_after_ns)
		return LIVENESS_DEAD;
	if (now_ns - l->sent_ns < limits->ping_after_ns)
		return LIVENESS_FINE;
	l->sent_ns = now_ns;
	return LIVENESS_PING;
}

int64_t liveness_suspect_ns(const struct liveness *l, const struct liveness_limits *limits)
{
	int64_t ns = silences_suspect_ns(&l->silences, limits->deviation_ns);
	ns = ns > limits->suspect_after_ns ? ns : limits->suspect_after_ns;
	return ns < limits->dead_after_ns ? ns : limits->dead_after_ns;
}

bool liveness_is_suspect(const struct liveness *l, const struct liveness_limits *limits, int64_t now_ns)
{
	return now_ns - l->heard_ns >= liveness_suspect_ns(l, limits);
}

bool liveness_was_well(const struct liveness *l, const struct liveness_limits *limits, int64_t then_ns)
{
	return then_ns - l->heard_ns < limits->suspect_after_ns;
}

int64_t liveness_deadline_ns(const struct liveness *l, const struct liveness_limits *limits)
{
	int64_t ping = l->sent_ns + limits->ping_after_ns, dead = l->heard_ns + limits->dead_after_ns;
	return ping < dead ? ping : dead;
}
