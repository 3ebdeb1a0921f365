// Every default maximum in one place, each with its reason. Cores take them as a struct, so that a simulated node can be small.
#ifndef HEARTH_BASE_LIMITS_H
#define HEARTH_BASE_LIMITS_H

// Cluster
#define NODES_MAX 64            // members the coordinator keeps; a home has ten, a swarm chain a few dozen
#define STAGES_MAX 64           // stages of one plan: at most one per node
#define LAYERS_MAX 1024         // layers of one model; the largest published model has 126
#define SESSIONS_MAX 64         // requests in flight or queued at the coordinator
#define SLOTS_DEFAULT 8         // KV slots per stage: requests computed at once
#define NAME_CAP 64             // a node's name with its NUL
#define ADDRS_MAX 8             // addresses one machine announces
#define ADDR_CAP 128            // "host:port" with its NUL; a DNS name is at most 253, ours are shorter
#define REASON_CAP 256          // a reason that travels to a person

// Wire
#define CONTROL_RECORD_MAX 65536          // protobuf messages (library-notes: at most 64 KiB)
#define DATA_RECORD_MAX (4 * 1024 * 1024) // one step frame: 128 tokens of 8,192 f32 and its header
#define CHUNK_TOKENS_MAX 512              // tokens of one prefill step
#define HOP_CREDITS_DEFAULT 16            // steps one hop may hold: more than any ring has stages, few enough to bound its buffers
#define HOP_CREDITS_MAX 256
#define LINK_QUEUE_FRAMES 256             // frames waiting on one link before it counts as stuck

// Ports
#define PORT_NODES_DEFAULT 7433 // coordinator and nodes: LNK1
#define PORT_HTTP_DEFAULT 7430  // HTTP API, loopback only

#endif
