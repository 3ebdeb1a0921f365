#include "net/link_listener.h"

#include "base/assert.h"
#include "net/addr_table.h"
#include "net/link_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S INT64_C(1000000000)

struct slot {
	struct link_listener *listener;
	struct link_owner owner; // what the slot's link reports to
	struct link *link;       // LINK_IDLE: free. NULL: the last one authenticated, and there was no memory for another
	struct addr_entry *addr; // NULL: free
	uint64_t order;          // of acceptance
};

struct link_listener {
	struct loop *loop;
	struct link_listener_params params;
	struct stream_listener stream;
	struct slot *slots; // (unauth_max), owned
	struct addr_table addrs;
	struct loop_timer wait_timer; // when the next waiting handshake may begin
	uint64_t n_ordered;
	struct link_listener_stats stats;
	int64_t log_second; // of the lines counted
	uint32_t n_logged, n_unlogged;
};

// ---- Log lines that strangers cause are rationed ----

static void log_failure(struct link_listener *l, const struct stream_peer *peer, const char *what)
{
	if (l->params.log == NULL)
		return;
	int64_t second = loop_now_ns(l->loop) / NS_PER_S;
	if (second != l->log_second) {
		if (l->n_unlogged > 0)
			log_line(l->params.log, LOG_INFO, "%" PRIu32 " more handshakes failed", l->n_unlogged);
		l->log_second = second;
		l->n_logged = l->n_unlogged = 0;
	}
	if (l->n_logged >= l->params.limits->log_lines_per_s) {
		l->n_unlogged++;
		return;
	}
	l->n_logged++;
	char text[STREAM_PEER_TEXT];
	stream_peer_text(peer, text);
	log_line(l->params.log, LOG_INFO, "handshake with %s failed: %s", text, what);
}

// ---- Slots ----

static void leave_addr(struct slot *s)
{
	addr_table_leave(s->addr);
	s->addr = NULL;
	s->listener->stats.n_unauth--;
}

static void free_slot(struct slot *s)
{
	leave_addr(s);
	link_reset(s->link);
}

static struct slot *free_slot_find(struct link_listener *l)
{
	for (uint32_t i = 0; i < l->params.limits->unauth_max; i++) {
		struct slot *s = &l->slots[i];
		if (s->addr != NULL)
			continue;
		if (s->link == NULL)
			s->link = calloc(1, sizeof *s->link);
		if (s->link != NULL)
			return s;
	}
	return NULL;
}

// oldest returns the slot accepted first, of all or of one address, waiting ones only if so asked.
static struct slot *oldest(struct link_listener *l, const struct addr_entry *addr, bool only_waiting)
{
	struct slot *best = NULL;
	for (uint32_t i = 0; i < l->params.limits->unauth_max; i++) {
		struct slot *s = &l->slots[i];
		if (s->addr == NULL || (addr != NULL && s->addr != addr) || (only_waiting && s->link->state != LINK_WAITING))
			continue;
		if (best == NULL || s->order < best->order)
			best = s;
	}
	return best;
}

static void evict(struct link_listener *l, struct slot *s)
{
	ASSERT(s != NULL);
	l->stats.n_evicted++;
	log_failure(l, &s->link->info.addr, "closed to make room for another");
	free_slot(s);
}

// start_waiting begins the handshakes of one address, in order, as far as its bucket allows.
static void start_waiting(struct link_listener *l, struct addr_entry *addr)
{
	int64_t now_ns = loop_now_ns(l->loop);
	struct slot *s;
	while ((s = oldest(l, addr, true)) != NULL && addr_take(&l->addrs, addr, now_ns)) {
		link_start(s->link, l->params.cfg);
	}
	if (s != NULL) {
		int64_t next_ns = addr_next_ns(&l->addrs, addr);
		if (!l->wait_timer.is_set || next_ns < l->wait_timer.deadline_ns)
			loop_timer_set(l->loop, &l->wait_timer, next_ns);
	}
}

static void on_wait_timer(void *ctx)
{
	struct link_listener *l = ctx;
	for (uint32_t i = 0; i < l->params.limits->unauth_max; i++)
		if (l->slots[i].addr != NULL && l->slots[i].link->state == LINK_WAITING)
			start_waiting(l, l->slots[i].addr);
}

// ---- What a slot's link reports ----

static void on_authenticated(void *ctx, struct link *link)
{
	struct slot *s = ctx;
	struct link_listener *l = s->listener;
	struct addr_entry *addr = s->addr;
	leave_addr(s);
	s->link = calloc(1, sizeof *s->link); // NULL: tried again when the slot is wanted
	l->stats.n_up++;
	addr_give_back(&l->addrs, addr);
	start_waiting(l, addr); // somebody may have waited for this very token
	if (link->info.mode != LNK1_JOIN)
		return;
	if (l->params.on_join != NULL)
		l->params.on_join(l->params.ctx, link, &link->info);
	else
		link_refuse(link);
}

