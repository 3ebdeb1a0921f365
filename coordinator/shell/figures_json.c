#include "coordinator/shell/figures_json.h"

static json_t *whole(uint64_t v)
{
	return json_integer((json_int_t)v);
}

static json_t *rates(const struct device_profile *p)
{
	json_t *all = json_array();
	for (int32_t i = 0; i < p->n_rates; i++)
		json_array_append_new(all, json_pack("{s:s, s:o, s:o}", "type", dtype_find((uint32_t)p->rates[i].type)->name, "decode_bytes_per_s",
			whole(p->rates[i].decode_bps), "prefill_flop_per_s", whole(p->rates[i].prefill_flops)));
	return all;
}

void figures_json_add_conditions(json_t *o, const struct device_conditions *c)
{
	if (c->has & PROFILE_HAS_BATTERY)
		json_object_set_new(o, "on_battery", json_boolean(c->on_battery));
	if (c->on_battery)
		json_object_set_new(o, "battery_percent", json_integer(c->battery_percent));
	if (c->has & PROFILE_HAS_HEAT)
		json_object_set_new(o, "heat_celsius", json_real(c->heat_mc / 1e3));
	if (c->has & PROFILE_HAS_LOAD)
		json_object_set_new(o, "load", json_real(c->load_milli / 1e3));
	if (c->has & PROFILE_HAS_PRESSURE)
		json_object_update_new(o, json_pack("{s:f, s:f}", "cpu_pressure_percent", c->cpu_pressure / 1e2, "memory_pressure_percent", c->memory_pressure / 1e2));
}

json_t *figures_json_profile(const struct device_profile *p)
{
	return json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "cpu", p->cpu, "threads", (int)p->n_threads, "cpus", (int)p->n_cpus, "rates",
		rates(p), "visit_ns", whole(p->visit_ns), "memory_bytes", whole(p->memory_bytes), "memory_available_bytes", whole(p->available_bytes),
		"memory_cap_bytes", whole(p->cap_bytes), "memory_reserved_bytes", whole(p->reserved_bytes), "disk_mmap_bytes_per_s", whole(p->disk_mmap_bps),
		"disk_direct_bytes_per_s", whole(p->disk_direct_bps));
}

// link_json: round trips in milliseconds; a rate that is only known to be at least something is that.
static json_t *link_json(const struct link_figures *f)
{
	json_t *o = json_pack("{s:I, s:f, s:f, s:f, s:f}", "n", (json_int_t)f->n, "rtt_ms_p50", f->p50_us / 1e3, "rtt_ms_p90", f->p90_us / 1e3, "rtt_ms_p99",
		f->p99_us / 1e3, "one_way_ms_mean", f->mean_us / 2e3);
	if (o != NULL && f->rate_bps > 0)
		json_object_set_new(o, "bytes_per_s", whole(f->rate_bps));
	else if (o != NULL && f->rate_least_bps > 0)
		json_object_set_new(o, "bytes_per_s_least", whole(f->rate_least_bps));
	return o;
}

void figures_json_add(json_t *o, const struct coord_member_status *m)
{
	const struct {
		const char *name;
		const struct link_figures *f;
	} links[] = {{"to", &m->to_node}, {"from", &m->from_node}, {"next", &m->next_link_figures}};
	json_t *all = json_object();
	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		if (links[i].f->n > 0)
			json_object_set_new(all, links[i].name, link_json(links[i].f));
	if (json_object_size(all) > 0)
		json_object_set(o, "links", all);
	json_decref(all);
	if (m->decode_bps > 0 || m->prefill_flops > 0)
		json_object_set_new(o, "observed", json_pack("{s:f, s:f}", "decode_bytes_per_s", m->decode_bps, "prefill_flop_per_s", m->prefill_flops));
	if (m->profile.n_threads > 0) {
		json_t *p = figures_json_profile(&m->profile);
		figures_json_add_conditions(p, &m->profile.at);
		json_object_set_new(o, "profile", p);
	}
}
