#include "base/device_profile.h"

#include <stddef.h>
#include <string.h>

static enum err outside(struct errmsg *em, const char *what)
{
	return errmsg_fail(em, ERR_RANGE, "%s", what);
}

static enum err check_rates(const struct device_profile *p, struct errmsg *em)
{
	if (p->n_rates < 0 || p->n_rates > PROFILE_RATES_MAX)
		return outside(em, "rates: too many");
	for (int32_t i = 0; i < p->n_rates; i++) {
		const struct device_rate *r = &p->rates[i];
		if (dtype_find((uint32_t)r->type) == NULL)
			return outside(em, "rate of an unknown type");
		if (r->decode_bps > PROFILE_RATE_MAX || r->prefill_flops > PROFILE_RATE_MAX)
			return outside(em, "rate");
		if (device_profile_find(p, r->type) != r)
			return outside(em, "two rates of one type");
	}
	return OK;
}

static enum err check_conditions(const struct device_conditions *c, struct errmsg *em)
{
	bool is_clean = (c->has & ~(uint32_t)PROFILE_CONDITIONS) == 0 && ((c->has & PROFILE_HAS_BATTERY) != 0 || (!c->on_battery && c->battery_percent == 0)) &&
		((c->has & PROFILE_HAS_HEAT) != 0 || c->heat_mc == 0) && ((c->has & PROFILE_HAS_LOAD) != 0 || c->load_milli == 0) &&
		((c->has & PROFILE_HAS_PRESSURE) != 0 || (c->cpu_pressure == 0 && c->memory_pressure == 0));
	if (!is_clean)
		return outside(em, "conditions");
	if (c->battery_percent > 100)
		return outside(em, "battery_percent");
	if (c->heat_mc > PROFILE_HEAT_MAX)
		return outside(em, "heat");
	if (c->load_milli > PROFILE_LOAD_MAX)
		return outside(em, "load");
	return c->cpu_pressure <= 10000 && c->memory_pressure <= 10000 ? OK : outside(em, "pressure");
}

enum err device_profile_check(const struct device_profile *p, struct errmsg *em)
{
	const uint64_t bytes[] = {p->memory_bytes, p->available_bytes, p->cap_bytes, p->reserved_bytes};
	if (memchr(p->cpu, '\0', sizeof p->cpu) == NULL)
		return outside(em, "cpu");
	if (p->n_threads > THREADS_MAX || p->n_threads_best > THREADS_MAX || p->n_cpus > 4096)
		return outside(em, "n_threads");
	if (p->visit_ns > PROFILE_VISIT_NS_MAX)
		return outside(em, "visit_ns");
	for (size_t i = 0; i < ARRAY_LEN(bytes); i++)
		if (bytes[i] > PROFILE_BYTES_MAX)
			return outside(em, "memory");
	if (p->disk_mmap_bps > PROFILE_RATE_MAX || p->disk_direct_bps > PROFILE_RATE_MAX)
		return outside(em, "disk rate");
	if (p->reader > 2)
		return outside(em, "reader");
	enum err e = check_rates(p, em);
	return e == OK ? check_conditions(&p->at, em) : e;
}

const struct device_rate *device_profile_find(const struct device_profile *p, enum dtype type)
{
	for (int32_t i = 0; i < p->n_rates; i++)
		if (p->rates[i].type == type)
			return &p->rates[i];
	return NULL;
}

bool device_profile_reads_direct(const struct device_profile *p)
{
	return p->reader == 2 || (p->reader == 0 && p->disk_direct_bps > p->disk_mmap_bps);
}

uint64_t device_profile_disk_bps(const struct device_profile *p)
{
	return device_profile_reads_direct(p) ? p->disk_direct_bps : p->disk_mmap_bps;
}
