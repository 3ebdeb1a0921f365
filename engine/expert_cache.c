#include "engine/expert_cache.h"

#include "base/assert.h"
#include "base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HEAT_MAX 1e100    // heats are scaled down together before they overflow
#define READS_AT_ONCE 8   // begun before the first of them is waited for

enum slot_state {
	SLOT_EMPTY,
	SLOT_WANTED,  // the thread is to read it
	SLOT_READING,
	SLOT_READY,
	SLOT_FAILED,  // its place is empty, em tells why
};

struct slot {
	enum slot_state state;
	int32_t unit;     // -1: none
	int32_t drop;     // the unit before, which the thread is to drop; -1: none
	int32_t n_holds;  // acquired and not released, or waited for
	bool is_ahead;    // read ahead and not acquired since
	struct weight_place place;
	enum err err;
	struct errmsg em;
};

struct expert_cache {
	struct expert_cache_config c;
	struct weight_reader *reader;
	uint8_t *memory; // direct: (n_slots, as much as the largest unit takes)
	size_t memory_bytes;
	int32_t n_slots;
	struct slot *slots;   // (n_slots)
	int32_t *slot_of;     // (n units), -1: not here
	double *heat;         // (n units): its uses, each as large as `now` was then
	double now;           // grows with each acquisition: so older uses count less, without touching them
	double growth;

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t mutex; // guards slots, stats and what follows
	pthread_cond_t work, done;
	bool is_stopping;
	struct expert_cache_stats stats;
};

// ---- the thread that reads; the mutex is held, and given away while it works

// next_wanted returns a slot to read: one that somebody waits for before one that is read ahead; NULL: none.
static struct slot *next_wanted(struct expert_cache *c)
{
	struct slot *ahead = NULL;
	for (int32_t i = 0; i < c->n_slots; i++) {
		struct slot *s = &c->slots[i];
		if (s->state != SLOT_WANTED)
			continue;
		if (s->n_holds > 0)
			return s;
		ahead = s;
	}
	return ahead;
}

static void begin_read(struct expert_cache *c, struct slot *s)
{
	int32_t drop = s->drop;
	s->state = SLOT_READING;
	s->drop = -1;
	pthread_mutex_unlock(&c->mutex);
	if (drop >= 0)
		weight_reader_drop(c->reader, &c->c.units->units[drop], &s->place);
	weight_reader_begin(c->reader, &c->c.units->units[s->unit], &s->place);
	pthread_mutex_lock(&c->mutex);
}

static void finish_read(struct expert_cache *c, struct slot *s)
{
	const struct unit *u = &c->c.units->units[s->unit];
	pthread_mutex_unlock(&c->mutex);
	enum err e = weight_reader_finish(c->reader, u, &s->place, &s->em);
	pthread_mutex_lock(&c->mutex);
	s->err = e;
	s->state = e == OK ? SLOT_READY : SLOT_FAILED;
	if (e == OK) {
		c->stats.read_bytes += u->bytes;
		c->stats.ahead_bytes += s->is_ahead ? u->bytes : 0;
	}
	pthread_cond_broadcast(&c->done);
}

static void *reading_thread(void *ctx)
{
	struct expert_cache *c = ctx;
	struct slot *begun[READS_AT_ONCE];
	pthread_mutex_lock(&c->mutex);
	while (!c->is_stopping) {
		int n = 0;
		int64_t begin_ns = thread_clock_ns();
		for (struct slot *s; n < READS_AT_ONCE && (s = next_wanted(c)) != NULL; n++) {
			if (n > 0 && s->n_holds == 0)
				break; // what somebody waits for is not kept up
			begun[n] = s;
			begin_read(c, s);
		}
		for (int i = 0; i < n; i++)
			finish_read(c, begun[i]);
		if (n > 0)
			c->stats.read_ns += thread_clock_ns() - begin_ns;
		if (n == 0 && !c->is_stopping)
			pthread_cond_wait(&c->work, &c->mutex);
	}
	pthread_mutex_unlock(&c->mutex);
	return NULL;
}

// ---- the engine's side

// free_slot returns a slot that may be taken: an empty one, or that of the unit whose uses count least. `spare_ahead` leaves alone what was
// read ahead and waits to be used. NULL: none.
static struct slot *free_slot(struct expert_cache *c, bool spare_ahead)
{
	struct slot *least = NULL;
	for (int32_t i = 0; i < c->n_slots; i++) {
		struct slot *s = &c->slots[i];
		if (s->state == SLOT_EMPTY)
			return s;
		if (s->n_holds > 0 || s->state == SLOT_READING || (spare_ahead && s->is_ahead))
			continue;
		if (least == NULL || c->heat[s->unit] < c->heat[least->unit])
			least = s;
	}
	return least;
}

