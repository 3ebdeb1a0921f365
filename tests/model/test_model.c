#include "model/model.h"

#include "base/bytes.h"
#include "base/printable.h"
#include "tests/support/gguf_build.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SMOLLM2 "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define SMOLLM2_GOLDEN "tests/golden/gguf_smollm2.txt"

struct folder {
	char path[64], file[96], other[96];
};

static int open_folder(void **state)
{
	struct folder *d = calloc(1, sizeof *d);
	assert_non_null(d);
	strcpy(d->path, "/tmp/hearth-model-XXXXXX");
	assert_non_null(mkdtemp(d->path));
	snprintf(d->file, sizeof d->file, "%s/some model.gguf", d->path);
	snprintf(d->other, sizeof d->other, "%s/other", d->path);
	*state = d;
	return 0;
}

static int close_folder(void **state)
{
	struct folder *d = *state;
	unlink(d->file);
	unlink(d->other);
	assert_int_equal(rmdir(d->path), 0);
	free(d);
	return 0;
}

static void save(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static void open_fails(const char *path, enum err want, const char *word)
{
	struct model *m;
	struct errmsg em = {""};
	enum err e = model_open(path, &m, &em);
	assert_null(m);
	if (e != want || strstr(em.text, word) == NULL || strncmp(em.text, path, strlen(path)) != 0)
		fail_msg("error %d \"%s\", wanted %d with \"%s\"", (int)e, em.text, (int)want, word);
}

// record returns the bytes behind a tensor's name: n_dims (u32), dims (u64 each), type (u32), offset (u64).
static uint8_t *record(struct gguf_build *b, const char *name)
{
	size_t len = strlen(name);
	for (size_t i = 0; i + len < b->data_at; i++)
		if (memcmp(b->data + i, name, len) == 0 && load_u64(b->data + i - 8) == len)
			return b->data + i + len;
	fail_msg("no tensor %s", name);
	return NULL;
}

static void rename_tensor(struct gguf_build *b, const char *from, const char *to)
{
	assert_int_equal(strlen(from), strlen(to));
	memcpy(record(b, from) - strlen(from), to, strlen(to));
}

static void a_tiny_model_gives_views_of_its_tensors(void **state)
{
	struct folder *d = *state;
	struct tiny_llama t = tiny_llama_default(1);
	gguf_build_tiny_llama_file(d->file, &t);
	struct model *m;
	struct errmsg em;
	assert_int_equal(model_open(d->file, &m, &em), OK);
	assert_string_equal(model_name(m), "tiny llama");
	assert_string_equal(model_path(m), d->file);
	const struct hparams *hp = model_hparams(m);
	assert_int_equal(hp->n_layers, 4);
	assert_true(hp->tied_embeddings);
	struct layer_weights w;
	for (int32_t layer = 0; layer < hp->n_layers; layer++) {
		model_layer(m, layer, &w);
		const struct {
			const struct tensor_view *v;
			int32_t rows, cols;
			enum dtype type;
		} want[] = {
			{&w.attn_norm, 1, 64, DTYPE_F32}, {&w.q, 64, 64, DTYPE_Q4_1}, {&w.k, 32, 64, DTYPE_Q4_1}, {&w.v, 32, 64, DTYPE_Q4_1},
			{&w.o, 64, 64, DTYPE_Q4_1}, {&w.ffn_norm, 1, 64, DTYPE_F32}, {&w.gate, 160, 64, DTYPE_Q4_1}, {&w.up, 160, 64, DTYPE_Q4_1},
			{&w.down, 64, 160, DTYPE_Q4_1},
		};
		for (size_t i = 0; i < ARRAY_LEN(want); i++) {
			assert_non_null(want[i].v->data);
			assert_int_equal(want[i].v->rows, want[i].rows);
			assert_int_equal(want[i].v->cols, want[i].cols);
			assert_int_equal(want[i].v->type, want[i].type);
			assert_int_equal(want[i].v->row_bytes, want[i].type == DTYPE_F32 ? want[i].cols * 4 : want[i].cols / 32 * 20);
		}
		assert_null(w.q_bias.data);
		char name[32];
		snprintf(name, sizeof name, "blk.%" PRId32 ".ffn_down.weight", layer);
		assert_ptr_equal(w.down.data, gguf_find_tensor(model_gguf(m), name)->data);
	}
	struct tensor_view embd = model_token_embd(m), out = model_output(m);
	assert_int_equal(embd.rows, 320);
	assert_int_equal(embd.cols, 64);
	assert_int_equal(embd.type, DTYPE_Q8_0);
	assert_ptr_equal(embd.data, out.data);
	assert_int_equal(model_output_norm(m).cols, 64);
	model_close(m);
	model_close(NULL);
}

static void biases_and_an_own_output_are_found(void **state)
{
	struct folder *d = *state;
	struct tiny_llama t = tiny_llama_default(2);
	t.untied = true;
	t.biases = true;
	t.types[1] = DTYPE_Q8_0;
	t.n_types = 2;
	gguf_build_tiny_llama_file(d->file, &t);
	struct model *m;
	struct errmsg em;
	assert_int_equal(model_open(d->file, &m, &em), OK);
	assert_false(model_hparams(m)->tied_embeddings);
	assert_ptr_not_equal(model_output(m).data, model_token_embd(m).data);
	assert_int_equal(model_output(m).rows, 320);
	struct layer_weights w;
	model_layer(m, 3, &w);
	assert_non_null(w.q_bias.data);
	assert_int_equal(w.q_bias.cols, 64);
	assert_int_equal(w.k_bias.cols, 32);
	assert_int_equal(w.v_bias.cols, 32);
	assert_int_equal(w.q.type, DTYPE_Q8_0); // matrix 21
	assert_int_equal(w.k.type, DTYPE_Q4_1);
	model_close(m);
}

static void a_model_without_a_name_is_called_after_its_file(void **state)
{
	struct folder *d = *state;
	struct tiny_llama t = tiny_llama_default(1);
	struct gguf_build b;
	gguf_build_tiny_llama(&b, &t);
	uint8_t *key = memmem(b.data, b.data_at, "general.name", 12);
	assert_non_null(key);
	memcpy(key, "general.n4me", 12);
	save(d->file, b.data, b.len);
	struct model *m;
	struct errmsg em;
	assert_int_equal(model_open(d->file, &m, &em), OK);
	assert_string_equal(model_name(m), "some model");
	model_close(m);
	memcpy(key, "general.name", 12);
	memcpy(key + 24, "tin\033[2J\xff\x80y", 10);
	save(d->file, b.data, b.len);
	assert_int_equal(model_open(d->file, &m, &em), OK);
	assert_string_equal(model_name(m), "tin?[2J??y");
	model_close(m);
	gguf_build_free(&b);
}

static void what_is_no_model_file_is_an_error(void **state)
{
	struct folder *d = *state;
	open_fails(d->file, ERR_NOT_FOUND, "cannot open: No such file");
	open_fails(d->path, ERR_FORMAT, "is a folder, wanted a regular file");
	save(d->file, "", 0);
	open_fails(d->file, ERR_FORMAT, "is empty");
	save(d->file, "PK\3\4 something else", 19);
	open_fails(d->file, ERR_FORMAT, "magic is 50 4b 03 04");
	assert_int_equal(mkfifo(d->other, 0600), 0);
	open_fails(d->other, ERR_FORMAT, "is a special file"); // and nobody waits for a writer
	struct tiny_llama t = tiny_llama_default(1);
	struct gguf_build b;
	gguf_build_tiny_llama(&b, &t);
	save(d->file, b.data, b.len - 300);
	open_fails(d->file, ERR_FORMAT, "the file is cut short or wrong");
	gguf_build_free(&b);
}

struct change {
	const char *tensor;
	const char *renamed; // NULL: keep
	int32_t type;        // -1: keep
	int32_t dim0, dim1;  // 0: keep
	enum err want;
	const char *word;
};

static void every_tensor_is_there_and_has_its_shape(void **state)
{
	struct folder *d = *state;
	static const struct change changes[] = {
		{"blk.1.attn_k.weight", "blk.1.attn_x.weight", -1, 0, 0, ERR_NOT_FOUND, "tensor blk.1.attn_k.weight is missing, wanted 64 x 32"},
		{"blk.1.attn_k.weight", NULL, -1, 32, 64, ERR_FORMAT, "tensor blk.1.attn_k.weight is 32 x 64, wanted 64 x 32"},
		{"blk.3.ffn_down.weight", NULL, -1, 0, 63, ERR_FORMAT, "tensor blk.3.ffn_down.weight is 160 x 63, wanted 160 x 64"},
		{"token_embd.weight", NULL, -1, 0, 319, ERR_FORMAT, "tensor token_embd.weight is 64 x 319, wanted 64 x 320"},
		{"token_embd.weight", "token_emb?.weight", -1, 0, 0, ERR_NOT_FOUND, "tensor token_embd.weight is missing, wanted 64 x 320"},
		{"output_norm.weight", NULL, DTYPE_F16, 0, 0, ERR_UNSUPPORTED, "tensor output_norm.weight has type f16, wanted f32"},
		{"blk.0.attn_norm.weight", NULL, DTYPE_BF16, 0, 0, ERR_UNSUPPORTED, "tensor blk.0.attn_norm.weight has type bf16, wanted f32"},
		{"blk.2.attn_norm.weight", NULL, -1, 32, 0, ERR_FORMAT, "tensor blk.2.attn_norm.weight is 32, wanted 64 x 1"},
		{"blk.0.attn_q.bias", "blk.9.attn_q.bias", -1, 0, 0, ERR_UNSUPPORTED,
			"tensor \"blk.9.attn_q.bias\" is none of architecture llama with 4 layers"},
		{"blk.0.attn_q.bias", "blk.00.attn_q.bia", -1, 0, 0, ERR_UNSUPPORTED, "tensor \"blk.00.attn_q.bia\" is none of"},
		{"blk.0.attn_q.bias", "blk.-1.attn_q.bia", -1, 0, 0, ERR_UNSUPPORTED, "is none of"},
		{"blk.0.attn_q.bias", "blk.0.attn_o.bias", -1, 0, 0, ERR_UNSUPPORTED, "tensor \"blk.0.attn_o.bias\" is none of"},
		{"blk.0.attn_q.bias", "blk.0.\033ttn_q.bias", -1, 0, 0, ERR_UNSUPPORTED, "tensor \"blk.0.?ttn_q.bias\" is none of"},
		{"blk.0.attn_q.bias", NULL, -1, 63, 0, ERR_FORMAT, "tensor blk.0.attn_q.bias is 63, wanted 64 x 1"},
		{"blk.0.attn_q.bias", NULL, -1, 0, 0, OK, ""},
	};
	struct tiny_llama t = tiny_llama_default(1);
	t.biases = true;
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		const struct change *c = &changes[i];
		struct gguf_build b;
		gguf_build_tiny_llama(&b, &t);
		uint8_t *r = record(&b, c->tensor);
		uint32_t n_dims = load_u32(r);
		if (c->dim0 != 0)
			store_u64(r + 4, (uint64_t)c->dim0);
		if (c->dim1 != 0)
			store_u64(r + 12, (uint64_t)c->dim1);
		if (c->type >= 0)
			store_u32(r + 4 + 8 * n_dims, (uint32_t)c->type);
		if (c->renamed != NULL)
			rename_tensor(&b, c->tensor, c->renamed);
		save(d->file, b.data, b.len);
		gguf_build_free(&b);
		if (c->want != OK) {
			open_fails(d->file, c->want, c->word);
			continue;
		}
		struct model *m;
		struct errmsg em;
		assert_int_equal(model_open(d->file, &m, &em), OK);
		model_close(m);
	}
}

