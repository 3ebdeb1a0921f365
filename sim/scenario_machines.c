// [[access_point]], [network], [[device]], [[link]]: machines and what lies between them.
#include "sim/scenario_keys.h"

#include "base/printable.h"

#include <stdio.h>
#include <string.h>

#define RATE_MIN 125.0 // bytes/s: the network's 1,000 bit/s
#define RATE_MAX 1.3e11
#define DELAY_MAX_S 3600

struct raw_delay {
	double delay;
	char profile[NAME_CAP];
	const struct toml_value *trace;
	double offset;
};

#define DELAY_KEYS(type) \
	{.name = "delay", .kind = KEY_QUANTITY, .quantity = QUANTITY_TIME, .offset = offsetof(type, delay.delay), .max = DELAY_MAX_S}, \
		{.name = "profile", .kind = KEY_NAME, .offset = offsetof(type, delay.profile)}, \
		{.name = "offset", .kind = KEY_QUANTITY, .quantity = QUANTITY_TIME, .offset = offsetof(type, delay.offset), .max = DELAY_MAX_S}, \
	{ \
		.name = "trace", .kind = KEY_VALUE, .offset = offsetof(type, delay.trace) \
	}

#define RATE_KEY(type, field) \
	{ \
		.name = "rate", .kind = KEY_QUANTITY, .quantity = QUANTITY_RATE, .offset = offsetof(type, field), \
		.min = RATE_MIN, .max = RATE_MAX \
	}

static enum err read_delay(struct scenario_reader *r, const struct toml_value *table, const char *where,
	const struct raw_delay *raw, struct scenario_delay *out)
{
	out->fixed_s = raw->delay;
	out->offset_s = raw->offset;
	if (raw->profile[0] && raw->trace)
		return scenario_fail(r, table, where, "want profile or trace, not both");
	enum err e = scenario_find_profile(r, table, where, raw->profile, &out->profile);
	if (e == OK && raw->trace)
		e = scenario_read_trace(r, raw->trace, where, &out->trace);
	if (e == OK && out->trace && out->trace->kind != TRACE_DELAY)
		return scenario_fail(r, raw->trace, where, "%.200s: a trace of delays is wanted", raw->trace->text.data);
	if (e == OK && raw->offset > 0 && !out->trace)
		return scenario_fail(r, table, where, "offset goes with a trace");
	return e;
}

// ---- Access points

static enum err read_access_point(struct scenario_reader *r, const struct toml_value *table)
{
	static const struct scenario_key keys[] = {
		{.name = "name", .kind = KEY_NAME, .offset = offsetof(struct scenario_access_point, name), .is_required = true},
		RATE_KEY(struct scenario_access_point, rate),
	};
	struct scenario *s = r->s;
	struct scenario_access_point *a = &s->access_points[s->n_access_points];
	r->subject = "access_point";
	enum err e = scenario_read_table(r, table, "access_point", keys, ARRAY_LEN(keys), a, NULL);
	if (e != OK)
		return e;
	for (int32_t i = 0; i < s->n_access_points; i++)
		if (strcmp(s->access_points[i].name, a->name) == 0)
			return scenario_fail(r, table, "access_point", "two are called %s", a->name);
	s->n_access_points++;
	return OK;
}

static enum err find_access_point(struct scenario_reader *r, const struct toml_value *table, const char *name, int32_t *out)
{
	struct suggest s = suggest_init(name);
	*out = -1;
	for (int32_t i = 0; i < r->s->n_access_points; i++) {
		if (strcmp(r->s->access_points[i].name, name) == 0)
			*out = i;
		suggest_offer(&s, r->s->access_points[i].name);
	}
	return name[0] == '\0' || *out >= 0 ? OK : scenario_no_such(r, table, "device.access_point", "access point", &s);
}

// ---- Devices

struct raw_device {
	struct cluster_device d;
	int disk; // enum scenario_disk
	bool trusted, battery;
	struct raw_delay delay;
	char access_point[NAME_CAP];
	double rate;
	const struct toml_value *by_type;
};

static const char *const disk_words[] = {"unknown", "nvme", "ssd", "hdd", "sd", "usb", "network", NULL}; // enum scenario_disk

