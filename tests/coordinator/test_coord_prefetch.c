// Members without the model file: a plan counts on them when their blocks are here, or when nobody else can hold those layers.
#include "tests/support/coord_host.h"

// held_hello is the Hello of a node without the file, which holds a part of layers [begin, end), and its rows of the output head.
static void held_hello(struct host *h, int32_t i, const struct layer_part *part, int32_t begin, int32_t end, bool has_output)
{
	struct layer_spans spans = layer_spans_one(begin, end);
	struct layer_set held = layer_set_of(&spans);
	struct msg m = {.type = MSG_HELLO, .u.hello = {.n_threads = 1, .port = 7434, .fetches = true}};
	held_add(&m.u.hello.held, part, &held);
	if (has_output)
		held_add_output(&m.u.hello.held, part);
	snprintf(m.u.hello.name, NAME_CAP, "node%d", i);
	message(h, h->control[i], &m);
}

static void fetching_hello_of(struct host *h, int32_t i, const struct layer_part *part, int32_t begin, int32_t end)
{
	held_hello(h, i, part, begin, end, false);
}

static void fetching_hello(struct host *h, int32_t i, int32_t begin, int32_t end)
{
	fetching_hello_of(h, i, &(struct layer_part){0}, begin, end);
}

static void arrive_without_file(struct host *h, int32_t i)
{
	h->data[i] = link_up(h, record(i).id, COORD_LINK_DATA);
	h->control[i] = link_up(h, record(i).id, COORD_LINK_CONTROL);
	fetching_hello(h, i, 0, 0);
}

static void prepared(struct host *h, int32_t i, uint64_t serial, const char *error)
{
	struct msg m = {.type = MSG_PREPARED, .u.prepared.serial = serial};
	text_copy(m.u.prepared.error, REASON_CAP, error);
	message(h, h->control[i], &m);
}

static void drain(struct host *h, const char *who)
{
	struct coord_event ev = {.type = COORD_EV_DRAIN};
	ev.u.revoke.ticket = 1;
	ev.u.revoke.who = who;
	step(h, &ev);
	assert_int_equal(find_fx(h, COORD_FX_ANSWER, 0)->u.answer.err, OK);
}

// asked returns the part that a member was told to fetch in this step.
static struct layer_spans asked(struct host *h, int32_t i, uint64_t *serial)
{
	struct msg m;
	assert_true(sent(h, h->control[i], MSG_PREPARE, &m));
	*serial = m.u.prepare.serial;
	return m.u.prepare.layers;
}

static int32_t stage_of(struct host *h, int32_t i)
{
	return status(h).n_members > 0 ? h->members[i - 1].stage : -1;
}

// start_with_file: node 1 has the file and computes all six layers; of the others nobody is there yet.
static void start_with_file(struct host *h, const struct coordinator_config *config, int32_t n_members)
{
	start(h, config, n_members);
	arrive(h, 1);
	be_ready(h, 1);
}

static void a_newcomer_without_the_file_fetches_before_the_plan_counts_on_it(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	uint64_t serial;
	start_with_file(&h, &config, 2);
	uint64_t before = epoch_of(&h);
	submit(&h, 1, 3, 20);
	arrive_without_file(&h, 2);
	struct layer_spans part = asked(&h, 2, &serial); // at once, while an answer is under way
	assert_true(part.n == 1 && part.at[0].begin == 3 && part.at[0].end == 6);
	status(&h);
	assert_string_equal(h.members[1].state, "fetching");
	assert_true(is_ready(&h));
	struct coord_event ev = {.type = COORD_EV_CANCEL, .u.cancel.req = 1};
	step(&h, &ev);
	tick(&h);
	assert_int_equal(epoch_of(&h), before); // idle, and still not counted on
	prepared(&h, 2, serial, "");
	random_bytes(&h);
	assert_true(epoch_of(&h) > before);
	assert_int_equal(stage_of(&h, 2), 1);
	be_ready(&h, 2);
	stop(&h);
}

static void an_answer_under_way_is_not_interrupted_when_the_blocks_are_here(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	uint64_t serial;
	start_with_file(&h, &config, 2);
	arrive_without_file(&h, 2);
	(void)asked(&h, 2, &serial);
	submit(&h, 1, 3, 20);
	uint64_t before = epoch_of(&h);
	prepared(&h, 2, serial, "");
	assert_int_equal(epoch_of(&h), before);
	struct coord_event ev = {.type = COORD_EV_CANCEL, .u.cancel.req = 1};
	step(&h, &ev);
	assert_true(epoch_of(&h) > before);
	stop(&h);
}

