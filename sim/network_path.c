// The way of one message: rates, delays, losses.
#include "sim/network_state.h"

#include "base/assert.h"
#include "base/fmath.h"

#define NS_PER_S_BITS UINT64_C(8000000000) // nanoseconds in a second, times bits in a byte
#define RTO_MIN_NS INT64_C(200000000)      // Linux: TCP_RTO_MIN, added to the round trip
#define RTO_MAX_NS INT64_C(120000000000)   // Linux: TCP_RTO_MAX
#define RETRIES_MAX 15                     // Linux: tcp_retries2
#define DUPLICATE_ACKS 3                   // packets that must follow a lost one for it to be sent again at once: RFC 5681, section 3.2

// What one message meets at one delay, looked up when it is sent.
struct passage {
	struct profile_draw draw; // rtt_ns 0: no delay by a draw
	int64_t shift_ns;         // TABLE: one way, either sign
};

// One message on its way.
struct journey {
	struct network_machine *from, *to;
	struct network_link *link;
	struct network_way *way;
	struct network_flow *flow;
	struct network_side *side;
	int64_t now_ns;
	struct passage out, between, in;
	bool is_blocked;
};

// Rates

static uint64_t scaled_rate(uint64_t rate_bps, double factor)
{
	if (rate_bps == 0 || factor == 1.0)
		return rate_bps;
	double r = (double)rate_bps * factor;
	return r < NETWORK_RATE_MIN ? NETWORK_RATE_MIN : r > (double)NETWORK_RATE_MAX ? NETWORK_RATE_MAX : (uint64_t)r;
}

// queue_pass returns when the last bit is out; what follows begins less than a nanosecond before.
static int64_t queue_pass(struct network_queue *q, size_t bytes, uint64_t rate_bps, int64_t now_ns)
{
	if (rate_bps == 0)
		return now_ns;
	if (q->busy_ns < now_ns) {
		q->busy_ns = now_ns;
		q->remainder = 0;
	} else if (q->rate_bps != rate_bps) {
		q->busy_ns += q->remainder > 0;
		q->remainder = 0;
	}
	uint64_t work = (uint64_t)bytes * NS_PER_S_BITS + q->remainder; // at most 8.6e18 + 1.1e12
	q->rate_bps = rate_bps;
	q->remainder = work % rate_bps;
	q->busy_ns += (int64_t)(work / rate_bps);
	if (q->busy_ns > FAR_NS)
		q->busy_ns = FAR_NS;
	return q->busy_ns + (q->remainder > 0);
}

// deliver_by_trace uses up opportunities, the rest of one as well as long as its time has not come.
static int64_t deliver_by_trace(struct network_queue *q, const struct trace *t, uint64_t bytes, int64_t now_ns)
{
	uint64_t k = trace_opportunity_from(t, now_ns);
	bytes += bytes == 0; // a bare acknowledgement is a packet too
	if (q->bytes_left > 0 && q->next_opportunity > k) {
		uint64_t taken = bytes < q->bytes_left ? bytes : q->bytes_left;
		q->bytes_left -= taken;
		bytes -= taken;
	} else {
		q->bytes_left = 0;
	}
	if (q->next_opportunity < k)
		q->next_opportunity = k;
	if (bytes > 0) {
		uint64_t n = (bytes + TRACE_OPPORTUNITY_BYTES - 1) / TRACE_OPPORTUNITY_BYTES;
		q->next_opportunity += n;
		q->bytes_left = n * TRACE_OPPORTUNITY_BYTES - bytes;
	}
	int64_t out_ns = trace_opportunity_ns(t, q->next_opportunity - 1);
	return out_ns < FAR_NS ? out_ns : FAR_NS;
}

static int64_t pass_link_rate(struct journey *j, size_t bytes)
{
	struct network_way *w = j->way;
	const struct network_delay *d = &j->link->delay.d;
	if (w->deliveries != NULL)
		return deliver_by_trace(&w->queue, w->deliveries, (uint64_t)((double)bytes / j->link->rate_factor), j->now_ns);
	uint64_t rate_bps = w->rate_bps;
	if (d->kind == NETWORK_DELAY_TRACE) {
		const struct trace_sample *s = trace_sample_at(d->trace, network_later(j->now_ns, w->queue.busy_ns) + d->offset_ns);
		rate_bps = s->rate_bps > 0 ? s->rate_bps : rate_bps;
	}
	return queue_pass(&w->queue, bytes, scaled_rate(rate_bps, j->link->rate_factor), j->now_ns);
}

