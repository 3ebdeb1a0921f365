// The file as a whole; its parts are scenario_model.c, scenario_machines.c and scenario_plan.c.
#include "sim/scenario.h"

#include "base/assert.h"
#include "base/fmath.h"
#include "sim/scenario_keys.h"

#include <string.h>

#define ARENA_BYTES (1024 * 1024)
#define DURATION_DEFAULT 3600.0
#define CTX_DEFAULT 4096
#define CTX_SIMULATED_MAX 65536 // a planner only counts its bytes: it may be what `hearth serve` takes
#define CHUNK_DEFAULT 512

struct raw_root {
	const struct toml_value *model, *network, *access_points, *devices, *links, *plan, *group, *serving, *requests,
		*published, *placement, *volunteers, *traffic;
	char name[NAME_CAP], about[SCENARIO_TEXT_CAP];
	uint64_t seed;
	double duration;
};

#define AT(field) offsetof(struct raw_root, field)

static const struct scenario_key root_keys[] = {
	{.name = "name", .kind = KEY_NAME, .offset = AT(name)},
	{.name = "about", .kind = KEY_TEXT, .offset = AT(about)},
	{.name = "seed", .kind = KEY_U64, .offset = AT(seed), .max = 9.3e18},
	{.name = "duration", .kind = KEY_QUANTITY, .quantity = QUANTITY_TIME, .offset = AT(duration), .min = 0.001, .max = 1e6},
	{.name = "model", .kind = KEY_VALUE, .offset = AT(model)},
	{.name = "network", .kind = KEY_VALUE, .offset = AT(network)},
	{.name = "access_point", .kind = KEY_VALUE, .offset = AT(access_points)},
	{.name = "device", .kind = KEY_VALUE, .offset = AT(devices)},
	{.name = "link", .kind = KEY_VALUE, .offset = AT(links)},
	{.name = "plan", .kind = KEY_VALUE, .offset = AT(plan)},
	{.name = "group", .kind = KEY_VALUE, .offset = AT(group)},
	{.name = "serving", .kind = KEY_VALUE, .offset = AT(serving)},
	{.name = "request", .kind = KEY_VALUE, .offset = AT(requests)},
	{.name = "published", .kind = KEY_VALUE, .offset = AT(published)},
	{.name = "placement", .kind = KEY_VALUE, .offset = AT(placement)},
	{.name = "volunteers", .kind = KEY_VALUE, .offset = AT(volunteers)},
	{.name = "traffic", .kind = KEY_VALUE, .offset = AT(traffic)},
};

static enum err read_serving(struct scenario_reader *r, const struct toml_value *table, int32_t ctx_max)
{
	const struct scenario_key keys[] = {
		{.name = "slots", .kind = KEY_INT, .offset = offsetof(struct scenario, n_slots), .min = 1, .max = SESSIONS_MAX},
		{.name = "ctx", .kind = KEY_INT, .offset = offsetof(struct scenario, ctx_len), .min = 2, .max = ctx_max},
		{.name = "chunk", .kind = KEY_INT, .offset = offsetof(struct scenario, chunk), .min = 1, .max = CHUNK_TOKENS_MAX},
	};
	r->subject = "serving";
	return table ? scenario_read_table(r, table, "serving", keys, ARRAY_LEN(keys), r->s, NULL) : OK;
}

struct raw_request {
	double at, every;
	int32_t prompt, predict, count;
};

static enum err read_request(struct scenario_reader *r, const struct toml_value *table)
{
	static const struct scenario_key keys[] = {
		{.name = "at",
			.kind = KEY_QUANTITY,
			.quantity = QUANTITY_TIME,
			.offset = offsetof(struct raw_request, at),
			.max = 1e6},
		{.name = "prompt",
			.kind = KEY_INT,
			.offset = offsetof(struct raw_request, prompt),
			.min = 1,
			.max = 65536,
			.is_required = true},
		{.name = "predict",
			.kind = KEY_INT,
			.offset = offsetof(struct raw_request, predict),
			.min = 1,
			.max = 65536,
			.is_required = true},
		{.name = "count",
			.kind = KEY_INT,
			.offset = offsetof(struct raw_request, count),
			.min = 1,
			.max = SCENARIO_REQUESTS_MAX},
		{.name = "every",
			.kind = KEY_QUANTITY,
			.quantity = QUANTITY_TIME,
			.offset = offsetof(struct raw_request, every),
			.max = 1e6},
	};
	struct scenario *s = r->s;
	struct raw_request raw = {.count = 1};
	r->subject = "request";
	enum err e = scenario_read_table(r, table, "request", keys, ARRAY_LEN(keys), &raw, NULL);
	if (e != OK)
		return e;
	if (raw.prompt + raw.predict > s->ctx_len)
		return scenario_fail(r, table, "request", "%d tokens of prompt and %d of answer are more than serving.ctx, %d",
			raw.prompt, raw.predict, s->ctx_len);
	if (s->n_requests + raw.count > SCENARIO_REQUESTS_MAX)
		return scenario_fail(r, table, "request", "more than %d requests", SCENARIO_REQUESTS_MAX);
	for (int32_t i = 0; i < raw.count; i++)
		s->requests[s->n_requests++] = (struct scenario_request){
			.at_s = raw.at + i * raw.every, .n_prompt = raw.prompt, .n_predict = raw.predict};
	return OK;
}

