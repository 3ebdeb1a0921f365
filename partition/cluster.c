#include "partition/cluster.h"

#include "base/assert.h"
#include "model/hparams.h"

#include <stdio.h>
#include <string.h>

#define BITS_PER_WEIGHT 4.5 // when nobody said: q4_0, q4_k

// is_within is false for NaN.
static bool is_within(double v, double min, double max)
{
	return v >= min && v <= max;
}

static enum err check_bytes(const char *who, const char *what, uint64_t v, uint64_t min, struct errmsg *em)
{
	if (v >= min && v <= CLUSTER_BYTES_MAX)
		return OK;
	return errmsg_fail(em, ERR_RANGE, "%.64s: %s is %llu bytes, want %llu to %llu", who, what, (unsigned long long)v,
		(unsigned long long)min, (unsigned long long)CLUSTER_BYTES_MAX);
}

static enum err check_number(
	const char *who, const char *what, double v, double min, double max, const char *unit, struct errmsg *em)
{
	if (is_within(v, min, max))
		return OK;
	return errmsg_fail(em, ERR_RANGE, "%.64s: %s is %g %s, want %g to %g", who, what, v, unit, min, max);
}

static enum err check_cpu(const struct cluster_device *d, struct errmsg *em)
{
	enum err e = check_number(d->name, "cpu rate", d->cpu_rate, 1, CLUSTER_RATE_MAX, "bytes/s", em);
	for (uint32_t id = 0; id <= DTYPE_ID_MAX && e == OK; id++) {
		char what[40];
		if (d->cpu_rate_of[id] == 0 || is_within(d->cpu_rate_of[id], 1, CLUSTER_RATE_MAX))
			continue;
		const struct dtype_info *type = dtype_find(id);
		snprintf(what, sizeof what, "cpu rate of %s", type ? type->name : "an unknown type");
		e = check_number(d->name, what, d->cpu_rate_of[id], 1, CLUSTER_RATE_MAX, "bytes/s", em);
	}
	if (e == OK && d->cpu_flops != 0)
		e = check_number(d->name, "cpu flops", d->cpu_flops, 1, CLUSTER_RATE_MAX, "FLOP/s", em);
	return e;
}

static enum err check_accel(const struct cluster_device *d, struct errmsg *em)
{
	enum err e = check_bytes(d->name, "accelerator memory", d->accel_bytes, 0, em);
	if (e == OK && d->accel_bytes > 0)
		e = check_number(d->name, "accelerator rate", d->accel_rate, 1, CLUSTER_RATE_MAX, "bytes/s", em);
	if (e == OK && d->accel_bytes > 0 && d->accel_flops != 0)
		e = check_number(d->name, "accelerator flops", d->accel_flops, 1, CLUSTER_RATE_MAX, "FLOP/s", em);
	return e;
}

static enum err check_device(const struct cluster_device *d, struct errmsg *em)
{
	if (d->name[0] == '\0' || memchr(d->name, '\0', sizeof d->name) == NULL)
		return errmsg_fail(em, ERR_RANGE, "a device has no name, or one longer than %d bytes", NAME_CAP - 1);
	enum err e = check_bytes(d->name, "memory", d->cap_bytes, 1, em);
	if (e == OK)
		e = check_bytes(d->name, "reserved memory", d->reserved_bytes, 0, em);
	if (e == OK && d->reserved_bytes >= d->cap_bytes)
		e = errmsg_fail(em, ERR_RANGE, "%s: of %llu bytes of memory %llu are reserved, which leaves nothing for weights",
			d->name, (unsigned long long)d->cap_bytes, (unsigned long long)d->reserved_bytes);
	if (e == OK)
		e = check_cpu(d, em);
	if (e == OK)
		e = check_accel(d, em);
	if (e == OK && d->disk_rate != 0)
		e = check_number(d->name, "disk rate", d->disk_rate, 1, CLUSTER_RATE_MAX, "bytes/s", em);
	return e == OK ? check_number(d->name, "cost of a visit", d->visit_s, 0, CLUSTER_DELAY_MAX, "s", em) : e;
}

