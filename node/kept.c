// The states a stage has sent, kept until their answer has ended: what a replacement of the next stage is fed with. The rows are the host's
// (KEEP, FETCH, DROP, and on disk KEEP_DISK, FETCH_DISK); here is what they are, where they are, and what they may take.
//
// An entry fills memory first; when there is no more, what follows goes to disk, so that its rows are a part in memory and a tail on disk. What
// nobody will ask for is dropped first: an answer's states when it ends, and those of an answer whose end we were not told of, oldest first. An
// entry for which there is no room even then is given up whole: half of an answer is of no use.
#include "node/node_state.h"

#include "base/assert.h"
#include "base/log.h"

#include <stddef.h>

#define STALE_NS INT64_C(180000000000) // of a session that is not in this plan: it has waited for longer than session_wait, or is over

static void forget_entry(struct node *n, int32_t entry, struct node_effects *fx)
{
	struct node_kept *k = &n->kept[entry];
	if (k->n_mem > 0)
		node_fx(fx, NODE_FX_DROP)->u.keep.entry = entry;
	n->kept_bytes -= (uint64_t)k->n_mem * n->kept_row_bytes;
	kept_blocks_free(&n->blocks, entry);
	*k = (struct node_kept){0};
}

void kept_end(struct node *n, struct session_id session, struct node_effects *fx)
{
	for (int32_t i = 0; i < KEPT_MAX; i++)
		if (n->kept[i].session.v == session.v && session.v != 0)
			forget_entry(n, i, fx);
}

// find returns the entry with what enters a step's first layer, whatever the round in which it was sent; -1: none has it all.
static int32_t find(const struct node *n, const struct step *s)
{
	int32_t begin = (int32_t)s->pos, end = begin + (int32_t)s->n_tokens, layer = s->layer_begin;
	for (int32_t i = (int32_t)s->slot * ROUNDS_MAX; i < ((int32_t)s->slot + 1) * ROUNDS_MAX; i++) {
		const struct node_kept *k = &n->kept[i];
		bool is_here = (k->layer == layer && end <= k->n) || (k->old_layer == layer && begin >= k->n && end <= k->old_n);
		if (k->session.v == s->session.v && is_here)
			return i;
	}
	return -1;
}

bool kept_has(const struct node *n, const struct step *s)
{
	return find(n, s) >= 0;
}

// ---- effects

// Rows [begin, end) of positions, which are in a buffer from row `row` on.
struct rows {
	int32_t entry, begin, end, buf, row;
};

static void fx_memory(struct node *n, enum node_effect_type type, const struct rows *r, struct node_effects *fx)
{
	if (r->begin >= r->end)
		return;
	struct node_effect *f = node_fx(fx, type);
	f->u.keep.entry = r->entry;
	f->u.keep.pos = r->begin;
	f->u.keep.n_tokens = r->end - r->begin;
	f->u.keep.buf = r->buf;
	f->u.keep.row_bytes = n->kept_row_bytes;
}

static void fx_disk(struct node *n, enum node_effect_type type, uint32_t id, const struct rows *r, const struct step *s, int32_t layer,
	struct node_effects *fx)
{
	struct node_disk_run runs[KEPT_BLOCKS_MAX];
	int32_t n_runs = kept_blocks_runs(&n->blocks, r->entry, r->begin, r->end, runs);
	struct node_effect *f = node_fx(fx, type);
	f->u.disk.id = id;
	f->u.disk.session = s->session;
	f->u.disk.layer = layer;
	f->u.disk.entry = r->entry;
	f->u.disk.pos = r->begin;
	f->u.disk.n_tokens = r->end - r->begin;
	f->u.disk.buf = r->buf;
	f->u.disk.row = r->row;
	f->u.disk.row_bytes = n->kept_row_bytes;
	f->u.disk.n_runs = n_runs;
	fx->n_bytes = (fx->n_bytes + 3) / 4 * 4;
	_Static_assert(_Alignof(struct node_disk_run) == 4 && offsetof(struct node_effects, bytes) % 4 == 0, "runs stand at multiples of 4");
	f->u.disk.runs = (const struct node_disk_run *)(const void *)node_fx_bytes(fx, runs, (size_t)n_runs * sizeof runs[0]);
}

