// Bytes and times of a group's exchanges, against numbers by hand and against sums that walk over single outputs and lanes.
#include "partition/group_cost.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DEVICES 8
#define HIDDEN 8192.0

struct world {
	struct cluster_device devices[DEVICES];
	struct cluster_link links[DEVICES * DEVICES], attach[DEVICES];
	int32_t airs[DEVICES];
	struct cluster cluster;
	struct model_shape shape;
	struct cost_group group;
	struct group_split split;
};

// world_of is n machines in a mode, with Llama 70B's layers, links of 2 ms and 100 MB/s, and half a millisecond of software.
static void world_of(struct world *w, int32_t n, enum group_mode mode, enum group_form form, int32_t block)
{
	int32_t lanes = block == 1 ? 32 : block == 256 ? 4 : 8;
	memset(w, 0, sizeof *w);
	for (int32_t i = 0; i < DEVICES; i++) {
		snprintf(w->devices[i].name, NAME_CAP, "m%d", i);
		w->attach[i] = (struct cluster_link){.delay_s = 0.001, .rate = 200e6, .software_s = 0.00025};
		w->group.devices[i] = i;
		w->group.shares[i] = 1;
		for (int32_t j = 0; j < DEVICES; j++)
			w->links[i * DEVICES + j] = (struct cluster_link){.delay_s = 0.002, .rate = 100e6, .software_s = 0.0005};
	}
	w->cluster = (struct cluster){.devices = w->devices, .n_devices = DEVICES, .links = w->links};
	w->shape = (struct model_shape){.n_layers = 80, .layer_bytes = 500000000, .hop_bytes = 32768,
		.split = {.n_heads = 64, .n_kv_heads = 8, .head_dim = 128, .hidden_dim = (int32_t)HIDDEN, .ffn_dim = 28672, .o_lanes = lanes, .down_lanes = lanes, .o_block = block, .down_block = block}};
	w->group.n_members = n;
	w->group.mode = mode;
	w->group.gather_form = form == GROUP_HUB ? GROUP_HUB : GROUP_DIRECT;
	w->group.sum_form = form;
}

static void cut(struct world *w)
{
	struct errmsg em = {""};
	if (group_split_make(&w->shape.split, w->group.mode, w->group.shares, w->group.n_members, &w->split, &em) != OK)
		fail_msg("%s", em.text);
	if (group_check(&w->cluster, &w->shape, &w->group, &em) != OK)
		fail_msg("%s", em.text);
}

static struct group_traffic layer_of(struct world *w)
{
	struct group_traffic t;
	cut(w);
	group_layer_traffic(&w->cluster, &w->shape, &w->group, &w->split, 1, &t);
	return t;
}

static struct group_traffic exchange_of(struct world *w, enum group_exchange x)
{
	struct group_traffic t = {0};
	cut(w);
	group_traffic_add(&w->cluster, &w->shape, &w->group, &w->split, x, 1, &t);
	return t;
}

static void assert_near(double got, double want)
{
	if (!(got >= want * (1 - 1e-9) - 1e-15 && got <= want * (1 + 1e-9) + 1e-15))
		fail_msg("got %.12g, want %.12g", got, want);
}

static void equal_shares_of_70b_receive_what_the_specification_says(void **state)
{
	struct world w;
	(void)state;
	for (int32_t n = 2; n <= 8; n *= 2) { // 9,216 + 32,768 + 32,256 + 32,768 bytes
		world_of(&w, n, GROUP_GATHER, GROUP_DIRECT, 32);
		struct group_traffic t = layer_of(&w);
		assert_int_equal(t.n_exchanges, 4);
		assert_int_equal(t.n_steps, 4);
		for (int32_t i = 0; i < n; i++) {
			assert_near(t.received[i], 107008.0 * (n - 1) / n);
			assert_near(t.sent[i], 107008.0 * (n - 1) / n);
		}
		world_of(&w, n, GROUP_MIXED, GROUP_DIRECT, 32);
		t = layer_of(&w);
		assert_int_equal(t.n_exchanges, 3);
		assert_int_equal(t.n_steps, 4);
		assert_near(t.received[n - 1], (9216.0 + 32768.0 + 65536.0) * (n - 1) / n);
	}
	for (int32_t n = 2; n <= 4; n *= 2) { // as many members as lanes that heads lie in
		world_of(&w, n, GROUP_REDUCE, GROUP_DIRECT, n == 2 ? 32 : 256);
		struct group_traffic t = layer_of(&w);
		assert_int_equal(t.n_exchanges, 2);
		assert_near(t.received[0], 131072.0 * (n - 1) / n);
		assert_near(t.sent[1], 131072.0 * (n - 1) / n);
	}
}

