// The reference: llama.cpp's own library asked for token ids, logits and speed. Built by oracle_setup.sh against the headers of the very
// release the library was built from; never linked with Hearth. The first argument is the CPU back end: "haswell" (AVX2, FMA, F16C), any
// other name of a libggml-cpu-NAME.so, or "best", which lets the library pick.
//
//   llama_oracle CPU info                        version and instruction sets
//   llama_oracle CPU tokenize MODEL plain|special   one line of ids for each record of standard input
//   llama_oracle CPU logits MODEL N default|f16|f32      for each record: prompt ids, N greedy ids, and the 8 largest logits at each of the N positions
//   llama_oracle CPU every MODEL default|f16|f32      for each record: its ids, and all logits at each of its positions, fed one by one
//   llama_oracle CPU bench MODEL PROMPT GEN PREFILL [THREADS]   tokens per second: GEN tokens after PROMPT, and a prompt of PREFILL. Without THREADS by one
//                                                  thread; with it weights stay in the mapped file and the context is short, for measurements in
//                                                  little memory
//   llama_oracle CPU dequantise MODEL OUT     the same weights in f32: with them nothing but f32 rounding is left
//
// A record is a little-endian u32 with the flag "parse special texts" in bit 31 and the length in the others, then the bytes.
// default is what llama.cpp does unasked: KV cache in f16, fused attention, which on a CPU also sums values in f16. f16 and f32 take its
// unfused attention, which sums in f32, with the cache in that type. Their differences are llama.cpp's own rounding noise.
#include "ggml-backend.h"
#include "llama.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_TOP 8
#define TEXT_MAX (1 << 24)
#define CTX 2048
#define CTX_SHORT 256

static void quiet(enum ggml_log_level level, const char *text, void *data)
{
	(void)data;
	if (level == GGML_LOG_LEVEL_ERROR)
		fputs(text, stderr);
}

static void die(const char *what)
{
	fprintf(stderr, "llama_oracle: %s\n", what);
	exit(1);
}

static struct llama_model *load(const char *path, bool vocab_only, bool mapped_only)
{
	struct llama_model_params p = llama_model_default_params();
	p.vocab_only = vocab_only;
	if (mapped_only)
		p.use_extra_bufts = false;
	struct llama_model *m = llama_model_load_from_file(path, p);
	if (!m)
		die("cannot load the model");
	return m;
}

static struct llama_context *open_context(struct llama_model *m, const char *cache, int32_t n_threads, uint32_t ctx)
{
	struct llama_context_params p = llama_context_default_params();
	p.n_ctx = ctx;
	p.n_batch = ctx;
	p.n_threads = p.n_threads_batch = n_threads;
	if (strcmp(cache, "default") != 0)
		p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
	if (strcmp(cache, "f32") == 0)
		p.type_k = p.type_v = GGML_TYPE_F32;
	struct llama_context *c = llama_init_from_model(m, p);
	if (!c)
		die("cannot make a context");
	return c;
}

// next_record reads one record into `text`; false at the end of the input.
static bool next_record(char *text, size_t *len, bool *special)
{
	uint8_t head[4];
	if (fread(head, 1, 4, stdin) != 4)
		return false;
	uint32_t v = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
	*special = v >> 31;
	*len = v & 0x7fffffff;
	if (*len > TEXT_MAX || fread(text, 1, *len, stdin) != *len)
		die("bad record");
	return true;
}

static int32_t tokenize(const struct llama_model *m, const char *text, size_t len, bool special, llama_token *ids, int32_t cap)
{
	int32_t n = llama_tokenize(llama_model_get_vocab(m), text, (int32_t)len, ids, cap, true, special);
	if (n < 0)
		die("a text has too many tokens");
	return n;
}

static void print_ids(const llama_token *ids, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		printf("%s%d", i > 0 ? ", " : "", ids[i]);
}

static void run_tokenize(const char *path, bool special)
{
	struct llama_model *m = load(path, true, false);
	char *text = malloc(TEXT_MAX);
	llama_token *ids = malloc(sizeof *ids * TEXT_MAX);
	size_t len;
	bool flag;
	while (next_record(text, &len, &flag)) {
		print_ids(ids, tokenize(m, text, len, special || flag, ids, TEXT_MAX));
		putchar('\n');
	}
	free(ids);
	free(text);
	llama_model_free(m);
}

// top finds the N_TOP largest logits, by value, then by id.
static void top(const float *logits, int32_t n, int32_t best[N_TOP])
{
	int32_t n_best = 0;
	for (int32_t id = 0; id < n; id++) {
		int32_t at = n_best;
		while (at > 0 && logits[id] > logits[best[at - 1]])
			at--;
		if (at == N_TOP)
			continue;
		if (n_best < N_TOP)
			n_best++;
		memmove(best + at + 1, best + at, sizeof *best * (size_t)(n_best - 1 - at));
		best[at] = id;
	}
}

static void feed(struct llama_context *c, llama_token *ids, int32_t n)
{
	if (llama_decode(c, llama_batch_get_one(ids, n)) != 0)
		die("decode failed");
}

