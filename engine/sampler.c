#include "engine/sampler.h"

#include "base/assert.h"
#include "base/fmath.h"
#include "base/rng.h"

enum err sampler_check(const struct sampling *s, struct errmsg *em)
{
	if (!(s->temperature >= 0 && s->temperature <= 100))
		return errmsg_fail(em, ERR_RANGE, "temperature %g: want 0 to 100", (double)s->temperature);
	if (s->top_k < 0)
		return errmsg_fail(em, ERR_RANGE, "top_k %d: want 0 (all) or more", s->top_k);
	if (!(s->top_p > 0 && s->top_p <= 1))
		return errmsg_fail(em, ERR_RANGE, "top_p %g: want more than 0, at most 1", (double)s->top_p);
	if (!(s->min_p >= 0 && s->min_p <= 1))
		return errmsg_fail(em, ERR_RANGE, "min_p %g: want 0 to 1", (double)s->min_p);
	return OK;
}

static void swap(struct candidate *a, struct candidate *b)
{
	struct candidate t = *a;
	*a = *b;
	*b = t;
}

// A heap whose root comes before all: popping it n times gives the order, and stopping early costs only what was popped.
static void sift_down(struct candidate *c, int32_t n, int32_t i)
{
	for (;;) {
		int32_t best = i, left = 2 * i + 1, right = left + 1;
		if (left < n && candidate_is_before(c[left], c[best]))
			best = left;
		if (right < n && candidate_is_before(c[right], c[best]))
			best = right;
		if (best == i)
			return;
		swap(&c[i], &c[best]);
		i = best;
	}
}

// Candidates by rank, ordered as far as they are asked for. A heap popped in place leaves what was popped behind its end, the first one last;
// who wants more than a few gets them all sorted, which is cheaper than popping them.
struct order {
	struct candidate *c;            // (n)
	int32_t n;                      // all
	int32_t n_heap;                 // not popped yet
	const struct candidate *sorted; // (n), or NULL
};

#define POPPED_MAX(n) ((n) / 64) // of 49,152 candidates 768: their pops are little beside sorting all

static void order_init(struct order *o, struct candidate *c, int32_t n)
{
	*o = (struct order){.c = c, .n = n, .n_heap = n};
	for (int32_t i = n / 2 - 1; i >= 0; i--)
		sift_down(c, n, i);
}

#define DIGIT_BITS 11
#define N_DIGITS 3
#define RADIX (1 << DIGIT_BITS)

// sort_key grows where values fall; both zeros have one.
static uint32_t sort_key(float value)
{
	uint32_t b = fmath_bits(value + 0.0f);
	return b & 0x80000000 ? b : ~b & 0x7fffffff;
}

// sort_by_digit sorts from[0, n) into to by one digit of the key, keeping the order of equal ones.
static void sort_by_digit(const struct candidate *from, struct candidate *to, int32_t n, int shift)
{
	int32_t at[RADIX] = {0};
	for (int32_t i = 0; i < n; i++)
		at[sort_key(from[i].value) >> shift & (RADIX - 1)]++;
	for (int32_t d = 0, sum = 0; d < RADIX; d++) {
		int32_t count = at[d];
		at[d] = sum;
		sum += count;
	}
	for (int32_t i = 0; i < n; i++)
		to[at[sort_key(from[i].value) >> shift & (RADIX - 1)]++] = from[i];
}

// order_sort puts all in order. Equal values are sorted by id because they start that way.
static void order_sort(struct order *o)
{
	struct candidate *from = o->c, *to = o->c + o->n;
	for (int32_t i = 0; i < o->n; i++) // by id: every id is there once, and its value with it
		to[o->c[i].id] = o->c[i];
	for (int digit = 0; digit < N_DIGITS; digit++) {
		struct candidate *t = from;
		from = to;
		to = t;
		sort_by_digit(from, to, o->n, digit * DIGIT_BITS);
	}
	o->sorted = to;
}

