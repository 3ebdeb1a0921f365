#include "blocks/fetch.h"

#include "base/assert.h"

#include <string.h>

#define SECOND INT64_C(1000000000)
#define WINDOW_FIRST 4
#define WINDOW_LEAST 2      // one comes while the next is read
#define SAMPLE_NS (SECOND / 2)
#define SAMPLE_WEIGHT 0.3

const struct fetch_limits fetch_limits_default = {
	.sources_max = FETCH_SOURCES_MAX,
	.window_max = 32, // 8 MiB: a gigabit link with 60 ms of delay
	.under_way_max = 96,
	.silence_ns = 10 * SECOND, // Wi-Fi stalls for seconds and lives
	.whole_ns = 60 * SECOND, // a block on a link of 35 kbit/s
	.late_ns = 3 * SECOND,
	.pause_ns = SECOND,
	.pause_max_ns = 60 * SECOND,
};

void fetch_init(struct fetch *f, const struct manifest *m, const struct fetch_limits *limits, uint64_t *words)
{
	memset(f, 0, sizeof *f);
	ASSERT(limits->sources_max <= FETCH_SOURCES_MAX);
	ASSERT(limits->window_max <= FETCH_WINDOW_MAX);
	f->manifest = m;
	f->limits = *limits;
	struct block_set *const sets[] = {&f->wanted, &f->busy, &f->members_have, &f->spare};
	size_t n = block_set_words(m->n_blocks);
	for (size_t i = 0; i < ARRAY_LEN(sets); i++)
		block_set_init(sets[i], words + i * n, m->n_blocks);
	for (int32_t i = 0; i < limits->sources_max; i++)
		block_set_init(&f->sources[i].have, words + (ARRAY_LEN(sets) + (size_t)i) * n, m->n_blocks);
}

static struct fetch_effect *add(struct fetch_effects *fx, enum fetch_effect_type type)
{
	ASSERT(fx->n < FETCH_EFFECTS_MAX);
	struct fetch_effect *e = &fx->at[fx->n++];
	*e = (struct fetch_effect){.type = type};
	return e;
}

static struct fetch_source *find_source(struct fetch *f, uint32_t handle)
{
	for (int32_t i = 0; i < f->limits.sources_max; i++)
		if (handle != 0 && f->sources[i].handle == handle)
			return &f->sources[i];
	return NULL;
}

static bool can_be_asked(const struct fetch *f, const struct fetch_source *s)
{
	return s->handle != 0 && s->is_up && s->paused_ns <= f->now_ns;
}

static struct fetch_request *find_request(struct fetch_source *s, uint32_t block)
{
	for (int32_t i = 0; i < s->n_asked; i++)
		if (s->asked[i].block == block)
			return &s->asked[i];
	return NULL;
}

static int32_t count_requests(struct fetch *f, uint32_t block)
{
	int32_t n = 0;
	for (int32_t i = 0; i < f->limits.sources_max; i++)
		n += f->sources[i].handle != 0 && find_request(&f->sources[i], block) != NULL;
	return n;
}

static bool is_owing(const struct fetch_source *s)
{
	for (int32_t i = 0; i < s->n_asked; i++)
		if (!s->asked[i].is_checking)
			return true;
	return false;
}

// settle takes a request off a source. The block is free to be asked for when nobody else has it under way.
static void settle(struct fetch *f, struct fetch_source *s, struct fetch_request *r)
{
	uint32_t block = r->block;
	*r = s->asked[--s->n_asked];
	f->n_under_way--;
	if (count_requests(f, block) == 0)
		block_set_remove(&f->busy, block);
}

// give_back returns what a source was asked for. What is being checked stays: its bytes are here.
static void give_back(struct fetch *f, struct fetch_source *s)
{
	for (int32_t i = s->n_asked - 1; i >= 0; i--) {
		if (s->asked[i].is_checking)
			continue;
		f->n_repeated += block_set_has(&f->wanted, s->asked[i].block);
		settle(f, s, &s->asked[i]);
	}
}

static void note_members(struct fetch *f)
{
	block_set_clear(&f->members_have);
	for (int32_t i = 0; i < f->limits.sources_max; i++)
		if (!f->sources[i].is_origin && can_be_asked(f, &f->sources[i]))
			block_set_join(&f->members_have, &f->sources[i].have);
}

