#include "sim/shell/topology.h"

#include "base/assert.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "base/toml.h"
#include "sim/quantity.h"
#include "sim/scenario_keys.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define SUBNET_DEFAULT 77
#define DEVICE_OCTET 255 // 127.S.255.x is left to the devices' own addresses

struct reader {
	struct scenario_reader keys; // the words are a scenario's, but nothing is derived
	struct topology *t;
};

// ---- Addresses

// "127.77.255.1:7433". Names are not looked up, and other machines are not for this relay.
static enum err read_address(const struct reader *r, const struct toml_value *v, struct topology_device *d)
{
	static const char where[] = "device.at";
	struct in_addr ip;
	char host[32] = "", *end = NULL;
	if (v->type != TOML_STRING)
		return scenario_fail(&r->keys, v, where, "got %s, want a string", toml_type_name(v->type));
	const char *colon = strlen(v->text.data) == v->text.len ? strrchr(v->text.data, ':') : NULL;
	size_t n = colon ? (size_t)(colon - v->text.data) : 0;
	if (n > 0 && n < sizeof host)
		memcpy(host, v->text.data, n);
	bool is_number = colon && colon[1] >= '0' && colon[1] <= '9';
	unsigned long port = is_number ? strtoul(colon + 1, &end, 10) : 0;
	if (inet_pton(AF_INET, host, &ip) != 1 || !is_number || *end != '\0' || port < 1 || port > 65535)
		return scenario_fail(&r->keys, v, where, "want an IPv4 address and a port, such as \"127.0.0.1:7433\"");
	d->ip = ntohl(ip.s_addr);
	d->port = (uint16_t)port;
	if (d->ip >> 24 != 127)
		return scenario_fail(&r->keys, v, where, "%s is not of this machine: want 127.x.x.x", host);
	return OK;
}

// ---- Delays and links

// What a device or a link says, as it stands there; then what that names.
struct raw_path {
	char name[NAME_CAP], access_point[NAME_CAP], profile_name[NAME_CAP];
	double delay, offset, spread, rate, rate_back, loss;
	const struct toml_value *trace_name, *between, *at;
	const struct profile *profile;
	const struct trace *trace;
	int64_t offset_ns, spread_ns;
};

#define AT(field) offsetof(struct raw_path, field)
#define NAME_KEY(key, field, required) {.name = key, .kind = KEY_NAME, .offset = AT(field), .is_required = required}
#define VALUE_KEY(key, field, required) {.name = key, .kind = KEY_VALUE, .offset = AT(field), .is_required = required}
#define TIME_KEY(key, field) \
	{.name = key, .kind = KEY_QUANTITY, .quantity = QUANTITY_TIME, .offset = AT(field), .max = (double)NETWORK_DELAY_MAX_NS / 1e9}
#define RATE_KEY(key, field) \
	{.name = key, .kind = KEY_QUANTITY, .quantity = QUANTITY_RATE, .offset = AT(field), .min = NETWORK_RATE_MIN / 8.0, \
		.max = (double)NETWORK_RATE_MAX / 8}
#define DELAY_KEYS \
	TIME_KEY("delay", delay), NAME_KEY("profile", profile_name, false), VALUE_KEY("trace", trace_name, false), TIME_KEY("offset", offset), \
		RATE_KEY("rate", rate)
#define LINK_KEYS \
	DELAY_KEYS, RATE_KEY("rate_back", rate_back), TIME_KEY("spread", spread), {.name = "loss", .kind = KEY_NUMBER, .offset = AT(loss), .max = 0.9}

static enum err read_path(struct reader *r, const struct toml_value *table, const char *where, const struct scenario_key *keys, size_t n_keys,
	struct raw_path *raw)
{
	enum err e = scenario_read_table(&r->keys, table, where, keys, n_keys, raw, NULL);
	if (e == OK)
		e = scenario_find_profile(&r->keys, table, where, raw->profile_name, &raw->profile);
	if (e == OK && raw->trace_name)
		e = scenario_read_trace(&r->keys, raw->trace_name, where, &raw->trace);
	raw->offset_ns = quantity_ns(raw->offset);
	raw->spread_ns = quantity_ns(raw->spread);
	return e;
}

