// Every default maximum in one place, each with its reason. Cores take them as a struct, so that a simulated node can be small.
#ifndef HEARTH_BASE_LIMITS_H
#define HEARTH_BASE_LIMITS_H

// Cluster
#define NODES_MAX 64            // members the coordinator keeps; a home has ten, a swarm chain a few dozen
#define SWARM_NODES_MAX 1024   // the same of a coordinator with several chains, and of what a state directory holds
#define STAGES_MAX 64           // stages of one plan: at most one per node
#define LAYERS_MAX 1024         // layers of one model; the largest published model has 126
#define ROUNDS_MAX 16           // trips round the ring of one step; the planner tries up to 8
#define SPANS_MAX (STAGES_MAX * ROUNDS_MAX) // of one plan: what a step runs through, one after the other
#define GROUP_MEMBERS_MAX 16    // of a tensor-parallel group: beyond 8 no published one gained
#define EXCHANGES_MAX (4 * (GROUP_MEMBERS_MAX - 1) * LAYERS_MAX + 1) // of one forward of a group: in a ring four rounds a layer, and that of the output head
#define CHAINS_MAX 16          // rings that each hold every layer: a swarm of a thousand has three
#define SESSIONS_MAX 64         // requests in flight or queued at the coordinator
#define LOSSES_MAX 16           // plans lost while one token was computed: more says that the request itself brings machines down
#define SLOTS_DEFAULT 8         // KV slots per stage: requests computed at once
#define STALL_S_DEFAULT 600     // seconds an answer waits for the ring without a sign of it: a chunk of 512 tokens of a 32B model takes a Pi minutes
#define NAME_CAP 64             // a node's name with its NUL
#define ADDRS_MAX 8             // addresses one machine announces
#define ADDR_CAP 128            // "host:port" with its NUL; a DNS name is at most 253, ours are shorter
#define REASON_CAP 256          // a reason that travels to a person

// Model files: constants beside the bound "what is left of the file", so that no size in a header can drive us
#define GGUF_KVS_MAX (1024 * 1024)      // metadata keys; real files have dozens
#define GGUF_TENSORS_MAX (1024 * 1024)  // a model with one tensor per expert has some 50,000
#define GGUF_ELEMS_MAX (16 * 1024 * 1024) // elements of one array; the largest vocabulary has 300,000 tokens and merges
#define GGUF_KEY_MAX 65535              // bytes of a key, from the format's specification
#define GGUF_STRING_MAX (64 * 1024 * 1024) // bytes of one string value; chat templates reach some KiB
#define GGUF_NAME_MAX 63                // bytes of a tensor's name: the field's readers keep 64 with a NUL
#define GGUF_ALIGNMENT_MIN 8            // from the specification; every scalar type is aligned then
#define GGUF_ALIGNMENT_MAX (1024 * 1024) // a huge page's half; the files in use say 32
#define HIDDEN_DIM_MAX (1024 * 1024)    // widths (hidden, ffn, q rows); the largest published is 53,248
#define HEADS_MAX 4096                  // attention heads of a layer
#define HEAD_DIM_MAX 512                // what the attention kernel takes
#define EXPERTS_MAX 1024                // experts of a layer; the largest published has 512
#define VOCAB_MAX (4 * 1024 * 1024)     // tokens; the largest published vocabulary has 262,144
#define MERGES_MAX (4 * 1024 * 1024)    // merge rules; the largest published vocabulary has 446,189
#define TOKENIZE_TEXT_MAX (16 * 1024 * 1024) // bytes of one text: more than any context holds
#define CTX_LEN_TRAIN_MAX (256 * 1024 * 1024) // tokens; the largest published is 10 million

// Wire
#define PROTOCOL_VERSION 2               // of frames and control messages; LNK1 exchanges it
#define CONTROL_RECORD_MAX 65536          // protobuf messages (library-notes: at most 64 KiB)
#define DATA_RECORD_MAX (4 * 1024 * 1024) // one step frame: 128 tokens of 8,192 f32 and its header
#define BLOCKS_RECORD_MAX (1024 * 1024 + 64) // one block of a model file and its header
#define CHUNK_TOKENS_MAX 512              // tokens of one prefill step
#define PART_BYTES_MAX (32 * 1024 * 1024) // of one member's contribution to an exchange: of 512 tokens with 16,384 f32 each; two of them wait in a link at most
#define PART_PAYLOAD_MAX (1024 * 1024)    // bytes of one frame of it: the next ones follow while it is passed on
#define HOP_CREDITS_DEFAULT 16            // steps one hop may hold: more than any ring has stages, few enough to bound its buffers
#define HOP_CREDITS_MAX 256
#define LINK_QUEUE_FRAMES 256             // frames waiting on one link before it counts as stuck
#define LINK_RETIRE_NS 5000000000          // a link with a successor: by then both ends know that one, or it has died (a handshake takes 3 s)
#define LINK_AGE_NS 3600000000000         // a new handshake every hour (link-protocol.md, records)

// Computing
#define THREADS_MAX 256    // compute threads of one process; the largest home machines have 128 cores
#define CTX_MAX (16 << 20) // tokens of one request; the longest published model was trained for 10 million

// Ports
#define PORT_NODES_DEFAULT 7433 // coordinator and nodes: LNK1
#define PORT_LINKS_DEFAULT 7434 // a joined node: links from other nodes
#define PORT_HTTP_DEFAULT 7430  // HTTP API, loopback only

#endif
