// One relayed connection: two sockets, a flow of the network, and what is under way between them.
#include "sim/shell/emulate_state.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)
#define STAMP_OLD_NS NS_PER_S
#define READS_PER_EVENT 2 // then others have their turn

static void on_side_ready(void *ctx, uint32_t events);

void reset_socket(int fd)
{
	const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(fd);
}

static void set_options(int fd)
{
	const int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
}

// ---- The end

static void end(struct conn *c, const char *why, bool is_reset)
{
	struct emulate *e = c->e;
	for (int i = 0; i < 2; i++) {
		struct conn_side *s = &c->sides[i];
		poller_forget(&e->poller, &s->watch);
		if (s->watch.fd >= 0 && (is_reset || s->is_gone))
			reset_socket(s->watch.fd);
		else if (s->watch.fd >= 0)
			close(s->watch.fd);
		s->watch.fd = -1;
		relay_queue_close(&c->queues[i]);
	}
	network_close_flow(&e->network, c->flow);
	c->state = CONN_DEAD;
	emulate_tell(e, (struct emulate_event){.type = EMULATE_CLOSED, .from = c->from, .to = c->to, .connection = c->number,
		.bytes = {c->sides[0].bytes, c->sides[1].bytes}, .text = why});
}

void conn_reset(struct conn *c, const char *why)
{
	end(c, why, true);
}

void conn_free(struct conn *c)
{
	ASSERT(c->state == CONN_DEAD);
	c->state = CONN_FREE;
}

// ---- Into the network

static enum network_direction way_of(int side)
{
	return side == 0 ? NETWORK_FORWARD : NETWORK_BACK;
}

// post_at sends a message into the network, at a time that is not after now, and gives its arrival, RELAY_HELD when it is swallowed. False: the network has
// reset the connection.
static bool post_at(struct conn *c, int side, size_t bytes, int64_t at_ns, int64_t *due_ns)
{
	struct emulate *e = c->e;
	at_ns = at_ns > e->network.now_ns ? at_ns : e->network.now_ns;
	switch (network_send(&e->network, c->flow, way_of(side), bytes, at_ns, due_ns)) {
	case NETWORK_ARRIVES:
		return true;
	case NETWORK_SWALLOWED:
		*due_ns = RELAY_HELD;
		return true;
	case NETWORK_RESET:
		break;
	}
	conn_reset(c, "cut: reset");
	return false;
}

static bool post(struct conn *c, int side, size_t bytes, int64_t *due_ns)
{
	return post_at(c, side, bytes, c->e->now_ns, due_ns);
}

// post_end tells the other side, through the network, that this one has ended.
static bool post_end(struct conn *c, int side, enum relay_end how)
{
	int64_t due_ns;
	struct conn_side *s = &c->sides[side];
	bool is_news = !s->has_ended || (how == RELAY_RESET && !s->is_gone);
	s->has_ended = true;
	s->is_gone |= how == RELAY_RESET;
	if (!is_news)
		return true;
	if (!post(c, side, 0, &due_ns))
		return false;
	relay_queue_push_end(&c->queues[side], how, due_ns);
	return true;
}

static bool may_read(const struct conn *c, int side)
{
	bool is_open = c->state == CONN_OPEN || (c->state == CONN_OPENING && side == 1);
	return is_open && !c->sides[side].has_ended && relay_queue_has_room(&c->queues[side]);
}

// came_ns is when the kernel received what was just read, on the relay's clock: waking the relay's processor took from then till now. The kernel stamps
// with the time of day, which may step: more than STAMP_OLD_NS is not believed, and the network takes nothing before what it has seen.
static int64_t came_ns(const struct emulate *e, struct msghdr *m)
{
	struct timespec day, stamp;
	const struct cmsghdr *h = CMSG_FIRSTHDR(m);
	if (h == NULL || h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_TIMESTAMPNS)
		return e->now_ns;
	memcpy(&stamp, CMSG_DATA(h), sizeof stamp);
	clock_gettime(CLOCK_REALTIME, &day);
	int64_t ago_ns = (int64_t)(day.tv_sec - stamp.tv_sec) * NS_PER_S + (day.tv_nsec - stamp.tv_nsec);
	return ago_ns > 0 && ago_ns < STAMP_OLD_NS ? e->now_ns - ago_ns : e->now_ns;
}