static void a_shared_block_travels_as_f32(void **state)
{
	struct world w;
	(void)state;
	world_of(&w, 2, GROUP_GATHER, GROUP_DIRECT, 256); // 8 heads of 96 are 3 blocks: the middle one has two owners
	w.shape.split.n_heads = w.shape.split.n_kv_heads = 8;
	w.shape.split.head_dim = 96;
	struct group_traffic t = exchange_of(&w, GROUP_ATTENDED);
	assert_near(t.sent[0], 256 + 4 + 128 * 4);
	assert_near(t.sent[1], 128 * 4 + 256 + 4);
	world_of(&w, 2, GROUP_GATHER, GROUP_DIRECT, 1); // floats
	t = exchange_of(&w, GROUP_ATTENDED);
	assert_near(t.sent[0], 4 * HIDDEN / 2);
}

static void outputs_of_used_experts_travel_unsummed(void **state)
{
	struct world w;
	struct group_step step;
	struct group_chosen chosen = {.n = {3, 0, 5}};
	(void)state;
	world_of(&w, 3, GROUP_GATHER, GROUP_DIRECT, 32);
	w.shape.split.n_experts = 128;
	w.shape.n_experts_used = 8;
	w.group.shares[0] = 2;
	struct group_traffic t = layer_of(&w);
	assert_int_equal(t.n_exchanges, 3);
	t = exchange_of(&w, GROUP_EXPERTS);
	assert_near(t.received[1] + t.sent[1] / 2, 8 * 4 * HIDDEN); // all of the 8 are somebody's
	assert_near(t.sent[0] / 2, 8 * 64 / 128.0 * 4 * HIDDEN);
	group_step_of(&w.shape, &w.group, &w.split, GROUP_EXPERTS, &chosen, 0, &step);
	assert_near(step.bytes[0][1], 3 * 4 * HIDDEN);
	assert_near(step.bytes[1][0], 0);
	assert_near(step.bytes[2][0], 5 * 4 * HIDDEN);
}

// tree_nodes counts what a mask completes by joining lanes as rule 2 does: what has no partner in the mask stays as it is.
static int32_t tree_nodes(int32_t n_lanes, uint32_t mask)
{
	bool has[SPLIT_LANES];
	int32_t left_over = 0;
	for (int32_t i = 0; i < n_lanes; i++)
		has[i] = mask >> i & 1;
	for (int32_t n = n_lanes; n > 1; n /= 2) {
		for (int32_t i = 0; i < n / 2; i++) {
			left_over += has[2 * i] != has[2 * i + 1];
			has[i] = has[2 * i] && has[2 * i + 1];
		}
	}
	return left_over + has[0];
}

static void nodes_are_those_that_the_tree_leaves(void **state)
{
	struct rng r;
	(void)state;
	rng_init(&r, 11);
	for (int32_t n = 4; n <= 8; n *= 2)
		for (uint32_t mask = 0; mask < UINT32_C(1) << n; mask++)
			assert_int_equal(split_nodes(n, mask), tree_nodes(n, mask));
	for (int32_t i = 0; i < 10000; i++) {
		uint32_t mask = (uint32_t)rng_below(&r, UINT64_C(1) << 32);
		assert_int_equal(split_nodes(32, mask), tree_nodes(32, mask));
	}
	assert_int_equal(split_nodes(32, UINT32_MAX), 1);
	assert_int_equal(split_nodes(8, 0x07), 2); // three eighths: two lanes and one
	assert_int_equal(split_nodes(8, 0x55), 4); // no two that meet
}

