#include "sim/shell/emulate_state.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 128
#define RETRY_NS INT64_C(1000000000) // what the network swallowed without a cut (a restarting access point) is tried again so often
#define SPARE_DESCRIPTORS 64         // files, the control socket and its clients

int64_t emulate_clock(struct emulate *e)
{
	int64_t now_ns = poller_clock_ns() - e->start_ns;
	e->now_ns = now_ns > e->now_ns ? now_ns : e->now_ns;
	return e->now_ns;
}

void emulate_tell(struct emulate *e, struct emulate_event ev)
{
	ev.at_ns = e->now_ns;
	if (e->callbacks.on_event != NULL)
		e->callbacks.on_event(e->callbacks.ctx, &ev);
}

// ---- Accepting

static int32_t device_of(const struct topology *t, uint32_t ip)
{
	for (int32_t i = 0; i < t->n_devices; i++)
		if (topology_device_ip(t, i) == ip)
			return i;
	return -1;
}

static void refuse(struct emulate *e, int fd, int32_t from, int32_t to, const char *why)
{
	reset_socket(fd);
	emulate_clock(e);
	emulate_tell(e, (struct emulate_event){.type = EMULATE_REFUSED, .from = from, .to = to, .text = why});
}

// make_room ends the oldest connection of which something is held, when all places are taken: its devices have most likely given it up.
static bool make_room(struct emulate *e)
{
	struct conn *oldest = NULL;
	for (int32_t i = 0; i < EMULATE_CONNECTIONS_MAX; i++) {
		struct conn *c = &e->conns[i];
		if (c->state == CONN_FREE)
			return true;
		if (c->state != CONN_DEAD && conn_is_held(c) && (oldest == NULL || c->number < oldest->number))
			oldest = c;
	}
	if (oldest == NULL)
		return false;
	conn_reset(oldest, "made room for another");
	return false; // its place is free after this batch of events
}

static void take_socket(struct relay_listener *l, int fd, uint32_t peer_ip)
{
	struct emulate *e = l->e;
	int32_t from = l->from >= 0 ? l->from : device_of(e->t, peer_ip);
	char why[160];
	if (from < 0) {
		struct in_addr ip = {htonl(peer_ip)};
		snprintf(why, sizeof why, "a connection from %s, which is no device's address (hearth join --from gives one; or use the pair's address)", inet_ntoa(ip));
		refuse(e, fd, -1, l->to, why);
	} else if (from == l->to) {
		refuse(e, fd, from, l->to, "a connection of a device with itself");
	} else if (!make_room(e)) {
		snprintf(why, sizeof why, "%d connections are open", EMULATE_CONNECTIONS_MAX);
		refuse(e, fd, from, l->to, why);
	} else {
		conn_start(e, from, l->to, fd);
	}
}

