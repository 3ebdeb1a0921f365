// Checks, layout, and one device's visits; the whole ring is cost_judge.c, the closed form cost_closed.c.
#include "partition/cost.h"

#include "base/assert.h"
#include "partition/cost_round.h"
#include "partition/plan.h"

#define SLOTS_MAX (INT64_C(1) << 40) // more units than any memory has

struct cost_batch cost_decode(uint64_t positions)
{
	return (struct cost_batch){.n_tokens = 1, .kv_read = positions, .attn_pairs = positions};
}

struct cost_batch cost_chunk(uint64_t pos, int32_t n_tokens)
{
	uint64_t n = (uint64_t)n_tokens;
	return (struct cost_batch){.n_tokens = n_tokens, .kv_read = pos + n, .attn_pairs = n * pos + n * (n + 1) / 2};
}

struct cost_round cost_round_begin(const struct cost_case *c, int32_t stage, const struct cost_layout *l, int32_t round)
{
	const struct cost_plan *p = c->plan;
	int32_t n = p->stages[stage].n_layers, k = p->n_rounds, begin = plan_round_begin(n, k, round), layer = 0;
	for (int32_t i = 0; i < p->n_stages; i++) // what earlier rounds did, and earlier stages in this one
		layer += plan_round_begin(p->stages[i].n_layers, k, round + (i < stage));
	int64_t n_cpu_before = begin - (n > 0 ? (int64_t)begin * l->n_accel / n : 0);
	return (struct cost_round){
		.n_left = plan_round_begin(n, k, round + 1) - begin,
		.layer = layer,
		.accel = cost_spread_at(l->n_accel, n, begin),
		.streamed = cost_spread_at(l->n_streamed, l->n_units, n_cpu_before * c->params.units_per_layer),
		.unit = n_cpu_before * c->params.units_per_layer,
	};
}

bool cost_round_next(struct cost_round *r, struct cost_item *out)
{
	if (r->n_left == 0)
		return false;
	r->n_left--;
	*out = (struct cost_item){.layer = r->layer++, .on_accel = cost_spread_next(&r->accel)};
	return true;
}

// layer_bytes and kv_bytes are those of a layer, or of a member's part of it.
static double layer_bytes(const struct cost_case *c, int32_t layer)
{
	double bytes = (double)model_shape_layer_bytes(c->shape, layer);
	return c->part ? bytes * c->part->bytes : bytes;
}

static double layer_bytes_most(const struct cost_case *c)
{
	return c->part ? (double)c->shape->layer_bytes * c->part->bytes : (double)c->shape->layer_bytes;
}

static double kv_bytes(const struct cost_case *c)
{
	return c->part ? (double)c->shape->kv_bytes * c->part->kv : (double)c->shape->kv_bytes;
}

static double layer_flops(const struct cost_case *c, int32_t layer, const struct cost_batch *b)
{
	double layer_s = b->n_tokens * model_shape_layer_flops(c->shape, layer), attn_s = (double)b->attn_pairs * c->shape->attn_flops;
	return c->part ? layer_s * c->part->flops + attn_s * c->part->attn : layer_s + attn_s;
}

// work_s is the time of a part of a layer: weights are read once for the whole batch, KV once per sequence. One token is bound by
// reading; a batch by arithmetic when that takes longer.
static double work_s(
	const struct cost_case *c, int32_t layer, int32_t parts, const struct cost_batch *b, double rate, double flops)
{
	double whole = layer_bytes(c, layer) / parts, bytes = whole * model_shape_read_share(c->shape, b->n_tokens);
	double kv = kv_bytes(c) * (double)b->kv_read / parts;
	double read_s = (bytes + kv) / rate;
	if (b->n_tokens <= 1)
		return read_s;
	if (flops <= 0) {
		double one_by_one_s = b->n_tokens * (whole * model_shape_read_share(c->shape, 1) / rate);
		return read_s > one_by_one_s ? read_s : one_by_one_s;
	}
	double compute_s = layer_flops(c, layer, b) / parts / flops;
	return read_s > compute_s ? read_s : compute_s;
}

double cost_accel_s(const struct cost_case *c, const struct cluster_device *d, int32_t layer, const struct cost_batch *b)
{
	return work_s(c, layer, 1, b, d->accel_rate, d->accel_flops);
}

