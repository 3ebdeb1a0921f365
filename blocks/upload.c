#include "blocks/upload.h"

#include "base/assert.h"

#include <string.h>

#define SECOND INT64_C(1000000000)
#define BURST_NS (SECOND / 20)       // what a bucket may have saved: one block or two on a slow link
#define BURST_LEAST (512 * 1024)
#define SEEN_LEAST_NS (SECOND / 4)   // a rate over less says nothing

const struct upload_limits upload_limits_default = {
	.reads_max = 4,
	.busy_ns = SECOND,
	.rate_max = 0,
	.busy_rate = 0,
	.busy_rate_min = 2u << 20, // 17 Mbit/s: half of what poor Wi-Fi carries
};

void upload_init(struct upload *u, const struct upload_limits *limits, int64_t now_ns)
{
	memset(u, 0, sizeof *u);
	ASSERT(limits->reads_max >= 1 && limits->reads_max <= UPLOAD_READS_MAX);
	u->limits = *limits;
	u->now_ns = u->filled_ns = u->seen_ns = now_ns;
	u->work_ns = now_ns - limits->busy_ns - 1;
}

static struct upload_client *find_client(struct upload *u, uint32_t handle)
{
	for (int32_t i = 0; i < UPLOAD_CLIENTS_MAX; i++)
		if (u->clients[i].handle == handle)
			return &u->clients[i];
	return NULL;
}

static void add(struct upload_effects *fx, enum upload_effect_type type, uint32_t client, uint32_t block)
{
	ASSERT(fx->n < UPLOAD_EFFECTS_MAX);
	fx->at[fx->n++] = (struct upload_effect){.type = type, .client = client, .block = block};
}

// ---- the limit

static bool is_working(const struct upload *u)
{
	return u->now_ns - u->work_ns <= u->limits.busy_ns;
}

uint64_t upload_rate(const struct upload *u)
{
	uint64_t rate = u->limits.rate_max;
	if (!is_working(u))
		return rate;
	uint64_t busy = u->limits.busy_rate;
	if (busy == 0)
		busy = u->best_rate / 4 > u->limits.busy_rate_min ? u->best_rate / 4 : u->limits.busy_rate_min;
	return rate == 0 || busy < rate ? busy : rate;
}

static void fill(struct upload *u)
{
	uint64_t rate = upload_rate(u);
	int64_t span = u->now_ns - u->filled_ns;
	u->filled_ns = u->now_ns;
	if (rate == 0) {
		u->tokens = 0;
		return;
	}
	double got = (double)rate * (double)span / (double)SECOND;
	double burst = (double)rate * (double)BURST_NS / (double)SECOND;
	burst = burst > BURST_LEAST ? burst : BURST_LEAST;
	double tokens = (double)u->tokens + got;
	u->tokens = (int64_t)(tokens < burst ? tokens : burst);
}

// has_demand: somebody waits who could be served.
static bool has_demand(const struct upload *u)
{
	for (int32_t i = 0; i < UPLOAD_CLIENTS_MAX; i++)
		if (u->clients[i].handle != 0 && u->clients[i].n_waiting > 0)
			return true;
	return false;
}

// note_rate learns what uploads reach when nothing holds them back.
static void note_rate(struct upload *u)
{
	int64_t span = u->now_ns - u->seen_ns;
	bool is_free = upload_rate(u) == 0 && (has_demand(u) || u->n_reading > 0);
	if (is_free && span < SEEN_LEAST_NS)
		return;
	if (is_free) {
		uint64_t rate = (uint64_t)((double)u->free_bytes * (double)SECOND / (double)span);
		u->best_rate = rate > u->best_rate ? rate : u->best_rate;
	}
	u->seen_ns = u->now_ns;
	u->free_bytes = 0;
}

// ---- turns