// What a disk of a kind reads when nobody measured it, in order and in large pieces.
struct disk_kind {
	const char *name;
	double rate; // bytes/s; 0: not known
	const char *value, *why;
};

static const struct disk_kind disk_kinds[] = {
	[SCENARIO_DISK_UNKNOWN] = {"its disk", 0, "", ""},
	[SCENARIO_DISK_NVME] = {"an NVMe drive", 2e9, "2 GB/s", "a usual NVMe drive: measure it"},
	[SCENARIO_DISK_SSD] = {"a SATA SSD", 450e6, "450 MB/s", "a usual SATA SSD: measure it"},
	[SCENARIO_DISK_HDD] = {"a hard disk", 120e6, "120 MB/s", "a usual hard disk: measure it"},
	[SCENARIO_DISK_SD] = {"an SD card", 80e6, "80 MB/s", "a usual SD card: measure it"},
	[SCENARIO_DISK_USB] = {"a USB drive", 200e6, "200 MB/s", "a usual USB 3 drive: measure it"},
	[SCENARIO_DISK_NETWORK] = {"a network drive", 100e6, "100 MB/s", "a network drive behind gigabit Ethernet: measure it"},
};

const char *scenario_disk_name(enum scenario_disk d)
{
	return disk_kinds[d].name;
}

#define DEVICE(field) offsetof(struct raw_device, d.field)
#define FLOPS_KEY(key, field, its_bit) \
	{ \
		.name = key, .kind = KEY_QUANTITY, .quantity = QUANTITY_FLOPS, .offset = DEVICE(field), .min = 1, \
		.max = CLUSTER_RATE_MAX, .bit = its_bit \
	}
#define READ_KEY(key, field, its_bit, required) \
	{ \
		.name = key, .kind = KEY_QUANTITY, .quantity = QUANTITY_RATE, .offset = DEVICE(field), .min = 1, \
		.max = CLUSTER_RATE_MAX, .bit = its_bit, .is_required = required \
	}
#define MEMORY_KEY(key, field, its_min, its_bit, required) \
	{ \
		.name = key, .kind = KEY_BYTES, .offset = DEVICE(field), .min = its_min, .max = (double)CLUSTER_BYTES_MAX, \
		.bit = its_bit, .is_required = required \
	}

static const struct scenario_key device_keys[] = {
	{.name = "name", .kind = KEY_NAME, .offset = DEVICE(name), .is_required = true},
	MEMORY_KEY("memory", cap_bytes, 1, CLUSTER_CAP, true),
	MEMORY_KEY("reserved", reserved_bytes, 0, CLUSTER_RESERVED, false),
	READ_KEY("cpu_read", cpu_rate, CLUSTER_CPU_RATE, true),
	{.name = "cpu_read_of", .kind = KEY_VALUE, .offset = offsetof(struct raw_device, by_type)},
	FLOPS_KEY("cpu_flops", cpu_flops, CLUSTER_CPU_FLOPS),
	MEMORY_KEY("accelerator", accel_bytes, 1, CLUSTER_ACCEL_BYTES, false),
	READ_KEY("accelerator_read", accel_rate, CLUSTER_ACCEL_RATE, false),
	FLOPS_KEY("accelerator_flops", accel_flops, CLUSTER_ACCEL_FLOPS),
	READ_KEY("disk_read", disk_rate, CLUSTER_DISK_RATE, false),
	{.name = "visit",
		.kind = KEY_QUANTITY,
		.quantity = QUANTITY_TIME,
		.offset = DEVICE(visit_s),
		.max = 60,
		.bit = CLUSTER_VISIT},
	{.name = "access_point", .kind = KEY_NAME, .offset = offsetof(struct raw_device, access_point)},
	{.name = "disk", .kind = KEY_WORD, .offset = offsetof(struct raw_device, disk), .choices = disk_words},
	{.name = "trusted", .kind = KEY_BOOL, .offset = offsetof(struct raw_device, trusted)},
	{.name = "battery", .kind = KEY_BOOL, .offset = offsetof(struct raw_device, battery)},
	DELAY_KEYS(struct raw_device),
	RATE_KEY(struct raw_device, rate),
};