// take_slot lets go of what a slot has and makes it the unit's.
static void take_slot(struct expert_cache *c, struct slot *s, int32_t unit, bool is_ahead)
{
	if (s->unit >= 0) {
		c->slot_of[s->unit] = -1;
		if (s->state == SLOT_READY) {
			s->drop = s->unit;
			c->stats.wasted_bytes += s->is_ahead ? c->c.units->units[s->unit].bytes : 0;
		}
	}
	s->unit = unit;
	s->state = SLOT_WANTED;
	s->is_ahead = is_ahead;
	c->slot_of[unit] = (int32_t)(s - c->slots);
}

static struct slot *slot_with(const struct expert_cache *c, int32_t unit)
{
	return c->slot_of[unit] >= 0 ? &c->slots[c->slot_of[unit]] : NULL;
}

// empty_failed makes a slot that could not be read free again.
static void empty_failed(struct expert_cache *c, struct slot *s)
{
	c->slot_of[s->unit] = -1;
	s->unit = -1;
	s->state = SLOT_EMPTY;
}

// hold_units gives each unit a slot that nobody takes away. Those that are here first: else one of them could be taken for another.
static void hold_units(struct expert_cache *c, const int32_t *units, int32_t n)
{
	for (int32_t i = 0; i < n; i++) {
		struct slot *s = slot_with(c, units[i]);
		if (s != NULL)
			s->n_holds++;
	}
	for (int32_t i = 0; i < n; i++) {
		struct slot *s = slot_with(c, units[i]);
		c->stats.acquired_bytes += c->c.units->units[units[i]].bytes;
		if (s != NULL && s->state == SLOT_FAILED)
			s->state = SLOT_WANTED; // a second try
		if (s != NULL)
			continue;
		while ((s = free_slot(c, true)) == NULL && (s = free_slot(c, false)) == NULL)
			pthread_cond_wait(&c->done, &c->mutex); // every other slot is being read ahead
		take_slot(c, s, units[i], false);
		s->n_holds++;
	}
}

static void count_uses(struct expert_cache *c, const int32_t *units, int32_t n)
{
	c->now *= c->growth;
	for (int32_t i = 0; i < n; i++)
		c->heat[units[i]] += c->now;
	if (c->now < HEAT_MAX)
		return;
	for (int32_t i = 0; i < c->c.units->n; i++)
		c->heat[i] /= HEAT_MAX;
	c->now /= HEAT_MAX;
}

enum err expert_cache_acquire(struct expert_cache *c, const int32_t *units, int32_t n, struct errmsg *em)
{
	enum err e = OK;
	ASSERT(n <= c->n_slots);
	pthread_mutex_lock(&c->mutex);
	int64_t begin_ns = thread_clock_ns();
	count_uses(c, units, n);
	hold_units(c, units, n);
	pthread_cond_signal(&c->work);
	for (int32_t i = 0; i < n; i++) {
		struct slot *s = slot_with(c, units[i]);
		while (s->state == SLOT_WANTED || s->state == SLOT_READING)
			pthread_cond_wait(&c->done, &c->mutex);
		if (s->state == SLOT_FAILED && e == OK)
			e = errmsg_fail(em, s->err, "%s", s->em.text);
		s->is_ahead = false;
	}
	c->stats.stall_ns += thread_clock_ns() - begin_ns;
	pthread_mutex_unlock(&c->mutex);
	if (e != OK)
		expert_cache_release(c, units, n);
	return e;
}

void expert_cache_release(struct expert_cache *c, const int32_t *units, int32_t n)
{
	pthread_mutex_lock(&c->mutex);
	for (int32_t i = 0; i < n; i++) {
		struct slot *s = slot_with(c, units[i]);
		ASSERT(s != NULL);
		ASSERT(s->n_holds > 0);
		s->n_holds--;
		if (s->state == SLOT_FAILED && s->n_holds == 0)
			empty_failed(c, s);
	}
	pthread_mutex_unlock(&c->mutex);
}

void expert_cache_expect(struct expert_cache *c, const int32_t *units, int32_t n)
{
	pthread_mutex_lock(&c->mutex);
	for (int32_t i = 0; i < n; i++) {
		struct slot *s = slot_with(c, units[i]) == NULL ? free_slot(c, true) : NULL;
		if (s != NULL)
			take_slot(c, s, units[i], true);
	}
	pthread_cond_signal(&c->work);
	pthread_mutex_unlock(&c->mutex);
}

const void *expert_cache_view(const struct expert_cache *c, int32_t unit, int32_t part)
{
	return c->slots[c->slot_of[unit]].place.views[part];
}

static bool is_reading(const struct expert_cache *c)
{
	for (int32_t i = 0; i < c->n_slots; i++)
		if (c->slots[i].state == SLOT_WANTED || c->slots[i].state == SLOT_READING)
			return true;
	return false;
}

void expert_cache_settle(struct expert_cache *c)
{
	pthread_mutex_lock(&c->mutex);
	while (is_reading(c))
		pthread_cond_wait(&c->done, &c->mutex);
	pthread_mutex_unlock(&c->mutex);
}

