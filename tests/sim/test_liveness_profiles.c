// Suspicion on the links of homes (docs/liveness.md): for each profile of wifi links how often a peer that is well is suspected, by phi 8 of the
// link's own silences and, beside it, by 1.5 s flat; how long the longest silence was; and that nobody is given up. Prints the table.
//
//     test_liveness_profiles [HOURS]
#include "flow/liveness.h"
#include "sim/network.h"
#include "sim/profiles.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000)
#define S (1000 * MS)
#define HOUR (3600 * S)
#define USE_NS (50 * MS)    // between two frames of a link in use
#define UNDER_WAY_MAX 65536 // frames: a link that stands still for minutes holds them all
#define PING_BYTES 60
#define STEP_BYTES 4200

enum what { PING, PONG, DATA };

struct frame {
	int64_t at_ns;
	enum what what;
};

// One direction: what is under way arrives in order.
struct way {
	struct frame frames[UNDER_WAY_MAX];
	uint32_t first, n;
};

struct end {
	struct liveness life;
	int64_t use_ns; // when it sends its next frame of an answer
};

struct tally {
	int64_t ns;
	uint64_t n_flat, n_phi, n_dead, n_frames, n_late;
	int64_t longest_ns;
	int64_t suspect_sum_ns, suspect_max_ns;
	uint64_t n_suspect;
};

struct link {
	struct network net;
	struct arena arena;
	int32_t flow;
	bool is_broken; // by a restart: it takes a new connection
	struct way ways[2]; // to end 0, to end 1
	struct end ends[2]; // 0: the coordinator
	int64_t now_ns;
	struct tally *tally;
};

static int n_hours = 1;

static void begin_link(struct link *l)
{
	assert_int_equal(network_open_flow(&l->net, 0, 1, &l->flow), OK);
	l->is_broken = false;
	for (int i = 0; i < 2; i++) {
		l->ways[i].n = 0;
		liveness_init(&l->ends[i].life, &liveness_defaults, l->now_ns);
	}
}

static void send(struct link *l, int from, enum what what)
{
	struct way *w = &l->ways[!from];
	int64_t at_ns;
	if (l->is_broken)
		return;
	if (network_send(&l->net, l->flow, from == 0 ? NETWORK_FORWARD : NETWORK_BACK, what == DATA ? STEP_BYTES : PING_BYTES, l->now_ns, &at_ns) !=
		NETWORK_ARRIVES) {
		l->is_broken = true;
		return;
	}
	assert_true(w->n < UNDER_WAY_MAX);
	w->frames[(w->first + w->n++) % UNDER_WAY_MAX] = (struct frame){at_ns, what};
}

static void arrive(struct link *l, int to)
{
	struct way *w = &l->ways[to];
	struct end *e = &l->ends[to];
	struct tally *t = l->tally;
	enum what what = w->frames[w->first].what;
	w->first = (w->first + 1) % UNDER_WAY_MAX;
	w->n--;
	int64_t silence_ns = l->now_ns - e->life.heard_ns;
	t->n_flat += silence_ns >= liveness_defaults.suspect_after_ns;
	t->n_phi += liveness_is_suspect(&e->life, &liveness_defaults, l->now_ns);
	t->longest_ns = silence_ns > t->longest_ns ? silence_ns : t->longest_ns;
	t->n_frames++;
	t->n_late += liveness_heard(&e->life, &liveness_defaults, l->now_ns);
	int64_t suspect_ns = liveness_suspect_ns(&e->life, &liveness_defaults);
	t->suspect_sum_ns += suspect_ns;
	t->n_suspect++;
	t->suspect_max_ns = suspect_ns > t->suspect_max_ns ? suspect_ns : t->suspect_max_ns;
	if (what == PING)
		send(l, to, PONG);
}

// due does what is due at an end. False: it gives its peer up, and a new link is made.
static bool due(struct link *l, int end, bool in_use)
{
	struct end *e = &l->ends[end];
	switch (liveness_step(&e->life, &liveness_defaults, l->now_ns)) {
	case LIVENESS_FINE: break;
	case LIVENESS_PING: send(l, end, PING); break;
	case LIVENESS_DEAD: return false;
	}
	if (in_use && l->now_ns >= e->use_ns) {
		send(l, end, DATA);
		e->use_ns = l->now_ns + USE_NS;
	}
	return true;
}

