#include "tests/support/msg_samples.h"

#include <string.h>

static void fill(uint8_t *p, size_t len, uint8_t from)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(from + i);
}

static void fill_addresses(struct address_list *l)
{
	l->n = 2;
	text_copy(l->at[0], ADDR_CAP, "192.0.2.7:7434");
	text_copy(l->at[1], ADDR_CAP, "[2001:db8::1]:7434");
}

static void fill_peer(struct msg_peer *p, uint8_t from)
{
	p->present = true;
	fill(p->public_key, KEY_BYTES, from);
	fill(p->psk, KEY_BYTES, (uint8_t)(from + 1));
	fill_addresses(&p->addresses);
	text_copy(p->name, NAME_CAP, "k\xc3\xbc" "che");
}

static void fill_held(struct held_layers *held)
{
	const struct layer_set whole = layer_set_of(&(struct layer_spans){2, {{0, 3}, {17, 18}}}), shared = layer_set_of(&(struct layer_spans){1, {{4, 9}}});
	const struct layer_part part = layer_part_of(2, 1, SPLIT_MIXED, (const uint32_t[]){3, 1});
	held_add(held, &(struct layer_part){0}, &whole);
	held_add(held, &part, &shared);
	held_add_output(held, &part);
}

void msg_sample(enum msg_type type, struct msg *m)
{
	memset(m, 0, sizeof *m);
	m->type = type;
	switch (type) {
	case MSG_HELLO:
		text_copy(m->u.hello.name, NAME_CAP, "attic-pi");
		fill(m->u.hello.model_hash, HASH_BYTES, 3);
		m->u.hello.n_threads = 4;
		text_copy(m->u.hello.simd, SIMD_NAME_CAP, "avx2");
		m->u.hello.port = 7434;
		fill_addresses(&m->u.hello.addresses);
		m->u.hello.epoch.v = 11;
		m->u.hello.fetches = true;
		fill_held(&m->u.hello.held);
		break;
	case MSG_WELCOME:
		text_copy(m->u.welcome.name, NAME_CAP, "attic-pi");
		m->u.welcome.member_epoch.v = 5;
		break;
	case MSG_REFUSED: text_copy(m->u.refused.reason, REASON_CAP, "another model file"); break;
	case MSG_PLAN:
		m->u.plan = (struct msg_plan){.epoch = {12}, .n_stages = 3, .stage = 1, .layers = {2, {{10, 20}, {30, 34}}}, .wire = WIRE_Q8, .n_slots = 8,
			.ctx_len = 4096, .chunk_max = 512, .hop_credits = 16, .has_output = true, .stream_share = 40000};
		fill_peer(&m->u.plan.prev, 7);
		fill_peer(&m->u.plan.next, 9);
		m->u.plan.group = (struct msg_group){.n_members = 4, .hub = 1, .shares = {3, 0, 70000, 1}};
		fill_peer(&m->u.plan.group.members[1], 11);
		fill_peer(&m->u.plan.group.members[2], 13);
		break;
	case MSG_LOADED:
		m->u.loaded.epoch.v = 12;
		text_copy(m->u.loaded.error, REASON_CAP, "no memory");
		break;
	case MSG_CANCEL:
		m->u.cancel.epoch.v = 12;
		m->u.cancel.session.v = 99;
		break;
	case MSG_STEP_FAILED:
		m->u.step_failed.epoch.v = 12;
		m->u.step_failed.session.v = 99;
		m->u.step_failed.code = STEP_NON_FINITE;
		text_copy(m->u.step_failed.error, REASON_CAP, "layer 3: not finite");
		break;
	case MSG_PEER_LINK:
		m->u.peer_link.epoch.v = 12;
		m->u.peer_link.direct = true;
		m->u.peer_link.broken = true;
		break;
	case MSG_REVOKED:
		m->u.revoked.member_epoch.v = 6;
		fill(m->u.revoked.node.b, NODE_ID_BYTES, 21);
		break;
	case MSG_JOIN_GRANT:
		fill(m->u.join_grant.cluster_id, CLUSTER_ID_BYTES, 31);
		fill(m->u.join_grant.psk, KEY_BYTES, 41);
		text_copy(m->u.join_grant.name, NAME_CAP, "node-0a0b0c0d");
		m->u.join_grant.member_epoch.v = 5;
		fill_addresses(&m->u.join_grant.addresses);
		break;
	case MSG_NODE_REPORT:
		m->u.node_report = (struct msg_node_report){.disk_written = UINT64_C(1) << 41, .disk_read = 4096, .n_tokens = 70, .next_heard = 900, .next_late = 9,
			.weights = {.reader = 2, .locked = true, .pinned = 1 << 30, .streamed = UINT64_C(1) << 35, .window = 1 << 24, .read = UINT64_C(1) << 50,
				.read_us = 123456789, .stall_us = 9876543, .steps = 777, .withheld = 123 << 20}, .decode_bytes = UINT64_C(1) << 43, .decode_us = 98765432, .n_visits = 4321,
			.prefill_flop = UINT64_C(1) << 53, .prefill_us = 87654321,
			.group = {.n_forwards = 61, .n_tokens = 62, .n_exchanges = 63, .start_bytes = 64, .part_bytes = UINT64_C(1) << 44, .n_frames = 66, .overhead = 67}};
		break;
	case MSG_LINK_RTT:
		fill(m->u.link_rtt.peer.b, NODE_ID_BYTES, 51);
		m->u.link_rtt.rtt_us = 2071;
		m->u.link_rtt.figures = (struct link_figures){.n = 300, .p50_us = 1900, .p90_us = 4100, .p99_us = 23000, .mean_us = 2600, .rate_bps = 11800000,
			.rate_least_bps = 9000000};
		break;
	case MSG_PROFILE:
		m->u.profile = (struct device_profile){.cpu = "Imaginary i9", .n_threads = 8, .n_threads_best = 6, .n_cpus = 16, .visit_ns = 41000,
			.memory_bytes = UINT64_C(16) << 30, .available_bytes = UINT64_C(11) << 30, .cap_bytes = UINT64_C(3) << 30, .reserved_bytes = 70 << 20,
			.disk_mmap_bps = 700000000, .disk_direct_bps = 2900000000, .reader = 2, .n_rates = 2,
			.rates = {{DTYPE_Q4_K, 31000000000, 420000000000}, {DTYPE_Q6_K, 33000000000, 310000000000}},
			.at = {.has = PROFILE_CONDITIONS, .on_battery = true, .battery_percent = 77, .heat_mc = 54300, .load_milli = 1250, .cpu_pressure = 310,
				.memory_pressure = 7}};
		break;
	case MSG_PREPARE:
		m->u.prepare.serial = 3;
		m->u.prepare.layers = (struct layer_spans){2, {{10, 20}, {30, 34}}};
		m->u.prepare.part = layer_part_of(3, 2, SPLIT_REDUCE, (const uint32_t[]){7, 0, 1});
		m->u.prepare.has_output = true;
		break;
	case MSG_PREPARED:
		m->u.prepared.serial = 3;
		text_copy(m->u.prepared.error, REASON_CAP, "the cache is full");
		break;
	case MSG_LEAVING:
	case MSG_BYE:
	case MSG_JOIN_ACK: break;
	}
}