// ring_walk sends one output's nodes round the ring: from the member behind its owner to the owner, then its value to all others.
static void ring_walk(const struct world *w, int32_t owner, double *sent, double *received)
{
	uint32_t mask = 0;
	int32_t n = w->group.n_members, at = (owner + 1) % n;
	for (int32_t hop = 0; hop < n - 1; hop++, at = (at + 1) % n) {
		mask |= w->split.down_mask[at];
		sent[at] += 4.0 * tree_nodes(w->split.down_lanes, mask);
		received[(at + 1) % n] += 4.0 * tree_nodes(w->split.down_lanes, mask);
	}
	assert_int_equal(at, owner);
	for (int32_t hop = 0; hop < n - 1; hop++, at = (at + 1) % n) {
		sent[at] += 4;
		received[(at + 1) % n] += 4;
	}
}

static void sums_send_what_single_outputs_add_up_to(void **state)
{
	static const enum group_form forms[] = {GROUP_HUB, GROUP_DIRECT, GROUP_RING, GROUP_ALL};
	struct rng r;
	(void)state;
	rng_init(&r, 5);
	for (int32_t trial = 0; trial < 300; trial++) {
		struct world w;
		double sent[DEVICES] = {0}, received[DEVICES] = {0};
		int32_t n = 2 + (int32_t)rng_below(&r, 7);
		enum group_form form = forms[rng_below(&r, 4)];
		world_of(&w, n, GROUP_MIXED, form, rng_below(&r, 2) ? 32 : 256);
		for (int32_t i = 0; i < n; i++)
			w.group.shares[i] = (uint32_t)rng_below(&r, 9) + (i == 0);
		w.group.hub = (int32_t)rng_below(&r, (uint64_t)n);
		struct group_traffic t = exchange_of(&w, GROUP_DOWN_SUM);
		for (int32_t owner = 0; owner < n; owner++) {
			for (int32_t o = w.split.rows.parts[owner].o_rows.begin; o < w.split.rows.parts[owner].o_rows.end; o++) {
				if (form == GROUP_RING)
					ring_walk(&w, owner, sent, received);
				for (int32_t m = 0; m < n && form != GROUP_RING; m++) {
					int32_t joins = form == GROUP_HUB ? w.group.hub : form == GROUP_DIRECT ? owner : -1;
					double nodes = 4.0 * tree_nodes(w.split.down_lanes, w.split.down_mask[m]);
					for (int32_t to = 0; to < n; to++) { // the nodes to whoever joins them, the value to everybody else
						double bytes = to == m ? 0 : to == joins || joins < 0 ? nodes : m == joins ? 4 : 0;
						sent[m] += bytes;
						received[to] += bytes;
					}
				}
			}
		}
		double all_sent = 0, all_received = 0;
		for (int32_t i = 0; i < n; i++) {
			assert_near(t.sent[i], sent[i]);
			assert_near(t.received[i], received[i]);
			all_sent += t.sent[i];
			all_received += t.received[i];
		}
		assert_near(all_sent, all_received);
	}
}

static void direct_sums_receive_as_the_rule_says(void **state)
{
	struct world w;
	(void)state;
	world_of(&w, 3, GROUP_MIXED, GROUP_DIRECT, 32);
	w.group.shares[0] = 3; // three lanes, three, two: J is 2, 2, 1
	w.group.shares[1] = 3;
	w.group.shares[2] = 2;
	struct group_traffic t = exchange_of(&w, GROUP_DOWN_SUM);
	assert_int_equal(w.split.down_mask[0], 0x07);
	assert_int_equal(w.split.down_mask[1], 0x38);
	assert_int_equal(w.split.down_mask[2], 0xc0);
	for (int32_t m = 0; m < 3; m++) {
		double c = split_len(w.split.rows.parts[m].o_rows), others = m == 2 ? 4 : 3;
		assert_near(t.received[m], 4 * c * others + 4 * (HIDDEN - c));
	}
}