static void what_is_answered_for_an_older_part_does_not_count(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	uint64_t first, second;
	start_with_file(&h, &config, 3);
	arrive_without_file(&h, 2);
	(void)asked(&h, 2, &first);
	arrive_without_file(&h, 3); // a third each
	struct layer_spans part = asked(&h, 2, &second);
	assert_true(second > first && part.at[0].begin == 2 && part.at[0].end == 4);
	uint64_t before = epoch_of(&h), third;
	assert_true(asked(&h, 3, &third).at[0].begin == 4);
	prepared(&h, 2, first, "");
	prepared(&h, 2, second, "");
	assert_int_equal(epoch_of(&h), before);
	prepared(&h, 3, third, "");
	for (int i = 0; i < 3; i++)
		random_bytes(&h);
	assert_true(epoch_of(&h) > before);
	assert_int_equal(stage_of(&h, 2), 1);
	assert_int_equal(stage_of(&h, 3), 2);
	stop(&h);
}

static void where_nobody_has_the_blocks_the_plan_does_not_wait(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = patient_config();
	config.n_nodes_min = 2;
	start(&h, &config, 2);
	arrive_without_file(&h, 1);
	arrive_without_file(&h, 2);
	random_bytes(&h);
	assert_true(sent(&h, h.control[1], MSG_PLAN, &m) && m.u.plan.n_stages == 2);
	assert_false(sent(&h, 0, MSG_PREPARE, &m)); // its load is the fetch
	be_ready(&h, 2);
	stop(&h);
}

static void a_cluster_that_shall_have_so_many_nodes_does_not_begin_with_one(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = patient_config();
	config.n_nodes_min = 2;
	start(&h, &config, 2);
	arrive(&h, 1);
	arrive_without_file(&h, 2);
	random_bytes(&h);
	assert_true(sent(&h, h.control[2], MSG_PLAN, &m) && m.u.plan.n_stages == 2);
	stop(&h);
}

static void who_vanishes_while_it_fetches_is_planned_without(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	uint64_t serial, again;
	start_with_file(&h, &config, 3);
	arrive_without_file(&h, 2);
	arrive_without_file(&h, 3);
	uint64_t before = epoch_of(&h);
	down(&h, h.control[3], false);
	struct layer_spans part = asked(&h, 2, &serial); // half of the model now
	assert_true(part.at[0].begin == 3 && part.at[0].end == 6);
	assert_true(is_ready(&h));
	assert_int_equal(epoch_of(&h), before);
	h.control[3] = link_up(&h, record(3).id, COORD_LINK_CONTROL);
	fetching_hello(&h, 3, 4, 6); // it has its part on disk and says so
	assert_true(asked(&h, 2, &again).at[0].end == 4);
	prepared(&h, 2, serial, "");
	assert_int_equal(epoch_of(&h), before);
	prepared(&h, 2, again, "");
	for (int i = 0; i < 3; i++)
		random_bytes(&h);
	assert_int_equal(stage_of(&h, 3), 2);
	stop(&h);
}

static void a_fetch_that_fails_is_asked_for_again_after_a_pause(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = patient_config();
	uint64_t serial;
	start_with_file(&h, &config, 2);
	arrive_without_file(&h, 2);
	(void)asked(&h, 2, &serial);
	prepared(&h, 2, serial, "the cache is full");
	status(&h);
	assert_string_equal(h.members[1].state, "cannot load");
	assert_string_equal(h.members[1].detail, "the cache is full");
	assert_true(is_ready(&h));
	int64_t begin = h.now;
	while (!sent(&h, h.control[2], MSG_PREPARE, &m) && h.now - begin < 10 * S) {
		assert_true(coordinator_deadline_ns(h.c) > h.now);
		h.now = coordinator_deadline_ns(h.c);
		tick(&h);
	}
	assert_true(m.type == MSG_PREPARE && h.now - begin >= 2 * S);
	prepared(&h, 2, m.u.prepare.serial, "");
	random_bytes(&h);
	be_ready(&h, 2);
	status(&h);
	assert_string_equal(h.members[1].state, "ready");
	assert_string_equal(h.members[1].detail, "");
	stop(&h);
}

static void who_is_drained_stays_until_the_others_have_its_layers(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	start(&h, &config, 2);
	arrive_without_file(&h, 1);
	arrive_without_file(&h, 2);
	be_ready(&h, 2);
	uint64_t before = epoch_of(&h);
	drain(&h, "node2");
	assert_true(is_ready(&h));
	assert_int_equal(epoch_of(&h), before);
	tick(&h);
	assert_int_equal(epoch_of(&h), before);
	status(&h);
	assert_string_equal(h.members[1].state, "draining");
	prepared(&h, 1, 1, ""); // it holds its half, and was asked for all
	assert_true(epoch_of(&h) > before);
	be_ready(&h, 1);
	status(&h);
	assert_string_equal(h.members[1].state, "drained");
	assert_int_equal(stage_of(&h, 2), -1);
	stop(&h);
}

