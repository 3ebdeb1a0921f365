#include "engine/residency.h"

#include "base/assert.h"
#include "base/thread.h"
#include "base/window_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define AHEAD_UNITS 8                   // reads begun at once, at most
#define AHEAD_BYTES (16 * 1024 * 1024)  // beyond two units, only as much as keeps any disk busy
#define TRIAL_BYTES (64 * 1024 * 1024)  // read in each way to find the faster
#define WINDOW_SLOTS 8                  // that a window has when the layers are many: what fills while the head computes
#define UNITS_PER_SLOT 24               // with fewer units a slot more would cost more than it brings

struct views {
	const void *parts[UNIT_PARTS_MAX];
};

// One slot of the window. Streamed units are numbered in the order of use, for ever: number `seq` is unit streamed[seq % n_streamed] and
// uses slot seq % window.
struct slot {
	struct weight_place place;
	enum err err; // reading failed: the place is empty
	struct errmsg em;
	bool was_used;
	int64_t begin_ns;
};

struct residency {
	struct residency_config c;
	struct views *views; // (n units)
	struct weight_reader *reader; // NULL: views of the mapped file
	struct window_layout layout;
	struct weight_place *pins;    // (n units), those that are pinned
	uint8_t *memory;              // direct: pins, then the window
	size_t memory_bytes;
	int32_t *stream_idx;          // (n units): which of the streamed ones, -1: pinned
	int32_t *streamed;            // (n_streamed): units
	struct slot *slots;           // (window)
	bool is_locked;

	pthread_t reading, dropping;
	bool has_reading, has_dropping;
	pthread_mutex_t mutex; // guards what follows
	pthread_cond_t work, to_drop, ready_cond;
	bool is_stopping, has_read_all;
	// done <= released <= used <= done + window; done <= ready <= begun <= done + window
	int64_t begun;    // numbers below were begun
	int64_t ready;    // were finished, well or not
	int64_t used;     // were acquired
	int64_t released; // are not needed any more
	bool has_failed;  // the last one used could not be read, and goes with the one before, which is still in use
	int64_t done;     // were dropped: their slots are free
	int64_t last_ready_ns;
	uint64_t read_bytes, wasted_bytes;
	int64_t read_ns, stall_ns;
};

static const struct unit *unit_of(const struct residency *r, int64_t seq)
{
	return &r->c.units->units[r->streamed[seq % r->layout.n_streamed]];
}

static struct slot *slot_of(const struct residency *r, int64_t seq)
{
	return &r->slots[seq % r->layout.window];
}

// ---- the threads that read ahead and let go; each step is called with the mutex held, and gives it away while it works

static bool may_begin(const struct residency *r)
{
	int64_t n = r->begun - r->ready;
	if (r->begun >= r->done + r->layout.window || n >= AHEAD_UNITS)
		return false;
	return n < WINDOW_MIN || (uint64_t)(n + 1) * r->layout.window_bytes / (uint64_t)r->layout.window <= AHEAD_BYTES;
}

static void begin_next(struct residency *r)
{
	int64_t seq = r->begun;
	struct slot *s = slot_of(r, seq);
	s->err = OK;
	s->was_used = false;
	s->begin_ns = thread_clock_ns();
	pthread_mutex_unlock(&r->mutex);
	weight_reader_begin(r->reader, unit_of(r, seq), &s->place);
	pthread_mutex_lock(&r->mutex);
	r->begun++;
}

static void finish_next(struct residency *r)
{
	int64_t seq = r->ready;
	struct slot *s = slot_of(r, seq);
	pthread_mutex_unlock(&r->mutex);
	enum err e = weight_reader_finish(r->reader, unit_of(r, seq), &s->place, &s->em);
	int64_t end_ns = thread_clock_ns();
	pthread_mutex_lock(&r->mutex);
	s->err = e;
	if (e == OK)
		r->read_bytes += unit_of(r, seq)->bytes;
	r->read_ns += end_ns - (s->begin_ns > r->last_ready_ns ? s->begin_ns : r->last_ready_ns);
	r->last_ready_ns = end_ns;
	r->ready++;
	pthread_cond_signal(&r->ready_cond);
	pthread_cond_signal(&r->to_drop); // it may have been passed over meanwhile
}

