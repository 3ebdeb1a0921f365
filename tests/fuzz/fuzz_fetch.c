// A fetch whose sources are members and hostile: bytes become events in any order. The invariants hold after every event, nothing is asked of who is
// not there or twice of one, only what was asked for is checked, what is stored is not fetched again; and once the coordinator answers, all of it comes.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "blocks/fetch.h"
#include "tests/support/fuzz.h"

#define S INT64_C(1000000000)
#define N_BLOCKS 70 // more than a word of a set
#define SOURCES_MAX 6
#define HANDLES 9 // 1 is the coordinator; more than there are places
#define UNDER_WAY_MAX 20
#define N_WORDS ((N_BLOCKS + 63) / 64)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct check {
	uint32_t source, block;
};

struct world {
	struct reader in;
	struct manifest manifest;
	struct fetch f;
	struct fetch_effects fx;
	uint64_t words[FETCH_SETS(SOURCES_MAX) * N_WORDS];
	uint64_t own_words[3][N_WORDS];
	struct block_set wanted, stored, arg; // stored: since the last START
	bool is_up[HANDLES];
	bool is_asked[HANDLES][N_BLOCKS]; // and no answer came
	struct check checks[UNDER_WAY_MAX];
	int32_t n_checks;
	int64_t now_ns;
	bool is_running;
	int32_t n_done, n_failed;
};

static void note(struct world *w, const struct fetch_event *ev, const struct fetch_effect *e)
{
	switch (e->type) {
	case FETCH_FX_ASK:
		require(e->source >= 1 && e->source < HANDLES && w->is_up[e->source] && e->block < N_BLOCKS);
		require(!w->is_asked[e->source][e->block]);
		require(w->is_running && block_set_has(&w->wanted, e->block) && !block_set_has(&w->stored, e->block));
		w->is_asked[e->source][e->block] = true;
		break;
	case FETCH_FX_CHECK:
		require(ev->type == FETCH_EV_BLOCK && e->source == ev->source && e->block == ev->block);
		for (int32_t i = 0; i < w->n_checks; i++)
			require(w->checks[i].block != e->block);
		require(w->n_checks < UNDER_WAY_MAX);
		w->checks[w->n_checks++] = (struct check){e->source, e->block};
		break;
	case FETCH_FX_CLOSE:
		require(e->source >= 1 && e->source < HANDLES && e->why != NULL);
		w->is_up[e->source] = false;
		memset(w->is_asked[e->source], 0, sizeof w->is_asked[e->source]);
		break;
	case FETCH_FX_DONE:
		require(w->is_running && block_set_common(&w->wanted, &w->stored) == block_set_count(&w->wanted));
		w->is_running = false;
		w->n_done++;
		break;
	case FETCH_FX_FAILED:
		require(w->is_running && e->err != OK && e->block < N_BLOCKS);
		w->is_running = false;
		w->n_failed++;
		break;
	}
}

static void step(struct world *w, struct fetch_event ev)
{
	struct fetch_progress p;
	ev.now_ns = w->now_ns;
	fetch_step(&w->f, &ev, &w->fx);
	fetch_check(&w->f);
	for (int32_t i = 0; i < w->fx.n; i++)
		note(w, &ev, &w->fx.at[i]);
	require(fetch_is_running(&w->f) == w->is_running);
	require(ev.type != FETCH_EV_TICK || fetch_deadline_ns(&w->f) > w->now_ns); // a TICK does all that is due
	fetch_progress_get(&w->f, w->now_ns, &p);
	require(p.bytes_done <= p.bytes_total && p.rate >= 0 && p.left_ns >= 0 && p.n_sources <= SOURCES_MAX);
}

static void take_set(struct world *w)
{
	uint32_t begin = reader_u8(&w->in) % N_BLOCKS, end = begin + reader_u8(&w->in) % (N_BLOCKS - begin + 1);
	uint8_t but = reader_u8(&w->in);
	block_set_clear(&w->arg);
	block_set_add_range(&w->arg, begin, end);
	if (but < N_BLOCKS)
		block_set_remove(&w->arg, but);
}

static void start(struct world *w)
{
	block_set_copy(&w->wanted, &w->arg);
	block_set_clear(&w->stored);
	w->is_running = true;
	step(w, (struct fetch_event){.type = FETCH_EV_START, .u.wanted = &w->arg});
}

// up: a new link, to which nothing that the one before it was asked for belongs.
static void up(struct world *w, uint32_t source)
{
	struct fetch_event ev = {.type = FETCH_EV_SOURCE_UP, .source = source};
	ev.u.up.is_origin = source == 1;
	ev.u.up.have = source == 1 ? NULL : &w->arg;
	w->is_up[source] = true;
	memset(w->is_asked[source], 0, sizeof w->is_asked[source]);
	step(w, ev);
}

static void down(struct world *w, uint32_t source)
{
	w->is_up[source] = false;
	memset(w->is_asked[source], 0, sizeof w->is_asked[source]);
	step(w, (struct fetch_event){.type = FETCH_EV_SOURCE_DOWN, .source = source});
}

static void block(struct world *w, uint32_t source, uint32_t b)
{
	bool was_asked = source < HANDLES && b < N_BLOCKS && w->is_asked[source][b];
	int32_t n = w->n_checks;
	if (was_asked)
		w->is_asked[source][b] = false;
	step(w, (struct fetch_event){.type = FETCH_EV_BLOCK, .source = source, .block = b});
	require(was_asked || w->n_checks == n);
}