static void on_accept(void *ctx, uint32_t events)
{
	struct relay_listener *l = ctx;
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	(void)events;
	int fd = accept4(l->watch.fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		take_socket(l, fd, ntohl(peer.sin_addr.s_addr));
}

// ---- Time

static void retry_held(struct emulate *e)
{
	for (int32_t i = 0; i < e->n_conns_used; i++)
		if (e->conns[i].state != CONN_FREE && e->conns[i].state != CONN_DEAD)
			conn_retry(&e->conns[i]);
}

// step does what is due, over all connections: a home has a few dozen.
static int64_t step(void *ctx)
{
	struct emulate *e = ctx;
	int64_t next_ns = RELAY_HELD;
	bool is_held = false;
	emulate_clock(e);
	if (e->now_ns >= e->retry_ns) {
		e->retry_ns = RELAY_HELD;
		retry_held(e);
	}
	for (int32_t i = 0; i < e->n_conns_used; i++) {
		struct conn *c = &e->conns[i];
		if (c->state == CONN_FREE)
			continue;
		int64_t due_ns = c->state == CONN_DEAD ? RELAY_HELD : conn_step(c);
		next_ns = due_ns < next_ns ? due_ns : next_ns;
		if (c->state == CONN_DEAD)
			conn_free(c); // the batch is over: no event of its watches is left
		else
			is_held |= conn_is_held(c);
	}
	if (is_held && e->retry_ns == RELAY_HELD)
		e->retry_ns = e->now_ns + RETRY_NS;
	next_ns = e->retry_ns < next_ns ? e->retry_ns : next_ns;
	return next_ns == RELAY_HELD ? POLLER_NEVER : e->start_ns + next_ns;
}

// ---- Opening

static enum err listen_at(struct emulate *e, int32_t from, int32_t to, uint32_t ip, struct errmsg *em)
{
	struct relay_listener *l = &e->listeners[e->n_listeners++];
	uint16_t port = e->t->devices[to].port;
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip), .sin_port = htons(port)};
	const int on = 1;
	*l = (struct relay_listener){.e = e, .from = from, .to = to};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	poller_watch_init(&l->watch, fd, on_accept, l);
	if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 && bind(fd, (const struct sockaddr *)&sa, sizeof sa) == 0 &&
		listen(fd, BACKLOG) == 0 && poller_want(&e->poller, &l->watch, EPOLLIN) == OK)
		return OK;
	bool is_taken = errno == EADDRINUSE;
	return errmsg_fail(em, is_taken ? ERR_EXISTS : ERR_IO, "cannot listen on %s:%u for %s: %s%s", inet_ntoa(sa.sin_addr), port, e->t->devices[to].name,
		strerror(errno), is_taken ? " (is another relay running? each needs a subnet of its own)" : "");
}

static enum err listen_all(struct emulate *e, struct errmsg *em)
{
	const struct topology *t = e->t;
	enum err err = OK;
	for (int32_t to = 0; to < t->n_devices && err == OK; to++) {
		err = listen_at(e, -1, to, topology_device_ip(t, to), em);
		for (int32_t from = 0; from < t->n_devices && err == OK; from++)
			if (from != to)
				err = listen_at(e, from, to, topology_pair_ip(t, from, to), em);
	}
	return err;
}

static enum err describe_network(struct emulate *e, struct errmsg *em)
{
	const struct topology *t = e->t;
	enum err err = OK;
	for (int32_t i = 0; i < t->n_devices && err == OK; i++) {
		err = network_station(&e->network, i, &t->devices[i].station, em);
		for (int32_t k = i + 1; k < t->n_devices && err == OK; k++) {
			struct network_link_params p = topology_link_of(t, i, k);
			err = network_link(&e->network, i, k, &p, em);
		}
	}
	return err;
}

static enum err open_network(struct emulate *e, struct errmsg *em)
{
	int32_t n = e->t->n_devices;
	const struct network_limits limits = {.machines_max = n,
		.access_points_max = e->t->n_access_points,
		.links_max = n * (n - 1) / 2,
		.flows_max = EMULATE_CONNECTIONS_MAX};
	enum err err = arena_open(network_arena_bytes(&limits), &e->arena);
	if (err == OK)
		err = network_init(&e->network, &e->arena, &limits, e->t->seed);
	return err == OK ? describe_network(e, em) : errmsg_fail(em, err, "no memory for the network");
}

// The soft limit is 1,024 on most machines: 32 devices have as many addresses.
static enum err raise_descriptors(const struct emulate *e, struct errmsg *em)
{
	struct rlimit r;
	rlim_t n = (rlim_t)e->t->n_devices, want = n * n + 2 * EMULATE_CONNECTIONS_MAX + SPARE_DESCRIPTORS;
	if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur >= want)
		return OK;
	if (r.rlim_max < want)
		return errmsg_fail(em, ERR_LIMIT, "%d devices may need %lu open files, and %lu are allowed (ulimit -Hn)", (int)n, (unsigned long)want,
			(unsigned long)r.rlim_max);
	r.rlim_cur = want;
	return setrlimit(RLIMIT_NOFILE, &r) == 0 ? OK : errmsg_fail(em, ERR_LIMIT, "cannot raise the number of open files: %s", strerror(errno));
}