static int64_t pass_leg_rate(struct network *n, struct network_machine *m, struct network_queue *wire, uint64_t wire_bps, size_t bytes, int64_t now_ns)
{
	bool is_wired = m->p.access_point == NETWORK_WIRED;
	struct network_queue *q = is_wired ? wire : &n->access_points[m->p.access_point].air;
	return queue_pass(q, bytes, scaled_rate(is_wired ? wire_bps : m->p.air_bps, m->rate_factor), now_ns);
}

// pass_rates returns when the last bit has passed every rate on its way. They work at the same time, as packets follow each other;
// the air that two stations share does not.
static int64_t pass_rates(struct network *n, struct journey *j, size_t bytes)
{
	int64_t out_ns = pass_leg_rate(n, j->from, &j->from->up, j->from->p.up_bps, bytes, j->now_ns);
	out_ns = network_later(out_ns, pass_link_rate(j, bytes));
	return network_later(out_ns, pass_leg_rate(n, j->to, &j->to->down, j->to->p.down_bps, bytes, j->now_ns));
}

// Delays

static int64_t scaled_delay(int64_t ns, double factor)
{
	if (factor == 1.0)
		return ns;
	double v = (double)ns * factor;
	return v < (double)NETWORK_DELAY_MAX_NS ? (int64_t)v : NETWORK_DELAY_MAX_NS;
}

static struct passage look(struct network_delay_state *s, int64_t now_ns, int64_t last_active_ns)
{
	struct passage out = {.shift_ns = 0};
	if (s->d.kind == NETWORK_DELAY_PROFILE) {
		out.draw = profile_draw(&s->profile, now_ns, now_ns - last_active_ns);
	} else if (s->d.kind == NETWORK_DELAY_TABLE) {
		int16_t sigmas = s->d.trace->table[rng_below(&s->table_draws, s->d.trace->n)];
		out.shift_ns = s->d.spread_ns * sigmas / TRACE_TABLE_SIGMA; // an hour times 2^15 is below 2^57
	}
	return out;
}

// cross returns when what comes at t_ns is through. `base_ns` is the mean that a table's draw is added to.
static int64_t cross(const struct network_delay_state *s, const struct passage *p, int64_t t_ns, int64_t base_ns, double factor, bool *is_blocked)
{
	int64_t out_ns = t_ns + scaled_delay(base_ns, factor);
	if (s->d.kind == NETWORK_DELAY_TRACE) {
		const struct trace_sample *sample = trace_sample_at(s->d.trace, t_ns + s->d.offset_ns);
		return sample->rtt_ns >= 0 ? out_ns + scaled_delay(sample->rtt_ns / 2, factor) : out_ns;
	}
	if (s->d.kind == NETWORK_DELAY_TABLE)
		return network_later(t_ns, t_ns + scaled_delay(network_later(base_ns + p->shift_ns, 0), factor));
	if (p->draw.blocks)
		out_ns = network_later(out_ns, profile_gate(p->draw.start_ns, p->draw.rtt_ns, t_ns));
	else
		out_ns += scaled_delay(p->draw.rtt_ns / 2, factor);
	*is_blocked |= p->draw.blocks || p->draw.blocked_until_ns > out_ns;
	return network_later(out_ns, p->draw.blocked_until_ns);
}

static int64_t cross_leg(const struct network *n, const struct network_machine *m, const struct passage *p, int64_t t_ns, bool *is_blocked)
{
	int64_t out_ns = cross(&m->delay, p, t_ns, 0, m->delay_factor, is_blocked), open_ns = m->stall_until_ns;
	if (m->p.access_point != NETWORK_WIRED) {
		const struct network_access_point *ap = &n->access_points[m->p.access_point];
		open_ns = network_later(open_ns, profile_gate(ap->tail_start_ns, ap->tail_rtt_ns, t_ns));
	}
	*is_blocked |= open_ns > out_ns;
	return network_later(out_ns, open_ns);
}

// share_tail makes some tail events of a station those of its access point.
static void share_tail(struct network *n, const struct network_machine *m, const struct passage *p)
{
	if (!p->draw.is_new_tail || m->p.access_point == NETWORK_WIRED)
		return;
	struct network_access_point *ap = &n->access_points[m->p.access_point];
	bool is_shared = rng_u01(&ap->tails) < NETWORK_TAIL_SHARED;
	if (!is_shared || p->draw.start_ns + p->draw.rtt_ns <= ap->tail_start_ns + ap->tail_rtt_ns)
		return;
	ap->tail_start_ns = p->draw.start_ns;
	ap->tail_rtt_ns = p->draw.rtt_ns;
}