// receive reads once, as recv, and brings the clock up to date; *at_ns gets when it came.
static ssize_t receive(struct conn *c, int side, uint8_t *room, uint32_t len, int64_t *at_ns)
{
	union {
		struct cmsghdr aligned;
		uint8_t bytes[CMSG_SPACE(sizeof(struct timespec))];
	} control;
	struct iovec into = {.iov_base = room, .iov_len = len};
	struct msghdr m = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t n = recvmsg(c->sides[side].watch.fd, &m, MSG_DONTWAIT);
	int error = errno;
	emulate_clock(c->e);
	*at_ns = n > 0 && !c->sides[side].is_unread ? came_ns(c->e, &m) : c->e->now_ns;
	errno = error;
	return n;
}

// read_once returns false when there is nothing more to read now, or the connection has ended.
static bool read_once(struct conn *c, int side)
{
	uint8_t *room;
	uint32_t len;
	int64_t due_ns, at_ns;
	if (relay_queue_room(&c->queues[side], EMULATE_READ_BYTES, &room, &len) != OK) {
		conn_reset(c, "no memory for what is under way");
		return false;
	}
	if (len == 0)
		return false;
	ssize_t n = receive(c, side, room, len, &at_ns);
	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		c->sides[side].is_unread &= errno == EINTR; // all that waited is read
		return false;
	}
	if (n <= 0) {
		post_end(c, side, n == 0 ? RELAY_EOF : RELAY_RESET);
		return false;
	}
	if (!post_at(c, side, (size_t)n, at_ns, &due_ns))
		return false;
	relay_queue_push(&c->queues[side], (uint32_t)n, due_ns);
	if (due_ns - at_ns < POLLER_EARLY_NS) // no time to make good in what waking takes: the next ones find everybody awake
		awake_until(&c->e->awake, c->e->start_ns + at_ns + AWAKE_NS);
	bool more = (uint32_t)n == len;
	c->sides[side].is_unread = !relay_queue_has_room(&c->queues[side]) || (more && c->sides[side].is_unread);
	return more;
}

// ---- Out of the network

static void note_lateness(void *ctx, int64_t due_ns)
{
	struct emulate *e = ctx;
	int64_t late_ns = e->now_ns > due_ns ? e->now_ns - due_ns : 0;
	int64_t bucket = late_ns / LATE_BUCKET_NS;
	e->late[bucket < LATE_BUCKETS ? bucket : LATE_BUCKETS - 1]++;
	e->n_late++;
	e->late_max_ns = late_ns > e->late_max_ns ? late_ns : e->late_max_ns;
}

static void count_bytes(struct conn *c, int side, size_t n)
{
	struct emulate_pair_stats *p = &c->e->pairs[c->from * c->e->t->n_devices + c->to];
	c->sides[side].bytes += n;
	*(side == 0 ? &p->bytes_there : &p->bytes_back) += n;
}

// write_due writes what of side's bytes is due. False: the connection has ended.
static bool write_due(struct conn *c, int side)
{
	struct emulate *e = c->e;
	struct relay_queue *q = &c->queues[side];
	struct conn_side *to = &c->sides[!side];
	const uint8_t *bytes;
	uint32_t len;
	bool was_blocked = to->is_blocked; // lateness is the reader's then
	to->is_blocked = false;
	while ((len = relay_queue_due(q, e->now_ns, &bytes)) > 0) {
		ssize_t n = to->is_gone ? (ssize_t)len : send(to->watch.fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			to->is_blocked = true;
			return true;
		}
		if (n < 0) {
			if (!post_end(c, !side, RELAY_RESET))
				return false;
			continue;
		}
		emulate_clock(e);
		count_bytes(c, side, to->is_gone ? 0 : (size_t)n);
		relay_queue_pop(q, (uint32_t)n, was_blocked || to->is_gone ? NULL : note_lateness, e);
	}
	switch (relay_queue_take_end(q, e->now_ns)) {
	case RELAY_NO_END:
		break;
	case RELAY_EOF:
		if (!to->is_gone)
			shutdown(to->watch.fd, SHUT_WR);
		break;
	case RELAY_RESET:
		conn_reset(c, "reset by a device");
		return false;
	}
	return true;
}

