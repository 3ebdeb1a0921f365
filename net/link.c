#include "net/link.h"

#include "base/assert.h"
#include "base/limits.h"
#include "net/link_impl.h"
#include "proto/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

const struct link_limits link_limits_default = {
	.connect_ns = 5000 * MS,
	.handshake_ns = 3000 * MS,
	.close_ns = 8000 * MS, // as long as silence is forgiven (flow/liveness): Wi-Fi stalls for seconds, and a replaced link that ends in a stall counts as lost
	.queued_frames = LINK_QUEUE_FRAMES,
	// Data: HOP_CREDITS_DEFAULT frames of the largest size, which is all that credits let anybody send.
	.queued_bytes = {4u << 20, (size_t)HOP_CREDITS_DEFAULT *DATA_RECORD_MAX, 16u << 20},
	.unauth_max = 64,
	.unauth_per_addr_max = 16,
	.failed_per_s = 20,
	.failed_burst = 5,
	.addrs_max = 512,
	.log_lines_per_s = 2,
};

uint32_t link_record_max(enum lnk1_kind kind)
{
	static const uint32_t max[LNK1_N_KINDS] = {CONTROL_RECORD_MAX, DATA_RECORD_MAX, BLOCKS_RECORD_MAX};
	return max[kind];
}

// Before it is up a link has one message under way at most.
static const struct stream_limits handshake_stream_limits = {.queued_bytes_max = 1024, .queued_chunks_max = 2};

const char *link_down_words(enum link_down_reason r)
{
	static const char *const words[] = {
#define X(name, words) words,
		LINK_DOWN_TABLE(X)
#undef X
	};
	return (size_t)r < ARRAY_LEN(words) ? words[r] : "connection lost";
}

// ---- The end ----

void link_reset(struct link *link)
{
	if (link->loop == NULL)
		return;
	if (link->gone != NULL)
		*link->gone = true;
	loop_timer_clear(link->loop, &link->deadline);
	loop_task_cancel(link->loop, &link->end_task);
	loop_resident_remove(&link->resident);
	stream_close(&link->stream);
	free(link->rx);
	sodium_memzero(link, sizeof *link); // LINK_IDLE; handshake secrets and both streams' keys with it
}

static void write_text(struct link *link)
{
	const struct link_down *d = &link->down;
	const char *words = link_down_words(d->reason);
	char *out = link->text;
	switch (d->reason) {
	case LINK_DOWN_LOST:
		if (!d->was_up && d->stream == STREAM_EOF && link->is_dialled)
			snprintf(out, LINK_TEXT_CAP,
				"closed by the other side during the handshake (it does not know this machine, or is another "
				"one)");
		else
			snprintf(out, LINK_TEXT_CAP, "%s (%s)", words, stream_end_words(d->stream));
		break;
	case LINK_DOWN_NO_CONNECTION:
		snprintf(out, LINK_TEXT_CAP, "%s", stream_end_words(d->stream));
		break;
	case LINK_DOWN_HANDSHAKE:
		snprintf(out, LINK_TEXT_CAP, "%s: %s", words, lnk1_failure_words(d->handshake));
		break;
	default:
		snprintf(out, LINK_TEXT_CAP, "%s", words);
		break;
	}
	link->down.text = out;
}

// tell_end gives the last word about an ended link to its owner or host, and frees it. Nothing may touch the link afterwards.
static void tell_end(void *ctx)
{
	struct link *link = ctx;
	bool is_closed = link->down.reason == LINK_DOWN_CLOSED || link->down.reason == LINK_DOWN_PEER_CLOSED;
	link->down.is_orderly = is_closed && !link->has_dropped;
	write_text(link);
	if (link->owner != NULL) {
		uint8_t token_id[LNK1_TOKEN_ID_LEN];
		memcpy(token_id, link->handshake.server.token_id, sizeof token_id);
		link->owner->on_failed(link->owner->ctx, link, &link->down, link->handshake.server.blames_invite, token_id);
		return;
	}
	link->is_in_down = true;
	// An accepted link that ends between M3 and on_up was never shown to the host, except by on_join.
	if (link->is_dialled || link->was_up || link->info.mode == LNK1_JOIN)
		link->callbacks.on_down(link->callbacks.ctx, link, &link->down);
	link_reset(link);
	free(link);
}

static void end_with_loop(void *ctx)
{
	struct link *link = ctx;
	link_reset(link);
	free(link);
}

static void mark_ended(struct link *link, struct link_down down)
{
	ASSERT(link->state != LINK_ENDED);
	link->state = LINK_ENDED;
	down.was_up = link->was_up;
	link->down = down;
	loop_timer_clear(link->loop, &link->deadline);
	stream_close(&link->stream);
}

