#include "blocks/shell/block_server.h"

#include "base/assert.h"
#include "blocks/zip_choice.h"
#include "proto/frame.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QUEUED_MAX (1u << 20)             // bytes on a link before its client waits: the kernel's own buffer holds the rest
#define QUEUED_ALL_MAX (4u << 20)         // on all links together
#define HEARD_NS INT64_C(60000000000)     // a client that says nothing for so long is gone: it pings every ten seconds
#define LOOK_NS INT64_C(5000000000)

struct server_client {
	struct block_server *s;
	uint32_t handle; // 0: free
	struct link *link;
	struct node_id peer;
	bool is_bound;     // it named our model
	bool is_blocked;
	int64_t blocked_ns; // when, with queued_bytes waiting
	size_t queued_bytes;
	struct zip_choice zip;
};

// A block on its way from the disk to a link.
struct read_job {
	struct block_job job; // first
	struct block_server *s;
	bool is_busy;
	uint32_t client, block;
	bool wants_zip;
	uint8_t *plain, *packed; // (block_bytes) each
	size_t plain_len, packed_len; // packed_len 0: not compressed
	int64_t zip_ns;
	enum err err;
	struct errmsg em;
};

struct block_server {
	struct block_server_params p;
	const struct manifest *manifest; // NULL: not known yet
	struct upload upload;
	struct loop_timer timer;
	struct server_client clients[UPLOAD_CLIENTS_MAX];
	uint32_t last_handle;
	struct read_job jobs[UPLOAD_READS_MAX];
	bool is_closing;
	struct block_server_stats stats;
};

static void step(struct block_server *s, enum upload_event_type type, uint32_t client, uint32_t block);

static struct server_client *find_client(struct block_server *s, uint32_t handle)
{
	for (size_t i = 0; i < ARRAY_LEN(s->clients); i++)
		if (handle != 0 && s->clients[i].handle == handle)
			return &s->clients[i];
	return NULL;
}

// forget ends our part of a client whose link has ended or is about to.
static void forget(struct server_client *c)
{
	struct block_server *s = c->s;
	uint32_t handle = c->handle;
	memset(c, 0, sizeof *c);
	s->stats.n_clients--;
	step(s, UPLOAD_EV_CLIENT_DOWN, handle, 0);
	if (s->p.on_down != NULL)
		s->p.on_down(s->p.ctx, handle);
}

static void end_client(struct server_client *c)
{
	struct link *link = c->link;
	forget(c);
	link_abort(link);
}

void block_server_end(struct block_server *s, uint32_t client)
{
	struct server_client *c = find_client(s, client);
	if (c != NULL)
		end_client(c);
}

void block_server_end_peer(struct block_server *s, struct node_id peer)
{
	for (size_t i = 0; i < ARRAY_LEN(s->clients); i++)
		if (s->clients[i].handle != 0 && node_id_is(s->clients[i].peer, peer))
			end_client(&s->clients[i]);
}

static bool send_frame(struct server_client *c, const struct block_frame *f, const uint8_t *data, size_t len)
{
	uint8_t head[BLOCK_FRAME_SMALL_MAX];
	size_t head_len = block_frame_encode(f, head);
	return link_send2(c->link, head, head_len, data, len) == OK;
}

void block_server_send(struct block_server *s, uint32_t client, const struct block_frame *f, const uint8_t *data, size_t len)
{
	struct server_client *c = find_client(s, client);
	if (c != NULL && !send_frame(c, f, data, len))
		link_close(c->link); // its on_down comes from the loop
}

static void refuse(struct block_server *s, uint32_t client, uint32_t block, enum fetch_refusal reason)
{
	struct block_frame f = {.type = BLOCK_FRAME_REFUSE, .u.refuse = {reason, block}};
	s->stats.n_refused++;
	block_server_send(s, client, &f, NULL, 0);
}

// ---- reading

