// A coordinator core whose members are authenticated and hostile: bytes become frames, links and completions in any order. No ASSERT
// fires, the invariants hold after every event, each request ends exactly once, and no buffer of a running effect is written.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "coordinator/cluster_view.h"
#include "coordinator/coordinator.h"
#include "tests/support/fuzz.h"
#include "tests/support/msg_samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WALL_S 1000
#define FIRST_SESSION (((uint64_t)WALL_S << 20) + 1) // of a run that began then
#define N_MEMBERS 3
#define CTX 16
#define HIDDEN 2
#define VOCAB 8
#define N_LAYERS 4
#define REQS_MAX 256
#define ROUNDS_HERE 2 // at most, in the configurations below
#define CHAINS_HERE 3

struct world {
	struct reader in;
	struct coordinator *core;
	struct coord_effects *fx;
	struct coord_member_status members[N_MEMBERS + 1];
	int32_t *tokens;
	int64_t now, wall;
	struct fuzz_link links[3 * N_MEMBERS]; // 3 i: control, 3 i + 1: data, 3 i + 2: join
	uint32_t next_link;
	bool has_output;
	bool on_old; // the next frames come on the link before the newest
	uint32_t embed_id, sample_id, store_id;
	int32_t n_embed, n_sample;
	const struct coord_embed_item *embed;
	const struct coord_sample_item *sample;
	bool random_wanted;
	uint32_t plan_id; // asked last; 0: nothing
	int32_t n_asked;
	struct node_id asked[STAGES_MAX];
	uint32_t n_reqs;
	bool open[REQS_MAX];
};

static struct node_id member_id(uint32_t i)
{
	return (struct node_id){{(uint8_t)(i + 1)}};
}

static void take_buf(struct world *w, int32_t buf)
{
	for (int32_t i = 0; w->embed_id != 0 && i < w->n_embed; i++)
		require(w->embed[i].buf != buf);
	for (int32_t i = 0; w->sample_id != 0 && i < w->n_sample; i++)
		require(w->sample[i].buf != buf);
}

static void take_effect(struct world *w, const struct coord_effect *f)
{
	switch (f->type) {
	case COORD_FX_TAKE:
		take_buf(w, f->u.take.buf);
		break;
	case COORD_FX_FORWARD:
		require(w->embed_id == 0);
		for (int32_t i = 0; i < f->u.forward.n_items; i++)
			take_buf(w, f->u.forward.items[i].buf);
		w->embed_id = f->u.forward.id;
		w->embed = f->u.forward.items;
		w->n_embed = f->u.forward.n_items;
		break;
	case COORD_FX_SAMPLE:
		require(w->sample_id == 0);
		w->sample_id = f->u.sample.id;
		w->sample = f->u.sample.items;
		w->n_sample = f->u.sample.n_items;
		break;
	case COORD_FX_EMIT:
		require(w->open[f->u.emit.req]);
		break;
	case COORD_FX_END:
		require(w->open[f->u.end.req]);
		w->open[f->u.end.req] = false;
		break;
	case COORD_FX_STORE:
		w->store_id = f->u.store.id;
		break;
	case COORD_FX_PLAN:
		require(f->u.plan.n >= 1 && f->u.plan.n <= N_MEMBERS);
		require(f->u.plan.current == NULL || plan_check(f->u.plan.current) == OK);
		w->plan_id = f->u.plan.id;
		w->n_asked = f->u.plan.n;
		memcpy(w->asked, f->u.plan.nodes, (size_t)w->n_asked * sizeof w->asked[0]);
		break;
	case COORD_FX_NEED_RANDOM:
		w->random_wanted = true;
		break;
	default:
		break;
	}
}

static void step(struct world *w, struct coord_event *ev)
{
	ev->now_ns = w->now;
	ev->wall_s = w->wall;
	coordinator_step(w->core, ev, w->fx);
	coordinator_check(w->core);
	for (int32_t i = 0; i < w->fx->n; i++)
		take_effect(w, &w->fx->at[i]);
	require(coordinator_deadline_ns(w->core) > w->now || ev->type != COORD_EV_TICK); // a TICK does all that is due
}

