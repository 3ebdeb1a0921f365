// Byte-pair encoding of one piece: neighbours are merged, the rule of lowest rank first and of equal rank the leftmost, until none applies.
//
// O(n log n) in the piece's length by a heap over a linked list. Inside model/ only. One scratch per call of the tokenizer.
#ifndef HEARTH_MODEL_BPE_H
#define HEARTH_MODEL_BPE_H

#include "base/err.h"
#include "model/vocab.h"

#include <stddef.h>
#include <stdint.h>

// A longer piece is cut, at a character's start: 44 bytes of scratch per byte make 11 MiB. The joint's ids may differ from llama.cpp's.
#define BPE_PIECE_MAX (256u * 1024u)

struct bpe_scratch {
	void *data; // owned
	size_t cap; // bytes of piece it serves
};

struct id_sink {      // where ids go
	int32_t *out; // (cap)
	size_t cap;
	size_t n;
};

// bpe_encode appends the ids of piece[0..len), len at most BPE_PIECE_MAX. A byte without a token gives none and keeps its neighbours
// apart. ERR_LIMIT when the sink is full, ERR_NOMEM.
MUST_USE enum err bpe_encode(const struct vocab *v, const char *piece, size_t len, struct bpe_scratch *scratch,
	struct id_sink *sink, struct errmsg *em);
void bpe_scratch_deinit(struct bpe_scratch *s); // safe on a zeroed one
MUST_USE enum err id_sink_push(struct id_sink *sink, int32_t id, struct errmsg *em);

#endif