static void heads_keep_their_lanes_together(void **state)
{
	struct world w;
	(void)state;
	world_of(&w, 4, GROUP_REDUCE, GROUP_HUB, 32); // heads of four blocks of 32: two sets of lanes for four members
	cut(&w);
	int32_t heads = 0;
	for (int32_t i = 0; i < 4; i++) {
		assert_true(w.split.o_mask[i] == 0 || w.split.o_mask[i] == 0x0f || w.split.o_mask[i] == 0xf0);
		assert_true(w.split.n_heads[i] == 0 || (w.split.n_heads[i] == 32 && w.split.n_kv_heads[i] == 8));
		heads += w.split.n_heads[i];
	}
	assert_int_equal(heads, 64);
	world_of(&w, 4, GROUP_REDUCE, GROUP_HUB, 256); // two heads in each block
	cut(&w);
	for (int32_t i = 0; i < 4; i++) {
		assert_int_equal(w.split.o_mask[i], 1 << i);
		assert_int_equal(w.split.n_heads[i], 16);
		assert_int_equal(w.split.n_kv_heads[i], 8); // of each KV head's eight query heads it has two
	}
}

static void columns_are_as_the_lanes_give_them(void **state)
{
	struct world w;
	struct group_work work;
	(void)state;
	world_of(&w, 2, GROUP_MIXED, GROUP_DIRECT, 256);
	w.shape.split.ffn_dim = 18944; // 74 blocks: lanes 0 and 1 have 19, lanes 2 and 3 have 18
	cut(&w);
	assert_int_equal(w.split.n_ffn[0], 38 * 256);
	assert_int_equal(w.split.n_ffn[1], 36 * 256);
	group_work_of(&w.shape.split, &w.split, &work);
	assert_int_equal(work.n_parts, 3);
	double whole = (2 * 8192 + 2 * 1024 + 3 * 18944) * HIDDEN;
	assert_near(work.part[0][0], (32 + 8) * 128 * HIDDEN / whole);
	assert_near(work.part[1][0], HIDDEN / 2 * 8192 / whole);
	assert_near(work.part[2][0], 3 * 38 * 256 * HIDDEN / whole);
	assert_near(work.bytes[0] + work.bytes[1], 1);
	assert_near(work.kv[0], 0.5);
}

static void work_covers_the_layer_once_but_for_keys_of_several(void **state)
{
	struct world w;
	struct group_work work;
	(void)state;
	for (enum group_mode mode = GROUP_GATHER; mode <= GROUP_REDUCE; mode++) {
		double all = 0, heads = 0;
		world_of(&w, 3, mode, GROUP_DIRECT, 32);
		w.shape.split.n_kv_heads = 64;
		w.group.shares[1] = 4;
		cut(&w);
		group_work_of(&w.shape.split, &w.split, &work);
		for (int32_t i = 0; i < 3; i++) {
			all += work.bytes[i];
			heads += work.heads[i];
		}
		assert_near(all, 1);
		assert_near(heads, 1);
	}
	world_of(&w, 2, GROUP_REDUCE, GROUP_ALL, 32);
	cut(&w);
	group_work_of(&w.shape.split, &w.split, &work);
	assert_near(work.kv[0] + work.kv[1], 2); // both keep all of them
}

// x bytes at 100 MB/s
static double wire_s(double bytes)
{
	return bytes / 100e6;
}