// end_now is for the tail of an event; end_later for inside a call of the host, who must not be called back from there.
static void end_now(struct link *link, struct link_down down)
{
	mark_ended(link, down);
	tell_end(link);
}

static void end_later(struct link *link, struct link_down down)
{
	mark_ended(link, down);
	loop_task_post(link->loop, &link->end_task);
}

static struct link_down handshake_failed(enum lnk1_failure f)
{
	return (struct link_down){.reason = LINK_DOWN_HANDSHAKE, .handshake = f};
}

// ---- Records ----

static void read_records(struct link *link)
{
	stream_read(&link->stream, link->rx + link->rx_have, link->rx_cap - link->rx_have);
}

// send_final queues TAG_FINAL behind what is queued; nothing more is sent after it.
static void send_final(struct link *link)
{
	enum err e = lnk1_seal_final(&link->keys.tx, link->final_record);
	ASSERT(e == OK); // once per link: only on the way from LINK_UP to LINK_CLOSING
	link->state = LINK_CLOSING;
	link->small = (struct stream_chunk){.data = link->final_record, .len = sizeof link->final_record, .is_borrowed = true};
	link->stats.bytes_out += link->small.len;
	stream_push(&link->stream, &link->small);
	loop_timer_set(link->loop, &link->deadline, loop_now_ns(link->loop) + link->limits->close_ns);
}

// end_of_both: both sides have said TAG_FINAL, and ours is in the kernel.
static void end_of_both(struct link *link)
{
	end_now(link, link->down);
}

static void on_peer_final(struct link *link)
{
	link->peer_closed = true;
	bool by_us = link->state == LINK_CLOSING;
	link->down = (struct link_down){.reason = by_us ? LINK_DOWN_CLOSED : LINK_DOWN_PEER_CLOSED};
	if (!by_us)
		send_final(link);
	else if (!link->stream.is_writing)
		end_of_both(link);
}

enum taken {
	TAKEN_FRAME,   // go on, unless the host aborted the link in on_frame
	TAKEN_PARTIAL, // more bytes are needed
	TAKEN_LAST,    // nothing more is read: the other side's TAG_FINAL, or the link has ended
};

static enum taken refuse_record(struct link *link)
{
	end_now(link, (struct link_down){.reason = LINK_DOWN_RECORD});
	return TAKEN_LAST;
}

// take_record opens the record that begins at link->rx + *at.
static enum taken take_record(struct link *link, size_t *at)
{
	if (link->body_len == 0) {
		if (link->rx_have - *at < LNK1_RECORD_HEAD)
			return TAKEN_PARTIAL;
		if (lnk1_open_head(&link->keys.rx, link->rx + *at, &link->body_len) != OK)
			return refuse_record(link);
		*at += LNK1_RECORD_HEAD;
	}
	if (link->rx_have - *at < link->body_len)
		return TAKEN_PARTIAL;

	uint8_t *body = link->rx + *at;
	uint32_t len;
	if (lnk1_open_body(&link->keys.rx, body, body + 1, &len) != OK)
		return refuse_record(link);
	*at += link->body_len;
	link->body_len = 0;
	if (len == 0) {
		if (*at != link->rx_have) // bytes behind TAG_FINAL are no record of this link
			return refuse_record(link);
		on_peer_final(link);
		return TAKEN_LAST;
	}
	link->stats.frames_in++;
	link->callbacks.on_frame(link->callbacks.ctx, link, body + 1, len);
	return TAKEN_FRAME;
}

static void take_records(struct link *link)
{
	size_t at = 0;
	bool gone = false;
	link->gone = &gone;
	enum taken taken;
	do
		taken = take_record(link, &at);
	while (taken == TAKEN_FRAME && !gone && link->state != LINK_ENDED);
	if (gone)
		return;
	link->gone = NULL;
	if (taken == TAKEN_LAST || link->state == LINK_ENDED)
		return;
	link->rx_have -= at;
	memmove(link->rx, link->rx + at, link->rx_have);
	read_records(link);
}

// ---- The handshake ----

static void fill_info(struct link *link)
{
	const struct lnk1_link *k = &link->keys;
	struct link_info *i = &link->info;
	*i = (struct link_info){.kind = k->kind,
		.mode = k->mode,
		.is_dialled = link->is_dialled,
		.member_epoch = {k->member_epoch},
		.client_member_epoch = {k->client_member_epoch},
		.version = k->version,
		.record_max = k->record_max,
		.addr = link->stream.peer};
	memcpy(i->peer_pk, k->peer_pk, sizeof i->peer_pk);
	memcpy(i->session_id, k->session_id, sizeof i->session_id);
	memcpy(i->token_id, k->token_id, sizeof i->token_id);
	memcpy(i->boot_id, k->boot_id, sizeof i->boot_id);
	lnk1_node_id(i->peer_pk, i->peer.b);
}