static void a_drained_newcomer_is_told_to_fetch_no_more(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	uint64_t serial;
	start_with_file(&h, &config, 2);
	arrive_without_file(&h, 2);
	(void)asked(&h, 2, &serial);
	drain(&h, "node2");
	assert_int_equal(asked(&h, 2, &serial).n, 0);
	stop(&h);
}

static void a_loss_leaves_the_plan_to_who_has_the_file(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	config.liveness.rejoin_ns = 0;
	start_with_file(&h, &config, 3);
	for (int32_t i = 2; i <= 3; i++)
		arrive_without_file(&h, i);
	for (int32_t i = 2; i <= 3; i++)
		prepared(&h, i, i == 2 ? 2 : 1, "");
	for (int i = 0; i < 3; i++)
		random_bytes(&h);
	be_ready(&h, 3);
	down(&h, h.control[3], false);
	tick(&h);
	assert_int_equal(status(&h).chains[0].n_stages, 1); // node 2 would have to fetch layer 4 or 5 first
	be_ready(&h, 1);
	assert_int_equal(stage_of(&h, 1), 0);
	assert_int_equal(stage_of(&h, 2), -1);
	stop(&h);
}

static void a_restarted_coordinator_believes_what_nodes_hold(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = patient_config();
	start_with_file(&h, &config, 2);
	h.data[2] = link_up(&h, record(2).id, COORD_LINK_DATA);
	h.control[2] = link_up(&h, record(2).id, COORD_LINK_CONTROL);
	fetching_hello(&h, 2, 3, 6);
	assert_false(sent(&h, h.control[2], MSG_PREPARE, &m));
	random_bytes(&h);
	be_ready(&h, 2);
	assert_int_equal(stage_of(&h, 2), 1);
	stop(&h);
}

static void a_prospect_that_is_fetched_for_takes_no_newcomers_after_a_minute(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	struct coordinator_config config = patient_config();
	uint64_t serial;
	start_with_file(&h, &config, 3);
	arrive_without_file(&h, 2);
	(void)asked(&h, 2, &serial);
	for (int i = 0; i < 61; i++) {
		h.now += S;
		tick(&h);
	}
	arrive_without_file(&h, 3);
	assert_false(sent(&h, 0, MSG_PREPARE, &m));
	prepared(&h, 2, serial, "");
	random_bytes(&h);
	be_ready(&h, 2);
	assert_int_equal(stage_of(&h, 2), 1);
	assert_int_equal(stage_of(&h, 3), -1);
	stop(&h);
}

static void a_chain_of_a_placement_keeps_its_plan_while_a_spare_has_nothing(void **state)
{
	(void)state;
	struct host h;
	struct coordinator_config config = patient_config();
	static const struct placed_member node1 = {"node1", 1}, node2 = {"node2", 1};
	static const struct placed_stage stages[] = {{3, 1, &node1, 0, 0}, {3, 1, &node2, 0, 0}};
	static const struct placed_chain chain = {2, stages};
	config.n_chains = 1;
	config.placement = &chain;
	config.n_nodes_min = 2;
	config.liveness.rejoin_ns = 0;
	start(&h, &config, 3);
	arrive(&h, 1);
	arrive(&h, 2);
	be_ready(&h, 2);
	arrive_without_file(&h, 3);
	down(&h, h.control[2], false);
	tick(&h);
	status(&h);
	assert_int_equal(stage_of(&h, 3), -1); // node 1 has the file: it takes them
	be_ready(&h, 1);
	assert_int_equal(stage_of(&h, 1), 0);
	stop(&h);
}

// A ring of node 1, which has the file, and of a group of nodes 2 and 3, which have not.
static void start_group_of(struct host *h, const struct layer_part *held, bool has_output)
{
	static const struct placed_member node1 = {"node1", 1}, shared[] = {{"node2", 3}, {"node3", 1}};
	static const struct placed_stage stages[] = {{3, 1, &node1, 0, 0}, {3, 2, shared, 0, 0}};
	static const struct placed_chain chain = {2, stages};
	struct coordinator_config config = patient_config();
	config.n_chains = 1;
	config.placement = &chain;
	config.n_nodes_min = 3;
	config.liveness.rejoin_ns = 0;
	config.liveness.settle_ns = S;
	config.has_output = has_output;
	start(h, &config, 3);
	arrive(h, 1);
	for (int32_t i = 2; i <= 3; i++) {
		h->data[i] = link_up(h, record(i).id, COORD_LINK_DATA);
		h->control[i] = link_up(h, record(i).id, COORD_LINK_CONTROL);
		fetching_hello_of(h, i, &held[i - 2], 3, 6);
	}
}

static void start_group(struct host *h, const struct layer_part *held)
{
	start_group_of(h, held, false);
}

