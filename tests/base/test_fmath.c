// Elementary functions against libm in a wider format: the greatest error over a sweep stays where it was measured.
#include "base/fmath.h"

#include "base/rng.h"
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

// ulps returns |got - want| in units of the last place of want as a float; below 2^-126 in units of 2^-149.
static double ulps(double got, double want)
{
	int e;
	(void)frexp(want, &e);
	return fabs(got - want) / ldexp(1.0, (e < -125 ? -125 : e) - 24);
}

struct sweep {
	float from, to;
	float (*ours)(float);
	double (*exact)(double);
	double max_ulps; // measured, rounded up
};

static double exact_sigmoid(double x)
{
	return 1.0 / (1.0 + exp(-x));
}

static double exact_silu(double x)
{
	return x / (1.0 + exp(-x));
}

static void errors_stay_below_the_measured_bounds(void **state)
{
	(void)state;
	static const struct sweep sweeps[] = {
		{-87.0f, 88.0f, fmath_exp, exp, 1.1},
		{-80.0f, 80.0f, fmath_sigmoid, exact_sigmoid, 2.6},
		{-80.0f, 80.0f, fmath_silu, exact_silu, 2.6},
		{-12.0f, 12.0f, fmath_tanh, tanh, 1.4},
		{-5.0f, 5.0f, fmath_erf, erf, 1.2},
	};
	for (size_t s = 0; s < ARRAY_LEN(sweeps); s++) {
		struct rng r;
		rng_init(&r, s);
		double worst = 0.0;
		for (int i = 0; i < 400000; i++) {
			float x = sweeps[s].from + (float)rng_u01(&r) * (sweeps[s].to - sweeps[s].from);
			x = i % 4 == 0 ? x * 0.01f : x;
			double e = ulps((double)sweeps[s].ours(x), sweeps[s].exact((double)x));
			worst = e > worst ? e : worst;
		}
		print_message("sweep %zu: %.3f ulp\n", s, worst);
		assert_true(worst <= sweeps[s].max_ulps);
		assert_true(worst > 0.4); // a sweep that measures nothing would pass
	}
}

static void gelu_is_near_its_definition(void **state)
{
	(void)state;
	double worst_tanh = 0.0, worst_erf = 0.0;
	for (int i = -60000; i <= 60000; i++) {
		double x = (double)((float)i * 1e-4f);
		double by_tanh = 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
		double by_erf = 0.5 * x * (1.0 + erf(x * 0.7071067811865476));
		worst_tanh = fmax(worst_tanh, fabs((double)fmath_gelu_tanh((float)x) - by_tanh));
		worst_erf = fmax(worst_erf, fabs((double)fmath_gelu_erf((float)x) - by_erf));
	}
	assert_true(worst_tanh < 1e-6 && worst_erf < 1e-6);
	assert_true(fmath_softcap(1000.0f, 30.0f) == 30.0f);
}

static void the_edges_of_exp_are_as_written(void **state)
{
	(void)state;
	assert_true(fmath_exp(0.0f) == 1.0f);
	assert_true(fmath_exp(-88.0f) == 0.0f);
	assert_true(fmath_exp(-INFINITY) == 0.0f);
	assert_true(fmath_exp(-87.0f) > 0.0f);
	assert_true(fmath_exp(1000.0f) == fmath_exp(88.0f));
	assert_true(fmath_exp(INFINITY) == fmath_exp(88.0f));
	assert_true(fmath_exp(NAN) != fmath_exp(NAN));
	assert_true(fmath_tanh(NAN) != fmath_tanh(NAN));
	assert_true(fmath_erf(NAN) != fmath_erf(NAN));
	assert_true(fmath_silu(-INFINITY) != 0.0f || signbit(fmath_silu(-200.0f)));
	assert_true(fmath_tanh(50.0f) == 1.0f && fmath_tanh(-50.0f) == -1.0f);
	assert_true(fmath_erf(9.0f) == 1.0f && fmath_erf(-INFINITY) == -1.0f);
}

