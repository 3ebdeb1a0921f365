// Any bytes as a topology, and as the trace it names: a description within its limits that makes a network, or an error with words.
//
// Input: the TOML text up to the first NUL, then the text of every trace.
#include "sim/shell/topology.h"

#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const char *trace;
	size_t trace_len;
};

static enum err load(void *ctx, const char *path, const char **text, size_t *len, struct errmsg *em)
{
	const struct input *in = ctx;
	(void)em;
	require(path[0] != '\0');
	*text = in->trace;
	*len = in->trace_len;
	return OK;
}

static void check_device(const struct topology *t, int32_t i)
{
	const struct topology_device *d = &t->devices[i];
	require(d->name[0] != '\0' && memchr(d->name, '\0', NAME_CAP) && topology_find(t, d->name) == i);
	require(d->ip >> 24 == 127 && d->port >= 1 && d->delay_ns >= 0);
	require(d->station.access_point >= -1 && d->station.access_point < t->n_access_points);
	for (int32_t k = 0; k < t->n_devices; k++)
		require(d->ip != topology_device_ip(t, k) && (k == i || d->ip != topology_pair_ip(t, k, i)));
}

// make_network: whatever was accepted, the network takes.
static void make_network(const struct topology *t)
{
	int32_t n = t->n_devices, flow;
	const struct network_limits limits = {.machines_max = n, .access_points_max = t->n_access_points, .links_max = n * (n - 1) / 2, .flows_max = 1};
	struct network net;
	struct arena a;
	struct errmsg em;
	int64_t at_ns;
	require(arena_open(network_arena_bytes(&limits), &a) == OK && network_init(&net, &a, &limits, t->seed) == OK);
	for (int32_t i = 0; i < n; i++) {
		require(network_station(&net, i, &t->devices[i].station, &em) == OK);
		for (int32_t k = i + 1; k < n; k++) {
			struct network_link_params p = topology_link_of(t, i, k);
			require(network_link(&net, i, k, &p, &em) == OK);
		}
	}
	require(network_open_flow(&net, 0, n - 1, &flow) == OK);
	(void)!network_send(&net, flow, NETWORK_FORWARD, 1000, 5000000, &at_ns);
	arena_close(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 8192)
		return 0;
	const char *text = (const char *)data, *end = size > 0 ? memchr(text, '\0', size) : NULL;
	size_t len = end ? (size_t)(end - text) : size;
	struct input in = {.trace = end ? end + 1 : "", .trace_len = end ? size - len - 1 : 0};
	const struct trace_loader loader = {.ctx = &in, .load = load};
	struct topology *t = malloc(sizeof *t);
	struct errmsg em = {""};
	enum err e = topology_parse("x", size > 0 ? text : "", len, &loader, t, &em);
	require(e == OK || em.text[0] != '\0');
	if (e == OK) {
		require(t->n_devices >= 2 && t->n_devices <= TOPOLOGY_DEVICES_MAX);
		for (int32_t i = 0; i < t->n_devices; i++)
			check_device(t, i);
		make_network(t);
		topology_close(t);
	}
	free(t);
	return 0;
}