double cost_unit_s(const struct cost_case *c, const struct cluster_device *d, int32_t layer, const struct cost_batch *b)
{
	return work_s(c, layer, c->params.units_per_layer, b, cluster_cpu_rate(d, c->shape->type), d->cpu_flops);
}

// What is not experts stays first. Of the experts that do not, a batch reads those that it uses: as if each were used as often, while it is the least used
// that do not stay.
double cost_streamed_share(const struct cost_case *c, const struct cost_layout *l, int32_t n_tokens)
{
	double share = c->shape->expert_share, streamed = l->n_units > 0 ? (double)l->n_streamed / l->n_units : 0;
	if (share <= 0)
		return 1;
	double used = model_shape_expert_share(c->shape, n_tokens);
	return streamed <= share ? used : (share * used + streamed - share) / streamed;
}

double cost_read_s(const struct cost_case *c, const struct cluster_device *d, int32_t layer, const struct cost_layout *l, const struct cost_batch *b)
{
	return layer_bytes(c, layer) / c->params.units_per_layer / d->disk_rate * cost_streamed_share(c, l, b->n_tokens);
}

// Memory of one device, in bytes as doubles: KV of many slots may pass 2^64.
struct room {
	double kv_layer; // KV of one layer
	double accel;    // of the accelerator for layers
	double weights;  // of the CPU's for weights
};

static enum err find_room(
	const struct cost_case *c, const struct cost_stage *s, struct room *out, int32_t *n_accel, struct errmsg *em)
{
	const struct cluster_device *d = &c->cluster->devices[s->device];
	bool has_head = s->device == c->plan->head;
	double head = has_head ? (double)c->shape->head_bytes : 0, layer = layer_bytes_most(c);
	out->kv_layer = kv_bytes(c) * (double)c->params.kv_alloc;
	out->accel = (double)d->accel_bytes - (c->plan->head_on_accel ? head : 0);
	if (out->accel < 0)
		return errmsg_fail(em, ERR_RANGE, "%s: the output head of %.3f GB does not fit the accelerator's %.3f GB",
			d->name, head / 1e9, (double)d->accel_bytes / 1e9);
	double fits = out->accel > 0 ? out->accel / (layer + out->kv_layer) : 0; // a member's part may be nothing
	*n_accel = fits < s->n_layers ? (int32_t)fits : s->n_layers;
	double kv = (s->n_layers - *n_accel) * out->kv_layer;
	out->weights = (double)d->cap_bytes - (double)d->reserved_bytes - (c->plan->head_on_accel ? 0 : head) - kv;
	if (out->weights >= 0)
		return OK;
	return errmsg_fail(em, ERR_RANGE,
		"%s: %.3f GB of memory, less %.3f GB for the program, %.3f GB of output head and %.3f GB of KV, leave no room",
		d->name, (double)d->cap_bytes / 1e9, (double)d->reserved_bytes / 1e9, c->plan->head_on_accel ? 0 : head / 1e9,
		kv / 1e9);
}

// choose_window fills n_streamed and window of a stage that does not fit.
static enum err choose_window(const struct cost_case *c, const struct cost_stage *s, struct cost_layout *l, struct errmsg *em)
{
	const struct cluster_device *d = &c->cluster->devices[s->device];
	double need = l->n_units * l->unit_bytes / 1e9, have = (double)l->n_slots * l->unit_bytes / 1e9;
	if (d->disk_rate <= 0)
		return errmsg_fail(em, ERR_RANGE,
			"%s: its layers in memory are %.3f GB, %.3f GB fit, and it has no disk to stream the rest from", d->name,
			need, have);
	if (c->params.policy == COST_LRU || c->params.policy == COST_LRU_AHEAD) {
		l->n_streamed = l->n_units;
		l->n_times = c->params.policy == COST_LRU ? 0 : l->n_units;
		return OK;
	}
	if (l->n_slots < 2)
		return errmsg_fail(em, ERR_RANGE, "%s: %.3f GB of room for weights hold no window of two units of %.3f GB",
			d->name, have, l->unit_bytes / 1e9);
	int64_t least = l->n_units - l->n_slots + 2;
	int64_t n = s->n_streamed == COST_STREAM_LEAST ? least : s->n_streamed;
	if (n < least || n > l->n_units)
		return errmsg_fail(em, ERR_RANGE,
			"%s: %lld units streamed, want %lld to %d: %d units, %lld fit, and a window has two", d->name,
			(long long)n, (long long)least, l->n_units, l->n_units, (long long)l->n_slots);
	l->n_streamed = (int32_t)n;
	l->window = l->n_times = (int32_t)(l->n_slots - (l->n_units - n));
	return OK;
}