static void up(struct world *w, size_t i)
{
	static const enum coord_link_kind kinds[] = {COORD_LINK_CONTROL, COORD_LINK_DATA, COORD_LINK_JOIN};
	struct coord_event ev = {.type = COORD_EV_LINK_UP};
	uint32_t handle = ++w->next_link;
	fuzz_link_up(&w->links[i], handle);
	ev.u.link_up.link = handle;
	ev.u.link_up.peer = member_id((uint32_t)i / 3);
	ev.u.link_up.kind = kinds[i % 3];
	ev.u.link_up.remote = "fe80::1";
	step(w, &ev);
}

// down ends a link, or the one before it.
static void down(struct world *w, size_t i, uint8_t how)
{
	struct coord_event ev = {.type = COORD_EV_LINK_DOWN};
	ev.u.link_down.link = fuzz_link_down(&w->links[i], how & 1);
	ev.u.link_down.orderly = (how & 2) != 0;
	ev.u.link_down.reason = "reset";
	step(w, &ev);
}

static void frame(struct world *w, size_t link, const uint8_t *bytes, size_t len)
{
	struct coord_event ev = {.type = COORD_EV_MESSAGE};
	uint8_t *exact = exact_copy(bytes, len);
	ev.u.message.link = fuzz_link_pick(&w->links[link], w->on_old);
	ev.u.message.data = exact;
	ev.u.message.len = len;
	step(w, &ev);
	free(exact);
}

// What the member at the far end of a link knows of its plan.
struct view {
	struct coord_status st;
	struct plan_epoch epoch;
	int32_t stage, n_stages;
};

static void look(struct world *w, size_t link, struct view *v)
{
	*v = (struct view){.st = {.members = w->members, .members_cap = ARRAY_LEN(w->members)}, .stage = -1};
	coordinator_status(w->core, &v->st);
	int32_t chain = 0;
	for (int32_t i = 0; i < v->st.n_members; i++) {
		const struct coord_member_status *m = &v->st.members[i];
		if (!node_id_is(m->id, member_id((uint32_t)link / 3)))
			continue;
		v->stage = m->stage;
		chain = m->chain > 0 ? m->chain : 0;
	}
	v->epoch = v->st.chains[chain].plan_epoch;
	v->n_stages = v->st.chains[chain].n_stages;
}

// look_as_planner: whatever members say of themselves, the planner is given what it takes.
static void look_as_planner(struct world *w)
{
	static struct cluster_view view;
	if (coordinator_view(w->core, DTYPE_Q4_K, &view, NULL) == OK)
		require(cluster_check(&view.cluster, NULL) == OK);
}

static void send_control(struct world *w, size_t link)
{
	struct view v;
	struct msg m;
	uint8_t a = reader_u8(&w->in), b = reader_u8(&w->in), bytes[MSG_ENCODED_MAX];
	look(w, link, &v);
	msg_sample((enum msg_type)(1 + a % MSG_NODE_REPORT), &m);
	switch (m.type) {
	case MSG_HELLO:
		memset(m.u.hello.model_hash, b % 16 == 0, HASH_BYTES);
		m.u.hello.epoch.v = b & 0x80 ? v.epoch.v : 0;
		m.u.hello.kept = b & 0x40;
		m.u.hello.fetches = b & 0x10;
		if (b & 0x10) { // in a group of two, or whole
			struct layer_part part = layer_part_of(1 + (b & 1), b >> 1 & 1, SPLIT_GATHER, (const uint32_t[]){1, 1});
			held_add(&m.u.hello.held, &part, &(struct layer_set){{b}});
		}
		m.u.hello.layers_max = b & 0x20 ? b & 7 : 0; // with too little room for what it has, too
		break;
	case MSG_LOADED:
		m.u.loaded.epoch = v.epoch;
		if (b % 8 != 0)
			m.u.loaded.error[0] = '\0';
		break;
	case MSG_STEP_FAILED:
		m.u.step_failed.epoch = v.epoch;
		m.u.step_failed.session.v = FIRST_SESSION - 1 + b % 8;
		m.u.step_failed.code = (enum step_failure)(STEP_NON_FINITE + (b >> 3) % STEP_WEIGHTS);
		break;
	case MSG_LEAVING:
		if (b & 1)
			break;
		msg_sample(MSG_PREPARED, &m);
		m.u.prepared.serial = 1 + b / 4 % 8;
		m.u.prepared.error[b & 2 ? 0 : 1] = '\0';
		break;
	case MSG_PEER_LINK:
		m.u.peer_link.epoch = v.epoch;
		m.u.peer_link.broken = b % 4 == 0;
		break;
	case MSG_NODE_REPORT:
		memset(&m.u.node_report.weights.read, b, sizeof m.u.node_report.weights.read);
		m.u.node_report.next_late = m.u.node_report.disk_written = b & 1 ? UINT64_MAX : b;
		break;
	case MSG_LINK_RTT:
		m.u.link_rtt.peer = v.st.members[b % (v.st.n_members > 0 ? v.st.n_members : 1)].id;
		memset(&m.u.link_rtt.figures.rate_bps, b & 0x40 ? b : 0, 4);
		if (b & 0x80) {
			msg_sample(MSG_PROFILE, &m);
			memset(&m.u.profile.cap_bytes, b, 4);
			m.u.profile.n_threads = 1 + (b & 1);
		}
		break;
	default:
		break;
	}
	frame(w, link, bytes, msg_encode(&m, bytes));
	if (m.type == MSG_PROFILE)
		look_as_planner(w);
}

