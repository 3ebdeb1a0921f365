// [plan] and [group]: who holds what.
#include "sim/scenario_keys.h"

#include "base/printable.h"

#include <string.h>

static const char *const policy_words[] = {"window", "lru", "demand", "lru_ahead", NULL}; // enum cost_policy
static const char *const exchange_words[] = {
	"none", "pair", "star", "tree", "ring", "direct", "broadcast", NULL}; // enum scenario_exchange

struct raw_plan {
	char coordinator[NAME_CAP];
	bool coordinator_only, head_on_accelerator;
	int32_t rounds, units;
	int policy;
	const struct toml_value *layers, *streamed;
};

#define AT(field) offsetof(struct raw_plan, field)

static const struct scenario_key plan_keys[] = {
	{.name = "coordinator", .kind = KEY_NAME, .offset = AT(coordinator)},
	{.name = "coordinator_only", .kind = KEY_BOOL, .offset = AT(coordinator_only)},
	{.name = "head_on_accelerator", .kind = KEY_BOOL, .offset = AT(head_on_accelerator)},
	{.name = "rounds", .kind = KEY_INT, .offset = AT(rounds), .min = 1, .max = COST_ROUNDS_MAX},
	{.name = "units", .kind = KEY_INT, .offset = AT(units), .min = 1, .max = COST_UNITS_MAX},
	{.name = "policy", .kind = KEY_WORD, .offset = AT(policy), .choices = policy_words},
	{.name = "layers", .kind = KEY_VALUE, .offset = AT(layers)},
	{.name = "streamed", .kind = KEY_VALUE, .offset = AT(streamed)},
};

const char *scenario_exchange_name(enum scenario_exchange e)
{
	return exchange_words[e];
}

static void add_stage(struct cost_plan *p, int32_t device, int32_t n_layers)
{
	p->stages[p->n_stages++] = (struct cost_stage){.device = device, .n_layers = n_layers, .n_streamed = COST_STREAM_LEAST};
}

static void split_evenly(struct scenario *s, bool without_head)
{
	struct cost_plan *p = &s->plan;
	int32_t n = s->n_devices - without_head, L = s->shape.n_layers, left = n < L ? n : L, at = 0;
	int32_t share = L / left, rest = L % left;
	s->is_even = true;
	if (!without_head)
		add_stage(p, p->head, share + (at++ < rest));
	for (int32_t i = 0; i < s->n_devices && p->n_stages < left; i++)
		if (i != p->head)
			add_stage(p, i, share + (at++ < rest));
}

static enum err read_layers(struct scenario_reader *r, const struct toml_value *table, bool without_head)
{
	struct cost_plan *p = &r->s->plan;
	enum err e = OK;
	if (table->type != TOML_TABLE || table->items.n == 0 || table->items.n > STAGES_MAX)
		return scenario_fail(r, table, "plan.layers",
			"want 1 to %d devices with their layers, in the ring's order: { a = 10, b = 12 }", STAGES_MAX);
	for (const struct toml_value *v = table->items.first; v && e == OK; v = v->next) {
		int32_t device = 0;
		e = scenario_find_device(r, v, "plan.layers", v->key, &device);
		if (e != OK)
			break;
		if (v->type != TOML_INT || v->i < 1 || v->i > LAYERS_MAX)
			e = scenario_fail(r, v, "plan.layers", "%s: want 1 to %d layers", r->s->devices[device].name, LAYERS_MAX);
		else if (device == p->head && (without_head || p->n_stages > 0))
			e = scenario_fail(r, v, "plan.layers",
				without_head ? "%s is coordinator_only, and has layers"
					     : "%s is the coordinator: it comes first in the ring",
				r->s->devices[device].name);
		else
			add_stage(p, device, (int32_t)v->i);
	}
	return e;
}