enum err cost_layout_of(const struct cost_case *c, int32_t stage, struct cost_layout *out, struct errmsg *em)
{
	struct cost_stage at = c->plan->stages[stage], *s = &at;
	int32_t units = c->params.units_per_layer;
	struct room room = {0};
	if (c->part == NULL && cost_group_of(c->plan, stage))
		return cost_group_layout(c, stage, out, em);
	if (c->part) {
		at.device = c->part->device;
		at.n_streamed = c->part->n_streamed;
	}
	*out = (struct cost_layout){.unit_bytes = layer_bytes_most(c) / units};
	enum err e = find_room(c, s, &room, &out->n_accel, em);
	if (e != OK)
		return e;
	double slots = room.weights / out->unit_bytes;
	out->n_units = (s->n_layers - out->n_accel) * units;
	out->n_slots = slots < (double)SLOTS_MAX ? (int64_t)slots : SLOTS_MAX;
	if (out->n_units > out->n_slots)
		e = choose_window(c, s, out, em);
	out->streamed_bytes = (uint64_t)(out->n_streamed * out->unit_bytes);
	out->pinned_bytes = (uint64_t)((out->n_units - out->n_streamed) * out->unit_bytes);
	return e;
}

static enum err check_params(const struct cost_case *c, struct errmsg *em)
{
	if (c->params.units_per_layer < 1 || c->params.units_per_layer > COST_UNITS_MAX)
		return errmsg_fail(em, ERR_RANGE, "%d units per layer, want 1 to %d", c->params.units_per_layer, COST_UNITS_MAX);
	if (c->params.kv_alloc > CLUSTER_BYTES_MAX || c->params.kv_read > CLUSTER_BYTES_MAX)
		return errmsg_fail(em, ERR_RANGE, "a context of more than %llu positions", (unsigned long long)CLUSTER_BYTES_MAX);
	return OK;
}

static enum err check_stages(const struct cost_case *c, struct errmsg *em)
{
	const struct cost_plan *p = c->plan;
	int64_t sum = 0;
	if (p->n_stages < 1 || p->n_stages > STAGES_MAX)
		return errmsg_fail(em, ERR_RANGE, "plan: %d stages, want 1 to %d", p->n_stages, STAGES_MAX);
	if (p->n_rounds < 1 || p->n_rounds > COST_ROUNDS_MAX)
		return errmsg_fail(em, ERR_RANGE, "plan: %d rounds, want 1 to %d", p->n_rounds, COST_ROUNDS_MAX);
	if (p->head < 0 || p->head >= c->cluster->n_devices)
		return errmsg_fail(em, ERR_RANGE, "plan: the head is device %d of %d", p->head, c->cluster->n_devices);
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct cost_stage *s = &p->stages[i];
		if (s->device < 0 || s->device >= c->cluster->n_devices)
			return errmsg_fail(
				em, ERR_RANGE, "plan: stage %d is on device %d of %d", i, s->device, c->cluster->n_devices);
		if (s->n_layers < 1 || s->n_layers > c->shape->n_layers)
			return errmsg_fail(em, ERR_RANGE, "plan: %s has %d layers, want 1 to %d",
				c->cluster->devices[s->device].name, s->n_layers, c->shape->n_layers);
		for (int32_t j = 0; j < i; j++)
			if (p->stages[j].device == s->device)
				return errmsg_fail(
					em, ERR_RANGE, "plan: %s is in the ring twice", c->cluster->devices[s->device].name);
		sum += s->n_layers;
	}
	if (sum != c->shape->n_layers)
		return errmsg_fail(em, ERR_RANGE, "plan: %d stages hold %lld layers, the model has %d", p->n_stages,
			(long long)sum, c->shape->n_layers);
	return OK;
}

static enum err check_hop(const struct cost_case *c, int32_t from, int32_t to, struct errmsg *em)
{
	double s;
	if (cluster_hop(c->cluster, from, to, 0, &s))
		return OK;
	return errmsg_fail(em, ERR_RANGE, "plan: %s must send to %s, and no link leads there", c->cluster->devices[from].name,
		c->cluster->devices[to].name);
}

