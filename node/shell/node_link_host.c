#include "node/shell/node_link_host.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "flow/dup_link.h"
#include "kernels/canonical.h"
#include "net/link_listener.h"
#include "net/link_params.h"
#include "node/shell/dialer.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define DIALERS_MAX (2 + NODE_PEERS_MAX) // coordinator control and data, the plan's peers
#define LOCAL_CONTROL 1 // handles of the local links
#define LOCAL_DATA 2

struct host_dialer {
	struct node_link_host *h;
	struct dialer *dialer; // NULL: free
	struct node_id peer;
	enum node_link_kind kind;
	bool is_coordinator;
	struct msg_peer who; // a neighbour
	bool is_quiet;       // failures were reported once already
};

struct host_link {
	uint32_t handle; // 0: free
	struct link *link;
	struct node_id peer;
	bool by_us;
};

struct node_link_host {
	struct node_link_host_params p;
	struct lnk1_server_config server;
	struct link_listener *listener;
	struct host_dialer dialers[DIALERS_MAX];
	struct host_link links[NODE_LINKS_MAX];
	uint32_t last_handle;
	const uint8_t *message; // the frame being handled
	size_t message_len;
};

static struct host_link *find_link(struct node_link_host *h, uint32_t handle)
{
	for (size_t i = 0; i < ARRAY_LEN(h->links); i++)
		if (h->links[i].handle == handle && handle != 0)
			return &h->links[i];
	return NULL;
}

static struct host_link *find_by_link(struct node_link_host *h, const struct link *link)
{
	for (size_t i = 0; i < ARRAY_LEN(h->links); i++)
		if (h->links[i].handle != 0 && h->links[i].link == link)
			return &h->links[i];
	return NULL;
}

// ---- who is who

static bool find_member(void *ctx, enum lnk1_kind kind, const uint8_t node_pk[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN])
{
	struct node_link_host *h = ctx;
	if (kind == LNK1_BLOCKS)
		return h->p.blocks != NULL && node_blocks_find_psk(h->p.blocks, node_pk, psk);
	return node_find_psk(h->p.core, node_pk, psk);
}

static void fill_client(struct node_link_host *h, enum node_link_kind kind, struct lnk1_client_params *out)
{
	link_params_client(out, h->p.keys, LNK1_MEMBER, kind == NODE_LINK_CONTROL ? LNK1_CONTROL : LNK1_DATA, h->p.boot_id, CANON_VERSION);
	memcpy(out->cluster_id, h->p.cluster_id, CLUSTER_ID_BYTES);
	out->member_epoch = node_member_epoch(h->p.core).v;
}

static bool coordinator_params(void *ctx, struct lnk1_client_params *out)
{
	struct host_dialer *d = ctx;
	fill_client(d->h, d->kind, out);
	memcpy(out->server_pk, d->h->p.coordinator_pk, KEY_BYTES);
	memcpy(out->psk, d->h->p.psk, KEY_BYTES);
	return true;
}

static bool neighbour_params(void *ctx, struct lnk1_client_params *out)
{
	struct host_dialer *d = ctx;
	for (size_t i = 0; i < ARRAY_LEN(d->h->links); i++)
		if (d->h->links[i].handle != 0 && node_id_is(d->h->links[i].peer, d->peer) && !d->h->links[i].by_us)
			return false; // the neighbour's own dialling has brought a link already
	fill_client(d->h, d->kind, out);
	memcpy(out->server_pk, d->who.public_key, KEY_BYTES);
	memcpy(out->psk, d->who.psk, KEY_BYTES);
	return true;
}

// ---- what links tell

static void tell(struct node_link_host *h, struct node_event *ev)
{
	h->p.on_event(h->p.ctx, ev);
}

// on_up takes a link of any origin. Of two with one neighbour both sides keep the same one (flow/dup_link), and the core closes the other when
// nothing can be on its way there any more; with the coordinator, who never dials, the newest stays.
static void on_up(struct node_link_host *h, struct link *link, const struct link_info *info)
{
	bool is_coordinator = node_id_is(info->peer, h->p.coordinator);
	struct host_link *free_place = NULL;
	bool is_spare = false;
	for (size_t i = 0; i < ARRAY_LEN(h->links); i++) {
		struct host_link *l = &h->links[i];
		if (l->handle == 0) {
			free_place = free_place ? free_place : l;
			continue;
		}
		is_spare = is_spare || (!is_coordinator && node_id_is(l->peer, info->peer) &&
			dup_link_decide(h->p.self, info->peer, l->by_us, info->is_dialled) == DUP_LINK_KEEP_OLD);
	}
	if (free_place == NULL && info->is_dialled) {
		link_cut(link); // its dialer hears of the end
		return;
	}
	if (free_place == NULL) {
		link_abort(link);
		return;
	}
	*free_place = (struct host_link){.handle = ++h->last_handle, .link = link, .peer = info->peer, .by_us = info->is_dialled};
	struct node_event ev = {.type = NODE_EV_LINK_UP};
	ev.u.link_up.link = free_place->handle;
	ev.u.link_up.peer = info->peer;
	ev.u.link_up.kind = info->kind == LNK1_CONTROL ? NODE_LINK_CONTROL : NODE_LINK_DATA;
	ev.u.link_up.spare = is_spare;
	tell(h, &ev);
}

