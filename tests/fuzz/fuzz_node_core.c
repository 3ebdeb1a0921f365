// A node core whose coordinator and neighbours are authenticated and hostile: bytes become frames and events in any order. No ASSERT
// fires, the invariants hold after every event, no buffer of a running FORWARD is written, and effects stay within their bounds.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/window_layout.h"
#include "node/node.h"
#include "proto/lnk1.h"
#include "tests/support/fuzz.h"
#include "tests/support/msg_samples.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N_LINKS 7
#define HIDDEN 2
#define DISK_FRAMES 40
#define PART_MAX 16

// A FORWARD in one of the places.
struct fuzz_forward {
	uint32_t id;    // 0: none
	bool waits;     // in an exchange
	uint64_t order; // of being given to the engine
	int32_t reads;  // part buffers that the engine reads; -1: none
	int32_t n_items;
	const struct node_forward_item *items;
};

struct world {
	struct reader in;
	struct node *core;
	struct node_effects *fx;
	int64_t now;
	struct fuzz_link links[N_LINKS]; // 0 control, 1 data of the coordinator; 2, 3 the one before; 4, 5 the one behind; 6 a stranger
	uint32_t next_link;
	struct node_id ids[4];
	uint8_t pk[4][KEY_BYTES];
	uint64_t epoch;
	uint32_t load_id, read_id, prepare_id;
	uint32_t writes[64]; // on their way to disk
	size_t n_writes;
	bool is_fetched; // a FETCHED is told now
	int32_t n_bufs, n_members, n_parts;
	struct fuzz_forward forwards[NODE_FORWARDS_MAX];
	uint64_t n_given;
	struct msg_group group; // of the last plan
	bool is_probing, probe_is_stopped;
	int32_t n_dialled;
	bool on_old; // the next frames come on the link before the newest
	bool is_over;
	bool has_output; // the plan's, as it was sent
};

static bool is_busy(const struct fuzz_forward *f)
{
	return f->id != 0 && !f->waits;
}

// is_at_rest: nothing is computed. What waits may have been given up.
static bool is_at_rest(const struct world *w)
{
	return !is_busy(&w->forwards[0]) && !is_busy(&w->forwards[1]);
}

// require_free: the engine does not work on a buffer.
static void require_free(const struct world *w, int32_t buf)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		for (int32_t i = 0; is_busy(&w->forwards[k]) && i < w->forwards[k].n_items; i++)
			require(w->forwards[k].items[i].buf != buf);
}

static void give(struct world *w, int32_t k, int32_t reads)
{
	require(w->load_id == 0 && !is_busy(&w->forwards[k]));
	w->forwards[k].waits = false;
	w->forwards[k].reads = reads;
	w->forwards[k].order = ++w->n_given;
}

static void forget_forwards(struct world *w)
{
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		w->forwards[k] = (struct fuzz_forward){0};
}

