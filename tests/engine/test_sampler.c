// The sampler against rule 17a written down plainly: sort everything, sum, cut, draw.
#include "engine/sampler.h"

#include "base/fmath.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_MAX 3000

static int in_total_order(const void *a, const void *b)
{
	struct candidate x, y;
	memcpy(&x, a, sizeof x);
	memcpy(&y, b, sizeof y);
	return x.value != y.value ? (x.value < y.value) - (x.value > y.value) : (x.id > y.id) - (x.id < y.id);
}

// plainly draws by the rule, step by step.
static int32_t plainly(const struct sampling *s, const float *logits, int32_t n, uint64_t pos)
{
	static struct candidate c[N_MAX];
	static float p[N_MAX];
	for (int32_t i = 0; i < n; i++)
		c[i] = (struct candidate){.value = logits[i], .id = i};
	qsort(c, (size_t)n, sizeof *c, in_total_order);
	if (s->temperature == 0)
		return c[0].id;
	int32_t k = s->top_k > 0 && s->top_k < n ? s->top_k : n;
	double sum = 0;
	for (int32_t i = 0; i < k; i++) {
		p[i] = fmath_exp((c[i].value - c[0].value) / s->temperature);
		sum += (double)p[i];
	}
	if (s->top_p < 1) {
		double want = (double)s->top_p * sum, head = 0;
		int32_t i = 0;
		do
			head += (double)p[i++];
		while (i < k && head < want);
		k = i;
	}
	int32_t kept = 0;
	sum = 0;
	for (int32_t i = 0; i < k; i++) {
		if (p[i] < s->min_p * p[0])
			continue;
		c[kept] = c[i];
		p[kept] = p[i];
		sum += (double)p[kept++];
	}
	double r = rng_philox_u01(s->seed, pos) * sum, head = 0;
	int32_t last = 0;
	for (int32_t i = 0; i < kept; i++) {
		if (p[i] > 0)
			last = i;
		head += (double)p[i];
		if (head > r)
			return c[i].id;
	}
	return c[last].id;
}

static int32_t draw(const struct sampling *s, const float *logits, int32_t n, uint64_t pos)
{
	static struct candidate scratch[SAMPLER_SCRATCH(N_MAX)];
	int32_t token = -1;
	assert_int_equal(sampler_draw(s, logits, n, pos, scratch, &token), OK);
	assert_in_range(token, 0, n - 1);
	return token;
}

// Few different values, so that ties are common; or many, over several magnitudes.
static void fill(struct rng *r, float *x, int32_t n)
{
	bool coarse = rng_below(r, 2) == 0;
	float scale = (float)(1 + rng_below(r, 40));
	for (int32_t i = 0; i < n; i++)
		x[i] = coarse ? (float)rng_below(r, 7) - 3 : (float)(rng_u01(r) - 0.5) * scale;
	if (rng_below(r, 4) == 0)
		x[rng_below(r, (uint64_t)n)] = -0.0f;
}

static void every_setting_draws_what_the_rule_says(void **state)
{
	(void)state;
	static const float temperatures[] = {0, 1e-30f, 0.01f, 0.7f, 1, 5, 100}, top_ps[] = {1, 0.999f, 0.9f, 0.5f, 0.01f, 1e-30f},
						   min_ps[] = {0, 0.001f, 0.05f, 0.5f, 1};
	static const int32_t top_ks[] = {0, 1, 2, 7, 40, 1000, INT32_MAX}, sizes[] = {1, 2, 31, 320, N_MAX};
	struct rng r;
	rng_init(&r, 11);
	static float x[N_MAX];
	for (int round = 0; round < 6000; round++) {
		struct sampling s = {.temperature = temperatures[rng_below(&r, 7)], .top_k = top_ks[rng_below(&r, 7)],
			.top_p = top_ps[rng_below(&r, 6)], .min_p = min_ps[rng_below(&r, 5)], .seed = rng_u64(&r)};
		int32_t n = sizes[rng_below(&r, round % 8 ? 4 : 5)];
		fill(&r, x, n);
		assert_int_equal(sampler_check(&s, NULL), OK);
		uint64_t pos = rng_below(&r, 100000);
		assert_int_equal(draw(&s, x, n, pos), plainly(&s, x, n, pos));
	}
}

static void draws_are_those_written_down(void **state)
{
	(void)state;
	// By a model of rule 17a in Python, with its own Philox.
	static const int32_t golden[] = {
		31, 57, 24, 24, 36, 57, 43, 12, 19, 12, 24, 12, 38, 31, 43, 57, 38, 31, 48, 38, 48, 12, 5, 10, 24, 19, 31, 19, 17, 60,
		48, 19, 38, 19, 31, 31, 57, 5, 17, 31, 43, 5, 17, 22, 17, 62, 38, 19,
	};
	float x[64];
	for (int i = 0; i < 64; i++)
		x[i] = (float)((i * 37) % 64) / 8;
	const struct sampling s = {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .min_p = 0.02f, .seed = 42};
	for (uint64_t pos = 0; pos < sizeof golden / sizeof *golden; pos++) {
		int32_t got = draw(&s, x, 64, pos);
		if (got != golden[pos])
			fail_msg("position %d: %d, want %d", (int)pos, (int)got, (int)golden[pos]);
	}
}