// "cpu_read_of = { q4_k = "40 GB/s", q8_0 = "60 GB/s" }"
static enum err read_rates_by_type(struct scenario_reader *r, const struct toml_value *table, struct cluster_device *d)
{
	struct scenario_key keys[DTYPE_ID_MAX + 1];
	size_t n = 0;
	for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++)
		if (dtype_find(id))
			keys[n++] = (struct scenario_key){.name = dtype_find(id)->name,
				.kind = KEY_QUANTITY,
				.quantity = QUANTITY_RATE,
				.offset = offsetof(struct cluster_device, cpu_rate_of) + id * sizeof d->cpu_rate_of[0],
				.min = 1,
				.max = CLUSTER_RATE_MAX,
				.bit = CLUSTER_CPU_RATE};
	return scenario_read_table(r, table, "device.cpu_read_of", keys, n, d, &d->derived);
}

// A kind of disk without a rate gets the usual one, which the report then lists as assumed.
static enum err assume_disk_rate(struct scenario_reader *r, const struct toml_value *table, struct raw_device *raw)
{
	const struct disk_kind *k = &disk_kinds[raw->disk];
	if (raw->d.disk_rate > 0 || k->rate == 0)
		return OK;
	raw->d.disk_rate = k->rate;
	raw->d.derived |= CLUSTER_DISK_RATE;
	return scenario_note(r, table, "disk_read", k->value, k->why);
}

static enum err read_device(struct scenario_reader *r, const struct toml_value *table)
{
	struct scenario *s = r->s;
	struct raw_device raw = {.trusted = true};
	struct scenario_station *st = &s->stations[s->n_devices];
	const struct toml_value *name = table->type == TOML_TABLE ? toml_find(table, "name") : NULL;
	char subject[NAME_CAP] = "device";
	if (name && name->type == TOML_STRING)
		printable_copy(name->text.data, name->text.len, subject, sizeof subject);
	r->subject = subject;
	enum err e = scenario_read_table(r, table, "device", device_keys, ARRAY_LEN(device_keys), &raw, &raw.d.derived);
	if (e == OK && raw.by_type)
		e = read_rates_by_type(r, raw.by_type, &raw.d);
	if (e == OK)
		e = read_delay(r, table, "device", &raw.delay, &st->delay);
	if (e == OK)
		e = find_access_point(r, table, raw.access_point, &st->access_point);
	if (e == OK)
		e = assume_disk_rate(r, table, &raw);
	r->subject = "";
	if (e != OK)
		return e;
	if (raw.d.accel_bytes > 0 && raw.d.accel_rate == 0)
		return scenario_fail(r, table, "device", "accelerator_read is missing: %s has an accelerator", raw.d.name);
	if (st->access_point >= 0 && raw.rate > 0)
		return scenario_fail(r, table, "device.rate", "%s is at an access point, whose rate it shares", raw.d.name);
	for (int32_t i = 0; i < s->n_devices; i++)
		if (strcmp(s->devices[i].name, raw.d.name) == 0)
			return scenario_fail(r, table, "device", "two are called %s", raw.d.name);
	if (st->delay.profile)
		st->delay.profile = profile_of_station(st->delay.profile, s->n_devices);
	st->rate = raw.rate;
	st->disk = (enum scenario_disk)raw.disk;
	st->is_untrusted = !raw.trusted;
	st->on_battery = raw.battery;
	s->devices[s->n_devices++] = raw.d;
	return OK;
}

enum err scenario_find_device(
	struct scenario_reader *r, const struct toml_value *at, const char *where, struct toml_text name, int32_t *out)
{
	char shown[NAME_CAP];
	printable_copy(name.data, name.len, shown, sizeof shown);
	struct suggest s = suggest_init(shown);
	for (int32_t i = 0; i < r->s->n_devices; i++) {
		if (strcmp(r->s->devices[i].name, shown) == 0) {
			*out = i;
			return OK;
		}
		suggest_offer(&s, r->s->devices[i].name);
	}
	return scenario_no_such(r, at, where, "device", &s);
}

// ---- Links

