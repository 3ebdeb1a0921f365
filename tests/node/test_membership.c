#include "node/shell/membership.h"

#include "kernels/canonical.h"
#include "tests/support/link_world.h"
#include "tests/support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FILE_CAP 32768

struct place {
	char dir[SCRATCH_CAP], path[SCRATCH_CAP + 32];
	struct errmsg em;
};

static int make_place(void **state)
{
	struct place *p = calloc(1, sizeof *p);
	if (p == NULL || sodium_init() < 0)
		return -1;
	if (!scratch_open(p->dir))
		return -1;
	snprintf(p->path, sizeof p->path, "%s/membership", p->dir);
	*state = p;
	return 0;
}

static int drop_place(void **state)
{
	struct place *p = *state;
	int rc = scratch_remove(p->dir);
	free(p);
	return rc;
}

static struct membership sample(unsigned seed)
{
	struct membership m = {0};
	lnk1_fill(m.coordinator_pk, KEY_BYTES, seed);
	lnk1_fill(m.grant.cluster_id, CLUSTER_ID_BYTES, seed + 1);
	lnk1_fill(m.grant.psk, KEY_BYTES, seed + 2);
	snprintf(m.grant.name, NAME_CAP, "node-%u", seed);
	m.grant.member_epoch.v = UINT64_MAX - seed;
	m.grant.addresses.n = 2;
	snprintf(m.grant.addresses.at[0], ADDR_CAP, "192.0.2.1:7433");
	snprintf(m.grant.addresses.at[1], ADDR_CAP, "[2001:db8::1]:7433");
	return m;
}

// read_file leaves the rest of `file` as it is: tests make the file longer.
static size_t read_file(const char *path, uint8_t file[FILE_CAP])
{
	size_t len;
	uint8_t *data = scratch_read(path, &len);
	assert_true(len <= FILE_CAP);
	memcpy(file, data, len);
	free(data);
	return len;
}

static void refused(struct place *p, enum err want, const char *words)
{
	struct membership m;
	enum err e = membership_load(p->path, &m, &p->em);
	assert_int_equal(e, want);
	assert_non_null(strstr(p->em.text, p->path));
	assert_non_null(strstr(p->em.text, words));
	assert_true(sodium_is_zero((const uint8_t *)&m, sizeof m));
}

static void what_was_saved_comes_back(void **state)
{
	struct place *p = *state;
	struct membership m = sample(1), got;
	struct stat st;
	assert_int_equal(membership_load(p->path, &got, &p->em), ERR_NOT_FOUND);
	mode_t old = umask(0);
	assert_int_equal(membership_save(p->path, &m, &p->em), OK);
	umask(old);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(membership_load(p->path, &got, &p->em), OK);
	assert_memory_equal(&m, &got, sizeof m);
	m.grant.member_epoch.v = 0;
	m.grant.addresses = (struct address_list){.n = ADDRS_MAX};
	for (int i = 0; i < ADDRS_MAX; i++) {
		memset(m.grant.addresses.at[i], 'a' + i, ADDR_CAP - 1);
		memcpy(m.grant.addresses.at[i] + ADDR_CAP - 7, ":65535", 7);
	}
	memset(m.grant.name, 'n', NAME_CAP - 1);
	assert_int_equal(membership_save(p->path, &m, &p->em), OK);
	assert_int_equal(membership_load(p->path, &got, &p->em), OK);
	assert_memory_equal(&m, &got, sizeof m);
}

static void the_membership_of_another_cluster_replaces_it_whole(void **state)
{
	struct place *p = *state;
	struct membership a = sample(1), b = sample(101), got;
	uint8_t file[FILE_CAP];
	snprintf(a.grant.name, NAME_CAP, "a much longer name than the other one has");
	assert_int_equal(membership_save(p->path, &a, &p->em), OK);
	size_t len = read_file(p->path, file);
	assert_non_null(memmem(file, len, a.grant.psk, KEY_BYTES)); // the search can find
	assert_int_equal(membership_save(p->path, &b, &p->em), OK);
	len = read_file(p->path, file);
	assert_null(memmem(file, len, a.grant.psk, KEY_BYTES));
	assert_null(memmem(file, len, a.grant.cluster_id, CLUSTER_ID_BYTES));
	assert_int_equal(membership_load(p->path, &got, &p->em), OK);
	assert_memory_equal(&b, &got, sizeof b);
}

