// The coordinator's part in "one copy": it serves the blocks of its model file, and tells members of each other.
//
// Its manifest is known from an earlier start (blocks/shell/known_model), or made in the background (70 GB take a minute) while answers are computed.
// Until then members wait. What is given was compared with it once, so that a file that changes under the coordinator is noticed. A member that has a
// blocks link hears of every other one: key, a psk of that pair, addresses, and what it holds. The psk is derived from the two members' own, so
// that it needs no place on disk, and ends with either membership.
// Thread rule: the loop's thread only.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_BLOCKS_H
#define HEARTH_COORDINATOR_SHELL_COORD_BLOCKS_H

#include "base/err.h"
#include "base/log.h"
#include "blocks/block_frame.h"
#include "blocks/shell/block_server.h"
#include "coordinator/coordinator.h"
#include "model/model.h"
#include "net/link.h"
#include "net/loop.h"

struct coord_blocks;

struct coord_blocks_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct log *log;
	const struct coordinator *core;
	const struct model *model;
	const char *known_dir; // where what is known of files is kept; NULL: nowhere
	uint64_t upload_max;   // bytes per second; 0: no limit but the one that decoding sets
	void *ctx;
	void (*on_known)(void *ctx); // the model's hash was found out, after the file was read; NULL: nobody asks
};

// coord_blocks_bytes returns the memory it takes at most, for whoever parts a memory cap: serving, the manifest of a file of file_bytes, and what each
// member says it holds.
uint64_t coord_blocks_bytes(uint64_t file_bytes);

MUST_USE enum err coord_blocks_open(const struct coord_blocks_params *p, struct coord_blocks **out, struct errmsg *em);
// coord_blocks_close ends every link and waits for its threads. NULL is allowed.
void coord_blocks_close(struct coord_blocks *b);
// coord_blocks_take takes a link of kind LNK1_BLOCKS that came up.
void coord_blocks_take(struct coord_blocks *b, struct link *link, const struct link_info *info);
// coord_blocks_disconnect ends a node's links at once, and tells the others.
void coord_blocks_disconnect(struct coord_blocks *b, struct node_id node);
// coord_blocks_note_work: an answer is under way; uploads are held back.
void coord_blocks_note_work(struct coord_blocks *b);

// coord_blocks_model_hash: (HASH_BYTES); NULL: it is not known yet.
const uint8_t *coord_blocks_model_hash(const struct coord_blocks *b);
// coord_blocks_reading tells how far reading the file is; false: it is not read now.
bool coord_blocks_reading(const struct coord_blocks *b, struct block_progress *out);
// coord_blocks_progress: what a member told last; false: it has no blocks link.
bool coord_blocks_progress(const struct coord_blocks *b, struct node_id id, struct block_progress *out);
void coord_blocks_get_stats(const struct coord_blocks *b, struct block_server_stats *out);

#endif
