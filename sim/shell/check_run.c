#include "sim/shell/check_run.h"

#include "sim/sim_mix.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WATCH_NS 20000000 // between two looks of the parent

// One worker's part of the shared memory. `seed` is 0 between two seeds; the parent reads it when the worker is dead or late.
struct worker {
	pid_t pid;               // the parent's; 0: none
	FILE *words;             // the parent's: what it says on standard error
	atomic_uint_fast64_t seed;
	atomic_int_fast64_t since_ns;
	struct check_summary sum;
};

struct shared {
	atomic_uint_fast64_t next;
	atomic_uint_fast64_t n_done, n_failed;
	int32_t n_workers;
	struct worker workers[];
};

static int64_t clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// ---- sums

static void add_failure(struct check_summary *s, uint64_t seed, int64_t at_ns, const char *text)
{
	s->n_failed++;
	if (s->n_failures == CHECK_FAILURES_MAX)
		return;
	struct check_failure *f = &s->failures[s->n_failures++];
	f->seed = seed;
	f->at_ns = at_ns;
	snprintf(f->text, sizeof f->text, "%s", text);
}

static void add_counts(struct sim_counts *to, const struct sim_counts *c)
{
	to->n_events += c->n_events;
	to->n_steps_of_cores += c->n_steps_of_cores;
	to->n_frames += c->n_frames;
	to->n_tokens += c->n_tokens;
	to->n_plans += c->n_plans;
	to->n_piped += c->n_piped;
	to->n_handshakes += c->n_handshakes;
	to->n_links_lost += c->n_links_lost;
	to->n_ended_well += c->n_ended_well;
	to->n_ended_badly += c->n_ended_badly;
	to->n_cancelled += c->n_cancelled;
	to->n_lost += c->n_lost;
	to->n_refused += c->n_refused;
	to->n_node_losses += c->n_node_losses;
	to->n_double_losses += c->n_double_losses;
	to->n_recovered += c->n_recovered;
	to->n_moved += c->n_moved;
	to->n_taken_up += c->n_taken_up;
	to->n_batched += c->n_batched;
	to->n_partial += c->n_partial;
	to->n_fetched += c->n_fetched;
	to->n_kept_disk += c->n_kept_disk;
	to->n_fetched_disk += c->n_fetched_disk;
	to->n_disk_refused += c->n_disk_refused;
	to->n_prepared += c->n_prepared;
	to->n_waited += c->n_waited;
	to->n_shared += c->n_shared;
	to->n_exchanges += c->n_exchanges;
	to->n_beside += c->n_beside;
	to->n_heads += c->n_heads;
	to->n_given_up += c->n_given_up;
	to->n_group_losses += c->n_group_losses;
}

static void add_result(struct check_summary *s, uint64_t seed, const struct trial_result *r)
{
	s->n_seeds++;
	s->n_encrypted += r->encrypted;
	s->n_requests += (uint64_t)r->n_requests;
	s->virtual_ns += r->end_ns;
	s->histories += sim_mix(r->history, seed);
	for (int i = 0; i < SIM_N_FAULTS; i++) {
		s->drawn[i] += r->drawn[i] > 0;
		s->done[i] += r->done[i] > 0;
	}
	s->seeds_with_double_loss += r->counts.n_double_losses > 0;
	s->seeds_with_recovery += r->counts.n_recovered > 0;
	s->seeds_with_replan += r->counts.n_plans > 1;
	s->seeds_with_chains += r->n_chains > 1;
	s->seeds_with_groups += r->n_groups > 0;
	s->seeds_with_move += r->counts.n_moved > 0;
	s->seeds_by_cost += r->by_cost;
	s->seeds_may_group += r->may_group;
	s->seeds_with_better += r->counts.n_better > 0;
	add_counts(&s->counts, &r->counts);
	if (r->failed)
		add_failure(s, seed, r->failed_ns, r->failure);
}

static void add_summary(struct check_summary *to, const struct check_summary *s)
{
	to->n_seeds += s->n_seeds;
	to->n_encrypted += s->n_encrypted;
	to->n_twice += s->n_twice;
	to->n_requests += s->n_requests;
	to->virtual_ns += s->virtual_ns;
	to->histories += s->histories;
	for (int i = 0; i < SIM_N_FAULTS; i++) {
		to->drawn[i] += s->drawn[i];
		to->done[i] += s->done[i];
	}
	to->seeds_with_double_loss += s->seeds_with_double_loss;
	to->seeds_with_recovery += s->seeds_with_recovery;
	to->seeds_with_replan += s->seeds_with_replan;
	to->seeds_with_chains += s->seeds_with_chains;
	to->seeds_with_groups += s->seeds_with_groups;
	to->seeds_with_move += s->seeds_with_move;
	to->seeds_by_cost += s->seeds_by_cost;
	to->seeds_may_group += s->seeds_may_group;
	to->seeds_with_better += s->seeds_with_better;
	add_counts(&to->counts, &s->counts);
	for (uint32_t i = 0; i < s->n_failures; i++)
		add_failure(to, s->failures[i].seed, s->failures[i].at_ns, s->failures[i].text);
	to->n_failed += s->n_failed - s->n_failures;
}

