// The links a node fetches over: one to the coordinator, kept up, and some to members while there is something to fetch from them.
#include "node/shell/node_blocks_state.h"

#include "base/bytes.h"
#include "kernels/canonical.h"
#include "net/link_params.h"
#include "proto/frame.h"

#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000000)
#define PING_NS (10 * SECOND) // an idle link shows that it is alive
#define DEAD_NS (30 * SECOND)

// ---- sending to the coordinator

struct link *nb_source_link(struct node_blocks *nb, uint32_t source)
{
	struct dialer *d = source == NB_ORIGIN ? nb->coordinator : nb->peers[source - NB_FIRST_PEER].dialer;
	return d != NULL ? dialer_link(d) : NULL;
}

void nb_tell_coordinator(struct node_blocks *nb, const struct block_frame *f, const uint8_t *data, size_t len)
{
	uint8_t head[BLOCK_FRAME_SMALL_MAX];
	struct link *link = nb_source_link(nb, NB_ORIGIN);
	if (link != NULL && link_send2(link, head, block_frame_encode(f, head), data, len) != OK)
		link_close(link);
}

void nb_tell_have(struct node_blocks *nb)
{
	uint8_t *set = malloc(block_set_encoded_max(nb->present.n));
	if (set == NULL)
		return; // later
	struct block_frame f = {.type = BLOCK_FRAME_HAVE};
	nb_tell_coordinator(nb, &f, set, block_set_encode(&nb->present, set));
	free(set);
	nb->has_news = false;
	nb->have_told_ns = loop_clock_ns();
}

static void say_hello(struct node_blocks *nb, struct link *link)
{
	uint8_t frame[BLOCK_FRAME_SMALL_MAX];
	struct block_frame f = {.type = BLOCK_FRAME_HELLO};
	memcpy(f.u.hello, nb->manifest->hash, BLOCK_HASH_BYTES);
	if (link_send(link, frame, block_frame_encode(&f, frame)) != OK)
		link_close(link);
}

static void source_up(struct node_blocks *nb, uint32_t source, const struct block_set *have)
{
	struct fetch_event ev = {.type = FETCH_EV_SOURCE_UP, .source = source};
	ev.u.up.is_origin = source == NB_ORIGIN;
	ev.u.up.have = have;
	nb_fetch_step(nb, &ev);
}

static void source_down(struct node_blocks *nb, uint32_t source)
{
	struct fetch_event ev = {.type = FETCH_EV_SOURCE_DOWN, .source = source};
	nb_fetch_step(nb, &ev);
}

void nb_introduce(struct node_blocks *nb)
{
	struct link *link = nb_source_link(nb, NB_ORIGIN);
	if (link == NULL || nb->state != NB_READY)
		return;
	say_hello(nb, link);
	nb_tell_have(nb);
	source_up(nb, NB_ORIGIN, NULL);
}

// ---- members

static void leave_peer(struct nb_peer *p)
{
	struct dialer *d = p->dialer;
	uint32_t source = (uint32_t)(p - p->nb->peers) + NB_FIRST_PEER;
	if (d == NULL)
		return;
	p->dialer = NULL;
	dialer_close(d, false);
	source_down(p->nb, source);
}

static void forget_peer(struct nb_peer *p)
{
	struct node_blocks *nb = p->nb;
	leave_peer(p);
	block_server_end_peer(nb->server, p->id);
	sodium_memzero(&p->who, sizeof p->who);
	if (nb->words != NULL)
		block_set_clear(&p->have);
}

void nb_peers_forget_all(struct node_blocks *nb)
{
	for (size_t i = 0; i < BLOCK_FRAME_PEERS_MAX; i++)
		if (nb->peers[i].who.present)
			forget_peer(&nb->peers[i]);
}

static void on_peer(struct node_blocks *nb, const struct block_frame *f)
{
	struct nb_peer *p = &nb->peers[f->u.peer.slot];
	const struct msg_peer *who = &f->u.peer.who;
	if (p->who.present && who->present && memcmp(p->who.public_key, who->public_key, KEY_BYTES) == 0 && memcmp(p->who.psk, who->psk, KEY_BYTES) == 0) {
		p->who = *who; // its addresses, perhaps
		return;
	}
	if (p->who.present)
		forget_peer(p);
	p->who = *who;
	p->is_quiet = false;
	lnk1_node_id(who->public_key, p->id.b);
}

