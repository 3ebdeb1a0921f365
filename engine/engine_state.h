// What an engine is made of; private to engine/.
#ifndef HEARTH_ENGINE_ENGINE_STATE_H
#define HEARTH_ENGINE_ENGINE_STATE_H

#include "base/arena.h"
#include "engine/engine.h"
#include "engine/residency.h"
#include "engine/unit_table.h"
#include "engine/weight_ranges.h"

#define N_ACT_KINDS 3
#define TILE_TOKENS_MAX 8 // tokens whose attention shares reading K and V; scratch grows with it

// One layer, ready to compute. Matrices have a shape here and no data: that comes unit by unit (crew_unit_weight). Norms and biases are
// copies, because a file may place them at any byte and they are small.
struct engine_layer {
	struct weight q, k, v, o, gate, up, down; // gate, up, down: none with experts
	struct weight router;                     // only with experts; its data is router_bytes
	uint8_t *router_bytes;                    // a copy, since every token needs all of it
	const struct expert_weights *experts;     // (n_experts), where they are in the file; or NULL
	int32_t attended_cols, gated_cols;        // columns of `attended` and `gated` there are: all, or those of its lanes
	uint8_t *o_packed, *down_packed;          // with lanes: its columns of o and of down, which no unit has
	struct unit_run units[N_UNIT_KINDS]; // empty where none of the rows is this member's
	float *attn_norm, *ffn_norm;     // (hidden_dim)
	float *q_bias, *k_bias, *v_bias; // (rows), or NULL
	float *q_norm, *k_norm;          // (head_dim), or NULL
};

// One input of products, in each form that a product of it takes.
struct engine_input {
	float *x;                        // (n_cap, cols)
	int32_t n_cap, cols;
	bool used[N_ACT_KINDS];
	struct acts acts[N_ACT_KINDS];
};

// One token of the running batch.
struct engine_token {
	int32_t slot;
	int32_t pos;
	float *hidden; // (hidden_dim)
	struct engine_fault fault;
};

// One expert chosen by one token.
struct expert_choice {
	int32_t expert;
	float weight;
	int32_t pair; // of the running group: where this token's output for this expert lies
};

// Some tokens of one expert, in the running group.
struct expert_part {
	int32_t expert;
	int32_t pair_begin, pair_end;
};

// The experts whose pairs are in scratch together: those of [expert_begin, expert_end) that some token chose.
struct expert_group {
	int32_t expert_begin, expert_end;
	int32_t n_parts, n_pairs;
};

enum expert_matrix { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN };

// Consecutive positions of one slot in the running batch.
struct engine_tile {
	int32_t begin, n_tokens; // of tokens
};

// What of the scratch a member's forward keeps from one exchange to the next, so that another one can be computed meanwhile.
struct engine_run {
	struct engine_token *tokens;
	struct engine_tile *tiles;
	struct engine_input normed, attended, picked, gated;
	void *acts_storage[N_ACT_KINDS];
	struct expert_choice *choices;
	float *nodes, *chosen_out, *delta, *rope_cos, *rope_sin;
};

struct engine {
	struct engine_config c;
	struct hparams hp;
	// What of a layer it computes: a part of a group's, or all of it as the only member.
	struct split_shape shape;
	struct tensor_split split;
	struct split_part part;      // its own
	int32_t n_own_heads, n_own_kv; // query heads that are its own, and KV heads that they use
	int32_t *heads;              // (n_own_heads) which, ascending
	int32_t *kv_heads;           // (n_own_kv) likewise
	int32_t *kv_first;           // (n_own_kv + 1) where in `heads` those of a KV head begin
	struct member_run *member;   // the forward that calls are about; NULL: whole layers
	struct member_run *members[MEMBER_FORWARDS_MAX];
	struct engine_run runs[MEMBER_FORWARDS_MAX]; // scratch of those that calls are not about
	int32_t run;                 // which one they are about: its scratch stands below
	struct arena arena;
	uint64_t kv_bytes, packed_bytes; // of the arena
	const struct weight_files *files;
	struct unit_table units; // of the layers, then of the head: the order of use
	struct residency *residency;
	struct unit_table expert_units;    // (layers it runs, its experts)
	struct expert_cache *expert_cache; // NULL: experts are views of the mapped file
	struct engine_layer *layers; // (layers it runs)

	// KV cache, f16: (layers, n_slots, its KV heads, ctx_len, head_dim), each. A head's positions lie side by side, as attention reads them.
	uint16_t *keys, *values;
	int32_t *computed; // (layers, n_slots): positions computed

	// Scratch of one call.
	struct engine_token *tokens;               // (batch_max)
	struct engine_tile *tiles;                 // (batch_max)
	struct engine_input normed;                // RMSNorm's output: q, k, v, gate, up, lm_head read it
	struct engine_input attended;              // attention's output: o reads it
	struct engine_input gated;                 // the GLU's output, made in place of gate: down reads it; of pairs with experts