static void sine_and_cosine_of_rope_angles_round_correctly(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 1);
	for (int i = 0; i < 300000; i++) {
		double a = rng_u01(&r) * (i % 3 == 0 ? 2097152.0 : i % 3 == 1 ? 4096.0 : 4.0), s, c;
		fmath_sincos(i % 2 ? a : -a, &s, &c);
		assert_true((float)s == (float)sin(i % 2 ? a : -a));
		assert_true((float)c == (float)cos(a));
	}
	double s, c;
	fmath_sincos(0.0, &s, &c);
	assert_true(s == 0.0 && c == 1.0);
}

static void binary64_exp_and_log_are_within_two_ulp(void **state)
{
	(void)state;
	struct rng r;
	rng_init(&r, 2);
	for (int i = 0; i < 200000; i++) {
		double x = -708.0 + rng_u01(&r) * 1417.0, y = exp(x);
		assert_true(fabs(fmath_expd(x) / y - 1.0) < 4.5e-16);
		double l = log(y);
		assert_true(fabs(fmath_logd(y) - l) <= 4.5e-16 * fmax(fabs(l), 1.0));
	}
	assert_true(fmath_expd(0.0) == 1.0 && fmath_logd(1.0) == 0.0);
	assert_true(fabs(fmath_logd(0x1p-1074) + 744.4400719213812) < 1e-12);
}

static void rounding_to_an_integer_takes_ties_to_even(void **state)
{
	(void)state;
	assert_int_equal(fmath_round_int(0.5f), 0);
	assert_int_equal(fmath_round_int(1.5f), 2);
	assert_int_equal(fmath_round_int(-2.5f), -2);
	assert_int_equal(fmath_round_int(-127.4f), -127);
	assert_int_equal(fmath_round_int(4194303.0f), 4194303);
}

static void halves_round_to_nearest_even(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 65536; h++) {
		float x = fmath_f16_to_f32((uint16_t)h), up = fmath_f16_to_f32((uint16_t)(h + 1));
		if (x != x) {
			assert_true((fmath_f32_to_f16(x) & 0x7fff) > 0x7c00);
			continue;
		}
		assert_int_equal(fmath_f32_to_f16(x), h);
		if ((h & 0x7fff) >= 0x7bff)
			continue;
		float middle = x + (up - x) * 0.5f; // exact
		assert_int_equal(fmath_f32_to_f16(middle), h + (h & 1));
		assert_int_equal(fmath_f32_to_f16(fmath_from_bits(fmath_bits(middle) - 1)), h);
		assert_int_equal(fmath_f32_to_f16(fmath_from_bits(fmath_bits(middle) + 1)), h + 1);
	}
	assert_int_equal(fmath_f32_to_f16(65519.996f), 0x7bff);
	assert_int_equal(fmath_f32_to_f16(-65520.0f), 0xfc00);
}

static void bfloats_round_to_nearest_even(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 65536; h++) {
		float x = fmath_bf16_to_f32((uint16_t)h);
		if (x != x) {
			assert_true((fmath_f32_to_bf16(x) & 0x7fff) > 0x7f80);
			continue;
		}
		assert_int_equal(fmath_f32_to_bf16(x), h);
		if ((h & 0x7fff) >= 0x7f80)
			continue;
		assert_int_equal(fmath_f32_to_bf16(fmath_from_bits(h << 16 | 0x8000)), h + (h & 1));
		assert_int_equal(fmath_f32_to_bf16(fmath_from_bits(h << 16 | 0x7fff)), h);
		assert_int_equal(fmath_f32_to_bf16(fmath_from_bits(h << 16 | 0x8001)), h + 1);
	}
}

int main(void)
{
	kernels_thread_init();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_stay_below_the_measured_bounds),
		cmocka_unit_test(gelu_is_near_its_definition),
		cmocka_unit_test(the_edges_of_exp_are_as_written),
		cmocka_unit_test(sine_and_cosine_of_rope_angles_round_correctly),
		cmocka_unit_test(binary64_exp_and_log_are_within_two_ulp),
		cmocka_unit_test(rounding_to_an_integer_takes_ties_to_even),
		cmocka_unit_test(halves_round_to_nearest_even),
		cmocka_unit_test(bfloats_round_to_nearest_even),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