static void on_failed(void *ctx, struct link *link, const struct link_down *down, bool blames_invite, const uint8_t *token_id)
{
	struct slot *s = ctx;
	struct link_listener *l = s->listener;
	l->stats.n_failed++;
	log_failure(l, &link->info.addr, down->text);
	free_slot(s);
	if (blames_invite && l->params.on_invite_failed != NULL)
		l->params.on_invite_failed(l->params.ctx, token_id);
}

// ---- Accepting ----

static void on_accept(void *ctx, nng_stream *conn)
{
	struct link_listener *l = ctx;
	l->stats.n_accepted++;
	struct stream_peer peer = stream_peer_of(conn);
	struct addr_entry *addr = addr_table_find(&l->addrs, &peer);
	if (addr != NULL && addr->n_conns >= l->params.limits->unauth_per_addr_max)
		evict(l, oldest(l, addr, false));
	struct slot *s = free_slot_find(l);
	if (s == NULL && l->stats.n_unauth > 0) {
		evict(l, oldest(l, NULL, false));
		s = free_slot_find(l);
	}
	addr = s != NULL ? addr_table_enter(&l->addrs, &peer, loop_now_ns(l->loop)) : NULL;
	if (addr == NULL) {
		nng_stream_free(conn);
		return;
	}
	if (link_serve(s->link, l->loop, conn, l->params.limits, &l->params.callbacks, &s->owner) != OK) {
		addr_table_leave(addr);
		return;
	}
	s->addr = addr;
	s->order = l->n_ordered++;
	l->stats.n_unauth++;
	start_waiting(l, addr);
}

// ---- Opening and closing ----

static enum err alloc_slots(struct link_listener *l)
{
	const struct link_limits *limits = l->params.limits;
	l->slots = calloc(limits->unauth_max, sizeof *l->slots);
	if (l->slots == NULL)
		return ERR_NOMEM;
	for (uint32_t i = 0; i < limits->unauth_max; i++) {
		struct slot *s = &l->slots[i];
		s->listener = l;
		s->owner = (struct link_owner){s, on_authenticated, on_failed};
		s->link = calloc(1, sizeof *s->link);
		if (s->link == NULL)
			return ERR_NOMEM;
	}
	return addr_table_open(&l->addrs, limits->addrs_max, limits->failed_per_s, limits->failed_burst);
}

enum err link_listener_open(
	struct link_listener **out, struct loop *loop, const struct link_listener_params *params, struct errmsg *em)
{
	ASSERT(params->limits->addrs_max > params->limits->unauth_max);
	*out = NULL;
	struct link_listener *l = calloc(1, sizeof *l);
	if (l == NULL)
		return errmsg_fail(em, ERR_NOMEM, "%s: out of memory", params->addr);
	l->loop = loop;
	l->params = *params;
	loop_timer_init(&l->wait_timer, on_wait_timer, l);
	enum err e = alloc_slots(l);
	if (e != OK) {
		errmsg_fail(em, e, "%s: out of memory", params->addr);
		goto fail;
	}
	char url[LINK_URL_CAP];
	int n = snprintf(url, sizeof url, "tcp://%s", params->addr);
	if (n < 0 || (size_t)n >= sizeof url) {
		e = errmsg_fail(em, ERR_FORMAT, "an address of %zu characters to listen on", strlen(params->addr));
		goto fail;
	}
	e = stream_listen(&l->stream, loop, url, on_accept, l, em);
	if (e != OK)
		goto fail;
	l->params.addr = NULL; // the caller's
	*out = l;
	return OK;
fail:
	link_listener_close(l);
	return e;
}

void link_listener_close(struct link_listener *l)
{
	if (l == NULL)
		return;
	stream_listener_close(&l->stream);
	loop_timer_clear(l->loop, &l->wait_timer);
	for (uint32_t i = 0; l->slots != NULL && i < l->params.limits->unauth_max; i++) {
		struct slot *s = &l->slots[i];
		if (s->addr != NULL)
			free_slot(s);
		free(s->link);
	}
	free(l->slots);
	addr_table_close(&l->addrs);
	free(l);
}

uint16_t link_listener_port(const struct link_listener *l)
{
	return l->stream.port;
}

struct link_listener_stats link_listener_get_stats(const struct link_listener *l)
{
	struct link_listener_stats st = l->stats;
	for (uint32_t i = 0; i < l->params.limits->unauth_max; i++)
		if (l->slots[i].addr != NULL && l->slots[i].link->state == LINK_WAITING)
			st.n_waiting++;
	return st;
}
