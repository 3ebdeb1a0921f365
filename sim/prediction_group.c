// A group: every member computes an equal share of each layer, and after each part of it all exchange (cost-model.md, section 6).
//
// Streaming inside a group: each member reads its share of a layer ahead, two layers at most, and the layer waits for the slowest.
#include "sim/prediction_host.h"

#include "base/assert.h"
#include "sim/exchange.h"
#include "sim/network.h"

#include <string.h>

#define LAYERS_AHEAD 2

struct group {
	const struct scenario *s;
	struct prediction *p;
	struct arena arena;
	struct network network;
	struct exchange exchange;
	int64_t read_end_ns[EXCHANGE_MEMBERS_MAX];
	int64_t done_ns[LAYERS_AHEAD]; // when the last layers were computed
	int64_t n_layers_done;
	int64_t now_ns;
	bool lost;
};

static void add(
	struct group *g, enum report_kind kind, int32_t device, int32_t peer, int32_t n_tokens, int64_t begin_ns, int64_t end_ns)
{
	struct report_interval i = {
		.kind = kind, .device = device, .peer = peer, .n_tokens = n_tokens, .begin_ns = begin_ns, .end_ns = end_ns};
	report_add(&g->p->report, &i);
}

static void on_message(void *ctx, int32_t from, int32_t to, int64_t begin_ns, int64_t end_ns)
{
	add(ctx, REPORT_LINK, from, to, 0, begin_ns, end_ns);
}

// part_s is a member's time for its share of one of the parts that a layer is cut into by its exchanges.
static double part_s(const struct group *g, int32_t member, int32_t layer, const struct cost_batch *b)
{
	const struct scenario *s = g->s;
	const struct cluster_device *d = &s->devices[member];
	double share = 1.0 / s->n_devices / s->group.per_layer, bytes = (double)model_shape_layer_bytes(&s->shape, layer) * share;
	double kv = (double)s->shape.kv_bytes * (double)b->kv_read * share;
	bool accel = d->accel_bytes > 0;
	double rate = accel ? d->accel_rate : cluster_cpu_rate(d, s->shape.type), flops = accel ? d->accel_flops : d->cpu_flops;
	double read = (bytes * model_shape_read_share(&s->shape, b->n_tokens) + kv) / rate, work = b->n_tokens * model_shape_layer_flops(&s->shape, layer) * share;
	double compute = b->n_tokens <= 1 ? 0 : flops > 0 ? work / flops : b->n_tokens * (bytes * model_shape_read_share(&s->shape, 1) / rate);
	return (read > compute ? read : compute) + d->visit_s;
}

// wait_for_reads returns when every member has its share of the next layer, not before begin_ns.
static int64_t wait_for_reads(struct group *g, int32_t layer, int64_t begin_ns)
{
	const struct scenario *s = g->s;
	int64_t ready_ns = begin_ns, slot_ns = g->done_ns[g->n_layers_done % LAYERS_AHEAD];
	for (int32_t m = 0; m < s->n_devices && s->group.streamed > 0; m++) {
		double bytes = (double)model_shape_layer_bytes(&s->shape, layer) / s->n_devices * s->group.streamed;
		int64_t from_ns = g->read_end_ns[m] > slot_ns ? g->read_end_ns[m] : slot_ns;
		g->read_end_ns[m] = from_ns + quantity_ns(bytes / s->devices[m].disk_rate);
		add(g, REPORT_DISK, m, -1, 0, from_ns, g->read_end_ns[m]);
		if (g->read_end_ns[m] > begin_ns)
			g->p->report.devices[m].stall_ns += g->read_end_ns[m] - begin_ns;
		if (g->read_end_ns[m] > ready_ns)
			ready_ns = g->read_end_ns[m];
	}
	return ready_ns;
}

static void run_layer(struct group *g, int32_t layer, const struct cost_batch *b)
{
	const struct scenario *s = g->s;
	g->now_ns = wait_for_reads(g, layer, g->now_ns);
	for (int32_t part = 0; part < s->group.per_layer; part++) {
		int64_t end_ns = g->now_ns;
		for (int32_t m = 0; m < s->n_devices; m++) {
			int64_t done_ns = g->now_ns + quantity_ns(part_s(g, m, layer, b));
			add(g, REPORT_COMPUTE, m, -1, b->n_tokens, g->now_ns, done_ns);
			end_ns = done_ns > end_ns ? done_ns : end_ns;
		}
		if (exchange_run(&g->exchange, s->group.bytes * b->n_tokens, end_ns, &g->now_ns) != OK)
			g->lost = true;
	}
	g->done_ns[g->n_layers_done++ % LAYERS_AHEAD] = g->now_ns;
}

static void sample(struct group *g, int32_t request)
{
	struct cost_case c = scenario_case(g->s);
	int64_t begin_ns = g->now_ns;
	g->now_ns += quantity_ns(cost_head_s(&c, 1));
	add(g, REPORT_HEAD, g->s->plan.head, -1, 1, begin_ns, g->now_ns);
	report_token(&g->p->report, request, g->now_ns);
}

