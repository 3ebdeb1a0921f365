// Layers that a node fetches before a plan counts on them.
#include "tests/support/node_host.h"

// start_fetching is a node without the model file.
static void start_fetching(struct host *h)
{
	*h = (struct host){.now = S};
	h->n = malloc(node_size());
	h->fx = malloc(sizeof *h->fx);
	for (int32_t i = 0; i < N_MACHINES; i++) {
		memset(h->pk[i], i + 1, KEY_BYTES);
		lnk1_node_id(h->pk[i], h->ids[i].b);
	}
	struct node_config c = {.coordinator = h->ids[0], .name = "here", .n_layers = 8, .hidden_dim = HIDDEN, .n_threads = 1, .fetches = true, .may_probe = true,
		.liveness = liveness_defaults, .link_age_ns = 3600 * S};
	node_init(h->n, &c);
	struct node_event ev = {.type = NODE_EV_START};
	step(h, &ev);
	h->control = up(h, 0, NODE_LINK_CONTROL);
	h->data = up(h, 0, NODE_LINK_DATA);
}

static void prepare(struct host *h, uint64_t serial, int32_t begin, int32_t end)
{
	struct msg m = {.type = MSG_PREPARE, .u.prepare.serial = serial};
	if (end > begin)
		m.u.prepare.layers = layer_spans_one(begin, end);
	control_on(h, h->control, &m);
}

static uint32_t prepare_id(struct host *h)
{
	assert_non_null(find_fx(h, NODE_FX_PREPARE, 0));
	return find_fx(h, NODE_FX_PREPARE, 0)->u.prepare.id;
}

static void done(struct host *h, uint32_t id, enum err err)
{
	struct node_event ev = {.type = NODE_EV_PREPARED};
	ev.u.prepared.id = id;
	ev.u.prepared.err = err;
	ev.u.prepared.text = err == OK ? "" : "the cache is full";
	step(h, &ev);
}

static void a_part_is_fetched_and_answered_by_its_serial(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_fetching(&h);
	prepare(&h, 5, 2, 4);
	uint32_t id = prepare_id(&h);
	assert_int_equal(find_fx(&h, NODE_FX_PREPARE, 0)->u.prepare.layers.at[0].begin, 2);
	done(&h, id + 1, OK); // of another time
	assert_false(sent(&h, MSG_PREPARED, &m));
	done(&h, id, OK);
	assert_true(sent(&h, MSG_PREPARED, &m) && m.u.prepared.serial == 5 && m.u.prepared.error[0] == '\0');
	prepare(&h, 6, 4, 6);
	done(&h, prepare_id(&h), ERR_LIMIT);
	assert_true(sent(&h, MSG_PREPARED, &m) && m.u.prepared.serial == 6);
	assert_string_equal(m.u.prepared.error, "the cache is full");
	stop(&h);
}

static void a_newer_part_takes_the_place_of_an_older_one(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_fetching(&h);
	prepare(&h, 5, 2, 4);
	uint32_t id = prepare_id(&h);
	prepare(&h, 6, 2, 6);
	assert_int_equal(count_fx(&h, NODE_FX_STOP_PREPARE), 1);
	assert_int_equal(count_fx(&h, NODE_FX_PREPARE), 0); // one at a time
	prepare(&h, 4, 0, 8);                               // crossed on the way
	assert_int_equal(h.fx->n, 0);
	done(&h, id, ERR_CANCELLED);
	assert_false(sent(&h, MSG_PREPARED, &m));
	assert_int_equal(find_fx(&h, NODE_FX_PREPARE, 0)->u.prepare.layers.at[0].end, 6);
	done(&h, prepare_id(&h), OK);
	assert_true(sent(&h, MSG_PREPARED, &m) && m.u.prepared.serial == 6);
	stop(&h);
}

static void nothing_to_fetch_any_more_stops_it(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_fetching(&h);
	prepare(&h, 5, 2, 4);
	uint32_t id = prepare_id(&h);
	prepare(&h, 6, 0, 0);
	assert_int_equal(count_fx(&h, NODE_FX_STOP_PREPARE), 1);
	done(&h, id, ERR_CANCELLED);
	assert_false(sent(&h, MSG_PREPARED, &m));
	assert_int_equal(count_fx(&h, NODE_FX_PREPARE), 0);
	stop(&h);
}

static void a_plan_goes_before_a_fetch_and_the_fetch_goes_on_after_it(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_fetching(&h);
	prepare(&h, 5, 4, 8);
	uint32_t id = prepare_id(&h);
	plan(&h, 1, 0, 0);
	assert_int_equal(count_fx(&h, NODE_FX_STOP_PREPARE), 1);
	assert_int_equal(count_fx(&h, NODE_FX_LOAD), 0);
	done(&h, id, ERR_CANCELLED);
	assert_false(sent(&h, MSG_PREPARED, &m));
	assert_int_equal(count_fx(&h, NODE_FX_PREPARE), 0);
	loaded(&h, OK);
	assert_true(sent(&h, MSG_LOADED, &m));
	assert_int_equal(find_fx(&h, NODE_FX_PREPARE, 0)->u.prepare.layers.at[0].begin, 4);
	stop(&h);
}

