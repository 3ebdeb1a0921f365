// How much faster two cores read memory than one: the rate of a thread on the first processor over a whole buffer, and of two threads on the first
// two over a half each. What bench/groups_bench.py takes the limit of a group of two members from.
//
//     read_scaling MIB SECONDS
//
// Each line of standard input asks for a measurement of about so many seconds, one and two threads in alternation; the answer is a line of JSON with
// both rates (medians, bytes per second).
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RUNS_MAX 1024
#define LINE_CAP 64

struct reader {
	pthread_t thread;
	int cpu;
	const uint64_t *from;
	size_t n;
	uint64_t sum; // so that nothing is left out
};

struct bench {
	uint64_t *buf;
	size_t n; // of 8 bytes
	pthread_barrier_t begin, end;
	struct reader second;
	bool is_over;
};

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "read_scaling: %s\n", what);
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set) != 0)
		die("no such processor");
}

static uint64_t read_all(const uint64_t *from, size_t n)
{
	uint64_t sums[32] = {0};
	for (size_t i = 0; i + 32 <= n; i += 32)
		for (size_t k = 0; k < 32; k++)
			sums[k] += from[i + k];
	uint64_t sum = 0;
	for (size_t k = 0; k < 32; k++)
		sum += sums[k];
	return sum;
}

static void *second_main(void *ctx)
{
	struct bench *b = ctx;
	pin(1);
	for (;;) {
		pthread_barrier_wait(&b->begin);
		if (b->is_over)
			return NULL;
		b->second.sum += read_all(b->buf + b->n / 2, b->n - b->n / 2);
		pthread_barrier_wait(&b->end);
	}
}

// take returns the rate of one run.
static double take(struct bench *b, bool with_second, uint64_t *sum)
{
	int64_t begin_ns = now_ns();
	if (with_second)
		pthread_barrier_wait(&b->begin);
	*sum += read_all(b->buf, with_second ? b->n / 2 : b->n);
	if (with_second)
		pthread_barrier_wait(&b->end);
	return (double)b->n * 8 / ((double)(now_ns() - begin_ns) / 1e9);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *rates, int n)
{
	qsort(rates, (size_t)n, sizeof *rates, compare);
	return (rates[(n - 1) / 2] + rates[n / 2]) / 2;
}

int main(int argc, char **argv)
{
	static struct bench b;
	static double one[RUNS_MAX], two[RUNS_MAX];
	char line[LINE_CAP];
	uint64_t sum = 0;
	double seconds = argc == 3 ? atof(argv[2]) : 0;
	b.n = argc == 3 ? (size_t)atol(argv[1]) << 17 : 0;
	if (b.n == 0 || !(seconds > 0))
		die("usage: read_scaling MIB SECONDS");
	b.buf = aligned_alloc(64, b.n * 8);
	if (b.buf == NULL)
		die("no memory");
	for (size_t i = 0; i < b.n; i++)
		b.buf[i] = i;
	pthread_barrier_init(&b.begin, NULL, 2);
	pthread_barrier_init(&b.end, NULL, 2);
	pin(0);
	if (pthread_create(&b.second.thread, NULL, second_main, &b) != 0)
		die("no thread");
	while (fgets(line, sizeof line, stdin) != NULL) {
		int n = 0;
		take(&b, false, &sum);
		for (int64_t end_ns = now_ns() + (int64_t)(seconds * 1e9); n < 2 || (n < RUNS_MAX && now_ns() < end_ns); n++) {
			one[n] = take(&b, false, &sum);
			two[n] = take(&b, true, &sum);
		}
		printf("{\"one\": %.0f, \"two\": %.0f}\n", median(one, n), median(two, n));
		fflush(stdout);
	}
	b.is_over = true;
	pthread_barrier_wait(&b.begin);
	pthread_join(b.second.thread, NULL);
	return sum + b.second.sum == 1; // never
}
