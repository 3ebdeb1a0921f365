#include "coordinator/cluster_toml.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define HEAD_BYTES 512
#define DEVICE_BYTES 4096
#define LINK_BYTES 512
#define LINK_RATE_MIN 1e3 // bytes/s; what the reader takes
#define LINK_RATE_MAX 1e11

struct writer {
	char *out;
	size_t cap, len;
};

PRINTF_LIKE(2, 3)
static void put(struct writer *w, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(w->out + w->len, w->cap - w->len, fmt, ap);
	va_end(ap);
	if (n > 0)
		w->len = w->len + (size_t)n < w->cap ? w->len + (size_t)n : w->cap - 1;
}

size_t cluster_toml_bytes(int32_t n_devices)
{
	size_t n = (size_t)n_devices;
	return HEAD_BYTES + n * DEVICE_BYTES + n * n / 2 * LINK_BYTES;
}

// The reader's names have letters, digits, '.', '_' and '-'; a number keeps those apart that were changed.
struct device_name {
	char text[NAME_CAP + 8];
};

static bool is_taken(const struct cluster *c, const char *name)
{
	for (int32_t i = 0; i < c->n_devices; i++)
		if (strcmp(c->devices[i].name, name) == 0)
			return true;
	return false;
}

// add_number makes a changed name one that no other device has: numbers of different devices are never the same.
static void add_number(const struct cluster *c, int32_t device, char *end, size_t cap, const char *name)
{
	for (int32_t k = 0; k <= c->n_devices; k++) {
		snprintf(end, cap, "-%d", (int)(device + k * c->n_devices));
		if (!is_taken(c, name))
			return;
	}
}

static struct device_name name_of(const struct cluster *c, int32_t device)
{
	struct device_name n = {""};
	const char *name = c->devices[device].name;
	bool is_changed = false;
	size_t i = 0;
	for (; name[i] != '\0' && i < NAME_CAP - 6; i++) {
		char x = name[i];
		bool is_plain = (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || (x >= '0' && x <= '9') || x == '.' || x == '_' || x == '-';
		n.text[i] = is_plain ? x : '-';
		is_changed = is_changed || !is_plain;
	}
	if (is_changed || name[i] != '\0')
		add_number(c, device, n.text + i, sizeof n.text - i, n.text);
	return n;
}

static void put_rates(struct writer *w, const struct cluster_device *d)
{
	bool is_first = true;
	for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++) {
		if (d->cpu_rate_of[id] < 1)
			continue;
		put(w, "%s%s = \"%.0f B/s\"", is_first ? "cpu_read_of = { " : ", ", dtype_find(id)->name, d->cpu_rate_of[id]);
		is_first = false;
	}
	if (!is_first)
		put(w, " }\n");
}

static void put_device(struct writer *w, const struct cluster *c, int32_t device)
{
	const struct cluster_device *d = &c->devices[device];
	bool is_guess = (d->derived & CLUSTER_CPU_RATE) != 0;
	put(w, "\n[[device]]\nname = \"%s\"\n", name_of(c, device).text);
	if (d->derived & CLUSTER_CAP)
		put(w, "memory = { value = \"%" PRIu64 " B\", derived = \"what was free: no --mem was given\" }\n", d->cap_bytes);
	else
		put(w, "memory = \"%" PRIu64 " B\"\n", d->cap_bytes);
	put(w, "reserved = \"%" PRIu64 " B\"\n", d->reserved_bytes);
	put(w, is_guess ? "cpu_read = { value = \"%.0f B/s\", derived = \"not measured: a slow machine's\" }\n" : "cpu_read = \"%.0f B/s\"\n", d->cpu_rate);
	put_rates(w, d);
	if (d->cpu_flops >= 1)
		put(w, "cpu_flops = \"%.0f FLOP/s\"\n", d->cpu_flops);
	if (d->accel_bytes > 0)
		put(w, "accelerator = \"%" PRIu64 " B\"\naccelerator_read = \"%.0f B/s\"\n", d->accel_bytes, d->accel_rate);
	if (d->accel_bytes > 0 && d->accel_flops >= 1)
		put(w, "accelerator_flops = \"%.0f FLOP/s\"\n", d->accel_flops);
	if (d->disk_rate >= 1)
		put(w, "disk_read = \"%.0f B/s\"\n", d->disk_rate);
	put(w, "visit = \"%.0f ns\"\n", d->visit_s * 1e9);
}

static void put_link(struct writer *w, const struct cluster *c, int32_t i, int32_t j)
{
	const struct cluster_link *there = &c->links[i * c->n_devices + j], *back = &c->links[j * c->n_devices + i];
	put(w, "\n[[link]]\nbetween = [\"%s\", \"%s\"]\n", name_of(c, i).text, name_of(c, j).text);
	if (there->rate <= 0 || back->rate <= 0 || there->via > 0 || back->via > 0) { // read back, it goes the same way
		put(w, "cut = true%s\n", there->rate > 0 && back->rate > 0 ? " # through the coordinator, as far as is known: these two never were neighbours" : "");
		return;
	}
	double there_s = there->delay_s + there->software_s, back_s = back->delay_s + back->software_s;
	double delay_s = there_s > back_s ? there_s : back_s, rate = there->rate < back->rate ? there->rate : back->rate;
	rate = rate < LINK_RATE_MIN ? LINK_RATE_MIN : rate > LINK_RATE_MAX ? LINK_RATE_MAX : rate;
	put(w, "delay = \"%.0f ns\"\n", delay_s * 1e9);
	bool is_guess = there->derived || back->derived;
	if (is_guess && i == 0)
		put(w, "rate = { value = \"%.0f B/s\", derived = \"nothing large enough was sent between the coordinator and %s yet\" }\n", rate, name_of(c, j).text);
	else
		put(w, "rate = \"%.0f B/s\"%s\n", rate, is_guess ? " # not measured" : "");
}

size_t cluster_toml_write(const struct cluster_toml *t, char *out, size_t cap)
{
	struct writer w = {.out = out, .cap = cap};
	out[0] = '\0';
	put(&w, "# The machines as their coordinator knew them.\nname = \"live\"\nabout = \"as measured and observed by the running cluster\"\n\n[plan]\ncoordinator = \"%s\"\n%s",
		name_of(t->cluster, 0).text, t->head_can_hold ? "" : "coordinator_only = true\n");
	put(&w, "\n[serving]\nslots = %d\nctx = %d\nchunk = %d\n", (int)t->n_slots, (int)t->ctx_len, (int)t->chunk);
	for (int32_t i = 0; i < t->cluster->n_devices; i++)
		put_device(&w, t->cluster, i);
	for (int32_t i = 0; i < t->cluster->n_devices; i++)
		for (int32_t j = i + 1; j < t->cluster->n_devices; j++)
			put_link(&w, t->cluster, i, j);
	return w.len;
}