// ---- Opening

static bool connect_onward(struct conn *c)
{
	const struct emulate *e = c->e;
	const struct topology_device *d = &e->t->devices[c->to];
	struct conn_side *s = &c->sides[1];
	const int on = 1;
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(topology_device_ip(e->t, c->from))};
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(d->ip), .sin_port = htons(d->port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	poller_watch_init(&s->watch, fd, on_side_ready, s);
	set_options(fd);
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
	if (bind(fd, (const struct sockaddr *)&from, sizeof from) != 0)
		return false;
	return connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS;
}

static void refuse(struct conn *c, const char *why)
{
	emulate_tell(c->e, (struct emulate_event){.type = EMULATE_REFUSED, .from = c->from, .to = c->to, .connection = c->number, .text = why});
	c->sides[1].has_ended = c->sides[1].is_gone = true;
	int64_t due_ns;
	if (post(c, 1, 0, &due_ns))
		relay_queue_push_end(&c->queues[1], RELAY_RESET, due_ns);
}

static void on_connected(struct conn *c)
{
	int error = 0;
	socklen_t len = sizeof error;
	getsockopt(c->sides[1].watch.fd, SOL_SOCKET, SO_ERROR, &error, &len);
	emulate_clock(c->e);
	if (error != 0) {
		refuse(c, strerror(error));
		return;
	}
	if (post(c, 1, 0, &c->syn_due_ns))
		c->state = CONN_OPENING;
}

static void on_syn_due(struct conn *c)
{
	if (c->state == CONN_OPENING) {
		c->state = CONN_OPEN;
		c->syn_due_ns = RELAY_HELD;
		c->e->pairs[c->from * c->e->t->n_devices + c->to].n_connections++;
		emulate_tell(c->e, (struct emulate_event){.type = EMULATE_CONNECTED, .from = c->from, .to = c->to, .connection = c->number});
		return;
	}
	c->state = CONN_CONNECTING;
	c->syn_due_ns = RELAY_HELD;
	if (!connect_onward(c))
		refuse(c, strerror(errno));
}

// ---- Events

static uint32_t interest(const struct conn *c, int side)
{
	uint32_t out = c->sides[side].is_blocked ? EPOLLOUT : 0;
	if (side == 1 && c->state == CONN_CONNECTING && !c->sides[1].is_gone)
		return EPOLLOUT;
	if (side == 0 && c->state < CONN_OPEN)
		return c->sides[0].is_half_closed ? 0 : EPOLLRDHUP;
	return out | (may_read(c, side) ? EPOLLIN : 0);
}

static void set_interest(struct conn *c)
{
	for (int i = 0; i < 2 && c->state != CONN_DEAD; i++)
		if (c->sides[i].watch.fd >= 0 && poller_want(&c->e->poller, &c->sides[i].watch, interest(c, i)) != OK)
			conn_reset(c, "cannot wait for its events");
}

int64_t conn_step(struct conn *c)
{
	const struct emulate *e = c->e;
	for (int i = 0; i < 2; i++)
		if (!c->sides[!i].is_blocked && relay_queue_due_ns(&c->queues[i]) <= e->now_ns && !write_due(c, i))
			return RELAY_HELD;
	if (c->syn_due_ns <= e->now_ns)
		on_syn_due(c);
	if (c->state == CONN_DEAD)
		return RELAY_HELD;
	if (c->queues[0].is_end_taken && c->queues[1].is_end_taken) {
		end(c, "closed by both devices", false);
		return RELAY_HELD;
	}
	set_interest(c);
	int64_t next_ns = c->syn_due_ns;
	for (int i = 0; i < 2 && c->state != CONN_DEAD; i++) {
		int64_t due_ns = relay_queue_due_ns(&c->queues[i]);
		if (!c->sides[!i].is_blocked && due_ns < next_ns)
			next_ns = due_ns;
	}
	return next_ns;
}