static void pause_source(struct fetch *f, struct fetch_source *s)
{
	int64_t pause = f->limits.pause_ns;
	for (int32_t i = 0; i < s->n_failures && pause < f->limits.pause_max_ns; i++)
		pause *= 2;
	s->n_failures++;
	s->paused_ns = f->now_ns + (pause < f->limits.pause_max_ns ? pause : f->limits.pause_max_ns);
	note_members(f);
}

static void close_source(struct fetch *f, struct fetch_source *s, const char *why, struct fetch_effects *fx)
{
	give_back(f, s);
	pause_source(f, s);
	s->is_up = false;
	note_members(f);
	struct fetch_effect *e = add(fx, FETCH_FX_CLOSE);
	e->source = s->handle;
	e->why = why;
}

// ---- what to ask for

// search returns the first block from `from` on that is wanted, not under way, at this source, and, if `but`, in none of those.
static uint32_t search(const struct fetch *f, const struct fetch_source *s, const struct block_set *but, uint32_t from)
{
	for (size_t i = from / 64; i < block_set_words(f->wanted.n); i++) {
		uint64_t word = f->wanted.words[i] & ~f->busy.words[i] & s->have.words[i];
		if (but != NULL)
			word &= ~but->words[i];
		if (i == from / 64)
			word &= UINT64_MAX << (from % 64);
		if (word != 0)
			return (uint32_t)(i * 64 + (size_t)__builtin_ctzll(word));
	}
	return f->wanted.n;
}

static uint32_t search_round(const struct fetch *f, const struct fetch_source *s, const struct block_set *but)
{
	uint32_t found = search(f, s, but, s->begin);
	return found < f->wanted.n ? found : search(f, s, but, 0);
}

// find_late returns a block that others owe for longer than late_ns and that s could send instead; n_blocks: none.
static uint32_t find_late(struct fetch *f, const struct fetch_source *s)
{
	for (int32_t i = 0; i < f->limits.sources_max; i++) {
		const struct fetch_source *o = &f->sources[i];
		for (int32_t k = 0; o->handle != 0 && o != s && k < o->n_asked; k++) {
			const struct fetch_request *r = &o->asked[k];
			bool is_late = !r->is_checking && f->now_ns - r->asked_ns >= f->limits.late_ns;
			if (is_late && block_set_has(&f->wanted, r->block) && block_set_has(&s->have, r->block) && count_requests(f, r->block) == 1)
				return r->block;
		}
	}
	return f->wanted.n;
}

static uint32_t choose(struct fetch *f, const struct fetch_source *s)
{
	uint32_t block = s->is_origin ? search_round(f, s, &f->members_have) : f->wanted.n;
	if (block == f->wanted.n)
		block = search_round(f, s, NULL);
	return block < f->wanted.n ? block : find_late(f, s);
}

static bool ask_one(struct fetch *f, struct fetch_source *s, struct fetch_effects *fx)
{
	if (!can_be_asked(f, s) || s->n_asked >= s->window || f->n_under_way >= f->limits.under_way_max || fx->n >= FETCH_EFFECTS_MAX - 4)
		return false;
	uint32_t block = choose(f, s);
	if (block == f->wanted.n)
		return false;
	if (!is_owing(s)) // blocks that wait for our disk are no debt of its
		s->heard_ns = s->whole_ns = f->now_ns;
	s->asked[s->n_asked++] = (struct fetch_request){.block = block, .asked_ns = f->now_ns};
	s->begin = block + 1 < f->wanted.n ? block + 1 : 0;
	block_set_add(&f->busy, block);
	f->n_under_way++;
	struct fetch_effect *e = add(fx, FETCH_FX_ASK);
	e->source = s->handle;
	e->block = block;
	return true;
}

// pump asks each source in turn for one block more, until nobody can take another.
static void pump(struct fetch *f, struct fetch_effects *fx)
{
	bool is_asking = f->is_running;
	while (is_asking) {
		is_asking = false;
		for (int32_t i = 0; i < f->limits.sources_max; i++)
			is_asking |= ask_one(f, &f->sources[(f->turn + (uint32_t)i) % (uint32_t)f->limits.sources_max], fx);
		f->turn++;
	}
}

// ---- the end

static void stop(struct fetch *f)
{
	f->is_running = false;
	block_set_clear(&f->wanted);
}

