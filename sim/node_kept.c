// The kept states of a simulated node: what node/shell/kept_store and kept_disk do, in virtual time.
#include "sim/world_state.h"

#include "base/assert.h"

#include <stdlib.h>

// ---- memory

static void drop_sent(struct sim_node *n, int32_t entry)
{
	free(n->sent[entry]);
	n->sent[entry] = NULL;
	n->n_sent[entry] = 0;
}

// check_sent: what a stage keeps of what it sent is bounded, and fetched only where it is.
static void check_sent(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	int32_t entry = f->u.keep.entry, end = f->u.keep.pos + f->u.keep.n_tokens;
	if (f->type == NODE_FX_FETCH && end > n->n_sent[entry])
		sim_world_fail(w, "node %d fetches position %d of entry %d and keeps %d", n->machine, end - 1, entry, n->n_sent[entry]);
	if (f->type == NODE_FX_FETCH || end <= n->n_sent[entry])
		return;
	n->n_sent[entry] = end;
	uint64_t n_rows = 0;
	for (int32_t i = 0; i < KEPT_MAX; i++)
		n_rows += (uint64_t)n->n_sent[i];
	if (n_rows * w->model.row_real > w->config.keep_bytes)
		sim_world_fail(w, "node %d keeps %llu rows, more than its %llu bytes", n->machine, (unsigned long long)n_rows,
			(unsigned long long)w->config.keep_bytes);
}

static void fx_sent_rows(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	size_t row = w->model.row_kept, len = (size_t)f->u.keep.n_tokens * row;
	int32_t entry = f->u.keep.entry;
	uint8_t *buf = sim_node_buf(n, f->u.keep.buf);
	if (f->u.keep.pos + f->u.keep.n_tokens > w->model.ctx_len) {
		sim_world_fail(w, "node %d keeps or fetches position %d, beyond the context", n->machine, f->u.keep.pos);
		return;
	}
	if (f->type == NODE_FX_KEEP && n->sent[entry] == NULL)
		n->sent[entry] = calloc((size_t)w->model.ctx_len, row);
	if (n->sent[entry] == NULL) {
		sim_world_fail(w, "node %d fetches what it does not keep, entry %d", n->machine, entry);
		return;
	}
	check_sent(w, n, f);
	w->counts.n_fetched += f->type == NODE_FX_FETCH;
	uint8_t *at = n->sent[entry] + (size_t)f->u.keep.pos * row;
	memcpy(f->type == NODE_FX_KEEP ? at : buf, f->type == NODE_FX_KEEP ? buf : at, len);
}

// ---- disk

static bool has_disk(struct sim_world *w, struct sim_node *n)
{
	struct sim_kept_disk *d = &n->kept_disk;
	if (d->n_frames > 0)
		return true;
	d->n_frames = (int32_t)(w->config.keep_disk_bytes / (w->model.row_real + NODE_KEPT_FRAME_EXTRA));
	if (d->n_frames == 0)
		return false;
	d->frames = calloc((size_t)d->n_frames, sizeof *d->frames);
	d->rows = calloc((size_t)d->n_frames, w->model.row_kept);
	ASSERT(d->frames != NULL && d->rows != NULL);
	return true;
}

static void fx_order(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	struct sim_kept_disk *d = &n->kept_disk;
	struct sim_work work = {.kind = SIM_STORE, .machine = n->machine};
	if (!has_disk(w, n) || d->n_orders == SIM_KEPT_ORDERS) {
		sim_world_fail(w, "node %d keeps states on a disk %s", n->machine, d->n_frames == 0 ? "that it has not" : "that has too much to do");
		return;
	}
	struct sim_kept_order *o = &d->orders[d->n_orders++];
	size_t runs_len = (size_t)f->u.disk.n_runs * sizeof *f->u.disk.runs, len = (size_t)f->u.disk.n_tokens * w->model.row_kept;
	struct node_disk_run *runs = malloc(runs_len);
	*o = (struct sim_kept_order){.f = *f, .rows = f->type == NODE_FX_KEEP_DISK ? malloc(len) : NULL};
	ASSERT(runs != NULL);
	memcpy(runs, f->u.disk.runs, runs_len);
	o->f.u.disk.runs = runs;
	if (o->rows != NULL)
		memcpy(o->rows, sim_node_buf(n, f->u.disk.buf) + (size_t)f->u.disk.row * w->model.row_kept, len);
	d->free_ns = (d->free_ns > w->now_ns ? d->free_ns : w->now_ns) + sim_duration(w, &work) + 1; // one after the other
	sim_at(w, d->free_ns, EV_KEPT, n->machine)->id = f->u.disk.id;
}

static void free_order(struct sim_kept_order *o)
{
	struct node_disk_run *runs;
	memcpy(&runs, &o->f.u.disk.runs, sizeof runs); // they are ours, and were const only for the core's reader
	free(runs);
	free(o->rows);
}