static bool read_one(struct upload *u, struct upload_client *c, struct upload_effects *fx)
{
	bool may = u->n_reading < u->limits.reads_max && (upload_rate(u) == 0 || u->tokens > 0) && fx->n < UPLOAD_EFFECTS_MAX;
	if (!may || c->handle == 0 || c->is_blocked || c->n_waiting == 0)
		return false;
	uint32_t bytes = c->waiting[c->first].bytes;
	add(fx, UPLOAD_FX_READ, c->handle, c->waiting[c->first].block);
	c->first = (c->first + 1) % UPLOAD_QUEUE_MAX;
	c->n_waiting--;
	c->n_blocks++;
	u->n_reading++;
	u->n_blocks++;
	u->n_bytes += bytes;
	u->free_bytes += bytes;
	u->tokens -= bytes;
	return true;
}

static void pump(struct upload *u, struct upload_effects *fx)
{
	int32_t n_idle = 0;
	while (n_idle < UPLOAD_CLIENTS_MAX) {
		n_idle = read_one(u, &u->clients[u->turn % UPLOAD_CLIENTS_MAX], fx) ? 0 : n_idle + 1;
		u->turn++;
	}
}

static void on_client_up(struct upload *u, uint32_t handle)
{
	struct upload_client *c = find_client(u, handle);
	c = c != NULL ? c : find_client(u, 0);
	if (c != NULL && handle != 0)
		*c = (struct upload_client){.handle = handle};
}

static void on_asked(struct upload *u, const struct upload_event *ev, struct upload_effects *fx)
{
	struct upload_client *c = ev->client != 0 ? find_client(u, ev->client) : NULL;
	if (c == NULL || c->n_waiting == UPLOAD_QUEUE_MAX) {
		add(fx, UPLOAD_FX_REFUSE, ev->client, ev->block);
		return;
	}
	int32_t at = (c->first + c->n_waiting++) % UPLOAD_QUEUE_MAX;
	c->waiting[at].block = ev->block;
	c->waiting[at].bytes = ev->bytes;
}

void upload_step(struct upload *u, const struct upload_event *ev, struct upload_effects *fx)
{
	struct upload_client *c = ev->client != 0 ? find_client(u, ev->client) : NULL;
	fx->n = 0;
	u->now_ns = ev->now_ns;
	note_rate(u);
	fill(u);
	switch (ev->type) {
	case UPLOAD_EV_CLIENT_UP: on_client_up(u, ev->client); break;
	case UPLOAD_EV_CLIENT_DOWN:
		if (c != NULL)
			memset(c, 0, sizeof *c);
		break;
	case UPLOAD_EV_ASKED: on_asked(u, ev, fx); break;
	case UPLOAD_EV_DONE:
		ASSERT(u->n_reading > 0);
		u->n_reading--;
		break;
	case UPLOAD_EV_BLOCKED:
	case UPLOAD_EV_WRITABLE:
		if (c != NULL)
			c->is_blocked = ev->type == UPLOAD_EV_BLOCKED;
		break;
	case UPLOAD_EV_WORK:
		if (!is_working(u) && u->tokens > 0)
			u->tokens = 0; // nothing was saved while there was no limit; what is owed stays owed
		u->work_ns = ev->now_ns;
		break;
	case UPLOAD_EV_TICK: break;
	}
	pump(u, fx);
}

int64_t upload_deadline_ns(const struct upload *u)
{
	uint64_t rate = upload_rate(u);
	if (rate == 0 || u->tokens > 0 || u->n_reading >= u->limits.reads_max || !has_demand(u))
		return INT64_MAX;
	int64_t paid_ns = u->now_ns + (int64_t)((double)(1 - u->tokens) * (double)SECOND / (double)rate) + 1, free_ns = u->work_ns + u->limits.busy_ns + 1;
	return is_working(u) && free_ns < paid_ns ? free_ns : paid_ns;
}

void upload_check(const struct upload *u)
{
	ASSERT(u->n_reading >= 0 && u->n_reading <= u->limits.reads_max);
	for (int32_t i = 0; i < UPLOAD_CLIENTS_MAX; i++) {
		ASSERT(u->clients[i].n_waiting >= 0 && u->clients[i].n_waiting <= UPLOAD_QUEUE_MAX);
		ASSERT(u->clients[i].handle != 0 || u->clients[i].n_waiting == 0);
	}
}