// check_missing fails when a wanted block can come from nobody: the origin is there and has it wrong, and so has everybody else.
static void check_missing(struct fetch *f, struct fetch_effects *fx)
{
	bool has_origin = false;
	block_set_copy(&f->spare, &f->busy);
	for (int32_t i = 0; i < f->limits.sources_max; i++) {
		const struct fetch_source *s = &f->sources[i];
		if (s->handle == 0)
			continue;
		has_origin = has_origin || s->is_origin;
		block_set_join(&f->spare, &s->have);
	}
	uint32_t block = f->wanted.n;
	for (size_t i = 0; has_origin && i < block_set_words(f->wanted.n) && block == f->wanted.n; i++) {
		uint64_t word = f->wanted.words[i] & ~f->spare.words[i];
		if (word != 0)
			block = (uint32_t)(i * 64 + (size_t)__builtin_ctzll(word));
	}
	if (block == f->wanted.n)
		return;
	stop(f);
	struct fetch_effect *e = add(fx, FETCH_FX_FAILED);
	e->block = block;
	e->err = ERR_FORMAT;
}

static void check_done(struct fetch *f, struct fetch_effects *fx)
{
	if (!f->is_running || block_set_next(&f->wanted, 0) < f->wanted.n)
		return;
	stop(f);
	add(fx, FETCH_FX_DONE);
}

// ---- events

static void on_start(struct fetch *f, const struct fetch_event *ev)
{
	// What the origin had wrong may have been mended since: a new beginning asks again.
	for (int32_t i = 0; i < f->limits.sources_max; i++) {
		f->sources[i].is_wrong = false;
		if (f->sources[i].handle != 0 && f->sources[i].is_origin)
			block_set_add_range(&f->sources[i].have, 0, f->wanted.n);
	}
	block_set_copy(&f->wanted, ev->u.wanted);
	f->is_running = true;
	f->bytes_total = manifest_set_bytes(f->manifest, &f->wanted);
	f->bytes_done = 0;
	f->begin_ns = f->sample_ns = f->now_ns;
	f->sample_bytes = 0;
	f->rate = 0;
	f->n_repeated = 0;
}

// free_source returns a place for another source: an unused one, else that of one that is gone and owes nothing. The first is kept for the
// origin, however many members were here before it.
static struct fetch_source *free_source(struct fetch *f, bool is_origin)
{
	struct fetch_source *gone = NULL;
	for (int32_t i = is_origin ? 0 : 1; i < f->limits.sources_max; i++) {
		struct fetch_source *s = &f->sources[i];
		if (s->handle == 0)
			return s;
		if (!s->is_up && !s->is_origin && s->n_asked == 0)
			gone = s;
	}
	return gone;
}

static void note_have(struct fetch_source *s, const struct block_set *have)
{
	if (have != NULL && !s->is_origin && !s->is_wrong)
		block_set_copy(&s->have, have);
}

static void on_source_up(struct fetch *f, const struct fetch_event *ev)
{
	struct fetch_source *s = find_source(f, ev->source);
	if (s == NULL)
		s = free_source(f, ev->u.up.is_origin);
	if (s == NULL)
		return; // enough of them
	if (s->handle != ev->source) {
		struct block_set have = s->have;
		*s = (struct fetch_source){.handle = ev->source, .have = have};
		block_set_clear(&s->have);
		s->is_origin = ev->u.up.is_origin;
		if (s->is_origin)
			block_set_add_range(&s->have, 0, s->have.n);
		// Each begins elsewhere, so that two who fetch the same do not get the same blocks first.
		s->begin = (uint32_t)((uint64_t)ev->source * 2654435761u % (f->wanted.n > 0 ? f->wanted.n : 1));
	}
	note_have(s, ev->u.up.have);
	give_back(f, s);
	s->is_up = true;
	s->n_unasked = 0;
	s->heard_ns = f->now_ns;
	s->window = WINDOW_FIRST < f->limits.window_max ? WINDOW_FIRST : f->limits.window_max;
	s->rate_begin_ns = f->now_ns;
	s->rate_blocks = 0;
	note_members(f);
}

static void on_source_down(struct fetch *f, struct fetch_source *s)
{
	if (s == NULL || !s->is_up)
		return;
	give_back(f, s);
	s->is_up = false;
	note_members(f);
}

// adapt keeps as many requests under way as a source answers in about a second.
static void adapt(struct fetch *f, struct fetch_source *s)
{
	s->rate_blocks++;
	int64_t span = f->now_ns - s->rate_begin_ns;
	bool is_full = s->n_asked + 1 >= s->window;
	if (span < SECOND / 4) {
		if (is_full && s->window < f->limits.window_max && s->rate_blocks > s->window)
			s->window++; // faster than was thought: no need to wait for the end of the count
		return;
	}
	int64_t per_second = s->rate_blocks * SECOND / span;
	int32_t fits = per_second < f->limits.window_max ? (int32_t)per_second : f->limits.window_max;
	if (is_full || fits > s->window)
		s->window = fits > WINDOW_LEAST ? fits : WINDOW_LEAST;
	s->rate_begin_ns = f->now_ns;
	s->rate_blocks = 0;
}

