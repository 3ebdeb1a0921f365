#include "node/shell/membership.h"

#include "base/durable_file.h"
#include "kernels/canonical.h"
#include "net/link_params.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "HEARTHM2"
#define MAGIC_BYTES 8
#define HEAD_BYTES (MAGIC_BYTES + KEY_BYTES)
#define FILE_MAX (HEAD_BYTES + MSG_ENCODED_MAX + HASH_BYTES)
#define JOIN_PATIENCE_NS 15000000000 // the handshake has 3 s, the coordinator's disk the rest

static void make_check(const uint8_t *file, size_t len, uint8_t check[HASH_BYTES])
{
	crypto_generichash(check, HASH_BYTES, file, len, NULL, 0);
}

enum err membership_save(const char *path, const struct membership *m, struct errmsg *em)
{
	uint8_t file[FILE_MAX];
	struct msg msg = {.type = MSG_JOIN_GRANT, .u.join_grant = m->grant};
	memcpy(file, MAGIC, MAGIC_BYTES);
	memcpy(file + MAGIC_BYTES, m->coordinator_pk, KEY_BYTES);
	size_t len = HEAD_BYTES + msg_encode(&msg, file + HEAD_BYTES);
	make_check(file, len, file + len);
	enum err e = durable_file_write(path, file, len + HASH_BYTES, em);
	sodium_memzero(file, sizeof file);
	sodium_memzero(&msg, sizeof msg);
	return e;
}

static enum err decode(const uint8_t *file, size_t len, struct membership *out, struct errmsg *em)
{
	struct msg msg;
	uint8_t check[HASH_BYTES];
	if (len < MAGIC_BYTES || memcmp(file, MAGIC, MAGIC_BYTES) != 0)
		return errmsg_fail(em, ERR_FORMAT, "not a membership file");
	if (len < HEAD_BYTES + HASH_BYTES)
		return errmsg_fail(em, ERR_FORMAT, "damaged: only %zu bytes", len);
	len -= HASH_BYTES;
	make_check(file, len, check);
	if (memcmp(file + len, check, HASH_BYTES) != 0)
		return errmsg_fail(em, ERR_FORMAT, "damaged: its content is not what was written");
	enum err e = msg_decode(file + HEAD_BYTES, len - HEAD_BYTES, &msg, em);
	if (e == OK && msg.type != MSG_JOIN_GRANT)
		e = errmsg_fail(em, ERR_FORMAT, "not a membership file");
	if (e == OK) {
		memcpy(out->coordinator_pk, file + MAGIC_BYTES, KEY_BYTES);
		out->grant = msg.u.join_grant;
	}
	sodium_memzero(&msg, sizeof msg);
	return e;
}

enum err membership_load(const char *path, struct membership *out, struct errmsg *em)
{
	uint8_t file[FILE_MAX];
	size_t len;
	memset(out, 0, sizeof *out);
	enum err e = durable_file_read(path, file, sizeof file, &len, em);
	if (e == OK) {
		e = decode(file, len, out, em);
		if (e != OK)
			errmsg_prefix(em, e, "%s (remove it to join anew)", path);
	}
	sodium_memzero(file, sizeof file);
	return e;
}

// ---- joining

struct join {
	struct loop *loop;
	const struct link_limits *limits;
	const struct invite *invite;
	struct link *link; // NULL: no attempt under way
	const char *path;
	struct membership *out;
	struct loop_timer patience;
	bool has_grant;
	bool was_reached; // somebody was there, at one of the addresses
	bool was_refused;
	bool is_over; // this attempt
	enum err err; // of this attempt
	struct errmsg *em;
};

static void attempt_over(struct join *j, enum err e)
{
	j->is_over = true;
	j->err = e;
	loop_stop(j->loop);
}

static void on_up(void *ctx, struct link *link, const struct link_info *info)
{
	(void)ctx, (void)link, (void)info; // the grant, which comes now, has all of it
}

// take_grant: of a coordinator that knows no address of its own, those of the invite are kept.
static void take_grant(struct join *j, const struct msg_join_grant *grant)
{
	struct address_list *addresses = &j->out->grant.addresses;
	j->out->grant = *grant;
	if (addresses->n > 0)
		return;
	addresses->n = j->invite->n_addrs;
	memcpy(addresses->at, j->invite->addrs, sizeof j->invite->addrs);
}

