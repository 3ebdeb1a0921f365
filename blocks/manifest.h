// What a model file is made of: its hash, its blocks' hashes, and which tensors lie in which blocks.
//
// A block is block_bytes of the file, at a multiple of that (the last one is shorter), so that whoever has some of them can put them where they
// belong: a file of the model's layout with holes, which an engine maps like the whole. A member gets the manifest from the coordinator, over
// a link that proves who speaks; from then on every byte of the model is checked against it, whoever sent it.
//
//   0 "HEARTHB1" | 8 model hash 32 (BLAKE2b-256 of the blocks' hashes) | 40 file bytes u64 | 48 header bytes u64 | 56 block bytes u32 |
//   60 n_tensors u32 | name length u8, name (the file's, for a person) | BLAKE2b-256 of each block | tensors
//   a tensor: offset in the file u64 | bytes u64 | name length u8, name
//
// Little-endian. block bytes is a power of two. Tensors stand in the order of their offsets, do not overlap, and lie behind the header, which is
// everything before the first of them. The BLAKE2b-256 of all of this is the manifest's own hash, under which a cache keeps the model.
//
// Pure: parsing borrows the bytes, which must outlive the struct. Read-only afterwards, and safe for concurrent readers.
#ifndef HEARTH_BLOCKS_MANIFEST_H
#define HEARTH_BLOCKS_MANIFEST_H

#include "base/bytes.h"
#include "base/err.h"
#include "blocks/block_set.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_HASH_BYTES 32
#define BLOCK_BYTES_MIN 4096          // tests and the simulator: a page
#define BLOCK_BYTES_MAX (1024 * 1024) // a frame of a blocks link holds one
#define BLOCK_BYTES_DEFAULT (256 * 1024) // a frame that a slow link carries in seconds; hashes are 1/8192 of the model
#define BLOCKS_MAX (1u << 22)         // a terabyte of the default size
#define MANIFEST_BYTES_MAX (192u << 20) // BLOCKS_MAX hashes, and a million tensors
#define MANIFEST_NAME_MAX 127
#define MANIFEST_TENSOR_NAME_MAX 63

struct manifest {
	uint8_t hash[BLOCK_HASH_BYTES];       // of the manifest
	uint8_t model_hash[BLOCK_HASH_BYTES];
	uint64_t file_bytes, header_bytes;
	uint32_t block_bytes, n_blocks, n_tensors;
	char name[MANIFEST_NAME_MAX + 1];
	const uint8_t *hashes;  // (n_blocks, BLOCK_HASH_BYTES)
	const uint8_t *tensors; // (tensors_len) as encoded
	size_t tensors_len;
};

struct manifest_tensor {
	uint64_t offset, bytes;
	const char *name; // borrowed, not NUL-terminated
	size_t name_len;
};

// manifest_parse reads bytes that nobody vouches for. ERR_FORMAT, ERR_LIMIT; em names the field.
MUST_USE enum err manifest_parse(const uint8_t *data, size_t len, struct manifest *out, struct errmsg *em);

// What manifest_write makes a manifest of. Hashes of blocks and tensors are put in place by the caller, afterwards and in order.
struct manifest_facts {
	const uint8_t *model_hash;
	uint64_t file_bytes, header_bytes;
	uint32_t block_bytes;
	const char *name; // cut when it is too long
	uint32_t n_tensors;
	size_t tensor_names_len; // of all together
};
// manifest_size returns the bytes of the whole encoding, 0 when it is beyond a limit.
size_t manifest_size(const struct manifest_facts *f);
// manifest_write writes all but hashes and tensors, and returns where the hashes begin; the tensors go behind them (manifest_put_tensor).
uint8_t *manifest_write(const struct manifest_facts *f, struct writer *w);
// manifest_set_model_hash puts it into an encoding whose hashes are in place.
void manifest_set_model_hash(uint8_t *data, const uint8_t *hashes, uint32_t n_blocks);
void manifest_put_tensor(struct writer *w, const struct manifest_tensor *t);

// manifest_block_bytes returns the length of block i.
uint32_t manifest_block_bytes(const struct manifest *m, uint32_t i);
// manifest_block_matches tells whether these bytes are block i: their number and their hash. The one place that decides it.
bool manifest_block_matches(const struct manifest *m, uint32_t i, const uint8_t *data, size_t len);

// A walk over the tensors, from zero: false at the end.
struct manifest_walk {
	struct reader r;
	bool has_begun;
};
bool manifest_next_tensor(const struct manifest *m, struct manifest_walk *walk, struct manifest_tensor *out);
// manifest_add_extent adds the blocks that hold bytes [offset, offset + len) of the file.
void manifest_add_extent(const struct manifest *m, uint64_t offset, uint64_t len, struct block_set *out);
// manifest_add_header adds what describes the model: everything before the first tensor.
void manifest_add_header(const struct manifest *m, struct block_set *out);
// manifest_add_layers adds the tensors of layers [begin, end), "blk.N.*".
void manifest_add_layers(const struct manifest *m, int32_t begin, int32_t end, struct block_set *out);
// manifest_set_bytes returns the bytes of the blocks of a set.
uint64_t manifest_set_bytes(const struct manifest *m, const struct block_set *s);

#endif
