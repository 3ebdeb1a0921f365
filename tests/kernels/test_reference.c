// What an independent model of the products says (exact rationals in Python), and how the gguf package reads weights: every table
// gives the bits of tests/golden/products_reference.txt. tools/oracle/products_reference.py makes the file and says how inputs are drawn.
#include "kernels/kernels.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GOLDEN_PATH "tests/golden/products_reference.txt"
#define COLS_MAX 2304
#define ROW_BYTES_MAX (COLS_MAX * 4 + 8)
#define BATCH 5 // copies of the input in the batched product: more than go one by one in any table

static const struct kind {
	enum dtype type;
	uint32_t scales[2]; // where a block's f16 scales stand
	uint32_t n_scales;
} kinds[] = {
	{DTYPE_Q8_0, {0}, 1}, {DTYPE_Q4_0, {0}, 1}, {DTYPE_Q4_1, {0, 2}, 2}, {DTYPE_Q5_0, {0}, 1}, {DTYPE_Q5_1, {0, 2}, 2}, {DTYPE_Q3_K, {108}, 1},
	{DTYPE_Q4_K, {0, 2}, 2}, {DTYPE_Q5_K, {0, 2}, 2}, {DTYPE_Q6_K, {208}, 1}, {DTYPE_F32, {0}, 0}, {DTYPE_F16, {0}, 0}, {DTYPE_BF16, {0}, 0},
};

struct line {
	char what[16], type[16], input[16];
	int cols;
	unsigned long long seed, want;
};

struct reference {
	uint8_t row[ROW_BYTES_MAX];
	float x[BATCH * COLS_MAX];
};

static const struct kind *kind_of(const char *name)
{
	size_t i = 0;
	while (strcmp(dtype_find((uint32_t)kinds[i].type)->name, name) != 0)
		assert_true(++i < ARRAY_LEN(kinds));
	return &kinds[i];
}

static void set_exponent(uint8_t *p, uint32_t n_bytes, uint32_t keep, uint32_t exponent)
{
	uint32_t v = 0;
	memcpy(&v, p, n_bytes);
	v = (v & keep) | exponent;
	memcpy(p, &v, n_bytes);
}

static void draw_row(const struct kind *k, struct rng *r, size_t row_bytes, bool greatest, uint8_t *row)
{
	const struct dtype_info *info = dtype_find((uint32_t)k->type);
	for (size_t i = 0; i < row_bytes; i += 8) {
		uint64_t u = rng_u64(r);
		memcpy(row + i, &u, 8);
	}
	for (uint8_t *p = row; p < row + row_bytes; p += info->block_bytes) {
		switch (k->type) {
		case DTYPE_F32: set_exponent(p, 4, 0x80ffffff, 0x3f000000); continue;
		case DTYPE_F16: set_exponent(p, 2, 0x83ff, 0x3800); continue;
		case DTYPE_BF16: set_exponent(p, 2, 0x80ff, 0x3f00); continue;
		default: break;
		}
		uint8_t scales[2][2];
		for (uint32_t s = 0; s < k->n_scales; s++) {
			set_exponent(p + k->scales[s], 2, 0x83ff, 0x2000);
			memcpy(scales[s], p + k->scales[s], 2);
		}
		if (greatest)
			memset(p, 0xff, info->block_bytes);
		for (uint32_t s = 0; s < k->n_scales; s++)
			memcpy(p + k->scales[s], scales[s], 2);
	}
}

static void draw_input(const char *name, struct rng *r, int n, float *x)
{
	for (int i = 0; i < n; i++) {
		uint64_t u = rng_u64(r);
		x[i] = (float)((int32_t)((u & 0xffff) ^ 0x8000) - 0x8000) / 4096.0f * ((u >> 16 & 31) == 0 ? 64.0f : 1.0f);
		if (strcmp(name, "tiny") == 0)
			x[i] *= 0x1p-63f;
		if (strcmp(name, "greatest") == 0)
			x[i] = 3.0f;
	}
}

static uint32_t bits_of(float x)
{
	uint32_t u;
	memcpy(&u, &x, 4);
	return u;
}