static void run_read(struct block_job *job, struct block_zip *zip)
{
	struct read_job *r = (struct read_job *)job;
	const struct manifest *m = r->s->manifest;
	r->plain_len = manifest_block_bytes(m, r->block);
	r->packed_len = 0;
	r->err = r->s->p.read(r->s->p.ctx, r->block, r->plain, &r->em);
	if (r->err != OK || !r->wants_zip)
		return;
	int64_t begin_ns = loop_clock_ns();
	r->packed_len = block_zip_pack(zip, r->plain, r->plain_len, r->packed, r->plain_len);
	r->zip_ns = loop_clock_ns() - begin_ns;
}

// queued_max returns the bytes on one link before its client waits. It may pass them by one block; among many clients that block is all.
static size_t queued_max(const struct block_server *s)
{
	size_t share = QUEUED_ALL_MAX / (size_t)s->stats.n_clients, block = s->manifest->block_bytes;
	share = share > block ? share - block : 1;
	return share < QUEUED_MAX ? share : QUEUED_MAX;
}

static void send_block(struct read_job *r, struct server_client *c)
{
	struct block_server *s = r->s;
	size_t zipped_len = r->packed_len > 0 ? r->packed_len : r->plain_len;
	bool is_zipped = r->wants_zip && zip_choice_note_zip(&c->zip, r->plain_len, zipped_len, r->zip_ns) && r->packed_len > 0;
	struct block_frame f = {.type = BLOCK_FRAME_BLOCK};
	f.u.block.block = r->block;
	f.u.block.form = is_zipped ? BLOCK_FORM_ZSTD : BLOCK_FORM_RAW;
	size_t len = is_zipped ? r->packed_len : r->plain_len;
	if (!send_frame(c, &f, is_zipped ? r->packed : r->plain, len)) {
		link_close(c->link); // reads under way are few, and fit: it does not take what it asked for
		return;
	}
	s->stats.n_blocks++;
	s->stats.n_bytes += r->plain_len;
	s->stats.n_zipped += is_zipped;
	s->stats.bytes_sent += len;
	size_t queued = link_get_stats(c->link).queued_bytes;
	if (queued < queued_max(s) || c->is_blocked)
		return;
	c->is_blocked = true;
	c->blocked_ns = loop_clock_ns();
	c->queued_bytes = queued;
	link_want_writable(c->link);
	step(s, UPLOAD_EV_BLOCKED, c->handle, 0);
}

static void on_read(struct block_job *job)
{
	struct read_job *r = (struct read_job *)job;
	struct block_server *s = r->s;
	struct server_client *c = find_client(s, r->client);
	r->is_busy = false;
	if (s->is_closing)
		return;
	if (c != NULL && r->err == OK)
		send_block(r, c);
	else if (c != NULL)
		refuse(s, r->client, r->block, FETCH_REFUSED_ABSENT);
	if (r->err != OK && r->err != ERR_NOT_FOUND)
		log_line(s->p.log, LOG_WARNING, "a block that another machine asked for cannot be read: %s", r->em.text);
	step(s, UPLOAD_EV_DONE, r->client, r->block);
}

static void begin_read(struct block_server *s, uint32_t client, uint32_t block)
{
	struct server_client *c = find_client(s, client);
	struct read_job *r = NULL;
	for (size_t i = 0; r == NULL && i < ARRAY_LEN(s->jobs); i++)
		if (!s->jobs[i].is_busy)
			r = &s->jobs[i];
	ASSERT(r != NULL && c != NULL);
	r->is_busy = true;
	r->client = client;
	r->block = block;
	r->wants_zip = zip_choice_next(&c->zip);
	r->job = (struct block_job){.run = run_read, .done = on_read};
	block_io_submit(s->p.io, &r->job);
}