static enum err check_link(const struct cluster_link *l, const char *who, struct errmsg *em)
{
	if (l->rate == 0)
		return OK;
	enum err e = check_number(who, "link rate", l->rate, 1, CLUSTER_RATE_MAX, "bytes/s", em);
	if (e == OK)
		e = check_number(who, "link delay", l->delay_s, 0, CLUSTER_DELAY_MAX, "s", em);
	return e == OK ? check_number(who, "link software cost", l->software_s, 0, CLUSTER_DELAY_MAX, "s", em) : e;
}

// check_via: who passes on reaches both ends by links of its own.
static enum err check_via(const struct cluster *c, int32_t from, int32_t to, struct errmsg *em)
{
	int32_t n = c->n_devices, via = c->links[(size_t)from * (size_t)n + (size_t)to].via - 1;
	if (via < -1 || via >= n || via == from || via == to)
		return errmsg_fail(em, ERR_RANGE, "%.64s: device %d of %d passes on what goes to %.64s", c->devices[from].name, via, n, c->devices[to].name);
	if (via < 0)
		return OK;
	const struct cluster_link *there = &c->links[(size_t)from * (size_t)n + (size_t)via], *on = &c->links[(size_t)via * (size_t)n + (size_t)to];
	if (there->rate > 0 && there->via == 0 && on->rate > 0 && on->via == 0)
		return OK;
	return errmsg_fail(em, ERR_RANGE, "%.64s passes on what goes from %.64s to %.64s, and does not reach both", c->devices[via].name,
		c->devices[from].name, c->devices[to].name);
}

static enum err check_links(const struct cluster *c, struct errmsg *em)
{
	enum err e = OK;
	for (int32_t i = 0; i < c->n_devices && e == OK; i++) {
		if (c->links == NULL)
			e = check_link(&c->attach[i], c->devices[i].name, em);
		for (int32_t j = 0; c->links != NULL && j < c->n_devices && e == OK; j++) {
			if (i != j)
				e = check_link(&c->links[(size_t)i * (size_t)c->n_devices + (size_t)j], c->devices[i].name, em);
			if (i != j && e == OK)
				e = check_via(c, i, j, em);
		}
	}
	return e;
}

enum err cluster_check(const struct cluster *c, struct errmsg *em)
{
	if (c->n_devices < 1 || c->n_devices > CLUSTER_DEVICES_MAX)
		return errmsg_fail(em, ERR_RANGE, "%d devices, want 1 to %d", c->n_devices, CLUSTER_DEVICES_MAX);
	if (c->links == NULL && c->attach == NULL)
		return errmsg_fail(
			em, ERR_RANGE, "no links: want one for each pair of devices, or each device's way to the access point");
	for (int32_t i = 0; i < c->n_devices; i++) {
		enum err e = check_device(&c->devices[i], em);
		if (e != OK)
			return e;
		for (int32_t j = 0; j < i; j++)
			if (strcmp(c->devices[i].name, c->devices[j].name) == 0)
				return errmsg_fail(em, ERR_RANGE, "two devices are called %s", c->devices[i].name);
	}
	return check_links(c, em);
}