static void on_block(struct fetch *f, struct fetch_source *s, uint32_t block, struct fetch_effects *fx)
{
	if (s == NULL)
		return;
	s->heard_ns = f->now_ns;
	struct fetch_request *r = find_request(s, block);
	if (r == NULL || r->is_checking) { // not asked for, or given up meanwhile
		if (s->is_up && ++s->n_unasked > FETCH_WINDOW_MAX)
			close_source(f, s, "it sends blocks that nobody asked for", fx);
		return;
	}
	s->whole_ns = f->now_ns;
	s->n_blocks++;
	adapt(f, s);
	bool is_late = !block_set_has(&f->wanted, block); // another was faster
	for (int32_t i = 0; i < f->limits.sources_max && !is_late; i++) {
		struct fetch_request *o = f->sources[i].handle != 0 && &f->sources[i] != s ? find_request(&f->sources[i], block) : NULL;
		is_late = o != NULL && o->is_checking;
	}
	if (is_late) {
		settle(f, s, r);
		return;
	}
	r->is_checking = true;
	struct fetch_effect *e = add(fx, FETCH_FX_CHECK);
	e->source = s->handle;
	e->block = block;
}

static void on_refused(struct fetch *f, struct fetch_source *s, uint32_t block, enum fetch_refusal why, struct fetch_effects *fx)
{
	if (s == NULL)
		return;
	s->heard_ns = f->now_ns;
	s->n_refused++;
	if (why == FETCH_REFUSED_FOREIGN) {
		block_set_clear(&s->have);
		close_source(f, s, "it serves another model", fx);
		return;
	}
	struct fetch_request *r = find_request(s, block);
	if (r == NULL || r->is_checking)
		return;
	settle(f, s, r);
	f->n_repeated++;
	if (why == FETCH_REFUSED_BUSY) {
		pause_source(f, s);
		return;
	}
	block_set_remove(&s->have, block);
	note_members(f);
}

static void on_wrong(struct fetch *f, struct fetch_source *s, uint32_t block, struct fetch_effects *fx)
{
	f->n_repeated++;
	s->n_wrong++;
	s->is_wrong = !s->is_origin;
	if (s->is_wrong)
		block_set_clear(&s->have);
	else
		block_set_remove(&s->have, block);
	close_source(f, s, "it sent a block whose bytes do not match its hash", fx);
}

static void on_checked(struct fetch *f, struct fetch_source *s, const struct fetch_event *ev, struct fetch_effects *fx)
{
	struct fetch_request *r = s != NULL ? find_request(s, ev->block) : NULL;
	if (r == NULL || !r->is_checking)
		return;
	settle(f, s, r);
	if (ev->u.checked.result == FETCH_CHECK_WRONG) {
		on_wrong(f, s, ev->block, fx);
		return;
	}
	s->n_failures = 0;
	if (!block_set_has(&f->wanted, ev->block))
		return;
	if (ev->u.checked.result == FETCH_CHECK_FAILED) {
		stop(f);
		struct fetch_effect *e = add(fx, FETCH_FX_FAILED);
		e->block = ev->block;
		e->err = ev->u.checked.err;
		return;
	}
	block_set_remove(&f->wanted, ev->block);
	f->bytes_done += manifest_block_bytes(f->manifest, ev->block);
}

// ---- time

static void sample_rate(struct fetch *f)
{
	int64_t span = f->now_ns - f->sample_ns;
	if (!f->is_running || span < SAMPLE_NS)
		return;
	double rate = (double)(f->bytes_done - f->sample_bytes) * (double)SECOND / (double)span;
	f->rate = f->rate <= 0 ? rate : f->rate + SAMPLE_WEIGHT * (rate - f->rate);
	f->sample_ns = f->now_ns;
	f->sample_bytes = f->bytes_done;
}

// patience_ns returns when a source that owes blocks is given up.
static int64_t patience_ns(const struct fetch *f, const struct fetch_source *s)
{
	int64_t silent_ns = s->heard_ns + f->limits.silence_ns, none_ns = s->whole_ns + f->limits.whole_ns;
	return silent_ns < none_ns ? silent_ns : none_ns;
}

