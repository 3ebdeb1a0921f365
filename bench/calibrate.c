// How long the parts of a ring compute, in one process with one worker: the head (embedding, norm, lm_head, sampling) and each range of
// layers, for one token at a time, as coordinator and nodes do it (engine/stage_work on engine/worker). What bench/predicted_bench.py
// calibrates its scenarios with.
//
//     calibrate MODEL PAUSE_US[,PAUSE_US...] LAYERS[,LAYERS...]
//
// LAYERS are the counts of each range in order, PAUSE_US how long this process rests before each range and before the head, as a machine does that
// waits for a link: a processor that rested is slower for a while. Each line of standard input is a number of tokens to compute, greedily from a prompt
// of one token. The answer is a line of JSON: for each range and for the head the microseconds of each token, and in `hand_over` what handing work to the
// worker and waiting for its answer took beyond that, of all parts together. So a caller can alternate with something else and throw the first ones away.
#include "engine/stage_work.h"
#include "engine/worker.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANGES_MAX 16
#define PARTS_MAX (RANGES_MAX + 1) // the head is the last
#define TOKENS_MAX 1024
#define LINE_CAP 64
#define FIRST_TOKEN 1

struct bench {
	struct model *model;
	struct worker *worker;
	struct stage_work *parts[PARTS_MAX];
	int32_t layers[RANGES_MAX + 1]; // begin of each range, and the end of the last
	int64_t pause_ns[PARTS_MAX];
	int32_t n_ranges;
	double us[PARTS_MAX][TOKENS_MAX]; // of computing
	double hand_us[TOKENS_MAX];
	uint8_t *wire; // one hidden state
	int32_t token;
};

// One part's turn, on the worker's thread.
struct turn {
	struct worker_job job;
	struct bench *b;
	int32_t part, pos;
	int64_t begin_ns, end_ns;
	enum err err;
	struct errmsg em;
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	bool is_done;
};

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void rest(int64_t ns)
{
	const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	if (ns > 0)
		nanosleep(&t, NULL);
}

// die ends with what went wrong; a benchmark has nothing to save.
static void die(const char *what)
{
	fprintf(stderr, "calibrate: %s\n", what);
	exit(1);
}

static void embed(struct turn *t)
{
	struct embed_item it = {.tokens = &t->b->token, .n_tokens = 1, .pos = t->pos, .wire = t->b->wire};
	stage_work_embed(t->b->parts[t->b->n_ranges], &it, 1);
	t->err = it.err;
	t->em = it.em;
}

// run_head draws the next token and embeds it: what the coordinator does between two trips round the ring.
static void run_head(struct turn *t)
{
	struct sample_item it = {.wire = t->b->wire, .n_rows = 1, .draw = true, .pos = t->pos + 1, .sampling = {.top_p = 1}};
	stage_work_sample(t->b->parts[t->b->n_ranges], &it, 1);
	t->err = it.err;
	t->em = it.em;
	t->b->token = it.token;
	if (t->err == OK)
		embed(t);
}

static void run_range(struct turn *t)
{
	struct stage_item it = {.wire = t->b->wire, .pos = t->pos, .n_tokens = 1};
	stage_work_forward(t->b->parts[t->part], t->b->layers[t->part], t->b->layers[t->part + 1], &it, 1);
	t->err = it.err;
	t->em = it.em;
}

static void on_run(struct worker_job *job)
{
	struct turn *t = (struct turn *)job; // its first member
	t->begin_ns = now_ns();
	if (t->pos < 0)
		embed(t);
	else if (t->part == t->b->n_ranges)
		run_head(t);
	else
		run_range(t);
	t->end_ns = now_ns();
}

static void on_done(struct worker_job *job)
{
	struct turn *t = (struct turn *)job;
	pthread_mutex_lock(&t->mutex);
	t->is_done = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->mutex);
}

static void take_turn(struct bench *b, int32_t part, int32_t pos)
{
	struct turn t = {.job = {.run = on_run, .done = on_done}, .b = b, .part = part, .pos = pos};
	pthread_mutex_init(&t.mutex, NULL);
	pthread_cond_init(&t.wake, NULL);
	rest(pos < 0 ? 0 : b->pause_ns[part]);
	int64_t begin_ns = now_ns();
	worker_submit(b->worker, &t.job);
	pthread_mutex_lock(&t.mutex);
	while (!t.is_done)
		pthread_cond_wait(&t.wake, &t.mutex);
	pthread_mutex_unlock(&t.mutex);
	int64_t all_ns = now_ns() - begin_ns, computing_ns = t.end_ns - t.begin_ns;
	if (t.err != OK)
		die(t.em.text);
	if (pos < 0)
		return;
	b->us[part][pos] = (double)computing_ns / 1e3;
	b->hand_us[pos] += (double)(all_ns - computing_ns) / 1e3;
}

