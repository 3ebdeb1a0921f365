// `hearth probe`: measures this machine, or shows what was measured before.
#include "base/thread.h"
#include "cli/command.h"
#include "cli/host_profile.h"
#include "coordinator/shell/figures_json.h"
#include "model/model.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_CAP 80

struct probing {
	const struct command_ctx *ctx;
	struct model *model;
	struct worker *worker;
	struct host_profile host;
	struct device_profile profile;
	int64_t when_s;   // unix seconds of measuring
	double seconds;   // it took; 0: it was cached
	bool is_cached;
};

// One slice on the worker's thread, as the engine's work is done.
struct slice {
	struct worker_job job;
	struct probe *probe;
	bool has_more, is_done;
	int64_t begin_ns;
	pthread_mutex_t mutex;
	pthread_cond_t wake;
};

static void on_run(struct worker_job *job)
{
	struct slice *s = (struct slice *)job; // its first member
	s->begin_ns = thread_clock_ns();
	s->has_more = probe_step(s->probe);
}

static void on_done(struct worker_job *job)
{
	struct slice *s = (struct slice *)job;
	pthread_mutex_lock(&s->mutex);
	s->is_done = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->mutex);
}

// run_slice returns whether there is more to do, and notes what handing it over took.
static bool run_slice(struct worker *worker, struct probe *probe)
{
	struct slice s = {.job = {.run = on_run, .done = on_done}, .probe = probe};
	pthread_mutex_init(&s.mutex, NULL);
	pthread_cond_init(&s.wake, NULL);
	int64_t begin_ns = thread_clock_ns();
	worker_submit(worker, &s.job);
	pthread_mutex_lock(&s.mutex);
	while (!s.is_done)
		pthread_cond_wait(&s.wake, &s.mutex);
	pthread_mutex_unlock(&s.mutex);
	probe_note_handover(probe, s.begin_ns - begin_ns);
	pthread_cond_destroy(&s.wake);
	pthread_mutex_destroy(&s.mutex);
	return s.has_more;
}

// ---- measuring

static void show_progress(const struct probe *p, bool is_over)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (is_over)
		fprintf(stderr, "\r%*s\r", BAR_CAP - 1, "");
	else
		fprintf(stderr, "\rmeasuring this machine: %3.0f %% (%-10s)", 100 * probe_share(p), probe_words(p));
	fflush(stderr);
}

static enum err measure(struct probing *pr, struct errmsg *em)
{
	struct probe *p;
	int64_t begin_ns = thread_clock_ns();
	enum err e = probe_open(&pr->host.config, &p, em);
	if (e != OK)
		return e;
	do {
		show_progress(p, false);
	} while (run_slice(pr->worker, p));
	show_progress(p, true);
	probe_result(p, &pr->profile);
	probe_close(p);
	pr->when_s = (int64_t)time(NULL);
	pr->seconds = (double)(thread_clock_ns() - begin_ns) / 1e9;
	struct errmsg why;
	if (probe_cache_save(pr->host.folder, pr->host.key, &pr->profile, pr->when_s, &why) != OK)
		log_line(pr->ctx->log, LOG_WARNING, "the figures are not kept: %s", why.text);
	host_profile_complete(&pr->host, &pr->profile);
	return OK;
}

static enum err probe_machine(struct probing *pr, struct errmsg *em)
{
	const struct options *o = pr->ctx->opts;
	enum err e = o->model != NULL ? model_open(o->model, &pr->model, em) : OK;
	if (e == OK)
		e = worker_open(options_n_threads(o), o->simd, &pr->worker, em);
	if (e == OK)
		e = host_profile_init(o, pr->model, pr->model != NULL, pr->worker, &pr->host, em);
	if (e != OK)
		return e;
	pr->host.config.bytes_max = o->mem;
	probe_cache_key(&pr->host.config, HEARTH_VERSION, pr->host.key);
	host_profile_set_memory(&pr->host, o, NULL, 0);
	pr->is_cached = !o->fresh && host_profile_load(&pr->host, &pr->profile, &pr->when_s) == OK;
	return pr->is_cached ? OK : measure(pr, em);
}

// ---- printing

// tables_of lists the instruction sets whose kernels this machine runs.
static json_t *tables_of(void)
{
	json_t *all = json_array();
	struct errmsg em;
	for (size_t i = 0; kernels_known(i) != NULL; i++)
		if (kernels_find(kernels_known(i), &em) != NULL)
			json_array_append_new(all, json_string(kernels_known(i)));
	return all;
}

