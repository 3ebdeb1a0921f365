// What of a token's logits travels, where lm_head is not the coordinator's own: the best candidates, when they give the token that all
// logits give (sampling_takes_best), or all. Little-endian, side by side:
//
//   best    min(rows, SAMPLING_BEST_MAX) candidates, value descending, id ascending: 0 id u32 | 4 value f32
//   logits  one f32 for each row
//
// Of some rows of lm_head (a member's), or of the whole vocabulary (a reply to the head). Rows with a value that is not finite give bytes of 0xff:
// no logits, and known as such.
#ifndef HEARTH_BASE_HEAD_REPLY_H
#define HEARTH_BASE_HEAD_REPLY_H

#include "base/sampling.h"

#include <stddef.h>

enum head_want { HEAD_NOTHING, HEAD_BEST, HEAD_LOGITS };

#define HEAD_CANDIDATE_BYTES 8

static inline int32_t head_reply_n_best(int32_t n_rows)
{
	return n_rows < SAMPLING_BEST_MAX ? n_rows : SAMPLING_BEST_MAX;
}

// head_reply_bytes returns what n rows give; HEAD_NOTHING gives 0.
static inline size_t head_reply_bytes(enum head_want want, int32_t n_rows)
{
	if (want == HEAD_BEST)
		return (size_t)head_reply_n_best(n_rows) * HEAD_CANDIDATE_BYTES;
	return want == HEAD_LOGITS ? (size_t)n_rows * sizeof(float) : 0;
}

// head_reply_bytes_max bounds it for both.
static inline size_t head_reply_bytes_max(int32_t n_rows)
{
	size_t best = head_reply_bytes(HEAD_BEST, n_rows), all = head_reply_bytes(HEAD_LOGITS, n_rows);
	return best > all ? best : all;
}

#endif