static enum err take_memory(struct emulate *e)
{
	size_t n = (size_t)e->t->n_devices;
	e->listeners = calloc(n * n, sizeof *e->listeners);
	e->conns = calloc(EMULATE_CONNECTIONS_MAX, sizeof *e->conns);
	e->pairs = calloc(n * n, sizeof *e->pairs);
	return e->listeners != NULL && e->conns != NULL && e->pairs != NULL ? OK : ERR_NOMEM;
}

enum err emulate_open(struct emulate **out, const struct topology *t, const struct emulate_callbacks *callbacks, struct errmsg *em)
{
	*out = NULL;
	struct emulate *e = calloc(1, sizeof *e);
	if (e == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the relay");
	e->t = t;
	e->retry_ns = RELAY_HELD;
	if (callbacks != NULL)
		e->callbacks = *callbacks;
	e->start_ns = poller_clock_ns();
	awake_open(&e->awake);
	enum err err = poller_open(&e->poller, step, e, em);
	if (err == OK)
		err = raise_descriptors(e, em);
	if (err == OK && take_memory(e) != OK)
		err = errmsg_fail(em, ERR_NOMEM, "no memory for the relay");
	if (err == OK)
		err = open_network(e, em);
	if (err == OK)
		err = listen_all(e, em);
	if (err != OK) {
		emulate_close(e);
		return err;
	}
	*out = e;
	return OK;
}

void emulate_close(struct emulate *e)
{
	if (e == NULL)
		return;
	e->callbacks.on_event = NULL;
	for (int32_t i = 0; i < e->n_conns_used; i++)
		if (e->conns[i].state != CONN_FREE && e->conns[i].state != CONN_DEAD)
			conn_reset(&e->conns[i], "the relay ends");
	for (int32_t i = 0; i < e->n_listeners; i++) {
		poller_forget(&e->poller, &e->listeners[i].watch);
		if (e->listeners[i].watch.fd >= 0)
			close(e->listeners[i].watch.fd);
	}
	poller_close(&e->poller);
	awake_close(&e->awake);
	arena_close(&e->arena);
	free(e->listeners);
	free(e->conns);
	free(e->pairs);
	free(e);
}

enum err emulate_run(struct emulate *e, struct errmsg *em)
{
	return poller_run(&e->poller, em);
}

struct poller *emulate_poller(struct emulate *e)
{
	return &e->poller;
}

const struct topology *emulate_topology(const struct emulate *e)
{
	return e->t;
}

int64_t emulate_now_ns(struct emulate *e)
{
	return emulate_clock(e);
}

// ---- What happened

void emulate_note(struct emulate *e, const char *text)
{
	emulate_clock(e);
	emulate_tell(e, (struct emulate_event){.type = EMULATE_FAULT, .from = -1, .to = -1, .text = text});
}

struct emulate_pair_stats emulate_pair_stats_of(const struct emulate *e, int32_t from, int32_t to)
{
	struct emulate_pair_stats p = e->pairs[from * e->t->n_devices + to];
	for (int32_t i = 0; i < e->n_conns_used; i++) {
		const struct conn *c = &e->conns[i];
		if (c->state == CONN_FREE || c->state == CONN_DEAD || c->from != from || c->to != to)
			continue;
		p.n_open += c->state == CONN_OPEN;
		p.n_held += conn_is_held(c);
	}
	return p;
}

// quantile gives the upper end of the bucket that holds the nearest rank.
static int64_t quantile(const struct emulate *e, uint64_t hundredths)
{
	uint64_t rank = (e->n_late * hundredths + 99) / 100, seen = 0;
	for (int64_t i = 0; i < LATE_BUCKETS - 1; i++) {
		seen += e->late[i];
		if (seen >= rank)
			return (i + 1) * LATE_BUCKET_NS < e->late_max_ns ? (i + 1) * LATE_BUCKET_NS : e->late_max_ns;
	}
	return e->late_max_ns;
}

struct emulate_lateness emulate_lateness_of(const struct emulate *e)
{
	return (struct emulate_lateness){.n = e->n_late,
		.p50_ns = quantile(e, 50),
		.p90_ns = quantile(e, 90),
		.p99_ns = quantile(e, 99),
		.max_ns = e->late_max_ns};
}