static void print_json(const struct probing *pr)
{
	const struct device_profile *p = &pr->profile;
	json_t *o = figures_json_profile(p), *conditions = json_object();
	figures_json_add_conditions(conditions, &p->at);
	json_object_update_new(o, json_pack("{s:o, s:s, s:i, s:o, s:b, s:I, s:f}", "instruction_sets", tables_of(), "kernels",
		kernels_name(worker_kernels(pr->worker)), "threads_best", (int)p->n_threads_best, "conditions", conditions, "cached", pr->is_cached,
		"measured_at_s", (json_int_t)pr->when_s, "seconds", pr->seconds));
	if (o != NULL) {
		json_dumpf(o, stdout, JSON_COMPACT);
		putchar('\n');
	}
	json_decref(o);
}

static void print_rates(const struct device_profile *p)
{
	printf("  %-6s %18s %20s\n", "weights", "decode", "prompts");
	for (int32_t i = 0; i < p->n_rates; i++)
		printf("  %-6s %13.2f GB/s %13.1f GFLOP/s\n", dtype_find((uint32_t)p->rates[i].type)->name, (double)p->rates[i].decode_bps / 1e9,
			(double)p->rates[i].prefill_flops / 1e9);
}

static void print_disk(const char *name, uint64_t bps)
{
	if (bps > 0)
		printf("%s %.0f MB/s", name, (double)bps / 1e6);
	else
		printf("%s not measured", name);
}

static void print_conditions(const struct device_conditions *c)
{
	if (c->on_battery)
		printf("power:   on battery, which is at %u %%: it may be slower than on mains\n", (unsigned)c->battery_percent);
	else if (c->has & PROFILE_HAS_BATTERY)
		printf("power:   on mains\n");
	if (c->has & PROFILE_HAS_HEAT)
		printf("heat:    %.0f degrees Celsius at the hottest sensor\n", c->heat_mc / 1e3);
	if (c->has & PROFILE_HAS_LOAD)
		printf("load:    %.2f running tasks", c->load_milli / 1e3);
	if (c->has & PROFILE_HAS_PRESSURE)
		printf("; tasks waited %.1f %% of ten seconds for a processor, %.1f %% for memory", c->cpu_pressure / 1e2, c->memory_pressure / 1e2);
	if (c->has & (PROFILE_HAS_LOAD | PROFILE_HAS_PRESSURE))
		putchar('\n');
}

static void print_text(const struct probing *pr)
{
	const struct device_profile *p = &pr->profile;
	char when[32];
	time_t t = (time_t)pr->when_s;
	struct tm tm;
	if (pr->is_cached && localtime_r(&t, &tm) != NULL && strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm) > 0)
		printf("measured %s (--fresh measures again)\n", when);
	else
		printf("measured in %.1f s\n", pr->seconds);
	printf("%s, %u threads of %u processors, %s kernels\n", p->cpu[0] != '\0' ? p->cpu : "this machine", (unsigned)p->n_threads, (unsigned)p->n_cpus,
		kernels_name(worker_kernels(pr->worker)));
	print_rates(p);
	if (p->n_threads_best > 0)
		printf("threads: %u decode fastest%s\n", (unsigned)p->n_threads_best, p->n_threads_best == p->n_threads ? "" : "; --threads chooses how many compute");
	printf("visit:   %.0f us before and after a token's layers\n", (double)p->visit_ns / 1e3);
	printf("memory:  %.1f GiB, %.1f available", (double)p->memory_bytes / (1 << 30), (double)p->available_bytes / (1 << 30));
	if (p->cap_bytes > 0)
		printf("; Hearth may take %.1f", (double)p->cap_bytes / (1 << 30));
	printf("\ndisk:    ");
	print_disk("mmap", p->disk_mmap_bps);
	print_disk(", direct", p->disk_direct_bps);
	putchar('\n');
	print_conditions(&p->at);
}

int probe_main(const struct command_ctx *ctx)
{
	struct probing pr = {.ctx = ctx};
	struct errmsg em;
	enum err e = probe_machine(&pr, &em);
	if (e == OK && ctx->opts->json)
		print_json(&pr);
	else if (e == OK)
		print_text(&pr);
	worker_close(pr.worker);
	model_close(pr.model);
	return e == OK ? EXIT_DONE : command_fail(ctx, "%s", em.text);
}
