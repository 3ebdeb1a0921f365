// A scenario: machines, links, a model, a plan and requests, read from a TOML file. docs/scenarios.md is its manual.
//
// Text becomes a checked description; nothing is computed here but what follows from the text alone (mean delays, the even split). An
// error names file, line and key, and what was wanted; an unknown key gets a suggestion. A figure may be written
// { value = "45 GB/s", derived = "where from" }: it is listed in `derived`, and every report repeats that list.
// The scenario owns all its memory. Files it names (traces, models) come through the caller's loader. One thread.
#ifndef HEARTH_SIM_SCENARIO_H
#define HEARTH_SIM_SCENARIO_H

#include "base/arena.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/wire_type.h"
#include "partition/cluster.h"
#include "partition/cost.h"
#include "sim/profiles.h"
#include "sim/trace_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCENARIO_DEVICES_MAX 64 // what a coordinator keeps, see NODES_MAX
#define SCENARIO_REQUESTS_MAX 1024
#define SCENARIO_ACCESS_POINTS_MAX 16
#define SCENARIO_LINKS_MAX 2016 // pairs described one by one: all of 64 devices
#define SCENARIO_TEXT_CAP 512  // of `about` and of a derivation
#define SCENARIO_DERIVED_MAX 256
#define SCENARIO_TRACES_MAX 16

// The delay of a machine's own leg, or of a link.
struct scenario_delay {
	double fixed_s;                // one way
	const struct profile *profile; // NULL: none
	const struct trace *trace;     // NULL: none
	double offset_s;               // what time of the trace it is when the cluster is ready
};

// What kind of disk the weights are on. SCENARIO_DISK_UNKNOWN: the file says only how fast it is.
enum scenario_disk {
	SCENARIO_DISK_UNKNOWN,
	SCENARIO_DISK_NVME,
	SCENARIO_DISK_SSD,
	SCENARIO_DISK_HDD,
	SCENARIO_DISK_SD,
	SCENARIO_DISK_USB,
	SCENARIO_DISK_NETWORK,
};

struct scenario_station {
	int32_t access_point; // -1: wired
	struct scenario_delay delay;
	double rate; // bytes/s of its wire; 0: no limit (the air's is the access point's)
	enum scenario_disk disk;
	bool is_untrusted; // may not hold the first and last layers, see --head-layers
	bool on_battery;
};

struct scenario_access_point {
	char name[NAME_CAP];
	double rate; // bytes/s of one air transit, shared by all its stations; 0: no limit
};

struct scenario_link {
	int32_t a, b;
	struct scenario_delay delay;
	double rate; // bytes/s each way; 0: no limit
	double loss; // of packets
	bool is_cut; // the two do not reach each other: their steps go through the coordinator
};

struct scenario_request {
	double at_s;
	int32_t n_prompt, n_predict;
};

struct scenario_derived {
	char name[NAME_CAP + 32]; // "D3.cpu_read"
	char value[48];
	char why[SCENARIO_TEXT_CAP];
};

// A group of machines that computes every layer together (cost-model.md, section 6).
enum scenario_exchange {
	EXCHANGE_NONE,
	EXCHANGE_PAIR,
	EXCHANGE_STAR,
	EXCHANGE_TREE,
	EXCHANGE_RING,
	EXCHANGE_DIRECT,
	EXCHANGE_BROADCAST
};

struct scenario_group {
	enum scenario_exchange exchange; // NONE: a pipeline
	int32_t per_layer;               // exchanges in one layer
	double bytes;                    // that a member contributes
	double software_s;               // of one message
	double streamed;                 // part of each member's weights that is read from disk for every token, [0, 1]
};

// A swarm: volunteers of the devices' kinds, who come and go; some begin in chains, the others stand by.
struct scenario_swarm {
	int32_t n_chains;                      // 0: no swarm
	int32_t n_members;                     // the coordinator's machine aside
	int32_t share[SCENARIO_DEVICES_MAX];   // of the members, by device: parts of their sum
	int32_t hold[SCENARIO_DEVICES_MAX];    // layers one has room for, and holds where the placement puts it
	double stay_s, away_s;                 // means of exponential times; stay 0: nobody goes
	double orderly;                        // part of those who go that say so, [0, 1]
	double every_s;                        // mean time between requests, exponential
	int32_t n_prompt, n_predict;
};

