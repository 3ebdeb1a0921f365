// Uploads to clients that are members and hostile: bytes become events in any order. The invariants hold after every event, who is served asked and
// gets its blocks in order, one client's queue is bounded, a limit is never passed; and what waits at the end is served when its deadlines say.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "blocks/manifest.h"
#include "blocks/upload.h"
#include "tests/support/fuzz.h"

#define S INT64_C(1000000000)
#define HANDLES (UPLOAD_CLIENTS_MAX + 6) // more than there are places; 0 is nobody

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct client {
	bool is_there;
	uint32_t blocks[UPLOAD_QUEUE_MAX]; // waiting, the oldest first
	int32_t n_waiting;
};

struct world {
	struct reader in;
	struct upload u;
	struct upload_effects fx;
	struct client clients[HANDLES];
	int32_t n_there, n_reading;
	int64_t begin_ns, now_ns;
};

static void note(struct world *w, const struct upload_event *ev, const struct upload_effect *e)
{
	require(e->client < HANDLES);
	struct client *c = &w->clients[e->client];
	if (e->type == UPLOAD_FX_REFUSE) {
		require(ev->type == UPLOAD_EV_ASKED && e->client == ev->client && e->block == ev->block);
		require(!c->is_there || c->n_waiting == UPLOAD_QUEUE_MAX);
		return;
	}
	require(c->is_there && c->n_waiting > 0 && c->blocks[0] == e->block);
	memmove(c->blocks, c->blocks + 1, (size_t)--c->n_waiting * sizeof c->blocks[0]);
	require(++w->n_reading <= w->u.limits.reads_max);
}

// within: what was read so far is what the limit lets through, a burst, and the block that it ended with.
static bool within(const struct world *w)
{
	double rate = (double)w->u.limits.rate_max, span_s = (double)(w->now_ns - w->begin_ns) / 1e9;
	double burst = rate / 20 > 512 * 1024 ? rate / 20 : 512 * 1024;
	return rate <= 0 || (double)w->u.n_bytes <= rate * span_s * 1.000001 + burst + BLOCK_BYTES_MAX;
}

static void step(struct world *w, struct upload_event ev)
{
	ev.now_ns = w->now_ns;
	bool is_refused = false;
	upload_step(&w->u, &ev, &w->fx);
	upload_check(&w->u);
	for (int32_t i = 0; i < w->fx.n; i++)
		is_refused = is_refused || w->fx.at[i].type == UPLOAD_FX_REFUSE;
	if (ev.type == UPLOAD_EV_ASKED && !is_refused) {
		struct client *c = &w->clients[ev.client];
		require(c->is_there && c->n_waiting < UPLOAD_QUEUE_MAX);
		c->blocks[c->n_waiting++] = ev.block;
	}
	for (int32_t i = 0; i < w->fx.n; i++)
		note(w, &ev, &w->fx.at[i]);
	require(upload_deadline_ns(&w->u) > w->now_ns);
	require(within(w));
}

static void come(struct world *w, uint32_t client)
{
	struct client *c = &w->clients[client];
	bool fits = client != 0 && (c->is_there || w->n_there < UPLOAD_CLIENTS_MAX);
	w->n_there += fits && !c->is_there;
	if (fits)
		*c = (struct client){.is_there = true};
	step(w, (struct upload_event){.type = UPLOAD_EV_CLIENT_UP, .client = client});
}

static void go(struct world *w, uint32_t client)
{
	w->n_there -= w->clients[client].is_there;
	w->clients[client] = (struct client){0};
	step(w, (struct upload_event){.type = UPLOAD_EV_CLIENT_DOWN, .client = client});
}

static void ask(struct world *w, uint32_t client, uint8_t how)
{
	static const uint32_t bytes[] = {1, 4096, BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MAX};
	int n = how & 0x80 ? UPLOAD_QUEUE_MAX + 20 : 1 + how % 8; // a flood, or some
	for (int i = 0; i < n; i++)
		step(w, (struct upload_event){.type = UPLOAD_EV_ASKED, .client = client, .block = (uint32_t)(how * 7 + i), .bytes = bytes[how / 8 % 4]});
}

static void one_event(struct world *w)
{
	uint8_t op = reader_u8(&w->in);
	uint32_t client = reader_u8(&w->in) % HANDLES;
	switch (op % 9) {
	case 0: come(w, client); break;
	case 1: go(w, client); break;
	case 2:
	case 3: ask(w, client, reader_u8(&w->in)); break;
	case 4:
		if (w->n_reading > 0) {
			w->n_reading--;
			step(w, (struct upload_event){.type = UPLOAD_EV_DONE, .client = client});
		}
		break;
	case 5: step(w, (struct upload_event){.type = UPLOAD_EV_BLOCKED, .client = client}); break;
	case 6: step(w, (struct upload_event){.type = UPLOAD_EV_WRITABLE, .client = client}); break;
	case 7: step(w, (struct upload_event){.type = UPLOAD_EV_WORK}); break;
	case 8:
		w->now_ns += (int64_t)client * client * (S / 1000); // up to five seconds
		step(w, (struct upload_event){.type = UPLOAD_EV_TICK});
		break;
	}
}

static int32_t count_waiting(const struct world *w)
{
	int32_t n = 0;
	for (size_t i = 0; i < HANDLES; i++)
		n += w->clients[i].n_waiting;
	return n;
}

// drain: links take what comes, reads end, and time passes to each deadline and no further.
static void drain(struct world *w)
{
	int32_t n_idle = 0;
	for (uint32_t i = 1; i < HANDLES; i++)
		step(w, (struct upload_event){.type = UPLOAD_EV_WRITABLE, .client = i});
	while (count_waiting(w) > 0) {
		int32_t before = count_waiting(w);
		if (w->n_reading > 0) {
			w->n_reading--;
			step(w, (struct upload_event){.type = UPLOAD_EV_DONE});
			continue;
		}
		int64_t deadline_ns = upload_deadline_ns(&w->u);
		require(deadline_ns != INT64_MAX);
		w->now_ns = deadline_ns;
		step(w, (struct upload_event){.type = UPLOAD_EV_TICK});
		n_idle = count_waiting(w) < before ? 0 : n_idle + 1;
		require(n_idle < 4); // the end of the work is a deadline, too
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t rates[] = {0, 1, 100 * 1024, 10u << 20, UINT64_C(10) << 30, UINT64_MAX};
	struct world w = {.in = reader_init(data, size), .begin_ns = 1000 * S, .now_ns = 1000 * S};
	struct upload_limits limits = upload_limits_default;
	limits.reads_max = 1 + reader_u8(&w.in) % UPLOAD_READS_MAX;
	limits.rate_max = rates[reader_u8(&w.in) % ARRAY_LEN(rates)];
	limits.busy_rate = rates[reader_u8(&w.in) % ARRAY_LEN(rates)];
	upload_init(&w.u, &limits, w.now_ns);
	while (w.in.left > 0)
		one_event(&w);
	drain(&w);
	return 0;
}