// has_given_up: the device has ended a connection that is not open yet. One that has said something and only closed its half may still be waiting for
// an answer, unless the network is silent: then its kernel would not even have connected.
static bool has_given_up(const struct conn *c, uint32_t events)
{
	uint8_t byte;
	if (events & (EPOLLERR | EPOLLHUP))
		return true;
	return conn_is_held(c) || recv(c->sides[0].watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

static void on_side_ready(void *ctx, uint32_t events)
{
	struct conn_side *s = ctx;
	struct conn *c = s->conn;
	int side = s == &c->sides[1];
	emulate_clock(c->e);
	if (side == 1 && c->state == CONN_CONNECTING) {
		on_connected(c);
	} else if (side == 0 && c->state < CONN_OPEN && events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP)) {
		if (has_given_up(c, events)) {
			conn_reset(c, "given up before it was open");
			return;
		}
		s->is_half_closed = true;
		set_interest(c);
		return;
	}
	if (events & EPOLLOUT && s->is_blocked && !write_due(c, !side))
		return;
	bool more = events & (EPOLLIN | EPOLLERR | EPOLLHUP);
	for (int i = 0; i < READS_PER_EVENT && more && c->state != CONN_DEAD && may_read(c, side); i++) {
		more = read_once(c, side);
		if (c->state != CONN_DEAD && !c->sides[!side].is_blocked && relay_queue_due_ns(&c->queues[side]) <= c->e->now_ns && !write_due(c, side))
			return;
	}
}

// ---- Held

bool conn_is_held(const struct conn *c)
{
	return network_is_held(&c->e->network, c->flow, NETWORK_FORWARD) || network_is_held(&c->e->network, c->flow, NETWORK_BACK);
}

void conn_retry(struct conn *c)
{
	struct emulate *e = c->e;
	for (int i = 0; i < 2; i++) {
		int64_t due_ns;
		if (!network_is_held(&e->network, c->flow, way_of(i)))
			continue;
		switch (network_retransmit(&e->network, c->flow, way_of(i), e->now_ns, &due_ns)) {
		case NETWORK_ARRIVES:
			relay_queue_release(&c->queues[i], due_ns);
			if (c->syn_due_ns == RELAY_HELD && c->state == (i == 0 ? CONN_KNOCKING : CONN_OPENING))
				c->syn_due_ns = due_ns;
			break;
		case NETWORK_SWALLOWED:
			break;
		case NETWORK_RESET:
			conn_reset(c, "cut: reset");
			return;
		}
	}
}

void conn_start(struct emulate *e, int32_t from, int32_t to, int fd)
{
	struct conn *c = NULL;
	for (int32_t i = 0; c == NULL && i < EMULATE_CONNECTIONS_MAX; i++)
		c = e->conns[i].state == CONN_FREE ? &e->conns[i] : NULL;
	ASSERT(c != NULL);
	*c = (struct conn){.e = e, .state = CONN_KNOCKING, .from = from, .to = to, .number = ++e->n_conns};
	int32_t place = (int32_t)(c - e->conns);
	e->n_conns_used = place >= e->n_conns_used ? place + 1 : e->n_conns_used;
	for (int i = 0; i < 2; i++) {
		c->sides[i].conn = c;
		c->sides[i].is_unread = true; // until the connection is open
		poller_watch_init(&c->sides[i].watch, i == 0 ? fd : -1, on_side_ready, &c->sides[i]);
	}
	set_options(fd);
	emulate_clock(e);
	enum err err = network_open_flow(&e->network, from, to, &c->flow);
	ASSERT(err == OK); // a flow for each place, a link for each pair
	if (post(c, 0, 0, &c->syn_due_ns))
		set_interest(c);
}
