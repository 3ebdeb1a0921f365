#include "coordinator/shell/coord_link_host.h"

#include "base/assert.h"
#include "kernels/canonical.h"
#include "net/link_listener.h"
#include "net/link_params.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOCAL_CONTROL 1 // handles of the local links
#define LOCAL_DATA 2
#define PLACES 512      // links and joins: more than the core takes, so that the core does the refusing

struct place {
	uint32_t handle; // 0: free
	struct link *link;
};

struct coord_link_host {
	struct coord_link_host_params p;
	struct lnk1_server_config server;
	struct link_listener *listener;
	struct place places[PLACES];
	uint32_t last_handle;
	const uint8_t *message;
	size_t message_len;
};

static void tell(struct coord_link_host *l, struct coord_event *ev)
{
	l->p.on_event(l->p.ctx, ev);
}

static struct place *find_link(struct coord_link_host *l, uint32_t handle)
{
	for (size_t i = 0; i < PLACES; i++)
		if (l->places[i].handle == handle && handle != 0)
			return &l->places[i];
	return NULL;
}

static struct place *add_link(struct coord_link_host *l, struct link *link)
{
	for (size_t i = 0; i < PLACES; i++) {
		if (l->places[i].handle != 0)
			continue;
		l->places[i] = (struct place){.handle = ++l->last_handle, .link = link};
		link_set_user(link, &l->places[i]);
		return &l->places[i];
	}
	return NULL;
}

// ---- what links tell

static void on_join(void *ctx, struct link *link, const struct link_info *info)
{
	struct coord_link_host *l = ctx;
	struct place *place = add_link(l, link);
	if (place == NULL) {
		link_refuse(link);
		return;
	}
	struct coord_event ev = {.type = COORD_EV_JOIN};
	ev.u.join.link = place->handle;
	ev.u.join.id = info->peer;
	memcpy(ev.u.join.token_id, info->token_id, TOKEN_ID_BYTES);
	memcpy(ev.u.join.public_key, info->peer_pk, KEY_BYTES);
	randombytes_buf(ev.u.join.random, KEY_BYTES);
	tell(l, &ev);
	sodium_memzero(&ev, sizeof ev);
}

static void on_invite_failed(void *ctx, const uint8_t token_id[LNK1_TOKEN_ID_LEN])
{
	struct coord_event ev = {.type = COORD_EV_JOIN_FAILED};
	memcpy(ev.u.join_failed.token_id, token_id, TOKEN_ID_BYTES);
	tell(ctx, &ev);
}

// take_blocks hands on a link that the core does not see.
static void take_blocks(struct coord_link_host *l, struct link *link, const struct link_info *info)
{
	uint8_t psk[KEY_BYTES];
	bool is_member = coordinator_find_psk(l->p.core, info->peer_pk, psk); // else revoked since its handshake
	sodium_memzero(psk, sizeof psk);
	if (is_member && l->p.on_blocks != NULL)
		l->p.on_blocks(l->p.ctx, link, info);
	else
		link_cut(link);
}

static void on_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct coord_link_host *l = ctx;
	if (info->kind == LNK1_BLOCKS) {
		take_blocks(l, link, info);
		return;
	}
	struct place *place = link_user(link); // a join's has one already
	if (place == NULL)
		place = add_link(l, link);
	if (place == NULL) {
		link_cut(link);
		return;
	}
	char remote[STREAM_PEER_TEXT];
	stream_peer_text(&info->addr, remote);
	char *colon = strrchr(remote, ':');
	if (colon != NULL)
		*colon = '\0';
	struct coord_event ev = {.type = COORD_EV_LINK_UP};
	ev.u.link_up.link = place->handle;
	ev.u.link_up.peer = info->peer;
	ev.u.link_up.kind = info->mode == LNK1_JOIN ? COORD_LINK_JOIN : info->kind == LNK1_CONTROL ? COORD_LINK_CONTROL : COORD_LINK_DATA;
	ev.u.link_up.remote = remote;
	tell(l, &ev);
}

static void on_message(struct coord_link_host *l, uint32_t handle, const uint8_t *frame, size_t len)
{
	l->message = frame;
	l->message_len = len;
	struct coord_event ev = {.type = COORD_EV_MESSAGE};
	ev.u.message.link = handle;
	ev.u.message.data = frame;
	ev.u.message.len = len;
	tell(l, &ev);
	l->message = NULL;
}

static void on_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct place *place = link_user(link);
	if (place != NULL)
		on_message(ctx, place->handle, frame, len);
}

static void on_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct place *place = link_user(link);
	if (place == NULL)
		return;
	struct coord_event ev = {.type = COORD_EV_LINK_DOWN};
	ev.u.link_down.link = place->handle;
	ev.u.link_down.orderly = down->is_orderly;
	ev.u.link_down.reason = down->text;
	place->handle = 0;
	tell(ctx, &ev);
}

// ---- what the core wants

const uint8_t *coord_link_host_message(const struct coord_link_host *l, size_t *len)
{
	ASSERT(l->message != NULL);
	*len = l->message_len;
	return l->message;
}