// fill_info_judged: what is authenticated after M3; the link's keys do not exist yet.
static void fill_info_judged(struct link *link)
{
	const struct lnk1_server *s = &link->handshake.server;
	struct link_info *i = &link->info;
	*i = (struct link_info){
		.kind = s->kind, .mode = s->mode, .client_member_epoch = {s->client_epoch}, .addr = link->stream.peer};
	memcpy(i->peer_pk, s->node_pk, sizeof i->peer_pk);
	memcpy(i->token_id, s->token_id, sizeof i->token_id);
	memcpy(i->boot_id, s->boot_id, sizeof i->boot_id);
	lnk1_node_id(i->peer_pk, i->peer.b);
}

static void come_up(struct link *link)
{
	if (link->is_dialled)
		lnk1_client_finish(&link->handshake.client, &link->keys);
	else
		lnk1_server_finish(&link->handshake.server, &link->keys);
	fill_info(link);
	link->rx_cap = (size_t)link->keys.record_max + LNK1_RECORD_EXTRA;
	link->rx = malloc(link->rx_cap);
	if (link->rx == NULL) {
		end_now(link, (struct link_down){.reason = LINK_DOWN_NOMEM});
		return;
	}
	link->stream.queued_bytes_max = link->limits->queued_bytes[link->info.kind];
	link->stream.queued_chunks_max = link->limits->queued_frames;
	loop_timer_clear(link->loop, &link->deadline);
	link->state = LINK_UP;
	link->was_up = true;
	link->stats.up_ns = loop_now_ns(link->loop);

	bool gone = false;
	link->gone = &gone;
	link->callbacks.on_up(link->callbacks.ctx, link, &link->info);
	if (gone)
		return;
	link->gone = NULL;
	if (link->state != LINK_ENDED)
		read_records(link);
}

static void read_handshake(struct link *link)
{
	size_t len;
	uint8_t *room = link->is_dialled ? lnk1_client_room(&link->handshake.client, &len)
					 : lnk1_server_room(&link->handshake.server, &len);
	stream_read(&link->stream, room, len);
}

static void send_handshake(struct link *link, enum link_after after)
{
	size_t len;
	const uint8_t *out = link->is_dialled ? lnk1_client_out(&link->handshake.client, &len)
					      : lnk1_server_out(&link->handshake.server, &len);
	// The machine keeps its message until the next lnk1_x_room; the final record's place is free until the very end.
	link->small = (struct stream_chunk){.data = (uint8_t *)(uintptr_t)out, .len = len, .is_borrowed = true};
	link->after = after;
	link->stats.bytes_out += len;
	stream_push(&link->stream, &link->small);
}

// judge: the peer has proved who it is, so the link leaves the strangers' pool.
static void judge(struct link *link)
{
	const struct link_owner *owner = link->owner;
	fill_info_judged(link);
	link->owner = NULL;
	loop_resident_add(link->loop, &link->resident, end_with_loop, link);
	link->state = LINK_JUDGED;
	bool is_join = link->info.mode == LNK1_JOIN;
	owner->on_authenticated(owner->ctx, link); // a join: the host may accept, refuse or abort it in there
	if (!is_join)
		link_accept(link);
}

static void advance(struct link *link, enum lnk1_step step)
{
	switch (step) {
	case LNK1_MORE:
		read_handshake(link);
		break;
	case LNK1_SEND:
		send_handshake(link, LINK_AFTER_READ);
		break;
	case LNK1_JUDGE:
		judge(link);
		break;
	case LNK1_DONE: // the client's; the server's comes from link_accept
		come_up(link);
		break;
	case LNK1_REJECT:
		send_handshake(link, LINK_AFTER_REJECT);
		break;
	case LNK1_FAILED:
		end_now(link,
			handshake_failed(link->is_dialled ? link->handshake.client.failure : link->handshake.server.failure));
		break;
	}
}

void link_accept(struct link *link)
{
	if (link->state != LINK_JUDGED)
		return;
	link->state = LINK_HANDSHAKE;
	enum lnk1_step step = lnk1_server_accept(&link->handshake.server);
	ASSERT(step == LNK1_DONE);
	send_handshake(link, LINK_AFTER_UP);
}

