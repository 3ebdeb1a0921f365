// The machines, the links between them, and the model's shape: what the cost model (partition/cost.h) is given. Pure.
//
// Nothing here is measured or guessed: figures come from a probe or a description, in bytes, seconds, bytes/s and FLOP/s. A figure that
// its author assumed is marked as derived, so that whatever is computed from it can say so. The caller owns every array.
// Source: cost-model.md, section 1.
#ifndef HEARTH_PARTITION_CLUSTER_H
#define HEARTH_PARTITION_CLUSTER_H

#include "base/dtype.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/tensor_split.h"

#include <stdbool.h>
#include <stdint.h>

#define CLUSTER_BYTES_MAX (UINT64_C(1) << 50) // of one memory or one model: 1 PiB
#define CLUSTER_RATE_MAX 1e15                 // bytes/s, or FLOP/s of one device
#define CLUSTER_DELAY_MAX 3600.0              // seconds of one hop or visit
#define CLUSTER_DEVICES_MAX 4096              // a swarm has 2,000

// Bits of `derived`: which figures were assumed.
enum {
	CLUSTER_CAP = 1 << 0,
	CLUSTER_RESERVED = 1 << 1,
	CLUSTER_CPU_RATE = 1 << 2,
	CLUSTER_CPU_FLOPS = 1 << 3,
	CLUSTER_ACCEL_BYTES = 1 << 4,
	CLUSTER_ACCEL_RATE = 1 << 5,
	CLUSTER_ACCEL_FLOPS = 1 << 6,
	CLUSTER_DISK_RATE = 1 << 7,
	CLUSTER_VISIT = 1 << 8,
};

struct cluster_device {
	char name[NAME_CAP];
	uint64_t cap_bytes;                   // the memory cap: weights, KV, buffers and the program
	uint64_t reserved_bytes;              // of the cap: buffers and the program
	double cpu_rate;                      // B: weight bytes/s of decode, measured over memory much larger than the caches
	double cpu_rate_of[DTYPE_ID_MAX + 1]; // B by weight type; 0: cpu_rate
	double cpu_flops;     // FLOP/s of a long prompt; 0: not known, each token of a batch then costs a decode step
	uint64_t accel_bytes; // V: accelerator memory for weights and KV; 0: none
	double accel_rate;    // G
	double accel_flops;   // as cpu_flops
	double disk_rate;     // s: bytes/s as the weights will be read; 0: diskless
	double visit_s;       // o: fixed cost of one visit; in a group, of each step of messages it receives, too
	uint32_t derived;     // CLUSTER_ bits
};

struct cluster_link {
	double delay_s;    // mean, one way
	double rate;       // bytes/s; 0: they do not reach each other
	double software_s; // cost of handling one message; with `attach`, of one side
	int32_t via;       // in `links`: number + 1 of the device that passes on what goes here, as the two have no link; the other figures are of the whole way
	bool derived;
};

struct cluster {
	const struct cluster_device *devices; // (n_devices)
	int32_t n_devices;
	const struct cluster_link *links;  // (n_devices, n_devices): from, to; the diagonal is not read. NULL: `attach` is used
	const struct cluster_link *attach; // (n_devices): each device's way to the one access point; a hop is two of them
	// Of groups, whose members send at the same time (partition/group_cost.h); a ring sends one message at a time.
	bool links_apart;    // with links: each pair has a wire of its own, and a machine's messages do not share a port
	const int32_t *airs; // (n_devices): number of the access point whose air a device shares; -1: it is wired. NULL: all are
};

struct model_shape {
	int32_t n_layers;               // L
	uint64_t layer_bytes;           // b: of the largest layer
	const uint64_t *bytes_of_layer; // (n_layers); NULL: every layer has layer_bytes
	uint64_t kv_bytes;              // per layer and position
	uint64_t head_bytes;            // h: output head, read once per token
	uint64_t hop_bytes;             // x: one hidden state on the wire
	double layer_flops;             // of one token in one layer; 0: not known, two for each 4.5 bits of weights
	double head_flops;              // of one token; 0: likewise
	double attn_flops;              // of one token and one position it looks at, in one layer
	enum dtype type;                // of most weights: chooses cpu_rate_of
	// How members of a group may share a layer; of groups only
	struct split_shape split; // n_heads 0: not known
	// Of a model with experts, of which split.n_experts says how many a layer has
	int32_t n_experts_used;   // by a token
	double expert_share;      // of a layer's bytes, in experts; 0: it has none
};

struct hparams;

// cluster_check refuses figures that no machine has (0, 2^60, NaN), and names device, figure and bound. ERR_RANGE.
MUST_USE enum err cluster_check(const struct cluster *c, struct errmsg *em);
// model_shape_check does the same for the model.
MUST_USE enum err model_shape_check(const struct model_shape *s, struct errmsg *em);
// model_shape_of computes the shape of a model whose matrices all have one weight type. With experts, bytes are those of all (what lies in memory),
// arithmetic that of the used ones. ERR_RANGE: a row is no whole number of blocks.
MUST_USE enum err model_shape_of(const struct hparams *hp, enum dtype type, enum dtype head_type, uint64_t hop_bytes,
	struct model_shape *out, struct errmsg *em);

// What was counted in a file.
struct model_counted {
	const uint64_t *bytes_of_layer; // (n_layers)
	uint64_t head_bytes;
	uint64_t expert_bytes;          // of all layers' bytes, in experts
	enum dtype type;
	const enum dtype *o, *down; // (n_layers)
};

// model_shape_count puts it in the place of what model_shape_of took for all layers; bytes_of_layer is borrowed from then on.
void model_shape_count(struct model_shape *s, const struct model_counted *from);

uint64_t model_shape_layer_bytes(const struct model_shape *s, int32_t layer);
uint64_t model_shape_total_bytes(const struct model_shape *s); // layers and head
// model_shape_expert_share is the part of a layer's experts that a batch of n tokens uses, 1 - (1 - k/E)^n of E with k used by each, as if every router chose
// evenly: real ones choose some more often, so that a batch needs fewer. model_shape_read_share is the part of a layer's bytes that the batch reads.
double model_shape_expert_share(const struct model_shape *s, int32_t n_tokens);
double model_shape_read_share(const struct model_shape *s, int32_t n_tokens);
double model_shape_layer_flops(const struct model_shape *s, int32_t layer);
double model_shape_head_flops(const struct model_shape *s);

// cluster_cpu_rate returns B for a weight type.
double cluster_cpu_rate(const struct cluster_device *d, enum dtype type);
// cluster_link_via is the way from one device to another through a third, whose number is `via`, from the two links there are. Rate 0: one is missing.
struct cluster_link cluster_link_via(const struct cluster_link *there, const struct cluster_link *on, int32_t via);
// cluster_hop puts the time of `bytes` from one device to another into *seconds (0 to itself); false: they do not reach each other.
bool cluster_hop(const struct cluster *c, int32_t from, int32_t to, double bytes, double *seconds);

#endif