// ---- a worker

static void run_seed(struct worker *k, const struct check_params *p, uint64_t seed)
{
	struct trial_params t = p->trial;
	struct trial_result r, again;
	struct errmsg em;
	t.seed = seed;
	if (trial_run(&t, &r, &em) != OK) {
		add_failure(&k->sum, seed, 0, em.text);
		return;
	}
	if (seed % CHECK_TWICE_EVERY == 0 && !r.failed) {
		k->sum.n_twice++;
		if (trial_run(&t, &again, &em) != OK || again.history != r.history) {
			r.failed = true;
			snprintf(r.failure, sizeof r.failure, "two runs of one seed differ: history %016llx, then %016llx", (unsigned long long)r.history,
				(unsigned long long)again.history);
		}
	}
	add_result(&k->sum, seed, &r);
}

static void work(struct shared *sh, struct worker *k, const struct check_params *p)
{
	for (;;) {
		uint64_t seed = atomic_fetch_add(&sh->next, 1);
		if (seed > p->last || seed < p->first) // the second: wrapped
			return;
		atomic_store(&k->since_ns, clock_ns());
		atomic_store(&k->seed, seed);
		uint64_t n_failed = k->sum.n_failed;
		run_seed(k, p, seed);
		atomic_store(&k->seed, 0);
		atomic_fetch_add(&sh->n_done, 1);
		atomic_fetch_add(&sh->n_failed, k->sum.n_failed - n_failed);
	}
}

static enum err start(struct shared *sh, struct worker *k, const struct check_params *p, struct errmsg *em)
{
	FILE *words = tmpfile();
	if (words == NULL)
		return errmsg_fail(em, ERR_IO, "a temporary file: %s", strerror(errno));
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0) {
		fclose(words);
		return errmsg_fail(em, ERR_IO, "a process for a worker: %s", strerror(errno));
	}
	if (pid > 0) { // only the parent: the memory is shared
		k->pid = pid;
		k->words = words;
		return OK;
	}
	dup2(fileno(words), STDERR_FILENO);
	work(sh, k, p);
	fflush(NULL);
	_exit(0);
}

// ---- the parent

// last_words reads the end of what a dead worker said.
static void last_words(FILE *f, char *out, size_t cap)
{
	long len = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : 0;
	long from = len > (long)cap - 1 ? len - ((long)cap - 1) : 0;
	size_t n = fseek(f, from, SEEK_SET) == 0 ? fread(out, 1, cap - 1, f) : 0;
	while (n > 0 && out[n - 1] == '\n')
		n--;
	out[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if (out[i] == '\n')
			out[i] = ' ';
}

// bury counts the seed that a worker died of, if it did not end by itself. Returns whether it did not.
static bool bury(struct shared *sh, struct worker *k, int status)
{
	char text[SIM_TEXT_CAP], words[SIM_TEXT_CAP / 2];
	uint64_t seed = atomic_load(&k->seed);
	k->pid = 0;
	last_words(k->words, words, sizeof words);
	fclose(k->words);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && seed == 0)
		return false;
	if (WIFSIGNALED(status))
		snprintf(text, sizeof text, "killed by signal %d%s%s", WTERMSIG(status), words[0] ? ": " : "", words);
	else
		snprintf(text, sizeof text, "ended with exit code %d%s%s", WIFEXITED(status) ? WEXITSTATUS(status) : -1, words[0] ? ": " : "", words);
	if (seed != 0) {
		k->sum.n_seeds++;
		add_failure(&k->sum, seed, -1, text);
	}
	atomic_store(&k->seed, 0);
	atomic_fetch_add(&sh->n_done, 1);
	atomic_fetch_add(&sh->n_failed, 1);
	return true;
}

static void kill_hung(struct shared *sh)
{
	for (int32_t i = 0; i < sh->n_workers; i++) {
		struct worker *k = &sh->workers[i];
		if (k->pid > 0 && atomic_load(&k->seed) != 0 && clock_ns() - atomic_load(&k->since_ns) > CHECK_HANG_S * INT64_C(1000000000))
			kill(k->pid, SIGKILL);
	}
}