static enum err read_requests(struct scenario_reader *r, const struct toml_value *v)
{
	struct scenario *s = r->s;
	enum err e = v ? scenario_tables(r, v, "request", SCENARIO_REQUESTS_MAX) : OK;
	for (const struct toml_value *t = v && e == OK ? v->items.first : NULL; t && e == OK; t = t->next)
		e = read_request(r, t);
	if (s->n_requests == 0)
		s->requests[s->n_requests++] = (struct scenario_request){
			.n_prompt = s->ctx_len < 128 ? 1 : 32, .n_predict = s->ctx_len < 128 ? 1 : 64};
	s->params.kv_alloc = (uint64_t)s->n_slots * (uint64_t)s->ctx_len;
	s->params.kv_read = (uint64_t)(s->requests[0].n_prompt + s->requests[0].n_predict / 2);
	return e;
}

static enum err read_published(struct scenario_reader *r, const struct toml_value *table)
{
	static const struct scenario_key keys[] = {
		{.name = "tpot",
			.kind = KEY_QUANTITY,
			.quantity = QUANTITY_TIME,
			.offset = offsetof(struct scenario_published, tpot_s),
			.max = 1e6},
		{.name = "ttft",
			.kind = KEY_QUANTITY,
			.quantity = QUANTITY_TIME,
			.offset = offsetof(struct scenario_published, ttft_s),
			.max = 1e6},
		{.name = "exchange",
			.kind = KEY_QUANTITY,
			.quantity = QUANTITY_TIME,
			.offset = offsetof(struct scenario_published, exchange_s),
			.max = 1e6},
		{.name = "calibrates", .kind = KEY_BOOL, .offset = offsetof(struct scenario_published, calibrates)},
		{.name = "source", .kind = KEY_TEXT, .offset = offsetof(struct scenario_published, source), .is_required = true},
		{.name = "note", .kind = KEY_TEXT, .offset = offsetof(struct scenario_published, note)},
	};
	r->subject = "published";
	return table ? scenario_read_table(r, table, "published", keys, ARRAY_LEN(keys), &r->s->published, NULL) : OK;
}

// component_mean_ms is the mean of one component of a profile, in ms.
static double component_mean_ms(const struct profile_component *c)
{
	switch (c->shape) {
	case PROFILE_NONE:
		return 0;
	case PROFILE_LOGNORMAL:
		return c->a * fmath_expd(c->b * c->b / 2);
	case PROFILE_UNIFORM:
		return (c->a + c->b) / 2;
	case PROFILE_PARETO:
		return c->a + (c->a - c->a * fmath_expd((c->b - 1) * (fmath_logd(c->a) - fmath_logd(c->cap)))) / (c->b - 1);
	}
	return 0;
}

// A link in use does not sleep: the base stands in (sim/profiles.h). Scans and outages are left out.
static double profile_mean_s(const struct profile *p)
{
	double ms = (p->base.weight + p->sleep.weight) * component_mean_ms(&p->base) +
		p->middle.weight * component_mean_ms(&p->middle) + p->tail.weight * component_mean_ms(&p->tail);
	return ms / 2 / 1000;
}

double scenario_mean_delay_s(const struct scenario_delay *d)
{
	return d->fixed_s + (d->profile ? profile_mean_s(d->profile) : 0) + (d->trace ? d->trace->mean_rtt_ns / 2 / 1e9 : 0);
}

const struct scenario_link *scenario_link(const struct scenario *s, int32_t a, int32_t b)
{
	for (int32_t i = 0; i < s->n_links; i++)
		if ((s->links[i].a == a && s->links[i].b == b) || (s->links[i].a == b && s->links[i].b == a))
			return &s->links[i];
	return &s->default_link;
}