static void a_part_of_a_split_model_is_refused(void **state)
{
	struct folder *d = *state;
	for (uint32_t n = 0; n <= 2; n++) {
		struct gguf_build b;
		gguf_build_begin(&b, 3);
		gguf_build_kv_u32(&b, "split.count", n);
		gguf_build_begin_data(&b);
		gguf_build_finish(&b);
		save(d->file, b.data, b.len);
		gguf_build_free(&b);
		if (n < 2)
			open_fails(d->file, ERR_NOT_FOUND, "general.architecture is missing");
		else
			open_fails(d->file, ERR_UNSUPPORTED, "one part of a model split into 2 files (split.count)");
	}
}

static void a_file_that_changes_while_open_is_noticed(void **state)
{
	struct folder *d = *state;
	struct tiny_llama t = tiny_llama_default(1);
	gguf_build_tiny_llama_file(d->file, &t);
	struct model *m;
	struct errmsg em;
	assert_int_equal(model_open(d->file, &m, &em), OK);
	assert_int_equal(model_check_unchanged(m, &em), OK);

	// Replaced by rename: the mapping keeps the old file.
	save(d->other, "new", 3);
	assert_int_equal(rename(d->other, d->file), 0);
	assert_int_equal(model_check_unchanged(m, &em), OK);
	volatile uint8_t last = ((const uint8_t *)model_token_embd(m).data)[0];
	(void)last;
	model_close(m);

	gguf_build_tiny_llama_file(d->file, &t);
	assert_int_equal(model_open(d->file, &m, &em), OK);
	uint64_t bytes = model_file_bytes(m);
	assert_int_equal(truncate(d->file, (off_t)bytes - 4096), 0);
	assert_int_equal(model_check_unchanged(m, &em), ERR_STATE);
	assert_non_null(strstr(em.text, "bytes, had "));
	assert_int_equal(truncate(d->file, (off_t)bytes), 0); // as long as before, but written to
	assert_int_equal(model_check_unchanged(m, &em), ERR_STATE);
	assert_non_null(strstr(em.text, "was written to"));
	model_close(m);
}