static void take_effect(struct world *w, const struct node_effect *f)
{
	switch (f->type) {
	case NODE_FX_STOP_LOAD: require(w->load_id != 0); break;
	case NODE_FX_STOP_PREPARE: require(w->prepare_id != 0); break;
	case NODE_FX_PROBE: // never beside a load, a download or a step
		require(!w->is_probing && w->load_id == 0 && w->prepare_id == 0 && is_at_rest(w)); // waits: given up by a cut
		w->is_probing = true;
		w->probe_is_stopped = false;
		break;
	case NODE_FX_STOP_PROBE:
		require(w->is_probing && !w->probe_is_stopped);
		w->probe_is_stopped = true;
		break;
	case NODE_FX_PREPARE:
		require(w->load_id == 0 && w->prepare_id == 0);
		w->prepare_id = f->u.prepare.id;
		break;
	case NODE_FX_UNLOAD:
		require(w->load_id == 0 && is_at_rest(w) && w->n_bufs > 0);
		w->n_bufs = 0;
		forget_forwards(w);
		break;
	case NODE_FX_SEND:
		require(f->u.send.buf < (f->u.send.pool == NODE_PARTS ? w->n_parts : w->n_bufs));
		require(f->u.send.pool != NODE_PARTS || f->u.send.off + f->u.send.len <= PART_MAX);
		break;
	case NODE_FX_LOAD:
		require(w->load_id == 0 && is_at_rest(w) && w->prepare_id == 0);
		forget_forwards(w);
		w->n_members = f->u.load.group->n_members;
		w->n_parts = node_part_bufs(f->u.load.group->mode, w->n_members);
		require(layer_spans_count(&f->u.load.layers) > 0 && f->u.load.layers.at[f->u.load.layers.n - 1].end <= 8);
		require(f->u.load.stream_share <= WINDOW_SHARE_WHOLE);
		w->load_id = f->u.load.id;
		w->n_bufs = f->u.load.n_bufs;
		break;
	case NODE_FX_FORWARD: {
		struct fuzz_forward *x = &w->forwards[f->u.forward.forward];
		require(f->u.forward.n_items >= 1 && (w->n_members > 0 || f->u.forward.forward == 0));
		give(w, f->u.forward.forward, -1);
		require(f->u.forward.layer_begin < f->u.forward.layer_end && f->u.forward.layer_end <= 8);
		x->id = f->u.forward.id;
		x->items = f->u.forward.items;
		x->n_items = f->u.forward.n_items;
		break;
	}
	case NODE_FX_CONTINUE:
		require(w->forwards[f->u.resume.forward].id == f->u.resume.id && w->forwards[f->u.resume.forward].waits);
		give(w, f->u.resume.forward, f->u.resume.which);
		break;
	case NODE_FX_TAKE:
		if (f->u.take.pool == NODE_PARTS) {
			require(f->u.take.buf >= 0 && f->u.take.buf < w->n_parts && f->u.take.off + f->u.take.len <= PART_MAX);
			int32_t way = f->u.take.buf / w->n_members;
			const struct fuzz_forward *x = &w->forwards[way % NODE_FORWARDS_MAX];
			require(!is_busy(x) || way / NODE_FORWARDS_MAX != x->reads);
			break;
		}
		require(f->u.take.buf >= 0 && f->u.take.buf < w->n_bufs);
		require(f->u.take.off + f->u.take.len <= 5 * HIDDEN * 4);
		require_free(w, f->u.take.buf);
		break;
	case NODE_FX_KEEP:
	case NODE_FX_FETCH:
		require(f->u.keep.buf >= 0 && f->u.keep.buf < w->n_bufs);
		require(f->u.keep.entry >= 0 && f->u.keep.entry < KEPT_MAX && f->u.keep.pos >= 0 && f->u.keep.n_tokens > 0);
		require_free(w, f->u.keep.buf);
		break;
	case NODE_FX_KEEP_DISK:
	case NODE_FX_FETCH_DISK:
		require(f->u.disk.buf >= 0 && f->u.disk.buf < w->n_bufs && f->u.disk.n_runs > 0);
		for (int32_t i = 0, n = 0; i < f->u.disk.n_runs; i++) {
			n += f->u.disk.runs[i].n_rows;
			require(f->u.disk.runs[i].n_rows > 0 && f->u.disk.runs[i].frame + (uint32_t)f->u.disk.runs[i].n_rows <= DISK_FRAMES);
			require(i + 1 < f->u.disk.n_runs || n == f->u.disk.n_tokens);
		}
		if (f->type == NODE_FX_KEEP_DISK) {
			require(w->n_writes < 64);
			w->writes[w->n_writes++] = f->u.disk.id;
			break;
		}
		require(w->read_id == 0);
		w->read_id = f->u.disk.id;
		break;
	case NODE_FX_TAKE_FETCHED:
		require(w->is_fetched && f->u.keep.buf >= 0 && f->u.keep.buf < w->n_bufs);
		require_free(w, f->u.keep.buf);
		break;
	case NODE_FX_CONNECT:
	case NODE_FX_DISCONNECT: // each peer is dialled at most once: the host has a place for each
		if (node_id_is(f->u.connect.peer, w->ids[0]))
			break;
		w->n_dialled += f->type == NODE_FX_CONNECT ? 1 : -1;
		require(w->n_dialled >= 0 && w->n_dialled <= NODE_PEERS_MAX);
		break;
	case NODE_FX_EXIT:
		w->is_over = true;
		break;
	default:
		break;
	}
}