// ---- keeping

static uint64_t disk_bytes(const struct node *n, int32_t n_rows)
{
	return (uint64_t)n_rows * n->blocks.frame_bytes;
}

// drop_stale gives up the entry that was added to longest ago, of those whose session has no place in this plan. False: there is none.
static bool drop_stale(struct node *n, int32_t except, struct node_effects *fx)
{
	int32_t oldest = -1;
	for (int32_t i = 0; i < KEPT_MAX; i++) {
		const struct node_kept *k = &n->kept[i];
		bool is_stale = k->n_rows > 0 && n->slots[i / ROUNDS_MAX].session.v != k->session.v && n->now_ns - k->last_ns >= STALE_NS;
		if (i != except && is_stale && (oldest < 0 || k->last_ns < n->kept[oldest].last_ns))
			oldest = i;
	}
	if (oldest >= 0)
		forget_entry(n, oldest, fx);
	return oldest >= 0;
}

// memory_for returns how many of `more` rows go to memory: none once an entry has a tail on disk.
static int32_t memory_for(const struct node *n, const struct node_kept *k, int32_t more)
{
	uint64_t n_free = (n->config.keep_bytes - n->kept_bytes) / n->kept_row_bytes;
	return k->n_mem < k->n_rows ? 0 : n_free < (uint64_t)more ? (int32_t)n_free : more;
}

// begin_write notes a write under way; 0: the disk does not keep up.
static uint32_t begin_write(struct node *n, const struct rows *r, struct session_id session)
{
	uint64_t bytes = (uint64_t)(r->end - r->begin) * n->kept_row_bytes;
	if (n->writing_bytes + bytes > NODE_KEPT_WRITING_BUFS * (uint64_t)stage_buf_bytes(n))
		return 0;
	for (int32_t i = 0; i < KEPT_WRITES_MAX; i++) {
		struct kept_write *w = &n->writes[i];
		if (w->id != 0)
			continue;
		*w = (struct kept_write){.id = ++n->next_id, .entry = r->entry, .session = session, .bytes = bytes};
		n->writing_bytes += bytes;
		n->report.disk_written += disk_bytes(n, r->end - r->begin);
		return w->id;
	}
	return 0;
}

// use_rows: rows of another size follow, those of this one are void.
static void use_rows(struct node *n, size_t row_bytes, struct node_effects *fx)
{
	if (n->kept_row_bytes == row_bytes)
		return;
	for (int32_t i = 0; i < KEPT_MAX; i++)
		forget_entry(n, i, fx);
	n->kept_row_bytes = row_bytes;
	kept_blocks_lay_out(&n->blocks, n->config.keep_disk_bytes, row_bytes);
}

void kept_put(struct node *n, const struct step *s, int32_t round, int32_t buf, size_t row_bytes, struct node_effects *fx)
{
	use_rows(n, row_bytes, fx);
	int32_t entry = (int32_t)s->slot * ROUNDS_MAX + round, layer = n->plan.layers.at[round].end;
	struct node_kept *k = &n->kept[entry];
	int32_t begin = (int32_t)s->pos, end = begin + (int32_t)s->n_tokens;
	if (begin == 0 && k->session.v != s->session.v) {
		forget_entry(n, entry, fx);
		*k = (struct node_kept){.session = s->session, .layer = layer};
	} else if (begin == 0 && k->layer != layer) {
		*k = (struct node_kept){.session = s->session, .layer = layer, .old_layer = k->layer, .old_n = k->n, .n_mem = k->n_mem, .n_rows = k->n_rows};
	}
	if (k->session.v != s->session.v || k->layer != layer || begin > k->n || end <= k->n)
		return; // a gap before it, or the very same rows
	int32_t more = end > k->n_rows ? end - k->n_rows : 0;
	while (memory_for(n, k, more) < more && drop_stale(n, entry, fx))
		;
	int32_t to_memory = memory_for(n, k, more), mem_end = k->n_mem + to_memory;
	const struct rows in_memory = {.entry = entry, .begin = begin, .end = end < mem_end ? end : mem_end, .buf = buf};
	const struct rows on_disk = {.entry = entry, .begin = begin > mem_end ? begin : mem_end, .end = end, .buf = buf,
		.row = begin > mem_end ? 0 : mem_end - begin};
	bool goes_to_disk = on_disk.begin < on_disk.end;
	uint32_t write = 0;
	if (goes_to_disk && kept_blocks_reserve(&n->blocks, entry, on_disk.begin, on_disk.end))
		write = begin_write(n, &on_disk, s->session);
	if (goes_to_disk && write == 0) {
		forget_entry(n, entry, fx);
		return;
	}
	k->n = end;
	k->n_mem = mem_end;
	k->n_rows += more;
	k->last_ns = n->now_ns;
	n->kept_bytes += (uint64_t)to_memory * row_bytes;
	fx_memory(n, NODE_FX_KEEP, &in_memory, fx);
	if (goes_to_disk)
		fx_disk(n, NODE_FX_KEEP_DISK, write, &on_disk, s, layer, fx);
}

