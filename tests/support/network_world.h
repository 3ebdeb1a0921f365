// A network with its arena, and calls that must succeed. Unprefixed and inline: a test file includes it once and reads as if it were its own.
#ifndef HEARTH_TESTS_SUPPORT_NETWORK_WORLD_H
#define HEARTH_TESTS_SUPPORT_NETWORK_WORLD_H

#include "sim/network.h"
#include "sim/trace_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S INT64_C(1000000000)

struct world {
	struct arena arena;
	struct network net;
};

static const struct network_limits small = {.machines_max = 8, .access_points_max = 2, .links_max = 32, .flows_max = 64};

static inline struct world *open_world(const struct network_limits *limits, uint64_t seed)
{
	struct world *w = calloc(1, sizeof *w);
	assert_non_null(w);
	assert_int_equal(arena_open(network_arena_bytes(limits), &w->arena), OK);
	assert_int_equal(network_init(&w->net, &w->arena, limits, seed), OK);
	return w;
}

static inline void close_world(struct world *w)
{
	arena_close(&w->arena);
	free(w);
}

static inline void set_link(struct world *w, int32_t a, int32_t b, struct network_link_params p)
{
	struct errmsg em;
	assert_int_equal(network_link(&w->net, a, b, &p, &em), OK);
}

static inline void set_station(struct world *w, int32_t machine, struct network_station_params p)
{
	struct errmsg em;
	assert_int_equal(network_station(&w->net, machine, &p, &em), OK);
}

static inline int32_t open_flow(struct world *w, int32_t a, int32_t b)
{
	int32_t flow;
	assert_int_equal(network_open_flow(&w->net, a, b, &flow), OK);
	return flow;
}

static inline int64_t send_way(struct world *w, int32_t flow, enum network_direction d, size_t bytes, int64_t now_ns)
{
	int64_t arrival_ns = -1;
	assert_int_equal(network_send(&w->net, flow, d, bytes, now_ns, &arrival_ns), NETWORK_ARRIVES);
	assert_true(arrival_ns >= now_ns);
	return arrival_ns;
}

static inline int64_t send_forward(struct world *w, int32_t flow, size_t bytes, int64_t now_ns)
{
	return send_way(w, flow, NETWORK_FORWARD, bytes, now_ns);
}

static inline struct network_delay by_profile(const struct profile *p)
{
	return (struct network_delay){.kind = NETWORK_DELAY_PROFILE, .profile = p};
}

static inline struct trace *parse(struct arena *a, const char *text)
{
	struct errmsg em;
	static struct trace t[4]; // a test needs a few
	static int n;
	struct trace *out = &t[n++ % 4];
	assert_int_equal(trace_open("x", text, strlen(text), TRACE_AUTO, a, out, &em), OK);
	return out;
}

#endif