static int64_t next_ns(const struct link *l, bool in_use)
{
	int64_t next = INT64_MAX;
	for (int i = 0; i < 2; i++) {
		const struct way *w = &l->ways[i];
		int64_t at = liveness_deadline_ns(&l->ends[i].life, &liveness_defaults);
		at = in_use && l->ends[i].use_ns < at ? l->ends[i].use_ns : at;
		at = w->n > 0 && w->frames[w->first].at_ns < at ? w->frames[w->first].at_ns : at;
		next = at < next ? at : next;
	}
	return next > l->now_ns ? next : l->now_ns;
}

// run_link is one station with this profile and the coordinator at a wire, for an hour.
static void run_link(const struct profile *p, uint64_t seed, bool in_use, struct tally *t)
{
	static struct link l;
	struct network_limits limits = {.machines_max = 2, .access_points_max = 1, .links_max = 4, .flows_max = 4};
	struct network_station_params station = {.access_point = 0, .delay = {.kind = NETWORK_DELAY_PROFILE, .profile = p}, .air_bps = 100000000};
	struct errmsg em;
	l = (struct link){.tally = t};
	assert_int_equal(arena_open(network_arena_bytes(&limits), &l.arena), OK);
	assert_int_equal(network_init(&l.net, &l.arena, &limits, seed), OK);
	assert_int_equal(network_station(&l.net, 1, &station, &em), OK);
	begin_link(&l);
	l.ends[1].life.sent_ns -= (int64_t)(seed * 7919 % 1000) * MS; // the two ends' seconds do not begin together
	while (l.now_ns < HOUR) {
		l.now_ns = next_ns(&l, in_use);
		for (int i = 0; i < 2; i++)
			while (l.ways[i].n > 0 && l.ways[i].frames[l.ways[i].first].at_ns <= l.now_ns)
				arrive(&l, i);
		if (due(&l, 0, in_use) && due(&l, 1, in_use))
			continue;
		t->n_dead++;
		network_close_flow(&l.net, l.flow);
		begin_link(&l);
	}
	t->ns += HOUR;
	arena_close(&l.arena);
}

// measure: of W9 the link of the straggler, who is W5.
static struct tally measure(const struct profile *p, bool in_use)
{
	struct tally t = {0};
	for (int i = 1; i <= n_hours; i++)
		run_link(p->straggler ? profile_find(p->straggler) : p, (uint64_t)i, in_use, &t);
	return t;
}

static double per_hour(uint64_t n, const struct tally *t)
{
	return (double)n * (double)HOUR / (double)t->ns;
}

static void print_row(const struct profile *p, bool in_use, const struct tally *t)
{
	printf("| %s %s | %s | %.1f | %.1f | %.1f | %.1f (%.1f) | %.2f %% | %.1f |\n", p->name, p->words, in_use ? "yes" : "no", per_hour(t->n_flat, t),
		per_hour(t->n_phi, t), (double)t->longest_ns / 1e9, (double)t->suspect_sum_ns / (double)t->n_suspect / 1e9, (double)t->suspect_max_ns / 1e9,
		100.0 * (double)t->n_late / (double)t->n_frames, per_hour(t->n_dead, t));
	fflush(stdout);
}

static void a_peer_that_is_well_is_seldom_suspected_and_never_given_up(void **state)
{
	(void)state;
	printf("| profile | in use | by 1.5 s, per hour | by phi 8, per hour | longest silence, s | phi 8 at, s (most) | late | dead, per hour |\n");
	printf("|---|---|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < n_profiles(); i++) {
		const struct profile *p = profile_at(i);
		for (int in_use = 0; in_use < 2; in_use++) {
			struct tally t = measure(p, in_use);
			print_row(p, in_use, &t);
			assert_true(t.n_phi <= t.n_flat); // never before 1.5 s
			assert_true((t.n_dead > 0) == p->restarts);
			assert_true(t.n_late * 50 < t.n_frames); // one in a hundred, give or take
			assert_true(t.suspect_sum_ns / (int64_t)t.n_suspect >= liveness_defaults.suspect_after_ns);
		}
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_peer_that_is_well_is_seldom_suspected_and_never_given_up),
	};
	n_hours = argc > 1 ? atoi(argv[1]) : 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
