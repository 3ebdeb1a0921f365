#include "sim/transfer.h"

#include "base/assert.h"
#include "base/rng.h"
#include "blocks/fetch.h"
#include "blocks/upload.h"
#include "sim/event_queue.h"
#include "sim/network.h"
#include "sim/sim_mix.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S INT64_C(1000000000)
#define MS INT64_C(1000000)
#define BLOCK 4096u
#define MACHINES_MAX 5
#define BLOCKS_MAX_HERE 64
#define EVENTS_MAX 8192
#define FAULTS_MAX 6
#define SOURCES (MACHINES_MAX + 1)
#define FAULTS_NS (20 * S)
#define HEAL_NS (30 * S)
#define CALM_NS (150 * S) // after it everything is there: pauses of a minute, and the rest is seconds
#define TICK_NS (S / 2)

enum damage { GOOD, FLIPPED, ANOTHER, SHORT, ABSENT };
enum event_kind { EV_ASK, EV_BLOCK, EV_REFUSE, EV_READ, EV_STORE, EV_LOOK, EV_UPLOAD, EV_DIALLED, EV_BEGIN, EV_END };

struct event {
	enum event_kind kind;
	int32_t a, b; // dialler and server of a connection; or machine
	uint32_t gen; // of the connection; STORE: the machine's life
	uint32_t block;
	enum damage damage;
};

struct conn {
	bool is_up, is_dialling;
	uint32_t gen;
	int32_t flow;
};

struct machine {
	uint32_t life; // grows with each start of its process
	bool is_up, is_full, looks; // looks: it compares what it reads before it gives it
	bool is_wanting;            // its fetch failed, and is to begin again
	enum damage has[BLOCKS_MAX_HERE];
	uint64_t words[4];
	struct block_set wanted, have, missing;
	struct fetch fetch;
	uint64_t *fetch_words;
	struct upload upload;
	int64_t upload_at_ns;
};

struct fault {
	enum transfer_fault kind;
	int32_t a, b;
	int64_t at_ns, for_ns;
};

struct world {
	struct transfer_result *r;
	struct rng rng;
	struct arena arena;
	struct network net;
	struct event_queue queue;
	struct event events[EVENTS_MAX];
	int64_t now_ns;
	int32_t n_machines;
	uint32_t n_blocks;
	uint8_t *bytes, *manifest_bytes;
	struct manifest manifest;
	struct machine machines[MACHINES_MAX];
	struct conn conns[MACHINES_MAX][MACHINES_MAX];
	uint32_t last_gen;
	struct fault faults[FAULTS_MAX];
	int32_t n_faults;
};

