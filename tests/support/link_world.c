#include "tests/support/link_world.h"

#include "base/assert.h"
#include "tests/support/sockets.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static struct link **live_place(struct world_host *h, const struct link *link)
{
	for (size_t i = 0; i < ARRAY_LEN(h->live); i++)
		if (h->live[i] == link)
			return &h->live[i];
	return NULL;
}

static void forget(struct world_host *h, const struct link *link)
{
	struct link **place = live_place(h, link);
	if (place != NULL)
		*place = NULL;
	if (h->up == link)
		h->up = NULL;
}

void world_abort(struct world_host *h)
{
	struct link *link = h->up;
	forget(h, link);
	link_abort(link);
}

static void on_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct world_host *h = ctx;
	h->n_up++;
	h->up = link;
	h->info = *info;
	struct link **place = live_place(h, NULL);
	if (place != NULL) // the client's are its dialers' to free: a full list is no harm
		*place = link;
	if (h->abort_on_up) {
		world_abort(h);
	} else if (h->close_on_up) {
		link_close(link);
	} else if (h->cut_on_up) {
		link_cut(link);
	}
}

static void on_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct world_host *h = ctx;
	h->n_frames++;
	h->last_len = len;
	if (h->frames != NULL && len <= h->frames_cap - h->frames_len) {
		memcpy(h->frames + h->frames_len, frame, len);
		h->frames_len += len;
	}
	if (h->abort_on_frame) {
		forget(h, link);
		link_abort(link);
	} else if (h->close_on_frame) {
		link_close(link);
	} else if (h->cut_on_frame) {
		link_cut(link);
	} else if (h->echo) {
		enum err e = link_send(link, frame, len);
		ASSERT(e == OK || e == ERR_LIMIT || e == ERR_CLOSED);
	}
}

static void on_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct world_host *h = ctx;
	h->n_down++;
	h->down = *down;
	snprintf(h->down_text, sizeof h->down_text, "%s", down->text);
	h->down.text = h->down_text;
	forget(h, link);
}

static void on_writable(void *ctx, struct link *link)
{
	(void)link;
	((struct world_host *)ctx)->n_writable++;
}

struct link_callbacks world_callbacks(struct world_host *h)
{
	return (struct link_callbacks){h, on_up, on_frame, on_down, on_writable};
}

static void on_join(void *ctx, struct link *link, const struct link_info *info)
{
	struct world *w = ctx;
	w->n_joins++;
	w->joining = link;
	w->join_info = *info;
}

static void on_invite_failed(void *ctx, const uint8_t token_id[LNK1_TOKEN_ID_LEN])
{
	struct world *w = ctx;
	w->n_invite_failed++;
	memcpy(w->failed_token, token_id, LNK1_TOKEN_ID_LEN);
}

struct world *world_open(enum lnk1_mode mode, enum lnk1_kind kind, const struct link_limits *limits)
{
	int rc = sodium_init();
	ASSERT(rc >= 0);
	struct world *w = calloc(1, sizeof *w);
	ASSERT(w != NULL);
	enum err e = loop_open(&w->loop, NULL);
	ASSERT(e == OK);
	lnk1_fixture_init(&w->fix, mode, kind);
	w->limits = limits != NULL ? *limits : link_limits_default;
	const struct link_listener_params params = {.addr = "127.0.0.1:0",
		.cfg = &w->fix.cfg,
		.limits = &w->limits,
		.callbacks = world_callbacks(&w->server),
		.ctx = w,
		.on_join = on_join,
		.on_invite_failed = on_invite_failed};
	e = link_listener_open(&w->listener, &w->loop, &params, NULL);
	ASSERT(e == OK);
	snprintf(w->addr, sizeof w->addr, "127.0.0.1:%u", link_listener_port(w->listener));
	return w;
}

void world_close(struct world *w)
{
	if (w->client.up != NULL)
		link_abort(w->client.up);
	for (size_t i = 0; i < ARRAY_LEN(w->server.live); i++)
		if (w->server.live[i] != NULL)
			link_abort(w->server.live[i]);
	link_listener_close(w->listener);
	loop_close(&w->loop);
	free(w->client.frames);
	free(w->server.frames);
	free(w);
}

