// Kernels: the canonical arithmetic (kernels/canonical.h) for one machine, behind one table chosen at run time.
//
// Every implementation gives the same bits as the portable one; kernels never know a model, a layer or a thread.
// Matrices are row-major, (rows, cols); y = W x. Nothing here allocates: the caller gives storage of the sizes asked for.
#ifndef HEARTH_KERNELS_KERNELS_H
#define HEARTH_KERNELS_KERNELS_H

#include "base/dtype.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A borrowed view of one weight tensor, as it lies in the file.
struct weight {
	const void *data;  // rows * row_bytes; no alignment beyond 1 is assumed
	enum dtype type;
	int32_t rows;      // outputs
	int32_t cols;      // inputs
	size_t row_bytes;
};

enum act_kind {
	ACT_F32,  // rule 8: f32, f16, bf16 weights
	ACT_A32,  // rule 4, blocks of 32: 32-block weight types
	ACT_A256, // rule 4, blocks of 256: K-quants
};

// Activations of n tokens in the form one kind of product takes. Made once, used by every product that shares the input.
struct acts {
	enum act_kind kind;
	int32_t n;     // tokens now held
	int32_t cols;
	int32_t n_cap;
	const float *x; // (n, cols), borrowed from acts_set; ACT_F32 reads it
	int8_t *q;      // (n_cap, cols)
	float *d;       // (n_cap, cols / block)
	// Exact sums of q, derived: what offsets and mins of the weights are multiplied with.
	int32_t *qsum;  // (n_cap, cols / 32), ACT_A32 only
	int16_t *sum16; // (n_cap, cols / 16), ACT_A256 only
	int16_t *sum32; // (n_cap, cols / 32), ACT_A256 only
};

struct kernels; // a table of functions; static storage

// kernels_find returns the table of that name, or with NULL the fastest this machine runs; NULL and a message when it is unknown or the
// machine lacks the instructions.
const struct kernels *kernels_find(const char *name, struct errmsg *em);
// kernels_known returns the name of table i of this build, the fastest first and "portable" last; NULL past it. A machine may lack
// the instructions of some.
const char *kernels_known(size_t i);
const char *kernels_name(const struct kernels *k);
// kernels_has_type tells whether products with this weight type exist.
bool kernels_has_type(enum dtype type);
// kernels_act_kind returns the activation form that products with this weight type take.
enum act_kind kernels_act_kind(enum dtype type);

// kernels_thread_init sets the floating-point environment of rule 1 for the calling thread. Every compute thread calls it first.
void kernels_thread_init(void);

// acts_bytes returns the storage acts_init needs for up to n_cap tokens of `cols` values.
size_t acts_bytes(enum act_kind kind, int32_t n_cap, int32_t cols);
void acts_init(struct acts *a, enum act_kind kind, int32_t n_cap, int32_t cols, void *storage);
// acts_set takes n tokens (n, cols).
void acts_set(struct acts *a, const float *x, int32_t n);
// acts_quantise quantises tokens [begin, end) by rule 4, for the kinds that are: the range lets threads share the work, after one of them
// called acts_set. A block that is not finite gets d = NaN.
void acts_quantise(const struct kernels *k, struct acts *a, int32_t begin, int32_t end);

// acts_quantise_blocks quantises blocks [block_begin, block_end) of one token. acts_sum_blocks makes the derived sums of blocks whose q and d were
// put there otherwise; q is -127 to 127.
void acts_quantise_blocks(const struct kernels *k, const struct acts *a, int32_t token, int32_t block_begin, int32_t block_end);
void acts_sum_blocks(const struct acts *a, int32_t token, int32_t block_begin, int32_t block_end);
// acts_block_len returns the values of a block; 1 for ACT_F32, which has none.
int32_t acts_block_len(enum act_kind kind);

// acts_part gives tokens [begin, end) of quantised or float activations as activations of their own, which borrow a's storage.
struct acts acts_part(const struct acts *a, int32_t begin, int32_t end);

// kernels_matmul computes outputs [row_begin, row_end) for every token: y[t * y_stride + r] = W[r] . x[t] (rules 5 to 8).
// Any number of threads may call it at once with disjoint row ranges.
void kernels_matmul(const struct kernels *k, const struct weight *w, const struct acts *a, int32_t row_begin, int32_t row_end,
	float *y, size_t y_stride);