static void drop_next(struct residency *r)
{
	int64_t seq = r->done;
	struct slot *s = slot_of(r, seq);
	if (s->err == OK && !s->was_used)
		r->wasted_bytes += unit_of(r, seq)->bytes;
	pthread_mutex_unlock(&r->mutex);
	if (s->err == OK)
		weight_reader_drop(r->reader, unit_of(r, seq), &s->place);
	pthread_mutex_lock(&r->mutex);
	r->done++;
}

// step does one thing and returns true, or has nothing to do.
static bool step(struct residency *r)
{
	if (r->done < r->released && r->done == r->ready && r->ready == r->begun)
		r->begun = r->ready = r->done = r->released; // passed over before it was begun
	else if (may_begin(r) && r->released <= r->begun && !r->is_stopping)
		begin_next(r);
	else if (r->ready < r->begun)
		finish_next(r);
	else
		return false;
	return true;
}

static void *reading_thread(void *ctx)
{
	struct residency *r = ctx;
	pthread_mutex_lock(&r->mutex);
	for (;;) {
		if (step(r))
			continue;
		if (r->is_stopping)
			break;
		pthread_cond_wait(&r->work, &r->mutex);
	}
	r->has_read_all = true;
	pthread_cond_signal(&r->to_drop);
	pthread_mutex_unlock(&r->mutex);
	return NULL;
}

// dropping_thread: giving pages back takes as long as asking for them, and the disk does not wait for it.
static void *dropping_thread(void *ctx)
{
	struct residency *r = ctx;
	pthread_mutex_lock(&r->mutex);
	for (;;) {
		if (r->done < r->released && r->done < r->ready) {
			drop_next(r);
			pthread_cond_signal(&r->work);
			continue;
		}
		if (r->has_read_all)
			break;
		pthread_cond_wait(&r->to_drop, &r->mutex);
	}
	pthread_mutex_unlock(&r->mutex);
	return NULL;
}

// ---- the engine's side

static void wake(struct residency *r)
{
	pthread_cond_signal(&r->work);
	pthread_cond_signal(&r->to_drop);
}

// pass_over leaves out streamed units up to the one wanted: what was read of them is dropped, what was not is not read.
static void pass_over(struct residency *r, int32_t idx)
{
	int64_t n = r->layout.n_streamed, ahead = (idx - r->used % n + n) % n;
	if (ahead == 0)
		return;
	ASSERT(r->used == r->released);
	r->used += ahead;
	r->released = r->used;
	wake(r);
}

static bool is_streamed(const struct residency *r, int32_t unit)
{
	ASSERT(unit >= 0 && unit < r->c.units->n);
	return r->layout.n_streamed > 0 && r->stream_idx[unit] >= 0;
}

enum err residency_acquire(struct residency *r, int32_t unit, struct errmsg *em)
{
	if (!is_streamed(r, unit))
		return OK;
	pthread_mutex_lock(&r->mutex);
	pass_over(r, r->stream_idx[unit]);
	int64_t seq = r->used++;
	struct slot *s = slot_of(r, seq);
	if (r->ready <= seq) {
		int64_t begin_ns = thread_clock_ns();
		while (r->ready <= seq)
			pthread_cond_wait(&r->ready_cond, &r->mutex);
		r->stall_ns += thread_clock_ns() - begin_ns;
	}
	enum err e = s->err;
	if (e != OK) {
		errmsg_fail(em, e, "%s", s->em.text);
		if (r->released == seq)
			r->released++; // its next turn is another number
		else
			r->has_failed = true;
		wake(r);
	} else {
		s->was_used = true;
		memcpy(r->views[unit].parts, s->place.views, sizeof s->place.views);
	}
	pthread_mutex_unlock(&r->mutex);
	return e;
}

void residency_release(struct residency *r, int32_t unit)
{
	if (!is_streamed(r, unit))
		return;
	pthread_mutex_lock(&r->mutex);
	ASSERT(r->released < r->used);
	r->released += r->has_failed ? 2 : 1;
	r->has_failed = false;
	pthread_cond_signal(&r->to_drop);
	pthread_mutex_unlock(&r->mutex);
}

const void *residency_view(const struct residency *r, int32_t unit, int32_t part)
{
	return r->views[unit].parts[part];
}

void residency_get_stats(struct residency *r, struct residency_stats *out)
{
	*out = (struct residency_stats){
		.reader = r->reader != NULL ? weight_reader_kind(r->reader) : READER_AUTO,
		.is_locked = r->is_locked,
		.n_units = r->c.units->n,
		.n_streamed = r->layout.n_streamed,
		.window = r->layout.window,
		.pinned_bytes = r->layout.pinned_bytes,
		.streamed_bytes = r->layout.streamed_bytes,
		.window_bytes = r->layout.window_bytes,
	};
	pthread_mutex_lock(&r->mutex);
	out->read_bytes = r->read_bytes;
	out->wasted_bytes = r->wasted_bytes;
	out->read_ns = r->read_ns;
	out->stall_ns = r->stall_ns;
	pthread_mutex_unlock(&r->mutex);
}