static void on_peer_have(struct node_blocks *nb, const struct block_frame *f)
{
	struct nb_peer *p = &nb->peers[f->u.have.slot];
	if (!p->who.present || nb->words == NULL || block_set_decode(f->u.have.set, f->u.have.len, &p->have) != OK)
		return;
	if (p->dialer != NULL && dialer_link(p->dialer) != NULL) {
		struct fetch_event ev = {.type = FETCH_EV_HAVE, .source = f->u.have.slot + NB_FIRST_PEER};
		ev.u.up.have = &p->have;
		nb_fetch_step(nb, &ev);
	}
	nb_peers_consider(nb);
}

// ---- links

static bool fill_params(struct node_blocks *nb, const uint8_t server_pk[KEY_BYTES], const uint8_t psk[KEY_BYTES], struct lnk1_client_params *out)
{
	link_params_client(out, nb->p.keys, LNK1_MEMBER, LNK1_BLOCKS, nb->p.boot_id, CANON_VERSION);
	memcpy(out->cluster_id, nb->p.cluster_id, CLUSTER_ID_BYTES);
	out->member_epoch = nb->p.member_epoch.v;
	memcpy(out->server_pk, server_pk, KEY_BYTES);
	memcpy(out->psk, psk, KEY_BYTES);
	return true;
}

static bool coordinator_params(void *ctx, struct lnk1_client_params *out)
{
	struct node_blocks *nb = ctx;
	return fill_params(nb, nb->p.coordinator_pk, nb->p.psk, out);
}

static bool peer_params(void *ctx, struct lnk1_client_params *out)
{
	struct nb_peer *p = ctx;
	return fill_params(p->nb, p->who.public_key, p->who.psk, out);
}

static void on_coordinator_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct node_blocks *nb = ctx;
	struct block_frame f;
	uint64_t cookie;
	if (ping_decode(frame, len, &cookie) == OK)
		return; // that it came says all
	bool ok = block_frame_decode(frame, len, &f) == OK;
	if (ok && nb_on_block_frame(nb, NB_ORIGIN, &f))
		return;
	switch (ok ? f.type : BLOCK_FRAME_GET) {
	case BLOCK_FRAME_HELLO: nb_on_greeting(nb, f.u.hello); return;
	case BLOCK_FRAME_MANIFEST_PART: nb_on_part(nb, &f); return;
	case BLOCK_FRAME_PEER: on_peer(nb, &f); break;
	case BLOCK_FRAME_PEER_HAVE: on_peer_have(nb, &f); return;
	case BLOCK_FRAME_REFUSE: return; // of what nothing waits for
	default:
		log_line(nb->p.log, LOG_WARNING, "the coordinator sent what does not belong on a blocks link: closing it");
		link_close(link);
		return;
	}
	sodium_memzero(&f, sizeof f);
}

static void on_coordinator_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct node_blocks *nb = ctx;
	(void)link;
	(void)info;
	nb->is_coordinator_quiet = false;
	nb->renewed_ns = loop_clock_ns();
	nb->parts_have = 0; // a manifest that was under way begins anew
	if (nb->state == NB_MANIFEST)
		nb->state = NB_UNKNOWN;
	nb_introduce(nb);
}

static void on_coordinator_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct node_blocks *nb = ctx;
	(void)link;
	(void)down;
	if (dialer_link(nb->coordinator) == NULL) // else a renewed one took its place
		source_down(nb, NB_ORIGIN);
}

static void on_coordinator_failed(void *ctx, const char *addr, const struct link_down *down, int64_t next_ns)
{
	struct node_blocks *nb = ctx;
	(void)next_ns;
	log_line(nb->p.log, nb->is_coordinator_quiet ? LOG_DEBUG : LOG_WARNING, "cannot reach the coordinator at %s for blocks of the model: %s; trying again", addr, down->text);
	nb->is_coordinator_quiet = true;
}

static void on_peer_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct nb_peer *p = ctx;
	struct block_frame f;
	uint64_t cookie;
	if (ping_decode(frame, len, &cookie) == OK)
		return;
	if (block_frame_decode(frame, len, &f) == OK && nb_on_block_frame(p->nb, (uint32_t)(p - p->nb->peers) + NB_FIRST_PEER, &f))
		return;
	log_line(p->nb->p.log, LOG_WARNING, "%s sent what does not belong on a blocks link: closing it", p->who.name);
	link_close(link);
}

static void on_peer_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct nb_peer *p = ctx;
	(void)info;
	p->is_quiet = false;
	say_hello(p->nb, link);
	source_up(p->nb, (uint32_t)(p - p->nb->peers) + NB_FIRST_PEER, &p->have);
}

static void on_peer_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct nb_peer *p = ctx;
	(void)link;
	(void)down;
	source_down(p->nb, (uint32_t)(p - p->nb->peers) + NB_FIRST_PEER);
}