static enum err make_delay(struct reader *r, const struct toml_value *at, const char *where, const struct raw_path *raw, struct network_delay *out)
{
	bool has_table = raw->trace && raw->trace->kind == TRACE_TABLE;
	*out = (struct network_delay){.kind = NETWORK_DELAY_NONE};
	if (raw->profile && raw->trace && raw->trace->kind != TRACE_DELIVERIES)
		return scenario_fail(&r->keys, at, where, "profile and trace both give the delay: want one of them");
	if (raw->offset_ns > 0 && !(raw->trace && raw->trace->kind == TRACE_DELAY))
		return scenario_fail(&r->keys, at, where, "offset goes with a trace of delays");
	if ((raw->spread_ns > 0) != has_table)
		return scenario_fail(&r->keys, at, where, has_table ? "a distribution table needs a spread, the sigma of the delay" : "spread goes with a distribution table");
	if (raw->profile)
		*out = (struct network_delay){.kind = NETWORK_DELAY_PROFILE, .profile = raw->profile};
	else if (has_table)
		*out = (struct network_delay){.kind = NETWORK_DELAY_TABLE, .trace = raw->trace, .spread_ns = raw->spread_ns};
	else if (raw->trace && raw->trace->kind == TRACE_DELAY)
		*out = (struct network_delay){.kind = NETWORK_DELAY_TRACE, .trace = raw->trace, .offset_ns = raw->offset_ns};
	return OK;
}

static enum err make_link(struct reader *r, const struct toml_value *at, const char *where, const struct raw_path *raw, struct network_link_params *out)
{
	const struct trace *deliveries = raw->trace && raw->trace->kind == TRACE_DELIVERIES ? raw->trace : NULL;
	enum err e = make_delay(r, at, where, raw, &out->delay);
	if (e != OK)
		return e;
	if (deliveries && raw->rate > 0)
		return scenario_fail(&r->keys, at, where, "rate and a trace of deliveries both give the rate: want one of them");
	if (raw->profile && raw->profile->straggler)
		return scenario_fail(&r->keys, at, where, "%s is a home's profile: give it to the devices", raw->profile->name);
	out->base_ns = quantity_ns(raw->delay);
	out->rate_bps = quantity_bits(raw->rate);
	out->rate_back_bps = quantity_bits(raw->rate_back > 0 ? raw->rate_back : raw->rate);
	out->deliveries = out->deliveries_back = deliveries;
	out->loss = raw->loss;
	return OK;
}

static enum err read_default_link(struct reader *r, const struct toml_value *table)
{
	static const struct scenario_key keys[] = {LINK_KEYS};
	struct raw_path raw = {.delay = 0};
	enum err e = read_path(r, table, "network", keys, ARRAY_LEN(keys), &raw);
	return e == OK ? make_link(r, table, "network", &raw, &r->t->default_link) : e;
}

static enum err read_access_point(struct reader *r, const struct toml_value *table)
{
	static const struct scenario_key keys[] = {NAME_KEY("name", name, true), RATE_KEY("rate", rate)};
	struct topology *t = r->t;
	struct raw_path raw = {.delay = 0};
	enum err e = read_path(r, table, "access_point", keys, ARRAY_LEN(keys), &raw);
	for (int32_t i = 0; e == OK && i < t->n_access_points; i++)
		if (strcmp(t->access_points[i].name, raw.name) == 0)
			e = scenario_fail(&r->keys, table, "access_point", "two are called %s", raw.name);
	if (e != OK)
		return e;
	struct topology_access_point *ap = &t->access_points[t->n_access_points++];
	memcpy(ap->name, raw.name, NAME_CAP);
	ap->rate_bps = quantity_bits(raw.rate);
	return OK;
}

static enum err find_access_point(struct reader *r, const struct toml_value *table, const char *name, int32_t *out)
{
	struct suggest s = suggest_init(name);
	*out = NETWORK_WIRED;
	for (int32_t i = 0; i < r->t->n_access_points; i++) {
		if (strcmp(r->t->access_points[i].name, name) == 0)
			*out = i;
		suggest_offer(&s, r->t->access_points[i].name);
	}
	return name[0] == '\0' || *out >= 0 ? OK : scenario_no_such(&r->keys, table, "device.access_point", "access point", &s);
}

static enum err check_device(struct reader *r, const struct toml_value *table, const struct raw_path *raw, const struct topology_device *d,
	int32_t access_point)
{
	const struct topology *t = r->t;
	for (int32_t i = 0; i < t->n_devices; i++) {
		if (strcmp(t->devices[i].name, raw->name) == 0)
			return scenario_fail(&r->keys, table, "device", "two are called %s", raw->name);
		if (t->devices[i].ip == d->ip && t->devices[i].port == d->port)
			return scenario_fail(&r->keys, table, "device.at", "%s and %s are at the same address", t->devices[i].name, raw->name);
	}
	if ((d->ip >> 16 & 0xff) == (uint32_t)t->subnet && (d->ip >> 8 & 0xff) != DEVICE_OCTET)
		return scenario_fail(&r->keys, table, "device.at", "127.%d.x.x is for the relay, but for 127.%d.%d.x", t->subnet, t->subnet, DEVICE_OCTET);
	if (access_point >= 0 && raw->rate > 0)
		return scenario_fail(&r->keys, table, "device.rate", "%s is at an access point, whose rate it shares", raw->name);
	if (raw->trace && raw->trace->kind != TRACE_DELAY)
		return scenario_fail(&r->keys, table, "device.trace", "want a trace of delays; others are for links");
	return OK;
}

