#include "node/shell/dialer.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define URL_CAP (ADDR_CAP + 8)
#define N_FAMILIES 2 // a host name may mean an IPv4 and an IPv6 address, and NNG looks at the first one only

struct dialer {
	struct loop *loop;
	struct dialer_params params;
	struct backoff backoff;
	struct loop_timer timer; // the next attempt; not set while one is under way, or none is wanted
	struct link *up;         // the link the host has
	struct link *next;       // the attempt under way
	int64_t up_ns;
	uint32_t at;        // of n_addrs(d) * N_FAMILIES: what the next attempt tries
	char addr[URL_CAP]; // of the attempt under way
};

static bool is_numeric(const char *addr)
{
	return addr[0] == '[' || strspn(addr, "0123456789.") == strcspn(addr, ":");
}

static uint32_t n_addrs(const struct dialer *d)
{
	return d->params.n_addrs + (d->params.more != NULL ? d->params.more->n : 0);
}

// put_url writes what position `at` tries, or returns false when there is nothing to try there.
static bool put_url(struct dialer *d)
{
	uint32_t i = d->at / N_FAMILIES, family = d->at % N_FAMILIES;
	if (i >= n_addrs(d))
		return false;
	const char *addr = i < d->params.n_addrs ? d->params.addrs[i] : d->params.more->at[i - d->params.n_addrs];
	if (strstr(addr, "://") != NULL)
		snprintf(d->addr, sizeof d->addr, "%s", addr);
	else if (is_numeric(addr))
		snprintf(d->addr, sizeof d->addr, "tcp://%s", addr);
	else {
		snprintf(d->addr, sizeof d->addr, "%s://%s", family == 0 ? "tcp4" : "tcp6", addr);
		return true;
	}
	return family == 0;
}

// plan_next moves to the next address and returns when to try it: at once, or after a pause when all have been tried.
static int64_t plan_next(struct dialer *d)
{
	int64_t now_ns = loop_now_ns(d->loop);
	do {
		d->at++;
		if (d->at >= n_addrs(d) * N_FAMILIES) {
			d->at = 0;
			return now_ns + backoff_next_ns(&d->backoff);
		}
	} while (!put_url(d));
	return now_ns;
}

static void on_attempt_failed(struct dialer *d, const struct link_down *down)
{
	char addr[URL_CAP];
	memcpy(addr, d->addr, sizeof addr);
	int64_t next_ns = plan_next(d);
	loop_timer_set(d->loop, &d->timer, next_ns);
	if (d->params.on_failed != NULL)
		d->params.on_failed(d->params.ctx, addr, down, next_ns); // may close the dialer
}

// ---- The links' events ----

static void on_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct dialer *d = ctx;
	ASSERT(link == d->next);
	struct link *old = d->up;
	d->up = link;
	d->next = NULL;
	d->up_ns = loop_now_ns(d->loop);
	if (old != NULL) {
		link_set_callbacks(old, &d->params.callbacks); // its on_down is none of ours any more
		link_close(old);
	}
	d->params.callbacks.on_up(d->params.callbacks.ctx, link, info);
}

static void on_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct dialer *d = ctx;
	d->params.callbacks.on_frame(d->params.callbacks.ctx, link, frame, len);
}

static void on_writable(void *ctx, struct link *link)
{
	struct dialer *d = ctx;
	if (d->params.callbacks.on_writable != NULL)
		d->params.callbacks.on_writable(d->params.callbacks.ctx, link);
}

static void on_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct dialer *d = ctx;
	if (link == d->next) {
		d->next = NULL;
		on_attempt_failed(d, down);
		return;
	}
	ASSERT(link == d->up);
	d->up = NULL;
	backoff_ended(&d->backoff, loop_now_ns(d->loop) - d->up_ns);
	if (d->next == NULL) // a renewal under way becomes the new link
		loop_timer_set(d->loop, &d->timer, loop_now_ns(d->loop) + backoff_next_ns(&d->backoff));
	d->params.callbacks.on_down(d->params.callbacks.ctx, link, down); // may close the dialer
}

// ---- Attempts ----

static void attempt(void *ctx)
{
	struct dialer *d = ctx;
	ASSERT(d->next == NULL);
	struct lnk1_client_params params = {0};
	if (!d->params.params(d->params.ctx, &params)) {
		sodium_memzero(&params, sizeof params);
		loop_timer_set(d->loop, &d->timer, loop_now_ns(d->loop) + backoff_next_ns(&d->backoff));
		return;
	}
	if (!put_url(d)) { // plan_next stopped where there was something to try, and it is gone
		d->at = 0;
		bool has_url = put_url(d);
		ASSERT(has_url);
	}
	const struct link_callbacks callbacks = {d, on_up, on_frame, on_down, on_writable};
	struct errmsg em;
	enum err e = link_dial(d->loop, d->addr, &params, d->params.limits, &callbacks, &d->next, &em);
	sodium_memzero(&params, sizeof params);
	if (e != OK) {
		d->next = NULL;
		struct link_down down = {.reason = LINK_DOWN_NO_CONNECTION, .stream = STREAM_NO_ADDR, .text = em.text};
		on_attempt_failed(d, &down);
	}
}

// ---- What the host calls ----

enum err dialer_open(struct dialer **out, struct loop *loop, const struct dialer_params *params, struct errmsg *em)
{
	*out = NULL;
	if (params->n_addrs < 1 || params->n_addrs > ADDRS_MAX)
		return errmsg_fail(em, ERR_RANGE, "%u addresses to dial (want 1 to %d)", params->n_addrs, ADDRS_MAX);
	struct dialer *d = calloc(1, sizeof *d);
	if (d == NULL)
		return errmsg_fail(em, ERR_NOMEM, "out of memory");
	d->loop = loop;
	d->params = *params;
	backoff_init(&d->backoff, params->backoff, params->seed);
	loop_timer_init(&d->timer, attempt, d);
	loop_timer_set(loop, &d->timer, loop_now_ns(loop));
	*out = d;
	return OK;
}

void dialer_close(struct dialer *d, bool orderly)
{
	if (d == NULL)
		return;
	loop_timer_clear(d->loop, &d->timer);
	if (d->next != NULL)
		link_abort(d->next);
	if (d->up != NULL && orderly) {
		link_set_callbacks(d->up, &d->params.callbacks);
		link_close(d->up);
	} else if (d->up != NULL) {
		link_abort(d->up);
	}
	free(d);
}

void dialer_renew(struct dialer *d)
{
	if (d->up == NULL || d->next != NULL || d->timer.is_set) // a new link is on its way already
		return;
	loop_timer_set(d->loop, &d->timer, loop_now_ns(d->loop));
}

struct link *dialer_link(const struct dialer *d)
{
	return d->up;
}
