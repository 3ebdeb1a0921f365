// The host of blocks/fetch: asks over links, hands what comes to threads that compare and write it, tells how far it is.
#include "node/shell/node_blocks_state.h"

#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define TELL_NS SECOND        // progress to the coordinator
#define LOG_NS (5 * SECOND)
#define HAVE_NS (2 * SECOND)  // what is held, while that grows

// ---- asking

static void ask(struct node_blocks *nb, struct block_frame *get, uint32_t source)
{
	uint8_t frame[BLOCK_FRAME_SMALL_MAX];
	struct link *link = get->u.get.n > 0 ? nb_source_link(nb, source) : NULL;
	if (link == NULL)
		return; // its end is on its way, and gives the requests back
	if (link_send(link, frame, block_frame_encode(get, frame)) != OK)
		link_close(link);
	get->u.get.n = 0;
}

// ask_all sends one frame to each source for all that is asked of it.
static void ask_all(struct node_blocks *nb, const struct fetch_effects *fx)
{
	for (int32_t i = 0; i < fx->n; i++) {
		struct block_frame get = {.type = BLOCK_FRAME_GET};
		uint32_t source = fx->at[i].source;
		bool is_first = fx->at[i].type == FETCH_FX_ASK;
		for (int32_t k = 0; k < i && is_first; k++)
			is_first = fx->at[k].type != FETCH_FX_ASK || fx->at[k].source != source;
		for (int32_t k = i; k < fx->n && is_first; k++) {
			if (fx->at[k].type != FETCH_FX_ASK || fx->at[k].source != source)
				continue;
			get.u.get.blocks[get.u.get.n++] = fx->at[k].block;
			if (get.u.get.n == BLOCK_FRAME_GET_MAX)
				ask(nb, &get, source);
		}
		ask(nb, &get, source);
	}
}

static const char *source_name(const struct node_blocks *nb, uint32_t source)
{
	return source == NB_ORIGIN ? "the coordinator" : nb->peers[source - NB_FIRST_PEER].who.name;
}

static void close_source(struct node_blocks *nb, const struct fetch_effect *e)
{
	struct link *link = nb_source_link(nb, e->source);
	log_line(nb->p.log, LOG_WARNING, "blocks from %s: %s; trying others", source_name(nb, e->source), e->why);
	if (link != NULL)
		link_close(link);
}

static void begin_check(struct node_blocks *nb, uint32_t source, const struct block_frame *f);

// step handles an event; `f` is the frame whose bytes a CHECK means, NULL for events that bring none.
static void step(struct node_blocks *nb, struct fetch_event *ev, const struct block_frame *f)
{
	struct fetch_effects fx;
	const struct fetch_effect *end = NULL;
	if (nb->fetch_words == NULL || nb->is_closing)
		return;
	ev->now_ns = loop_clock_ns();
	fetch_step(&nb->fetch, ev, &fx);
	ask_all(nb, &fx);
	for (int32_t i = 0; i < fx.n; i++) {
		switch (fx.at[i].type) {
		case FETCH_FX_ASK: break;
		case FETCH_FX_CHECK: begin_check(nb, ev->source, f); break;
		case FETCH_FX_CLOSE: close_source(nb, &fx.at[i]); break;
		case FETCH_FX_DONE:
		case FETCH_FX_FAILED: end = &fx.at[i]; break;
		}
	}
	if (end != NULL)
		nb_on_fetched(nb, end->type == FETCH_FX_DONE ? OK : end->err, end->block);
}

void nb_fetch_step(struct node_blocks *nb, struct fetch_event *ev)
{
	step(nb, ev, NULL);
}

// ---- checking

