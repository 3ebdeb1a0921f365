// The topology of `hearth emulate`: devices, where they really listen, and the links between them, read from a TOML file.
// docs/emulate.md is its manual; the words for devices, access points and links are those of scenarios.
//
// Text becomes a checked description; an error names file, line and key, and what was wanted; an unknown key gets a suggestion. Traces come
// through the caller's loader. The topology owns all its memory and is not copied. One thread while opening, any number reading it.
//
// Addresses, all of the loopback network, with S the subnet and devices numbered from 1 in the file's order:
// - 127.S.0.I is device I as everybody sees it. A connection to it is taken as coming from device A when its source address is 127.S.0.A.
// - 127.S.A.B is device B as device A sees it, for programs that cannot choose the address they connect from.
// Both with the port of the device's own address, `at`.
#ifndef HEARTH_SIM_SHELL_TOPOLOGY_H
#define HEARTH_SIM_SHELL_TOPOLOGY_H

#include "base/arena.h"
#include "base/err.h"
#include "base/limits.h"
#include "sim/network.h"
#include "sim/trace_set.h"

#include <stddef.h>
#include <stdint.h>

#define TOPOLOGY_DEVICES_MAX NODES_MAX // a coordinator keeps no more; each has an octet of addresses
#define TOPOLOGY_ACCESS_POINTS_MAX 16
#define TOPOLOGY_LINKS_MAX 512 // described one by one
#define TOPOLOGY_TRACES_MAX 32

struct topology_device {
	char name[NAME_CAP];
	uint32_t ip;   // its own address, in the host's byte order
	uint16_t port;
	int64_t delay_ns; // fixed, one way, of its leg
	struct network_station_params station;
};

struct topology_access_point {
	char name[NAME_CAP];
	uint64_t rate_bps; // 0: no limit
};

struct topology_link {
	int32_t a, b;
	struct network_link_params params; // base_ns without the devices' own delays
};

struct topology {
	uint64_t seed;
	int32_t subnet;
	int32_t n_devices, n_access_points, n_links;
	struct topology_device devices[TOPOLOGY_DEVICES_MAX];
	struct topology_access_point access_points[TOPOLOGY_ACCESS_POINTS_MAX];
	struct network_link_params default_link;
	struct topology_link links[TOPOLOGY_LINKS_MAX];
	struct trace_set traces;
};

// topology_parse fills `out`; `name` stands before messages. A NULL loader refuses traces. ERR_FORMAT, also for a trace that
// cannot be read, ERR_LIMIT, ERR_NOMEM; on failure the caller owes nothing.
MUST_USE enum err topology_parse(const char *name, const char *text, size_t len, const struct trace_loader *loader, struct topology *out,
	struct errmsg *em);
// topology_open reads a file, and traces by names that are relative to its folder.
MUST_USE enum err topology_open(const char *path, struct topology *out, struct errmsg *em);
void topology_close(struct topology *t); // safe on zeroed memory

// topology_find returns the number of the device of that name, or -1.
int32_t topology_find(const struct topology *t, const char *name);
// topology_link_of returns the parameters between two devices, from a to b, their own fixed delays added.
struct network_link_params topology_link_of(const struct topology *t, int32_t a, int32_t b);
// The addresses, in the host's byte order.
uint32_t topology_device_ip(const struct topology *t, int32_t device);
uint32_t topology_pair_ip(const struct topology *t, int32_t from, int32_t to);

#endif
