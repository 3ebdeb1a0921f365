// What the files of node_blocks share. Private to them.
//
//   node_blocks.c     opening, the model's manifest and store, loads: verify what is here, make room, fetch the rest
//   block_fetching.c  the host of blocks/fetch: frames of blocks, checks, progress
//   block_peers.c     links to the coordinator and to other members, and who they are
#ifndef HEARTH_NODE_SHELL_NODE_BLOCKS_STATE_H
#define HEARTH_NODE_SHELL_NODE_BLOCKS_STATE_H

#include "blocks/block_frame.h"
#include "blocks/fetch.h"
#include "blocks/shell/block_io.h"
#include "blocks/shell/block_server.h"
#include "blocks/shell/block_store.h"
#include "node/shell/dialer.h"
#include "node/shell/node_blocks.h"

#define NB_THREADS 2           // one hashes and writes while the other waits for the disk
#define NB_PEER_LINKS_MAX 8    // members fetched from at once
#define NB_UNDER_WAY_MAX 64    // blocks asked for, or being checked: 16 MiB of the default size
#define NB_OWN_SETS 7          // of blocks, beside one for each peer
#define NB_ORIGIN 1u           // the coordinator's handle as a source; a member's is its slot + NB_FIRST_PEER
#define NB_FIRST_PEER 2u

// Another member, as the coordinator told.
struct nb_peer {
	struct node_blocks *nb;
	struct msg_peer who; // present: false: the slot is free
	struct node_id id;
	struct block_set have;
	struct dialer *dialer; // NULL: not wanted now
	bool is_quiet;         // failures were reported once already
};

// Blocks whose bytes are here and not stored yet.
struct nb_check {
	struct block_job job; // first
	struct node_blocks *nb;
	uint32_t source, block;
	enum block_form form;
	uint8_t *data;  // (len) as they came, owned
	size_t len;
	enum fetch_check result;
	enum err err;
	struct errmsg em;
};

enum nb_state {
	NB_UNKNOWN,  // the coordinator has not said which model
	NB_MANIFEST, // its manifest is on its way
	NB_OPENING,  // the store is being opened
	NB_READY,
	NB_FAILED,
};

enum nb_phase { NB_IDLE, NB_LOOKING, NB_VERIFYING, NB_MAKING_ROOM, NB_FETCHING };

struct node_blocks {
	struct node_blocks_params p;
	struct block_io *io;
	struct block_server *server;
	struct loop_timer timer;
	bool is_closing;

	// The model.
	enum nb_state state;
	uint8_t manifest_hash[BLOCK_HASH_BYTES]; // as the coordinator said
	uint8_t *parts; // (parts_len) of the manifest, on their way; owned
	size_t parts_len, parts_have;
	struct block_store *store;   // cache
	uint8_t *own_manifest;       // no cache: the manifest's bytes, owned
	struct manifest own;         // .. parsed
	int file_fd;                 // no cache: the model file
	const struct manifest *manifest; // NULL: not known yet
	uint64_t *words;             // of every set below and of the peers'; owned
	struct block_set wanted;     // of the load, the header too
	struct block_set in_use;     // of the last load that was not beside another
	struct block_set present;    // here perhaps
	struct block_set verified;   // here, hash compared by this process
	bool has_header;

	// A job of its own for everything that takes long and is no block on its way.
	struct block_job job;
	bool is_job_busy;
	enum err job_err;
	struct errmsg job_em;
	struct block_set job_in, job_out, job_keep; // the job's while it runs
	uint8_t *job_buf;                 // a block
	uint64_t job_bytes;
	struct block_job sync_job; // what was fetched, to the disk
	bool is_sync_busy;

	// The load.
	enum nb_phase phase;
	bool is_stopped;
	void (*done)(void *ctx, enum err err, const char *text);
	void *done_ctx;
	int64_t begin_ns;
	uint64_t load_bytes, here_bytes; // wanted; of these here already

	// Fetching.
	struct fetch fetch;
	uint64_t *fetch_words;
	int32_t n_checks;
	struct errmsg check_em; // of the first that failed
	uint64_t bytes_fetched;  // stored, since the node began
	uint64_t bytes_received; // of blocks, as they came
	int64_t told_ns, logged_ns, have_told_ns;
	bool has_news;           // `present` changed since it was told

	// Links.
	struct dialer *coordinator;
	bool is_coordinator_up, is_coordinator_quiet;
	int64_t pinged_ns, renewed_ns;
	struct nb_peer peers[BLOCK_FRAME_PEERS_MAX];
};

// node_blocks.c
void nb_on_greeting(struct node_blocks *nb, const uint8_t hash[BLOCK_HASH_BYTES]); // the coordinator's HELLO
void nb_on_part(struct node_blocks *nb, const struct block_frame *f);
void nb_on_fetched(struct node_blocks *nb, enum err err, uint32_t block);

// block_fetching.c
void nb_fetch_init(struct node_blocks *nb);
void nb_fetch_start(struct node_blocks *nb, const struct block_set *missing);
void nb_fetch_stop(struct node_blocks *nb);
void nb_fetch_step(struct node_blocks *nb, struct fetch_event *ev);
// nb_on_block_frame takes a BLOCK or REFUSE of a source. false: it is another frame.
bool nb_on_block_frame(struct node_blocks *nb, uint32_t source, const struct block_frame *f);
// nb_describe_sources says which members gave how much: ", 20.0 MiB so far from kitchen-pi".
void nb_describe_sources(struct node_blocks *nb, char *out, size_t cap);
void nb_fetch_tick(struct node_blocks *nb, int64_t now_ns);

// block_peers.c
enum err nb_peers_open(struct node_blocks *nb, struct errmsg *em);
void nb_peers_close(struct node_blocks *nb);
struct link *nb_source_link(struct node_blocks *nb, uint32_t source); // NULL: not up
// nb_peers_consider dials members who hold what is missing, and leaves those who do not.
void nb_peers_consider(struct node_blocks *nb);
void nb_peers_tick(struct node_blocks *nb, int64_t now_ns);
void nb_peers_forget_all(struct node_blocks *nb);
// nb_introduce says which model is meant and what is held, on the link to the coordinator.
void nb_introduce(struct node_blocks *nb);
void nb_tell_coordinator(struct node_blocks *nb, const struct block_frame *f, const uint8_t *data, size_t len);
void nb_tell_have(struct node_blocks *nb);

#endif