struct scenario_published {
	double tpot_s, ttft_s; // 0: not published
	double exchange_s;     // of a group: one exchange of one token
	bool calibrates;       // figures of the scenario were taken from this row: that they agree proves nothing
	char source[SCENARIO_TEXT_CAP];
	char note[SCENARIO_TEXT_CAP]; // what explains, or does not explain, the difference
};

struct scenario {
	struct arena arena; // owned: everything pointed to but the traces
	struct trace_set traces;
	char name[NAME_CAP];
	char about[SCENARIO_TEXT_CAP];
	uint64_t seed;
	double duration_s; // of simulated time at most

	char model_name[NAME_CAP];
	struct model_shape shape;
	int32_t hidden_dim, vocab_size;
	enum wire_type wire;

	int32_t n_devices;
	struct cluster_device *devices;    // (n_devices) in the file's order
	struct scenario_station *stations; // (n_devices)
	struct scenario_access_point access_points[SCENARIO_ACCESS_POINTS_MAX];
	int32_t n_access_points;
	struct scenario_link default_link;
	int32_t *airs; // (n_devices) access points, as the cluster of a planner has them
	struct scenario_link *links;
	int32_t n_links;
	struct cluster cluster; // means, for the cost model: a matrix

	struct cost_plan plan; // the coordinator's device first if it holds layers
	bool is_even;          // nobody gave the layers
	bool head_holds_none;  // coordinator_only: for a planner, whose plan is another one
	struct cost_params params;
	struct scenario_group group;
	struct scenario_swarm swarm;

	int32_t n_slots, ctx_len, chunk;
	struct scenario_request *requests;
	int32_t n_requests;
	struct scenario_derived *derived;
	int32_t n_derived;
	struct scenario_published published;
};

// scenario_open reads a scenario; `name` stands before messages: "home.toml:12: device.memory: ...". The loader may be NULL: then files are
// refused. On failure the caller owes nothing.
MUST_USE enum err scenario_open(const char *name, const char *text, size_t len, const struct trace_loader *loader,
	struct scenario *out, struct errmsg *em);
// scenario_open_cluster reads only the machines and links of such a file, for a planner: name, model and requests may be missing (a zeroed
// shape says so), and of [plan] only the coordinator counts. What a cut pair sends goes through the coordinator; who does not reach that
// has no link (rate 0).
MUST_USE enum err scenario_open_cluster(const char *name, const char *text, size_t len, const struct trace_loader *loader,
	struct scenario *out, struct errmsg *em);
void scenario_close(struct scenario *s); // safe on a zeroed struct

struct cost_case scenario_case(const struct scenario *s);
// scenario_mean_delay_s is the mean one-way delay: what is fixed, and half the mean round trip.
double scenario_mean_delay_s(const struct scenario_delay *d);
// scenario_means fills a matrix (n_devices, n_devices) for the cost model: each hop is two legs and what lies between.
void scenario_means(const struct scenario *s, struct cluster_link *matrix);
// scenario_attach fills each device's way to the one access point (n_devices): the same hops as sums, which a solver likes better. false: some pair
// has a [[link]] of its own.
bool scenario_attach(const struct scenario *s, struct cluster_link *attach);
// scenario_airs fills each device's access point (n_devices) and returns it.
const int32_t *scenario_airs(const struct scenario *s, int32_t *airs);
// scenario_link is what lies between two devices.
const struct scenario_link *scenario_link(const struct scenario *s, int32_t a, int32_t b);
// scenario_network fills a network whose machine i is device machines[i]; its memory comes from the arena (scenario_network_bytes).
struct network;
MUST_USE enum err scenario_network(const struct scenario *s, const int32_t *machines, int32_t n_machines, struct arena *a,
	struct network *out, struct errmsg *em);
size_t scenario_network_bytes(int32_t n_machines);
// scenario_swarm_network does it for a swarm: a pair gets its link, the default one, when it first needs it.
MUST_USE enum err scenario_swarm_network(const struct scenario *s, const int32_t *machines, int32_t n_machines, struct arena *a,
	struct network *out, struct errmsg *em);
size_t scenario_swarm_network_bytes(int32_t n_machines);
// scenario_network_ready sets the traces to the times at which they are meant to be now. `machines` as above.
MUST_USE enum err scenario_network_ready(const struct scenario *s, const int32_t *machines, int32_t n_machines, int64_t now_ns,
	struct network *n, struct errmsg *em);
const char *scenario_exchange_name(enum scenario_exchange e);
// scenario_disk_name is for people: "an SD card"; "its disk" when the kind is not known.
const char *scenario_disk_name(enum scenario_disk d);

#endif