enum err model_shape_check(const struct model_shape *s, struct errmsg *em)
{
	if (s->n_layers < 1 || s->n_layers > LAYERS_MAX)
		return errmsg_fail(em, ERR_RANGE, "model: %d layers, want 1 to %d", s->n_layers, LAYERS_MAX);
	enum err e = check_bytes("model", "a layer", s->layer_bytes, 1, em);
	for (int32_t i = 0; s->bytes_of_layer && i < s->n_layers && e == OK; i++) {
		char what[24];
		if (s->bytes_of_layer[i] >= 1 && s->bytes_of_layer[i] <= s->layer_bytes)
			continue;
		snprintf(what, sizeof what, "layer %d", i);
		e = check_bytes("model", what, s->bytes_of_layer[i], 1, em);
		if (e == OK && s->bytes_of_layer[i] > s->layer_bytes)
			e = errmsg_fail(em, ERR_RANGE, "model: layer %d has %llu bytes, the largest is said to have %llu", i,
				(unsigned long long)s->bytes_of_layer[i], (unsigned long long)s->layer_bytes);
	}
	if (e == OK)
		e = check_bytes("model", "the output head", s->head_bytes, 0, em);
	if (e == OK)
		e = check_bytes("model", "one position's keys and values", s->kv_bytes, 0, em);
	if (e == OK)
		e = check_bytes("model", "one hidden state on the wire", s->hop_bytes, 1, em);
	if (e == OK)
		e = check_number("model", "the experts' part of a layer", s->expert_share, 0, 1, "", em);
	if (e == OK && s->expert_share > 0 && (s->n_experts_used < 1 || s->n_experts_used > s->split.n_experts))
		e = errmsg_fail(em, ERR_RANGE, "model: a token uses %d of %d experts", s->n_experts_used, s->split.n_experts);
	if (e == OK)
		e = check_number("model", "arithmetic of a layer", s->layer_flops, 0, 1e18, "FLOP", em);
	if (e == OK)
		e = check_number("model", "arithmetic of the head", s->head_flops, 0, 1e18, "FLOP", em);
	return e == OK ? check_number("model", "arithmetic of attention", s->attn_flops, 0, 1e18, "FLOP", em) : e;
}

static bool add_matrix(enum dtype type, int32_t rows, int32_t cols, uint64_t *bytes)
{
	size_t row;
	if (!dtype_row_bytes(type, (uint64_t)cols, &row))
		return false;
	*bytes += (uint64_t)row * (uint64_t)rows;
	return true;
}

enum err model_shape_of(const struct hparams *hp, enum dtype type, enum dtype head_type, uint64_t hop_bytes,
	struct model_shape *out, struct errmsg *em)
{
	enum err e = hparams_check(hp, em);
	if (e != OK)
		return e;
	int32_t q_dim = hp->n_heads * hp->head_dim, kv_dim = hp->n_kv_heads * hp->head_dim, d = hp->hidden_dim, f = hp->ffn_dim;
	uint64_t layer = (uint64_t)d * 2 * sizeof(float), head = 0, ffn = 0; // two norms
	bool ok = add_matrix(type, q_dim, d, &layer) && add_matrix(type, kv_dim, d, &layer) &&
		add_matrix(type, kv_dim, d, &layer) && add_matrix(type, d, q_dim, &layer) && add_matrix(type, f, d, &ffn) &&
		add_matrix(type, f, d, &ffn) && add_matrix(type, d, f, &ffn) &&
		add_matrix(head_type, hp->vocab_size, d, &head);
	uint64_t experts = ffn * (uint64_t)hp->n_experts;
	layer += hp->n_experts > 0 ? experts : ffn;
	double n_ffn = hp->n_experts > 0 ? hp->n_experts_used : 1;
	if (!ok)
		return errmsg_fail(em, ERR_RANGE, "model: rows of %d, %d or %d values are no whole blocks of %s or %s", d, q_dim,
			f, dtype_find(type)->name, dtype_find(head_type)->name);
	*out = (struct model_shape){
		.n_layers = hp->n_layers,
		.layer_bytes = layer,
		.kv_bytes = (uint64_t)kv_dim * 2 * sizeof(uint16_t), // f16, as the engine keeps them
		.head_bytes = head,
		.hop_bytes = hop_bytes,
		.layer_flops = 2.0 * d * (2.0 * q_dim + 2.0 * kv_dim + 3.0 * f * n_ffn),
		.head_flops = 2.0 * d * hp->vocab_size,
		.attn_flops = 4.0 * q_dim,
		.split = {.n_heads = hp->n_heads,
			.n_kv_heads = hp->n_kv_heads,
			.head_dim = hp->head_dim,
			.hidden_dim = d,
			.ffn_dim = f,
			.n_experts = hp->n_experts},
		.n_experts_used = hp->n_experts_used,
		.expert_share = (double)experts / (double)layer,
		.type = type,
	};
	split_shape_add(&out->split, type, type);
	return model_shape_check(out, em);
}