static void run_check(struct block_job *job, struct block_zip *zip)
{
	struct nb_check *c = (struct nb_check *)job;
	const struct manifest *m = c->nb->manifest;
	uint8_t *plain = NULL;
	const uint8_t *data = c->data;
	size_t len = c->len;
	c->result = FETCH_CHECK_WRONG;
	if (c->form == BLOCK_FORM_ZSTD) {
		len = manifest_block_bytes(m, c->block);
		plain = malloc(len);
		if (plain == NULL || block_zip_unpack(zip, c->data, c->len, plain, len) != OK) {
			free(plain);
			return;
		}
		data = plain;
	}
	if (manifest_block_matches(m, c->block, data, len)) {
		c->err = block_store_write(c->nb->store, c->block, data, &c->em);
		c->result = c->err == OK ? FETCH_CHECK_STORED : FETCH_CHECK_FAILED;
	}
	free(plain);
}

static void on_check(struct block_job *job)
{
	struct nb_check *c = (struct nb_check *)job;
	struct node_blocks *nb = c->nb;
	struct fetch_event ev = {.type = FETCH_EV_CHECKED, .source = c->source, .block = c->block};
	ev.u.checked.result = c->result;
	ev.u.checked.err = c->err;
	nb->n_checks--;
	if (c->result == FETCH_CHECK_STORED) {
		block_set_add(&nb->present, c->block);
		block_set_add(&nb->verified, c->block);
		nb->has_news = true;
		nb->bytes_fetched += manifest_block_bytes(nb->manifest, c->block);
	} else if (c->result == FETCH_CHECK_FAILED && nb->check_em.text[0] == '\0') {
		nb->check_em = c->em;
	}
	free(c->data);
	free(c);
	nb_fetch_step(nb, &ev);
}

// begin_check copies the bytes, which are the link's: it reads on meanwhile.
static void begin_check(struct node_blocks *nb, uint32_t source, const struct block_frame *f)
{
	struct nb_check *c = calloc(1, sizeof *c);
	uint8_t *data = malloc(f->u.block.len);
	if (c == NULL || data == NULL)
		abort(); // one block: nothing works any more
	memcpy(data, f->u.block.data, f->u.block.len);
	*c = (struct nb_check){.job = {.run = run_check, .done = on_check}, .nb = nb, .source = source, .block = f->u.block.block, .form = f->u.block.form, .data = data,
		.len = f->u.block.len};
	nb->n_checks++;
	block_io_submit(nb->io, &c->job);
}

bool nb_on_block_frame(struct node_blocks *nb, uint32_t source, const struct block_frame *f)
{
	if (nb->fetch_words == NULL || (f->type != BLOCK_FRAME_BLOCK && f->type != BLOCK_FRAME_REFUSE))
		return false;
	if (f->type == BLOCK_FRAME_BLOCK) {
		struct fetch_event ev = {.type = FETCH_EV_BLOCK, .source = source, .block = f->u.block.block};
		nb->bytes_received += f->u.block.len;
		step(nb, &ev, f);
		return true;
	}
	struct fetch_event ev = {.type = FETCH_EV_REFUSED, .source = source, .block = f->u.refuse.block};
	ev.u.refusal = f->u.refuse.reason;
	nb_fetch_step(nb, &ev);
	return true;
}

// ---- progress

static void fill_progress(struct node_blocks *nb, int64_t now_ns, struct block_progress *out)
{
	struct fetch_progress p;
	fetch_progress_get(&nb->fetch, now_ns, &p);
	*out = (struct block_progress){.state = BLOCK_PROGRESS_FETCHING, .bytes_total = p.bytes_total, .bytes_done = p.bytes_done, .rate = (uint64_t)p.rate,
		.left_ms = UINT32_MAX, .bytes_fetched = nb->bytes_fetched};
	if (p.left_ns / 1000000 < UINT32_MAX)
		out->left_ms = (uint32_t)(p.left_ns / 1000000);
}

static void tell_progress(struct node_blocks *nb, const struct block_progress *p)
{
	struct block_frame f = {.type = BLOCK_FRAME_PROGRESS, .u.progress = *p};
	nb_tell_coordinator(nb, &f, NULL, 0);
}

