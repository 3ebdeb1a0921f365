// What is written is there afterwards, and what must not be left is not. Damage, full disks and crashes: test_coord_store_damage.c.
#include "coordinator/shell/coord_store.h"

#include "tests/support/store_place.h"

#include <dirent.h>
#include <sys/stat.h>

// ---- round trips

static void a_new_file_is_empty_private_and_has_the_cluster_id_given(void **state)
{
	struct place *p = *state;
	struct stat st;
	mode_t old = umask(0);
	opened(p);
	umask(old);
	assert_int_equal(p->restored.member_epoch.v, 1);
	assert_int_equal(p->restored.n_members + p->restored.n_invites, 0);
	assert_int_equal(stat(p->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	struct coord_write w = put_invite(1, invite(1)); // while the journal is there
	assert_int_equal(written(p, &w), OK);
	DIR *d = opendir(p->dir);
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.') {
			assert_int_equal(fstatat(dirfd(d), e->d_name, &st, 0), 0);
			assert_int_equal(st.st_mode & 07777, 0600);
		}
	closedir(d);
	closed(p);
	static const uint8_t other[CLUSTER_ID_BYTES] = "another cluster";
	assert_int_equal(coord_store_open(p->path, other, &p->loop, on_done, p, &p->store, &p->restored, &p->em), OK);
	assert_memory_equal(p->restored.cluster_id, cluster_id, CLUSTER_ID_BYTES);
}

static void what_was_written_is_there_after_close_and_open(void **state)
{
	struct place *p = *state;
	filled(p, 3);
	opened(p);
	still_filled(p, 3);
	assert_int_equal(p->restored.member_epoch.v, 1);
	closed(p);
	opened(p);
	still_filled(p, 3);
}

static void an_invite_is_replaced_bound_and_used_up(void **state)
{
	struct place *p = *state;
	struct coord_write w = put_invite(1, invite(7));
	opened(p);
	assert_int_equal(written(p, &w), OK);
	w.invite.n_failures = 4;
	assert_int_equal(written(p, &w), OK);
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_invites, 1);
	same_invite(&p->restored, &w.invite);
	w = bind_to(2, 7);
	assert_int_equal(written(p, &w), OK);
	assert_int_equal(written(p, &w), OK); // it asks again: the same member
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_members, 1);
	same_member(&p->restored.members[0], &w.member);
	same_invite(&p->restored, &w.invite);
	w = used_up(3, 7);
	assert_int_equal(written(p, &w), OK);
	assert_int_equal(written(p, &w), OK); // of what is not there: no error
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_invites, 0);
	assert_int_equal(p->restored.n_members, 1);
}

static void a_revocation_takes_the_member_its_invites_and_the_old_epoch(void **state)
{
	struct place *p = *state;
	filled(p, 2);
	opened(p);
	struct coord_write w = bind_to(1, 3);
	assert_int_equal(written(p, &w), OK); // its invite is still there
	w = revocation(2, 3, 9);
	assert_int_equal(written(p, &w), OK);
	closed(p);
	opened(p);
	still_filled(p, 2);
	assert_int_equal(p->restored.member_epoch.v, 9);
	w = revocation(3, 1, UINT64_C(1) << 62);
	assert_int_equal(written(p, &w), OK);
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_members, 1);
	struct member_record left = member(2);
	same_member(&p->restored.members[0], &left);
	assert_int_equal(p->restored.member_epoch.v, UINT64_C(1) << 62);
}

static void a_name_is_replaced_in_its_place_and_makes_no_member(void **state)
{
	struct place *p = *state;
	filled(p, 3);
	opened(p);
	struct coord_write w = {.id = 50, .op = STORE_NAME, .member = member(1)}, gone = {.id = 51, .op = STORE_NAME, .member = member(9)};
	snprintf(w.member.name, sizeof w.member.name, "k\xc3\xb6nig");
	assert_int_equal(written(p, &w), OK);
	assert_int_equal(written(p, &gone), OK);
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_members, 3);
	int n_same = 0;
	for (int32_t i = 0; i < 3; i++) {
		const struct member_record *got = &p->restored.members[i];
		bool is_it = node_id_is(got->id, w.member.id);
		n_same += is_it;
		if (is_it)
			same_member(got, &w.member);
		assert_true(is_it || strcmp(got->name, w.member.name) != 0);
	}
	assert_int_equal(n_same, 1);
}

static void as_many_members_as_a_cluster_has_fit_in_order(void **state)
{
	struct place *p = *state;
	filled(p, NODES_MAX);
	opened(p);
	still_filled(p, NODES_MAX);
}