static void python_writes_the_same_tiny_model(void **state)
{
	struct folder *d = *state;
	if (system("python3 -c '' 2>/dev/null") != 0) {
		print_message("skipped: no python3\n");
		skip();
	}
	const struct tiny_llama shapes[] = {
		tiny_llama_default(1),
		{.seed = 7, .n_layers = 3, .hidden_dim = 96, .ffn_dim = 160, .n_heads = 4, .n_kv_heads = 2, .vocab_size = 333, .ctx_len = 64,
			.types = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q8_0, DTYPE_Q4_1}, .n_types = 6, .embd_type = DTYPE_F16,
			.untied = true, .biases = true},
	};
	static const char *const arguments[] = {"", "--seed 7 --layers 3 --hidden 96 --vocab 333 --ctx 64 "
						    "--types f32,f16,bf16,q4_0,q8_0,q4_1 --embd-type f16 --untied --biases"};
	for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
		char command[512];
		snprintf(command, sizeof command, "python3 tools/make_tiny_model.py %s %s", arguments[i], d->other);
		assert_int_equal(system(command), 0);
		struct gguf_build b;
		gguf_build_tiny_llama(&b, &shapes[i]);
		FILE *f = fopen(d->other, "rb");
		assert_non_null(f);
		uint8_t *theirs = malloc(b.len + 1);
		assert_non_null(theirs);
		assert_int_equal(fread(theirs, 1, b.len + 1, f), b.len);
		fclose(f);
		assert_memory_equal(theirs, b.data, b.len);
		free(theirs);
		gguf_build_free(&b);
	}
}