static void times_of_equal_links_are_those_of_the_specification(void **state)
{
	struct world w;
	double tau = 0.002, sw = 0.0005, x = 4 * HIDDEN;
	(void)state;
	for (int32_t n = 2; n <= 8; n *= 2) { // a pair exchange, and the same of more
		world_of(&w, n, GROUP_MIXED, GROUP_ALL, 32);
		assert_near(exchange_of(&w, GROUP_DOWN_SUM).seconds, tau + (n - 1) * wire_s(x) + sw);
	}
	for (int32_t n = 2; n <= 8; n *= 2) {
		world_of(&w, n, GROUP_MIXED, GROUP_HUB, 32);
		assert_near(exchange_of(&w, GROUP_DOWN_SUM).seconds, 2 * tau + 2 * (n - 1) * wire_s(x) + 2 * sw);
		w.cluster.links_apart = true;
		assert_near(exchange_of(&w, GROUP_DOWN_SUM).seconds, 2 * (tau + wire_s(x) + sw));
		world_of(&w, n, GROUP_MIXED, GROUP_DIRECT, 32);
		assert_near(exchange_of(&w, GROUP_DOWN_SUM).seconds, 2 * (tau + wire_s(x) * (n - 1) / n + sw));
		assert_near(exchange_of(&w, GROUP_O).seconds, tau + wire_s(x) * (n - 1) / n + sw);
		assert_near(exchange_of(&w, GROUP_ATTENDED).seconds, tau + wire_s(9216) * (n - 1) / n + sw);
		world_of(&w, n, GROUP_GATHER, GROUP_HUB, 32);
		double in_s = tau + wire_s(x) * (n - 1) / n + sw, out_s = tau + wire_s(x) * (n - 1) * (n - 1) / n + sw;
		assert_near(exchange_of(&w, GROUP_DOWN).seconds, in_s + out_s);
		w.cluster.links_apart = true;
		assert_near(exchange_of(&w, GROUP_DOWN).seconds, 2 * (tau + sw) + wire_s(x) / n + wire_s(x) * (n - 1) / n);
	}
	// Eight lanes dealt in order: what is joined is aligned at every other hop, so that some carry two nodes or more.
	world_of(&w, 2, GROUP_MIXED, GROUP_RING, 32);
	assert_near(exchange_of(&w, GROUP_DOWN_SUM).seconds, 2 * (tau + wire_s(x) / 2 + sw));
	world_of(&w, 4, GROUP_MIXED, GROUP_RING, 32);
	double want = 6 * (tau + wire_s(x) / 4 + sw); // J of 1, 2 and 2 nodes at the three hops, in the worst place
	assert_near(exchange_of(&w, GROUP_DOWN_SUM).seconds, want + 2 * wire_s(x) / 4);
	world_of(&w, 4, GROUP_GATHER, GROUP_DIRECT, 32);
	assert_near(exchange_of(&w, GROUP_START).seconds, tau + 3 * wire_s(32768) + sw);
}

static void a_hop_through_a_switch_takes_its_bytes_twice(void **state)
{
	struct world w;
	double fixed = 0.0025, leg = 1 / 200e6;
	(void)state;
	world_of(&w, 2, GROUP_GATHER, GROUP_DIRECT, 32);
	w.cluster.links = NULL;
	w.cluster.attach = w.attach;
	double hop_s, half = 2 * HIDDEN;
	assert_true(cluster_hop(&w.cluster, 0, 1, half, &hop_s));
	assert_near(exchange_of(&w, GROUP_O).seconds, hop_s);
	world_of(&w, 4, GROUP_GATHER, GROUP_DIRECT, 32);
	w.cluster.links = NULL;
	w.cluster.attach = w.attach;
	assert_near(exchange_of(&w, GROUP_O).seconds, fixed + HIDDEN * leg * 4); // three out, and the last of them in
}

static void machines_on_one_access_point_wait_for_its_air(void **state)
{
	struct world w;
	(void)state;
	world_of(&w, 4, GROUP_GATHER, GROUP_DIRECT, 32);
	w.cluster.airs = w.airs; // all on number 0: twelve messages follow each other
	assert_near(exchange_of(&w, GROUP_O).seconds, 0.0025 + wire_s(HIDDEN) * 12);
	w.airs[2] = w.airs[3] = -1; // only the two wired ones' own two messages stay out of the air
	assert_near(exchange_of(&w, GROUP_O).seconds, 0.0025 + wire_s(HIDDEN) * 10);
	w.cluster.links = NULL;
	w.cluster.attach = w.attach; // two legs each between stations, one between a station and a wire
	assert_near(exchange_of(&w, GROUP_O).seconds, 0.0025 + HIDDEN / 200e6 * (2 * 2 + 8));
}