// kernels_row_to_f32 writes row `row` of w as f32 (cols): the embedding look-up, rule 20.
void kernels_row_to_f32(const struct weight *w, int32_t row, float *out);

// Rule 11. y (n) may be x. w (n) f32.
void kernels_rmsnorm(const struct kernels *k, const float *x, const float *w, int32_t n, float eps, float *y);
// Rule 15: y[i] = SILU(gate[i]) * up[i]; y may be gate.
void kernels_swiglu(const struct kernels *k, const float *gate, const float *up, int32_t n, float *y);
// Rule 9, of experts: y[i] = fma(w, x[i], y[i]).
void kernels_add_scaled(const struct kernels *k, float *y, float w, const float *x, int32_t n);
// y[i] += x[i] (rule 9).
void kernels_add(const struct kernels *k, float *y, const float *x, int32_t n);
// Rule 10: RNE, overflow to Inf. kernels_f16_to_f32 is exact.
void kernels_f32_to_f16(const struct kernels *k, const float *x, int32_t n, uint16_t *out);
void kernels_f16_to_f32(const struct kernels *k, const uint16_t *x, int32_t n, float *out);
// kernels_all_finite tells whether none of n values is NaN or infinite (rule 3).
bool kernels_all_finite(const struct kernels *k, const float *x, int32_t n);

// Rule 12. rope_table fills cos and sin (head_dim / 2 each) for one position; freq (head_dim / 2) comes from rope_freqs.
void rope_freqs(double theta, int32_t rope_dim, float *freq);
void rope_table(const float *freq, int32_t n_pairs, int32_t pos, float *cos_out, float *sin_out);
// kernels_rope_pairs rotates x in place: pairs (2i, 2i + 1), GGUF llama's order.
void kernels_rope_pairs(const struct kernels *k, float *x, int32_t n_pairs, const float *cos_in, const float *sin_in);
// kernels_rope_halves does the same with pairs (i, i + n_pairs), the order of qwen3moe and others.
void kernels_rope_halves(const struct kernels *k, float *x, int32_t n_pairs, const float *cos_in, const float *sin_in);

// Rule 13: one query of one head over positions [0, n_pos).
struct attention {
	const float *q;     // (head_dim)
	const uint16_t *k;  // f16; position p at k + p * stride
	const uint16_t *v;  // f16; position p at v + p * stride
	size_t stride;      // elements from one position to the next
	int32_t n_pos;      // visible positions, >= 1
	int32_t head_dim;   // a multiple of 8, at most 512
};
// kernels_attention writes out (head_dim). scratch holds kernels_attention_scratch(n_pos, head_dim) floats.
size_t kernels_attention_scratch(int32_t n_pos, int32_t head_dim);
void kernels_attention(const struct kernels *k, const struct attention *a, float *scratch, float *out);

// The same for queries that share K and V: consecutive positions of one sequence, and in each the query heads of one KV head.
// K and V are read and converted once for all of them, so a group of 8 to 64 queries is several times cheaper than each alone.
struct attention_group {
	const float *q;     // (n_tokens, n_heads, head_dim), token t at q + t * q_stride
	size_t q_stride;    // elements from one token to the next
	const uint16_t *k;  // as in struct attention
	const uint16_t *v;
	size_t stride;
	int32_t n_tokens;   // >= 1
	int32_t n_heads;    // query heads of this KV head, >= 1
	int32_t n_pos;      // positions visible to token 0, >= 1; token t sees n_pos + t
	int32_t head_dim;   // as in struct attention
	float *out;         // (n_tokens, n_heads, head_dim), token t at out + t * out_stride; not q
	size_t out_stride;
};
// kernels_attention_group_scratch returns the floats of scratch for n_queries = n_tokens * n_heads, the last of which sees n_pos positions.
size_t kernels_attention_group_scratch(int32_t n_pos, int32_t head_dim, int32_t n_queries);
void kernels_attention_group(const struct kernels *k, const struct attention_group *g, float *scratch);

#endif