// say_failed: once, until the disk works again.
static void say_failed(struct node *n, const char *what, enum err err, const char *text, struct node_effects *fx)
{
	if (!n->disk_has_failed)
		node_log(fx, LOG_WARNING, "kept states cannot be %s disk (%s): what is lost of them is computed again from the tokens when it is needed", what,
			text && text[0] ? text : err_words(err));
	n->disk_has_failed = true;
}

void kept_on_written(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	for (int32_t i = 0; i < KEPT_WRITES_MAX; i++) {
		struct kept_write w = n->writes[i];
		if (w.id == 0 || w.id != ev->u.disk.id)
			continue;
		n->writes[i].id = 0;
		n->writing_bytes -= w.bytes;
		n->disk_has_failed = n->disk_has_failed && ev->u.disk.err != OK;
		if (ev->u.disk.err == OK)
			return;
		say_failed(n, "written to", ev->u.disk.err, ev->u.disk.text, fx);
		if (n->kept[w.entry].session.v == w.session.v)
			forget_entry(n, w.entry, fx);
		return;
	}
}

// ---- fetching

bool kept_fetch(struct node *n, const struct step *s, int32_t buf, struct node_effects *fx)
{
	int32_t entry = find(n, s);
	ASSERT(entry >= 0);
	int32_t end = (int32_t)(s->pos + s->n_tokens), n_mem = n->kept[entry].n_mem;
	const struct rows r = {.entry = entry, .begin = (int32_t)s->pos, .end = end < n_mem ? end : n_mem, .buf = buf};
	fx_memory(n, NODE_FX_FETCH, &r, fx);
	return end > n_mem;
}

uint32_t kept_read(struct node *n, const struct step *s, int32_t buf, struct node_effects *fx)
{
	int32_t entry = find(n, s);
	if (entry < 0)
		return 0;
	int32_t pos = (int32_t)s->pos, n_mem = n->kept[entry].n_mem;
	const struct rows r = {.entry = entry, .begin = pos > n_mem ? pos : n_mem, .end = pos + (int32_t)s->n_tokens, .buf = buf,
		.row = pos > n_mem ? 0 : n_mem - pos};
	uint32_t id = ++n->next_id;
	n->report.disk_read += disk_bytes(n, r.end - r.begin);
	fx_disk(n, NODE_FX_FETCH_DISK, id, &r, s, s->layer_begin, fx);
	return id;
}

void kept_take(struct node *n, const struct step *s, int32_t buf, struct node_effects *fx)
{
	struct node_effect *f = node_fx(fx, NODE_FX_TAKE_FETCHED);
	f->u.keep.buf = buf;
	f->u.keep.n_tokens = (int32_t)s->n_tokens;
	f->u.keep.row_bytes = n->kept_row_bytes;
}

void kept_on_unread(struct node *n, struct session_id session, enum err err, const char *text, struct node_effects *fx)
{
	say_failed(n, "read back from", err, text, fx);
	kept_end(n, session, fx);
}

void kept_forget(struct node *n, struct node_effects *fx)
{
	for (int32_t i = 0; i < KEPT_MAX; i++)
		forget_entry(n, i, fx);
	memset(n->kv_session, 0, sizeof n->kv_session);
	ASSERT(n->kept_bytes == 0);
}
