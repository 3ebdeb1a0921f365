#include "sim/trace_generate.h"

#define LONG_AGO_NS (-(INT64_MAX / 4))

struct prober {
	struct profile_state link;
	int64_t last_active_ns;
	int64_t last_pass_ns[2]; // requests, answers
};

// pass returns when what is sent at now_ns is through, or -1: swallowed.
static int64_t pass(struct prober *b, int way, int64_t now_ns)
{
	struct profile_draw d = profile_draw(&b->link, now_ns, now_ns - b->last_active_ns);
	if (d.silent_until_ns > now_ns)
		return -1;
	int64_t t_ns = d.blocks ? profile_gate(d.start_ns, d.rtt_ns, now_ns) : now_ns + d.rtt_ns / 2;
	t_ns = t_ns > d.blocked_until_ns ? t_ns : d.blocked_until_ns;
	t_ns = t_ns > b->last_pass_ns[way] ? t_ns : b->last_pass_ns[way];
	b->last_pass_ns[way] = t_ns;
	b->last_active_ns = t_ns > b->last_active_ns ? t_ns : b->last_active_ns;
	return t_ns;
}

// answer_until answers the requests that arrive before `until_ns`, in order. A sample's rtt_ns is the request's arrival until then.
static size_t answer_until(struct prober *b, struct trace_sample *samples, size_t next, size_t n_sent, int64_t until_ns)
{
	for (; next < n_sent && samples[next].rtt_ns < until_ns; next++) {
		struct trace_sample *s = &samples[next];
		int64_t back_ns = s->rtt_ns < 0 ? -1 : pass(b, 1, s->rtt_ns);
		s->rtt_ns = back_ns < 0 ? -1 : back_ns - s->t_ns;
	}
	return next;
}

void trace_generate(const struct profile *p, uint64_t seed, uint64_t shared_seed, int64_t interval_ns, struct trace_sample *samples, size_t n)
{
	struct prober b = {.last_active_ns = LONG_AGO_NS};
	size_t n_answered = 0;
	profile_init(&b.link, p, seed, shared_seed, 0);
	for (size_t i = 0; i < n; i++) {
		int64_t now_ns = (int64_t)i * interval_ns;
		n_answered = answer_until(&b, samples, n_answered, i, now_ns);
		samples[i] = (struct trace_sample){.t_ns = now_ns, .rtt_ns = pass(&b, 0, now_ns)};
	}
	(void)answer_until(&b, samples, n_answered, n, INT64_MAX);
}