static void the_slowest_link_decides(void **state)
{
	struct world w;
	(void)state;
	world_of(&w, 3, GROUP_MIXED, GROUP_HUB, 32);
	w.group.gather_form = GROUP_DIRECT;
	// Three, two and three lanes are two nodes each: four vectors go to the hub, two come back.
	assert_near(exchange_of(&w, GROUP_DOWN_SUM).seconds, 2 * 0.0025 + 6 * wire_s(4 * HIDDEN));
	w.devices[0].visit_s = 0.0002; // the hub is woken by the first step
	assert_near(exchange_of(&w, GROUP_DOWN_SUM).seconds, 2 * 0.0025 + 0.0002 + 6 * wire_s(4 * HIDDEN));
	w.links[1 * DEVICES + 2].delay_s = 0.1; // on which no bytes go, but that somebody can go on
	assert_near(exchange_of(&w, GROUP_DOWN_SUM).seconds, 2 * 0.1005);
	assert_true(exchange_of(&w, GROUP_O).seconds > 0.1);
	world_of(&w, 3, GROUP_GATHER, GROUP_HUB, 32);
	double hub_s = exchange_of(&w, GROUP_O).seconds;
	w.links[1 * DEVICES + 2].delay_s = 0.1; // a hub passes on all there is
	assert_near(exchange_of(&w, GROUP_O).seconds, hub_s);
	w.group.hub = 1; // and has the lead's hidden states for the others
	assert_near(exchange_of(&w, GROUP_START).seconds, 0.0025 + 0.1005 + 2 * wire_s(32768));
}

// cut_apart lets a machine outside, m7, pass on what goes between two, by links of 5 ms and 10 MB/s.
static void cut_apart(struct world *w, int32_t a, int32_t b)
{
	for (int32_t i = 0; i < DEVICES - 1; i++)
		w->links[i * DEVICES + 7] = w->links[7 * DEVICES + i] = (struct cluster_link){.delay_s = 0.005, .rate = 10e6, .software_s = 0.0005};
	w->links[a * DEVICES + b] = w->links[b * DEVICES + a] = cluster_link_via(&w->links[a * DEVICES + 7], &w->links[7 * DEVICES + b], 7);
	for (int32_t i = 0; i < DEVICES; i++)
		w->devices[i] = (struct cluster_device){.cap_bytes = 1000, .cpu_rate = 1e9, .name = {'m', (char)('0' + i)}};
	assert_int_equal(cluster_check(&w->cluster, NULL), OK);
}

static void who_passes_on_does_so_for_all_who_have_no_link(void **state)
{
	struct world w;
	double slow = 1 / 10e6, part = HIDDEN, fixed = 0.011;
	(void)state;
	world_of(&w, 4, GROUP_GATHER, GROUP_DIRECT, 32);
	cut_apart(&w, 0, 2);
	assert_near(exchange_of(&w, GROUP_O).seconds, fixed + 3 * part * slow); // two in, two out, the last one out when it is in
	cut_apart(&w, 1, 3);
	assert_near(exchange_of(&w, GROUP_O).seconds, fixed + 5 * part * slow);
	w.devices[7].visit_s = 0.0003;
	assert_near(exchange_of(&w, GROUP_O).seconds, fixed + 0.0003 + 5 * part * slow);
	w.cluster.links_apart = true; // each wire to m7 carries one of its own each way, but m7's turn is not divided
	assert_near(exchange_of(&w, GROUP_O).seconds, fixed + 0.0003 + 5 * part * slow);
	w.cluster.links_apart = false;
	double alone_s;
	assert_true(cluster_hop(&w.cluster, 0, 2, part, &alone_s));
	assert_near(group_hop_s(&w.cluster, 0, 2, part), alone_s + 0.0003);
	w.cluster.airs = w.airs; // all in one air: ten messages, of which four go through it twice
	for (int32_t i = 0; i < DEVICES; i++)
		w.airs[i] = 0;
	assert_near(exchange_of(&w, GROUP_O).seconds, fixed + 0.0003 + part * (8 / 100e6 + 8 * slow));
	w.links[2 * DEVICES + 0].via = 4; // by m3, who has a link with m2 only
	w.links[3 * DEVICES + 0].rate = 0;
	assert_int_equal(cluster_check(&w.cluster, NULL), ERR_RANGE);
}

static void a_member_that_passes_on_has_one_port_for_all(void **state)
{
	struct world w;
	double part_s = wire_s(HIDDEN);
	(void)state;
	world_of(&w, 4, GROUP_GATHER, GROUP_DIRECT, 32);
	w.links[1 * DEVICES + 2] = w.links[2 * DEVICES + 1] = cluster_link_via(&w.links[1 * DEVICES], &w.links[2], 0);
	assert_near(exchange_of(&w, GROUP_O).seconds, 2 * 0.0025 + 5 * part_s + part_s); // three of its own and two for others
	w.group.gather_form = GROUP_HUB; // which it may as well be
	assert_near(exchange_of(&w, GROUP_O).seconds, 2 * 0.0025 + 3 * part_s + 9 * part_s);
}

