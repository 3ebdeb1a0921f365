// How the members of a tensor-parallel group share the layers they run: which heads, rows and experts are whose. One arithmetic for the
// engine, the planner, the cores and the simulator. Pure.
//
// A product is split by rows: an output belongs wholly to one member, so any cut gives the unsplit bits. What a product reads is gathered first,
// in the form that the product takes anyway (quantised blocks; f32 where weights are floats): each member contributes its columns. Four
// exchanges a layer: the inputs of o, the outputs of o, the inputs of down, the outputs of down. With experts whole ones belong to members, and
// two exchanges do for the second half: none for inputs, one for the outputs of the chosen experts.
//
// Or the columns of down, and of o, are dealt to members along the lanes of the canonical sum (kernels/lanes.h): no inputs travel, but the nodes of
// the sum that a member completes, and whoever has all members' nodes of an output completes it. Experts are not dealt so.
//
// In a ring members send to the next one only, and the last one's next is the first. A sum takes two rounds of hops, an exchange each: the nodes of
// the outputs that member c completes start at c + 1, and everybody on their way to c joins theirs with them, as far as the sum's order
// allows; then completed sums go round, each one's own first.
//
// Cuts fall between quantisation blocks where heads and shares allow; a block with several owners travels as f32, and everybody quantises it.
// Source: canonical-arithmetic.md, last part.
#ifndef HEARTH_BASE_TENSOR_SPLIT_H
#define HEARTH_BASE_TENSOR_SPLIT_H

#include "base/dtype.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/wire_type.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum split_mode {
	SPLIT_GATHER, // rows everywhere
	// Rows, but for down: columns along lanes.
	SPLIT_MIXED,         // every member gets all nodes and completes all sums: one hop, the best for two
	SPLIT_MIXED_STAR,    // the first member completes all sums, and sends them to the others
	SPLIT_MIXED_SCATTER, // each completes those of its down_rows, and sends them to the others
	// Columns along lanes for o as well: only where every head's blocks lie in lanes of one member. Members may then compute the same KV heads.
	SPLIT_REDUCE,
	SPLIT_REDUCE_STAR,
	SPLIT_REDUCE_SCATTER,
	// As the scatters, by hops. Last, because plans carry these numbers.
	SPLIT_MIXED_RING,
	SPLIT_REDUCE_RING,
	N_SPLIT_MODES,
};

#define SPLIT_LANES 32 // in which a member's share of lanes is told, however many a product has

// What a split depends on; the same in all layers.
struct split_shape {
	int32_t n_heads, n_kv_heads; // n_kv_heads divides n_heads
	int32_t head_dim, hidden_dim;
	int32_t ffn_dim;             // of one expert, when there are experts
	int32_t n_experts;           // 0: one feed-forward network
	int32_t o_lanes;             // of o's sum; 0: not known, floats, or not the same in all layers
	int32_t down_lanes;          // of down's sum, in the layer where it has fewest; 0: not known, and lanes cannot be dealt
	int32_t vocab_size;          // rows of lm_head; 0: they are nobody's here
	int32_t o_block, down_block; // inputs of o and of down that share a scale, in the layer where most do: 256, 32 or 1
};

struct split_range {
	int32_t begin, end; // half-open; empty: none is this member's
};

// One member's part of each layer. Ranges of a group's members follow each other and cover the whole.
struct split_part {
	struct split_range heads;     // query heads: rows of q, columns of o; all of them, with lanes of o
	struct split_range o_lanes;   // of SPLIT_LANES: those whose columns of o are its own
	struct split_range ffn;       // rows of gate and up, columns of down; all of them, with experts or lanes
	struct split_range lanes;     // of SPLIT_LANES: those whose columns of down, and rows of gate and up, are its own; none in gather mode
	struct split_range o_rows;    // outputs of o, or sums that it completes
	struct split_range down_rows; // outputs of down, or sums that it completes; unused with experts
	struct split_range experts;   // with experts: those it holds
	struct split_range vocab_rows; // of lm_head, where the members of the last stage compute logits
};

struct tensor_split {
	enum split_mode mode;
	enum wire_type payload; // what nodes and completed sums are rounded to: f32; bf16 or q8, which change bits
	int32_t n_members; // 1 .. GROUP_MEMBERS_MAX
	struct split_part parts[GROUP_MEMBERS_MAX];
};

// What members of a group send each other, in the order of a layer.
enum split_exchange {
	EXCHANGE_ATTENDED, // inputs of o
	EXCHANGE_O_NODES,  // instead: nodes of its sums; to each member those that it completes, or in a ring, by hops
	EXCHANGE_O,        // outputs of o, or completed sums; in a ring, by hops
	EXCHANGE_GATED,    // inputs of down; not with experts
	EXCHANGE_NODES,    // instead: as EXCHANGE_O_NODES
	EXCHANGE_DOWN,     // as EXCHANGE_O; not with experts
	EXCHANGE_EXPERTS,  // outputs of the experts that tokens chose
	N_EXCHANGES,
};

// split_shape_add takes in the types of a layer's o and down, once for each layer in any order; before the first one o_block is 0. Also of types
// without kernels.
void split_shape_add(struct split_shape *s, enum dtype o, enum dtype down);

// tensor_split_make cuts by shares (n, any unit, at least one of them not 0): as near to them as heads, blocks and experts allow. ERR_RANGE names what is wrong.
MUST_USE enum err tensor_split_make(const struct split_shape *s, enum split_mode mode, const uint32_t *shares, int32_t n, struct tensor_split *out,
	struct errmsg *em);