static void on_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct join *j = ctx;
	struct msg msg;
	struct errmsg em;
	if (j->has_grant || msg_decode(frame, len, &msg, &em) != OK || msg.type != MSG_JOIN_GRANT) {
		errmsg_fail(j->em, ERR_FORMAT, "the coordinator sent something other than a grant");
		link_abort(link);
		j->link = NULL;
		attempt_over(j, ERR_FORMAT);
		return;
	}
	take_grant(j, &msg.u.join_grant);
	sodium_memzero(&msg, sizeof msg);
	enum err e = membership_save(j->path, j->out, j->em);
	if (e != OK) { // not acknowledged: the invite stays ours to try again
		link_abort(link);
		j->link = NULL;
		attempt_over(j, e);
		return;
	}
	j->has_grant = true;
	struct msg ack = {.type = MSG_JOIN_ACK};
	uint8_t out[MSG_ENCODED_MAX];
	size_t n = msg_encode(&ack, out);
	if (link_send(link, out, n) != OK) // the grant counts all the same: member mode comes next
		link_close(link);
}

static void on_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct join *j = ctx;
	(void)link;
	j->link = NULL;
	if (!j->has_grant)
		errmsg_fail(j->em, ERR_AUTH, "%s", down->text);
	j->was_reached = j->was_reached || down->reason != LINK_DOWN_NO_CONNECTION;
	j->was_refused = j->was_refused || down->reason == LINK_DOWN_LOST; // a coordinator says no by closing
	attempt_over(j, j->has_grant ? OK : ERR_AUTH);
}

static void on_patience(void *ctx)
{
	struct join *j = ctx;
	if (j->link)
		link_abort(j->link);
	j->link = NULL;
	errmsg_fail(j->em, ERR_TIMEOUT, "no answer in 15 s");
	attempt_over(j, j->has_grant ? OK : ERR_TIMEOUT);
}

static enum err try_address(struct join *j, const char *addr, const struct lnk1_client_params *p)
{
	const struct link_callbacks callbacks = {.ctx = j, .on_up = on_up, .on_frame = on_frame, .on_down = on_down};
	j->is_over = false;
	enum err e = link_dial(j->loop, addr, p, j->limits, &callbacks, &j->link, j->em);
	if (e != OK)
		return e;
	loop_timer_set(j->loop, &j->patience, loop_clock_ns() + JOIN_PATIENCE_NS);
	loop_run(j->loop);
	loop_timer_clear(j->loop, &j->patience);
	if (!j->is_over) { // a signal stopped the loop
		if (j->link)
			link_abort(j->link);
		j->link = NULL;
		return errmsg_fail(j->em, ERR_CANCELLED, "interrupted");
	}
	return j->err;
}

// say_what_to_do adds to the addresses and their failures what a person can do about them.
static enum err say_what_to_do(const struct join *j, enum err e, const struct errmsg *all)
{
	const char *advice = j->was_refused ? "an invite is for one machine, once: make a new one with `hearth invite`"
		: !j->was_reached ? "is `hearth serve` running there, and does its firewall let that port in?" : NULL;
	if (advice == NULL)
		return errmsg_fail(j->em, e, "%s", all->text);
	return errmsg_fail(j->em, e, "%.*s: %s", (int)(ERRMSG_CAP - strlen(advice)) - 8, all->text, advice);
}

enum err membership_join(struct loop *loop, const struct invite *invite, const struct lnk1_keypair *keys, const uint8_t boot_id[LNK1_BOOT_ID_LEN],
	const struct link_limits *limits, const char *path, struct membership *out, struct errmsg *em)
{
	struct join j = {.loop = loop, .limits = limits, .invite = invite, .path = path, .out = out, .em = em};
	struct lnk1_client_params p;
	link_params_client(&p, keys, LNK1_JOIN, LNK1_CONTROL, boot_id, CANON_VERSION);
	memset(out, 0, sizeof *out);
	memcpy(out->coordinator_pk, invite->server_pk, KEY_BYTES);
	memcpy(p.server_pk, invite->server_pk, KEY_BYTES);
	memcpy(p.token_id, invite->token_id, LNK1_TOKEN_ID_LEN);
	memcpy(p.token_secret, invite->token_secret, KEY_BYTES);
	loop_timer_init(&j.patience, on_patience, &j);
	enum err e = ERR_NOT_FOUND;
	struct errmsg all = {0};
	for (uint32_t i = 0; i < invite->n_addrs; i++) {
		e = try_address(&j, invite->addrs[i], &p);
		if (e == OK || e == ERR_CANCELLED || e == ERR_IO)
			goto done;
		char one[ERRMSG_CAP];
		memcpy(one, em->text, sizeof one);
		size_t used = strlen(all.text);
		snprintf(all.text + used, sizeof all.text - used, "%s%s: %.150s", used ? "; " : "", invite->addrs[i], one);
	}
	e = say_what_to_do(&j, e, &all);
done:
	sodium_memzero(&p, sizeof p);
	return e;
}