static enum err read_streamed(struct scenario_reader *r, const struct toml_value *table)
{
	struct cost_plan *p = &r->s->plan;
	if (table->type != TOML_TABLE)
		return scenario_fail(r, table, "plan.streamed", "want devices with their streamed units: { a = 10 }");
	for (const struct toml_value *v = table->items.first; v; v = v->next) {
		int32_t device, i = 0;
		enum err e = scenario_find_device(r, v, "plan.streamed", v->key, &device);
		if (e != OK)
			return e;
		while (i < p->n_stages && p->stages[i].device != device)
			i++;
		if (i == p->n_stages)
			return scenario_fail(r, v, "plan.streamed", "%s has no layers", r->s->devices[device].name);
		if (v->type != TOML_INT || v->i < 0 || v->i > LAYERS_MAX * COST_UNITS_MAX)
			return scenario_fail(r, v, "plan.streamed", "%s: want 0 to %d units", r->s->devices[device].name,
				LAYERS_MAX * COST_UNITS_MAX);
		p->stages[i].n_streamed = (int32_t)v->i;
	}
	return OK;
}

// A coordinator by name; its text is what KEY_NAME copied.
static enum err find_head(struct scenario_reader *r, const struct toml_value *at, const char *name)
{
	return name[0] ? scenario_find_device(r, at, "plan.coordinator", (struct toml_text){name, strlen(name)}, &r->s->plan.head)
		       : OK;
}

// relay_means: what goes between two machines that do not reach each other passes the coordinator.
static enum err relay_means(struct scenario_reader *r, bool is_group)
{
	struct scenario *s = r->s;
	int32_t n = s->n_devices, h = s->plan.head;
	for (int32_t i = 0; i < s->n_links; i++) {
		int32_t a = s->links[i].a, b = s->links[i].b;
		if (!s->links[i].is_cut)
			continue;
		if (a == h || b == h || is_group)
			return errmsg_fail(r->em, ERR_FORMAT, "%.200s: link.cut: %s and %s: nobody relays %s", r->file, s->devices[a].name,
				s->devices[b].name, is_group ? "the exchanges of a group" : "what goes to the coordinator");
		r->matrix[a * n + b] = r->matrix[b * n + a] = cluster_link_via(&r->matrix[a * n + h], &r->matrix[h * n + b], h);
	}
	return OK;
}

// reach_head: as relay_means, but whom nobody relays has no link.
static void reach_head(struct scenario *s, struct cluster_link *matrix)
{
	int32_t n = s->n_devices, h = s->plan.head;
	for (int32_t i = 0; i < s->n_links; i++)
		if (s->links[i].is_cut && (s->links[i].a == h || s->links[i].b == h))
			matrix[s->links[i].a * n + s->links[i].b].rate = matrix[s->links[i].b * n + s->links[i].a].rate = 0;
	for (int32_t i = 0; i < s->n_links; i++) {
		int32_t a = s->links[i].a, b = s->links[i].b;
		if (s->links[i].is_cut && a != h && b != h)
			matrix[a * n + b] = matrix[b * n + a] = cluster_link_via(&matrix[a * n + h], &matrix[h * n + b], h);
	}
}

enum err scenario_read_coordinator(struct scenario_reader *r, const struct toml_value *plan)
{
	struct raw_plan raw = {.rounds = 1, .units = COST_UNITS_DEFAULT};
	r->subject = "plan";
	enum err e = plan ? scenario_read_table(r, plan, "plan", plan_keys, ARRAY_LEN(plan_keys), &raw, NULL) : OK;
	if (e == OK && plan)
		e = find_head(r, plan, raw.coordinator);
	r->s->params.units_per_layer = raw.units;
	r->s->head_holds_none = raw.coordinator_only;
	if (e == OK)
		reach_head(r->s, r->matrix);
	return e;
}