void residency_describe(const struct residency_stats *s, char out[RESIDENCY_TEXT_CAP])
{
	static const double mib = 1048576;
	int n = snprintf(out, RESIDENCY_TEXT_CAP, "%.1f MiB %s", (double)s->pinned_bytes / mib,
		s->reader == READER_AUTO ? "mapped" : s->is_locked ? "pinned (locked)" : "pinned (not locked: RLIMIT_MEMLOCK)");
	if (s->n_streamed > 0)
		snprintf(out + n, RESIDENCY_TEXT_CAP - (size_t)n, ", %.1f MiB streamed by %s through %.1f MiB", (double)s->streamed_bytes / mib,
			weight_reader_name(s->reader), (double)s->window_bytes / mib);
}

// ---- opening

static uint64_t *memory_of_units(const struct unit_table *units)
{
	uint64_t *bytes = malloc(((size_t)units->n + 1) * sizeof *bytes);
	for (int32_t i = 0; bytes != NULL && i < units->n; i++)
		bytes[i] = weight_reader_unit_bytes(&units->units[i]);
	return bytes;
}

uint64_t residency_whole(const struct unit_table *units)
{
	uint64_t bytes = 0;
	for (int32_t i = 0; i < units->n; i++)
		bytes += weight_reader_unit_bytes(&units->units[i]);
	return bytes;
}

uint64_t residency_least(const struct unit_table *units)
{
	return weight_reader_largest(units) * (uint64_t)(units->n < WINDOW_MIN ? units->n : WINDOW_MIN);
}

// fit: what fits stays, whatever a plan thought.
static bool fit(const struct residency *r, const uint64_t *unit_bytes, uint64_t bytes, struct window_layout *out)
{
	int32_t n = r->c.units->n, want = n / UNITS_PER_SLOT;
	want = want < WINDOW_MIN ? WINDOW_MIN : want > WINDOW_SLOTS ? WINDOW_SLOTS : want;
	bool all_fits = residency_whole(r->c.units) <= bytes;
	return window_layout_fit(unit_bytes, n, bytes, want, all_fits ? 0 : window_layout_streams(unit_bytes, n, r->c.limits.stream_share), out);
}

static void say(const struct residency *r, enum log_level level, const char *text)
{
	if (r->c.limits.log != NULL)
		log_line(r->c.limits.log, level, "%s", text);
}

// choose_way decides how to read what does not fit: as was asked for, or as a cycle takes less time. The direct way may pin less.
static enum weight_way choose_way(const struct residency *r, const struct window_layout *mapped, const struct window_layout *direct)
{
	const struct residency_limits *l = &r->c.limits;
	if (l->reader != READER_AUTO)
		return l->reader;
	if (mapped->n_units == 0 || direct->n_units == 0)
		return mapped->n_units == 0 ? READER_DIRECT : READER_MMAP;
	double rates[] = {weight_reader_measure(READER_MMAP, r->c.files, r->c.units, TRIAL_BYTES), weight_reader_measure(READER_DIRECT, r->c.files, r->c.units, TRIAL_BYTES)};
	bool is_direct = rates[1] > 0 && (double)direct->streamed_bytes * rates[0] < (double)mapped->streamed_bytes * rates[1];
	if (l->log != NULL)
		log_line(l->log, LOG_INFO, "reading weights: %.0f MB/s by mmap, %.0f direct; %s is taken", rates[0] / 1e6, rates[1] / 1e6,
			weight_reader_name(is_direct ? READER_DIRECT : READER_MMAP));
	return is_direct ? READER_DIRECT : READER_MMAP;
}