static const uint32_t group_shares[] = {3, 1};

static void who_holds_its_part_of_a_group_fetches_nothing(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	static const uint32_t same_shares[] = {6, 2}; // of another plan
	const struct layer_part held[] = {layer_part_of(2, 0, SPLIT_GATHER, same_shares), layer_part_of(2, 1, SPLIT_GATHER, group_shares)};
	start_group(&h, held);
	assert_false(sent(&h, h.control[2], MSG_PREPARE, &m) || sent(&h, h.control[3], MSG_PREPARE, &m));
	be_ready(&h, 3);
	assert_int_equal(stage_of(&h, 2), 1);
	assert_int_equal(stage_of(&h, 3), 1);
	stop(&h);
}

static void who_lacks_its_part_of_a_group_is_asked_for_that_part(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	const struct layer_part held[] = {layer_part_of(2, 0, SPLIT_GATHER, group_shares), layer_part_of(2, 1, SPLIT_GATHER, group_shares)};
	start_group(&h, held);
	be_ready(&h, 3);
	down(&h, h.control[3], false);
	h.now += 5 * S;
	tick(&h);
	be_ready(&h, 2); // node 2 has fetched what it lacked, and goes on alone
	arrive_without_file(&h, 3);
	h.now += 2 * S;
	tick(&h);
	uint64_t serial;
	struct layer_spans layers = asked(&h, 3, &serial);
	assert_int_equal(layers.at[0].begin, 3);
	assert_true(sent(&h, h.control[3], MSG_PREPARE, &m));
	assert_true(layer_part_equal(&m.u.prepare.part, &held[1]));
	assert_int_equal(stage_of(&h, 3), -1);
	prepared(&h, 3, serial, "");
	be_ready(&h, 3);
	assert_int_equal(stage_of(&h, 3), 1);
	stop(&h);
}

// The output head is the last stage's: who comes back with its part of the layers lacks its rows of that, or has them.
static void who_has_the_last_layers_fetches_its_rows_of_the_output_head(void **state)
{
	(void)state;
	const struct layer_part held[] = {layer_part_of(2, 0, SPLIT_GATHER, group_shares), layer_part_of(2, 1, SPLIT_GATHER, group_shares)};
	for (int lacks = 0; lacks <= 1; lacks++) {
		struct host h;
		struct msg m;
		uint64_t serial;
		start_group_of(&h, held, true);
		be_ready(&h, 3);
		down(&h, h.control[3], false);
		h.now += 5 * S;
		tick(&h);
		be_ready(&h, 2);
		h.data[3] = link_up(&h, record(3).id, COORD_LINK_DATA);
		h.control[3] = link_up(&h, record(3).id, COORD_LINK_CONTROL);
		held_hello(&h, 3, &held[1], 3, 6, !lacks);
		h.now += 2 * S;
		tick(&h);
		assert_int_equal(sent(&h, h.control[3], MSG_PREPARE, &m), lacks);
		if (lacks) {
			(void)asked(&h, 3, &serial);
			assert_true(m.u.prepare.has_output);
			assert_int_equal(stage_of(&h, 3), -1);
			prepared(&h, 3, serial, "");
		}
		be_ready(&h, 3);
		assert_int_equal(stage_of(&h, 3), 1);
		stop(&h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_newcomer_without_the_file_fetches_before_the_plan_counts_on_it),
		cmocka_unit_test(an_answer_under_way_is_not_interrupted_when_the_blocks_are_here),
		cmocka_unit_test(what_is_answered_for_an_older_part_does_not_count),
		cmocka_unit_test(where_nobody_has_the_blocks_the_plan_does_not_wait),
		cmocka_unit_test(a_cluster_that_shall_have_so_many_nodes_does_not_begin_with_one),
		cmocka_unit_test(who_vanishes_while_it_fetches_is_planned_without),
		cmocka_unit_test(a_fetch_that_fails_is_asked_for_again_after_a_pause),
		cmocka_unit_test(who_is_drained_stays_until_the_others_have_its_layers),
		cmocka_unit_test(a_drained_newcomer_is_told_to_fetch_no_more),
		cmocka_unit_test(a_loss_leaves_the_plan_to_who_has_the_file),
		cmocka_unit_test(a_restarted_coordinator_believes_what_nodes_hold),
		cmocka_unit_test(a_prospect_that_is_fetched_for_takes_no_newcomers_after_a_minute),
		cmocka_unit_test(a_chain_of_a_placement_keeps_its_plan_while_a_spare_has_nothing),
		cmocka_unit_test(who_holds_its_part_of_a_group_fetches_nothing),
		cmocka_unit_test(who_lacks_its_part_of_a_group_is_asked_for_that_part),
		cmocka_unit_test(who_has_the_last_layers_fetches_its_rows_of_the_output_head),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