void coord_link_host_send(struct coord_link_host *l, uint32_t handle, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t len)
{
	enum err e;
	if (handle == LOCAL_CONTROL || handle == LOCAL_DATA) {
		e = local_link_send(handle == LOCAL_CONTROL ? l->p.local_control : l->p.local_data, 0, head, head_len, payload, len);
	} else {
		struct place *place = find_link(l, handle);
		if (place == NULL)
			return;
		e = link_send_or_end(place->link, head, head_len, payload, len);
	}
	if (e != OK && e != ERR_CLOSED)
		log_line(l->p.log, LOG_ERROR, "a frame could not be sent to a node: %s", err_words(e));
}

void coord_link_host_end(struct coord_link_host *l, uint32_t handle, bool orderly)
{
	struct place *place = find_link(l, handle);
	if (place == NULL)
		return;
	if (orderly)
		link_close(place->link);
	else
		link_cut(place->link);
}

void coord_link_host_disconnect(struct coord_link_host *l, struct node_id node)
{
	for (size_t i = 0; i < PLACES; i++) {
		struct place *place = &l->places[i];
		if (place->handle == 0 || !node_id_is(link_get_info(place->link)->peer, node))
			continue;
		place->handle = 0;
		link_abort(place->link);
	}
}

void coord_link_host_judge(struct coord_link_host *l, uint32_t handle, bool accept)
{
	struct place *place = find_link(l, handle);
	if (place == NULL)
		return;
	if (accept)
		link_accept(place->link);
	else
		link_refuse(place->link);
}

void coord_link_host_set_epoch(struct coord_link_host *l, struct member_epoch e)
{
	l->server.member_epoch = e.v;
}

// ---- the node on this machine

static void on_local_control(void *ctx, uint32_t end, const uint8_t *frame, size_t len)
{
	(void)end;
	on_message(ctx, LOCAL_CONTROL, frame, len);
}

static void on_local_data(void *ctx, uint32_t end, const uint8_t *frame, size_t len)
{
	(void)end;
	on_message(ctx, LOCAL_DATA, frame, len);
}

void coord_link_host_start_local(struct coord_link_host *l, struct node_id self)
{
	static const enum coord_link_kind kinds[] = {COORD_LINK_DATA, COORD_LINK_CONTROL};
	static const uint32_t handles[] = {LOCAL_DATA, LOCAL_CONTROL};
	local_link_attach(l->p.local_control, 0, &(struct local_callbacks){.ctx = l, .on_frame = on_local_control});
	local_link_attach(l->p.local_data, 0, &(struct local_callbacks){.ctx = l, .on_frame = on_local_data});
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct coord_event ev = {.type = COORD_EV_LINK_UP};
		ev.u.link_up.link = handles[i];
		ev.u.link_up.peer = self;
		ev.u.link_up.kind = kinds[i];
		ev.u.link_up.remote = "";
		tell(l, &ev);
	}
}

// ---- opening

static bool find_token(void *ctx, const uint8_t token_id[LNK1_TOKEN_ID_LEN], uint8_t secret[LNK1_KEY_LEN])
{
	return coordinator_find_token(((struct coord_link_host *)ctx)->p.core, token_id, time(NULL), secret);
}

static bool find_member(void *ctx, enum lnk1_kind kind, const uint8_t node_pk[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN])
{
	(void)kind;
	return coordinator_find_psk(((struct coord_link_host *)ctx)->p.core, node_pk, psk);
}

enum err coord_link_host_listen(struct coord_link_host *l, const struct coord_link_host_listen *p, struct errmsg *em)
{
	link_params_server(&l->server, p->keys, p->cluster_id, CANON_VERSION);
	l->server.lookup = (struct lnk1_lookup){.ctx = l, .token = find_token, .member = find_member};
	struct link_listener_params lp = {
		.addr = p->addr,
		.cfg = &l->server,
		.limits = p->limits,
		.log = l->p.log,
		.callbacks = {.ctx = l, .on_up = on_up, .on_frame = on_frame, .on_down = on_down},
		.ctx = l,
		.on_join = on_join,
		.on_invite_failed = on_invite_failed,
	};
	return link_listener_open(&l->listener, l->p.loop, &lp, em);
}

uint16_t coord_link_host_port(const struct coord_link_host *l)
{
	return l->listener ? link_listener_port(l->listener) : 0;
}

enum err coord_link_host_open(const struct coord_link_host_params *p, struct coord_link_host **out, struct errmsg *em)
{
	struct coord_link_host *l = calloc(1, sizeof *l);
	if (l == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the coordinator's links");
	l->p = *p;
	l->last_handle = LOCAL_DATA;
	*out = l;
	return OK;
}

void coord_link_host_close(struct coord_link_host *l)
{
	if (l == NULL)
		return;
	local_link_detach(l->p.local_control, 0);
	local_link_detach(l->p.local_data, 0);
	link_listener_close(l->listener);
	for (size_t i = 0; i < PLACES; i++)
		if (l->places[i].handle != 0)
			link_abort(l->places[i].link);
	sodium_memzero(l, sizeof *l);
	free(l);
}
