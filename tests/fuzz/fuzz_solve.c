// Any figures as machines, links, a model and wants: a plan that passes the cost model's check and keeps the wants, above its bound; or an
// error with words. Never a crash, never long.
//
// Input: bytes are taken in the order of the struct below; numbers are either small ones that make sense together, or any 64 bits.
#include "partition/solve.h"

#include "tests/support/fuzz.h"

#include <stdio.h>

#define DEVICES_MAX 4
#define LAYERS 6

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct world {
	struct cluster_device devices[DEVICES_MAX];
	struct cluster_link links[DEVICES_MAX * DEVICES_MAX];
	uint64_t bytes_of_layer[LAYERS];
	struct solve_limit limits[DEVICES_MAX];
	struct solve_device_fate fates[DEVICES_MAX];
	int32_t order[DEVICES_MAX];
	struct cost_plan incumbent;
	struct cluster cluster;
	struct model_shape shape;
	struct solve_want want;
};

static uint64_t take_u64(struct reader *r)
{
	uint64_t v = 0;
	for (int i = 0; i < 8; i++)
		v = v << 8 | reader_u8(r);
	return v;
}

// take_number is `unit` times a small number, or any double at all.
static double take_number(struct reader *r, double unit)
{
	uint8_t b = reader_u8(r);
	double v;
	if (b < 255)
		return b * unit;
	uint64_t bits = take_u64(r);
	memcpy(&v, &bits, sizeof v);
	return v;
}

static uint64_t take_bytes(struct reader *r, uint64_t unit)
{
	uint8_t b = reader_u8(r);
	return b < 255 ? b * unit : take_u64(r);
}

static int32_t take_small(struct reader *r, int32_t most)
{
	uint8_t b = reader_u8(r);
	return b < 255 ? b % (most + 1) : (int32_t)(uint32_t)take_u64(r);
}

static void take_device(struct reader *r, struct cluster_device *d, int32_t i)
{
	snprintf(d->name, sizeof d->name, "m%d", i);
	d->cap_bytes = take_bytes(r, 100);
	d->reserved_bytes = reader_u8(r) & 1 ? take_bytes(r, 10) : 0;
	d->cpu_rate = take_number(r, 100);
	d->accel_bytes = reader_u8(r) & 1 ? take_bytes(r, 100) : 0;
	d->accel_rate = d->accel_bytes > 0 ? take_number(r, 1000) : 0;
	d->disk_rate = take_number(r, 50);
	d->visit_s = take_number(r, 0.001);
}

static void take_world(struct reader *r, struct world *w)
{
	int32_t n = 1 + reader_u8(r) % DEVICES_MAX, flags = reader_u8(r);
	for (int32_t i = 0; i < n; i++) {
		take_device(r, &w->devices[i], i);
		w->limits[i] = (struct solve_limit){.layers_min = flags & 1 ? take_small(r, 2) : 0,
			.layers_max = flags & 2 ? take_small(r, LAYERS) : LAYERS_MAX,
			.is_trusted = !(flags & 4) || (reader_u8(r) & 1)};
		w->order[i] = flags & 8 ? take_small(r, n - 1) : i;
	}
	for (int32_t i = 0; i < n * (flags & 16 ? n : 1); i++)
		w->links[i] = (struct cluster_link){
			.delay_s = take_number(r, 0.001), .rate = take_number(r, 10000), .software_s = take_number(r, 0.0001)};
	w->cluster = (struct cluster){.devices = w->devices, .n_devices = n};
	w->cluster.links = flags & 16 ? w->links : NULL;
	w->cluster.attach = flags & 16 ? NULL : w->links;
	w->shape = (struct model_shape){.n_layers = 1 + reader_u8(r) % LAYERS,
		.layer_bytes = take_bytes(r, 50),
		.kv_bytes = take_bytes(r, 1),
		.head_bytes = take_bytes(r, 20),
		.hop_bytes = take_bytes(r, 4)};
	if (w->shape.kv_bytes % 2 != 0) { // experts
		w->shape.split.n_experts = 1 + (int32_t)(w->shape.kv_bytes % 128);
		w->shape.n_experts_used = 1 + (int32_t)(w->shape.kv_bytes % 7) % w->shape.split.n_experts;
		w->shape.expert_share = (double)(w->shape.head_bytes % 101) / 100;
	}
	for (int32_t i = 0; i < LAYERS; i++)
		w->bytes_of_layer[i] = flags & 32 ? take_bytes(r, 50) : w->shape.layer_bytes;
	if (flags & 32)
		w->shape.bytes_of_layer = w->bytes_of_layer;
}

// take_split allows groups, of a model whose dimensions fit each other.
static void take_split(struct reader *r, struct world *w)
{
	static const int32_t blocks[] = {1, 32, 256};
	int32_t kv = reader_u8(r) % 9 + 1;
	w->want.allow_groups = true;
	w->shape.split = (struct split_shape){.n_heads = kv * (reader_u8(r) % 5 + 1),
		.n_kv_heads = kv,
		.head_dim = 32 * (reader_u8(r) % 4 + 1),
		.hidden_dim = 32 * (reader_u8(r) % 41 + 1),
		.ffn_dim = 256 * (reader_u8(r) % 41 + 1),
		.n_experts = reader_u8(r) & 1 ? reader_u8(r) % 10 : 0,
		.o_block = blocks[reader_u8(r) % 3],
		.down_block = blocks[reader_u8(r) % 3]};
	struct split_shape *s = &w->shape.split;
	s->o_lanes = s->n_experts > 0 || s->o_block == 1 ? 0 : s->o_block == 256 ? 4 : 8;
	s->down_lanes = s->n_experts > 0 ? 0 : s->down_block == 1 ? 32 : s->down_block == 256 ? 4 : 8;
	w->shape.n_experts_used = s->n_experts > 0;
}

