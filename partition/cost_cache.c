// The kernel's page cache as peers use it: strict LRU, unit by unit, with one reader. When a device's turn ends it asks for what its next turn needs; what is
// resident then is not asked for, though it may be evicted by what is read before its turn comes, and then waits for a read of its own. That is why
// reading ahead through a cache that is too small is no better than no reading ahead, and why Hearth releases what it has used.
// Source: cost-model.md, section 5.
#include "partition/cost.h"

#include "base/assert.h"
#include "partition/cost_round.h"

// Of a unit, in runner.ends: a tick > 0 when it is resident.
#define ABSENT 0.0
#define ASKED (-1.0)

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static void evict_oldest(struct cost_runner *r)
{
	int32_t oldest = -1;
	for (int32_t i = 0; i < r->layout.n_units; i++)
		if (r->ends[i] > ABSENT && (oldest < 0 || r->ends[i] < r->ends[oldest]))
			oldest = i;
	ASSERT(oldest >= 0);
	r->ends[oldest] = ABSENT;
	r->asked.n_resident--;
}

// read_unit reads one unit, from begin_s or when the reader is free. A device without room for one unit never keeps any.
static void read_unit(struct cost_runner *r, int64_t unit, double begin_s, double read_s, struct cost_use *use)
{
	begin_s = larger(begin_s, r->read_end_s);
	r->read_end_s = begin_s + read_s;
	use->read_bytes += read_s * cost_device_of(r->c, r->stage)->disk_rate;
	if (r->on_read)
		r->on_read(r->on_read_ctx, r->stage, begin_s, r->read_end_s);
	if (r->layout.n_slots < 1) {
		r->ends[unit] = ABSENT;
		return;
	}
	if (r->asked.n_resident >= r->layout.n_slots)
		evict_oldest(r);
	r->ends[unit] = ++r->asked.tick;
	r->asked.n_resident++;
}

// read_asked reads what was asked for: what ends by until_s, or, when a unit is waited for, up to that one.
static void read_asked(struct cost_runner *r, double until_s, int64_t wanted, double read_s, struct cost_use *use)
{
	struct cost_asked *a = &r->asked;
	for (; a->next < a->end; a->next++) {
		bool is_waited_for = wanted >= 0 && r->ends[wanted] == ASKED;
		if (r->ends[a->next] != ASKED)
			continue;
		if (!is_waited_for && larger(a->since_s, r->read_end_s) + read_s > until_s)
			return;
		read_unit(r, a->next, a->since_s, read_s, use);
	}
}

double cost_cache_take(struct cost_runner *r, int64_t unit, double t, double read_s, double unit_s, struct cost_use *use)
{
	read_asked(r, t, -1, read_s, use);
	bool is_resident = r->ends[unit] > ABSENT;
	if (r->ends[unit] == ASKED)
		read_asked(r, t, unit, read_s, use);
	else if (!is_resident)
		read_unit(r, unit, r->asked.turn_s, read_s, use); // faults in order: the kernel reads ahead of them
	if (!is_resident && r->read_end_s > t) {
		use->stall_s += r->read_end_s - t;
		t = r->read_end_s;
	}
	if (r->ends[unit] > ABSENT)
		r->ends[unit] = ++r->asked.tick;
	return t + unit_s;
}

void cost_cache_ask(struct cost_runner *r, int32_t round, double now_s)
{
	int64_t begin = cost_round_begin(r->c, r->stage, &r->layout, round).unit, end = r->layout.n_units;
	if (round + 1 < r->c->plan->n_rounds)
		end = cost_round_begin(r->c, r->stage, &r->layout, round + 1).unit;
	for (int64_t i = begin; i < end; i++)
		if (r->ends[i] == ABSENT)
			r->ends[i] = ASKED;
	r->asked.since_s = now_s;
	r->asked.next = begin;
	r->asked.end = end;
}
