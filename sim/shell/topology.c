#include "sim/shell/topology.h"

#include "base/assert.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "base/toml.h"
#include "sim/quantity.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUBNET_DEFAULT 77
#define DEVICE_OCTET 255 // 127.S.255.x is left to the devices' own addresses
#define RATE_MIN_BPS 1000.0
#define BITS_PER_BYTE 8.0
#define NS_PER_S 1e9
#define WHERE_CAP 96

struct reader {
	const char *file;
	const struct trace_loader *loader;
	struct topology *t;
	struct errmsg *em;
};

// A key: its setter gets where to put the value.
struct key {
	const char *name;
	enum err (*set)(struct reader *r, const struct toml_value *v, const char *where, void *out);
	size_t offset;
	bool is_required;
};

static enum err fail(const struct reader *r, const struct toml_value *at, const char *where, const char *fmt, ...) PRINTF_LIKE(4, 5);

static enum err fail(const struct reader *r, const struct toml_value *at, const char *where, const char *fmt, ...)
{
	char text[300];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return errmsg_fail(r->em, ERR_FORMAT, "%.100s:%d: %s%s%s", r->file, at->line, where, where[0] ? ": " : "", text);
}

static enum err refuse_type(const struct reader *r, const struct toml_value *v, const char *where, const char *want)
{
	return fail(r, v, where, "got %s, want %s", toml_type_name(v->type), want);
}

// no_such fails with "there is no WHAT NAME", and the nearest of the names offered to `s` before.
static enum err no_such(const struct reader *r, const struct toml_value *at, const char *where, const char *what, const struct suggest *s)
{
	if (s->best)
		return fail(r, at, where, "there is no %s %s, did you mean %s?", what, s->word, s->best);
	return fail(r, at, where, "there is no %s %s", what, s->word);
}

static enum err read_table(struct reader *r, const struct toml_value *table, const char *where, const struct key *keys, size_t n_keys, void *out)
{
	if (table->type != TOML_TABLE)
		return refuse_type(r, table, where, "a table");
	for (const struct toml_value *v = table->items.first; v; v = v->next) {
		char shown[64], full[WHERE_CAP];
		printable_copy(v->key.data, v->key.len, shown, sizeof shown);
		struct suggest s = suggest_init(shown);
		const struct key *k = NULL;
		for (size_t i = 0; i < n_keys && !k; i++) {
			suggest_offer(&s, keys[i].name);
			k = strlen(keys[i].name) == v->key.len && memcmp(keys[i].name, v->key.data, v->key.len) == 0 ? &keys[i] : NULL;
		}
		snprintf(full, sizeof full, "%s%s%s", where, where[0] ? "." : "", shown);
		if (!k)
			return s.best ? fail(r, v, full, "unknown key, did you mean %s?", s.best) : fail(r, v, full, "unknown key");
		enum err e = k->set(r, v, full, (char *)out + k->offset);
		if (e != OK)
			return e;
	}
	for (size_t i = 0; i < n_keys; i++)
		if (keys[i].is_required && !toml_find(table, keys[i].name))
			return fail(r, table, where, "%s is missing", keys[i].name);
	return OK;
}

// ---- Values

// set_value keeps the value itself, for who has to look at several together.
static enum err set_value(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	(void)r;
	(void)where;
	*(const struct toml_value **)out = v;
	return OK;
}

static enum err set_name(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	if (v->type != TOML_STRING)
		return refuse_type(r, v, where, "a string");
	size_t n = strspn(v->text.data, allowed);
	if (n == 0 || n != v->text.len || n >= NAME_CAP)
		return fail(r, v, where, "want 1 to %d letters, digits, '.', '_' or '-'", NAME_CAP - 1);
	memcpy(out, v->text.data, n + 1);
	return OK;
}

static enum err read_quantity(struct reader *r, const struct toml_value *v, const char *where, enum quantity q, double *out)
{
	struct errmsg why;
	if (v->type != TOML_STRING || strlen(v->text.data) != v->text.len)
		return fail(r, v, where, "got %s, want a string with a number and one of %s", toml_type_name(v->type), quantity_units(q));
	enum err e = quantity_parse(q, v->text.data, out, &why);
	return e == OK ? OK : fail(r, v, where, "%.280s", why.text);
}

static enum err set_time(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	double s = 0;
	enum err e = read_quantity(r, v, where, QUANTITY_TIME, &s);
	if (e != OK)
		return e;
	if (!(s >= 0 && s * NS_PER_S <= (double)NETWORK_DELAY_MAX_NS))
		return fail(r, v, where, "got %s, want 0 s to %s", quantity_print(QUANTITY_TIME, s).text,
			quantity_print(QUANTITY_TIME, (double)NETWORK_DELAY_MAX_NS / NS_PER_S).text);
	*(int64_t *)out = (int64_t)(s * NS_PER_S + 0.5);
	return OK;
}

