// What travels of logits: chosen, joined, read. See head_rows.h.
#include "engine/head_rows.h"

#include "base/bytes.h"
#include "base/fmath.h"

#include <string.h>

static void put_candidate(struct candidate c, uint8_t *out)
{
	store_u32(out, (uint32_t)c.id);
	store_u32(out + 4, fmath_bits(c.value));
}

static bool is_finite(float x)
{
	return x - x == 0;
}

// insert puts a candidate in its place among the first *n of at most `max`, where the last one gives way.
static void insert(struct candidate *best, int32_t *n, int32_t max, struct candidate c)
{
	int32_t at = *n < max ? (*n)++ : max - 1;
	for (; at > 0 && candidate_is_before(c, best[at - 1]); at--)
		best[at] = best[at - 1];
	best[at] = c;
}

static void choose_best(const float *logits, int32_t id_begin, int32_t n, uint8_t *out)
{
	struct candidate best[SAMPLING_BEST_MAX];
	int32_t n_best = 0, max = head_reply_n_best(n);
	for (int32_t i = 0; i < n; i++) {
		struct candidate c = {.value = logits[i], .id = id_begin + i};
		if (n_best < max || candidate_is_before(c, best[max - 1]))
			insert(best, &n_best, max, c);
	}
	for (int32_t i = 0; i < n_best; i++)
		put_candidate(best[i], out + (size_t)i * HEAD_CANDIDATE_BYTES);
}

void head_reply_refuse(enum head_want want, int32_t n, uint8_t *out)
{
	memset(out, 0xff, head_reply_bytes(want, n));
}

enum err head_reply_choose(const float *logits, int32_t id_begin, int32_t n, enum head_want want, uint8_t *out)
{
	bool is_good = true;
	for (int32_t i = 0; i < n; i++)
		is_good &= is_finite(logits[i]);
	if (!is_good) {
		head_reply_refuse(want, n, out);
		return ERR_NON_FINITE;
	}
	if (want == HEAD_BEST)
		choose_best(logits, id_begin, n, out);
	for (int32_t i = 0; want == HEAD_LOGITS && i < n; i++)
		store_u32(out + (size_t)i * sizeof(float), fmath_bits(logits[i]));
	return OK;
}

enum err head_reply_best(const uint8_t *in, int32_t id_begin, int32_t id_end, struct candidate *out)
{
	int32_t n = head_reply_n_best(id_end - id_begin);
	for (int32_t i = 0; i < n; i++, in += HEAD_CANDIDATE_BYTES) {
		uint32_t id = load_u32(in);
		out[i] = (struct candidate){.value = fmath_from_bits(load_u32(in + 4)), .id = (int32_t)(id & INT32_MAX)};
		if (!is_finite(out[i].value))
			return ERR_NON_FINITE;
		if (id > INT32_MAX || out[i].id < id_begin || out[i].id >= id_end || (i > 0 && !candidate_is_before(out[i - 1], out[i])))
			return ERR_FORMAT;
	}
	for (int32_t i = 0; i < n; i++) // in order, but an id may stand there twice with two values
		for (int32_t k = 0; k < i; k++)
			if (out[i].id == out[k].id)
				return ERR_FORMAT;
	return OK;
}

enum err head_reply_logits(const uint8_t *in, int32_t n, float *out)
{
	bool is_good = true;
	for (int32_t i = 0; i < n; i++) {
		out[i] = fmath_from_bits(load_u32(in + (size_t)i * sizeof *out));
		is_good &= is_finite(out[i]);
	}
	return is_good ? OK : ERR_NON_FINITE;
}

static enum err join_best(const struct tensor_split *split, const uint8_t *const *parts, uint8_t *out, struct errmsg *em)
{
	struct candidate all[SAMPLING_BEST_MAX], own[SAMPLING_BEST_MAX];
	int32_t n_all = 0, max = head_reply_n_best(split->parts[split->n_members - 1].vocab_rows.end);
	enum err err = OK;
	for (int32_t i = 0; i < split->n_members; i++) {
		struct split_range r = split->parts[i].vocab_rows;
		enum err e = head_reply_best(parts[i], r.begin, r.end, own);
		if (e == ERR_FORMAT)
			return errmsg_fail(em, e, "member %d sent candidates that are not in order, or not its own", (int)i);
		err = e != OK ? e : err;
		for (int32_t k = 0; e == OK && k < head_reply_n_best(split_len(r)); k++)
			if (n_all < max || candidate_is_before(own[k], all[max - 1]))
				insert(all, &n_all, max, own[k]);
	}
	for (int32_t i = 0; err == OK && i < n_all; i++)
		put_candidate(all[i], out + (size_t)i * HEAD_CANDIDATE_BYTES);
	return err;
}

static enum err join_logits(const struct tensor_split *split, const uint8_t *const *parts, uint8_t *out)
{
	bool is_good = true;
	for (int32_t i = 0; i < split->n_members; i++) {
		struct split_range r = split->parts[i].vocab_rows;
		for (int32_t k = 0; k < split_len(r); k++)
			is_good &= is_finite(fmath_from_bits(load_u32(parts[i] + (size_t)k * sizeof(float))));
		if (split_len(r) > 0)
			memcpy(out + (size_t)r.begin * sizeof(float), parts[i], (size_t)split_len(r) * sizeof(float));
	}
	return is_good ? OK : ERR_NON_FINITE;
}

enum err head_reply_join(const struct tensor_split *split, const uint8_t *const *parts, enum head_want want, uint8_t *out, struct errmsg *em)
{
	enum err err = want == HEAD_BEST ? join_best(split, parts, out, em) : join_logits(split, parts, out);
	if (err == ERR_NON_FINITE)
		head_reply_refuse(want, split->parts[split->n_members - 1].vocab_rows.end, out);
	return err != ERR_NON_FINITE ? err : errmsg_fail(em, err, "logits: a value is not finite");
}