static void run_step(struct group *g, const struct cost_batch *b)
{
	for (int32_t i = 0; i < g->s->shape.n_layers && !g->lost; i++)
		run_layer(g, i, b);
}

static void answer(struct group *g, const struct scenario_request *q)
{
	int64_t at_ns = quantity_ns(q->at_s), limit_ns = quantity_ns(g->s->duration_s);
	int32_t request = report_submit(&g->p->report, at_ns, q->n_prompt);
	if (g->now_ns < at_ns)
		g->now_ns = at_ns;
	for (int32_t pos = 0; pos < q->n_prompt; pos += g->s->chunk) {
		struct cost_batch b = cost_chunk(
			(uint64_t)pos, q->n_prompt - pos < g->s->chunk ? q->n_prompt - pos : g->s->chunk);
		run_step(g, &b);
	}
	sample(g, request);
	for (int32_t i = 1; i < q->n_predict && g->now_ns < limit_ns; i++) {
		struct cost_batch b = cost_decode((uint64_t)(q->n_prompt + i));
		run_step(g, &b);
		sample(g, request);
	}
	g->p->timed_out = g->p->timed_out || g->now_ns >= limit_ns;
}

// slowest_link returns the one with the longest delay of those that the exchange uses: all of them, but a star's are its centre's.
static const struct cluster_link *slowest_link(const struct scenario *s)
{
	const struct cluster_link *worst = &s->cluster.links[1];
	for (int32_t i = 0; i < s->n_devices; i++)
		for (int32_t j = i + 1; j < s->n_devices; j++)
			if (s->cluster.links[i * s->n_devices + j].delay_s > worst->delay_s &&
				(i == 0 || s->group.exchange != EXCHANGE_STAR))
				worst = &s->cluster.links[i * s->n_devices + j];
	return worst;
}

// model_figures are those of mean delays; every exchange takes what the slowest link makes of it.
static void model_figures(struct group *g)
{
	const struct scenario *s = g->s;
	struct prediction *p = g->p;
	const struct cluster_link *l = slowest_link(s);
	const struct scenario_request *q = &s->requests[0];
	double tokens[2] = {1, q->n_prompt < s->chunk ? q->n_prompt : s->chunk}, seconds[2] = {0, 0};
	struct cost_batch batches[2] = {cost_decode(s->params.kv_read), cost_chunk(0, (int32_t)tokens[1])};
	p->exchange_s = exchange_model_s(
		s->group.exchange, s->n_devices, l->delay_s, l->rate, s->group.software_s, s->group.bytes);
	for (int k = 0; k < 2; k++) {
		double x = exchange_model_s(s->group.exchange, s->n_devices, l->delay_s, l->rate, s->group.software_s,
			       s->group.bytes * tokens[k]),
		       disk = 0;
		for (int32_t i = 0; i < s->shape.n_layers; i++) {
			double slowest = 0, read = 0,
			       bytes = (double)model_shape_layer_bytes(&s->shape, i) / s->n_devices * s->group.streamed;
			for (int32_t m = 0; m < s->n_devices; m++) {
				double part = part_s(g, m, i, &batches[k]), r = bytes > 0 ? bytes / s->devices[m].disk_rate : 0;
				slowest = part > slowest ? part : slowest;
				read = r > read ? r : read;
			}
			seconds[k] += s->group.per_layer * (slowest + x);
			disk += read;
		}
		seconds[k] = seconds[k] > disk ? seconds[k] : disk;
	}
	struct cost_case c = scenario_case(s);
	p->tpot_s = seconds[0] + cost_head_s(&c, 1);
	p->ttft_s = seconds[1] * ((q->n_prompt + s->chunk - 1) / s->chunk) + cost_head_s(&c, 1);
}

enum err prediction_of_group(const struct scenario *s, struct prediction *p, struct errmsg *em)
{
	struct group g;
	int32_t devices[EXCHANGE_MEMBERS_MAX];
	memset(&g, 0, sizeof g);
	g.s = s;
	g.p = p;
	for (int32_t i = 0; i < s->n_devices; i++) {
		devices[i] = i;
		if (s->group.streamed > 0 && s->devices[i].disk_rate <= 0)
			return errmsg_fail(em, ERR_RANGE, "%s: its share is streamed, and it has no disk", s->devices[i].name);
	}
	if (arena_open(scenario_network_bytes(s->n_devices), &g.arena) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a group of %d machines", s->n_devices);
	enum err e = scenario_network(s, devices, s->n_devices, &g.arena, &g.network, em);
	if (e == OK)
		e = exchange_init(
			&g.exchange, &g.network, s->group.exchange, s->n_devices, quantity_ns(s->group.software_s), em);
	if (e == OK) {
		g.exchange.ctx = &g;
		g.exchange.on_message = on_message;
		model_figures(&g);
		for (int32_t i = 0; i < s->n_requests && !g.lost; i++)
			answer(&g, &s->requests[i]);
	}
	if (g.lost)
		e = errmsg_fail(em, ERR_CLOSED, "a message of an exchange was lost: a group cannot go on");
	arena_close(&g.arena);
	return e;
}