void model_shape_count(struct model_shape *s, const struct model_counted *from)
{
	s->type = from->type;
	s->head_bytes = from->head_bytes;
	s->bytes_of_layer = from->bytes_of_layer;
	s->layer_bytes = 0;
	s->split.o_block = 0; // not of one type any more
	double sum = 0;
	for (int32_t i = 0; i < s->n_layers; i++) {
		split_shape_add(&s->split, from->o[i], from->down[i]);
		sum += (double)s->bytes_of_layer[i];
		if (s->bytes_of_layer[i] > s->layer_bytes)
			s->layer_bytes = s->bytes_of_layer[i];
	}
	s->expert_share = s->split.n_experts > 0 && sum > 0 ? (double)from->expert_bytes / sum : 0;
}

double model_shape_expert_share(const struct model_shape *s, int32_t n_tokens)
{
	double unused = 1, one = 1 - (double)s->n_experts_used / s->split.n_experts;
	for (int32_t n = n_tokens > 1 ? n_tokens : 1; n > 0; n /= 2, one *= one)
		unused *= n % 2 != 0 ? one : 1;
	return 1 - unused;
}

double model_shape_read_share(const struct model_shape *s, int32_t n_tokens)
{
	return s->expert_share > 0 ? 1 - s->expert_share * (1 - model_shape_expert_share(s, n_tokens)) : 1;
}

uint64_t model_shape_layer_bytes(const struct model_shape *s, int32_t layer)
{
	ASSERT(layer >= 0 && layer < s->n_layers);
	return s->bytes_of_layer ? s->bytes_of_layer[layer] : s->layer_bytes;
}

uint64_t model_shape_total_bytes(const struct model_shape *s)
{
	uint64_t sum = s->head_bytes;
	for (int32_t i = 0; i < s->n_layers; i++)
		sum += model_shape_layer_bytes(s, i);
	return sum;
}

double model_shape_layer_flops(const struct model_shape *s, int32_t layer)
{
	return s->layer_flops > 0 ? s->layer_flops : 2.0 * (double)model_shape_layer_bytes(s, layer) * 8 / BITS_PER_WEIGHT;
}

double model_shape_head_flops(const struct model_shape *s)
{
	return s->head_flops > 0 ? s->head_flops : 2.0 * (double)s->head_bytes * 8 / BITS_PER_WEIGHT;
}

double cluster_cpu_rate(const struct cluster_device *d, enum dtype type)
{
	return d->cpu_rate_of[type] > 0 ? d->cpu_rate_of[type] : d->cpu_rate;
}

struct cluster_link cluster_link_via(const struct cluster_link *there, const struct cluster_link *on, int32_t via)
{
	if (there->rate <= 0 || on->rate <= 0)
		return (struct cluster_link){.rate = 0};
	return (struct cluster_link){.delay_s = there->delay_s + on->delay_s,
		.rate = 1 / (1 / there->rate + 1 / on->rate),
		.software_s = there->software_s + on->software_s,
		.via = via + 1,
		.derived = there->derived || on->derived};
}

static bool add_hop(const struct cluster_link *l, double bytes, double *seconds)
{
	if (l->rate <= 0)
		return false;
	*seconds += l->delay_s + bytes / l->rate + l->software_s;
	return true;
}

bool cluster_hop(const struct cluster *c, int32_t from, int32_t to, double bytes, double *seconds)
{
	ASSERT(from >= 0 && from < c->n_devices);
	ASSERT(to >= 0 && to < c->n_devices);
	*seconds = 0;
	if (from == to)
		return true;
	if (c->links)
		return add_hop(&c->links[(size_t)from * (size_t)c->n_devices + (size_t)to], bytes, seconds);
	return add_hop(&c->attach[from], bytes, seconds) && add_hop(&c->attach[to], bytes, seconds);
}