static enum err set_rate(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	double rate = 0;
	enum err e = read_quantity(r, v, where, QUANTITY_RATE, &rate);
	if (e != OK)
		return e;
	double bps = rate * BITS_PER_BYTE;
	if (!(bps >= RATE_MIN_BPS && bps <= (double)NETWORK_RATE_MAX))
		return fail(r, v, where, "got %s, want 1 kbit/s to 1 Tbit/s", quantity_print(QUANTITY_RATE, rate).text);
	*(uint64_t *)out = (uint64_t)(bps + 0.5);
	return OK;
}

static enum err set_loss(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	if (v->type != TOML_FLOAT && v->type != TOML_INT)
		return refuse_type(r, v, where, "a number");
	double p = v->type == TOML_INT ? (double)v->i : v->f;
	if (!(p >= 0 && p <= 0.9))
		return fail(r, v, where, "got %g, want 0 to 0.9: the chance of each packet to be lost", p);
	*(double *)out = p;
	return OK;
}

static enum err set_profile(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	char shown[32];
	if (v->type != TOML_STRING)
		return refuse_type(r, v, where, "a string");
	printable_copy(v->text.data, v->text.len, shown, sizeof shown);
	struct suggest s = suggest_init(shown);
	for (size_t i = 0; i < n_profiles(); i++)
		suggest_offer(&s, profile_at(i)->name);
	*(const struct profile **)out = profile_find(shown);
	return *(const struct profile **)out ? OK : no_such(r, v, where, "profile", &s);
}

static enum err set_seed(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	if (v->type != TOML_INT)
		return refuse_type(r, v, where, "an integer");
	if (v->i < 0)
		return fail(r, v, where, "got %lld, want 0 or more", (long long)v->i);
	*(uint64_t *)out = (uint64_t)v->i;
	return OK;
}

static enum err set_subnet(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	if (v->type != TOML_INT)
		return refuse_type(r, v, where, "an integer");
	if (v->i < 1 || v->i > 254)
		return fail(r, v, where, "got %lld, want 1 to 254: addresses begin with 127 and this", (long long)v->i);
	*(int32_t *)out = (int32_t)v->i;
	return OK;
}

// "127.77.255.1:7433". Names are not looked up, and other machines are not for this relay.
static enum err set_address(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	struct topology_device *d = out;
	struct in_addr ip;
	char host[32] = "", *end = NULL;
	if (v->type != TOML_STRING)
		return refuse_type(r, v, where, "a string");
	const char *colon = strlen(v->text.data) == v->text.len ? strrchr(v->text.data, ':') : NULL;
	size_t n = colon ? (size_t)(colon - v->text.data) : 0;
	if (n > 0 && n < sizeof host)
		memcpy(host, v->text.data, n);
	bool is_number = colon && colon[1] >= '0' && colon[1] <= '9';
	unsigned long port = is_number ? strtoul(colon + 1, &end, 10) : 0;
	if (inet_pton(AF_INET, host, &ip) != 1 || !is_number || *end != '\0' || port < 1 || port > 65535)
		return fail(r, v, where, "want an IPv4 address and a port, such as \"127.0.0.1:7433\"");
	d->ip = ntohl(ip.s_addr);
	d->port = (uint16_t)port;
	if (d->ip >> 24 != 127)
		return fail(r, v, where, "%s is not of this machine: want 127.x.x.x", host);
	return OK;
}

// ---- Traces

static enum err set_trace(struct reader *r, const struct toml_value *v, const char *where, void *out)
{
	struct errmsg why;
	if (v->type != TOML_STRING)
		return refuse_type(r, v, where, "a string");
	if (v->text.len == 0 || v->text.len >= TRACE_PATH_CAP || strlen(v->text.data) != v->text.len)
		return fail(r, v, where, "want the name of a file");
	enum err e = trace_set_get(&r->t->traces, r->loader, v->text.data, out, &why);
	return e == OK ? OK : fail(r, v, where, "%.280s", why.text);
}

// ---- Delays and links

struct raw_path {
	int64_t delay_ns, spread_ns, offset_ns;
	const struct profile *profile;
	const struct trace *trace;
	uint64_t rate_bps, rate_back_bps;
	double loss;
	const struct toml_value *between;
	char name[NAME_CAP];
	char access_point[NAME_CAP];
	struct topology_device at;
};

#define AT(field) offsetof(struct raw_path, field)
#define DELAY_KEYS                                                                                                     \
	{"delay", set_time, AT(delay_ns), false}, {"profile", set_profile, AT(profile), false}, {"trace", set_trace, AT(trace), false},      \
		{"offset", set_time, AT(offset_ns), false}, {"rate", set_rate, AT(rate_bps), false}
