// A model file, opened: hyper-parameters, and borrowed views of its weights.
//
// Owns the mapping; everything it hands out lives until model_close. Knows GGUF names, never a kernel, a layer split or a
// thread. Safe for concurrent readers.
// What happens when the file changes under the mapping is said in model/mapped_file.h.
#ifndef HEARTH_MODEL_MODEL_H
#define HEARTH_MODEL_MODEL_H

#include "base/dtype.h"
#include "base/err.h"
#include "model/gguf.h"
#include "model/hparams.h"
#include "model/weight_files.h"

// One tensor as it lies in the file: row-major (rows, cols); a vector has rows 1.
struct tensor_view {
	const void *data;
	uint64_t at; // where data is in the model file
	enum dtype type;
	int32_t rows;
	int32_t cols;
	size_t row_bytes;
};

// The tensors of one layer of a llama-like architecture. A missing optional one has data NULL.
struct layer_weights {
	struct tensor_view attn_norm;  // (1, hidden_dim) f32
	struct tensor_view q, k, v, o; // (n_heads * head_dim, hidden_dim), (n_kv_heads * head_dim, hidden_dim) twice, (hidden_dim, n_heads * head_dim)
	struct tensor_view q_bias, k_bias, v_bias; // optional, (1, rows) f32
	struct tensor_view q_norm, k_norm; // (1, head_dim) f32; only where arch_has_qk_norm
	struct tensor_view ffn_norm;   // (1, hidden_dim) f32
	struct tensor_view gate, up;   // (ffn_dim, hidden_dim); none with experts
	struct tensor_view down;       // (hidden_dim, ffn_dim); none with experts
	struct tensor_view router;     // (n_experts, hidden_dim) f32, f16 or bf16; only with experts
	const struct expert_weights *experts; // (n_experts), or NULL
};

// One expert of a layer: its slices of three tensors, or tensors of its own, as older files have them.
struct expert_weights {
	struct tensor_view gate, up;   // (ffn_dim, hidden_dim)
	struct tensor_view down;       // (hidden_dim, ffn_dim)
};

struct model;

// model_open maps the file, parses the container, reads and checks the hyper-parameters and the shape of every tensor the
// architecture needs. The message names file, tensor or key, what was found and what was wanted. A tensor the architecture does not
// know is refused (ERR_UNSUPPORTED): computing without it would give wrong answers. So is one part of a split file.
MUST_USE enum err model_open(const char *path, struct model **out, struct errmsg *em);
void model_close(struct model *m); // NULL is allowed
const char *model_path(const struct model *m);
const char *model_name(const struct model *m); // general.name, or the file's name without folder and .gguf
const struct hparams *model_hparams(const struct model *m);
const struct gguf *model_gguf(const struct model *m);
// model_layer fills w for layer [0, n_layers).
void model_layer(const struct model *m, int32_t layer, struct layer_weights *w);
struct tensor_view model_token_embd(const struct model *m);  // (vocab_size, hidden_dim)
struct tensor_view model_output_norm(const struct model *m); // (1, hidden_dim)
struct tensor_view model_output(const struct model *m);      // (vocab_size, hidden_dim); token_embd when tied
uint64_t model_file_bytes(const struct model *m);
// model_files says where the weights are: in the one file that was opened, which is mapped.
const struct weight_files *model_files(const struct model *m);
// model_check_unchanged compares the file's identity, size and time of change with those at model_open; ERR_STATE names the difference.
MUST_USE enum err model_check_unchanged(const struct model *m, struct errmsg *em);
// model_set_growing: the file is one of this program's cache, to which blocks are added that were compared with their hashes. From now on only
// its size tells a change.
void model_set_growing(struct model *m);

// model_check_tensors checks that g has exactly the tensors that hp's architecture needs, each of the right shape, vectors as f32. Part of
// model_open; apart for inspection and fuzzing.
MUST_USE enum err model_check_tensors(const struct gguf *g, const struct hparams *hp, struct errmsg *em);
// model_check_whole refuses a part of a split file (split.count > 1).
MUST_USE enum err model_check_whole(const struct gguf *g, struct errmsg *em);

#endif
