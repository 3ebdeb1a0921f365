#include "engine/probe.h"

#include "base/bytes.h"
#include "base/thread.h"
#include "engine/probe_machine.h"
#include "engine/probe_disk.h"
#include "engine/probe_products.h"
#include "engine/probe_stage.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLICE_NS 70000000
#define N_DECODE 5        // slices of a type
#define N_PREFILL 3
#define N_WAKES 25        // in one slice
#define N_TURNS 15        // of a real stage's slices, one of each kind, of which the first counts for nothing
#define TURNS_LEAST 3
#define SLICES 4          // kinds: all layers, short visits twice, a chunk of a prompt
#define N_THREADS 2       // slices of a number of threads
#define SAMPLES_MAX 16
#define HANDOVERS_MAX 64
#define MATRICES_MAX 16
#define THREAD_TRIALS_MAX 8
#define CACHES_PASSED 2   // the buffer is so many times what the caches hold
#define BUFFER_LEAST (UINT64_C(64) << 20)
#define BUFFER_MOST (UINT64_C(1) << 30)
#define WARM_NS_MAX INT64_C(2500000000) // of bringing layers from the disk: then the stage is left out
#define THREADS_GAIN 1.03 // more threads must be so much faster to be called better
#define FACTOR_LEAST 0.05 // what a visit may cost beside its products: more says that the measurement was disturbed
#define WORDS_CAP 64

enum step_kind { STEP_FILL, STEP_DECODE, STEP_PREFILL, STEP_WAKE, STEP_THREADS, STEP_WARM, STEP_STAGE, STEP_DISK, STEP_END };

struct samples {
	int32_t n;
	double at[SAMPLES_MAX];
};

struct type_figures {
	enum dtype type;
	int32_t n_matrices;
	struct probe_matrix matrices[MATRICES_MAX];
	struct samples decode, prefill;
};

struct thread_trial {
	int32_t n;
	struct pool *pool; // NULL: the configured one, or none could be had
	struct samples decode;
};

struct probe {
	struct probe_config c;
	struct probe_machine facts;
	struct probe_products *products;
	struct probe_stage *stage; // NULL: none
	uint64_t stage_bytes[DTYPE_ID_MAX + 1]; // of its layers, by type
	uint64_t buffer_bytes;
	int64_t spent_ns;
	enum step_kind kind;
	int32_t at, n_done, n_all; // of the kind's steps; of all
	int32_t n_types;
	struct type_figures types[PROFILE_RATES_MAX];
	int32_t n_trials;
	struct thread_trial trials[THREAD_TRIALS_MAX];
	struct samples at_once, stage_prefill; // ns, FLOP/s
	int32_t n_rests;
	double rests[2 * N_TURNS]; // by how many ns a visit after a rest took longer
	int64_t warm_ns;
	int64_t wake_ns;
	int32_t n_handovers;
	double handovers[HANDOVERS_MAX];
	double disk_mmap, disk_direct;
	uint32_t n_cpus;
	char words[WORDS_CAP];
};

// ---- numbers

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