static void send_step(struct world *w, size_t link)
{
	struct view v;
	uint8_t a = reader_u8(&w->in), b = reader_u8(&w->in), c = reader_u8(&w->in),
		bytes[FRAME_STEP_BYTES + 8 * HIDDEN * 4] = {0};
	look(w, link, &v);
	struct step s = {.reply = (enum step_reply)(a % 3 + (w->has_output && a % 3 > 0 ? 2 : 0)),
		.epoch = {v.epoch.v - (a >> 7)},
		.session = {FIRST_SESSION + b % 16},
		.seq = b >> 4,
		.pos = c & 15,
		.n_tokens = 1 + (c >> 4) % 4,
		.src_span = (uint16_t)(v.stage + (a & 0x20 ? v.n_stages : 0)), // in the second round
		.dst_span = a & 0x40 ? (uint16_t)(v.stage + 1) : SPAN_HEAD};
	uint32_t rows = s.reply == REPLY_ALL || (a & 0x40) ? s.n_tokens : s.reply == REPLY_LAST;
	enum head_want want = step_reply_want(s.reply);
	s.payload_len = want == HEAD_NOTHING || (a & 0x40) ? rows * HIDDEN * 4 : (uint32_t)head_reply_bytes(want, VOCAB) - (b == 0xff);
	step_encode(&s, bytes);
	frame(w, link, bytes, FRAME_STEP_BYTES + s.payload_len);
}

static void send_credit(struct world *w, size_t link)
{
	struct view v;
	uint8_t a = reader_u8(&w->in), bytes[FRAME_CREDIT_BYTES];
	look(w, link, &v);
	struct credit c = {.n = (uint16_t)(1 + a % 2),
		.src_span = (uint16_t)(a >> 2 & 3),
		.dst_span = a & 0x80 ? (uint16_t)(a >> 4 & 3) : SPAN_HEAD,
		.epoch = v.epoch};
	credit_encode(&c, bytes);
	frame(w, link, bytes, sizeof bytes);
}

// send_part sends what one member of a group owes another, or what is nobody's.
static void send_part(struct world *w)
{
	struct view v;
	uint8_t a = reader_u8(&w->in), b = reader_u8(&w->in), bytes[FRAME_PART_BYTES + 4] = {0};
	size_t link = a % ARRAY_LEN(w->links);
	look(w, link, &v);
	struct part p = {.src = b & 3,
		.dst = b >> 2 & 3,
		.stage = (uint16_t)(b & 0x40 ? 1 + (b >> 7) : v.stage >= 0 ? v.stage : 0),
		.exchange = (uint16_t)(a & 0x40),
		.epoch = {v.epoch.v - (b >> 7)},
		.forward = 1,
		.total = b & 0x10 ? 4 : 0};
	part_encode(&p, bytes);
	frame(w, link, bytes, FRAME_PART_BYTES + p.total);
}

static void raw(struct world *w, size_t link)
{
	uint8_t bytes[FUZZ_RAW_MAX];
	frame(w, link, bytes, take_raw(&w->in, bytes));
}

static void submit(struct world *w)
{
	static const int32_t tokens[CTX] = {0};
	struct coord_event ev = {.type = COORD_EV_SUBMIT};
	uint8_t a = reader_u8(&w->in);
	if (w->n_reqs == REQS_MAX)
		return;
	w->open[w->n_reqs] = true;
	ev.u.submit.req = w->n_reqs++;
	ev.u.submit.tokens = tokens;
	ev.u.submit.n_tokens = a % CTX;
	ev.u.submit.n_predict = a >> 4;
	ev.u.submit.hash_logits = a % 5 == 0;
	step(w, &ev);
}