static void run_logits(const char *path, int32_t n_gen, const char *cache)
{
	struct llama_model *m = load(path, false, false);
	struct llama_context *c = open_context(m, cache, 1, CTX);
	int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m)), best[N_TOP];
	char *text = malloc(TEXT_MAX);
	llama_token ids[CTX], out[CTX];
	size_t len;
	bool special;
	while (next_record(text, &len, &special)) {
		int32_t n = tokenize(m, text, len, special, ids, CTX - n_gen);
		printf("{\"prompt_ids\": [");
		print_ids(ids, n);
		printf("], \"top\": [");
		llama_memory_clear(llama_get_memory(c), true);
		feed(c, ids, n);
		for (int32_t i = 0; i < n_gen; i++) {
			const float *logits = llama_get_logits_ith(c, -1);
			top(logits, n_vocab, best);
			printf("%s[[", i > 0 ? ", " : "");
			print_ids(best, N_TOP);
			printf("], [");
			for (int j = 0; j < N_TOP; j++)
				printf("%s%.9g", j > 0 ? ", " : "", (double)logits[best[j]]);
			printf("]]");
			out[i] = best[0];
			if (i + 1 < n_gen)
				feed(c, &out[i], 1);
		}
		printf("], \"output_ids\": [");
		print_ids(out, n_gen);
		printf("]}\n");
	}
	free(text);
	llama_free(c);
	llama_model_free(m);
}

static void run_every(const char *path, const char *cache)
{
	struct llama_model *m = load(path, false, false);
	struct llama_context *c = open_context(m, cache, 1, CTX);
	int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m));
	char *text = malloc(TEXT_MAX);
	llama_token ids[CTX];
	size_t len;
	bool special;
	while (next_record(text, &len, &special)) {
		int32_t n = tokenize(m, text, len, special, ids, CTX);
		printf("{\"ids\": [");
		print_ids(ids, n);
		printf("], \"logits\": [");
		llama_memory_clear(llama_get_memory(c), true);
		for (int32_t i = 0; i < n; i++) {
			feed(c, &ids[i], 1);
			const float *logits = llama_get_logits_ith(c, -1);
			for (int32_t j = 0; j < n_vocab; j++)
				printf("%s%.9g", j > 0 ? ", " : i > 0 ? "], [" : "[", (double)logits[j]);
		}
		printf("]]}\n");
	}
	free(text);
	llama_free(c);
	llama_model_free(m);
}

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_bench(const char *path, int32_t n_prompt, int32_t n_gen, int32_t n_prefill, int32_t n_threads)
{
	struct llama_model *m = load(path, false, n_threads > 0);
	int32_t ctx = n_threads > 0 ? CTX_SHORT : CTX;
	struct llama_context *c = open_context(m, "default", n_threads > 0 ? n_threads : 1, (uint32_t)ctx);
	int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m)), best[N_TOP];
	llama_token ids[CTX];
	if (n_prompt + n_gen > ctx || n_prefill > ctx || n_prompt < 1 || n_gen < 1 || n_prefill < 1)
		die("too many tokens");
	for (int32_t i = 0; i < CTX; i++)
		ids[i] = 17 + i * 31 % 20000;
	feed(c, ids, n_prompt); // also reads the weights in
	double start = now_s();
	for (int32_t i = 0; i < n_gen; i++) {
		top(llama_get_logits_ith(c, -1), n_vocab, best);
		feed(c, &best[0], 1);
	}
	llama_get_logits_ith(c, -1);
	double decode_s = now_s() - start;
	llama_memory_clear(llama_get_memory(c), true);
	start = now_s();
	feed(c, ids, n_prefill);
	llama_get_logits_ith(c, -1);
	double prefill_s = now_s() - start;
	printf("{\"decode_tps\": %.4f, \"prefill_tps\": %.4f, \"system_info\": \"%s\"}\n", n_gen / decode_s, n_prefill / prefill_s,
		llama_print_system_info());
	llama_free(c);
	llama_model_free(m);
}

static void dequantise(const char *path, const char *out)
{
	struct llama_model_quantize_params p = llama_model_quantize_default_params();
	p.ftype = LLAMA_FTYPE_ALL_F32;
	p.allow_requantize = true;
	p.nthread = 1;
	if (llama_model_quantize(path, out, &p) != 0)
		die("cannot dequantise");
}

static void load_cpu(const char *name)
{
	char path[4096];
	if (strcmp(name, "best") == 0) {
		ggml_backend_load_all_from_path(ORACLE_LIB_DIR);
		return;
	}
	snprintf(path, sizeof path, "%s/libggml-cpu-%s.so", ORACLE_LIB_DIR, name);
	if (!ggml_backend_load(path))
		die("no such CPU back end");
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[2] : "";
	llama_log_set(quiet, NULL);
	load_cpu(argc > 1 ? argv[1] : "best");
	llama_backend_init();
	if (argc == 3 && strcmp(what, "info") == 0)
		printf("{\"llama_version\": \"%s\", \"system_info\": \"%s\"}\n", llama_version(), llama_print_system_info());
	else if (argc == 5 && strcmp(what, "tokenize") == 0)
		run_tokenize(argv[3], strcmp(argv[4], "special") == 0);
	else if (argc == 6 && strcmp(what, "logits") == 0)
		run_logits(argv[3], atoi(argv[4]), argv[5]);
	else if (argc == 5 && strcmp(what, "every") == 0)
		run_every(argv[3], argv[4]);
	else if (argc == 5 && strcmp(what, "dequantise") == 0)
		dequantise(argv[3], argv[4]);
	else if ((argc == 7 || argc == 8) && strcmp(what, "bench") == 0)
		run_bench(argv[3], atoi(argv[4]), atoi(argv[5]), atoi(argv[6]), argc == 8 ? atoi(argv[7]) : 0);
	else
		die("wrong arguments; the source's first lines list them");
	return 0;
}