// tensor_split_check refuses (ERR_RANGE) a split whose parts do not cover the shape: also for those that came from a peer.
MUST_USE enum err tensor_split_check(const struct split_shape *s, const struct tensor_split *t, struct errmsg *em);

// split_kv_heads returns the KV heads that a range of query heads uses; members share one that query heads of several use.
struct split_range split_kv_heads(const struct split_shape *s, const struct split_part *p);

static inline int32_t split_len(struct split_range r)
{
	return r.end - r.begin;
}

// How a member's columns of a product's input travel: in front of and behind its own whole blocks, values of blocks that it shares.
struct split_columns {
	struct split_range front;  // f32
	struct split_range blocks; // whole blocks of `block` columns each, numbered from 0: int8 and one f32 per block
	struct split_range back;   // f32
};

// split_columns_of takes columns of a product whose inputs share a scale by `block` (1: floats, everything travels as f32).
struct split_columns split_columns_of(struct split_range columns, int32_t block);
// split_columns_bytes returns what they take for one token.
size_t split_columns_bytes(const struct split_columns *c, int32_t block);

// Where in a buffer of its own a member has what goes to another one; the same place for all where all get the same.
struct split_sent {
	uint32_t at, len;
};

static inline bool split_has_lanes(enum split_mode m)
{
	return m != SPLIT_GATHER;
}

static inline bool split_has_o_lanes(enum split_mode m)
{
	return m >= SPLIT_REDUCE && m != SPLIT_MIXED_RING;
}

static inline bool split_is_ring(enum split_mode m)
{
	return m == SPLIT_MIXED_RING || m == SPLIT_REDUCE_RING;
}

// split_completes_all tells whether every member completes every sum, so that none travels.
static inline bool split_completes_all(enum split_mode m)
{
	return m == SPLIT_MIXED || m == SPLIT_REDUCE;
}

static inline bool split_is_star(enum split_mode m)
{
	return m == SPLIT_MIXED_STAR || m == SPLIT_REDUCE_STAR;
}

// split_hops returns how many hops a ring's round has. A member alone has one, in which nothing travels.
static inline int32_t split_hops(int32_t n_members)
{
	return n_members > 1 ? n_members - 1 : 1;
}

// split_before returns the member so many places before another one, round the ring.
static inline int32_t split_before(int32_t member, int32_t n_places, int32_t n_members)
{
	return ((member - n_places) % n_members + n_members) % n_members;
}

// split_slice returns whose outputs a member passes on in a hop (from 0) of the first round, of nodes, or of the second.
static inline int32_t split_slice(int32_t member, int32_t hop, int32_t n_members, bool of_nodes)
{
	return split_before(member, of_nodes ? hop + 1 : hop, n_members);
}

// split_exchanges returns how many exchanges a layer takes.
static inline int32_t split_exchanges(enum split_mode m, int32_t n_members, bool has_experts)
{
	int32_t sum = split_completes_all(m) ? 1 : split_is_ring(m) ? 2 * split_hops(n_members) : 2;
	return (split_has_o_lanes(m) ? sum : 2) + (has_experts ? 1 : split_has_lanes(m) ? sum : 2);
}

// split_is_hop tells whether in an exchange of a forward, counted from 1, members send to the next one only. Never in the first: there everybody
// learns who cannot compute it.
static inline bool split_is_hop(enum split_mode m, int32_t n_members, int32_t exchange)
{
	return split_is_ring(m) && exchange > 1 && (split_has_o_lanes(m) || (exchange - 1) % split_exchanges(m, n_members, false) >= 2);
}

// split_mask returns which of n_lanes lanes of a product are a part's own.
static inline uint32_t split_mask(struct split_range lanes, int32_t n_lanes)
{
	uint64_t begin = (uint64_t)lanes.begin * (uint64_t)n_lanes / SPLIT_LANES, end = (uint64_t)lanes.end * (uint64_t)n_lanes / SPLIT_LANES;
	return (uint32_t)((UINT64_C(1) << end) - (UINT64_C(1) << begin));
}

// split_nodes returns how many nodes of the canonical sum a mask of n_lanes (a power of two) lanes completes (kernels/lanes.h): 1 for an aligned
// power-of-two share, 0 for none.
int32_t split_nodes(int32_t n_lanes, uint32_t mask);

// split_owns_head tells whether a query head is a part's own.
bool split_owns_head(const struct split_shape *s, enum split_mode mode, const struct split_part *p, int32_t head);

// split_sums returns which outputs of o or of down a member completes from nodes.
struct split_range split_sums(const struct split_shape *s, const struct tensor_split *t, int32_t member, bool of_o);

// split_is_payload tells whether nodes and sums may be rounded to it. f16 has not the range.
static inline bool split_is_payload(enum wire_type t)
{
	return t == WIRE_F32 || t == WIRE_BF16 || t == WIRE_Q8;
}

#define SPLIT_Q8_BLOCK 16 // with 32 the KL of q8 sums is 2.5 times as large, as a few outputs of a model are much larger than others

// split_payload_bytes returns what n values of a node or of sums take: in q8 a byte each, and a scale of two bytes for each SPLIT_Q8_BLOCK of them.
size_t split_payload_bytes(enum wire_type t, int32_t n);

// split_bytes returns what a member contributes to an exchange for one token; block is that of the layer's o or down. EXCHANGE_EXPERTS: for
// each chosen expert that is its own; EXCHANGE_O_NODES and EXCHANGE_NODES: for each node. Without
// rounding (payload: split_payload_bytes).
size_t split_bytes(const struct split_shape *s, const struct split_part *p, enum split_exchange x, int32_t block);

#endif