static enum err read_device(struct reader *r, const struct toml_value *table)
{
	static const struct scenario_key keys[] = {NAME_KEY("name", name, true), VALUE_KEY("at", at, true),
		NAME_KEY("access_point", access_point, false), DELAY_KEYS};
	struct topology *t = r->t;
	struct raw_path raw = {.delay = 0};
	int32_t ap = NETWORK_WIRED;
	struct topology_device *d = &t->devices[t->n_devices];
	enum err e = read_path(r, table, "device", keys, ARRAY_LEN(keys), &raw);
	if (e == OK)
		e = read_address(r, raw.at, d);
	if (e == OK)
		e = find_access_point(r, table, raw.access_point, &ap);
	if (e == OK)
		e = check_device(r, table, &raw, d, ap);
	if (e == OK && raw.profile)
		raw.profile = profile_of_station(raw.profile, t->n_devices);
	if (e == OK)
		e = make_delay(r, table, "device", &raw, &d->station.delay);
	if (e != OK)
		return e;
	memcpy(d->name, raw.name, NAME_CAP);
	d->delay_ns = quantity_ns(raw.delay);
	d->station.access_point = ap;
	d->station.air_bps = ap >= 0 ? t->access_points[ap].rate_bps : 0;
	d->station.up_bps = d->station.down_bps = quantity_bits(raw.rate);
	t->n_devices++;
	return OK;
}

static enum err find_device(struct reader *r, const struct toml_value *v, int32_t *out)
{
	char shown[NAME_CAP];
	if (v->type != TOML_STRING)
		return scenario_fail(&r->keys, v, "link.between", "got %s, want the names of two devices", toml_type_name(v->type));
	printable_copy(v->text.data, v->text.len, shown, sizeof shown);
	struct suggest s = suggest_init(shown);
	for (int32_t i = 0; i < r->t->n_devices; i++)
		suggest_offer(&s, r->t->devices[i].name);
	*out = topology_find(r->t, shown);
	return *out >= 0 ? OK : scenario_no_such(&r->keys, v, "link.between", "device", &s);
}

static enum err read_link(struct reader *r, const struct toml_value *table)
{
	static const struct scenario_key keys[] = {VALUE_KEY("between", between, true), LINK_KEYS};
	struct topology *t = r->t;
	struct raw_path raw = {.delay = 0};
	struct topology_link *l = &t->links[t->n_links];
	enum err e = read_path(r, table, "link", keys, ARRAY_LEN(keys), &raw);
	if (e != OK)
		return e;
	const struct toml_value *v = raw.between;
	if (v->type != TOML_ARRAY || v->items.n != 2)
		return scenario_fail(&r->keys, v, "link.between", "want the names of two devices: [\"a\", \"b\"]");
	e = find_device(r, v->items.first, &l->a);
	if (e == OK)
		e = find_device(r, v->items.last, &l->b);
	if (e == OK && l->a == l->b)
		e = scenario_fail(&r->keys, v, "link.between", "want two different devices");
	for (int32_t i = 0; e == OK && i < t->n_links; i++)
		if ((t->links[i].a == l->a && t->links[i].b == l->b) || (t->links[i].a == l->b && t->links[i].b == l->a))
			e = scenario_fail(&r->keys, v, "link.between", "this pair has a link already");
	if (e == OK)
		e = make_link(r, table, "link", &raw, &l->params);
	t->n_links += e == OK;
	return e;
}

// ---- The file

struct raw_root {
	uint64_t seed;
	int32_t subnet;
	const struct toml_value *network, *access_points, *devices, *links;
};

static enum err read_all(struct reader *r, const struct toml_value *v, const char *where, int32_t max,
	enum err (*read)(struct reader *r, const struct toml_value *table))
{
	enum err e = v ? scenario_tables(&r->keys, v, where, max) : OK;
	for (const struct toml_value *t = v && e == OK ? v->items.first : NULL; t && e == OK; t = t->next)
		e = read(r, t);
	return e;
}