// planned answers the last question with one of the plans that a solver could find: some of the members, from the first on.
static void planned(struct world *w, uint8_t a)
{
	static const double gains[] = {0.5, 1.01, 2, 50};
	const char *const names[] = {"", "", ""};
	int32_t n = 1 + a % 4 % w->n_asked, layers[N_MEMBERS] = {0};
	struct plan plan;
	struct errmsg em;
	struct coord_event ev = {.type = COORD_EV_PLANNED};
	for (int32_t i = 0; i < n; i++)
		layers[i] = 1;
	layers[a / 4 % n] += N_LAYERS - n;
	struct plan_want want = {.nodes = w->asked, .n = n, .n_layers = N_LAYERS, .n_rounds = 1 + a / 16 % 2};
	require(plan_given(&want, names, layers, &plan, &em) == OK);
	ev.u.planned.id = w->plan_id - (a == 0x7f);
	ev.u.planned.err = a % 16 == 15 ? ERR_STATE : OK;
	ev.u.planned.text = "nobody knows";
	ev.u.planned.plan = &plan;
	ev.u.planned.token_s = 0.1;
	ev.u.planned.current_s = 0.1 * gains[a / 32 % 4];
	w->plan_id = a % 2 == 0 ? 0 : w->plan_id; // and maybe once more
	step(w, &ev);
}

static void finish(struct world *w, uint8_t which)
{
	uint8_t a = reader_u8(&w->in);
	struct coord_sampled sampled[COORD_ITEMS_MAX];
	enum err errs[COORD_ITEMS_MAX];
	const char *texts[COORD_ITEMS_MAX] = {"embedding: out of range"};
	struct coord_event ev = {.type = COORD_EV_FORWARD_DONE};
	if (which == 0 && w->embed_id != 0) {
		ev.u.forward_done.id = w->embed_id;
		for (int32_t i = 0; i < COORD_ITEMS_MAX; i++)
			errs[i] = (a + i) % 16 == 0 ? ERR_NON_FINITE : OK;
		ev.u.forward_done.errs = a == 0xff ? NULL : errs;
		ev.u.forward_done.texts = a % 2 == 0 ? texts : NULL;
		w->embed_id = 0;
	} else if (which == 1 && w->sample_id != 0) {
		for (int32_t i = 0; i < w->n_sample; i++)
			sampled[i] = (struct coord_sampled){.token = a % 8, .err = (a >> 4) == 15 ? ERR_NON_FINITE : OK, .text = a % 2 == 0 ? "not finite" : NULL};
		ev.type = COORD_EV_SAMPLED;
		ev.u.sampled.id = w->sample_id;
		ev.u.sampled.items = sampled;
		w->sample_id = 0;
	} else if (which == 2) {
		ev.type = COORD_EV_STORED;
		ev.u.stored.id = w->store_id;
		ev.u.stored.err = a % 4 == 0 ? ERR_IO : OK;
	} else if (w->plan_id != 0 && a < 0x80) {
		planned(w, a);
		return;
	} else {
		ev.type = COORD_EV_RANDOM;
		ev.u.random.bytes[0] = a;
	}
	step(w, &ev);
}

static void operate(struct world *w)
{
	static const char *const names[] = {"node1", "node2", "attic", "0300000000"};
	uint8_t a = reader_u8(&w->in);
	struct coord_event ev = {.type = COORD_EV_INVITE};
	switch (a % 5) {
	case 0:
		ev.u.invite.token_id[0] = a, ev.u.invite.ttl_s = 60;
		break;
	case 1:
		ev.type = COORD_EV_REVOKE, ev.u.revoke.who = names[a / 5 % 4];
		break;
	case 2:
		ev.type = COORD_EV_JOIN;
		ev.u.join.link = ++w->next_link;
		ev.u.join.token_id[0] = (uint8_t)(a / 15 * 5);
		ev.u.join.id = member_id(a / 5 % 3);
		break;
	case 3:
		ev.type = COORD_EV_JOIN_FAILED, ev.u.join_failed.token_id[0] = (uint8_t)(a / 5 * 5);
		break;
	case 4:
		ev.type = COORD_EV_CANCEL, ev.u.cancel.req = a / 5;
		break;
	}
	step(w, &ev);
}

