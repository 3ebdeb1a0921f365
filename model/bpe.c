#include "model/bpe.h"

#include <stdlib.h>

#define NONE UINT32_MAX

struct symbol {
	int32_t id; // -1: a byte without a token
	uint32_t prev, next;
	uint32_t rank;  // of the rule for this and the next one; VOCAB_NO_RANK: there is none, or this one was merged away
	int32_t result; // of that rule
};

// A candidate is rank << 32 | index of the left symbol: the smallest is the next to merge. It is stale when its symbol's rank is another now.
// n - 1 candidates at the start and two for each of n - 1 merges: 3n always suffice.
struct work {
	const struct vocab *vocab;
	struct symbol *symbols; // (n)
	uint64_t *heap;         // (3n)
	size_t n_heap;
};

#define SCRATCH_PER_BYTE (sizeof(struct symbol) + 3 * sizeof(uint64_t))

static void heap_push(struct work *w, uint64_t key)
{
	size_t i = w->n_heap++;
	while (i > 0 && w->heap[(i - 1) / 2] > key) {
		w->heap[i] = w->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	w->heap[i] = key;
}

static uint64_t heap_pop(struct work *w)
{
	uint64_t top = w->heap[0], key = w->heap[--w->n_heap];
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= w->n_heap)
			break;
		if (child + 1 < w->n_heap && w->heap[child + 1] < w->heap[child])
			child++;
		if (w->heap[child] >= key)
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	w->heap[i] = key;
	return top;
}

// propose looks up the rule for symbol i and its successor.
static void propose(struct work *w, uint32_t i)
{
	struct symbol *s = &w->symbols[i];
	s->rank = VOCAB_NO_RANK;
	if (s->next == NONE || s->id < 0 || w->symbols[s->next].id < 0)
		return;
	const struct vocab_merge *m = vocab_find_merge(w->vocab, s->id, w->symbols[s->next].id);
	if (m == NULL)
		return;
	s->rank = m->rank;
	s->result = m->result;
	heap_push(w, (uint64_t)m->rank << 32 | i);
}

static void merge(struct work *w, uint32_t i)
{
	struct symbol *left = &w->symbols[i], *right = &w->symbols[left->next];
	left->id = left->result;
	left->next = right->next;
	right->rank = VOCAB_NO_RANK;
	if (right->next != NONE)
		w->symbols[right->next].prev = i;
	propose(w, i);
	if (left->prev != NONE)
		propose(w, left->prev);
}

static enum err scratch_reserve(struct bpe_scratch *s, size_t len, struct errmsg *em)
{
	if (len <= s->cap)
		return OK;
	size_t cap = 256;
	while (cap < len)
		cap *= 2;
	free(s->data);
	s->cap = 0;
	s->data = malloc(cap * SCRATCH_PER_BYTE);
	if (s->data == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory to tokenize a piece of %zu bytes", len);
	s->cap = cap;
	return OK;
}

void bpe_scratch_deinit(struct bpe_scratch *s)
{
	free(s->data);
	*s = (struct bpe_scratch){0};
}

enum err id_sink_push(struct id_sink *sink, int32_t id, struct errmsg *em)
{
	if (sink->n == sink->cap)
		return errmsg_fail(em, ERR_LIMIT, "the text has more than %zu tokens", sink->cap);
	sink->out[sink->n++] = id;
	return OK;
}

enum err bpe_encode(const struct vocab *v, const char *piece, size_t len, struct bpe_scratch *scratch, struct id_sink *sink,
	struct errmsg *em)
{
	enum err e = scratch_reserve(scratch, len, em);
	if (e != OK)
		return e;
	struct work w = {.vocab = v, .heap = scratch->data};
	w.symbols = (struct symbol *)(void *)(w.heap + 3 * scratch->cap);
	uint32_t n = (uint32_t)len;
	for (uint32_t i = 0; i < n; i++)
		w.symbols[i] = (struct symbol){
			v->byte_ids[(uint8_t)piece[i]], i > 0 ? i - 1 : NONE, i + 1 < n ? i + 1 : NONE, VOCAB_NO_RANK, -1};
	for (uint32_t i = 0; i < n; i++)
		propose(&w, i);
	while (w.n_heap > 0) {
		uint64_t best = heap_pop(&w);
		uint32_t i = (uint32_t)best;
		if (w.symbols[i].rank == best >> 32)
			merge(&w, i);
	}
	for (uint32_t i = 0; e == OK && i != NONE && n > 0; i = w.symbols[i].next)
		if (w.symbols[i].id >= 0)
			e = id_sink_push(sink, w.symbols[i].id, em);
	return e;
}