static void the_newest_of_two_plans_is_loaded_when_the_fetch_ends(void **state)
{
	(void)state;
	struct host h;
	start_fetching(&h);
	prepare(&h, 5, 4, 8);
	uint32_t id = prepare_id(&h);
	plan(&h, 1, 0, 0);
	no_part(&h, 2);
	done(&h, id, ERR_CANCELLED);
	assert_int_equal(count_fx(&h, NODE_FX_LOAD), 0);
	plan(&h, 3, 0, 0);
	if (find_fx(&h, NODE_FX_LOAD, 0) == NULL) { // it has begun to fetch again
		assert_int_equal(count_fx(&h, NODE_FX_STOP_PREPARE), 1);
		done(&h, id + 1, ERR_CANCELLED);
	}
	loaded(&h, OK);
	assert_true(status(&h).loaded);
	stop(&h);
}

static void an_engine_computes_while_its_node_fetches(void **state)
{
	(void)state;
	struct host h;
	start_fetching(&h);
	plan(&h, 1, 0, 0);
	loaded(&h, OK);
	prepare(&h, 5, 4, 8);
	uint32_t id = prepare_id(&h);
	send_step(&h, h.data, 1, 7, 0);
	(void)forward_id(&h);
	done(&h, id, OK);
	assert_int_equal(count_fx(&h, NODE_FX_UNLOAD), 0);
	assert_true(status(&h).loaded);
	stop(&h);
}

static void a_lost_coordinator_does_not_end_a_fetch_and_the_next_hears_what_is_held(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_fetching(&h);
	plan(&h, 1, 0, 0);
	loaded(&h, OK); // layers 2 and 3
	prepare(&h, 5, 4, 8);
	uint32_t id = prepare_id(&h);
	down(&h, h.control, false);
	assert_int_equal(count_fx(&h, NODE_FX_STOP_PREPARE), 0);
	done(&h, id, OK);
	h.control = up(&h, 0, NODE_LINK_CONTROL);
	assert_true(sent(&h, MSG_HELLO, &m) && m.u.hello.fetches);
	struct layer_set held = held_of(&m.u.hello.held, &(struct layer_part){0});
	for (int32_t i = 0; i < 8; i++)
		assert_int_equal(layer_set_has(&held, i), i >= 2);
	prepare(&h, 1, 4, 8); // another run counts from below
	assert_int_equal(count_fx(&h, NODE_FX_PREPARE), 1);
	stop(&h);
}

static void a_member_of_a_group_fetches_its_part_and_says_so(void **state)
{
	(void)state;
	struct host h;
	struct msg m = {.type = MSG_PREPARE, .u.prepare = {.serial = 5, .layers = layer_spans_one(4, 8)}};
	struct layer_part mine = layer_part_of(2, 1, SPLIT_GATHER, (const uint32_t[]){3, 1}), other = layer_part_of(2, 1, SPLIT_GATHER, (const uint32_t[]){1, 1});
	start_fetching(&h);
	m.u.prepare.part = mine;
	control_on(&h, h.control, &m);
	uint32_t id = prepare_id(&h);
	assert_true(layer_part_equal(&find_fx(&h, NODE_FX_PREPARE, 0)->u.prepare.part, &mine));
	m.u.prepare.serial = 6; // the same layers, cut anew
	m.u.prepare.part = other;
	control_on(&h, h.control, &m);
	assert_int_equal(count_fx(&h, NODE_FX_STOP_PREPARE), 1);
	done(&h, id, ERR_CANCELLED);
	assert_false(sent(&h, MSG_PREPARED, &m));
	done(&h, prepare_id(&h), OK);
	assert_true(sent(&h, MSG_PREPARED, &m) && m.u.prepared.serial == 6);
	plan(&h, 1, 0, 0);
	loaded(&h, OK); // layers 2 and 3, whole: what was fetched before may have made room
	prepare(&h, 7, 4, 6);
	done(&h, prepare_id(&h), OK);
	m = (struct msg){.type = MSG_PREPARE, .u.prepare = {.serial = 8, .layers = layer_spans_one(4, 8), .part = mine}};
	control_on(&h, h.control, &m);
	done(&h, prepare_id(&h), OK);
	down(&h, h.control, false);
	h.control = up(&h, 0, NODE_LINK_CONTROL);
	assert_true(sent(&h, MSG_HELLO, &m));
	struct layer_spans engine = layer_spans_one(2, 4), fetched = layer_spans_one(4, 8);
	struct layer_part whole = {0};
	assert_true(held_covers(&m.u.hello.held, &whole, &engine) && held_covers(&m.u.hello.held, &mine, &fetched));
	struct layer_set all = held_of(&m.u.hello.held, &whole);
	assert_false(layer_set_has(&all, 4) || layer_set_has(&all, 5));
	assert_false(held_covers(&m.u.hello.held, &other, &fetched));
	stop(&h);
}