struct link *world_dial(struct world *w, const char *addr)
{
	struct link *link;
	struct link_callbacks callbacks = world_callbacks(&w->client);
	enum err e = link_dial(&w->loop, addr != NULL ? addr : w->addr, &w->fix.client, &w->limits, &callbacks, &link, NULL);
	ASSERT(e == OK);
	return link;
}

bool world_run(struct world *w, bool (*done)(void *ctx), void *ctx)
{
	return loop_run_until(&w->loop, done, ctx, loop_clock_ns() + WORLD_PATIENCE);
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

void world_run_for(struct world *w, int64_t ns)
{
	(void)loop_run_until(&w->loop, never, NULL, loop_clock_ns() + ns);
}

bool world_both_up(void *ctx)
{
	struct world *w = ctx;
	return w->client.up != NULL && w->server.up != NULL;
}

bool world_both_down(void *ctx)
{
	struct world *w = ctx;
	return w->client.n_up == w->client.n_down && w->server.n_up == w->server.n_down;
}

bool world_client_down(void *ctx)
{
	return ((struct world *)ctx)->client.n_down > 0;
}

bool world_server_down(void *ctx)
{
	return ((struct world *)ctx)->server.n_down > 0;
}

void world_up(struct world *w)
{
	world_dial(w, NULL);
	bool is_up = world_run(w, world_both_up, w);
	ASSERT(is_up);
}

// ---- By hand ----

struct wanted {
	int fd;
	uint8_t *buf;
	size_t have, want;
	bool closed;
};

static bool have_wanted(void *ctx)
{
	struct wanted *x = ctx;
	while (x->have < x->want) {
		ssize_t n = recv(x->fd, x->buf + x->have, x->want - x->have, MSG_DONTWAIT);
		if (n > 0) {
			x->have += (size_t)n;
			continue;
		}
		x->closed = n == 0 || (errno != EAGAIN && errno != EINTR);
		return x->closed;
	}
	return true;
}

bool world_raw_recv(struct world *w, int fd, uint8_t *buf, size_t len)
{
	struct wanted x = {.fd = fd, .buf = buf, .want = len};
	// The socket is none of the loop's: look at it a thousand times a second.
	for (int64_t end_ns = loop_clock_ns() + WORLD_PATIENCE; loop_clock_ns() < end_ns;)
		if (loop_run_until(&w->loop, have_wanted, &x, loop_clock_ns() + 1000000))
			return !x.closed;
	return false;
}

bool world_raw_closed(struct world *w, int fd)
{
	uint8_t byte;
	for (int64_t end_ns = loop_clock_ns() + WORLD_PATIENCE; loop_clock_ns() < end_ns;) {
		struct wanted x = {.fd = fd, .buf = &byte, .want = 1};
		if (loop_run_until(&w->loop, have_wanted, &x, loop_clock_ns() + 1000000) && x.closed)
			return true;
	}
	return false;
}

static bool server_up(void *ctx)
{
	return ((struct world *)ctx)->server.up != NULL;
}

void world_raw_handshake(struct world *w, int fd, struct lnk1_link *out)
{
	struct lnk1_client c;
	struct lnk1_client_random rnd;
	randombytes_buf(&rnd, sizeof rnd);
	enum lnk1_step step = lnk1_client_init(&c, &w->fix.client, &rnd);
	while (step != LNK1_DONE) {
		ASSERT(step == LNK1_SEND || step == LNK1_MORE);
		size_t len;
		if (step == LNK1_SEND) {
			const uint8_t *msg = lnk1_client_out(&c, &len);
			socket_send(fd, msg, len);
		}
		uint8_t *room = lnk1_client_room(&c, &len);
		bool ok = world_raw_recv(w, fd, room, len);
		ASSERT(ok);
		step = lnk1_client_received(&c, len);
	}
	lnk1_client_finish(&c, out);
	bool is_up = world_run(w, server_up, w); // M4 may be here before the server has heard that it is sent
	ASSERT(is_up);
}
