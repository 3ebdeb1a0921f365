#include "sim/exchange.h"

#include "base/assert.h"

#include <string.h>

// The tree: the root's children are about as many as theirs.
static int32_t n_children(int32_t n_members)
{
	int32_t n = 1;
	while (n + n * n < n_members - 1)
		n++;
	return n < n_members - 1 ? n : n_members - 1;
}

static int32_t parent(int32_t member, int32_t n_members)
{
	int32_t n = n_children(n_members);
	return member <= n ? 0 : 1 + (member - 1 - n) % n;
}

static int32_t steps_of(enum scenario_exchange kind, int32_t n)
{
	switch (kind) {
	case EXCHANGE_NONE:
		return 0;
	case EXCHANGE_PAIR:
	case EXCHANGE_BROADCAST:
		return 1;
	case EXCHANGE_STAR:
	case EXCHANGE_DIRECT:
		return 2;
	case EXCHANGE_TREE:
		return 4; // leaves up, children up, children down, leaves down
	case EXCHANGE_RING:
		return 2 * (n - 1);
	}
	return 0;
}

static bool sends_in_tree(int32_t step, int32_t from, int32_t to, int32_t n)
{
	bool up = from > 0 && parent(from, n) == to, down = to > 0 && parent(to, n) == from;
	switch (step) {
	case 0:
		return up && to != 0;
	case 1:
		return up && to == 0;
	case 2:
		return down && from == 0;
	default:
		return down && from != 0;
	}
}

static bool sends(enum scenario_exchange kind, int32_t step, int32_t from, int32_t to, int32_t n)
{
	if (from == to)
		return false;
	switch (kind) {
	case EXCHANGE_NONE:
		return false;
	case EXCHANGE_PAIR:
	case EXCHANGE_BROADCAST:
	case EXCHANGE_DIRECT:
		return true;
	case EXCHANGE_STAR:
		return step == 0 ? to == 0 : from == 0;
	case EXCHANGE_TREE:
		return sends_in_tree(step, from, to, n);
	case EXCHANGE_RING:
		return to == (from + 1) % n;
	}
	return false;
}

// A ring and a reduce-scatter pass parts.
static double message_bytes(enum scenario_exchange kind, int32_t n, double bytes)
{
	return kind == EXCHANGE_RING || kind == EXCHANGE_DIRECT ? bytes / n : bytes;
}

struct play {
	struct exchange *x;
	int32_t step[EXCHANGE_MEMBERS_MAX];     // the one whose messages a member sends next
	int64_t ready_ns[EXCHANGE_MEMBERS_MAX]; // when it has handled all it was sent so far
	int32_t got[EXCHANGE_STEPS_MAX][EXCHANGE_MEMBERS_MAX];
	int64_t handled_ns[EXCHANGE_STEPS_MAX][EXCHANGE_MEMBERS_MAX]; // the last message of a step
};

static bool is_ready(const struct play *p, int32_t member)
{
	int32_t step = p->step[member];
	return step < p->x->n_steps && (step == 0 || p->got[step - 1][member] == p->x->expected[step - 1][member]);
}

static enum err send_step(struct play *p, int32_t from, size_t bytes)
{
	struct exchange *x = p->x;
	int32_t step = p->step[from], n = x->n_members;
	for (int32_t i = 1; i < n; i++) {
		int32_t to = (from + i) % n;
		int64_t arrival_ns;
		if (!sends(x->kind, step, from, to, n))
			continue;
		if (network_send(x->network, x->flows[from][to], NETWORK_FORWARD, bytes, p->ready_ns[from], &arrival_ns) !=
			NETWORK_ARRIVES)
			return ERR_CLOSED;
		if (x->on_message)
			x->on_message(x->ctx, from, to, p->ready_ns[from], arrival_ns);
		p->got[step][to]++;
		if (arrival_ns + x->software_ns > p->handled_ns[step][to])
			p->handled_ns[step][to] = arrival_ns + x->software_ns;
	}
	p->step[from]++;
	return OK;
}

// pass_on moves a member's ready time to what it was sent in the step before the one it sends next.
static void pass_on(struct play *p, int32_t member)
{
	int32_t step = p->step[member];
	if (step > 0 && p->handled_ns[step - 1][member] > p->ready_ns[member])
		p->ready_ns[member] = p->handled_ns[step - 1][member];
}

// next_sender returns who is ready first; what becomes ready by its messages is so later.
static int32_t next_sender(struct play *p)
{
	int32_t best = -1;
	for (int32_t m = 0; m < p->x->n_members; m++) {
		if (!is_ready(p, m))
			continue;
		pass_on(p, m);
		if (best < 0 || p->ready_ns[m] < p->ready_ns[best])
			best = m;
	}
	return best;
}

enum err exchange_run(struct exchange *x, double bytes, int64_t begin_ns, int64_t *end_ns)
{
	struct play p;
	memset(&p, 0, sizeof p);
	p.x = x;
	for (int32_t i = 0; i < x->n_members; i++)
		p.ready_ns[i] = begin_ns;
	size_t each = (size_t)(message_bytes(x->kind, x->n_members, bytes) + 0.5);
	for (int32_t m; (m = next_sender(&p)) >= 0;) {
		enum err e = send_step(&p, m, each);
		if (e != OK)
			return e;
	}
	*end_ns = begin_ns;
	for (int32_t m = 0; m < x->n_members; m++) {
		ASSERT(p.step[m] == x->n_steps);
		pass_on(&p, m);
		if (p.ready_ns[m] > *end_ns)
			*end_ns = p.ready_ns[m];
	}
	return OK;
}

enum err exchange_init(struct exchange *x, struct network *n, enum scenario_exchange kind, int32_t n_members, int64_t software_ns,
	struct errmsg *em)
{
	ASSERT(n_members >= 2 && n_members <= EXCHANGE_MEMBERS_MAX);
	memset(x, 0, sizeof *x);
	x->network = n;
	x->kind = kind;
	x->n_members = n_members;
	x->software_ns = software_ns;
	x->n_steps = steps_of(kind, n_members);
	for (int32_t i = 0; i < n_members; i++) {
		for (int32_t j = 0; j < n_members; j++) {
			bool is_used = false;
			for (int32_t step = 0; step < x->n_steps; step++) {
				bool is_sent = sends(kind, step, i, j, n_members);
				x->expected[step][j] += is_sent;
				is_used = is_used || is_sent;
			}
			if (is_used && network_open_flow(n, i, j, &x->flows[i][j]) != OK)
				return errmsg_fail(em, ERR_LIMIT,
					"%d machines that all speak to each other are more connections than the network has",
					n_members);
		}
	}
	return OK;
}

double exchange_model_s(
	enum scenario_exchange kind, int32_t n_members, double delay_s, double rate, double software_s, double bytes)
{
	double n = n_members, byte_s = rate > 0 ? 1 / rate : 0, message = message_bytes(kind, n_members, bytes) * byte_s;
	switch (kind) {
	case EXCHANGE_NONE:
		return 0;
	case EXCHANGE_PAIR:
		return delay_s + message + software_s;
	case EXCHANGE_BROADCAST:
		return delay_s + (n - 1) * message + software_s;
	case EXCHANGE_STAR:
		return 2 * (delay_s + message + software_s);
	case EXCHANGE_TREE:
		return 4 * (delay_s + message + software_s);
	case EXCHANGE_RING:
		return 2 * (n - 1) * (delay_s + message + software_s);
	case EXCHANGE_DIRECT:
		return 2 * (delay_s + (n - 1) * message + software_s);
	}
	return 0;
}