// order_get returns the candidate of the given rank.
static struct candidate order_get(struct order *o, int32_t rank)
{
	if (o->sorted == NULL && rank > POPPED_MAX(o->n))
		order_sort(o);
	if (o->sorted != NULL)
		return o->sorted[rank];
	while (o->n - o->n_heap <= rank) {
		o->n_heap--;
		swap(&o->c[0], &o->c[o->n_heap]);
		sift_down(o->c, o->n_heap, 0);
	}
	return o->c[o->n - 1 - rank];
}

static bool all_finite(const float *x, int32_t n)
{
	uint32_t any = 0;
	for (int32_t i = 0; i < n; i++)
		any |= (fmath_bits(x[i]) & 0x7fffffff) >= 0x7f800000;
	return any == 0;
}

static int32_t argmax(const float *logits, int32_t n)
{
	int32_t best = 0;
	for (int32_t i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

static double weight_at(struct order *o, const struct sampling *s, float z0, int32_t rank)
{
	return (double)fmath_exp((order_get(o, rank).value - z0) / s->temperature);
}

// total_weight sums ranks [0, k) in order, and stops where p underflows to 0: the sum cannot change after that.
static double total_weight(struct order *o, const struct sampling *s, float z0, int32_t k)
{
	double sum = 0;
	for (int32_t i = 0; i < k; i++) {
		double p = weight_at(o, s, z0, i);
		if (p == 0)
			break;
		sum += p;
	}
	return sum;
}

static int32_t keep_top_p(struct order *o, const struct sampling *s, float z0, int32_t k)
{
	if (s->top_p >= 1)
		return k;
	double want = (double)s->top_p * total_weight(o, s, z0, k), sum = 0;
	for (int32_t i = 0; i < k; i++) {
		sum += weight_at(o, s, z0, i);
		if (sum >= want)
			return i + 1;
	}
	return k;
}

static int32_t keep_min_p(struct order *o, const struct sampling *s, float z0, int32_t k)
{
	if (s->min_p <= 0)
		return k;
	float least = s->min_p * (float)weight_at(o, s, z0, 0);
	int32_t n = 0;
	while (n < k && (float)weight_at(o, s, z0, n) >= least)
		n++;
	return n;
}

static bool is_greedy(const struct sampling *s)
{
	return s->temperature == 0 || s->top_k == 1;
}

static int32_t draw(struct order *o, const struct sampling *s, uint64_t pos)
{
	float z0 = order_get(o, 0).value;
	int32_t k = s->top_k > 0 && s->top_k < o->n ? s->top_k : o->n;
	k = keep_top_p(o, s, z0, k);
	k = keep_min_p(o, s, z0, k);
	double r = rng_philox_u01(s->seed, pos) * total_weight(o, s, z0, k), sum = 0;
	int32_t last = 0; // the last one with any weight, should rounding leave r unreached
	for (int32_t i = 0; i < k; i++) {
		double p = weight_at(o, s, z0, i);
		if (p == 0)
			break;
		last = i;
		sum += p;
		if (sum > r)
			break;
	}
	return order_get(o, last).id;
}

enum err sampler_draw(const struct sampling *s, const float *logits, int32_t n, uint64_t pos, struct candidate *scratch, int32_t *token)
{
	ASSERT(n >= 1);
	if (!all_finite(logits, n))
		return ERR_NON_FINITE;
	if (is_greedy(s)) {
		*token = argmax(logits, n);
		return OK;
	}
	for (int32_t i = 0; i < n; i++)
		scratch[i] = (struct candidate){.value = logits[i], .id = i};
	struct order o;
	order_init(&o, scratch, n);
	*token = draw(&o, s, pos);
	return OK;
}

int32_t sampler_draw_best(const struct sampling *s, const struct candidate *best, int32_t n, uint64_t pos)
{
	ASSERT(n >= 1);
	ASSERT(sampling_takes_best(s));
	struct order o = {.n = n, .sorted = best};
	return is_greedy(s) ? best[0].id : draw(&o, s, pos);
}