static double median_of(const double *at, int32_t n)
{
	double sorted[HANDOVERS_MAX];
	if (n == 0)
		return 0;
	memcpy(sorted, at, (size_t)n * sizeof *at);
	qsort(sorted, (size_t)n, sizeof *sorted, by_size);
	return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

// typical_of returns what a quarter of the samples pass, from above or below: a machine that others disturb now and then is as fast as it is without
// them, and one lucky sample proves nothing.
static double typical_of(const struct samples *s, bool is_rate)
{
	double sorted[SAMPLES_MAX];
	if (s->n == 0)
		return 0;
	memcpy(sorted, s->at, (size_t)s->n * sizeof *sorted);
	qsort(sorted, (size_t)s->n, sizeof *sorted, by_size);
	int32_t i = s->n / 4;
	return sorted[is_rate ? s->n - 1 - i : i];
}

static double rate_of(const struct samples *s)
{
	return typical_of(s, true);
}

static double time_of(const struct samples *s)
{
	return typical_of(s, false);
}

static void add(struct samples *s, double v)
{
	if (s->n < SAMPLES_MAX && v > 0)
		s->at[s->n++] = v;
}

static uint64_t whole(double v)
{
	return v >= (double)PROFILE_RATE_MAX ? PROFILE_RATE_MAX : v > 0 ? (uint64_t)(v + 0.5) : 0;
}

// ---- what is measured

static const struct probe_matrix usual_shapes[] = {{DTYPE_F32, 4096, 4096}, {DTYPE_F32, 14336, 4096}, {DTYPE_F32, 4096, 14336}};

static void add_shape(struct type_figures *f, int32_t rows, int32_t cols)
{
	for (int32_t i = 0; i < f->n_matrices; i++)
		if (f->matrices[i].rows == rows && f->matrices[i].cols == cols)
			return;
	if (f->n_matrices < MATRICES_MAX)
		f->matrices[f->n_matrices++] = (struct probe_matrix){f->type, rows, cols};
}

static void add_tensor(struct type_figures *f, const struct tensor_view *t)
{
	if (t->rows > 0 && t->type == f->type)
		add_shape(f, t->rows, t->cols);
}

static void find_shapes(const struct model *m, struct type_figures *f)
{
	struct layer_weights w;
	for (int32_t i = 0; i < model_hparams(m)->n_layers; i++) {
		model_layer(m, i, &w);
		const struct tensor_view *all[] = {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down};
		for (size_t k = 0; k < ARRAY_LEN(all); k++)
			add_tensor(f, all[k]);
		if (w.experts != NULL) {
			add_tensor(f, &w.experts[0].gate);
			add_tensor(f, &w.experts[0].down);
		}
	}
	struct tensor_view output = model_output(m);
	add_tensor(f, &output);
}

static int by_bytes(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b; // bytes and type
	return x[0] != y[0] ? (x[0] < y[0] ? 1 : -1) : x[1] < y[1] ? -1 : 1;
}

static int32_t types_of(const struct model *m, enum dtype out[PROFILE_RATES_MAX])
{
	uint64_t bytes[DTYPE_ID_MAX + 1] = {0}, found[DTYPE_ID_MAX + 1][2], sum = 0;
	struct tensor_view output = model_output(m);
	for (int32_t i = 0; i < model_hparams(m)->n_layers; i++)
		sum += probe_stage_layer_bytes(m, i, bytes);
	bytes[output.type] += (uint64_t)output.rows * output.row_bytes;
	sum += (uint64_t)output.rows * output.row_bytes;
	int32_t n = 0;
	for (uint32_t t = 0; t <= DTYPE_ID_MAX; t++)
		if (bytes[t] > 0 && bytes[t] >= sum / 100 && kernels_has_type((enum dtype)t)) {
			found[n][0] = bytes[t];
			found[n++][1] = t;
		}
	qsort(found, (size_t)n, sizeof found[0], by_bytes);
	n = n < PROFILE_RATES_MAX ? n : PROFILE_RATES_MAX;
	for (int32_t i = 0; i < n; i++)
		out[i] = (enum dtype)found[i][1];
	return n;
}

int32_t probe_types(const struct model *m, enum dtype out[PROFILE_RATES_MAX])
{
	static const enum dtype usual[] = {DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_F16};
	if (m != NULL)
		return types_of(m, out);
	memcpy(out, usual, sizeof usual);
	return (int32_t)ARRAY_LEN(usual);
}

static void choose_types(struct probe *p)
{
	enum dtype types[PROFILE_RATES_MAX];
	p->n_types = probe_types(p->c.model, types);
	for (int32_t i = 0; i < p->n_types; i++) {
		struct type_figures *f = &p->types[i];
		f->type = types[i];
		for (size_t k = 0; p->c.model == NULL && k < ARRAY_LEN(usual_shapes); k++)
			add_shape(f, usual_shapes[k].rows, usual_shapes[k].cols);
		if (p->c.model != NULL)
			find_shapes(p->c.model, f);
	}
}

// choose_trials: the numbers of threads that may be best; one core of several threads, and cores of two kinds, make fewer than all a good choice.
static void choose_trials(struct probe *p)
{
	int32_t all = p->n_cpus > THREADS_MAX ? THREADS_MAX : (int32_t)p->n_cpus;
	const int32_t wanted[] = {1, all / 4, all / 2, all * 3 / 4, all - 1, all, pool_n_threads(p->c.pool)};
	for (size_t i = 0; !p->c.skip_threads && i < ARRAY_LEN(wanted); i++) {
		bool is_new = wanted[i] >= 1 && wanted[i] <= THREADS_MAX;
		for (int32_t k = 0; k < p->n_trials; k++)
			is_new = is_new && p->trials[k].n != wanted[i];
		if (is_new)
			p->trials[p->n_trials++].n = wanted[i];
	}
}

static uint64_t choose_buffer(const struct probe *p)
{
	uint64_t want = CACHES_PASSED * p->facts.cache_bytes, have = p->c.bytes_max > 0 ? p->c.bytes_max / 2 : p->facts.available_bytes / 4;
	want = want > BUFFER_LEAST ? want : BUFFER_LEAST;
	want = want < BUFFER_MOST ? want : BUFFER_MOST;
	uint64_t least = PROBE_LEAST_BYTES / 2;
	want = want < have ? want : have;
	return (want > least ? want : least) / 4096 * 4096;
}

static uint32_t count_cpus(void)
{
	cpu_set_t cpus;
	int n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
	return n > 1 ? (uint32_t)n : 1;
}

enum err probe_open(const struct probe_config *c, struct probe **out, struct errmsg *em)
{
	if (c->bytes_max > 0 && c->bytes_max < PROBE_LEAST_BYTES)
		return errmsg_fail(em, ERR_LIMIT, "%.1f MiB of memory are too few to measure with, want %.0f", (double)c->bytes_max / 1048576,
			(double)PROBE_LEAST_BYTES / 1048576);
	struct probe *p = calloc(1, sizeof *p);
	if (p == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory to measure with");
	p->c = *c;
	p->c.budget_ns = c->budget_ns > 0 ? c->budget_ns : PROBE_BUDGET_NS;
	p->n_cpus = count_cpus();
	probe_machine_read(c->root != NULL ? c->root : "", &p->facts);
	p->buffer_bytes = choose_buffer(p);
	choose_types(p);
	choose_trials(p);
	p->n_all = 8 + p->n_types * (N_DECODE + N_PREFILL) + p->n_trials * N_THREADS + (c->has_weights ? 8 + N_TURNS * SLICES : 0);
	enum err e = probe_products_open(c->kernels, p->buffer_bytes, &p->products, em);
	if (e != OK) {
		probe_close(p);
		return e;
	}
	*out = p;
	return OK;
}

static void close_trials(struct probe *p)
{
	for (int32_t i = 0; i < p->n_trials; i++) {
		pool_close(p->trials[i].pool);
		p->trials[i].pool = NULL;
	}
}

void probe_close(struct probe *p)
{
	if (p == NULL)
		return;
	close_trials(p);
	probe_stage_close(p->stage);
	probe_products_close(p->products);
	free(p);
}

// ---- steps: each returns whether its kind has more

// has_time: repetitions stop when the budget is spent, the first of each figure never.
static bool has_time(const struct probe *p)
{
	return p->spent_ns < p->c.budget_ns;
}

static bool step_fill(struct probe *p)
{
	strcpy(p->words, "memory");
	return probe_products_fill(p->products);
}

// next_type returns the type of step `at` when each has n of them; NULL: no more. Types take turns, so that a disturbance meets all alike.
static struct type_figures *next_type(struct probe *p, int32_t n)
{
	bool may = p->at < p->n_types || (p->at < p->n_types * n && has_time(p));
	struct type_figures *f = may ? &p->types[p->at % p->n_types] : NULL;
	if (f != NULL)
		strcpy(p->words, dtype_find((uint32_t)f->type)->name);
	return f;
}

static bool step_decode(struct probe *p)
{
	struct type_figures *f = next_type(p, N_DECODE);
	if (f != NULL)
		add(&f->decode, probe_products_decode(p->products, p->c.pool, f->matrices, f->n_matrices, SLICE_NS));
	return f != NULL;
}

static bool step_prefill(struct probe *p)
{
	struct type_figures *f = next_type(p, N_PREFILL);
	if (f != NULL)
		add(&f->prefill, probe_products_prefill(p->products, p->c.pool, f->matrices, f->n_matrices, SLICE_NS));
	return f != NULL;
}

static void nothing(void *ctx, int32_t idx, int32_t n_threads)
{
	(void)ctx;
	(void)idx;
	(void)n_threads;
}

// step_wake: what it costs to begin when the threads of the pool sleep.
static bool step_wake(struct probe *p)
{
	double took[N_WAKES];
	const struct timespec rest = {.tv_nsec = 1500000};
	for (int32_t i = 0; i < N_WAKES; i++) {
		nanosleep(&rest, NULL);
		int64_t begin_ns = thread_clock_ns();
		pool_run(p->c.pool, nothing, NULL);
		took[i] = (double)(thread_clock_ns() - begin_ns);
	}
	p->wake_ns = (int64_t)median_of(took, N_WAKES);
	return false;
}

static bool step_threads(struct probe *p)
{
	strcpy(p->words, "threads");
	if (p->n_trials == 0 || p->at >= p->n_trials * N_THREADS || !has_time(p) || p->n_types == 0) {
		close_trials(p);
		return false;
	}
	struct thread_trial *t = &p->trials[p->at % p->n_trials];
	bool is_ours = t->n == pool_n_threads(p->c.pool);
	if (!is_ours && t->pool == NULL && pool_open(t->n, &t->pool) != OK)
		return true;
	const struct type_figures *f = &p->types[0];
	add(&t->decode, probe_products_decode(p->products, is_ours ? p->c.pool : t->pool, f->matrices, f->n_matrices, SLICE_NS));
	return true;
}

static bool step_warm(struct probe *p)
{
	struct errmsg em;
	strcpy(p->words, "layers");
	if (!p->c.has_weights || !has_time(p))
		return false;
	if (p->at == 0) {
		if (probe_stage_open(p->c.model, p->c.kernels, p->c.pool, p->buffer_bytes, &p->stage, &em) != OK)
			return false;
		memcpy(p->stage_bytes, probe_stage_bytes_by_type(p->stage), sizeof p->stage_bytes);
		return true;
	}
	int64_t ns = probe_stage_warm(p->stage, p->at - 1);
	p->warm_ns += ns;
	if (ns > 0 && p->warm_ns < WARM_NS_MAX)
		return p->at < probe_stage_n_layers(p->stage);
	probe_stage_close(p->stage);
	p->stage = NULL;
	return false;
}

// measure_rest takes short visits, of which a rest is a large part: of long ones the difference would drown in what disturbs them.
static void measure_rest(struct probe *p, bool counts)
{
	int64_t rested = probe_stage_visit(p->stage, true), at_once = probe_stage_visit(p->stage, false);
	if (counts && rested > 0 && at_once > 0)
		p->rests[p->n_rests++] = (double)(rested - at_once);
}

static void measure_chunk(struct probe *p, int32_t layer, bool counts)
{
	double flop = (double)probe_stage_layer_flop(p->c.model, layer), rate = p->n_types > 0 ? rate_of(&p->types[0].prefill) : 0;
	double n = rate > 0 && flop > 0 ? rate * SLICE_NS / 1e9 / flop : PROBE_BATCH;
	int32_t n_tokens = n >= PROBE_BATCH ? PROBE_BATCH : n > 16 ? (int32_t)n : 16;
	int64_t ns = probe_stage_prefill(p->stage, layer, n_tokens);
	if (counts && ns > 0)
		add(&p->stage_prefill, flop * n_tokens * 1e9 / (double)ns);
}

// step_stage: the kinds take turns, so that each is spread over the whole time. Machines that others share are fast and slow for a second or so.
static bool step_stage(struct probe *p)
{
	int32_t turn = p->at / SLICES;
	if (p->stage == NULL || turn >= N_TURNS || (turn >= TURNS_LEAST && !has_time(p)))
		return false;
	switch (p->at % SLICES) {
	case 0: {
		int64_t ns = probe_stage_decode(p->stage);
		if (turn > 0)
			add(&p->at_once, (double)ns);
		break;
	}
	case 2: measure_chunk(p, turn % probe_stage_n_layers(p->stage), turn > 0); break;
	default: measure_rest(p, turn > 0); break;
	}
	return true;
}

static bool step_disk(struct probe *p)
{
	strcpy(p->words, "disk");
	const struct weight_files *files = p->c.has_weights ? model_files(p->c.model) : NULL;
	if (p->at == 0) {
		probe_stage_close(p->stage); // its mapping holds the pages
		p->stage = NULL;
		p->disk_mmap = probe_disk_measure(READER_MMAP, files, p->c.folder);
	} else {
		p->disk_direct = probe_disk_measure(READER_DIRECT, files, p->c.folder);
	}
	return p->at == 0;
}

bool probe_step(struct probe *p)
{
	static bool (*const steps[])(struct probe *) = {step_fill, step_decode, step_prefill, step_wake, step_threads, step_warm, step_stage,
		step_disk};
	if (p->kind == STEP_END)
		return false;
	int64_t begin_ns = thread_clock_ns();
	bool has_more = steps[p->kind](p);
	p->spent_ns += thread_clock_ns() - begin_ns;
	p->n_done++;
	p->at = has_more ? p->at + 1 : 0;
	p->kind += has_more ? 0 : 1;
	return p->kind != STEP_END;
}

void probe_note_handover(struct probe *p, int64_t ns)
{
	if (p->n_handovers < HANDOVERS_MAX && ns >= 0)
		p->handovers[p->n_handovers++] = (double)ns;
}

double probe_share(const struct probe *p)
{
	double share = p->n_all > 0 ? (double)p->n_done / p->n_all : 1;
	return p->kind == STEP_END || share > 1 ? 1 : share;
}

const char *probe_words(const struct probe *p)
{
	return p->words;
}

// ---- the result

// decode_factor returns how much slower a real visit is than its products alone, back to back.
static double decode_factor(const struct probe *p)
{
	double products = 0, ns = time_of(&p->at_once), first = p->n_types > 0 ? rate_of(&p->types[0].decode) : 0;
	if (ns <= 0 || first <= 0)
		return 1;
	for (uint32_t t = 0; t <= DTYPE_ID_MAX; t++) {
		double rate = first; // of types that take next to nothing
		for (int32_t i = 0; i < p->n_types; i++)
			if (p->types[i].type == (enum dtype)t && rate_of(&p->types[i].decode) > 0)
				rate = rate_of(&p->types[i].decode);
		products += (double)p->stage_bytes[t] * 1e9 / rate;
	}
	double factor = products / ns;
	return factor > FACTOR_LEAST && factor < 1 / FACTOR_LEAST ? factor : 1;
}

static double prefill_factor(const struct probe *p)
{
	double real = rate_of(&p->stage_prefill), products = p->n_types > 0 ? rate_of(&p->types[0].prefill) : 0;
	double factor = products > 0 && real > 0 ? real / products : 1;
	return factor > FACTOR_LEAST && factor < 1 / FACTOR_LEAST ? factor : 1;
}

// visit_ns: threads that wake, or what a real visit took longer after a rest; and handing over to the thread that computes.
static uint64_t visit_ns(const struct probe *p)
{
	double rest = median_of(p->rests, p->n_rests), ns = rest > (double)p->wake_ns ? rest : (double)p->wake_ns;
	ns += 2 * median_of(p->handovers, p->n_handovers);
	return ns < (double)PROFILE_VISIT_NS_MAX ? (uint64_t)ns : PROFILE_VISIT_NS_MAX;
}

static uint32_t best_threads(const struct probe *p)
{
	double best = 0;
	int32_t n = 0;
	for (int32_t i = 0; i < p->n_trials; i++) {
		const struct thread_trial *t = &p->trials[i];
		double rate = rate_of(&t->decode);
		bool is_better = rate > best * THREADS_GAIN || (t->n < n && rate * THREADS_GAIN > best);
		if (rate <= 0 || !is_better)
			continue;
		best = rate > best ? rate : best;
		n = t->n;
	}
	return (uint32_t)n;
}

void probe_result(const struct probe *p, struct device_profile *out)
{
	*out = (struct device_profile){
		.n_threads = (uint32_t)pool_n_threads(p->c.pool),
		.n_threads_best = best_threads(p),
		.n_cpus = p->n_cpus,
		.visit_ns = visit_ns(p),
		.disk_mmap_bps = whole(p->disk_mmap),
		.disk_direct_bps = whole(p->disk_direct),
		.n_rates = p->n_types,
	};
	memcpy(out->cpu, p->facts.cpu, sizeof out->cpu);
	double decode = decode_factor(p), prefill = prefill_factor(p);
	for (int32_t i = 0; i < p->n_types; i++) {
		const struct type_figures *f = &p->types[i];
		out->rates[i] = (struct device_rate){f->type, whole(rate_of(&f->decode) * decode), whole(rate_of(&f->prefill) * prefill)};
	}
	probe_refresh(p->c.root, out);
}

void probe_refresh(const char *root, struct device_profile *p)
{
	struct probe_machine facts;
	probe_machine_read(root != NULL ? root : "", &facts);
	p->memory_bytes = facts.memory_bytes;
	p->available_bytes = facts.available_bytes;
	probe_machine_conditions(root != NULL ? root : "", &p->at);
}