static void look_ahead(struct network *n, struct journey *j)
{
	j->out = look(&j->from->delay, j->now_ns, j->from->last_active_ns);
	j->between = look(&j->link->delay, j->now_ns, j->link->last_active_ns);
	j->in = look(&j->to->delay, j->now_ns, j->to->last_active_ns);
	share_tail(n, j->from, &j->out);
	share_tail(n, j->to, &j->in);
}

// Losses

static int64_t trace_rtt(const struct network_delay_state *s, int64_t t_ns)
{
	if (s->d.kind != NETWORK_DELAY_TRACE)
		return 0;
	int64_t rtt_ns = trace_sample_at(s->d.trace, t_ns + s->d.offset_ns)->rtt_ns;
	return rtt_ns > 0 ? rtt_ns : 0;
}

static bool is_silent(const struct network_delay_state *s, const struct passage *p, int64_t t_ns)
{
	if (s->d.kind == NETWORK_DELAY_TRACE)
		return trace_sample_at(s->d.trace, t_ns + s->d.offset_ns)->rtt_ns < 0;
	return t_ns < p->draw.silent_until_ns;
}

// round_trip_ns is what the sender's TCP would have measured by now, near enough.
static int64_t round_trip_ns(const struct journey *j, int64_t t_ns)
{
	int64_t rtt_ns = 2 * scaled_delay(j->link->base_ns, j->link->delay_factor) + trace_rtt(&j->from->delay, t_ns) +
		trace_rtt(&j->link->delay, t_ns) + trace_rtt(&j->to->delay, t_ns);
	const struct passage *legs[] = {&j->out, &j->between, &j->in};
	for (size_t i = 0; i < ARRAY_LEN(legs); i++)
		rtt_ns += legs[i]->draw.blocks ? 0 : legs[i]->draw.rtt_ns;
	return rtt_ns;
}

static bool is_packet_lost(const struct journey *j, int64_t t_ns)
{
	bool by_chance = j->link->loss > 0 && rng_u01(&j->flow->losses) < j->link->loss;
	return by_chance || is_silent(&j->from->delay, &j->out, t_ns) || is_silent(&j->link->delay, &j->between, t_ns) ||
		is_silent(&j->to->delay, &j->in, t_ns);
}

// first_lost returns how many packets follow the first one lost of a message, or -1: none is.
static int64_t first_lost(const struct journey *j, size_t bytes, int64_t t_ns)
{
	int64_t n = (int64_t)((bytes + NETWORK_PACKET_BYTES - 1) / NETWORK_PACKET_BYTES);
	n += n == 0;
	if (is_silent(&j->from->delay, &j->out, t_ns) || is_silent(&j->link->delay, &j->between, t_ns) || is_silent(&j->to->delay, &j->in, t_ns))
		return 0;
	if (j->link->loss <= 0)
		return -1;
	// A geometric number of packets comes through.
	double u = 1.0 - rng_u01(&j->flow->losses);
	double through = fmath_logd(u) / fmath_logd(1.0 - j->link->loss);
	return through < (double)n ? n - 1 - (int64_t)through : -1;
}

// retry returns when a packet gets through that was lost at t_ns, or -1: the sender gives up.
static int64_t retry(const struct journey *j, int64_t t_ns)
{
	int64_t rto_ns = RTO_MIN_NS + round_trip_ns(j, t_ns);
	for (int i = 0; i < RETRIES_MAX; i++) {
		t_ns += rto_ns;
		rto_ns = rto_ns < RTO_MAX_NS / 2 ? 2 * rto_ns : RTO_MAX_NS;
		if (!is_packet_lost(j, t_ns))
			return t_ns;
	}
	return -1;
}

// get_through returns when the last packet that had to be repeated leaves, `t_ns` when none had, or -1.
static int64_t get_through(const struct journey *j, size_t bytes, int64_t t_ns)
{
	int64_t n_behind = first_lost(j, bytes, t_ns);
	if (n_behind < 0)
		return t_ns;
	if (n_behind < DUPLICATE_ACKS)
		return retry(j, t_ns);
	t_ns += round_trip_ns(j, t_ns);
	return is_packet_lost(j, t_ns) ? retry(j, t_ns) : t_ns;
}

// Sending

static struct journey journey_init(struct network *n, struct network_flow *f, enum network_direction d, int64_t now_ns)
{
	struct network_link *l = &n->links[f->link];
	int32_t other = f->from == l->lo ? l->hi : l->lo;
	int32_t from = d == NETWORK_FORWARD ? f->from : other, to = d == NETWORK_FORWARD ? other : f->from;
	ASSERT(now_ns >= n->now_ns);
	n->now_ns = now_ns;
	return (struct journey){.from = &n->machines[from],
		.to = &n->machines[to],
		.link = l,
		.way = &l->ways[from > to],
		.flow = f,
		.side = &f->sides[d],
		.now_ns = now_ns};
}