// draw_weight draws the row of a line; r stands where the input's draws begin.
static struct weight draw_weight(const struct line *l, struct rng *r, struct reference *ref)
{
	const struct kind *kind = kind_of(l->type);
	struct weight w = {.data = ref->row, .type = kind->type, .rows = 1, .cols = l->cols};
	assert_true(dtype_row_bytes(w.type, (uint64_t)l->cols, &w.row_bytes));
	rng_init(r, l->seed);
	draw_row(kind, r, w.row_bytes, strcmp(l->input, "greatest") == 0, ref->row);
	return w;
}

// check_product asks every table, for the input alone and for a batch of it.
static void check_product(const struct line *l, struct reference *ref)
{
	struct rng r;
	struct weight w = draw_weight(l, &r, ref);
	draw_input(l->input, &r, l->cols, ref->x);
	for (int t = 1; t < BATCH; t++)
		memcpy(ref->x + t * l->cols, ref->x, (size_t)l->cols * sizeof(float));
	void *storage = malloc(acts_bytes(kernels_act_kind(w.type), BATCH, l->cols) + 1);
	assert_non_null(storage);
	for (size_t i = 0; kernels_known(i) != NULL; i++) {
		const struct kernels *k = kernels_find(kernels_known(i), NULL);
		for (int32_t n = 1; k != NULL && n <= BATCH; n++) {
			struct acts a;
			float y[BATCH];
			acts_init(&a, kernels_act_kind(w.type), BATCH, l->cols, storage);
			acts_set(&a, ref->x, n);
			acts_quantise(k, &a, 0, n);
			kernels_matmul(k, &w, &a, 0, 1, y, 1);
			for (int t = 0; t < n; t++) {
				if (bits_of(y[t]) != l->want)
					fail_msg("%s: %s, %d columns, %s input, %d at once: %08x, want %08x", kernels_known(i), l->type, l->cols, l->input, n,
						bits_of(y[t]), (unsigned)l->want);
			}
		}
	}
	free(storage);
}

static void check_values(const struct line *l, struct reference *ref)
{
	struct rng r;
	struct weight w = draw_weight(l, &r, ref);
	kernels_row_to_f32(&w, 0, ref->x);
	uint64_t h = 0xcbf29ce484222325;
	for (size_t i = 0; i < (size_t)l->cols * 4; i++)
		h = (h ^ ((const uint8_t *)ref->x)[i]) * 0x100000001b3;
	if (h != l->want)
		fail_msg("%s: values %016llx, want %016llx", l->type, (unsigned long long)h, l->want);
}

// for_each_line calls check for the lines that begin with `what`, and returns how many there were.
static int for_each_line(const char *what, void (*check)(const struct line *, struct reference *))
{
	FILE *f = fopen(GOLDEN_PATH, "r");
	if (f == NULL)
		fail_msg("%s cannot be read: run from the top of the tree", GOLDEN_PATH);
	struct reference *ref = malloc(sizeof *ref);
	assert_non_null(ref);
	char text[128];
	int n = 0;
	while (fgets(text, sizeof text, f) != NULL) {
		struct line l = {.input = ""};
		if (sscanf(text, "product %15s %d %llu %15s %llx", l.type, &l.cols, &l.seed, l.input, &l.want) == 5)
			strcpy(l.what, "product");
		else if (sscanf(text, "values %15s %d %llu %llx", l.type, &l.cols, &l.seed, &l.want) == 4)
			strcpy(l.what, "values");
		else
			fail_msg("%s: what is \"%s\"", GOLDEN_PATH, text);
		assert_in_range(l.cols, 1, COLS_MAX);
		if (strcmp(l.what, what) != 0)
			continue;
		check(&l, ref);
		n++;
	}
	free(ref);
	fclose(f);
	return n;
}

static void products_have_the_bits_of_exact_rationals(void **state)
{
	(void)state;
	assert_int_equal(for_each_line("product", check_product), 5 * ARRAY_LEN(kinds) - 3);
}

static void rows_read_as_the_gguf_package_reads_them(void **state)
{
	(void)state;
	assert_int_equal(for_each_line("values", check_values), ARRAY_LEN(kinds));
}

int main(void)
{
	kernels_thread_init();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_have_the_bits_of_exact_rationals),
		cmocka_unit_test(rows_read_as_the_gguf_package_reads_them),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