static void log_progress(struct node_blocks *nb, const struct block_progress *p)
{
	if (p->left_ms == UINT32_MAX || p->rate == 0)
		log_line(nb->p.log, LOG_INFO, "fetching the model: %" PRIu64 " of %" PRIu64 " MiB, waiting for blocks", p->bytes_done >> 20, p->bytes_total >> 20);
	else
		log_line(nb->p.log, LOG_INFO, "fetching the model: %" PRIu64 " of %" PRIu64 " MiB, %.1f MiB/s, %" PRIu32 " s left", p->bytes_done >> 20, p->bytes_total >> 20,
			(double)p->rate / (1 << 20), (p->left_ms + 999) / 1000);
}

// note_heard: a source that sends a long block slowly is not silent.
static void note_heard(struct node_blocks *nb)
{
	for (int32_t i = 0; i < nb->fetch.limits.sources_max; i++) {
		const struct fetch_source *s = &nb->fetch.sources[i];
		struct link *link = s->handle != 0 && s->is_up ? nb_source_link(nb, s->handle) : NULL;
		if (link == NULL || link_get_stats(link).heard_ns <= s->heard_ns)
			continue;
		struct fetch_event ev = {.type = FETCH_EV_HEARD, .source = s->handle};
		nb_fetch_step(nb, &ev);
	}
}

void nb_fetch_tick(struct node_blocks *nb, int64_t now_ns)
{
	if (nb->has_news && now_ns - nb->have_told_ns >= HAVE_NS)
		nb_tell_have(nb);
	if (nb->phase != NB_FETCHING)
		return;
	struct fetch_event ev = {.type = FETCH_EV_TICK};
	note_heard(nb);
	nb_fetch_step(nb, &ev);
	if (nb->phase != NB_FETCHING)
		return;
	struct block_progress p;
	fill_progress(nb, now_ns, &p);
	if (now_ns - nb->told_ns >= TELL_NS) {
		nb->told_ns = now_ns;
		tell_progress(nb, &p);
	}
	if (now_ns - nb->logged_ns >= LOG_NS) {
		nb->logged_ns = now_ns;
		log_progress(nb, &p);
	}
}

void nb_describe_sources(struct node_blocks *nb, char *out, size_t cap)
{
	size_t len = 0;
	out[0] = '\0';
	for (int32_t i = 0; i < nb->fetch.limits.sources_max && len < cap; i++) {
		const struct fetch_source *s = &nb->fetch.sources[i];
		if (s->handle == 0 || s->handle == NB_ORIGIN || s->n_blocks == 0)
			continue;
		double mib = (double)s->n_blocks * nb->manifest->block_bytes / (1 << 20);
		int n = snprintf(out + len, cap - len, ", %.1f MiB so far from %s", mib, source_name(nb, s->handle));
		len += n > 0 ? (size_t)n : 0;
	}
}

// ---- beginning and end

void nb_fetch_init(struct node_blocks *nb)
{
	struct fetch_limits limits = fetch_limits_default;
	limits.under_way_max = NB_UNDER_WAY_MAX;
	nb->fetch_words = calloc(FETCH_SETS(limits.sources_max) * block_set_words(nb->manifest->n_blocks), sizeof *nb->fetch_words);
	if (nb->fetch_words == NULL)
		abort(); // some bits for each block: nothing works any more
	fetch_init(&nb->fetch, nb->manifest, &limits, nb->fetch_words);
}

void nb_fetch_start(struct node_blocks *nb, const struct block_set *missing)
{
	struct fetch_event ev = {.type = FETCH_EV_START};
	ev.u.wanted = missing;
	nb->check_em.text[0] = '\0';
	nb->told_ns = 0;
	nb->logged_ns = loop_clock_ns();
	nb_fetch_step(nb, &ev);
	nb_peers_consider(nb);
}

void nb_fetch_stop(struct node_blocks *nb)
{
	struct fetch_event ev = {.type = FETCH_EV_STOP};
	nb_fetch_step(nb, &ev);
}