void link_refuse(struct link *link)
{
	if (link->state != LINK_JUDGED)
		return;
	(void)lnk1_server_refuse(&link->handshake.server);
	end_later(link, handshake_failed(LNK1_REFUSED));
}

// ---- The stream's events ----

static void on_connected(void *ctx)
{
	struct link *link = ctx;
	link->state = LINK_HANDSHAKE;
	link->stats.heard_ns = loop_now_ns(link->loop);
	loop_timer_set(link->loop, &link->deadline, link->stats.heard_ns + link->limits->handshake_ns);
	struct lnk1_client_random rnd;
	randombytes_buf(&rnd, sizeof rnd);
	enum lnk1_step step = lnk1_client_init(&link->handshake.client, &link->params, &rnd);
	sodium_memzero(&link->params, sizeof link->params);
	advance(link, step);
}

static void on_read(void *ctx, size_t n)
{
	struct link *link = ctx;
	link->stats.bytes_in += n;
	link->stats.heard_ns = loop_now_ns(link->loop);
	if (link->rx != NULL) {
		link->rx_have += n;
		take_records(link);
		return;
	}
	advance(link,
		link->is_dialled ? lnk1_client_received(&link->handshake.client, n)
				 : lnk1_server_received(&link->handshake.server, n));
}

static void on_written(void *ctx)
{
	struct link *link = ctx;
	if (link->state == LINK_HANDSHAKE) {
		if (link->after == LINK_AFTER_READ)
			read_handshake(link);
		else if (link->after == LINK_AFTER_UP)
			come_up(link);
		else
			end_now(link, handshake_failed(link->handshake.server.failure));
	} else if (link->state == LINK_CLOSING && link->peer_closed) {
		end_of_both(link);
	} else if (link->was_full && link->state == LINK_UP) {
		link->was_full = false;
		if (link->callbacks.on_writable != NULL)
			link->callbacks.on_writable(link->callbacks.ctx, link);
	}
}

static void on_end(void *ctx, enum stream_end why)
{
	struct link *link = ctx;
	bool connected = link->state != LINK_CONNECTING;
	end_now(link, (struct link_down){.reason = connected ? LINK_DOWN_LOST : LINK_DOWN_NO_CONNECTION, .stream = why});
}

static const struct stream_events stream_events = {on_connected, on_read, on_written, on_end};

static void on_deadline(void *ctx)
{
	struct link *link = ctx;
	if (link->state == LINK_CLOSING)
		end_now(link, (struct link_down){.reason = LINK_DOWN_LOST, .stream = STREAM_TIMEOUT});
	else
		end_now(link, (struct link_down){.reason = LINK_DOWN_HANDSHAKE_TIMEOUT});
}

static void init_link(
	struct link *link, struct loop *loop, const struct link_limits *limits, const struct link_callbacks *callbacks)
{
	*link = (struct link){.loop = loop, .limits = limits, .callbacks = *callbacks};
	loop_timer_init(&link->deadline, on_deadline, link);
	loop_task_init(&link->end_task, tell_end, link);
}

// ---- The client side ----

// make_url: "host:port" becomes "tcp://host:port"; a URL stays.
static enum err make_url(const char *addr, char url[LINK_URL_CAP], struct errmsg *em)
{
	bool is_url = strstr(addr, "://") != NULL;
	const char *colon = strrchr(addr, ':');
	if (!is_url && (colon == NULL || colon == addr || colon[1] == '\0'))
		return errmsg_fail(em, ERR_FORMAT, "%s: no address of a machine (want host:port)", addr);
	int n = snprintf(url, LINK_URL_CAP, "%s%s", is_url ? "" : "tcp://", addr);
	if (n < 0 || n >= LINK_URL_CAP)
		return errmsg_fail(
			em, ERR_FORMAT, "an address of %zu characters (want at most %d)", strlen(addr), LINK_URL_CAP - 7);
	return OK;
}

enum err link_dial(struct loop *loop, const char *addr, const struct lnk1_client_params *params, const struct link_limits *limits,
	const struct link_callbacks *callbacks, struct link **out, struct errmsg *em)
{
	*out = NULL;
	char url[LINK_URL_CAP];
	enum err e = make_url(addr, url, em);
	if (e != OK)
		return e;
	struct link *link = malloc(sizeof *link);
	if (link == NULL)
		return errmsg_fail(em, ERR_NOMEM, "%s: out of memory", addr);
	init_link(link, loop, limits, callbacks);
	link->is_dialled = true;
	link->state = LINK_CONNECTING;
	link->params = *params;
	e = stream_connect(&link->stream, loop, url, limits->source, loop_now_ns(loop) + limits->connect_ns, &handshake_stream_limits,
		&stream_events, link, em);
	if (e != OK) {
		link_reset(link);
		free(link);
		return e;
	}
	loop_resident_add(loop, &link->resident, end_with_loop, link);
	*out = link;
	return OK;
}