static void step(struct block_server *s, enum upload_event_type type, uint32_t client, uint32_t block)
{
	if (s->is_closing)
		return;
	struct upload_effects fx;
	struct upload_event ev = {.type = type, .now_ns = loop_clock_ns(), .client = client, .block = block};
	ev.bytes = type == UPLOAD_EV_ASKED ? manifest_block_bytes(s->manifest, block) : 0;
	upload_step(&s->upload, &ev, &fx);
	for (int32_t i = 0; i < fx.n; i++) {
		if (fx.at[i].type == UPLOAD_FX_READ)
			begin_read(s, fx.at[i].client, fx.at[i].block);
		else
			refuse(s, fx.at[i].client, fx.at[i].block, FETCH_REFUSED_BUSY);
	}
	int64_t deadline = upload_deadline_ns(&s->upload);
	if (deadline != INT64_MAX && (!s->timer.is_set || deadline < s->timer.deadline_ns))
		loop_timer_set(s->p.loop, &s->timer, deadline);
}

void block_server_note_work(struct block_server *s)
{
	step(s, UPLOAD_EV_WORK, 0, 0);
}

// ---- links

static void on_hello(struct server_client *c, const struct block_frame *f)
{
	struct block_server *s = c->s;
	c->is_bound = s->manifest != NULL && memcmp(f->u.hello, s->manifest->hash, BLOCK_HASH_BYTES) == 0;
	if (!c->is_bound)
		refuse(s, c->handle, BLOCK_FRAME_ALL, s->manifest != NULL ? FETCH_REFUSED_FOREIGN : FETCH_REFUSED_BUSY);
}

static void on_get(struct server_client *c, const struct block_frame *f)
{
	struct block_server *s = c->s;
	uint32_t handle = c->handle;
	if (!c->is_bound) {
		refuse(s, handle, BLOCK_FRAME_ALL, FETCH_REFUSED_FOREIGN);
		return;
	}
	for (size_t i = 0; i < f->u.get.n && find_client(s, handle) != NULL; i++) {
		if (f->u.get.blocks[i] < s->manifest->n_blocks)
			step(s, UPLOAD_EV_ASKED, handle, f->u.get.blocks[i]);
		else
			refuse(s, handle, f->u.get.blocks[i], FETCH_REFUSED_ABSENT);
	}
}

// tell_clock: what this machine's clock says, for who compares it with his own.
static void tell_clock(struct server_client *c)
{
	uint8_t frame[FRAME_CLOCK_BYTES];
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	clock_encode(now.tv_sec > 0 ? (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 : 1, frame);
	if (link_send(c->link, frame, sizeof frame) == ERR_NOMEM)
		end_client(c);
}

static void on_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct block_server *s = ctx;
	struct server_client *c = link_user(link);
	struct block_frame f;
	uint64_t cookie;
	if (c == NULL)
		return; // closing
	if (ping_decode(frame, len, &cookie) == OK) {
		uint8_t pong[FRAME_PING_BYTES];
		ping_encode(FRAME_PONG, cookie, pong);
		if (frame[0] == FRAME_PING && link_send(link, pong, sizeof pong) == ERR_NOMEM)
			end_client(c);
		return;
	}
	if (clock_decode(frame, len, &cookie) == OK && cookie == 0) {
		tell_clock(c);
		return;
	}
	bool ok = block_frame_decode(frame, len, &f) == OK;
	if (ok && f.type == BLOCK_FRAME_HELLO)
		on_hello(c, &f);
	else if (ok && f.type == BLOCK_FRAME_GET)
		on_get(c, &f);
	else if (!ok || s->p.on_other == NULL || !s->p.on_other(s->p.ctx, c->handle, &f)) {
		log_line(s->p.log, LOG_WARNING, "a machine sent what does not belong on a blocks link: closing it");
		end_client(c);
	}
}

static void on_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct server_client *c = link_user(link);
	(void)ctx;
	(void)down;
	if (c != NULL)
		forget(c);
}

static void on_writable(void *ctx, struct link *link)
{
	struct block_server *s = ctx;
	struct server_client *c = link_user(link);
	if (c == NULL || !c->is_blocked)
		return;
	c->is_blocked = false;
	zip_choice_note_link(&c->zip, c->queued_bytes, loop_clock_ns() - c->blocked_ns);
	step(s, UPLOAD_EV_WRITABLE, c->handle, 0);
}