static void refuse(struct world *w, uint32_t source, uint32_t b, enum fetch_refusal why)
{
	struct fetch_event ev = {.type = FETCH_EV_REFUSED, .source = source, .block = b, .u.refusal = why};
	if (source < HANDLES && b < N_BLOCKS)
		w->is_asked[source][b] = false;
	step(w, ev);
}

static void checked(struct world *w, int32_t i, enum fetch_check result)
{
	struct check c = w->checks[i];
	struct fetch_event ev = {.type = FETCH_EV_CHECKED, .source = c.source, .block = c.block};
	ev.u.checked.result = result;
	ev.u.checked.err = result == FETCH_CHECK_FAILED ? ERR_LIMIT : OK;
	w->checks[i] = w->checks[--w->n_checks];
	if (result == FETCH_CHECK_STORED)
		block_set_add(&w->stored, c.block);
	step(w, ev);
}

// find_asked returns the nth block a source owes, round and round; N_BLOCKS: none.
static uint32_t find_asked(const struct world *w, uint32_t source, uint32_t nth)
{
	uint32_t n = 0;
	for (uint32_t b = 0; b < N_BLOCKS; b++)
		n += w->is_asked[source][b];
	for (uint32_t b = 0, i = 0; b < N_BLOCKS && n > 0; b++)
		if (w->is_asked[source][b] && i++ == nth % n)
			return b;
	return N_BLOCKS;
}

static void one_event(struct world *w)
{
	uint8_t op = reader_u8(&w->in), x = reader_u8(&w->in);
	uint32_t source = 1 + x % (HANDLES - 1u);
	switch (op % 12) {
	case 0: take_set(w); start(w); break;
	case 1:
		w->is_running = false;
		step(w, (struct fetch_event){.type = FETCH_EV_STOP});
		break;
	case 2: take_set(w); up(w, source); break;
	case 3: down(w, source); break;
	case 4: take_set(w); step(w, (struct fetch_event){.type = FETCH_EV_HAVE, .source = source, .u.up.have = &w->arg}); break;
	case 5: step(w, (struct fetch_event){.type = FETCH_EV_HEARD, .source = x}); break;
	case 6: block(w, x, reader_u8(&w->in) < 8 ? UINT32_MAX : reader_u8(&w->in)); break; // nobody asked, most often
	case 7: block(w, source, find_asked(w, source, reader_u8(&w->in))); break;
	case 8: refuse(w, source, find_asked(w, source, x / 8), (enum fetch_refusal)(1 + reader_u8(&w->in) % 3)); break;
	case 9: refuse(w, x, reader_u8(&w->in), (enum fetch_refusal)(1 + x % 3)); break;
	case 10:
		if (w->n_checks > 0)
			checked(w, x % w->n_checks, (enum fetch_check)(reader_u8(&w->in) % 3));
		break;
	case 11:
		w->now_ns += (int64_t)x * x * (S / 500); // up to two minutes
		step(w, (struct fetch_event){.type = FETCH_EV_TICK});
		break;
	}
}

// answer lets the coordinator send what it owes, and its bytes be stored.
static void answer(struct world *w)
{
	for (uint32_t b = find_asked(w, 1, 0); b < N_BLOCKS; b = find_asked(w, 1, 0)) {
		block(w, 1, b);
		while (w->n_checks > 0)
			checked(w, 0, FETCH_CHECK_STORED);
	}
}

// heal: whatever was before, with the coordinator there everything comes. The others are silent from here on.
static void heal(struct world *w)
{
	for (uint32_t source = SOURCES_MAX + 1; source < HANDLES; source++) // a place for the coordinator
		down(w, source);
	while (w->n_checks > 0)
		checked(w, 0, FETCH_CHECK_STORED);
	block_set_clear(&w->arg);
	block_set_add_range(&w->arg, 3, N_BLOCKS);
	start(w);
	int32_t n_done = w->n_done, n_failed = w->n_failed;
	for (int32_t i = 0; w->is_running; i++) {
		require(i < 200);
		if (!w->is_up[1])
			up(w, 1);
		answer(w);
		w->now_ns += S;
		step(w, (struct fetch_event){.type = FETCH_EV_TICK});
	}
	require(w->n_done == n_done + 1 && w->n_failed == n_failed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world w = {.in = reader_init(data, size), .now_ns = 1000 * S};
	struct fetch_limits limits = fetch_limits_default;
	struct block_set *const sets[] = {&w.wanted, &w.stored, &w.arg};
	limits.sources_max = SOURCES_MAX;
	limits.window_max = 8;
	limits.under_way_max = UNDER_WAY_MAX;
	// A fetch looks at nothing else of a manifest.
	w.manifest = (struct manifest){.file_bytes = (uint64_t)N_BLOCKS * BLOCK_BYTES_MIN - 1000, .block_bytes = BLOCK_BYTES_MIN, .n_blocks = N_BLOCKS};
	for (size_t i = 0; i < ARRAY_LEN(sets); i++)
		block_set_init(sets[i], w.own_words[i], N_BLOCKS);
	fetch_init(&w.f, &w.manifest, &limits, w.words);
	while (w.in.left > 0)
		one_event(&w);
	heal(&w);
	return 0;
}