static double per_byte(double rate)
{
	return rate > 0 ? 1 / rate : 0;
}

static double leg_per_byte(const struct scenario *s, int32_t i)
{
	const struct scenario_station *st = &s->stations[i];
	return per_byte(st->access_point >= 0 ? s->access_points[st->access_point].rate : st->rate);
}

void scenario_means(const struct scenario *s, struct cluster_link *matrix)
{
	for (int32_t i = 0; i < s->n_devices; i++) {
		for (int32_t j = 0; j < s->n_devices; j++) {
			const struct scenario_link *l = scenario_link(s, i, j);
			double slow = leg_per_byte(s, i) + leg_per_byte(s, j) + per_byte(l->rate);
			matrix[i * s->n_devices + j] = (struct cluster_link){
				.delay_s = scenario_mean_delay_s(&s->stations[i].delay) +
					scenario_mean_delay_s(&s->stations[j].delay) + scenario_mean_delay_s(&l->delay),
				.rate = slow > 0 ? 1 / slow : CLUSTER_RATE_MAX,
			};
		}
	}
}

// What lies between any two is shared out in halves.
bool scenario_attach(const struct scenario *s, struct cluster_link *attach)
{
	double between_s = scenario_mean_delay_s(&s->default_link.delay), between = per_byte(s->default_link.rate);
	if (s->n_links > 0)
		return false;
	for (int32_t i = 0; i < s->n_devices; i++) {
		double slow = leg_per_byte(s, i) + between / 2;
		attach[i] = (struct cluster_link){.delay_s = scenario_mean_delay_s(&s->stations[i].delay) + between_s / 2,
			.rate = slow > 0 ? 1 / slow : CLUSTER_RATE_MAX};
	}
	return true;
}

const int32_t *scenario_airs(const struct scenario *s, int32_t *airs)
{
	for (int32_t i = 0; i < s->n_devices; i++)
		airs[i] = s->stations[i].access_point;
	return airs;
}

static enum err allocate(struct scenario *s, struct cluster_link **matrix, struct cluster_link **attach, struct errmsg *em)
{
	if (arena_open(ARENA_BYTES, &s->arena) != OK)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a scenario");
	s->devices = arena_alloc(&s->arena, SCENARIO_DEVICES_MAX, sizeof *s->devices);
	s->stations = arena_alloc(&s->arena, SCENARIO_DEVICES_MAX, sizeof *s->stations);
	s->links = arena_alloc(&s->arena, SCENARIO_LINKS_MAX, sizeof *s->links);
	s->requests = arena_alloc(&s->arena, SCENARIO_REQUESTS_MAX, sizeof *s->requests);
	s->derived = arena_alloc(&s->arena, SCENARIO_DERIVED_MAX, sizeof *s->derived);
	*matrix = arena_alloc(&s->arena, SCENARIO_DEVICES_MAX * SCENARIO_DEVICES_MAX, sizeof **matrix);
	*attach = arena_alloc(&s->arena, SCENARIO_DEVICES_MAX, sizeof **attach);
	s->airs = arena_alloc(&s->arena, SCENARIO_DEVICES_MAX, sizeof *s->airs);
	ASSERT(s->devices && s->stations && s->airs && s->links && s->requests && s->derived && *matrix && *attach);
	return OK;
}

// read_top reads the root's own keys; tables are left for their readers.
static enum err read_top(struct scenario_reader *r, const struct toml_value *root, struct raw_root *raw)
{
	struct scenario *s = r->s;
	s->n_slots = 1;
	s->ctx_len = CTX_DEFAULT;
	s->chunk = CHUNK_DEFAULT;
	r->subject = "scenario";
	enum err e = scenario_read_table(r, root, "scenario", root_keys, ARRAY_LEN(root_keys), raw, NULL);
	memcpy(s->name, raw->name, sizeof raw->name);
	memcpy(s->about, raw->about, sizeof raw->about);
	s->seed = raw->seed;
	s->duration_s = raw->duration;
	return e;
}