struct raw_link {
	const struct toml_value *between;
	struct raw_delay delay;
	double rate, loss;
	bool is_cut;
};

static const struct scenario_key link_keys[] = {
	DELAY_KEYS(struct raw_link), RATE_KEY(struct raw_link, rate),
	{.name = "loss", .kind = KEY_NUMBER, .offset = offsetof(struct raw_link, loss), .max = 0.9},
	// The last two: [network] has none of them.
	{.name = "cut", .kind = KEY_BOOL, .offset = offsetof(struct raw_link, is_cut)},
	{.name = "between", .kind = KEY_VALUE, .offset = offsetof(struct raw_link, between), .is_required = true},
};

static enum err read_link_table(struct scenario_reader *r, const struct toml_value *table, const char *where, size_t n_keys,
	struct raw_link *raw, struct scenario_link *out)
{
	r->subject = where;
	enum err e = scenario_read_table(r, table, where, link_keys, n_keys, raw, NULL);
	if (e == OK)
		e = read_delay(r, table, where, &raw->delay, &out->delay);
	out->rate = raw->rate;
	out->loss = raw->loss;
	out->is_cut = raw->is_cut;
	return e;
}

static enum err read_link(struct scenario_reader *r, const struct toml_value *table)
{
	struct scenario *s = r->s;
	struct scenario_link *l = &s->links[s->n_links];
	struct raw_link raw = {.between = NULL};
	enum err e = read_link_table(r, table, "link", ARRAY_LEN(link_keys), &raw, l);
	if (e != OK)
		return e;
	const struct toml_value *v = raw.between, *a = v->type == TOML_ARRAY ? v->items.first : NULL;
	if (v->type != TOML_ARRAY || v->items.n != 2 || a->type != TOML_STRING || a->next->type != TOML_STRING)
		return scenario_fail(r, v, "link.between", "want the names of two devices");
	e = scenario_find_device(r, v, "link.between", a->text, &l->a);
	if (e == OK)
		e = scenario_find_device(r, v, "link.between", a->next->text, &l->b);
	if (e == OK && l->a == l->b)
		return scenario_fail(r, v, "link.between", "want two different devices");
	for (int32_t i = 0; e == OK && i < s->n_links; i++)
		if ((s->links[i].a == l->a && s->links[i].b == l->b) || (s->links[i].a == l->b && s->links[i].b == l->a))
			return scenario_fail(r, v, "link.between", "this pair has a link already");
	s->n_links++;
	return e;
}

enum err scenario_tables(struct scenario_reader *r, const struct toml_value *v, const char *where, int32_t max)
{
	if (v->type != TOML_ARRAY || (v->items.first && v->items.first->type != TOML_TABLE))
		return scenario_fail(r, v, where, "got %s, want tables: [[%s]]", toml_type_name(v->type), where);
	return v->items.n <= max ? OK : scenario_fail(r, v, where, "%d of them, want at most %d", v->items.n, max);
}

static enum err read_all(struct scenario_reader *r, const struct toml_value *v, const char *where, int32_t max,
	enum err (*read)(struct scenario_reader *r, const struct toml_value *table))
{
	enum err e = v ? scenario_tables(r, v, where, max) : OK;
	for (const struct toml_value *t = v && e == OK ? v->items.first : NULL; t && e == OK; t = t->next)
		e = read(r, t);
	return e;
}

enum err scenario_read_machines(struct scenario_reader *r, const struct toml_value *access_points,
	const struct toml_value *network, const struct toml_value *devices, const struct toml_value *links)
{
	struct raw_link raw = {.between = NULL};
	enum err e = read_all(r, access_points, "access_point", SCENARIO_ACCESS_POINTS_MAX, read_access_point);
	if (e == OK && network)
		e = read_link_table(r, network, "network", ARRAY_LEN(link_keys) - 2, &raw, &r->s->default_link);
	if (e == OK)
		e = read_all(r, devices, "device", SCENARIO_DEVICES_MAX, read_device);
	if (e == OK && r->s->n_devices == 0)
		e = scenario_fail(r, devices, "device", "no devices");
	return e == OK ? read_all(r, links, "link", SCENARIO_LINKS_MAX, read_link) : e;
}