static void step(struct world *w, struct node_event *ev)
{
	ev->now_ns = w->now;
	node_step(w->core, ev, w->fx);
	node_check(w->core);
	for (int32_t i = 0; i < w->fx->n; i++)
		take_effect(w, &w->fx->at[i]);
	require(node_deadline_ns(w->core) > w->now || ev->type != NODE_EV_TICK); // a TICK does all that is due
}

static void up(struct world *w, size_t i)
{
	struct node_event ev = {.type = NODE_EV_LINK_UP};
	fuzz_link_up(&w->links[i], ++w->next_link);
	ev.u.link_up.link = w->next_link;
	ev.u.link_up.peer = w->ids[i / 2];
	ev.u.link_up.kind = i == 0 ? NODE_LINK_CONTROL : NODE_LINK_DATA;
	step(w, &ev);
}

// down ends a link, or the one before it.
static void down(struct world *w, size_t i, uint8_t how)
{
	struct node_event ev = {.type = NODE_EV_LINK_DOWN};
	ev.u.link_down.link = fuzz_link_down(&w->links[i], how & 1);
	ev.u.link_down.orderly = (how & 2) != 0;
	ev.u.link_down.reason = "reset";
	step(w, &ev);
}

static void frame(struct world *w, size_t link, const uint8_t *bytes, size_t len)
{
	struct node_event ev = {.type = NODE_EV_MESSAGE};
	uint8_t *exact = exact_copy(bytes, len);
	ev.u.message.link = fuzz_link_pick(&w->links[link], w->on_old);
	ev.u.message.data = exact;
	ev.u.message.len = len;
	step(w, &ev);
	free(exact);
}

static void control(struct world *w, const struct msg *m)
{
	uint8_t bytes[MSG_ENCODED_MAX];
	frame(w, 0, bytes, msg_encode(m, bytes));
}

// make_group: this node is one of two to four members, some of whom it cannot reach directly.
static void make_group(struct world *w, struct msg_plan *p, enum split_mode mode)
{
	uint8_t a = reader_u8(&w->in);
	struct msg_group *g = &p->group;
	g->n_members = 2 + a % 3;
	g->self = (a >> 2) % g->n_members;
	g->mode = mode;
	g->hub = split_is_ring(mode) ? -1 : (a >> 4) % (g->n_members + 1) - 1;
	for (int32_t i = 0, machine = 1; i < g->n_members; i++) {
		g->shares[i] = 1 + (a >> 7);
		if (i == g->self || (a >> 5 & 3) == 3)
			continue;
		g->members[i].present = true;
		memcpy(g->members[i].public_key, w->pk[machine++], KEY_BYTES);
	}
	if (g->self != 0)
		p->prev.present = p->next.present = false;
}

static void send_plan(struct world *w)
{
	uint8_t shape = reader_u8(&w->in), credits = reader_u8(&w->in);
	static const enum split_mode modes[] = {SPLIT_GATHER, SPLIT_GATHER, SPLIT_MIXED_RING, SPLIT_REDUCE_RING};
	size_t order = shape >> 5 & 3; // 1: they change sides; 2: a third one on both
	struct msg m = {.type = MSG_PLAN};
	m.u.plan = (struct msg_plan){.epoch = {shape & 0x80 ? 1 : ++w->epoch},
		.n_stages = 3,
		.stage = shape % 3,
		.layers = {1, {{shape % 4, shape % 4 + 1 + credits % 6}}},
		.n_slots = 1 + shape % 4,
		.ctx_len = 16,
		.chunk_max = 1 + shape % 5,
		.hop_credits = 1 + credits % 6,
		.has_output = (credits & 8) != 0};
	w->has_output = m.u.plan.has_output;
	if (shape & 0x10) { // a second round
		int32_t end = m.u.plan.layers.at[0].end;
		m.u.plan.layers.at[m.u.plan.layers.n++] = (struct layer_span){end, end + credits % 3};
	}
	struct msg_peer *peers[] = {&m.u.plan.prev, &m.u.plan.next};
	for (size_t i = 0; i < 2; i++) {
		peers[i]->present = (credits >> (6 + i) & 1) != 0;
		memcpy(peers[i]->public_key, w->pk[1 + (i + order * (1 + i)) % 3], KEY_BYTES);
	}
	if (shape % 8 == 7)
		m.u.plan.n_stages = 0;
	if (shape & 8)
		make_group(w, &m.u.plan, modes[credits >> 4 & 3]);
	w->group = m.u.plan.group;
	control(w, &m);
}