static enum err check_hops(const struct cost_case *c, struct errmsg *em)
{
	const struct cost_plan *p = c->plan;
	int32_t first = p->stages[0].device, last = p->stages[p->n_stages - 1].device;
	enum err e = check_hop(c, p->head, first, em);
	for (int32_t i = 0; i + 1 < p->n_stages && e == OK; i++)
		e = check_hop(c, p->stages[i].device, p->stages[i + 1].device, em);
	if (e == OK && p->n_rounds > 1)
		e = check_hop(c, last, first, em);
	return e == OK ? check_hop(c, last, p->head, em) : e;
}

static bool holds_layers(const struct cost_plan *p, int32_t device)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].device == device)
			return true;
	for (int32_t i = 0; i < p->n_groups; i++)
		for (int32_t m = 0; m < p->groups[i].n_members; m++)
			if (p->groups[i].devices[m] == device)
				return true;
	return false;
}

// A head's device without layers has room for the head at least.
static enum err check_head(const struct cost_case *c, struct errmsg *em)
{
	struct room room = {0};
	int32_t n_accel;
	struct cost_stage none = {.device = c->plan->head};
	return holds_layers(c->plan, c->plan->head) ? OK : find_room(c, &none, &room, &n_accel, em);
}

enum err cost_check(const struct cost_case *c, struct errmsg *em)
{
	enum err e = cluster_check(c->cluster, em);
	if (e == OK)
		e = model_shape_check(c->shape, em);
	if (e == OK)
		e = check_params(c, em);
	if (e == OK)
		e = check_stages(c, em);
	if (e == OK)
		e = cost_group_check(c, em);
	if (e == OK)
		e = check_hops(c, em);
	if (e == OK)
		e = check_head(c, em);
	for (int32_t i = 0; e == OK && i < c->plan->n_stages; i++) {
		struct cost_layout l;
		e = cost_layout_of(c, i, &l, em);
	}
	return e;
}

void cost_runner_init(struct cost_runner *r, const struct cost_case *c, int32_t stage, double start_s, double *ends)
{
	*r = (struct cost_runner){.c = c, .stage = stage, .ends = ends, .read_end_s = start_s};
	enum err e = cost_layout_of(c, stage, &r->layout, NULL);
	ASSERT(e == OK);
	for (int32_t i = 0; i < r->layout.n_times; i++)
		ends[i] = c->params.policy == COST_LRU_AHEAD ? 0 : start_s;
}

// take_streamed waits for the next streamed unit and computes it: R_j = max(R_{j-1}, E_{j-q}) + rho, E_j = max(t, R_j) + p.
static double take_streamed(struct cost_runner *r, double t, double read_s, double unit_s, struct cost_use *use)
{
	double *end = r->layout.window > 0 ? &r->ends[r->slot] : NULL; // of unit j - q
	double begin = end && *end > r->read_end_s ? *end : r->read_end_s;
	r->read_end_s = begin + read_s;
	r->slot = r->slot + 1 < r->layout.window ? r->slot + 1 : 0;
	if (r->on_read)
		r->on_read(r->on_read_ctx, r->stage, begin, r->read_end_s);
	if (r->read_end_s > t) {
		use->stall_s += r->read_end_s - t;
		t = r->read_end_s;
	}
	t += unit_s;
	if (end)
		*end = t;
	return t;
}

// take_on_demand reads a unit while it is computed: the longer of the two.
static double take_on_demand(struct cost_runner *r, double t, double read_s, double unit_s, struct cost_use *use)
{
	r->read_end_s = t + read_s;
	if (r->on_read)
		r->on_read(r->on_read_ctx, r->stage, t, r->read_end_s);
	if (read_s <= unit_s)
		return t + unit_s;
	use->stall_s += read_s - unit_s;
	return r->read_end_s;
}

static bool is_cached(const struct cost_runner *r)
{
	return r->c->params.policy == COST_LRU_AHEAD && r->layout.n_streamed > 0;
}

void cost_runner_begin(struct cost_runner *r, double start_s)
{
	if ((r->c->params.policy == COST_LRU || cost_reads_in_turn(r->c)) && r->read_end_s < start_s)
		r->read_end_s = start_s; // nothing is read ahead of the device's turn
	r->asked.turn_s = start_s;
}

void cost_runner_end(struct cost_runner *r, int32_t round, double t)
{
	if (is_cached(r))
		cost_cache_ask(r, (round + 1) % r->c->plan->n_rounds, t);
}