static void ties_go_to_the_lowest_id(void **state)
{
	(void)state;
	const float x[] = {1, 3, -0.0f, 3, 0.0f, 3};
	const struct sampling greedy = {.top_p = 1}, one = {.temperature = 1, .top_k = 1, .top_p = 1}, tiny_p = {.temperature = 1, .top_p = 1e-6f};
	assert_int_equal(draw(&greedy, x, 6, 0), 1);
	for (uint64_t pos = 0; pos < 50; pos++) {
		assert_int_equal(draw(&one, x, 6, pos), 1);
		assert_int_equal(draw(&tiny_p, x, 6, pos), 1);
	}
	const float zeros[] = {-0.0f, 0.0f}; // equal values, whatever their sign
	assert_int_equal(draw(&greedy, zeros, 2, 0), 0);
	assert_int_equal(draw(&one, zeros, 2, 0), 0);
}

static void a_logit_that_is_not_finite_gives_no_token(void **state)
{
	(void)state;
	static const uint32_t bad[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7f800000, 0xff800000};
	const struct sampling ways[] = {{.top_p = 1}, {.temperature = 1, .top_p = 1}, {.temperature = 1, .top_k = 3, .top_p = 0.5f, .min_p = 0.1f}};
	for (size_t w = 0; w < 3; w++) {
		for (size_t b = 0; b < 5; b++) {
			for (int at = 0; at < 9; at += 4) {
				float x[9] = {0};
				struct candidate scratch[SAMPLER_SCRATCH(9)];
				int32_t token = -7;
				x[at] = fmath_from_bits(bad[b]);
				assert_int_equal(sampler_draw(&ways[w], x, 9, 0, scratch, &token), ERR_NON_FINITE);
				assert_int_equal(token, -7);
			}
		}
	}
}

static void the_largest_logits_do_not_overflow(void **state)
{
	(void)state;
	const float x[] = {-3e38f, 3e38f, 3.1e38f, -3.1e38f};
	const struct sampling s = {.temperature = 1e-38f, .top_p = 0.99f};
	for (uint64_t pos = 0; pos < 20; pos++)
		assert_int_equal(draw(&s, x, 4, pos), 2);
}

static void shares_follow_the_probabilities(void **state)
{
	(void)state;
	const float x[] = {0, 0.6931472f, 1.0986123f}; // 1 : 2 : 3
	const struct sampling s = {.temperature = 1, .top_p = 1, .seed = 5};
	int n[3] = {0};
	for (uint64_t pos = 0; pos < 60000; pos++)
		n[draw(&s, x, 3, pos)]++;
	for (int i = 0; i < 3; i++) // 5 standard deviations
		assert_in_range(n[i], 10000 * (i + 1) - 600, 10000 * (i + 1) + 600);
}

static void settings_out_of_range_are_refused_by_name(void **state)
{
	(void)state;
	const float nan = fmath_from_bits(0x7fc00000), inf = fmath_from_bits(0x7f800000);
	const struct {
		struct sampling s;
		const char *name;
	} cases[] = {
		{{.temperature = -0.1f, .top_p = 1}, "temperature"}, {{.temperature = nan, .top_p = 1}, "temperature"},
		{{.temperature = inf, .top_p = 1}, "temperature"}, {{.temperature = 100.1f, .top_p = 1}, "temperature"},
		{{.top_k = -1, .top_p = 1}, "top_k"}, {{.top_p = 0}, "top_p"}, {{.top_p = 1.01f}, "top_p"}, {{.top_p = nan}, "top_p"},
		{{.top_p = 1, .min_p = -0.01f}, "min_p"}, {{.top_p = 1, .min_p = 1.01f}, "min_p"}, {{.top_p = 1, .min_p = nan}, "min_p"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct errmsg em;
		assert_int_equal(sampler_check(&cases[i].s, &em), ERR_RANGE);
		assert_ptr_equal(strstr(em.text, cases[i].name), em.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_setting_draws_what_the_rule_says),
		cmocka_unit_test(draws_are_those_written_down),
		cmocka_unit_test(ties_go_to_the_lowest_id),
		cmocka_unit_test(a_logit_that_is_not_finite_gives_no_token),
		cmocka_unit_test(the_largest_logits_do_not_overflow),
		cmocka_unit_test(shares_follow_the_probabilities),
		cmocka_unit_test(settings_out_of_range_are_refused_by_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
