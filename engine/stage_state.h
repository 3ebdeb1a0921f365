// What a stage's work is made of; private to engine/.
#ifndef HEARTH_ENGINE_STAGE_STATE_H
#define HEARTH_ENGINE_STAGE_STATE_H

#include "engine/head_rows.h"
#include "engine/stage_work.h"

#define ITEMS_MAX 64        // of one batch: COORD_ITEMS_MAX and NODE_ITEMS_MAX
#define LOGITS_ROWS_MAX 16  // rows of logits held at once: a row is 200 KB and more

// The items that are being computed: those that have arrived whole.
struct batch {
	struct stage_item *items;
	int32_t n_items, n;
	struct engine_item at[ITEMS_MAX];
	int32_t from[ITEMS_MAX]; // to item
};

// A forward under way; a member of a group has it from one exchange to the next.
struct stage_forward {
	struct batch batch;
	uint32_t bytes[GROUP_MEMBERS_MAX]; // of the exchange that is waited in
	struct head_rows_item head_items[ITEMS_MAX]; // of the batch, those that want logits
	int32_t head_from[ITEMS_MAX]; // to batch.at
	int32_t n_head;
	bool is_at_head; // a member waits in the last exchange, that of the head
};

struct stage_work {
	const struct model *model;
	struct engine *engine;       // a group's: of its first member
	struct tensor_group *group;  // NULL: the engine is all
	enum wire_type wire;
	int32_t hidden_dim, vocab_size, batch_max;
	size_t row_bytes;
	uint64_t own_bytes; // beside the engine
	float *hidden; // (forwards, batch_max, hidden_dim)
	float *logits; // (LOGITS_ROWS_MAX, vocab_size), a head's; one row of those that embed only
	struct candidate *candidates; // (SAMPLER_SCRATCH(vocab_size)), a head's
	int32_t member, n_members;
	// Of a last stage with lm_head.
	struct head_rows *head;      // NULL: none, or that of a group in this process
	struct tensor_split split;   // whose rows are whose, in a group
	struct stage_forward forwards[MEMBER_FORWARDS_MAX];
	struct stage_forward *now;   // the one that a call is about
};

MUST_USE enum err stage_decode_rows(const struct stage_work *w, const uint8_t *wire, int32_t n, float *out);
void stage_encode_rows(const struct stage_work *w, const float *x, int32_t n, uint8_t *wire);

// stage_head.c: lm_head on the last stage.
MUST_USE enum err stage_head_open(struct stage_work *w, const struct engine_config *c, struct errmsg *em);
uint64_t stage_head_memory(const struct engine_config *c);
// stage_head_part_bytes bounds what any member gives for a batch's items.
size_t stage_head_part_bytes(const struct stage_work *w);
// stage_head_find lists the items of the batch that want logits of what has been computed.
void stage_head_find(struct stage_work *w, struct batch *b);
// stage_head_run makes their replies, in `wire`: where all rows are here.
MUST_USE enum err stage_head_run(struct stage_work *w, struct batch *b, struct errmsg *em);
// stage_head_contribute makes what this member gives, and says so; stage_head_join makes the replies of it, where they are the first member's.
MUST_USE enum err stage_head_contribute(struct stage_work *w, uint8_t *own, struct stage_turn *out, struct errmsg *em);
MUST_USE enum err stage_head_join(struct stage_work *w, const uint8_t *const *parts, const uint8_t *own, struct errmsg *em);

#endif