static void send_step(struct world *w, size_t link)
{
	struct node_status st;
	uint8_t bytes[FRAME_STEP_BYTES + 8 * HIDDEN * 8] = {0};
	uint8_t a = reader_u8(&w->in), b = reader_u8(&w->in), c = reader_u8(&w->in);
	node_status_get(w->core, &st);
	struct step s = {.reply = (enum step_reply)(a % 3 + (w->has_output && a % 3 > 0 ? 2 : 0)),
		.flags = a >> 2 & 1,
		.epoch = {a & 0x80 ? w->epoch - 1 : st.epoch.v},
		.session = {1 + b % 5},
		.seq = b >> 4,
		.slot = c % 5,
		.pos = c >> 4,
		.n_tokens = 1 + (a >> 4) % 4};
	uint16_t span = (uint16_t)(st.stage + (b & 8 ? st.n_stages : 0));
	s.src_span = span == 0 ? SPAN_HEAD : (uint16_t)(span - 1);
	s.dst_span = a & 0x40 ? 5 : span;
	s.payload_len = s.n_tokens * HIDDEN * 4 + (a == 0xff);
	if (a & 8) { // computes some layers again
		uint8_t range = reader_u8(&w->in);
		s.reply = REPLY_NONE;
		s.layer_begin = range & 7;
		s.layer_end = (uint16_t)(s.layer_begin + 1 + (range >> 3 & 7));
		s.payload_len = range & 0x40 ? 0 : s.payload_len;
	}
	step_encode(&s, bytes);
	frame(w, link, bytes, FRAME_STEP_BYTES + s.payload_len);
}

// send_part is of a member that mostly knows where this node is.
static void send_part(struct world *w, size_t link)
{
	struct node_status st;
	uint8_t bytes[FRAME_PART_BYTES + PART_START_BYTES_MAX + 128] = {0};
	uint8_t a = reader_u8(&w->in), b = reader_u8(&w->in), c = reader_u8(&w->in);
	node_status_get(w->core, &st);
	struct part p = {.src = a & 3, .dst = (uint8_t)w->group.self, .stage = (uint16_t)st.stage, .exchange = a >> 2 & 3, .epoch = st.epoch,
		.forward = 1 + (a >> 4), .offset = b & 7, .total = b >> 3, .failed = c & 0x80 ? c & 3 : 0};
	uint32_t len = c & 15;
	if (split_is_ring(w->group.mode) && (c & 0x20) != 0)
		p.exchange += 4; // further round
	if (p.exchange == 0) {
		struct part_start s = {.layer_begin = c % 4, .layer_end = c % 4 + 1 + (c >> 2 & 3), .n_items = 1 + (b & 1)};
		for (int32_t i = 0; i < s.n_items; i++) {
			s.items[i] = (struct part_item){.session = {1 + c % 5}, .slot = i, .pos = b >> 4 & 7, .n_tokens = 1 + (b >> 1 & 1), .is_first = (b >> 4 & 7) == 0,
				.want = w->has_output ? (enum head_want)(c % 3) : HEAD_NOTHING};
			s.n_tokens += s.items[i].n_tokens;
		}
		p.total = (uint32_t)(part_start_bytes(s.n_items) + (size_t)s.n_tokens * HIDDEN * 4);
		p.offset = 0;
		len = c & 0x40 ? p.total - 3 : p.total;
		part_start_encode(&s, bytes + FRAME_PART_BYTES);
	} else if (c & 0x40) {
		p.offset = 0;
		len = p.total;
	}
	part_encode(&p, bytes);
	frame(w, link, bytes, FRAME_PART_BYTES + len);
}

static void send_credit(struct world *w, size_t link)
{
	struct node_status st;
	uint8_t bytes[FRAME_CREDIT_BYTES], a = reader_u8(&w->in);
	node_status_get(w->core, &st);
	uint16_t span = (uint16_t)(st.stage + (a & 0x40 ? st.n_stages : 0));
	struct credit c = {.n = (uint16_t)(1 + a % 4),
		.src_span = span == st.n_stages * st.layers.n - 1 ? SPAN_HEAD : (uint16_t)(span + 1),
		.dst_span = a & 0x80 ? 7 : span,
		.epoch = st.epoch};
	credit_encode(&c, bytes);
	frame(w, link, bytes, sizeof bytes);
}