static enum err check_case(struct scenario_reader *r, bool streams_given)
{
	struct cost_case c = scenario_case(r->s);
	struct errmsg why;
	enum err e = cluster_check(c.cluster, &why);
	if (e == OK)
		e = model_shape_check(c.shape, &why);
	if (e == OK && r->s->group.exchange == EXCHANGE_NONE)
		e = streams_given ? cost_check(&c, &why) : cost_choose_streams(&c, &r->s->plan, &why);
	return e == OK ? OK : errmsg_fail(r->em, e, "%.200s: %.290s", r->file, why.text);
}

static enum err read_group(struct scenario_reader *r, const struct toml_value *table)
{
	static const struct scenario_key keys[] = {
		{.name = "exchange",
			.kind = KEY_WORD,
			.offset = offsetof(struct scenario_group, exchange),
			.choices = exchange_words,
			.is_required = true},
		{.name = "per_layer", .kind = KEY_INT, .offset = offsetof(struct scenario_group, per_layer), .min = 1, .max = 64},
		{.name = "bytes",
			.kind = KEY_QUANTITY,
			.quantity = QUANTITY_BYTES,
			.offset = offsetof(struct scenario_group, bytes),
			.max = 1e9},
		{.name = "software",
			.kind = KEY_QUANTITY,
			.quantity = QUANTITY_TIME,
			.offset = offsetof(struct scenario_group, software_s),
			.max = 60},
		{.name = "streamed", .kind = KEY_NUMBER, .offset = offsetof(struct scenario_group, streamed), .max = 1},
	};
	struct scenario_group *g = &r->s->group;
	g->per_layer = 2;
	g->bytes = (double)r->s->shape.hop_bytes;
	r->subject = "group";
	enum err e = scenario_read_table(r, table, "group", keys, ARRAY_LEN(keys), g, NULL);
	if (e == OK && g->exchange == EXCHANGE_PAIR && r->s->n_devices != 2)
		return scenario_fail(r, table, "group", "%d devices, and a pair has two", r->s->n_devices);
	if (e == OK && r->s->n_devices < 2)
		return scenario_fail(r, table, "group", "one device is no group");
	return e;
}

// rounds_of: as the program has them (partition/plan.h). One machine waits for nobody, and no round is without a layer.
static int32_t rounds_of(const struct cost_plan *p, int32_t wanted)
{
	int32_t most = 1;
	for (int32_t i = 0; i < p->n_stages; i++)
		most = p->stages[i].n_layers > most ? p->stages[i].n_layers : most;
	return p->n_stages == 1 ? 1 : wanted < most ? wanted : most;
}

enum err scenario_read_plan(struct scenario_reader *r, const struct toml_value *plan, const struct toml_value *group)
{
	struct scenario *s = r->s;
	struct raw_plan raw = {.rounds = 1, .units = COST_UNITS_DEFAULT};
	enum err e = OK;
	r->subject = "plan";
	if (plan)
		e = scenario_read_table(r, plan, "plan", plan_keys, ARRAY_LEN(plan_keys), &raw, NULL);
	if (e == OK && plan)
		e = find_head(r, plan, raw.coordinator);
	if (e != OK)
		return e;
	if (s->swarm.n_chains > 0)
		return OK; // its placement says who holds what
	if (raw.coordinator_only && s->n_devices == 1)
		return scenario_fail(r, plan, "plan", "the only device is coordinator_only: nobody is left to hold the layers");
	s->plan.head_on_accel = raw.head_on_accelerator;
	s->params.units_per_layer = raw.units;
	s->params.policy = (enum cost_policy)raw.policy;
	if (raw.layers)
		e = read_layers(r, raw.layers, raw.coordinator_only);
	else
		split_evenly(s, raw.coordinator_only);
	if (e == OK)
		s->plan.n_rounds = rounds_of(&s->plan, raw.rounds);
	if (e == OK && raw.streamed)
		e = read_streamed(r, raw.streamed);
	if (e == OK && group)
		e = read_group(r, group);
	if (e == OK)
		e = relay_means(r, group != NULL);
	return e == OK ? check_case(r, raw.streamed != NULL) : e;
}