// want_keys looks for what a file cannot do without: the devices, and two more keys unless they are NULL.
static enum err want_keys(struct scenario_reader *r, const struct toml_value *root, const char *a, const char *b)
{
	const char *const names[] = {a, b, "device"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (names[i] && toml_find(root, names[i]) == NULL)
			return scenario_fail(r, root, "scenario", "%s is missing", names[i]);
	return OK;
}

static enum err read_root(struct scenario_reader *r, const struct toml_value *root, struct cluster_link *matrix)
{
	struct scenario *s = r->s;
	struct raw_root raw = {.duration = DURATION_DEFAULT, .seed = 1};
	enum err e = read_top(r, root, &raw);
	if (e == OK)
		e = want_keys(r, root, "name", "model");
	if (e == OK)
		e = scenario_read_model(r, raw.model);
	if (e == OK)
		e = scenario_read_machines(r, raw.access_points, raw.network, raw.devices, raw.links);
	if (e == OK)
		e = read_serving(r, raw.serving, CTX_SIMULATED_MAX);
	if (e == OK)
		e = read_requests(r, raw.requests);
	if (e == OK)
		e = read_published(r, raw.published);
	if (e == OK)
		e = scenario_read_swarm(r, raw.placement, raw.volunteers, raw.traffic);
	if (e != OK)
		return e;
	scenario_means(s, matrix);
	s->cluster = (struct cluster){.devices = s->devices, .n_devices = s->n_devices, .links = matrix};
	r->matrix = matrix;
	return scenario_read_plan(r, raw.plan, raw.group);
}

// read_cluster reads what a planner is given. Of [plan] the coordinator counts, of [serving] everything.
static enum err read_cluster(struct scenario_reader *r, const struct toml_value *root, struct cluster_link *matrix)
{
	struct scenario *s = r->s;
	struct raw_root raw = {.duration = DURATION_DEFAULT, .seed = 1};
	enum err e = read_top(r, root, &raw);
	if (e == OK)
		e = want_keys(r, root, NULL, NULL);
	if (e == OK && raw.placement)
		e = scenario_fail(r, raw.placement, "placement", "a swarm has no plan of its own: `hearth sim run` runs it");
	if (e == OK && raw.model)
		e = scenario_read_model(r, raw.model);
	if (e == OK)
		e = scenario_read_machines(r, raw.access_points, raw.network, raw.devices, raw.links);
	if (e == OK)
		e = read_serving(r, raw.serving, CTX_MAX);
	if (e != OK)
		return e;
	scenario_means(s, matrix);
	s->cluster = (struct cluster){.devices = s->devices, .n_devices = s->n_devices, .links = matrix, .airs = scenario_airs(s, s->airs)};
	r->matrix = matrix;
	e = scenario_read_coordinator(r, raw.plan);
	if (scenario_attach(s, r->attach)) {
		s->cluster.links = NULL;
		s->cluster.attach = r->attach;
	}
	struct errmsg why;
	if (e == OK && (e = cluster_check(&s->cluster, &why)) != OK)
		return errmsg_fail(r->em, e, "%.200s: %.290s", r->file, why.text);
	return e;
}

typedef enum err root_reader(struct scenario_reader *r, const struct toml_value *root, struct cluster_link *matrix);

static enum err open_with(root_reader *read, const char *name, const char *text, size_t len, const struct trace_loader *loader,
	struct scenario *out, struct errmsg *em)
{
	struct arena tree = {0};
	const struct toml_value *root;
	struct cluster_link *matrix = NULL, *attach = NULL;
	memset(out, 0, sizeof *out);
	out->traces.max = SCENARIO_TRACES_MAX;
	enum err e = arena_open(toml_arena_bytes(text, len), &tree);
	if (e != OK)
		return errmsg_fail(em, e, "%.200s: no memory for its text", name);
	e = toml_parse(name, text, len, &tree, &root, em);
	if (e == OK)
		e = allocate(out, &matrix, &attach, em);
	if (e == OK) {
		struct scenario_reader r = {.file = name, .em = em, .s = out,
			.traces = &out->traces, .loader = loader, .subject = "", .attach = attach};
		e = read(&r, root, matrix);
	}
	arena_close(&tree);
	if (e != OK)
		scenario_close(out);
	return e;
}

enum err scenario_open(const char *name, const char *text, size_t len, const struct trace_loader *loader, struct scenario *out,
	struct errmsg *em)
{
	return open_with(read_root, name, text, len, loader, out, em);
}

enum err scenario_open_cluster(const char *name, const char *text, size_t len, const struct trace_loader *loader, struct scenario *out,
	struct errmsg *em)
{
	return open_with(read_cluster, name, text, len, loader, out, em);
}

void scenario_close(struct scenario *s)
{
	trace_set_close(&s->traces);
	arena_close(&s->arena);
	memset(s, 0, sizeof *s);
}

struct cost_case scenario_case(const struct scenario *s)
{
	return (struct cost_case){.cluster = &s->cluster, .shape = &s->shape, .plan = &s->plan, .params = s->params};
}