// finish_probe ends what was begun, or tells what the host knows by itself.
static void finish_probe(struct world *w, uint8_t a)
{
	static const enum err errs[] = {OK, ERR_CANCELLED, ERR_NOMEM, OK};
	const struct device_profile p = {.n_threads = 1 + a % 2, .n_rates = 1, .rates = {{DTYPE_Q4_0, a, a}}};
	struct node_event ev = {.type = NODE_EV_PROBED, .u.probed = {.err = w->is_probing ? errs[a % 4] : OK, .text = "no memory", .profile = &p}};
	w->is_probing = false;
	step(w, &ev);
}

static void send_small(struct world *w)
{
	uint8_t a = reader_u8(&w->in), b = reader_u8(&w->in);
	struct node_status st;
	struct msg m;
	node_status_get(w->core, &st);
	msg_sample((enum msg_type)(1 + a % MSG_NODE_REPORT), &m);
	if (m.type == MSG_CANCEL)
		m.u.cancel.epoch = st.epoch, m.u.cancel.session.v = b % 6;
	if (m.type == MSG_REVOKED)
		m.u.revoked.node = w->ids[b % 3], m.u.revoked.member_epoch.v = b;
	if (m.type == MSG_LEAVING) {
		msg_sample(MSG_PREPARE, &m);
		m.u.prepare.serial = 1 + b / 8;
		m.u.prepare.layers = b & 1 ? layer_spans_one(0, b / 2 % 4 + 1) : (struct layer_spans){0};
	}
	if (m.type == MSG_JOIN_ACK) {
		finish_probe(w, b);
		return;
	}
	if (m.type == MSG_REFUSED || m.type == MSG_BYE)
		return; // the program ends
	control(w, &m);
}

static void raw(struct world *w, size_t link)
{
	uint8_t bytes[FUZZ_RAW_MAX];
	frame(w, link, bytes, take_raw(&w->in, bytes));
}

// finish_exchange: the engine waits in one.
static void finish_exchange(struct world *w, struct fuzz_forward *x, uint8_t a)
{
	uint32_t bytes[GROUP_MEMBERS_MAX];
	struct node_event ev = {.type = NODE_EV_EXCHANGE};
	for (size_t i = 0; i < GROUP_MEMBERS_MAX; i++)
		bytes[i] = (uint32_t)(a >> 1) % (PART_MAX + 1);
	ev.u.exchange.id = x->id;
	ev.u.exchange.bytes = bytes;
	ev.u.exchange.failed = a & 0x80 ? a : 0;
	x->waits = true;
	step(w, &ev);
}

static void finish_forward(struct world *w)
{
	enum err errs[NODE_ITEMS_MAX] = {OK};
	struct node_event ev = {.type = NODE_EV_FORWARD_DONE};
	uint8_t a = reader_u8(&w->in);
	struct fuzz_forward *x = NULL;
	for (int32_t k = 0; k < NODE_FORWARDS_MAX; k++)
		if (is_busy(&w->forwards[k]) && (x == NULL || w->forwards[k].order < x->order))
			x = &w->forwards[k];
	if (x == NULL)
		return;
	if (w->n_members > 0 && (a & 1) != 0) {
		finish_exchange(w, x, a);
		return;
	}
	ev.u.forward_done.was_cut = w->n_members > 0 && a == 0xfe;
	for (int32_t i = 0; i < x->n_items; i++)
		errs[i] = ev.u.forward_done.was_cut ? ERR_RANGE : (a >> i % 8 & 1) != 0 ? ERR_NON_FINITE : OK;
	ev.u.forward_done.id = x->id;
	ev.u.forward_done.errs = errs;
	const char *texts[NODE_ITEMS_MAX] = {"layer 3"}; // of the others nothing is known
	ev.u.forward_done.texts = a % 2 == 0 ? texts : NULL;
	ev.u.forward_done.cost = (struct node_cost){.compute_ns = a, .weight_bytes = a * UINT64_C(1000), .token_flop = a};
	x->id = 0;
	step(w, &ev);
}

