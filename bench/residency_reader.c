// What a reader of weights reaches alone on this disk: the units of a model's layers are acquired and released at once, in the order of use,
// for some seconds. Prints one line of JSON. Usage: residency_reader MODEL mmap|direct MIB-FOR-WEIGHTS SECONDS
#include "engine/engine.h"
#include "engine/engine_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int fail(const struct errmsg *em)
{
	fprintf(stderr, "residency_reader: %s\n", em->text);
	return 1;
}

// walk goes once through all units and returns how many bytes of them were streamed.
static uint64_t walk(struct engine *e, struct errmsg *em)
{
	struct residency_stats before, after;
	residency_get_stats(e->residency, &before);
	for (int32_t i = 0; i < e->units.n; i++) {
		if (residency_acquire(e->residency, i, em) != OK)
			exit(fail(em));
		residency_release(e->residency, i);
	}
	residency_get_stats(e->residency, &after);
	return after.read_bytes - before.read_bytes;
}

int main(int argc, char **argv)
{
	struct errmsg em = {{0}};
	struct model *m;
	struct pool *pool;
	struct engine *e;
	if (argc != 5) {
		fprintf(stderr, "usage: residency_reader MODEL mmap|direct MIB-FOR-WEIGHTS SECONDS\n");
		return 2;
	}
	uint64_t bytes = strtoull(argv[3], NULL, 10) << 20;
	double seconds = strtod(argv[4], NULL);
	if (model_open(argv[1], &m, &em) != OK)
		return fail(&em);
	if (pool_open(1, &pool) != OK)
		return 1;
	(void)posix_fadvise(model_files(m)->files[0].fd, 0, 0, POSIX_FADV_DONTNEED);
	const struct engine_config c = {.model = m, .kernels = kernels_find(NULL, NULL), .pool = pool, .layers = layer_spans_one(0, model_hparams(m)->n_layers),
		.n_slots = 1, .ctx_len = 16, .batch_max = 1,
		.weights = {.is_capped = true, .bytes = bytes, .anon_bytes = bytes, .reader = strcmp(argv[2], "direct") == 0 ? READER_DIRECT : READER_MMAP}};
	if (engine_open(&c, &e, &em) != OK)
		return fail(&em);
	uint64_t read = walk(e, &em), n_cycles = 0; // the first cycle begins with a window that is full
	double begin = now_s(), end = begin;
	for (read = 0; end - begin < seconds; n_cycles++, end = now_s())
		read += walk(e, &em);
	struct residency_stats s;
	engine_weight_stats(e, &s);
	printf("{\"bytes_per_s\": %.0f, \"cycles\": %llu, \"streamed_bytes\": %llu, \"pinned_bytes\": %llu, \"window\": %d}\n", (double)read / (end - begin),
		(unsigned long long)n_cycles, (unsigned long long)s.streamed_bytes, (unsigned long long)s.pinned_bytes, s.window);
	engine_close(e);
	pool_close(pool);
	model_close(m);
	return 0;
}