static void check_silence(struct fetch *f, struct fetch_effects *fx)
{
	for (int32_t i = 0; i < f->limits.sources_max; i++) {
		struct fetch_source *s = &f->sources[i];
		if (s->handle == 0 || !s->is_up || !is_owing(s) || f->now_ns < patience_ns(f, s))
			continue;
		s->n_silent++;
		close_source(f, s, "it was asked for blocks and sent none", fx);
	}
}

int64_t fetch_deadline_ns(const struct fetch *f)
{
	int64_t deadline = f->is_running ? f->sample_ns + SAMPLE_NS : INT64_MAX;
	for (int32_t i = 0; f->is_running && i < f->limits.sources_max; i++) {
		const struct fetch_source *s = &f->sources[i];
		if (s->handle == 0 || !s->is_up)
			continue;
		int64_t d = is_owing(s) ? patience_ns(f, s) : INT64_MAX;
		if (s->paused_ns > f->now_ns && s->paused_ns < d)
			d = s->paused_ns;
		deadline = d < deadline ? d : deadline;
	}
	return deadline;
}

void fetch_step(struct fetch *f, const struct fetch_event *ev, struct fetch_effects *fx)
{
	struct fetch_source *s = find_source(f, ev->source);
	fx->n = 0;
	f->now_ns = ev->now_ns;
	switch (ev->type) {
	case FETCH_EV_START: on_start(f, ev); break;
	case FETCH_EV_STOP: stop(f); break;
	case FETCH_EV_SOURCE_UP: on_source_up(f, ev); break;
	case FETCH_EV_SOURCE_DOWN: on_source_down(f, s); break;
	case FETCH_EV_HAVE:
		if (s != NULL)
			note_have(s, ev->u.up.have);
		break;
	case FETCH_EV_HEARD:
		if (s != NULL)
			s->heard_ns = ev->now_ns;
		break;
	case FETCH_EV_BLOCK: on_block(f, s, ev->block, fx); break;
	case FETCH_EV_REFUSED: on_refused(f, s, ev->block, ev->u.refusal, fx); break;
	case FETCH_EV_CHECKED: on_checked(f, s, ev, fx); break;
	case FETCH_EV_TICK: check_silence(f, fx); break;
	}
	if (ev->type == FETCH_EV_HAVE || ev->type == FETCH_EV_TICK)
		note_members(f); // a pause may be over
	sample_rate(f);
	check_done(f, fx);
	pump(f, fx);
	if (f->is_running && f->n_under_way == 0)
		check_missing(f, fx);
}

// ---- for the host

bool fetch_is_useful(const struct fetch *f, const struct block_set *have)
{
	return f->is_running && block_set_common(&f->wanted, have) > 0;
}

void fetch_progress_get(const struct fetch *f, int64_t now_ns, struct fetch_progress *out)
{
	int64_t span = now_ns - f->begin_ns;
	*out = (struct fetch_progress){.bytes_total = f->bytes_total, .bytes_done = f->bytes_done, .rate = f->rate, .left_ns = INT64_MAX,
		.n_repeated = f->n_repeated};
	if (out->rate <= 0 && span > 0)
		out->rate = (double)f->bytes_done * (double)SECOND / (double)span;
	double left_s = out->rate >= 1 ? (double)(f->bytes_total - f->bytes_done) / out->rate : 1e12;
	if (left_s < 1e9)
		out->left_ns = (int64_t)(left_s * (double)SECOND);
	for (int32_t i = 0; i < f->limits.sources_max; i++)
		out->n_sources += can_be_asked(f, &f->sources[i]);
}

void fetch_check(const struct fetch *f)
{
	int32_t n = 0;
	for (int32_t i = 0; i < f->limits.sources_max; i++) {
		const struct fetch_source *s = &f->sources[i];
		ASSERT(s->n_asked >= 0 && s->n_asked <= FETCH_WINDOW_MAX);
		ASSERT(s->handle != 0 || s->n_asked == 0);
		for (int32_t k = 0; k < s->n_asked; k++)
			ASSERT(block_set_has(&f->busy, s->asked[k].block));
		ASSERT(s->is_up || !is_owing(s));
		n += s->n_asked;
	}
	ASSERT(n == f->n_under_way);
	ASSERT(n <= f->limits.under_way_max);
	ASSERT(f->is_running || block_set_next(&f->wanted, 0) == f->wanted.n);
}