// ---- The server side ----

enum err link_serve(struct link *link, struct loop *loop, nng_stream *conn, const struct link_limits *limits,
	const struct link_callbacks *callbacks, const struct link_owner *owner)
{
	init_link(link, loop, limits, callbacks);
	link->owner = owner;
	link->state = LINK_WAITING;
	enum err e = stream_adopt(&link->stream, loop, conn, &handshake_stream_limits, &stream_events, link);
	if (e != OK) {
		link_reset(link);
		return e;
	}
	link->info.addr = link->stream.peer; // outlives the stream, for the listener's log
	link->stats.heard_ns = loop_now_ns(loop);
	loop_timer_set(loop, &link->deadline, link->stats.heard_ns + limits->handshake_ns);
	return OK;
}

void link_start(struct link *link, const struct lnk1_server_config *cfg)
{
	ASSERT(link->state == LINK_WAITING);
	link->state = LINK_HANDSHAKE;
	struct lnk1_server_random rnd;
	randombytes_buf(&rnd, sizeof rnd);
	lnk1_server_init(&link->handshake.server, cfg, &rnd);
	read_handshake(link);
}

// ---- What the host calls ----

enum err link_send2(struct link *link, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t payload_len)
{
	if (link->state != LINK_UP)
		return ERR_CLOSED;
	size_t max = link->keys.record_max;
	if (head_len > max || payload_len > max - head_len || head_len + payload_len == 0)
		return ERR_RANGE;

	size_t len = head_len + payload_len;
	struct stream_chunk *c;
	enum err e = stream_chunk_new(&link->stream, len + LNK1_RECORD_EXTRA, &c);
	if (e != OK) {
		link->was_full |= e == ERR_LIMIT;
		return e;
	}
	uint8_t *plain = c->data + LNK1_RECORD_PLAIN_AT;
	if (head_len > 0)
		memcpy(plain, head, head_len);
	if (payload_len > 0)
		memcpy(plain + head_len, payload, payload_len);
	e = lnk1_seal(&link->keys.tx, plain, (uint32_t)len, c->data);
	ASSERT(e == OK); // the length is in range, and no FINAL was sent
	link->stats.frames_out++;
	link->stats.bytes_out += c->len;
	stream_push(&link->stream, c);
	link->was_full |= stream_is_full(&link->stream);
	return OK;
}

enum err link_send(struct link *link, const uint8_t *frame, size_t len)
{
	return link_send2(link, frame, len, NULL, 0);
}

enum err link_send_or_end(struct link *link, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t payload_len)
{
	ASSERT(head_len >= 1);
	enum err e = link_send2(link, head, head_len, payload, payload_len);
	if (e != OK) {
		link->has_dropped |= !frame_is_ping(head);
		link_close(link);
	}
	return e;
}

void link_want_writable(struct link *link)
{
	link->was_full = true;
}

bool link_is_full(const struct link *link)
{
	return stream_is_full(&link->stream);
}

void link_close(struct link *link)
{
	if (link->state == LINK_UP)
		send_final(link);
	else if (link->state != LINK_CLOSING && link->state != LINK_ENDED)
		end_later(link, (struct link_down){.reason = LINK_DOWN_CLOSED});
}

void link_cut(struct link *link)
{
	if (link->state == LINK_ENDED)
		return;
	link->has_dropped = true;
	end_later(link, (struct link_down){.reason = LINK_DOWN_CLOSED});
}

void link_abort(struct link *link)
{
	ASSERT(link->owner == NULL);
	if (link->is_in_down) // dead already, and about to be freed
		return;
	link_reset(link);
	free(link);
}

const struct link_info *link_get_info(const struct link *link)
{
	return &link->info;
}

bool link_is_up(const struct link *link)
{
	return link->state == LINK_UP;
}

void link_set_user(struct link *link, void *user)
{
	link->user = user;
}

void *link_user(const struct link *link)
{
	return link->user;
}

void link_set_callbacks(struct link *link, const struct link_callbacks *callbacks)
{
	link->callbacks = *callbacks;
}

struct link_stats link_get_stats(const struct link *link)
{
	struct link_stats s = link->stats;
	s.queued_bytes = link->stream.queued_bytes;
	s.queued_frames = link->stream.queued_chunks;
	return s;
}