static void on_peer_failed(void *ctx, const char *addr, const struct link_down *down, int64_t next_ns)
{
	struct nb_peer *p = ctx;
	(void)next_ns;
	log_line(p->nb->p.log, p->is_quiet ? LOG_DEBUG : LOG_INFO, "cannot reach %s at %s for blocks of the model: %s", p->who.name, addr, down->text);
	p->is_quiet = true;
}

static enum err open_dialer(struct node_blocks *nb, struct dialer_params *p, const struct address_list *addresses, uint64_t turn, struct dialer **out, struct errmsg *em)
{
	p->limits = nb->p.limits;
	p->backoff = &backoff_defaults;
	p->seed = load_u64(nb->p.boot_id) + 16 + turn;
	p->n_addrs = addresses->n;
	memcpy(p->addrs, addresses->at, sizeof p->addrs);
	return dialer_open(out, nb->p.loop, p, em);
}

static void dial_peer(struct nb_peer *p)
{
	struct dialer_params d = {
		.callbacks = {.ctx = p, .on_up = on_peer_up, .on_frame = on_peer_frame, .on_down = on_peer_down},
		.ctx = p,
		.params = peer_params,
		.on_failed = on_peer_failed,
	};
	struct errmsg em;
	if (open_dialer(p->nb, &d, &p->who.addresses, (uint64_t)(p - p->nb->peers) + 1, &p->dialer, &em) != OK)
		log_line(p->nb->p.log, LOG_ERROR, "cannot dial %s: %s", p->who.name, em.text);
}

void nb_peers_consider(struct node_blocks *nb)
{
	int32_t n = 0;
	if (nb->fetch_words == NULL || nb->is_closing)
		return;
	for (size_t i = 0; i < BLOCK_FRAME_PEERS_MAX; i++) {
		struct nb_peer *p = &nb->peers[i];
		bool is_useful = p->who.present && p->who.addresses.n > 0 && fetch_is_useful(&nb->fetch, &p->have);
		if (p->dialer != NULL && !is_useful)
			leave_peer(p);
		n += p->dialer != NULL;
	}
	for (size_t i = 0; i < BLOCK_FRAME_PEERS_MAX && n < NB_PEER_LINKS_MAX; i++) {
		struct nb_peer *p = &nb->peers[i];
		if (p->dialer != NULL || !p->who.present || p->who.addresses.n == 0 || !fetch_is_useful(&nb->fetch, &p->have))
			continue;
		dial_peer(p);
		n++;
	}
}

void nb_peers_tick(struct node_blocks *nb, int64_t now_ns)
{
	struct link *link = nb_source_link(nb, NB_ORIGIN);
	if (link == NULL)
		return;
	int64_t heard_ns = link_get_stats(link).heard_ns;
	if (now_ns - heard_ns >= DEAD_NS && now_ns - nb->pinged_ns >= PING_NS && loop_late_ns(nb->p.loop) < SECOND) {
		link_cut(link);
		return;
	}
	if (now_ns - heard_ns >= PING_NS && now_ns - nb->pinged_ns >= PING_NS) {
		uint8_t ping[FRAME_PING_BYTES];
		ping_encode(FRAME_PING, (uint64_t)now_ns, ping);
		nb->pinged_ns = now_ns;
		if (link_send(link, ping, sizeof ping) != OK)
			link_close(link);
	}
	if (now_ns - nb->renewed_ns >= LINK_AGE_NS && nb->phase == NB_IDLE) {
		nb->renewed_ns = now_ns;
		dialer_renew(nb->coordinator);
	}
}

enum err nb_peers_open(struct node_blocks *nb, struct errmsg *em)
{
	for (size_t i = 0; i < BLOCK_FRAME_PEERS_MAX; i++)
		nb->peers[i].nb = nb;
	struct dialer_params d = {
		.callbacks = {.ctx = nb, .on_up = on_coordinator_up, .on_frame = on_coordinator_frame, .on_down = on_coordinator_down},
		.ctx = nb,
		.params = coordinator_params,
		.on_failed = on_coordinator_failed,
		.more = nb->p.found,
	};
	return open_dialer(nb, &d, &nb->p.addresses, 0, &nb->coordinator, em);
}

void nb_peers_close(struct node_blocks *nb)
{
	for (size_t i = 0; i < BLOCK_FRAME_PEERS_MAX; i++) {
		dialer_close(nb->peers[i].dialer, false);
		sodium_memzero(&nb->peers[i], sizeof nb->peers[i]);
	}
	dialer_close(nb->coordinator, false);
	nb->coordinator = NULL;
}
