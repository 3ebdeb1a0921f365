// A node's part in "one copy": it fetches the blocks of the model that its layers need, and gives what it has to other members.
//
// A link to the coordinator is kept up. Over it the node learns which model the cluster has, says what it holds, hears what the others hold and
// with which keys they are reached; while it fetches, it dials those who have what it lacks. Either the node has no model file: blocks go into
// a cache, and the model that the engine opens is the cache's file with holes. Or it has the file, and only gives.
//
// Before any block is used its hash is compared, once in each process: what the cache holds already, when it is first needed; what comes from
// others, before it is written. All of that runs on threads of its own, as does reading for others; no weight is touched on the loop.
// Thread rule: the loop's thread only.
#ifndef HEARTH_NODE_SHELL_NODE_BLOCKS_H
#define HEARTH_NODE_SHELL_NODE_BLOCKS_H

#include "base/err.h"
#include "base/ids.h"
#include "base/layer_spans.h"
#include "base/log.h"
#include "blocks/shell/block_cache.h"
#include "engine/weight_ranges.h"
#include "net/link.h"
#include "net/loop.h"
#include "proto/lnk1.h"
#include "proto/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct node_blocks;

struct node_blocks_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct log *log;
	const struct lnk1_keypair *keys;
	uint8_t coordinator_pk[KEY_BYTES];
	uint8_t cluster_id[CLUSTER_ID_BYTES];
	uint8_t psk[KEY_BYTES];
	uint8_t boot_id[LNK1_BOOT_ID_LEN];
	struct member_epoch member_epoch;
	struct address_list addresses; // of the coordinator
	const struct address_list *found; // more of them, tried behind; borrowed, may change on the loop's thread; NULL: none
	const struct link_limits *limits;
	uint64_t upload_max; // bytes per second given to others; 0: no limit but the one that decoding sets

	const struct block_cache *cache; // NULL: this machine has the model, as the file at model_path
	const char *model_path;
	uint8_t model_hash[HASH_BYTES];

	// Cache only: on_model comes once, when the model's header is here and node_blocks_model_path can be opened as a model, or never will be.
	void *ctx;
	void (*on_model)(void *ctx, enum err err, const char *text);
};

// node_blocks_bytes returns the memory it takes at most while blocks come and go, for whoever parts a memory cap, and the model's file has
// file_bytes. is_cached: without a model file of its own, of which what has been made before (the manifest, sets of blocks) is not counted.
uint64_t node_blocks_bytes(uint64_t file_bytes, bool is_cached);

MUST_USE enum err node_blocks_open(const struct node_blocks_params *p, struct node_blocks **out, struct errmsg *em);
// node_blocks_close ends every link and waits for its threads. A load under way is not heard of any more. NULL is allowed.
void node_blocks_close(struct node_blocks *nb);

const char *node_blocks_model_path(const struct node_blocks *nb);
const uint8_t *node_blocks_model_hash(const struct node_blocks *nb); // (HASH_BYTES) of the whole file

// node_blocks_load makes the blocks of these layers be here, each compared with its hash; `done` comes once, from the loop. Cache only; one at a time.
// ranges: of the layers only these bytes of the model's file, for a member of a group; NULL: all of them.
// beside: for layers to come, while those of the last load that was not are computed with: no block of theirs goes to make room.
// ERR_LIMIT: quota or disk is full; ERR_FORMAT: nobody has a block right; ERR_IO; ERR_CANCELLED.
void node_blocks_load(struct node_blocks *nb, const struct layer_spans *layers, const struct weight_ranges *ranges, bool beside,
	void (*done)(void *ctx, enum err err, const char *text), void *ctx);
// node_blocks_stop_load: `done` comes soon, with ERR_CANCELLED unless it is on its way already. What was fetched stays.
void node_blocks_stop_load(struct node_blocks *nb);

// node_blocks_fetched returns the bytes of blocks stored since it was opened.
uint64_t node_blocks_fetched(const struct node_blocks *nb);

// The host's listener: psk of another member that may ask for blocks, and its link.
bool node_blocks_find_psk(const struct node_blocks *nb, const uint8_t public_key[KEY_BYTES], uint8_t psk[KEY_BYTES]);
void node_blocks_take(struct node_blocks *nb, struct link *link, const struct link_info *info);
// node_blocks_set_epoch: a member was revoked, or keys were changed. Peers are forgotten; the coordinator names those who still are.
void node_blocks_set_epoch(struct node_blocks *nb, struct member_epoch e);
// node_blocks_note_work: this machine computes for an answer now; uploads are held back.
void node_blocks_note_work(struct node_blocks *nb);

#endif