// line_of_kv and line_of_tensor write what tools/oracle/gguf_reference.py writes.
static void line_of_kv(const struct gguf_kv *kv, char *out, size_t cap)
{
	unsigned char hash[16];
	char hex[33];
	size_t skipped = kv->type == GGUF_STRING ? 8 : 0; // a single string goes without its length
	crypto_generichash(hash, sizeof hash, kv->data + skipped, kv->data_bytes - skipped, NULL, 0);
	sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
	snprintf(out, cap, "key %.*s %d %d %" PRIu64 " %s\n", (int)kv->key.len, kv->key.data, (int)kv->type, (int)kv->elem_type, kv->n_elems, hex);
}

static void line_of_tensor(const struct gguf_tensor *t, char *out, size_t cap)
{
	int n = snprintf(out, cap, "tensor %.*s %s %zu %" PRIu64, (int)t->name.len, t->name.data, dtype_find(t->type)->name, t->bytes, t->offset);
	for (uint32_t i = 0; i < t->n_dims; i++)
		n += snprintf(out + n, cap - (size_t)n, " %" PRIu64, t->dims[i]);
	snprintf(out + n, cap - (size_t)n, "\n");
}

static struct model *open_smollm2(void)
{
	struct model *m;
	struct errmsg em;
	if (access(SMOLLM2, R_OK) != 0) {
		print_message("skipped: no %s (make model)\n", SMOLLM2);
		skip();
	}
	enum err e = model_open(SMOLLM2, &m, &em);
	if (e != OK)
		fail_msg("%s", em.text);
	return m;
}