static void on_dialled_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct host_dialer *d = ctx;
	d->is_quiet = false;
	on_up(d->h, link, info);
}

static void on_accepted_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct node_link_host *h = ctx;
	if (info->kind != LNK1_BLOCKS) {
		on_up(h, link, info);
		return;
	}
	uint8_t psk[KEY_BYTES];
	bool is_peer = find_member(h, LNK1_BLOCKS, info->peer_pk, psk); // else none any more since its handshake
	sodium_memzero(psk, sizeof psk);
	if (is_peer)
		node_blocks_take(h->p.blocks, link, info);
	else
		link_cut(link);
}

static void on_message(struct node_link_host *h, uint32_t handle, const uint8_t *frame, size_t len)
{
	h->message = frame;
	h->message_len = len;
	struct node_event ev = {.type = NODE_EV_MESSAGE};
	ev.u.message.link = handle;
	ev.u.message.data = frame;
	ev.u.message.len = len;
	tell(h, &ev);
	h->message = NULL;
}

static void on_frame(struct node_link_host *h, struct link *link, const uint8_t *frame, size_t len)
{
	struct host_link *l = find_by_link(h, link);
	if (l != NULL)
		on_message(h, l->handle, frame, len);
}

static void on_dialled_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	on_frame(((struct host_dialer *)ctx)->h, link, frame, len);
}

static void on_accepted_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	on_frame(ctx, link, frame, len);
}

static void on_down(struct node_link_host *h, struct link *link, const struct link_down *down)
{
	struct host_link *l = find_by_link(h, link);
	if (l == NULL)
		return;
	struct node_event ev = {.type = NODE_EV_LINK_DOWN};
	ev.u.link_down.link = l->handle;
	ev.u.link_down.orderly = down->is_orderly;
	ev.u.link_down.reason = down->text;
	l->handle = 0;
	tell(h, &ev);
}

static void on_dialled_down(void *ctx, struct link *link, const struct link_down *down)
{
	on_down(((struct host_dialer *)ctx)->h, link, down);
}

static void on_accepted_down(void *ctx, struct link *link, const struct link_down *down)
{
	on_down(ctx, link, down);
}

// A machine that is off is tried for ever; a person wants to read that once, not every second.
static void on_dial_failed(void *ctx, const char *addr, const struct link_down *down, int64_t next_ns)
{
	struct host_dialer *d = ctx;
	(void)next_ns;
	const char *who = d->is_coordinator ? "the coordinator" : d->who.name;
	bool is_refusal = down->reason == LINK_DOWN_LOST; // during the handshake; a handshake that fails at this end says why itself
	log_line(d->h->p.log, d->is_quiet ? LOG_DEBUG : LOG_WARNING, "cannot reach %s at %s: %s%s; trying again", who, addr, down->text,
		d->is_coordinator && is_refusal ? " (is this machine still a member? hearth status on the coordinator tells)" : "");
	d->is_quiet = true;
}

// ---- what the core wants

const uint8_t *node_link_host_message(const struct node_link_host *h, size_t *len)
{
	ASSERT(h->message != NULL);
	*len = h->message_len;
	return h->message;
}

void node_link_host_connect(struct node_link_host *h, struct node_id peer, enum node_link_kind kind, const struct msg_peer *who)
{
	struct host_dialer *d = NULL;
	for (size_t i = 0; d == NULL && i < DIALERS_MAX; i++)
		if (h->dialers[i].dialer == NULL)
			d = &h->dialers[i];
	ASSERT(d != NULL);
	*d = (struct host_dialer){.h = h, .peer = peer, .kind = kind, .is_coordinator = who == NULL};
	struct dialer_params p = {
		.callbacks = {.ctx = d, .on_up = on_dialled_up, .on_frame = on_dialled_frame, .on_down = on_dialled_down},
		.ctx = d,
		.params = d->is_coordinator ? coordinator_params : neighbour_params,
		.on_failed = on_dial_failed,
		.limits = h->p.limits,
		.backoff = &backoff_defaults,
		.seed = load_u64(h->p.boot_id) + (uint64_t)(d - h->dialers),
	};
	if (d->is_coordinator)
		p.more = h->p.found;
	else
		d->who = *who;
	const struct address_list *list = d->is_coordinator ? &h->p.addresses : &d->who.addresses;
	p.n_addrs = list->n;
	memcpy(p.addrs, list->at, sizeof p.addrs);
	struct errmsg em;
	if (list->n == 0)
		return; // it dials us, or steps go through the coordinator
	if (dialer_open(&d->dialer, h->p.loop, &p, &em) != OK)
		log_line(h->p.log, LOG_ERROR, "cannot dial %s: %s", d->is_coordinator ? "the coordinator" : d->who.name, em.text);
}

