// The serving side of blocks links: blocks/upload decides, threads read, links send.
//
// The coordinator has one, and so has every node. The host hands it links of kind LNK1_BLOCKS that others dialled; they are its own from then on.
// A client says first which model it means (HELLO); until then, and for any other model, every request is refused. What the frames of a
// client mean beyond blocks (what it holds, how far it is) is the host's business: on_other.
// Thread rule: the loop's thread only; `read` runs on threads of block_io.
#ifndef HEARTH_BLOCKS_SHELL_BLOCK_SERVER_H
#define HEARTH_BLOCKS_SHELL_BLOCK_SERVER_H

#include "base/err.h"
#include "base/log.h"
#include "blocks/block_frame.h"
#include "blocks/shell/block_io.h"
#include "blocks/upload.h"
#include "net/link.h"
#include "net/loop.h"

#include <stdbool.h>
#include <stdint.h>

// What it takes at most, however many ask, for whoever parts a memory cap: the buffers of reads (2 MiB), what is queued on all links (4 MiB, and the
// blocks being read), the threads' compressors.
#define BLOCK_SERVER_BYTES (8u << 20)

struct block_server;

struct block_server_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct log *log;
	struct block_io *io;
	struct upload_limits limits;
	void *ctx;
	// read fills buf with a block's bytes. ERR_NOT_FOUND: not here; any other error is logged, and the client is refused in the same way.
	enum err (*read)(void *ctx, uint32_t block, uint8_t *buf, struct errmsg *em);
	// All may be NULL. on_up comes when the link is one of ours, on_down when it is not any more; handles are never reused within 2^32 links.
	void (*on_up)(void *ctx, uint32_t client, const struct link_info *info);
	void (*on_down)(void *ctx, uint32_t client);
	// on_other: a frame that is neither HELLO nor GET. false: it has no business to send that, and its link is closed.
	bool (*on_other)(void *ctx, uint32_t client, const struct block_frame *f);
};

MUST_USE enum err block_server_open(const struct block_server_params *p, struct block_server **out, struct errmsg *em);
// block_server_close ends every link at once and waits for reads under way. NULL is allowed. The io must still be there.
void block_server_close(struct block_server *s);
// block_server_set_model says what there is to serve: once. Before that every request is refused as busy.
void block_server_set_model(struct block_server *s, const struct manifest *m);
// block_server_take takes a link that came up. One too many is closed.
void block_server_take(struct block_server *s, struct link *link, const struct link_info *info);
// block_server_end ends a client's link at once, with on_down; block_server_end_peer those of a peer.
void block_server_end(struct block_server *s, uint32_t client);
void block_server_end_peer(struct block_server *s, struct node_id peer);
// block_server_send sends a frame that is not a block: borrowed bytes behind its head. A link that does not take it is ended.
void block_server_send(struct block_server *s, uint32_t client, const struct block_frame *f, const uint8_t *data, size_t len);
// block_server_note_work: this machine computes for an answer now.
void block_server_note_work(struct block_server *s);

struct block_server_stats {
	int32_t n_clients;
	uint64_t n_blocks, n_bytes; // given, before compression
	uint64_t n_zipped;          // of these: compressed
	uint64_t bytes_sent;        // after compression
	uint64_t n_refused;
};
void block_server_get_stats(const struct block_server *s, struct block_server_stats *out);

#endif