static void of_a_ring_only_the_first_exchange_is_everybodys(void **state)
{
	struct world w;
	(void)state;
	world_of(&w, 4, GROUP_REDUCE, GROUP_RING, 256);
	double layer_s = layer_of(&w).seconds, start_s = exchange_of(&w, GROUP_START).seconds;
	assert_near(start_s, 0.0025 + 3 * wire_s(32768));
	cut_apart(&w, 0, 2);
	cut_apart(&w, 1, 3);
	assert_near(layer_of(&w).seconds, layer_s);
	double told_s = 0.011 + 2 * wire_s(32768) + 2 * 32768 / 10e6; // m2 is told through m7, the two others by the same port
	assert_near(exchange_of(&w, GROUP_START).seconds, told_s + 0.011 - 0.0025); // and tells so what it can compute, as the first hop goes round
	w.group.sum_form = GROUP_ALL;
	assert_true(layer_of(&w).seconds > 2 * 0.011);
	w.links[1 * DEVICES + 3].rate = 0;
	w.group.sum_form = GROUP_RING;
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, NULL), ERR_RANGE); // nobody passes that on
}

static void groups_that_cannot_be_are_refused(void **state)
{
	struct world w;
	struct errmsg em;
	(void)state;
	world_of(&w, 4, GROUP_GATHER, GROUP_DIRECT, 32);
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), OK);
	w.group.devices[3] = 1;
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "m1 is in it twice"));
	w.group.devices[3] = 99;
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), ERR_RANGE);
	w.group.devices[3] = 3;
	w.links[2 * DEVICES + 3].rate = 0;
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "m2 and m3 do not reach each other"));
	w.group.gather_form = GROUP_HUB; // nobody needs that link
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), OK);
	w.group.n_members = 1;
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), ERR_RANGE);
	w.group.n_members = 4;
	w.group.mode = GROUP_REDUCE;
	w.group.sum_form = GROUP_HUB;
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), ERR_RANGE); // each tells each that it can go on
	w.links[2 * DEVICES + 3].rate = 1e6;
	w.shape.split.head_dim = 96; // three blocks of 32 for each head: its lanes are everybody's
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), ERR_RANGE);
	w.shape.split.head_dim = 128;
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), OK);
	w.group.mode = GROUP_MIXED;
	w.shape.split.n_experts = 8;
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), ERR_RANGE);
	w.shape.split.n_heads = 0;
	assert_int_equal(group_check(&w.cluster, &w.shape, &w.group, &em), ERR_RANGE);
	assert_non_null(strstr(em.text, "not known"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_shares_of_70b_receive_what_the_specification_says),
		cmocka_unit_test(a_shared_block_travels_as_f32),
		cmocka_unit_test(outputs_of_used_experts_travel_unsummed),
		cmocka_unit_test(nodes_are_those_that_the_tree_leaves),
		cmocka_unit_test(sums_send_what_single_outputs_add_up_to),
		cmocka_unit_test(direct_sums_receive_as_the_rule_says),
		cmocka_unit_test(heads_keep_their_lanes_together),
		cmocka_unit_test(columns_are_as_the_lanes_give_them),
		cmocka_unit_test(work_covers_the_layer_once_but_for_keys_of_several),
		cmocka_unit_test(times_of_equal_links_are_those_of_the_specification),
		cmocka_unit_test(a_hop_through_a_switch_takes_its_bytes_twice),
		cmocka_unit_test(machines_on_one_access_point_wait_for_its_air),
		cmocka_unit_test(the_slowest_link_decides),
		cmocka_unit_test(who_passes_on_does_so_for_all_who_have_no_link),
		cmocka_unit_test(a_member_that_passes_on_has_one_port_for_all),
		cmocka_unit_test(of_a_ring_only_the_first_exchange_is_everybodys),
		cmocka_unit_test(groups_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