// look buries who has died and starts another in its place. Returns how many live.
static int32_t look(struct shared *sh, const struct check_params *p, struct errmsg *em)
{
	int32_t n = 0;
	for (int32_t i = 0; i < sh->n_workers; i++) {
		struct worker *k = &sh->workers[i];
		int status;
		if (k->pid > 0 && waitpid(k->pid, &status, WNOHANG) == k->pid && bury(sh, k, status) && start(sh, k, p, em) != OK)
			continue;
		n += k->pid > 0;
	}
	return n;
}

static int by_seed(const void *a, const void *b)
{
	const struct check_failure *x = a, *y = b;
	return x->seed < y->seed ? -1 : x->seed > y->seed;
}

static struct shared *map_shared(int32_t n_workers, struct errmsg *em)
{
	size_t bytes = sizeof(struct shared) + (size_t)n_workers * sizeof(struct worker);
	struct shared *sh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED) {
		errmsg_fail(em, ERR_NOMEM, "no memory for %d workers", n_workers);
		return NULL;
	}
	sh->n_workers = n_workers;
	return sh;
}

enum err check_run(const struct check_params *p, struct check_summary *out, struct errmsg *em)
{
	int32_t n = p->n_jobs < 1 ? 1 : p->n_jobs > CHECK_JOBS_MAX ? CHECK_JOBS_MAX : p->n_jobs;
	struct shared *sh = map_shared(n, em);
	if (sh == NULL)
		return ERR_NOMEM;
	atomic_store(&sh->next, p->first);
	enum err e = OK;
	for (int32_t i = 0; i < n && e == OK; i++)
		e = start(sh, &sh->workers[i], p, em);
	if (e != OK)
		atomic_store(&sh->next, p->last + 1); // who runs already ends soon
	const struct timespec nap = {.tv_nsec = WATCH_NS};
	for (int tick = 0; look(sh, p, em) > 0; tick++) {
		nanosleep(&nap, NULL);
		kill_hung(sh);
		if (p->on_progress != NULL && tick % 12 == 0)
			p->on_progress(p->ctx, atomic_load(&sh->n_done), atomic_load(&sh->n_failed));
	}
	*out = (struct check_summary){0};
	for (int32_t i = 0; i < n; i++)
		add_summary(out, &sh->workers[i].sum);
	qsort(out->failures, out->n_failures, sizeof out->failures[0], by_seed);
	munmap(sh, sizeof(struct shared) + (size_t)n * sizeof(struct worker));
	return e;
}

// ---- one seed, and smaller ones

enum err check_one(const struct trial_params *p, struct trial_result *r, struct errmsg *em)
{
	struct check_params c = {.first = p->seed, .last = p->seed, .n_jobs = 1, .trial = *p};
	struct check_summary *s = malloc(sizeof *s);
	if (s == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a summary");
	enum err e = check_run(&c, s, em);
	*r = (struct trial_result){.failed = s->n_failed > 0, .end_ns = s->virtual_ns, .counts = s->counts};
	if (s->n_failures > 0) {
		r->failed_ns = s->failures[0].at_ns;
		memcpy(r->failure, s->failures[0].text, sizeof r->failure);
	}
	free(s);
	return e;
}

// still_fails keeps what `t` leaves out when the seed fails without it.
static bool still_fails(const struct trial_params *t, struct shrink_result *out)
{
	struct trial_result r;
	struct errmsg em;
	out->n_runs++;
	if (check_one(t, &r, &em) != OK || !r.failed)
		return false;
	out->last = r;
	out->classes = t->classes;
	out->from_ns = t->from_ns;
	out->until_ns = t->until_ns;
	return true;
}

static void drop_classes(struct trial_params *t, struct shrink_result *out)
{
	for (int i = 0; i < SIM_N_FAULTS; i++) {
		uint32_t with = t->classes;
		if (!(with >> i & 1))
			continue;
		t->classes = with & ~(UINT32_C(1) << i);
		if (!still_fails(t, out))
			t->classes = with;
	}
}

// narrow halves the distance of one end of the window to the other while the seed still fails.
static void narrow(struct trial_params *t, struct shrink_result *out, int64_t *end, int64_t other)
{
	for (int64_t step = (other - *end) / 2; step > 50000000 || step < -50000000; step /= 2) {
		int64_t was = *end;
		*end = was + step;
		if (!still_fails(t, out))
			*end = was;
	}
}

enum err check_shrink(const struct trial_params *p, struct shrink_result *out, struct errmsg *em)
{
	struct trial_params t = *p;
	*out = (struct shrink_result){0};
	if (!still_fails(&t, out))
		return errmsg_fail(em, ERR_STATE, "seed %llu does not fail", (unsigned long long)p->seed);
	drop_classes(&t, out);
	if (t.until_ns > 60000000000)
		t.until_ns = 60000000000; // no fault begins later
	narrow(&t, out, &t.until_ns, t.from_ns);
	narrow(&t, out, &t.from_ns, t.until_ns);
	return OK;
}