static void every_flipped_bit_is_found(void **state)
{
	struct place *p = *state;
	struct membership m = sample(1);
	uint8_t file[FILE_CAP];
	assert_int_equal(membership_save(p->path, &m, &p->em), OK);
	size_t len = read_file(p->path, file);
	for (size_t bit = 0; bit < 8 * len; bit++) {
		file[bit / 8] ^= (uint8_t)(1 << bit % 8);
		scratch_write(p->path, file, len);
		refused(p, ERR_FORMAT, "remove it to join anew");
		file[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void a_file_cut_or_made_longer_is_refused(void **state)
{
	struct place *p = *state;
	struct membership m = sample(1);
	uint8_t file[FILE_CAP] = {0};
	assert_int_equal(membership_save(p->path, &m, &p->em), OK);
	size_t len = read_file(p->path, file);
	for (size_t cut = 0; cut < len; cut++) {
		scratch_write(p->path, file, cut);
		refused(p, ERR_FORMAT, "");
	}
	scratch_write(p->path, file, len + 1);
	refused(p, ERR_FORMAT, "damaged");
	scratch_write(p->path, file, FILE_CAP);
	refused(p, ERR_LIMIT, "longer than");
}

static void a_valid_check_around_another_message_does_not_help(void **state)
{
	struct place *p = *state;
	static const enum msg_type types[] = {MSG_BYE, MSG_JOIN_ACK};
	uint8_t file[FILE_CAP];
	struct membership m = sample(1);
	assert_int_equal(membership_save(p->path, &m, &p->em), OK);
	read_file(p->path, file);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct msg msg = {.type = types[i]};
		size_t len = 40 + msg_encode(&msg, file + 40);
		crypto_generichash(file + len, HASH_BYTES, file, len, NULL, 0);
		scratch_write(p->path, file, len + HASH_BYTES);
		refused(p, ERR_FORMAT, "not a membership file");
	}
	memset(file + 40, 0xff, 30);
	crypto_generichash(file + 70, HASH_BYTES, file, 70, NULL, 0);
	scratch_write(p->path, file, 70 + HASH_BYTES);
	refused(p, ERR_FORMAT, "control message");
}

static void a_file_that_others_may_read_is_refused(void **state)
{
	struct place *p = *state;
	struct membership m = sample(1);
	static const mode_t modes[] = {0640, 0604, 0660, 0666, 0644, 0700, 0620};
	assert_int_equal(membership_save(p->path, &m, &p->em), OK);
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		assert_int_equal(chmod(p->path, modes[i]), 0);
		refused(p, ERR_AUTH, "want 0600");
	}
	assert_int_equal(chmod(p->path, 0600), 0);
	assert_int_equal(membership_load(p->path, &m, &p->em), OK);
}

static void only_a_regular_file_will_do(void **state)
{
	struct place *p = *state;
	char other[128];
	struct membership m = sample(1);
	snprintf(other, sizeof other, "%s/other", p->dir);
	assert_int_equal(mkfifo(p->path, 0600), 0);
	refused(p, ERR_FORMAT, "not a regular file"); // and no waiting for a writer
	unlink(p->path);
	assert_int_equal(mkdir(p->path, 0700), 0);
	refused(p, ERR_FORMAT, "not a regular file");
	assert_int_equal(membership_save(p->path, &m, &p->em), ERR_IO);
	rmdir(p->path);
	assert_int_equal(membership_save(other, &m, &p->em), OK);
	assert_int_equal(symlink(other, p->path), 0);
	refused(p, ERR_IO, "symbolic link");
	assert_int_equal(membership_save("/nonexistent/dir/membership", &m, &p->em), ERR_IO);
}

// ---- joining

// A coordinator by hand: accepts (or refuses) the join when it comes, and sends one frame when the link is up.
struct host {
	struct world *w;
	struct loop_timer timer;
	bool refuse, stop;
	bool has_judged, has_sent;
	struct msg answer;
	const char *path; // NULL, or the file to look at when the acknowledgement has come
	struct stat file;
	struct membership at_ack;
};

// look_at_ack keeps what a node that is killed now would have, and only then lets the join end.
static void look_at_ack(struct host *h)
{
	assert_int_equal(stat(h->path, &h->file), 0);
	assert_int_equal(membership_load(h->path, &h->at_ack, NULL), OK);
	h->path = NULL;
	link_close(h->w->server.up);
}

static void act(void *ctx)
{
	struct host *h = ctx;
	struct world *w = h->w;
	loop_timer_set(&w->loop, &h->timer, loop_clock_ns() + 1000000);
	if (h->stop) {
		loop_stop(&w->loop);
		return;
	}
	if (w->joining != NULL && !h->has_judged) {
		h->has_judged = true;
		if (h->refuse)
			link_refuse(w->joining);
		else
			link_accept(w->joining);
	}
	if (w->server.up != NULL && !h->has_sent) {
		uint8_t frame[MSG_ENCODED_MAX];
		size_t len = msg_encode(&h->answer, frame);
		assert_int_equal(link_send(w->server.up, frame, len), OK);
		h->has_sent = true;
	}
	if (h->path != NULL && w->server.n_frames > 0)
		look_at_ack(h);
}

static void host_open(struct host *h)
{
	*h = (struct host){.w = world_open(LNK1_JOIN, LNK1_CONTROL, NULL)};
	h->w->fix.cfg.canon_version = CANON_VERSION;
	h->w->fix.cfg.record_max[LNK1_CONTROL] = CONTROL_RECORD_MAX;
	h->w->server.close_on_frame = true;
	h->answer = (struct msg){.type = MSG_JOIN_GRANT, .u.join_grant = sample(7).grant};
	loop_timer_init(&h->timer, act, h);
	loop_timer_set(&h->w->loop, &h->timer, loop_clock_ns());
}

static void host_close(struct host *h)
{
	loop_timer_clear(&h->w->loop, &h->timer);
	world_close(h->w);
}

static struct invite invite_of(const struct host *h)
{
	struct invite in = {.n_addrs = 1, .expiry_s = UINT64_MAX};
	memcpy(in.server_pk, h->w->fix.server_keys.pk, KEY_BYTES);
	memcpy(in.token_id, h->w->fix.token_id, LNK1_TOKEN_ID_LEN);
	memcpy(in.token_secret, h->w->fix.token_secret, KEY_BYTES);
	snprintf(in.addrs[0], ADDR_CAP, "%s", h->w->addr);
	return in;
}

static enum err join_by(struct place *p, struct host *h, const struct invite *in, const char *path, struct membership *m)
{
	static const uint8_t boot_id[LNK1_BOOT_ID_LEN] = {1};
	return membership_join(&h->w->loop, in, &h->w->fix.node_keys, boot_id, &link_limits_default, path, m, &p->em);
}

static bool server_has_frame(void *ctx)
{
	return ((struct host *)ctx)->w->server.n_frames > 0;
}

static void a_join_writes_what_was_granted_and_acknowledges_it(void **state)
{
	struct place *p = *state;
	struct host h;
	struct membership m, got;
	host_open(&h);
	struct invite in = invite_of(&h);
	assert_int_equal(join_by(p, &h, &in, p->path, &m), OK);
	assert_int_equal(h.w->server.n_frames, 1);
	assert_int_equal(membership_load(p->path, &got, &p->em), OK);
	assert_memory_equal(&m, &got, sizeof m);
	assert_memory_equal(&got.grant, &h.answer.u.join_grant, sizeof got.grant);
	assert_memory_equal(got.coordinator_pk, in.server_pk, KEY_BYTES);
	host_close(&h);
}

static void a_grant_without_addresses_gets_those_of_the_invite(void **state)
{
	struct place *p = *state;
	struct host h;
	struct membership m, got;
	host_open(&h);
	h.answer.u.join_grant.addresses.n = 0;
	struct invite in = invite_of(&h);
	assert_int_equal(join_by(p, &h, &in, p->path, &m), OK);
	assert_int_equal(membership_load(p->path, &got, &p->em), OK);
	assert_memory_equal(&m, &got, sizeof m);
	assert_int_equal(got.grant.addresses.n, 1);
	assert_string_equal(got.grant.addresses.at[0], h.w->addr);
	host_close(&h);
}

static void what_is_acknowledged_is_on_disk_whole_and_written_once(void **state)
{
	struct place *p = *state;
	for (int k = 0; k < 2; k++) {
		struct host h;
		struct membership m;
		struct stat after;
		host_open(&h);
		h.w->server.close_on_frame = false;
		h.path = p->path;
		if (k == 1)
			h.answer.u.join_grant.addresses.n = 0;
		struct invite in = invite_of(&h);
		assert_int_equal(join_by(p, &h, &in, p->path, &m), OK);
		assert_null(h.path);
		assert_memory_equal(&h.at_ack, &m, sizeof m);
		assert_string_equal(h.at_ack.grant.addresses.at[0], k == 1 ? h.w->addr : "192.0.2.1:7433");
		assert_int_equal(stat(p->path, &after), 0);
		assert_int_equal(after.st_ino, h.file.st_ino);
		assert_int_equal(after.st_mtim.tv_sec, h.file.st_mtim.tv_sec);
		assert_int_equal(after.st_mtim.tv_nsec, h.file.st_mtim.tv_nsec);
		host_close(&h);
	}
}

static void the_addresses_are_tried_in_turn_and_each_failure_is_told(void **state)
{
	struct place *p = *state;
	struct host h;
	struct membership m;
	host_open(&h);
	struct invite in = invite_of(&h);
	in.n_addrs = 3;
	snprintf(in.addrs[0], ADDR_CAP, "127.0.0.1:1");
	snprintf(in.addrs[1], ADDR_CAP, "no-such-host.invalid:7433");
	snprintf(in.addrs[2], ADDR_CAP, "%s", h.w->addr);
	assert_int_equal(join_by(p, &h, &in, p->path, &m), OK);
	unlink(p->path);
	in.n_addrs = 2;
	assert_int_not_equal(join_by(p, &h, &in, p->path, &m), OK);
	assert_non_null(strstr(p->em.text, "127.0.0.1:1: "));
	assert_non_null(strstr(p->em.text, "no-such-host.invalid:7433: "));
	assert_non_null(strstr(p->em.text, "is `hearth serve` running there"));
	assert_int_equal(membership_load(p->path, &m, &p->em), ERR_NOT_FOUND);
	host_close(&h);
}

static void a_coordinator_that_refuses_leaves_no_membership(void **state)
{
	struct place *p = *state;
	for (int k = 0; k < 3; k++) {
		struct host h;
		struct membership m;
		host_open(&h);
		struct invite in = invite_of(&h);
		h.refuse = k == 0;
		in.token_secret[3] ^= k == 1;
		in.server_pk[3] ^= k == 2;
		assert_int_equal(join_by(p, &h, &in, p->path, &m), ERR_AUTH);
		assert_non_null(strstr(p->em.text, h.w->addr));
		assert_non_null(strstr(p->em.text, "make a new one with `hearth invite`"));
		assert_int_equal(h.has_sent, false);
		assert_int_equal(membership_load(p->path, &m, &p->em), ERR_NOT_FOUND);
		host_close(&h);
	}
}

static void a_coordinator_with_another_arithmetic_is_named_as_such(void **state)
{
	struct place *p = *state;
	struct host h;
	struct membership m;
	host_open(&h);
	h.w->fix.cfg.canon_version = CANON_VERSION + 1;
	struct invite in = invite_of(&h);
	assert_int_equal(join_by(p, &h, &in, p->path, &m), ERR_AUTH);
	assert_non_null(strstr(p->em.text, "arithmetic"));
	host_close(&h);
}

static void something_other_than_a_grant_ends_the_join(void **state)
{
	struct place *p = *state;
	struct host h;
	struct membership m;
	host_open(&h);
	h.answer = (struct msg){.type = MSG_BYE};
	struct invite in = invite_of(&h);
	assert_int_equal(join_by(p, &h, &in, p->path, &m), ERR_FORMAT);
	assert_non_null(strstr(p->em.text, "other than a grant"));
	assert_int_equal(membership_load(p->path, &m, &p->em), ERR_NOT_FOUND);
	host_close(&h);
}

static void a_grant_that_cannot_be_written_is_not_acknowledged(void **state)
{
	struct place *p = *state;
	struct host h;
	struct membership m;
	host_open(&h);
	struct invite in = invite_of(&h);
	in.n_addrs = 2; // and the next address is not tried: the disk would be no better
	snprintf(in.addrs[1], ADDR_CAP, "127.0.0.1:1");
	assert_int_equal(join_by(p, &h, &in, "/nonexistent/dir/membership", &m), ERR_IO);
	assert_non_null(strstr(p->em.text, "/nonexistent/dir"));
	assert_true(world_run(h.w, world_server_down, h.w));
	assert_false(server_has_frame(&h));
	host_close(&h);
}

static void an_interrupted_join_says_so(void **state)
{
	struct place *p = *state;
	struct host h;
	struct membership m;
	host_open(&h);
	h.stop = true;
	struct invite in = invite_of(&h);
	assert_int_equal(join_by(p, &h, &in, p->path, &m), ERR_CANCELLED);
	host_close(&h);
}

#define IN_PLACE(f) cmocka_unit_test_setup_teardown(f, make_place, drop_place)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_PLACE(what_was_saved_comes_back),
		IN_PLACE(the_membership_of_another_cluster_replaces_it_whole),
		IN_PLACE(every_flipped_bit_is_found),
		IN_PLACE(a_file_cut_or_made_longer_is_refused),
		IN_PLACE(a_valid_check_around_another_message_does_not_help),
		IN_PLACE(a_file_that_others_may_read_is_refused),
		IN_PLACE(only_a_regular_file_will_do),
		IN_PLACE(a_join_writes_what_was_granted_and_acknowledges_it),
		IN_PLACE(a_grant_without_addresses_gets_those_of_the_invite),
		IN_PLACE(what_is_acknowledged_is_on_disk_whole_and_written_once),
		IN_PLACE(the_addresses_are_tried_in_turn_and_each_failure_is_told),
		IN_PLACE(a_coordinator_that_refuses_leaves_no_membership),
		IN_PLACE(a_coordinator_with_another_arithmetic_is_named_as_such),
		IN_PLACE(something_other_than_a_grant_ends_the_join),
		IN_PLACE(a_grant_that_cannot_be_written_is_not_acknowledged),
		IN_PLACE(an_interrupted_join_says_so),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
