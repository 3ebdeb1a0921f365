// The coordinator's host: carries out what the coordinator core wants and feeds it what happens. Its own are requests, operators and the step;
// links (coord_link_host), the head's engine (coord_head) and the disk (coord_store) have files of their own.
// No policy lives here, and no text: token ids come in and go out.
//
// Thread rule: everything belongs to the loop's thread; computing runs on the worker, writes on the store's thread.
#ifndef HEARTH_COORDINATOR_SHELL_COORD_RUNTIME_H
#define HEARTH_COORDINATOR_SHELL_COORD_RUNTIME_H

#include "base/err.h"
#include "base/log.h"
#include "blocks/block_frame.h"
#include "coordinator/coordinator.h"
#include "coordinator/shell/coord_tickets.h"
#include "engine/residency.h"
#include "engine/worker.h"
#include "model/model.h"
#include "net/link.h"
#include "net/local_link.h"
#include "net/loop.h"
#include "proto/lnk1.h"

struct coord_runtime;

struct coord_runtime_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct log *log;
	struct worker *worker;
	const struct model *model;
	struct coordinator_config core; // self and cluster_id are filled in when there are keys and a store; port 0 in addresses becomes the port got

	struct residency_limits head_weights; // what the output head's may take; zero: no cap

	// A cluster; all NULL for `hearth run`, which is alone.
	const struct lnk1_keypair *keys;
	const char *store_path;
	const char *listen; // "0.0.0.0:7433"
	const char *known_dir; // where what is known of model files is kept (blocks/shell/known_model.h); NULL: nowhere
	uint64_t upload_max;       // bytes per second of blocks given to members; 0: no limit but the one that decoding sets
	const struct link_limits *limits;

	const struct device_profile *profile; // of this machine, where no node beside the coordinator tells; NULL: not known

	// The node on this machine (core.has_local_node): its two links, of which this is end 0.
	struct local_link *local_control, *local_data;
};

MUST_USE enum err coord_runtime_open(const struct coord_runtime_params *p, struct coord_runtime **out, struct errmsg *em);
// coord_runtime_close ends every link and request (each gets its on_end) and waits for worker and store. NULL is allowed.
void coord_runtime_close(struct coord_runtime *rt);
uint16_t coord_runtime_port(const struct coord_runtime *rt); // where nodes connect; 0: nowhere
const struct coordinator_config *coord_runtime_config(const struct coord_runtime *rt);

// A request, in token ids.
struct coord_request {
	const int32_t *tokens; // copied
	int32_t n_tokens;
	int32_t n_predict;
	struct sampling sampling;
	bool hash_logits;
	bool ignore_stop;
	void *ctx;
	void (*on_token)(void *ctx, int32_t token, int32_t pos);
	// on_end comes exactly once and is the last call. hash is "" unless hash_logits, and the answer ended without error.
	void (*on_end)(void *ctx, enum coord_end end, enum err err, const char *text, const char *hash);
};

// coord_runtime_submit may call back before it returns only by way of the loop: never from inside. Returns the request's handle.
uint64_t coord_runtime_submit(struct coord_runtime *rt, const struct coord_request *r);
// coord_runtime_has_room tells whether a submit is allowed now: more requests than the core could refuse politely are under way else.
bool coord_runtime_has_room(const struct coord_runtime *rt);
// coord_runtime_cancel ends it: on_end follows with COORD_END_CANCELLED, unless it has ended already.
void coord_runtime_cancel(struct coord_runtime *rt, uint64_t req);

// Operators. `done` comes once, from the loop.
void coord_runtime_invite(struct coord_runtime *rt, coord_invited done, void *ctx);
void coord_runtime_revoke(struct coord_runtime *rt, const char *who, coord_answered done, void *ctx);
// coord_runtime_drain: the member shall hold no layers, or, with undo, may again.
void coord_runtime_drain(struct coord_runtime *rt, const char *who, bool undo, coord_answered done, void *ctx);

void coord_runtime_status(const struct coord_runtime *rt, struct coord_status *out);
// coord_runtime_view is coordinator_view of its core.
struct cluster_view;
MUST_USE enum err coord_runtime_view(const struct coord_runtime *rt, enum dtype type, struct cluster_view *out, struct errmsg *em);
// coord_runtime_reading tells how far reading the model file is, to know its hash; false: it is not read now.
bool coord_runtime_reading(const struct coord_runtime *rt, struct block_progress *out);
// coord_runtime_blocks: how far a member is with fetching the model; false: it does not fetch and gives nothing.
bool coord_runtime_blocks(const struct coord_runtime *rt, struct node_id id, struct block_progress *out);

// coord_runtime_head_stats tells where the output head's weights are.
void coord_runtime_head_stats(const struct coord_runtime *rt, struct residency_stats *out);

#endif