void expert_cache_get_stats(struct expert_cache *c, struct expert_cache_stats *out)
{
	pthread_mutex_lock(&c->mutex);
	*out = c->stats;
	for (int32_t i = 0; i < c->n_slots; i++)
		if (c->slots[i].state == SLOT_READY && c->slots[i].is_ahead)
			out->unused_bytes += c->c.units->units[c->slots[i].unit].bytes;
	pthread_mutex_unlock(&c->mutex);
	out->n_slots = c->n_slots;
}

int32_t expert_cache_n_slots(const struct expert_cache *c)
{
	return c->n_slots;
}

// ---- opening

uint64_t expert_cache_least(const struct unit_table *units, int32_t n_slots)
{
	return weight_reader_largest(units) * (uint64_t)(n_slots < units->n ? n_slots : units->n);
}

static enum err allocate(struct expert_cache *c, struct errmsg *em)
{
	uint64_t each = weight_reader_largest(c->c.units), fit = c->c.bytes / each;
	int32_t n = c->c.units->n, least = c->c.n_slots_min < n ? c->c.n_slots_min : n;
	if (fit < (uint64_t)least)
		return errmsg_fail(em, ERR_LIMIT, "experts: %.1f MiB are left for them, and the %d that are used at once take %.1f MiB",
			(double)c->c.bytes / 1048576, (int)least, (double)least * (double)each / 1048576);
	c->n_slots = fit < (uint64_t)n ? (int32_t)fit : n;
	c->slots = calloc((size_t)c->n_slots, sizeof *c->slots);
	c->slot_of = malloc((size_t)n * sizeof *c->slot_of);
	c->heat = calloc((size_t)n, sizeof *c->heat);
	if (c->slots == NULL || c->slot_of == NULL || c->heat == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a table of %d experts", (int)n);
	memset(c->slot_of, 0xff, (size_t)n * sizeof *c->slot_of);
	for (int32_t i = 0; i < c->n_slots; i++)
		c->slots[i].unit = c->slots[i].drop = -1;
	if (c->c.reader != READER_DIRECT)
		return OK;
	c->memory_bytes = each * (uint64_t)c->n_slots;
	c->memory = weight_reader_memory(c->memory_bytes);
	if (c->memory == NULL)
		return errmsg_fail(em, ERR_NOMEM, "cannot allocate %.1f MiB for experts", (double)c->memory_bytes / 1048576);
	for (int32_t i = 0; i < c->n_slots; i++)
		c->slots[i].place.memory = c->memory + each * (uint64_t)i;
	return OK;
}

static enum err start_thread(struct expert_cache *c, struct errmsg *em)
{
	c->has_thread = thread_start(&c->thread, reading_thread, c);
	return c->has_thread ? OK : errmsg_fail(em, ERR_LIMIT, "cannot start the thread that reads experts");
}

enum err expert_cache_open(const struct expert_cache_config *config, struct expert_cache **out, struct errmsg *em)
{
	ASSERT(config->units->n > 0);
	ASSERT(config->steps_remembered > 0);
	struct expert_cache *c = calloc(1, sizeof *c);
	if (c == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a table of experts");
	c->c = *config;
	c->now = 1;
	c->growth = 1 + 0.69 / config->steps_remembered; // doubles after so many
	pthread_mutex_init(&c->mutex, NULL);
	pthread_cond_init(&c->work, NULL);
	pthread_cond_init(&c->done, NULL);
	enum err e = weight_reader_open(config->reader, config->files, &c->reader, em);
	weight_reader_leave_map(c->c.files, c->c.units);
	if (e == OK)
		e = allocate(c, em);
	if (e == OK)
		e = start_thread(c, em);
	if (e != OK) {
		expert_cache_close(c);
		return e;
	}
	*out = c;
	return OK;
}

static void stop_thread(struct expert_cache *c)
{
	pthread_mutex_lock(&c->mutex);
	c->is_stopping = true;
	pthread_cond_signal(&c->work);
	pthread_mutex_unlock(&c->mutex);
	pthread_join(c->thread, NULL);
}

void expert_cache_close(struct expert_cache *c)
{
	if (c == NULL)
		return;
	if (c->has_thread)
		stop_thread(c);
	for (int32_t i = 0; c->slots != NULL && i < c->n_slots; i++) {
		struct slot *s = &c->slots[i];
		int32_t unit = s->state == SLOT_READY ? s->unit : s->drop;
		if (unit >= 0)
			weight_reader_drop(c->reader, &c->c.units->units[unit], &s->place);
	}
	weight_reader_close(c->reader);
	if (c->memory != NULL)
		munmap(c->memory, c->memory_bytes);
	pthread_cond_destroy(&c->work);
	pthread_cond_destroy(&c->done);
	pthread_mutex_destroy(&c->mutex);
	free(c->heat);
	free(c->slot_of);
	free(c->slots);
	free(c);
}