static void finish_load(struct world *w)
{
	struct node_event ev = {.type = NODE_EV_LOADED};
	ev.u.loaded.id = w->load_id;
	ev.u.loaded.err = reader_u8(&w->in) % 8 == 0 ? ERR_NOMEM : OK;
	ev.u.loaded.text = "no memory";
	ev.u.loaded.part_bytes = PART_MAX;
	w->load_id = 0;
	step(w, &ev);
}

static void finish_prepare(struct world *w)
{
	struct node_event ev = {.type = NODE_EV_PREPARED};
	ev.u.prepared.id = w->prepare_id;
	ev.u.prepared.err = reader_u8(&w->in) % 4 == 0 ? ERR_LIMIT : OK;
	ev.u.prepared.text = "the cache is full";
	w->prepare_id = 0;
	step(w, &ev);
}

// finish_disk ends the oldest write, or the read.
static void finish_disk(struct world *w)
{
	static const enum err errs[] = {OK, OK, OK, OK, OK, OK, ERR_IO, ERR_AUTH};
	uint8_t a = reader_u8(&w->in);
	struct node_event ev = {.type = a & 0x80 ? NODE_EV_FETCHED : NODE_EV_KEPT, .u.disk.err = errs[a % 8]};
	if (a & 0x80) {
		ev.u.disk.id = w->read_id;
		w->read_id = 0;
	} else if (w->n_writes > 0) {
		ev.u.disk.id = w->writes[0];
		memmove(w->writes, w->writes + 1, --w->n_writes * sizeof w->writes[0]);
	}
	if (ev.u.disk.id == 0)
		return;
	w->is_fetched = (a & 0x80) != 0;
	step(w, &ev);
	w->is_fetched = false;
}

static void one(struct world *w)
{
	uint8_t op = reader_u8(&w->in);
	size_t link = op >> 4 < N_LINKS ? op >> 4 : 1;
	struct node_event tick = {.type = NODE_EV_TICK};
	switch (op & 15) {
	case 0:
		send_plan(w);
		break;
	case 1:
	case 2:
	case 3:
		send_step(w, link);
		break;
	case 4:
		if (w->n_members > 0)
			send_part(w, link);
		else
			send_step(w, link);
		break;
	case 5:
		send_credit(w, link);
		break;
	case 6:
		if (w->n_members > 0)
			send_part(w, link);
		else
			send_credit(w, link);
		break;
	case 7:
		send_small(w);
		break;
	case 8:
		raw(w, link);
		break;
	case 9:
	case 10:
		if (!is_at_rest(w))
			finish_forward(w);
		break;
	case 11:
		if (w->prepare_id != 0)
			finish_prepare(w);
		else if (w->load_id != 0)
			finish_load(w);
		break;
	case 12:
		up(w, link);
		break;
	case 13:
		down(w, link, reader_u8(&w->in));
		break;
	case 14:
		if (op & 0x80)
			finish_disk(w);
		else
			w->on_old = !w->on_old;
		break;
	case 15:
		w->now += (int64_t)reader_u8(&w->in) * 100000000;
		step(w, &tick);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	// One for all inputs: to map and unmap so much costs more than most inputs do.
	static struct node *core;
	static struct node_effects *fx;
	core = core != NULL ? core : malloc(node_size());
	fx = fx != NULL ? fx : malloc(sizeof *fx);
	struct world w = {.in = reader_init(data, size), .core = core, .fx = fx};
	struct node_config c = {.name = "n", .may_probe = true,
		.n_layers = 8,
		.hidden_dim = HIDDEN,
		.vocab_size = 5,
		.n_threads = 1,
		.fetches = size % 5 == 0,
		.liveness = liveness_defaults,
		.link_age_ns = 3600000000000,
		.keep_bytes = size % 2 == 0 ? 256 : 24,
		.keep_disk_bytes = size % 3 == 0 ? 0 : DISK_FRAMES * (HIDDEN * 4 + NODE_KEPT_FRAME_EXTRA)};
	for (size_t i = 0; i < 4; i++) {
		w.pk[i][0] = (uint8_t)(i + 1);
		lnk1_node_id(w.pk[i], w.ids[i].b);
	}
	c.coordinator = w.ids[0];
	node_init(w.core, &c);
	struct node_event ev = {.type = NODE_EV_START};
	step(&w, &ev);
	up(&w, 0);
	up(&w, 1);
	while (w.in.left > 0 && reader_ok(&w.in) && !w.is_over)
		one(&w);
	return 0;
}