static enum network_fate refuse(struct network *n, struct journey *j, enum network_fate fate, size_t bytes)
{
	if (fate == NETWORK_RESET) {
		j->flow->is_reset = true;
		n->stats.n_reset++;
		return fate;
	}
	if (!j->side->is_held) {
		j->side->is_held = true;
		j->side->held_since_ns = j->now_ns;
		j->side->held_bytes = 0;
	}
	j->side->held_bytes += bytes;
	n->stats.n_swallowed++;
	return fate;
}

// travel takes what leaves at t_ns through all delays. What was repeated waits in no line but its flow's.
static int64_t travel(struct network *n, struct journey *j, int64_t t_ns, bool was_repeated)
{
	const struct network_link *l = j->link;
	t_ns = cross_leg(n, j->from, &j->out, t_ns, &j->is_blocked);
	j->from->last_active_ns = network_later(j->from->last_active_ns, t_ns);
	t_ns = cross(&l->delay, &j->between, t_ns, l->base_ns, l->delay_factor, &j->is_blocked);
	j->is_blocked |= t_ns < l->stall_until_ns;
	t_ns = network_later(t_ns, l->stall_until_ns);
	j->link->last_active_ns = network_later(l->last_active_ns, t_ns);
	t_ns = cross_leg(n, j->to, &j->in, t_ns, &j->is_blocked);
	if (!was_repeated)
		t_ns = j->way->last_arrival_ns = network_later(t_ns, j->way->last_arrival_ns);
	j->to->last_active_ns = network_later(j->to->last_active_ns, t_ns);
	return j->side->last_arrival_ns = network_later(t_ns, j->side->last_arrival_ns);
}

enum network_fate network_send(struct network *n, int32_t flow, enum network_direction d, size_t bytes, int64_t now_ns, int64_t *arrival_ns)
{
	struct journey j = journey_init(n, network_get_flow(n, flow), d, now_ns);
	ASSERT(bytes <= NETWORK_MESSAGE_MAX);
	n->stats.n_sent++;
	enum network_fate fate = j.flow->is_reset ? NETWORK_RESET : network_path_fate(n, j.link, (int32_t)(j.from - n->machines), (int32_t)(j.to - n->machines));
	if (fate == NETWORK_ARRIVES && j.side->is_held)
		fate = NETWORK_SWALLOWED;
	if (fate != NETWORK_ARRIVES)
		return refuse(n, &j, fate, bytes);
	look_ahead(n, &j);
	int64_t out_ns = pass_rates(n, &j, bytes);
	int64_t through_ns = get_through(&j, bytes, out_ns);
	if (through_ns < 0)
		return refuse(n, &j, NETWORK_SWALLOWED, bytes);
	*arrival_ns = travel(n, &j, through_ns, through_ns != out_ns);
	n->stats.n_lost += through_ns != out_ns;
	n->stats.n_blocked += j.is_blocked;
	n->stats.bytes += bytes;
	return NETWORK_ARRIVES;
}

enum network_fate network_retransmit(struct network *n, int32_t flow, enum network_direction d, int64_t now_ns, int64_t *arrival_ns)
{
	struct journey j = journey_init(n, network_get_flow(n, flow), d, now_ns);
	ASSERT(j.side->is_held || j.flow->is_reset);
	enum network_fate fate = j.flow->is_reset ? NETWORK_RESET : network_path_fate(n, j.link, (int32_t)(j.from - n->machines), (int32_t)(j.to - n->machines));
	if (fate == NETWORK_RESET)
		return refuse(n, &j, fate, 0);
	if (fate == NETWORK_SWALLOWED)
		return fate;
	look_ahead(n, &j);
	int64_t try_ns = j.side->held_since_ns, rto_ns = RTO_MIN_NS + round_trip_ns(&j, now_ns);
	while (try_ns < now_ns) {
		try_ns += rto_ns;
		rto_ns = rto_ns < RTO_MAX_NS / 2 ? 2 * rto_ns : RTO_MAX_NS;
	}
	size_t bytes = j.side->held_bytes < NETWORK_MESSAGE_MAX ? j.side->held_bytes : NETWORK_MESSAGE_MAX;
	int64_t out_ns = get_through(&j, bytes, network_later(try_ns, pass_rates(n, &j, bytes)));
	if (out_ns < 0)
		return NETWORK_SWALLOWED;
	j.side->is_held = false;
	*arrival_ns = travel(n, &j, out_ns, true);
	n->stats.n_lost++;
	n->stats.bytes += j.side->held_bytes;
	return NETWORK_ARRIVES;
}