// open_reader opens the chosen way, or the other one where it is not possible, and lays the units out for it.
static enum err open_reader(struct residency *r, const uint64_t *unit_bytes, struct errmsg *em)
{
	const struct residency_limits *l = &r->c.limits;
	struct window_layout mapped, direct;
	struct errmsg why;
	bool fits_mapped = fit(r, unit_bytes, l->bytes, &mapped), fits_direct = fit(r, unit_bytes, l->anon_bytes, &direct);
	bool all_fits = fits_mapped && mapped.n_streamed == 0 && l->reader == READER_AUTO; // the page cache serves whoever comes next
	enum weight_way kind = all_fits ? READER_MMAP : choose_way(r, &mapped, &direct);
	enum err e = weight_reader_open(kind, r->c.files, &r->reader, &why);
	if (e == ERR_UNSUPPORTED) {
		say(r, LOG_WARNING, why.text);
		kind = kind == READER_MMAP ? READER_DIRECT : READER_MMAP;
		e = weight_reader_open(kind, r->c.files, &r->reader, &why);
	}
	if (e != OK)
		return errmsg_fail(em, e, "%s", why.text);
	r->layout = kind == READER_MMAP ? mapped : direct;
	if (kind == READER_MMAP ? fits_mapped : fits_direct)
		return OK;
	uint64_t have = kind == READER_MMAP ? l->bytes : l->anon_bytes, want = window_layout_least(unit_bytes, r->c.units->n);
	r->layout = (struct window_layout){0};
	return errmsg_fail(em, ERR_LIMIT, "weights: %.1f MiB are left for them%s, and the smallest window takes %.1f MiB", (double)have / 1048576,
		kind == READER_DIRECT ? " by reader direct" : "", (double)want / 1048576);
}

// place_memory gives every place of the direct reader its part of one allocation.
static enum err place_memory(struct residency *r, const uint64_t *unit_bytes, struct errmsg *em)
{
	if (weight_reader_kind(r->reader) != READER_DIRECT)
		return OK;
	r->memory_bytes = r->layout.pinned_bytes + r->layout.window_bytes;
	r->memory = weight_reader_memory(r->memory_bytes);
	if (r->memory == NULL)
		return errmsg_fail(em, ERR_NOMEM, "cannot allocate %.1f MiB for weights", (double)r->memory_bytes / 1048576);
	uint8_t *at = r->memory;
	for (int32_t i = 0; i < r->c.units->n; i++) {
		if (r->stream_idx[i] >= 0)
			continue;
		r->pins[i].memory = at;
		at += unit_bytes[i];
	}
	for (int32_t i = 0; i < r->layout.window; i++)
		r->slots[i].place.memory = at + (uint64_t)i * (r->layout.window_bytes / (uint64_t)r->layout.window);
	return OK;
}

static void list_streamed(struct residency *r)
{
	int32_t n = 0;
	for (int32_t i = 0; i < r->c.units->n; i++) {
		r->stream_idx[i] = -1;
		if (!window_layout_is_streamed(&r->layout, i))
			continue;
		r->streamed[n] = i;
		r->stream_idx[i] = n++;
	}
	ASSERT(n == r->layout.n_streamed);
}

// next_pin returns the first pinned unit from i on, or n.
static int32_t next_pin(const struct residency *r, int32_t i)
{
	while (i < r->c.units->n && r->stream_idx[i] >= 0)
		i++;
	return i;
}

// lies_in_map: everything stays, and fits in whole huge pages too. Then it lies where it would without a cap, and is as fast.
static bool lies_in_map(const struct residency *r)
{
	return r->layout.n_streamed == 0 && r->c.files->map != NULL && weight_reader_kind(r->reader) == READER_MMAP &&
		weight_reader_huge_bytes(r->c.units) <= r->c.limits.bytes;
}

static enum err read_pins(struct residency *r, struct errmsg *em)
{
	const struct unit_table *t = r->c.units;
	bool in_map = lies_in_map(r);
	for (int32_t k = 0; k < t->n; k++)
		r->pins[k].in_map = in_map;
	int32_t i = next_pin(r, 0);
	if (i < t->n)
		weight_reader_begin(r->reader, &t->units[i], &r->pins[i]);
	r->is_locked = true;
	while (i < t->n) {
		int32_t next = next_pin(r, i + 1);
		if (next < t->n)
			weight_reader_begin(r->reader, &t->units[next], &r->pins[next]);
		enum err e = weight_reader_finish(r->reader, &t->units[i], &r->pins[i], em);
		if (e != OK) {
			if (next < t->n && weight_reader_finish(r->reader, &t->units[next], &r->pins[next], NULL) != OK)
				r->is_locked = false; // what was begun has ended: all that counts here
			return e;
		}
		memcpy(r->views[i].parts, r->pins[i].views, sizeof r->pins[i].views);
		r->is_locked = r->is_locked && weight_reader_lock(r->reader, &t->units[i], &r->pins[i]);
		i = next;
	}
	return OK;
}