// do_row writes or reads the row of a position. False: it does not open.
static bool do_row(struct sim_world *w, struct sim_node *n, const struct sim_kept_order *o, int32_t row, uint32_t frame)
{
	struct sim_kept_disk *d = &n->kept_disk;
	const struct node_effect *f = &o->f;
	size_t len = w->model.row_kept;
	if (frame >= (uint32_t)d->n_frames) {
		sim_world_fail(w, "node %d: row %u of a file of %d", n->machine, frame, d->n_frames);
		return false;
	}
	struct sim_kept_frame *at = &d->frames[frame];
	uint8_t *bytes = d->rows + frame * len;
	if (f->type == NODE_FX_KEEP_DISK) {
		*at = (struct sim_kept_frame){.session = f->u.disk.session, .layer = f->u.disk.layer, .entry = f->u.disk.entry, .pos = f->u.disk.pos + row,
			.is_written = true};
		memcpy(bytes, o->rows + (size_t)row * len, len);
		w->counts.n_kept_disk++;
		return true;
	}
	if (at->is_damaged)
		return false;
	bool is_it = at->is_written && at->session.v == f->u.disk.session.v && at->layer == f->u.disk.layer && at->entry == f->u.disk.entry &&
		at->pos == f->u.disk.pos + row;
	if (!is_it)
		sim_world_fail(w, "node %d reads position %d of entry %d from a place where it did not write it", n->machine, f->u.disk.pos + row,
			f->u.disk.entry);
	memcpy(d->fetched + (size_t)row * len, bytes, len);
	w->counts.n_fetched_disk++;
	return is_it;
}

// spoil: a write that failed leaves nothing that opens.
static void spoil(struct sim_node *n, const struct sim_kept_order *o)
{
	for (int32_t i = 0; i < o->f.u.disk.n_runs; i++)
		for (int32_t k = 0; k < o->f.u.disk.runs[i].n_rows; k++)
			n->kept_disk.frames[o->f.u.disk.runs[i].frame + (uint32_t)k].is_damaged = true;
}

static enum err do_order(struct sim_world *w, struct sim_node *n, const struct sim_kept_order *o)
{
	bool writes = o->f.type == NODE_FX_KEEP_DISK;
	enum sim_disk_fault fault = w->hosts[n->machine].disk;
	if (fault == SIM_DISK_EIO || (writes && fault == SIM_DISK_FULL)) {
		if (writes)
			spoil(n, o);
		return ERR_IO;
	}
	int32_t row = 0;
	for (int32_t i = 0; i < o->f.u.disk.n_runs; i++)
		for (int32_t k = 0; k < o->f.u.disk.runs[i].n_rows; k++)
			if (!do_row(w, n, o, row++, o->f.u.disk.runs[i].frame + (uint32_t)k))
				return ERR_AUTH;
	if (row != o->f.u.disk.n_tokens)
		sim_world_fail(w, "node %d: %d rows have %d places on disk", n->machine, o->f.u.disk.n_tokens, row);
	return OK;
}

void sim_kept_on_done(struct sim_world *w, struct sim_node *n)
{
	struct sim_kept_disk *d = &n->kept_disk;
	ASSERT(d->n_orders > 0);
	struct sim_kept_order o = d->orders[0];
	memmove(d->orders, d->orders + 1, (size_t)(--d->n_orders) * sizeof d->orders[0]);
	bool writes = o.f.type == NODE_FX_KEEP_DISK;
	d->fetched = writes ? NULL : malloc((size_t)o.f.u.disk.n_tokens * w->model.row_kept);
	ASSERT(writes || d->fetched != NULL);
	enum err e = do_order(w, n, &o);
	w->counts.n_disk_refused += e != OK;
	struct node_event ev = {.type = writes ? NODE_EV_KEPT : NODE_EV_FETCHED};
	ev.u.disk.id = o.f.u.disk.id;
	ev.u.disk.err = e;
	d->read = o.f;
	sim_node_step(w, n, &ev);
	free(d->fetched);
	d->fetched = NULL;
	free_order(&o);
}

static void fx_take_fetched(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	struct sim_kept_disk *d = &n->kept_disk;
	const struct node_effect *read = &d->read;
	size_t row = w->model.row_kept;
	if (d->fetched == NULL || read->u.disk.buf != f->u.keep.buf) {
		sim_world_fail(w, "node %d takes into buffer %d what was not read for it", n->machine, f->u.keep.buf);
		return;
	}
	memcpy(sim_node_buf(n, f->u.keep.buf) + (size_t)read->u.disk.row * row, d->fetched, (size_t)read->u.disk.n_tokens * row);
}

bool sim_kept_flip(struct sim_node *n, uint64_t draw)
{
	struct sim_kept_disk *d = &n->kept_disk;
	for (int32_t i = 0; i < d->n_frames; i++) {
		struct sim_kept_frame *at = &d->frames[(draw + (uint64_t)i) % (uint64_t)d->n_frames];
		if (!at->is_written || at->is_damaged)
			continue;
		at->is_damaged = true;
		return true;
	}
	return false;
}

// ----

void sim_kept_carry_out(struct sim_world *w, struct sim_node *n, const struct node_effect *f)
{
	switch (f->type) {
	case NODE_FX_KEEP:
	case NODE_FX_FETCH: fx_sent_rows(w, n, f); return;
	case NODE_FX_DROP: drop_sent(n, f->u.keep.entry); return;
	case NODE_FX_TAKE_FETCHED: fx_take_fetched(w, n, f); return;
	default: fx_order(w, n, f); return;
	}
}

void sim_kept_stop(struct sim_node *n)
{
	struct sim_kept_disk *d = &n->kept_disk;
	for (int32_t i = 0; i < KEPT_MAX; i++)
		drop_sent(n, i);
	for (int32_t i = 0; i < d->n_orders; i++)
		free_order(&d->orders[i]);
	free(d->frames);
	free(d->rows);
	uint8_t *fetched = d->fetched; // it may stop in the middle of a step that has it
	*d = (struct sim_kept_disk){.fetched = fetched};
}