static void take_want(struct reader *r, struct world *w)
{
	int32_t flags = reader_u8(r);
	w->want = (struct solve_want){.cluster = &w->cluster, .shape = &w->shape, .head = take_small(r, w->cluster.n_devices - 1)};
	w->want.params = (struct cost_params){.units_per_layer = 1 + reader_u8(r) % 3, .kv_alloc = take_bytes(r, 1), .kv_read = take_bytes(r, 1)};
	w->want.params.policy = flags & 1 ? COST_LRU : COST_WINDOW;
	w->want.devices_max = take_small(r, 4);
	w->want.rounds_min = take_small(r, 3);
	w->want.rounds_max = take_small(r, 4);
	w->want.head_layers = take_small(r, 2);
	w->want.limits = flags & 2 ? w->limits : NULL;
	w->want.order = flags & 4 ? w->order : NULL;
	w->want.n_order = w->cluster.n_devices;
	if (flags & 8)
		w->want.goal = (struct solve_goal){take_number(r, 1), take_number(r, 1), take_number(r, 1), take_small(r, 9), take_small(r, 99),
			take_small(r, 99)};
	if (flags & 32)
		take_split(r, w);
	if (!(flags & 16))
		return;
	struct cost_plan *p = &w->incumbent;
	*p = (struct cost_plan){.head = take_small(r, 3), .head_on_accel = reader_u8(r) & 1, .n_rounds = take_small(r, 3), .n_stages = take_small(r, 4)};
	for (int32_t i = 0; i < 4; i++)
		p->stages[i] = (struct cost_stage){take_small(r, 3), take_small(r, 6), take_small(r, 20) - 1};
	w->want.incumbent = p;
}

// take_ways lets the first device pass on between some others, or whoever a hostile cluster says.
static void take_ways(struct reader *r, struct world *w)
{
	int32_t n = w->cluster.n_devices;
	for (int32_t i = 0; w->cluster.links != NULL && i < n * n; i++) {
		uint8_t how = reader_u8(r);
		if ((how & 1) && i / n > 0 && i % n > 0)
			w->links[i] = cluster_link_via(&w->links[i / n * n], &w->links[i % n], 0);
		if ((how & 7) == 6)
			w->links[i].via = (how >> 3) - 8;
	}
}

static int32_t layers_on(const struct cost_plan *p, int32_t device)
{
	int32_t n = 0;
	for (int32_t i = 0; i < p->n_stages; i++) {
		const struct cost_group *g = cost_group_of(p, i);
		n += p->stages[i].device == device || (g && group_has(g, device)) ? p->stages[i].n_layers : 0;
	}
	return n;
}

// require_order: the ring's devices are some of those of the order, and come in it.
static void require_order(const struct solve_want *want, const struct cost_plan *p)
{
	int32_t at = 0;
	for (int32_t i = 0; i < p->n_stages; i++) {
		while (at < want->n_order && want->order[at] != p->stages[i].device)
			at++;
		require(at < want->n_order);
	}
}

static void require_kept(const struct world *w, const struct solve_result *out)
{
	const struct solve_want *want = &w->want;
	const struct cost_plan *p = &out->plan;
	struct cost_case c = {.cluster = &w->cluster, .shape = &w->shape, .plan = p, .params = want->params};
	require(cost_check(&c, NULL) == OK);
	require((out->value >= out->bound || p->n_groups > 0) && out->bound >= 0);
	require(p->n_groups == 0 || (want->allow_groups && out->value < out->groups.plain_s));
	int32_t n_holders = p->n_stages;
	for (int32_t i = 0; i < p->n_groups; i++)
		n_holders += p->groups[i].n_members - 1;
	require(out->incumbent_s < 0 || out->value <= out->incumbent_s);
	require(out->single < 0 || out->value <= out->single_s * (1 + 1e-9)); // of plans as fast the smaller one is taken
	require(want->devices_max == 0 || n_holders <= want->devices_max);
	require(p->n_stages == 1 ? p->n_rounds == 1 : p->n_rounds >= want->rounds_min);
	require(want->rounds_max == 0 || p->n_rounds <= want->rounds_max);
	if (want->order)
		require_order(want, p);
	for (int32_t d = 0; d < w->cluster.n_devices; d++) {
		int32_t l = layers_on(p, d);
		require((l > 0) == (out->fates[d].fate == SOLVE_USED));
		require(want->limits == NULL || (l >= want->limits[d].layers_min && l <= want->limits[d].layers_max));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world w;
	struct reader r;
	struct solve_result out = {.fates = w.fates};
	struct errmsg em = {""};
	struct arena a;
	r = reader_init(data, size);
	memset(&w, 0, sizeof w);
	take_world(&r, &w);
	take_want(&r, &w);
	take_ways(&r, &w);
	size_t bytes = solve_scratch_bytes(&w.want);
	require(arena_open(bytes > 0 ? bytes : 1, &a) == OK);
	enum err e = solve(&w.want, &a, &out, &em);
	require(a.used == 0);
	require(bytes > 0 || e != OK);
	require(e == OK || em.text[0] != '\0');
	require(e != ERR_NOMEM);
	if (e == OK)
		require_kept(&w, &out);
	arena_close(&a);
	return 0;
}