#define LINK_KEYS                                                                                                      \
	DELAY_KEYS, {"rate_back", set_rate, AT(rate_back_bps), false}, {"spread", set_time, AT(spread_ns), false}, {"loss", set_loss, AT(loss), false}

static enum err make_delay(struct reader *r, const struct toml_value *at, const char *where, const struct raw_path *raw, struct network_delay *out)
{
	bool has_table = raw->trace && raw->trace->kind == TRACE_TABLE;
	*out = (struct network_delay){.kind = NETWORK_DELAY_NONE};
	if (raw->profile && raw->trace && raw->trace->kind != TRACE_DELIVERIES)
		return fail(r, at, where, "profile and trace both give the delay: want one of them");
	if (raw->offset_ns > 0 && !(raw->trace && raw->trace->kind == TRACE_DELAY))
		return fail(r, at, where, "offset goes with a trace of delays");
	if ((raw->spread_ns > 0) != has_table)
		return fail(r, at, where, has_table ? "a distribution table needs a spread, the sigma of the delay" : "spread goes with a distribution table");
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
	if (deliveries && raw->rate_bps > 0)
		return fail(r, at, where, "rate and a trace of deliveries both give the rate: want one of them");
	if (raw->profile && raw->profile->straggler)
		return fail(r, at, where, "%s is a home's profile: give it to the devices", raw->profile->name);
	out->base_ns = raw->delay_ns;
	out->rate_bps = raw->rate_bps;
	out->rate_back_bps = raw->rate_back_bps ? raw->rate_back_bps : raw->rate_bps;
	out->deliveries = out->deliveries_back = deliveries;
	out->loss = raw->loss;
	return OK;
}

static enum err read_default_link(struct reader *r, const struct toml_value *table)
{
	static const struct key keys[] = {LINK_KEYS};
	struct raw_path raw = {.delay_ns = 0};
	enum err e = read_table(r, table, "network", keys, ARRAY_LEN(keys), &raw);
	return e == OK ? make_link(r, table, "network", &raw, &r->t->default_link) : e;
}

static enum err read_access_point(struct reader *r, const struct toml_value *table)
{
	static const struct key keys[] = {{"name", set_name, AT(name), true}, {"rate", set_rate, AT(rate_bps), false}};
	struct topology *t = r->t;
	struct raw_path raw = {.delay_ns = 0};
	enum err e = read_table(r, table, "access_point", keys, ARRAY_LEN(keys), &raw);
	for (int32_t i = 0; e == OK && i < t->n_access_points; i++)
		if (strcmp(t->access_points[i].name, raw.name) == 0)
			e = fail(r, table, "access_point", "two are called %s", raw.name);
	if (e != OK)
		return e;
	struct topology_access_point *ap = &t->access_points[t->n_access_points++];
	memcpy(ap->name, raw.name, NAME_CAP);
	ap->rate_bps = raw.rate_bps;
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
	return name[0] == '\0' || *out >= 0 ? OK : no_such(r, table, "device.access_point", "access point", &s);
}

static enum err check_device(struct reader *r, const struct toml_value *table, const struct raw_path *raw, int32_t access_point)
{
	const struct topology *t = r->t;
	for (int32_t i = 0; i < t->n_devices; i++) {
		if (strcmp(t->devices[i].name, raw->name) == 0)
			return fail(r, table, "device", "two are called %s", raw->name);
		if (t->devices[i].ip == raw->at.ip && t->devices[i].port == raw->at.port)
			return fail(r, table, "device.at", "%s and %s are at the same address", t->devices[i].name, raw->name);
	}
	if ((raw->at.ip >> 16 & 0xff) == (uint32_t)t->subnet && (raw->at.ip >> 8 & 0xff) != DEVICE_OCTET)
		return fail(r, table, "device.at", "127.%d.x.x is for the relay, but for 127.%d.%d.x", t->subnet, t->subnet, DEVICE_OCTET);
	if (access_point >= 0 && raw->rate_bps > 0)
		return fail(r, table, "device.rate", "%s is at an access point, whose rate it shares", raw->name);
	if (raw->trace && raw->trace->kind != TRACE_DELAY)
		return fail(r, table, "device.trace", "want a trace of delays; others are for links");
	return OK;
}