// end_dialer ends what a dialer has; links before its newest stay.
static void end_dialer(struct host_dialer *d)
{
	struct node_link_host *h = d->h;
	struct host_link *l = dialer_link(d->dialer) ? find_by_link(h, dialer_link(d->dialer)) : NULL;
	if (l != NULL)
		l->handle = 0;
	dialer_close(d->dialer, false);
	sodium_memzero(d, sizeof *d);
	d->h = h; // such links may still speak
}

static void abort_link(struct host_link *l)
{
	l->handle = 0;
	link_abort(l->link);
}

static struct host_dialer *find_dialer(struct node_link_host *h, struct node_id peer, enum node_link_kind kind)
{
	for (size_t i = 0; i < DIALERS_MAX; i++)
		if (h->dialers[i].dialer != NULL && h->dialers[i].kind == kind && node_id_is(h->dialers[i].peer, peer))
			return &h->dialers[i];
	return NULL;
}

void node_link_host_disconnect(struct node_link_host *h, struct node_id peer, enum node_link_kind kind)
{
	struct host_dialer *d = find_dialer(h, peer, kind);
	if (d != NULL)
		end_dialer(d);
	for (size_t i = 0; i < ARRAY_LEN(h->links); i++)
		if (h->links[i].handle != 0 && node_id_is(h->links[i].peer, peer))
			abort_link(&h->links[i]);
}

void node_link_host_refresh(struct node_link_host *h, struct node_id peer, enum node_link_kind kind)
{
	struct host_dialer *d = find_dialer(h, peer, kind);
	if (d != NULL)
		dialer_renew(d->dialer);
}

void node_link_host_end(struct node_link_host *h, uint32_t handle, bool orderly)
{
	struct host_link *l = find_link(h, handle);
	if (l == NULL)
		return;
	if (orderly)
		link_close(l->link);
	else
		link_cut(l->link);
}

void node_link_host_send(struct node_link_host *h, uint32_t handle, const uint8_t *head, size_t head_len, const uint8_t *payload, size_t len)
{
	enum err e;
	if (h->p.local_control != NULL) {
		e = local_link_send(handle == LOCAL_CONTROL ? h->p.local_control : h->p.local_data, 1, head, head_len, payload, len);
	} else {
		struct host_link *l = find_link(h, handle);
		if (l == NULL)
			return;
		e = link_send_or_end(l->link, head, head_len, payload, len);
	}
	if (e != OK && e != ERR_CLOSED)
		log_line(h->p.log, LOG_ERROR, "a frame could not be sent: %s", err_words(e));
}

// ---- the coordinator in this process

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

void node_link_host_start_local(struct node_link_host *h)
{
	static const enum node_link_kind kinds[] = {NODE_LINK_DATA, NODE_LINK_CONTROL};
	static const uint32_t handles[] = {LOCAL_DATA, LOCAL_CONTROL};
	local_link_attach(h->p.local_control, 1, &(struct local_callbacks){.ctx = h, .on_frame = on_local_control});
	local_link_attach(h->p.local_data, 1, &(struct local_callbacks){.ctx = h, .on_frame = on_local_data});
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct node_event ev = {.type = NODE_EV_LINK_UP};
		ev.u.link_up.link = handles[i];
		ev.u.link_up.peer = h->p.coordinator;
		ev.u.link_up.kind = kinds[i];
		tell(h, &ev);
	}
}

// ---- opening

enum err node_link_host_listen(struct node_link_host *h, const char *addr, struct member_epoch e, uint16_t *port, struct errmsg *em)
{
	link_params_server(&h->server, h->p.keys, h->p.cluster_id, CANON_VERSION);
	h->server.lookup = (struct lnk1_lookup){.ctx = h, .member = find_member};
	h->server.is_node = true;
	h->server.member_epoch = e.v;
	struct link_listener_params lp = {
		.addr = addr,
		.cfg = &h->server,
		.limits = h->p.limits,
		.log = h->p.log,
		.callbacks = {.ctx = h, .on_up = on_accepted_up, .on_frame = on_accepted_frame, .on_down = on_accepted_down},
		.ctx = h,
	};
	enum err err = link_listener_open(&h->listener, h->p.loop, &lp, em);
	if (err == OK)
		*port = link_listener_port(h->listener);
	return err;
}

enum err node_link_host_open(const struct node_link_host_params *p, struct node_link_host **out, struct errmsg *em)
{
	struct node_link_host *h = calloc(1, sizeof *h);
	*out = h;
	if (h == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the node's links");
	h->p = *p;
	h->last_handle = LOCAL_DATA;
	return OK;
}

void node_link_host_close(struct node_link_host *h)
{
	if (h == NULL)
		return;
	local_link_detach(h->p.local_control, 1);
	local_link_detach(h->p.local_data, 1);
	for (size_t i = 0; i < DIALERS_MAX; i++)
		if (h->dialers[i].dialer != NULL)
			end_dialer(&h->dialers[i]);
	for (size_t i = 0; i < ARRAY_LEN(h->links); i++)
		if (h->links[i].handle != 0)
			abort_link(&h->links[i]);
	link_listener_close(h->listener);
	sodium_memzero(h, sizeof *h);
	free(h);
}