static void fail(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void fail(struct world *w, const char *fmt, ...)
{
	va_list ap;
	if (w->r->failed)
		return;
	w->r->failed = true;
	w->r->failed_ns = w->now_ns;
	va_start(ap, fmt);
	vsnprintf(w->r->failure, sizeof w->r->failure, fmt, ap);
	va_end(ap);
}

static void later(struct world *w, int64_t at_ns, struct event e)
{
	uint32_t place = event_queue_push(&w->queue, at_ns);
	if (place == EVENT_NONE) {
		fail(w, "more than %d events wait", EVENTS_MAX);
		return;
	}
	w->events[place] = e;
}

static uint32_t handle_of(const struct world *w, int32_t machine)
{
	(void)w;
	return (uint32_t)machine + 1;
}

// ---- connections

static void run_fetch(struct world *w, int32_t m, struct fetch_event ev, enum damage damage);
static void run_upload(struct world *w, int32_t m, struct upload_event ev);

static void close_conn(struct world *w, int32_t a, int32_t b)
{
	struct conn *c = &w->conns[a][b];
	if (!c->is_up)
		return;
	c->is_up = false;
	network_close_flow(&w->net, c->flow);
	run_upload(w, b, (struct upload_event){.type = UPLOAD_EV_CLIENT_DOWN, .client = c->gen});
	run_fetch(w, a, (struct fetch_event){.type = FETCH_EV_SOURCE_DOWN, .source = handle_of(w, b)}, GOOD);
}

// send_message sends on a connection; what is swallowed is gone: its dialler closes a silent one.
static void send_message(struct world *w, struct event e, bool is_back, size_t bytes)
{
	struct conn *c = &w->conns[e.a][e.b];
	int64_t at_ns;
	if (!c->is_up)
		return;
	e.gen = c->gen;
	switch (network_send(&w->net, c->flow, is_back ? NETWORK_BACK : NETWORK_FORWARD, bytes, w->now_ns, &at_ns)) {
	case NETWORK_ARRIVES: later(w, at_ns, e); break;
	case NETWORK_SWALLOWED: break;
	case NETWORK_RESET: close_conn(w, e.a, e.b); break;
	}
}

static void see_have(struct world *w, int32_t a, int32_t b)
{
	struct machine *m = &w->machines[a];
	block_set_clear(&m->have);
	for (uint32_t i = 0; i < w->n_blocks; i++)
		if (w->machines[b].has[i] != ABSENT)
			block_set_add(&m->have, i);
}

static void on_dialled(struct world *w, const struct event *e)
{
	struct conn *c = &w->conns[e->a][e->b];
	c->is_dialling = false;
	if (c->is_up || !w->machines[e->a].is_up || !w->machines[e->b].is_up || network_open_flow(&w->net, e->a, e->b, &c->flow) != OK)
		return;
	int64_t at_ns;
	if (network_send(&w->net, c->flow, NETWORK_FORWARD, 0, w->now_ns, &at_ns) != NETWORK_ARRIVES) {
		network_close_flow(&w->net, c->flow); // the handshake does not get through
		return;
	}
	c->is_up = true;
	c->gen = ++w->last_gen;
	run_upload(w, e->b, (struct upload_event){.type = UPLOAD_EV_CLIENT_UP, .client = c->gen});
	see_have(w, e->a, e->b);
	struct fetch_event ev = {.type = FETCH_EV_SOURCE_UP, .source = handle_of(w, e->b)};
	ev.u.up.is_origin = e->b == 0;
	ev.u.up.have = e->b == 0 ? NULL : &w->machines[e->a].have;
	run_fetch(w, e->a, ev, GOOD);
}

static void dial(struct world *w, int32_t a, int32_t b)
{
	struct conn *c = &w->conns[a][b];
	if (c->is_up || c->is_dialling)
		return;
	c->is_dialling = true;
	later(w, w->now_ns + 100 * MS + (int64_t)rng_below(&w->rng, (uint64_t)S), (struct event){.kind = EV_DIALLED, .a = a, .b = b});
}

// ---- fetching

static void start_fetch(struct world *w, int32_t m)
{
	struct machine *mc = &w->machines[m];
	block_set_clear(&mc->missing);
	for (uint32_t i = 0; i < w->n_blocks; i++)
		if (block_set_has(&mc->wanted, i) && mc->has[i] != GOOD) // what is damaged is found when it is read
			block_set_add(&mc->missing, i);
	struct fetch_event ev = {.type = FETCH_EV_START};
	ev.u.wanted = &mc->missing;
	mc->is_wanting = false;
	run_fetch(w, m, ev, GOOD);
}

static void carry_out(struct world *w, int32_t m, const struct fetch_effect *fx, enum damage damage)
{
	int32_t b = (int32_t)fx->source - 1;
	switch (fx->type) {
	case FETCH_FX_ASK: send_message(w, (struct event){.kind = EV_ASK, .a = m, .b = b, .block = fx->block}, false, 8); break;
	case FETCH_FX_CHECK:
		later(w, w->now_ns + MS + (int64_t)rng_below(&w->rng, 20 * (uint64_t)MS),
			(struct event){.kind = EV_STORE, .a = m, .b = b, .gen = w->machines[m].life, .block = fx->block, .damage = damage});
		break;
	case FETCH_FX_CLOSE: close_conn(w, m, b); break;
	case FETCH_FX_DONE: break;
	case FETCH_FX_FAILED: w->machines[m].is_wanting = true; break;
	}
}

static void run_fetch(struct world *w, int32_t m, struct fetch_event ev, enum damage damage)
{
	struct fetch_effects fx;
	if (m == 0)
		return; // the coordinator has all
	ev.now_ns = w->now_ns;
	fetch_step(&w->machines[m].fetch, &ev, &fx);
	fetch_check(&w->machines[m].fetch);
	for (int32_t i = 0; i < fx.n; i++)
		carry_out(w, m, &fx.at[i], damage);
}

// bytes_of makes what a source sends for a block of its own.
static size_t bytes_of(const struct world *w, uint32_t block, enum damage damage, uint8_t out[BLOCK])
{
	uint32_t from = damage == ANOTHER ? (block + 1) % w->n_blocks : block;
	memcpy(out, w->bytes + (size_t)from * BLOCK, BLOCK);
	if (damage == FLIPPED)
		out[block * 61 % BLOCK] ^= (uint8_t)(1u << block % 8);
	return damage == SHORT ? BLOCK - 1 : BLOCK;
}

// on_store is the receiver's disk: compares, stores, and looks with other eyes whether that was right.
static void on_store(struct world *w, const struct event *e)
{
	struct machine *m = &w->machines[e->a];
	uint8_t buf[BLOCK];
	size_t len = bytes_of(w, e->block, e->damage, buf);
	struct fetch_event ev = {.type = FETCH_EV_CHECKED, .source = handle_of(w, e->b), .block = e->block};
	if (!m->is_up || m->life != e->gen)
		return; // it died with the bytes
	if (!manifest_block_matches(&w->manifest, e->block, buf, len)) {
		ev.u.checked.result = FETCH_CHECK_WRONG;
		w->r->n_wrong++;
	} else if (m->is_full) {
		ev.u.checked.result = FETCH_CHECK_FAILED;
		ev.u.checked.err = ERR_LIMIT;
		w->r->n_full++;
	} else {
		ev.u.checked.result = FETCH_CHECK_STORED;
		if (m->has[e->block] == GOOD)
			fail(w, "machine %d stored block %u twice", (int)e->a, (unsigned)e->block);
		m->has[e->block] = e->damage;
		w->r->n_stored++;
		if (len != BLOCK || memcmp(buf, w->bytes + (size_t)e->block * BLOCK, BLOCK) != 0)
			fail(w, "machine %d stored block %u, which differs from the model's", (int)e->a, (unsigned)e->block);
	}
	run_fetch(w, e->a, ev, GOOD);
}

// ---- serving

static void run_upload(struct world *w, int32_t m, struct upload_event ev)
{
	struct machine *mc = &w->machines[m];
	struct upload_effects fx;
	ev.now_ns = w->now_ns;
	upload_step(&mc->upload, &ev, &fx);
	upload_check(&mc->upload);
	for (int32_t i = 0; i < fx.n; i++) {
		struct event e = {.kind = EV_READ, .b = m, .gen = fx.at[i].client, .block = fx.at[i].block};
		for (e.a = 0; e.a < w->n_machines - 1 && w->conns[e.a][m].gen != e.gen; e.a++) {
		}
		if (fx.at[i].type == UPLOAD_FX_READ)
			later(w, w->now_ns + MS + (int64_t)rng_below(&w->rng, 5 * (uint64_t)MS), e);
		else
			send_message(w, (struct event){.kind = EV_REFUSE, .a = e.a, .b = m, .block = e.block, .damage = ABSENT}, true, 8);
	}
	int64_t at_ns = upload_deadline_ns(&mc->upload);
	if (at_ns != INT64_MAX && mc->upload_at_ns <= w->now_ns) {
		mc->upload_at_ns = at_ns;
		later(w, at_ns, (struct event){.kind = EV_UPLOAD, .a = m});
	}
}

static void on_read(struct world *w, const struct event *e)
{
	struct machine *m = &w->machines[e->b];
	enum damage has = m->has[e->block];
	bool is_there = w->conns[e->a][e->b].is_up && w->conns[e->a][e->b].gen == e->gen;
	if (is_there && (has == ABSENT || (has != GOOD && m->looks)))
		send_message(w, (struct event){.kind = EV_REFUSE, .a = e->a, .b = e->b, .block = e->block}, true, 8);
	else if (is_there)
		send_message(w, (struct event){.kind = EV_BLOCK, .a = e->a, .b = e->b, .block = e->block, .damage = has}, true, BLOCK + 8);
	run_upload(w, e->b, (struct upload_event){.type = UPLOAD_EV_DONE, .client = e->gen, .block = e->block});
}

// ---- faults

// begin_life: a process knows nothing of the one before it but what is on the disk.
static void begin_life(struct world *w, int32_t m)
{
	struct fetch_limits limits = fetch_limits_default;
	limits.sources_max = SOURCES;
	limits.under_way_max = 24;
	w->machines[m].life++;
	w->machines[m].is_wanting = false;
	fetch_init(&w->machines[m].fetch, &w->manifest, &limits, w->machines[m].fetch_words);
}

static void crash(struct world *w, int32_t m, bool is_end)
{
	w->machines[m].is_up = is_end;
	for (int32_t i = 0; i < w->n_machines; i++) {
		close_conn(w, m, i);
		close_conn(w, i, m);
	}
	if (m == 0)
		return;
	if (!is_end)
		return;
	begin_life(w, m);
	start_fetch(w, m);
}

// spoil damages some of what a machine has. The coordinator's file is repaired at the end, a member's cache by fetching.
static void spoil(struct world *w, int32_t m, bool is_end)
{
	static const enum damage kinds[] = {FLIPPED, ANOTHER, SHORT};
	for (uint32_t i = 0; i < w->n_blocks; i++) {
		enum damage *d = &w->machines[m].has[i];
		if (is_end && m == 0)
			*d = GOOD;
		else if (!is_end && *d == GOOD && rng_below(&w->rng, 3) == 0)
			*d = kinds[rng_below(&w->rng, 3)];
	}
}

static enum err silence(struct world *w, const struct fault *f, bool is_end)
{
	if (f->kind == TRANSFER_SLOW)
		return network_slow(&w->net, f->a, f->b, is_end ? 1 : 0.1, is_end ? 1 : 10);
	return is_end ? network_heal(&w->net, f->a, f->b) : network_cut(&w->net, f->a, f->b, NETWORK_CUT_BLACK_HOLE);
}

static void on_fault(struct world *w, const struct event *e)
{
	const struct fault *f = &w->faults[e->a];
	bool is_end = e->kind == EV_END;
	w->r->faults[f->kind] += !is_end;
	switch (f->kind) {
	case TRANSFER_CRASH: crash(w, f->a, is_end); break;
	case TRANSFER_WRONG: spoil(w, f->a, is_end); break;
	case TRANSFER_FULL: w->machines[f->a].is_full = !is_end; break;
	default:
		if (silence(w, f, is_end) != OK)
			fail(w, "the network takes no more faults");
	}
}

static void draw_faults(struct world *w)
{
	w->n_faults = 2 + (int32_t)rng_below(&w->rng, FAULTS_MAX - 1);
	for (int32_t i = 0; i < w->n_faults; i++) {
		struct fault *f = &w->faults[i];
		f->kind = (enum transfer_fault)rng_below(&w->rng, TRANSFER_N_FAULTS);
		f->a = (int32_t)rng_below(&w->rng, (uint64_t)w->n_machines);
		if (f->kind == TRANSFER_FULL && f->a == 0)
			f->a = 1;
		f->b = (f->a + 1 + (int32_t)rng_below(&w->rng, (uint64_t)w->n_machines - 1)) % w->n_machines;
		f->at_ns = (int64_t)rng_below(&w->rng, (uint64_t)(rng_below(&w->rng, 4) ? 3 * S : FAULTS_NS)); // most while there is something to fetch
		f->for_ns = S / 10 + (int64_t)rng_below(&w->rng, 8 * (uint64_t)S);
		for (int32_t k = 0; k < i; k++)
			if (w->faults[k].kind == f->kind && w->faults[k].a == f->a) { // one after the other: the end of one is not the other's
				f->at_ns = HEAL_NS;
				f->for_ns = 0;
			}
		if (f->at_ns == HEAL_NS)
			continue;
		later(w, f->at_ns, (struct event){.kind = EV_BEGIN, .a = i});
		later(w, f->at_ns + f->for_ns, (struct event){.kind = EV_END, .a = i});
	}
}

// ---- the world

// on_look is what a host does twice a second: dial who could help, tell what others have, let time pass.
static void on_look(struct world *w, int32_t m)
{
	struct machine *mc = &w->machines[m];
	later(w, w->now_ns + TICK_NS, (struct event){.kind = EV_LOOK, .a = m});
	if (!mc->is_up)
		return;
	if (mc->is_wanting && !fetch_is_running(&mc->fetch) && rng_below(&w->rng, 4) == 0)
		start_fetch(w, m);
	dial(w, m, 0);
	for (int32_t b = 1; b < w->n_machines; b++) {
		if (b == m)
			continue;
		see_have(w, m, b);
		struct fetch_event ev = {.type = FETCH_EV_HAVE, .source = handle_of(w, b)};
		ev.u.up.have = &mc->have;
		if (w->conns[m][b].is_up)
			run_fetch(w, m, ev, GOOD);
		else if (fetch_is_useful(&mc->fetch, &mc->have))
			dial(w, m, b);
	}
	run_fetch(w, m, (struct fetch_event){.type = FETCH_EV_TICK}, GOOD);
}

static void on_message(struct world *w, const struct event *e)
{
	const struct conn *c = &w->conns[e->a][e->b];
	if (!c->is_up || c->gen != e->gen)
		return;
	if (e->kind == EV_ASK) {
		run_upload(w, e->b, (struct upload_event){.type = UPLOAD_EV_ASKED, .client = c->gen, .block = e->block, .bytes = BLOCK});
		return;
	}
	struct fetch_event ev = {.type = e->kind == EV_BLOCK ? FETCH_EV_BLOCK : FETCH_EV_REFUSED, .source = handle_of(w, e->b), .block = e->block};
	if (e->kind == EV_REFUSE) {
		ev.u.refusal = e->damage == ABSENT ? FETCH_REFUSED_BUSY : FETCH_REFUSED_ABSENT;
		w->r->n_refused++;
	}
	run_fetch(w, e->a, ev, e->damage);
}

static void handle(struct world *w, const struct event *e)
{
	w->r->history = sim_mix(sim_mix(sim_mix(w->r->history, (uint64_t)w->now_ns), (uint64_t)e->kind << 32 | (uint64_t)(e->a * 8 + e->b)), e->block);
	switch (e->kind) {
	case EV_ASK:
	case EV_BLOCK:
	case EV_REFUSE: on_message(w, e); break;
	case EV_READ: on_read(w, e); break;
	case EV_STORE: on_store(w, e); break;
	case EV_LOOK: on_look(w, e->a); break;
	case EV_UPLOAD: run_upload(w, e->a, (struct upload_event){.type = UPLOAD_EV_TICK}); break;
	case EV_DIALLED: on_dialled(w, e); break;
	case EV_BEGIN:
	case EV_END: on_fault(w, e); break;
	}
}

static bool has_all(const struct world *w, int32_t m)
{
	for (uint32_t i = 0; i < w->n_blocks; i++)
		if (block_set_has(&w->machines[m].wanted, i) && w->machines[m].has[i] == ABSENT)
			return false;
	return !fetch_is_running(&w->machines[m].fetch);
}

static void run(struct world *w)
{
	bool is_done = false;
	while (!w->r->failed && !is_done) {
		uint32_t place = event_queue_pop(&w->queue, HEAL_NS + CALM_NS, &w->now_ns);
		if (place == EVENT_NONE)
			break;
		struct event e = w->events[place];
		handle(w, &e);
		is_done = w->now_ns > HEAL_NS;
		for (int32_t m = 1; m < w->n_machines && is_done; m++)
			is_done = has_all(w, m);
	}
	for (int32_t m = 1; m < w->n_machines && !is_done; m++)
		if (!has_all(w, m))
			fail(w, "machine %d does not have its blocks %d s after the last fault (%u under way)", (int)m, (int)(CALM_NS / S),
				(unsigned)w->machines[m].fetch.n_under_way);
	for (int32_t m = 1; m < w->n_machines; m++)
		for (int32_t i = 0; i < MACHINES_MAX; i++)
			w->r->n_silent += w->machines[m].fetch.sources[i].n_silent;
	w->r->end_ns = w->now_ns;
}

// make_model fills the file's bytes, and its manifest without a header or tensors.
static enum err make_model(struct world *w)
{
	struct errmsg em;
	uint8_t model_hash[BLOCK_HASH_BYTES];
	size_t len = (size_t)w->n_blocks * BLOCK;
	w->bytes = malloc(len);
	struct manifest_facts f = {.model_hash = model_hash, .file_bytes = len, .block_bytes = BLOCK, .name = "simulated"};
	w->manifest_bytes = malloc(manifest_size(&f));
	if (w->bytes == NULL || w->manifest_bytes == NULL)
		return ERR_NOMEM;
	for (size_t i = 0; i < len; i += 8)
		store_u64(w->bytes + i, rng_u64(&w->rng));
	crypto_generichash(model_hash, sizeof model_hash, w->bytes, len, NULL, 0);
	struct writer wr = writer_init(w->manifest_bytes, manifest_size(&f));
	uint8_t *hash = manifest_write(&f, &wr);
	for (uint32_t i = 0; i < w->n_blocks; i++, hash += BLOCK_HASH_BYTES)
		crypto_generichash(hash, BLOCK_HASH_BYTES, w->bytes + (size_t)i * BLOCK, BLOCK, NULL, 0);
	return manifest_parse(w->manifest_bytes, wr.len, &w->manifest, &em);
}

static enum err make_machine(struct world *w, int32_t i)
{
	struct machine *m = &w->machines[i];
	m->fetch_words = calloc(FETCH_SETS(SOURCES), sizeof *m->fetch_words);
	if (m->fetch_words == NULL)
		return ERR_NOMEM;
	begin_life(w, i);
	upload_init(&m->upload, &upload_limits_default, 0);
	m->is_up = true;
	m->looks = rng_below(&w->rng, 2) == 0;
	block_set_init(&m->wanted, &m->words[0], w->n_blocks);
	block_set_init(&m->have, &m->words[1], w->n_blocks);
	block_set_init(&m->missing, &m->words[2], w->n_blocks);
	uint32_t begin = (uint32_t)rng_below(&w->rng, w->n_blocks), end = begin + 1 + (uint32_t)rng_below(&w->rng, w->n_blocks - begin);
	block_set_add_range(&m->wanted, begin, end);
	uint64_t held = rng_below(&w->rng, 3);
	for (uint32_t k = 0; k < w->n_blocks; k++)
		m->has[k] = i == 0 || rng_below(&w->rng, 4) < held ? GOOD : ABSENT;
	return OK;
}

static enum err make_network(struct world *w, uint64_t seed)
{
	static const struct network_limits limits = {.machines_max = MACHINES_MAX, .access_points_max = 1, .links_max = 16, .flows_max = 64};
	struct errmsg em;
	enum err e = arena_open(network_arena_bytes(&limits), &w->arena);
	if (e == OK)
		e = network_init(&w->net, &w->arena, &limits, sim_mix(seed, 1));
	struct network_link_params link = {.base_ns = MS + (int64_t)rng_below(&w->rng, 30 * (uint64_t)MS), .rate_bps = 200000 + rng_below(&w->rng, 1000000)};
	link.rate_back_bps = link.rate_bps;
	return e == OK ? network_default_link(&w->net, &link, &em) : e;
}

enum err transfer_run(uint64_t seed, struct transfer_result *r)
{
	*r = (struct transfer_result){.history = seed};
	struct world *w = calloc(1, sizeof *w);
	if (w == NULL)
		return ERR_NOMEM;
	w->r = r;
	rng_init(&w->rng, sim_mix(seed, 0x7472616e73666572));
	w->n_machines = 2 + (int32_t)rng_below(&w->rng, MACHINES_MAX - 1);
	w->n_blocks = 4 + (uint32_t)rng_below(&w->rng, BLOCKS_MAX_HERE - 3);
	enum err e = event_queue_open(&w->queue, EVENTS_MAX, sim_mix(seed, 2));
	if (e == OK)
		e = make_model(w);
	if (e == OK)
		e = make_network(w, seed);
	for (int32_t i = 0; i < w->n_machines && e == OK; i++)
		e = make_machine(w, i);
	if (e == OK) {
		draw_faults(w);
		for (int32_t m = 1; m < w->n_machines; m++) {
			start_fetch(w, m);
			later(w, (int64_t)rng_below(&w->rng, (uint64_t)TICK_NS), (struct event){.kind = EV_LOOK, .a = m});
		}
		run(w);
	}
	for (int32_t i = 0; i < MACHINES_MAX; i++)
		free(w->machines[i].fetch_words);
	event_queue_close(&w->queue);
	arena_close(&w->arena);
	free(w->bytes);
	free(w->manifest_bytes);
	free(w);
	return e;
}