static enum err read_device(struct reader *r, const struct toml_value *table)
{
	static const struct key keys[] = {{"name", set_name, AT(name), true}, {"at", set_address, AT(at), true},
		{"access_point", set_name, AT(access_point), false}, DELAY_KEYS};
	struct topology *t = r->t;
	struct raw_path raw = {.delay_ns = 0};
	int32_t ap = NETWORK_WIRED;
	struct topology_device *d = &t->devices[t->n_devices];
	enum err e = read_table(r, table, "device", keys, ARRAY_LEN(keys), &raw);
	if (e == OK)
		e = find_access_point(r, table, raw.access_point, &ap);
	if (e == OK)
		e = check_device(r, table, &raw, ap);
	if (e == OK && raw.profile)
		raw.profile = profile_of_station(raw.profile, t->n_devices);
	*d = raw.at;
	if (e == OK)
		e = make_delay(r, table, "device", &raw, &d->station.delay);
	if (e != OK)
		return e;
	memcpy(d->name, raw.name, NAME_CAP);
	d->delay_ns = raw.delay_ns;
	d->station.access_point = ap;
	d->station.air_bps = ap >= 0 ? t->access_points[ap].rate_bps : 0;
	d->station.up_bps = d->station.down_bps = raw.rate_bps;
	t->n_devices++;
	return OK;
}

static enum err find_device(struct reader *r, const struct toml_value *v, int32_t *out)
{
	char shown[NAME_CAP];
	if (v->type != TOML_STRING)
		return refuse_type(r, v, "link.between", "the names of two devices");
	printable_copy(v->text.data, v->text.len, shown, sizeof shown);
	struct suggest s = suggest_init(shown);
	for (int32_t i = 0; i < r->t->n_devices; i++)
		suggest_offer(&s, r->t->devices[i].name);
	*out = topology_find(r->t, shown);
	return *out >= 0 ? OK : no_such(r, v, "link.between", "device", &s);
}

static enum err read_link(struct reader *r, const struct toml_value *table)
{
	static const struct key keys[] = {{"between", set_value, AT(between), true}, LINK_KEYS};
	struct topology *t = r->t;
	struct raw_path raw = {.delay_ns = 0};
	struct topology_link *l = &t->links[t->n_links];
	enum err e = read_table(r, table, "link", keys, ARRAY_LEN(keys), &raw);
	if (e != OK)
		return e;
	const struct toml_value *v = raw.between;
	if (v->type != TOML_ARRAY || v->items.n != 2)
		return fail(r, v, "link.between", "want the names of two devices: [\"a\", \"b\"]");
	e = find_device(r, v->items.first, &l->a);
	if (e == OK)
		e = find_device(r, v->items.last, &l->b);
	if (e == OK && l->a == l->b)
		e = fail(r, v, "link.between", "want two different devices");
	for (int32_t i = 0; e == OK && i < t->n_links; i++)
		if ((t->links[i].a == l->a && t->links[i].b == l->b) || (t->links[i].a == l->b && t->links[i].b == l->a))
			e = fail(r, v, "link.between", "this pair has a link already");
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
	if (v == NULL)
		return OK;
	if (v->type != TOML_ARRAY || (v->items.first && v->items.first->type != TOML_TABLE))
		return fail(r, v, where, "got %s, want tables: [[%s]]", toml_type_name(v->type), where);
	if (v->items.n > max)
		return fail(r, v, where, "%d of them, want at most %d", v->items.n, max);
	enum err e = OK;
	for (const struct toml_value *t = v->items.first; t && e == OK; t = t->next)
		e = read(r, t);
	return e;
}

static enum err read_root(struct reader *r, const struct toml_value *root)
{
	static const struct key keys[] = {
		{"seed", set_seed, offsetof(struct raw_root, seed), false},
		{"subnet", set_subnet, offsetof(struct raw_root, subnet), false},
		{"network", set_value, offsetof(struct raw_root, network), false},
		{"access_point", set_value, offsetof(struct raw_root, access_points), false},
		{"device", set_value, offsetof(struct raw_root, devices), true},
		{"link", set_value, offsetof(struct raw_root, links), false},
	};
	struct topology *t = r->t;
	struct raw_root raw = {.seed = 1, .subnet = SUBNET_DEFAULT};
	enum err e = read_table(r, root, "", keys, ARRAY_LEN(keys), &raw);
	t->seed = raw.seed;
	t->subnet = raw.subnet;
	if (e == OK && raw.network)
		e = read_default_link(r, raw.network);
	if (e == OK)
		e = read_all(r, raw.access_points, "access_point", TOPOLOGY_ACCESS_POINTS_MAX, read_access_point);
	if (e == OK)
		e = read_all(r, raw.devices, "device", TOPOLOGY_DEVICES_MAX, read_device);
	if (e == OK && t->n_devices < 2)
		e = fail(r, raw.devices, "device", "%d of them, want at least 2", t->n_devices);
	return e == OK ? read_all(r, raw.links, "link", TOPOLOGY_LINKS_MAX, read_link) : e;
}

enum err topology_parse(const char *name, const char *text, size_t len, const struct trace_loader *loader, struct topology *out, struct errmsg *em)
{
	struct arena a;
	const struct toml_value *root;
	struct reader r = {.file = name, .loader = loader, .t = out, .em = em};
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
