// [placement], [volunteers] and [traffic]: a swarm.
#include "sim/scenario_keys.h"

#define AT(field) offsetof(struct scenario_swarm, field)

// read_by_device reads { device = number, ... } into one number for each device.
static enum err read_by_device(struct scenario_reader *r, const struct toml_value *table, const char *where, int32_t max, int32_t *out)
{
	if (table->type != TOML_TABLE || table->items.n == 0)
		return scenario_fail(r, table, where, "want devices with a number each: { pc = 3, laptop = 2 }");
	for (const struct toml_value *v = table->items.first; v != NULL; v = v->next) {
		int32_t device = 0;
		enum err e = scenario_find_device(r, v, where, v->key, &device);
		if (e != OK)
			return e;
		if (v->type != TOML_INT || v->i < 1 || v->i > max)
			return scenario_fail(r, v, where, "%s: want 1 to %d", r->s->devices[device].name, max);
		out[device] = (int32_t)v->i;
	}
	return OK;
}

static enum err read_placement(struct scenario_reader *r, const struct toml_value *table)
{
	struct raw {
		int32_t chains, members;
		const struct toml_value *of, *hold;
	} raw;
	static const struct scenario_key keys[] = {
		{.name = "chains", .kind = KEY_INT, .offset = offsetof(struct raw, chains), .min = 1, .max = CHAINS_MAX, .is_required = true},
		{.name = "members", .kind = KEY_INT, .offset = offsetof(struct raw, members), .min = 1, .max = SWARM_NODES_MAX, .is_required = true},
		{.name = "of", .kind = KEY_VALUE, .offset = offsetof(struct raw, of), .is_required = true},
		{.name = "hold", .kind = KEY_VALUE, .offset = offsetof(struct raw, hold), .is_required = true},
	};
	struct scenario_swarm *w = &r->s->swarm;
	r->subject = "placement";
	enum err e = scenario_read_table(r, table, "placement", keys, ARRAY_LEN(keys), &raw, NULL);
	if (e == OK)
		e = read_by_device(r, raw.of, "placement.of", 1000, w->share);
	if (e == OK)
		e = read_by_device(r, raw.hold, "placement.hold", r->s->shape.n_layers, w->hold);
	for (int32_t i = 0; i < r->s->n_devices && e == OK; i++) {
		if (w->share[i] > 0 && w->hold[i] == 0)
			e = scenario_fail(r, raw.hold, "placement.hold", "%s is missing: how many layers has it room for?", r->s->devices[i].name);
		else if (w->share[i] > 0 && (r->s->stations[i].access_point >= 0 || r->s->stations[i].delay.fixed_s > 0))
			e = scenario_fail(r, table, "placement", "%s: volunteers share no access point, and a fixed delay is that of [network]", r->s->devices[i].name);
	}
	w->n_chains = raw.chains;
	w->n_members = raw.members;
	return e;
}

enum err scenario_read_swarm(struct scenario_reader *r, const struct toml_value *placement, const struct toml_value *volunteers,
	const struct toml_value *traffic)
{
	static const struct scenario_key volunteer_keys[] = {
		{.name = "stay", .kind = KEY_QUANTITY, .quantity = QUANTITY_TIME, .offset = AT(stay_s), .min = 1, .max = 1e7, .is_required = true},
		{.name = "away", .kind = KEY_QUANTITY, .quantity = QUANTITY_TIME, .offset = AT(away_s), .min = 1, .max = 1e7, .is_required = true},
		{.name = "orderly", .kind = KEY_NUMBER, .offset = AT(orderly), .max = 1},
	};
	static const struct scenario_key traffic_keys[] = {
		{.name = "every", .kind = KEY_QUANTITY, .quantity = QUANTITY_TIME, .offset = AT(every_s), .min = 0.001, .max = 1e6, .is_required = true},
		{.name = "prompt", .kind = KEY_INT, .offset = AT(n_prompt), .min = 1, .max = 65536, .is_required = true},
		{.name = "predict", .kind = KEY_INT, .offset = AT(n_predict), .min = 1, .max = 65536, .is_required = true},
	};
	struct scenario_swarm *w = &r->s->swarm;
	const struct toml_value *alone = volunteers ? volunteers : traffic;
	if (placement == NULL)
		return alone ? scenario_fail(r, alone, "scenario", "volunteers and traffic belong to a placement, which is missing") : OK;
	if (traffic == NULL)
		return scenario_fail(r, placement, "placement", "[traffic] is missing");
	enum err e = read_placement(r, placement);
	r->subject = "volunteers";
	if (e == OK && volunteers != NULL)
		e = scenario_read_table(r, volunteers, "volunteers", volunteer_keys, ARRAY_LEN(volunteer_keys), w, NULL);
	r->subject = "traffic";
	if (e == OK)
		e = scenario_read_table(r, traffic, "traffic", traffic_keys, ARRAY_LEN(traffic_keys), w, NULL);
	if (e == OK && w->n_prompt + w->n_predict > r->s->ctx_len)
		return scenario_fail(r, traffic, "traffic", "%d tokens of prompt and %d of answer are more than serving.ctx, %d", w->n_prompt, w->n_predict,
			r->s->ctx_len);
	return e;
}