static void of_too_many_invites_the_newest_are_read(void **state)
{
	struct place *p = *state;
	opened(p);
	for (uint32_t i = 1; i <= INVITES_MAX + 3; i++) {
		struct coord_write w = put_invite(i, invite(i));
		assert_int_equal(written(p, &w), OK);
	}
	closed(p);
	opened(p);
	assert_int_equal(p->restored.n_invites, INVITES_MAX);
	for (uint32_t i = 1; i <= INVITES_MAX + 3; i++) {
		struct invite_record want = invite(i);
		assert_int_equal(find_invite(&p->restored, &want) != NULL, i > 3);
	}
}

static void closing_finishes_what_is_queued_and_tells_nobody(void **state)
{
	struct place *p = *state;
	opened(p);
	for (uint32_t i = 1; i <= 20; i++) {
		struct coord_write w = bind_to(i, i);
		coord_store_submit(p->store, &w);
	}
	closed(p);
	p->n_wanted = 1;
	assert_false(loop_run_until(&p->loop, has_dones, p, loop_clock_ns() + 5000000));
	assert_int_equal(p->n_dones, 0);
	opened(p);
	assert_int_equal(p->restored.n_members, 20);
}

static void more_than_can_wait_is_refused_and_each_is_told_once(void **state)
{
	struct place *p = *state;
	int n = 3 * COORD_STORE_QUEUE_MAX, n_ok = 0;
	opened(p);
	for (int i = 0; i < n; i++) {
		struct coord_write w = {.id = (uint32_t)i + 1, .op = STORE_REVOKE, .member_epoch = {(uint64_t)i + 2}};
		coord_store_submit(p->store, &w);
	}
	wait_dones(p, n);
	uint64_t last = 1;
	bool told[3 * COORD_STORE_QUEUE_MAX] = {false};
	for (int i = 0; i < n; i++) {
		assert_false(told[p->ids[i] - 1]);
		told[p->ids[i] - 1] = true;
		assert_true(p->errs[i] == OK || p->errs[i] == ERR_BUSY);
		if (p->errs[i] != OK)
			continue;
		assert_true(p->ids[i] + 1 > last); // in order
		last = p->ids[i] + 1;
		n_ok++;
	}
	assert_true(n_ok >= COORD_STORE_QUEUE_MAX);
	closed(p);
	opened(p);
	assert_int_equal(p->restored.member_epoch.v, last);
}

// ---- what must not be left

// occurs looks for a secret in every file of the directory.
static bool occurs(struct place *p, const uint8_t *secret)
{
	DIR *d = opendir(p->dir);
	bool found = false;
	for (struct dirent *e; (e = readdir(d));) {
		char path[400];
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", p->dir, e->d_name);
		size_t len;
		uint8_t *data = scratch_read(path, &len);
		found = found || memmem(data, len, secret, KEY_BYTES) != NULL;
		free(data);
	}
	closedir(d);
	return found;
}

static void no_secret_outlives_its_revocation_or_use(void **state)
{
	struct place *p = *state;
	enum { N = 40 };
	filled(p, N);
	opened(p);
	for (uint32_t i = 1; i <= N; i++) {
		uint32_t n = 1 + (i * 17) % N; // in another order than they came
		struct member_record m = member(n);
		struct invite_record inv = invite(n);
		assert_true(occurs(p, m.psk)); // the search can find
		assert_false(occurs(p, inv.secret));
		struct coord_write w = revocation(i, n, i + 1);
		assert_int_equal(written(p, &w), OK);
		assert_false(occurs(p, m.psk));
		if (i % 4)
			continue;
		w = put_invite(i, invite(1000 + i));
		assert_int_equal(written(p, &w), OK);
		assert_true(occurs(p, w.invite.secret));
		uint8_t secret[KEY_BYTES];
		memcpy(secret, w.invite.secret, KEY_BYTES);
		w = used_up(i, 1000 + i);
		assert_int_equal(written(p, &w), OK);
		assert_false(occurs(p, secret));
	}
	closed(p);
	for (uint32_t n = 1; n <= N; n++) {
		struct member_record m = member(n);
		struct invite_record inv = invite(n), later = invite(1000 + n);
		assert_false(occurs(p, m.psk));
		assert_false(occurs(p, inv.secret));
		assert_false(occurs(p, later.secret));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_PLACE(a_new_file_is_empty_private_and_has_the_cluster_id_given),
		IN_PLACE(what_was_written_is_there_after_close_and_open),
		IN_PLACE(an_invite_is_replaced_bound_and_used_up),
		IN_PLACE(a_revocation_takes_the_member_its_invites_and_the_old_epoch),
		IN_PLACE(a_name_is_replaced_in_its_place_and_makes_no_member),
		IN_PLACE(as_many_members_as_a_cluster_has_fit_in_order),
		IN_PLACE(of_too_many_invites_the_newest_are_read),
		IN_PLACE(closing_finishes_what_is_queued_and_tells_nobody),
		IN_PLACE(more_than_can_wait_is_refused_and_each_is_told_once),
		IN_PLACE(no_secret_outlives_its_revocation_or_use),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