	// With experts; see engine/expert_ffn.h.
	int32_t pairs_cap, experts_at_once;        // of a group
	float *router_logits;                      // (batch_max, n_experts)
	struct expert_choice *choices;             // (batch_max, n_experts_used), ascending by expert
	int32_t *expert_tokens, *expert_next;      // (n_experts): tokens that chose it; its next pair
	struct expert_part *expert_parts;          // (n_experts)
	int32_t *pair_tokens;                      // (pairs_cap)
	struct engine_input picked;                // of pairs: what gate and up read
	float *expert_out;                         // (pairs_cap, hidden_dim)
	int32_t *expert_held;                      // (n_experts): units of the group
	float *ahead_x, *ahead_logits;             // (hidden_dim), (n_experts): what the next layer's router may see
	struct expert_choice *ahead_choices;       // (n_experts_used)
	struct expert_group group;
	float *nodes;                              // with lanes: (members, batch_max, nodes, hidden_dim), see engine/lane_sums.h
	float *chosen_out;                         // (batch_max, n_experts_used, hidden_dim): a member's; else NULL

	void *acts_storage[N_ACT_KINDS];           // that inputs share
	float *q, *k, *v;                          // (batch_max, rows of its heads)
	float *up;                                 // as gated
	float *delta;                              // (batch_max, hidden_dim): what a residual adds
	float *rope_freq;                          // (rope_dim / 2)
	float *rope_cos, *rope_sin;                // (batch_max, rope_dim / 2)
	float *attn_scratch;                       // (threads, attn_scratch_len)
	size_t attn_scratch_len;

	// The head, or its rows on the last stage.
	struct weight embd, output; // without data
	uint64_t embd_at;           // in the model file
	struct unit_run output_units;
	uint8_t *embd_row;          // one row of embd
	float *output_norm;         // (hidden_dim)
};

// engine_kv_at returns the index in keys and values of its KV head `kv_head` (a place in kv_heads) of `slot`, position 0.
static inline size_t engine_kv_at(const struct engine *e, int32_t layer, int32_t slot, int32_t kv_head)
{
	size_t row = ((size_t)layer_spans_find(&e->c.layers, layer) * (size_t)e->c.n_slots + (size_t)slot) * (size_t)e->n_own_kv + (size_t)kv_head;
	return row * (size_t)e->c.ctx_len * (size_t)e->hp.head_dim;
}

// engine_expert_unit returns the place in expert_units of one of its experts of a layer that runs.
static inline int32_t engine_expert_unit(const struct engine *e, int32_t layer, int32_t expert)
{
	return layer_spans_find(&e->c.layers, layer) * split_len(e->part.experts) + expert - e->part.experts.begin;
}

// engine_expert_weight gives a matrix of an expert of a layer that runs, which is in memory.
struct weight engine_expert_weight(const struct engine *e, int32_t layer, int32_t expert, enum expert_matrix matrix);

// engine_has_output tells whether it computes logits.
static inline bool engine_has_output(const struct engine *e)
{
	return e->c.has_output || (e->c.has_head && !e->c.embeds_only);
}

// engine_computed points at how many positions of a slot a layer has computed.
static inline int32_t *engine_computed(const struct engine *e, int32_t layer, int32_t slot)
{
	return &e->computed[(size_t)layer_spans_find(&e->c.layers, layer) * (size_t)e->c.n_slots + (size_t)slot];
}

// The scratch of the forward that calls are about, put aside and taken up.
void engine_store_run(const struct engine *e, struct engine_run *to);
void engine_fetch_run(struct engine *e, const struct engine_run *from);
// engine_runs tells whether layers [begin, end) lie in one of its spans.
bool engine_runs(const struct engine *e, int32_t layer_begin, int32_t layer_end);
// engine_layer_part fills w with the part of a layer that the engine computes: matrices have its rows only.
void engine_layer_part(const struct engine *e, int32_t layer, struct layer_weights *w);

// engine_owns_head tells whether a query head, or with `is_kv` a KV head, is used by this engine.
bool engine_owns_head(const struct engine *e, bool is_kv, int32_t head);
// engine_list_units fills the uncut tables of units. ERR_NOMEM.
MUST_USE enum err engine_list_units(struct engine *e);
// weight_ranges_of lists what an engine reads of its layers, of which the config alone is prepared. ERR_NOMEM.
MUST_USE enum err weight_ranges_of(struct engine *e, struct weight_ranges *out);
// engine_read_vectors reads norms and biases into their places; engine_measure_weights fills the weights' part of *out.
MUST_USE enum err engine_read_vectors(struct engine *e, struct errmsg *em);
MUST_USE enum err engine_measure_weights(struct engine *e, struct engine_size *out, struct errmsg *em);

#endif