static enum err start_threads(struct residency *r, struct errmsg *em)
{
	r->has_reading = thread_start(&r->reading, reading_thread, r);
	r->has_dropping = r->has_reading && thread_start(&r->dropping, dropping_thread, r);
	return r->has_dropping ? OK : errmsg_fail(em, ERR_LIMIT, "cannot start the threads that read weights ahead");
}

static enum err open_capped(struct residency *r, struct errmsg *em)
{
	size_t n = (size_t)r->c.units->n + 1;
	uint64_t *unit_bytes = memory_of_units(r->c.units);
	r->pins = calloc(n, sizeof *r->pins);
	r->stream_idx = calloc(n, sizeof *r->stream_idx);
	r->streamed = calloc(n, sizeof *r->streamed);
	enum err e = unit_bytes && r->pins && r->stream_idx && r->streamed ? OK : errmsg_fail(em, ERR_NOMEM, "no memory for the table of weights");
	if (e == OK)
		e = open_reader(r, unit_bytes, em);
	if (e == OK) {
		list_streamed(r);
		r->slots = calloc((size_t)r->layout.window + 1, sizeof *r->slots);
		e = r->slots != NULL ? place_memory(r, unit_bytes, em) : errmsg_fail(em, ERR_NOMEM, "no memory for the window of weights");
	}
	free(unit_bytes);
	if (e == OK) {
		weight_reader_leave_map(r->c.files, r->c.units);
		e = read_pins(r, em);
	}
	if (e == OK && r->layout.n_streamed > 0)
		e = start_threads(r, em);
	return e;
}

static void view_map(struct residency *r)
{
	for (int32_t i = 0; i < r->c.units->n; i++) {
		const struct unit *u = &r->c.units->units[i];
		for (int32_t p = 0; p < u->n_parts; p++) {
			if (u->parts[p].bytes == 0)
				continue;
			r->views[i].parts[p] = r->c.files->map + u->parts[p].at;
			weight_reader_huge(r->views[i].parts[p], u->parts[p].bytes);
		}
		r->layout.pinned_bytes += u->bytes;
	}
}

enum err residency_open(const struct residency_config *c, struct residency **out, struct errmsg *em)
{
	struct residency *r = calloc(1, sizeof *r);
	if (r == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the table of weights");
	r->c = *c;
	pthread_mutex_init(&r->mutex, NULL);
	pthread_cond_init(&r->work, NULL);
	pthread_cond_init(&r->to_drop, NULL);
	pthread_cond_init(&r->ready_cond, NULL);
	r->views = calloc((size_t)c->units->n + 1, sizeof *r->views);
	enum err e = r->views != NULL ? OK : errmsg_fail(em, ERR_NOMEM, "no memory for a table of %d weights", (int)c->units->n);
	if (e == OK && (c->limits.is_capped || c->files->map == NULL)) {
		if (!c->limits.is_capped)
			r->c.limits.bytes = r->c.limits.anon_bytes = UINT64_MAX;
		e = open_capped(r, em);
	} else if (e == OK) {
		view_map(r);
	}
	if (e != OK) {
		residency_close(r);
		return e;
	}
	*out = r;
	return OK;
}

static void stop_threads(struct residency *r)
{
	pthread_mutex_lock(&r->mutex);
	r->is_stopping = true;
	r->released = r->begun > r->released ? r->begun : r->released; // everything is dropped
	wake(r);
	pthread_mutex_unlock(&r->mutex);
	if (r->has_reading)
		pthread_join(r->reading, NULL);
	if (r->has_dropping)
		pthread_join(r->dropping, NULL);
}

void residency_close(struct residency *r)
{
	if (r == NULL)
		return;
	stop_threads(r);
	for (int32_t i = 0; r->pins != NULL && r->reader != NULL && i < r->c.units->n; i++)
		if (r->pins[i].views[0] != NULL || r->pins[i].maps[0] != NULL)
			weight_reader_drop(r->reader, &r->c.units->units[i], &r->pins[i]);
	weight_reader_close(r->reader);
	if (r->memory != NULL)
		munmap(r->memory, r->memory_bytes);
	pthread_cond_destroy(&r->work);
	pthread_cond_destroy(&r->to_drop);
	pthread_cond_destroy(&r->ready_cond);
	pthread_mutex_destroy(&r->mutex);
	free(r->slots);
	free(r->streamed);
	free(r->stream_idx);
	free(r->pins);
	free(r->views);
	free(r);
}