void block_server_take(struct block_server *s, struct link *link, const struct link_info *info)
{
	struct server_client *c = NULL;
	for (size_t i = 0; c == NULL && i < ARRAY_LEN(s->clients); i++)
		if (s->clients[i].handle == 0)
			c = &s->clients[i];
	const struct link_callbacks callbacks = {.ctx = s, .on_frame = on_frame, .on_down = on_down, .on_writable = on_writable};
	link_set_callbacks(link, &callbacks);
	link_set_user(link, c);
	if (c == NULL) {
		link_cut(link);
		return;
	}
	*c = (struct server_client){.s = s, .handle = ++s->last_handle, .link = link, .peer = info->peer};
	s->stats.n_clients++;
	step(s, UPLOAD_EV_CLIENT_UP, c->handle, 0);
	if (s->p.on_up != NULL)
		s->p.on_up(s->p.ctx, c->handle, info);
}

// end_silent gives up clients that are gone without a word.
static void end_silent(struct block_server *s)
{
	for (size_t i = 0; i < ARRAY_LEN(s->clients); i++) {
		struct server_client *c = &s->clients[i];
		if (c->handle != 0 && loop_clock_ns() - link_get_stats(c->link).heard_ns > HEARD_NS)
			end_client(c);
	}
}

static void on_timer(void *ctx)
{
	struct block_server *s = ctx;
	if (loop_late_ns(s->p.loop) < LOOK_NS) // else this machine was away itself
		end_silent(s);
	step(s, UPLOAD_EV_TICK, 0, 0);
	if (!s->timer.is_set)
		loop_timer_set(s->p.loop, &s->timer, loop_clock_ns() + LOOK_NS);
}

// ---- opening

enum err block_server_open(const struct block_server_params *p, struct block_server **out, struct errmsg *em)
{
	struct block_server *s = calloc(1, sizeof *s);
	*out = NULL;
	if (s == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory to serve blocks");
	s->p = *p;
	upload_init(&s->upload, &p->limits, loop_clock_ns());
	loop_timer_init(&s->timer, on_timer, s);
	loop_timer_set(p->loop, &s->timer, loop_clock_ns() + LOOK_NS);
	for (size_t i = 0; i < ARRAY_LEN(s->jobs); i++)
		s->jobs[i].s = s;
	*out = s;
	return OK;
}

// buffers of reads: as many as there may be at once, of the model's blocks.
static bool allocate(struct block_server *s, const struct manifest *m)
{
	for (int32_t i = 0; i < s->p.limits.reads_max; i++) {
		s->jobs[i].plain = malloc(m->block_bytes);
		s->jobs[i].packed = malloc(m->block_bytes);
		if (s->jobs[i].plain == NULL || s->jobs[i].packed == NULL)
			return false;
	}
	return true;
}

void block_server_set_model(struct block_server *s, const struct manifest *m)
{
	ASSERT(s->manifest == NULL);
	if (allocate(s, m))
		s->manifest = m;
	else
		log_line(s->p.log, LOG_ERROR, "no memory to serve blocks");
}

static bool reads_are_done(void *ctx)
{
	struct block_server *s = ctx;
	for (size_t i = 0; i < ARRAY_LEN(s->jobs); i++)
		if (s->jobs[i].is_busy)
			return false;
	return true;
}

void block_server_close(struct block_server *s)
{
	if (s == NULL)
		return;
	s->is_closing = true;
	for (size_t i = 0; i < ARRAY_LEN(s->clients); i++)
		if (s->clients[i].handle != 0)
			link_abort(s->clients[i].link);
	loop_finish(s->p.loop, reads_are_done, s); // a disk answers
	loop_timer_clear(s->p.loop, &s->timer);
	for (size_t i = 0; i < ARRAY_LEN(s->jobs); i++) {
		free(s->jobs[i].plain);
		free(s->jobs[i].packed);
	}
	free(s);
}

void block_server_get_stats(const struct block_server *s, struct block_server_stats *out)
{
	*out = s->stats;
}