static struct cost_pace pace_of(const struct cost_runner *r, int32_t layer, const struct cost_batch *b)
{
	const struct cluster_device *d = cost_device_of(r->c, r->stage);
	return (struct cost_pace){.batch = *b,
		.accel_s = r->layout.n_accel > 0 ? cost_accel_s(r->c, d, layer, b) : 0,
		.unit_s = r->layout.n_units > 0 ? cost_unit_s(r->c, d, layer, b) : 0,
		.read_s = r->layout.n_streamed > 0 ? cost_read_s(r->c, d, layer, &r->layout, b) : 0};
}

static bool is_same_batch(const struct cost_batch *a, const struct cost_batch *b)
{
	return a->n_tokens == b->n_tokens && a->kv_read == b->kv_read && a->attn_pairs == b->attn_pairs;
}

double cost_runner_layer(struct cost_runner *r, struct cost_round *at, const struct cost_item *item, double t, const struct cost_batch *b, struct cost_use *use)
{
	const struct cost_case *c = r->c;
	const struct cost_pace *pace = &r->pace;
	if (c->shape->bytes_of_layer || !is_same_batch(&pace->batch, b))
		r->pace = pace_of(r, item->layer, b);
	if (item->on_accel) {
		use->busy_s += pace->accel_s;
		return t + pace->accel_s;
	}
	if (r->layout.n_streamed == 0) {
		for (int32_t u = 0; u < c->params.units_per_layer; u++) {
			use->busy_s += pace->unit_s;
			t += pace->unit_s;
		}
		return t;
	}
	for (int32_t u = 0; u < c->params.units_per_layer; u++) {
		use->busy_s += pace->unit_s;
		if (is_cached(r)) {
			t = cost_cache_take(r, at->unit++, t, pace->read_s, pace->unit_s, use);
			continue;
		}
		if (!cost_spread_next(&at->streamed)) {
			t += pace->unit_s;
			continue;
		}
		use->read_bytes += pace->read_s * cost_device_of(c, r->stage)->disk_rate;
		t = c->params.policy == COST_DEMAND ? take_on_demand(r, t, pace->read_s, pace->unit_s, use) :
							take_streamed(r, t, pace->read_s, pace->unit_s, use);
	}
	return t;
}

double cost_runner_visit(struct cost_runner *r, int32_t round, double start_s, const struct cost_batch *b, struct cost_use *use)
{
	const struct cluster_device *d = cost_device_of(r->c, r->stage);
	if (r->crew)
		return cost_group_visit(r, round, start_s, b, use);
	struct cost_round at = cost_round_begin(r->c, r->stage, &r->layout, round);
	struct cost_item item;
	double t = start_s + d->visit_s;
	*use = (struct cost_use){.busy_s = d->visit_s};
	cost_runner_begin(r, start_s);
	while (cost_round_next(&at, &item))
		t = cost_runner_layer(r, &at, &item, t, b, use);
	cost_runner_end(r, round, t);
	return t;
}

int32_t cost_runner_round(const struct cost_runner *r, int32_t layer_begin, int32_t layer_end)
{
	for (int32_t round = 0; round < r->c->plan->n_rounds; round++) {
		struct cost_round at = cost_round_begin(r->c, r->stage, &r->layout, round);
		if (at.layer == layer_begin && at.layer + at.n_left == layer_end)
			return round;
	}
	return -1;
}

double cost_head_s(const struct cost_case *c, int32_t n_rows)
{
	const struct cluster_device *d = &c->cluster->devices[c->plan->head];
	bool accel = c->plan->head_on_accel;
	double rate = accel ? d->accel_rate : cluster_cpu_rate(d, c->shape->type), flops = accel ? d->accel_flops : d->cpu_flops;
	double read_s = (double)c->shape->head_bytes / rate;
	double compute_s = flops > 0 ? n_rows * model_shape_head_flops(c->shape) / flops : n_rows * read_s;
	return n_rows > 1 && compute_s > read_s ? compute_s : read_s;
}

double cost_hop_s(const struct cost_case *c, int32_t from, int32_t to, int32_t n_tokens)
{
	double s;
	bool reached = cluster_hop(c->cluster, from, to, (double)c->shape->hop_bytes * n_tokens, &s);
	ASSERT(reached);
	return s;
}