#define ROOT(field) offsetof(struct raw_root, field)

static enum err read_root(struct reader *r, const struct toml_value *root)
{
	static const struct scenario_key keys[] = {
		{.name = "seed", .kind = KEY_U64, .offset = ROOT(seed), .max = 9.3e18},
		{.name = "subnet", .kind = KEY_INT, .offset = ROOT(subnet), .min = 1, .max = 254}, // addresses begin with 127 and this
		{.name = "network", .kind = KEY_VALUE, .offset = ROOT(network)},
		{.name = "access_point", .kind = KEY_VALUE, .offset = ROOT(access_points)},
		{.name = "device", .kind = KEY_VALUE, .offset = ROOT(devices), .is_required = true},
		{.name = "link", .kind = KEY_VALUE, .offset = ROOT(links)},
	};
	struct topology *t = r->t;
	struct raw_root raw = {.seed = 1, .subnet = SUBNET_DEFAULT};
	enum err e = scenario_read_table(&r->keys, root, "topology", keys, ARRAY_LEN(keys), &raw, NULL);
	t->seed = raw.seed;
	t->subnet = raw.subnet;
	if (e == OK && raw.network)
		e = read_default_link(r, raw.network);
	if (e == OK)
		e = read_all(r, raw.access_points, "access_point", TOPOLOGY_ACCESS_POINTS_MAX, read_access_point);
	if (e == OK)
		e = read_all(r, raw.devices, "device", TOPOLOGY_DEVICES_MAX, read_device);
	if (e == OK && t->n_devices < 2)
		e = scenario_fail(&r->keys, raw.devices, "device", "%d of them, want at least 2", t->n_devices);
	return e == OK ? read_all(r, raw.links, "link", TOPOLOGY_LINKS_MAX, read_link) : e;
}

enum err topology_parse(const char *name, const char *text, size_t len, const struct trace_loader *loader, struct topology *out, struct errmsg *em)
{
	struct arena a;
	const struct toml_value *root;
	struct reader r = {.keys = {.file = name, .em = em, .traces = &out->traces, .loader = loader}, .t = out};
	memset(out, 0, sizeof *out);
	out->traces.max = TOPOLOGY_TRACES_MAX;
	enum err e = arena_open(toml_arena_bytes(text, len), &a);
	if (e != OK)
		return errmsg_fail(em, e, "%.200s: no memory for its text", name);
	e = toml_parse(name, text, len, &a, &root, em);
	if (e == OK)
		e = read_root(&r, root);
	arena_close(&a);
	if (e != OK)
		topology_close(out);
	return e;
}

void topology_close(struct topology *t)
{
	trace_set_close(&t->traces);
	memset(t, 0, sizeof *t);
}

int32_t topology_find(const struct topology *t, const char *name)
{
	for (int32_t i = 0; i < t->n_devices; i++)
		if (strcmp(t->devices[i].name, name) == 0)
			return i;
	return -1;
}

static struct network_link_params turned(const struct network_link_params *p)
{
	struct network_link_params out = *p;
	out.rate_bps = p->rate_back_bps;
	out.rate_back_bps = p->rate_bps;
	out.deliveries = p->deliveries_back;
	out.deliveries_back = p->deliveries;
	return out;
}

struct network_link_params topology_link_of(const struct topology *t, int32_t a, int32_t b)
{
	ASSERT(a >= 0 && a < t->n_devices);
	ASSERT(b >= 0 && b < t->n_devices);
	struct network_link_params p = a < b ? t->default_link : turned(&t->default_link);
	for (int32_t i = 0; i < t->n_links; i++) {
		if (t->links[i].a == a && t->links[i].b == b)
			p = t->links[i].params;
		else if (t->links[i].a == b && t->links[i].b == a)
			p = turned(&t->links[i].params);
	}
	int64_t sum_ns = p.base_ns + t->devices[a].delay_ns + t->devices[b].delay_ns;
	p.base_ns = sum_ns < NETWORK_DELAY_MAX_NS ? sum_ns : NETWORK_DELAY_MAX_NS;
	return p;
}

static uint32_t loopback(const struct topology *t, uint32_t third, uint32_t fourth)
{
	return UINT32_C(127) << 24 | (uint32_t)t->subnet << 16 | third << 8 | fourth;
}

uint32_t topology_device_ip(const struct topology *t, int32_t device)
{
	return loopback(t, 0, (uint32_t)device + 1);
}

uint32_t topology_pair_ip(const struct topology *t, int32_t from, int32_t to)
{
	return loopback(t, (uint32_t)from + 1, (uint32_t)to + 1);
}