static void rows_of_the_output_head_are_fetched_with_a_part(void **state)
{
	(void)state;
	struct host h;
	struct layer_part mine = layer_part_of(2, 1, SPLIT_GATHER, (const uint32_t[]){3, 1}), whole = {0};
	struct msg m = {.type = MSG_PREPARE, .u.prepare = {.serial = 5, .layers = layer_spans_one(4, 8), .part = mine}};
	start_fetching(&h);
	control_on(&h, h.control, &m);
	uint32_t id = prepare_id(&h);
	assert_false(find_fx(&h, NODE_FX_PREPARE, 0)->u.prepare.has_output);
	m.u.prepare.serial = 6;
	m.u.prepare.has_output = true;
	control_on(&h, h.control, &m);
	assert_int_equal(count_fx(&h, NODE_FX_STOP_PREPARE), 1); // more than that is wanted
	done(&h, id, ERR_CANCELLED);
	id = prepare_id(&h);
	assert_true(find_fx(&h, NODE_FX_PREPARE, 0)->u.prepare.has_output);
	done(&h, id, OK);
	down(&h, h.control, false);
	h.control = up(&h, 0, NODE_LINK_CONTROL);
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_true(held_has_output(&m.u.hello.held, &mine) && !held_has_output(&m.u.hello.held, &whole));

	m = (struct msg){.type = MSG_PLAN};
	m.u.plan = (struct msg_plan){.epoch = {1}, .n_stages = 2, .stage = 1, .layers = {1, {{2, 8}}}, .n_slots = 2, .ctx_len = 16, .chunk_max = 4,
		.hop_credits = CREDITS, .prev = peer(&h, 1), .has_output = true};
	control_on(&h, h.control, &m);
	loaded(&h, OK);
	down(&h, h.control, false);
	h.control = up(&h, 0, NODE_LINK_CONTROL);
	assert_true(sent(&h, MSG_HELLO, &m));
	assert_true(held_has_output(&m.u.hello.held, &whole)); // the engine's
	stop(&h);
}

static void a_part_beyond_the_model_is_refused(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start_fetching(&h);
	prepare(&h, 5, 4, 9);
	assert_int_equal(count_fx(&h, NODE_FX_PREPARE), 0);
	assert_true(sent(&h, MSG_PREPARED, &m) && m.u.prepared.error[0] != '\0');
	stop(&h);
}

static void who_has_the_file_has_every_part(void **state)
{
	(void)state;
	struct host h;
	struct msg m;
	start(&h);
	prepare(&h, 5, 2, 4);
	assert_int_equal(count_fx(&h, NODE_FX_PREPARE), 0);
	assert_true(sent(&h, MSG_PREPARED, &m) && m.u.prepared.serial == 5 && m.u.prepared.error[0] == '\0');
	stop(&h);
}

// live lets seconds go by on both links, and returns how often this machine was to be measured.
static int32_t live(struct host *h, int32_t seconds)
{
	int32_t n = 0;
	uint8_t ping[FRAME_PING_BYTES];
	ping_encode(FRAME_PING, 1, ping);
	for (int32_t i = 0; i < seconds; i++) {
		h->now += S;
		frame(h, h->control, ping, sizeof ping);
		n += count_fx(h, NODE_FX_PROBE);
		frame(h, h->data, ping, sizeof ping);
		n += count_fx(h, NODE_FX_PROBE);
	}
	return n;
}

static void a_machine_that_fetches_is_not_measured(void **state)
{
	(void)state;
	struct host h;
	struct msg m = {.type = MSG_WELCOME, .u.welcome = {.name = "me", .member_epoch = {1}}};
	start_fetching(&h);
	control_on(&h, h.control, &m);
	prepare(&h, 1, 0, 2);
	uint32_t id = prepare_id(&h);
	assert_int_equal(live(&h, 60), 0);
	done(&h, id, OK);
	assert_int_equal(count_fx(&h, NODE_FX_PROBE), 1); // at once: nothing else is under way
	prepare(&h, 2, 2, 4);
	assert_int_equal(count_fx(&h, NODE_FX_STOP_PROBE), 1);
	stop(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_part_is_fetched_and_answered_by_its_serial),
		cmocka_unit_test(a_newer_part_takes_the_place_of_an_older_one),
		cmocka_unit_test(nothing_to_fetch_any_more_stops_it),
		cmocka_unit_test(a_plan_goes_before_a_fetch_and_the_fetch_goes_on_after_it),
		cmocka_unit_test(the_newest_of_two_plans_is_loaded_when_the_fetch_ends),
		cmocka_unit_test(an_engine_computes_while_its_node_fetches),
		cmocka_unit_test(a_lost_coordinator_does_not_end_a_fetch_and_the_next_hears_what_is_held),
		cmocka_unit_test(a_member_of_a_group_fetches_its_part_and_says_so),
		cmocka_unit_test(rows_of_the_output_head_are_fetched_with_a_part),
		cmocka_unit_test(a_part_beyond_the_model_is_refused),
		cmocka_unit_test(who_has_the_file_has_every_part),
		cmocka_unit_test(a_machine_that_fetches_is_not_measured),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