static void one(struct world *w)
{
	uint8_t op = reader_u8(&w->in);
	size_t link = op >> 4 < (int)ARRAY_LEN(w->links) ? op >> 4 : 1;
	struct coord_event tick = {.type = COORD_EV_TICK};
	switch (op & 15) {
	case 0:
	case 1:
		send_control(w, link);
		break;
	case 2:
	case 3:
		send_step(w, link);
		break;
	case 4:
		send_credit(w, link);
		break;
	case 5:
		if (op >> 4 >= 12)
			send_part(w);
		else
			raw(w, link);
		break;
	case 6:
		submit(w);
		break;
	case 7:
	case 8:
		finish(w, 0);
		break;
	case 9:
	case 10:
		finish(w, 1);
		break;
	case 11:
		finish(w, 2 + (op >> 4) % 2);
		break;
	case 12:
		up(w, link);
		break;
	case 13:
		down(w, link, reader_u8(&w->in));
		break;
	case 14:
		w->on_old = w->on_old != (op >> 4 == 9);
		w->now += (int64_t)(op >> 4) * 700000000;
		w->wall += op >> 4;
		step(w, &tick);
		break;
	case 15:
		operate(w);
		break;
	}
}

// take_memory gives each kind of configuration blocks of its own size, once for all inputs: to map and unmap so much costs more than most inputs do.
static void take_memory(struct world *w, const struct coordinator_config *config)
{
	static struct world blocks[ROUNDS_HERE + 1][CHAINS_HERE + 1][2];
	struct world *b = &blocks[config->n_rounds][config->n_chains][config->placement != NULL];
	if (b->core == NULL) {
		b->core = malloc(coordinator_size(config));
		b->fx = malloc(coordinator_effects_size(config));
		b->tokens = malloc(sizeof(int32_t) * coordinator_n_tokens(config));
	}
	w->core = b->core;
	w->fx = b->fx;
	w->tokens = b->tokens;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct placed_member nodes[] = {{"node1", 1}, {"node2", 1}, {"node3", 1}};
	static const struct placed_stage whole[] = {{4, 1, &nodes[0], 0, 0}}, halves[] = {{2, 1, &nodes[1], 0, 0}, {2, 1, &nodes[2], 0, 0}};
	static const struct placed_stage shared[] = {{1, 1, &nodes[0], 0, 0}, {3, 2, &nodes[1], 0, 0}};
	static const struct placed_chain placement[] = {{1, whole}, {2, halves}}, grouped = {2, shared};
	static const int32_t n_chains[] = {1, 1, 1, 2, 1, 2, 3}; // the first of two is placed
	bool is_placed = size % ARRAY_LEN(n_chains) == 3, has_group = is_placed && size % 2 == 0;
	const struct coordinator_config config = {.self = {{99}},
		.n_layers = N_LAYERS,
		.by_cost = size % 5 == 0,
		.hidden_dim = HIDDEN,
		.has_output = size % 4 == 1,
		.vocab_size = VOCAB,
		.n_slots = 2,
		.ctx_len = CTX,
		.chunk_max = 4,
		.hop_credits = 3,
		.n_rounds = size % 3 == 0 ? 2 : 1,
		.n_chains = has_group ? 1 : n_chains[size % ARRAY_LEN(n_chains)],
		.placement = has_group ? &grouped : is_placed ? placement : NULL,
		.stop_ids = {7},
		.n_stop_ids = 1,
		.session_wait_ns = 20000000000,
		.liveness = {.ping_after_ns = 1000000000, .dead_after_ns = 8000000000, .late_loop_ns = 1000000000}};
	struct world w = {.in = reader_init(data, size), .wall = WALL_S, .has_output = config.has_output};
	take_memory(&w, &config);
	struct member_record members[N_MEMBERS];
	for (uint32_t i = 0; i < N_MEMBERS; i++)
		members[i] = (struct member_record){
			.id = member_id(i), .public_key = {(uint8_t)i}, .name = {'n', 'o', 'd', 'e', (char)('1' + i)}};
	coordinator_init(w.core, &config, w.tokens);
	coordinator_effects_init(&config, w.fx);
	struct coord_event ev = {.type = COORD_EV_RESTORED};
	ev.u.restored.member_epoch.v = 1;
	ev.u.restored.members = members;
	ev.u.restored.n_members = N_MEMBERS;
	step(&w, &ev);
	while (w.in.left > 0)
		one(&w);
	return 0;
}