static void smollm2_reads_as_the_reference_reads_it(void **state)
{
	(void)state;
	struct model *m = open_smollm2();
	const struct gguf *g = model_gguf(m);
	FILE *f = fopen(SMOLLM2_GOLDEN, "r");
	assert_non_null(f);
	char want[512], got[512];
	assert_non_null(fgets(want, sizeof want, f));
	snprintf(got, sizeof got, "gguf %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", g->version, g->alignment, g->n_kv, g->n_tensors,
		g->data_offset);
	assert_string_equal(got, want);
	for (uint64_t i = 0; i < g->n_kv; i++) {
		assert_non_null(fgets(want, sizeof want, f));
		line_of_kv(&g->kvs[i], got, sizeof got);
		assert_string_equal(got, want);
	}
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		assert_non_null(fgets(want, sizeof want, f));
		line_of_tensor(&g->tensors[i], got, sizeof got);
		assert_string_equal(got, want);
	}
	assert_null(fgets(want, sizeof want, f));
	fclose(f);
	model_close(m);
}

static void smollm2_has_its_published_shape(void **state)
{
	(void)state;
	struct model *m = open_smollm2();
	const struct hparams *hp = model_hparams(m);
	assert_int_equal(model_gguf(m)->n_tensors, 272);
	assert_int_equal(hp->n_layers, 30);
	assert_int_equal(hp->hidden_dim, 576);
	assert_int_equal(hp->ffn_dim, 1536);
	assert_int_equal(hp->n_heads, 9);
	assert_int_equal(hp->n_kv_heads, 3);
	assert_int_equal(hp->head_dim, 64);
	assert_int_equal(hp->rope_dim, 64);
	assert_int_equal(hp->vocab_size, 49152);
	assert_int_equal(hp->ctx_len_train, 8192);
	assert_true(hp->norm_eps == 1e-5f);
	assert_true(hp->rope_theta == 100000.0);
	assert_true(hp->tied_embeddings);
	model_close(m);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_folder, close_folder)
	const struct CMUnitTest tests[] = {
		CASE(a_tiny_model_gives_views_of_its_tensors),
		CASE(biases_and_an_own_output_are_found),
		CASE(a_model_without_a_name_is_called_after_its_file),
		CASE(what_is_no_model_file_is_an_error),
		CASE(every_tensor_is_there_and_has_its_shape),
		CASE(a_part_of_a_split_model_is_refused),
		CASE(a_file_that_changes_while_open_is_noticed),
		CASE(python_writes_the_same_tiny_model),
		cmocka_unit_test(smollm2_reads_as_the_reference_reads_it),
		cmocka_unit_test(smollm2_has_its_published_shape),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