static void print_times(const double *us, int32_t n)
{
	for (int32_t i = 0; i < n; i++)
		printf("%s%.2f", i > 0 ? ", " : "[", us[i]);
	printf("]");
}

// read_list reads comma-separated numbers, each in [min, max]; returns how many.
static int32_t read_list(const char *text, long min, long max, long *out)
{
	int32_t n = 0;
	for (char *end; n < PARTS_MAX; text = end + 1) {
		out[n] = strtol(text, &end, 10);
		if (end == text || out[n] < min || out[n] > max)
			die("not a list of numbers in range");
		n++;
		if (*end == '\0')
			return n;
		if (*end != ',')
			die("not a list of numbers");
	}
	die("too many numbers");
	return 0;
}

static void read_arguments(struct bench *b, char **argv)
{
	long list[PARTS_MAX], pauses[PARTS_MAX];
	int32_t n_pauses = read_list(argv[2], 0, 10000000, pauses);
	b->n_ranges = read_list(argv[3], 1, 1024, list);
	if (b->n_ranges > RANGES_MAX || (n_pauses != 1 && n_pauses != b->n_ranges + 1))
		die("want one pause, or one for each range and one for the head");
	for (int32_t i = 0; i <= b->n_ranges; i++) {
		b->pause_ns[i] = 1000 * (int64_t)pauses[n_pauses == 1 ? 0 : i];
		if (i < b->n_ranges)
			b->layers[i + 1] = b->layers[i] + (int32_t)list[i];
	}
}

static void open_all(struct bench *b, const char *path)
{
	struct errmsg em;
	if (model_open(path, &b->model, &em) != OK || worker_open(1, NULL, &b->worker, &em) != OK)
		die(em.text);
	const struct hparams *hp = model_hparams(b->model);
	if (b->layers[b->n_ranges] != hp->n_layers)
		die("the ranges are not all of the model's layers");
	for (int32_t i = 0; i <= b->n_ranges; i++) {
		bool is_head = i == b->n_ranges;
		const struct engine_config c = {.model = b->model, .kernels = worker_kernels(b->worker), .pool = worker_pool(b->worker),
			.layers = is_head ? (struct layer_spans){.n = 0} : layer_spans_one(b->layers[i], b->layers[i + 1]), .has_head = is_head,
			.n_slots = 1, .ctx_len = TOKENS_MAX, .batch_max = 1, .wire = WIRE_F32};
		if (stage_work_open(&c, &b->parts[i], &em) != OK)
			die(em.text);
	}
	b->wire = malloc(wire_bytes(WIRE_F32, hp->hidden_dim));
	if (b->wire == NULL)
		die("no memory");
}

static void close_all(struct bench *b)
{
	for (int32_t i = 0; i <= b->n_ranges; i++)
		stage_work_close(b->parts[i]);
	worker_close(b->worker);
	model_close(b->model);
	free(b->wire);
}

static void answer(struct bench *b, int32_t n_tokens)
{
	memset(b->hand_us, 0, sizeof b->hand_us);
	b->token = FIRST_TOKEN;
	take_turn(b, b->n_ranges, -1);
	for (int32_t pos = 0; pos < n_tokens; pos++)
		for (int32_t part = 0; part <= b->n_ranges; part++)
			take_turn(b, part, pos);
	printf("{\"ranges\": [");
	for (int32_t i = 0; i < b->n_ranges; i++) {
		printf("%s", i > 0 ? ", " : "");
		print_times(b->us[i], n_tokens);
	}
	printf("], \"head\": ");
	print_times(b->us[b->n_ranges], n_tokens);
	printf(", \"hand_over\": ");
	print_times(b->hand_us, n_tokens);
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static struct bench b;
	char line[LINE_CAP];
	if (argc != 4)
		die("usage: calibrate MODEL PAUSE_US[,PAUSE_US...] LAYERS[,LAYERS...]");
	read_arguments(&b, argv);
	open_all(&b, argv[1]);
	while (fgets(line, sizeof line, stdin) != NULL) {
		long numbers[PARTS_MAX];
		line[strcspn(line, "\n")] = '\0';
		if (read_list(line, 1, TOKENS_MAX, numbers) != 1)
			die("want one number of tokens on each line");
		answer(&b, (int32_t)numbers[0]);
	}
	close_all(&b);
	return 0;
}
