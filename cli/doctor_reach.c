#include "cli/doctor_reach.h"

#include "cli/doctor_machine.h"
#include "cli/host_port.h"
#include "kernels/canonical.h"
#include "net/link_params.h"
#include "proto/frame.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_MS 150 // a radio with power save sleeps after 100 ms without traffic; and a coordinator takes twenty strangers a second
#define SAMPLE_PATIENCE_MS 2000
#define PINGS 20
#define PING_PAUSE_NS INT64_C(150000000)
#define MEMBER_NS INT64_C(12000000000)

// ---- one connection

static enum reach reach_of(int error)
{
	switch (error) {
	case ECONNREFUSED: return REACH_REFUSED;
	case ETIMEDOUT: return REACH_SILENT;
	case EHOSTUNREACH:
	case ENETUNREACH: return REACH_NO_ROUTE;
	default: return REACH_FAILED;
	}
}

// connect_within returns 0 or an errno.
static int connect_within(const struct addrinfo *ai, int32_t patience_ms)
{
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return errno;
	int error = connect(fd, ai->ai_addr, ai->ai_addrlen) == 0 ? 0 : errno;
	if (error == EINPROGRESS) {
		struct pollfd p = {.fd = fd, .events = POLLOUT};
		socklen_t len = sizeof error;
		int n = poll(&p, 1, patience_ms);
		if (n == 0)
			error = ETIMEDOUT;
		else if (n < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
			error = errno;
	}
	close(fd);
	return error;
}

static bool look_up(const char *addr, struct addrinfo **out)
{
	struct host_port hp;
	char port[8];
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	if (!host_port_parse(addr, &hp))
		return false;
	snprintf(port, sizeof port, "%u", hp.port);
	return getaddrinfo(hp.host, port, &hints, out) == 0;
}

void reach_try(const char *root, const char *addr, int32_t patience_ms, struct reach_result *out)
{
	struct addrinfo *all = NULL;
	char ipv4[INET_ADDRSTRLEN];
	*out = (struct reach_result){.end = REACH_NO_NAME};
	if (!look_up(addr, &all))
		return;
	for (const struct addrinfo *ai = all; ai != NULL && out->end != REACH_OK; ai = ai->ai_next) {
		int64_t begin_ns = loop_clock_ns();
		int error = connect_within(ai, patience_ms);
		out->ms = (double)(loop_clock_ns() - begin_ns) / 1e6;
		out->end = error == 0 ? REACH_OK : reach_of(error);
		snprintf(out->text, sizeof out->text, "%s", error != 0 ? strerror(error) : "");
		if (ai->ai_family == AF_INET && inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)ai->ai_addr)->sin_addr, ipv4, sizeof ipv4) != NULL)
			out->neighbour = network_neighbour_of(root, ipv4);
	}
	freeaddrinfo(all);
}

static void explain_silence(const char *who, const char *addr, const struct reach_result *t, bool reverse, struct doctor_report *r)
{
	if (reverse)
		doctor_add(r, DOCTOR_PROBLEM, "reachability", "open that port in its firewall (hearth doctor there says which one it has). If it is in another network, or behind the isolation of "
			"a guest Wi-Fi, only the coordinator can pass on what other nodes send it, which costs a hop",
			"only one way works: %s reached this machine, and does not answer at %s", who, addr);
	else if (t->neighbour == NEIGHBOUR_PRESENT)
		doctor_add(r, DOCTOR_PROBLEM, "reachability", "open the port in that machine's firewall; hearth doctor there says which one it has",
			"%s: %s is switched on (it answers ARP), but a firewall drops what goes to that port", addr, who);
	else if (t->neighbour == NEIGHBOUR_SILENT)
		doctor_add(r, DOCTOR_PROBLEM, "reachability", "is it on, awake, and is that its address? If so, the access point keeps its clients apart (\"client isolation\", guest network): "
			"switch that off, or use a cable", "%s: nobody in this network answers for that address", addr);
	else
		doctor_add(r, DOCTOR_PROBLEM, "reachability", "is it on, and is that its address? Between two networks a router must forward the port (NAT), and firewalls must let it pass",
			"%s: no answer", addr);
}

void reach_explain(const char *who, const char *addr, const struct reach_result *t, bool reverse, struct doctor_report *r)
{
	switch (t->end) {
	case REACH_OK: doctor_add(r, DOCTOR_OK, "reachability", NULL, "%s answers at %s", who, addr); return;
	case REACH_REFUSED:
		doctor_add(r, DOCTOR_PROBLEM, "reachability", "is Hearth running there, and on that port? With --listen 127.0.0.1:... it hears its own machine only",
			"%s: the machine is there, but nothing listens on that port (or a firewall refuses)", addr);
		return;
	case REACH_SILENT: explain_silence(who, addr, t, reverse, r); return;
	case REACH_NO_ROUTE:
		if (t->neighbour == NEIGHBOUR_SILENT) { // the kernel gives up on an address that nobody answers for after three seconds
			explain_silence(who, addr, t, reverse, r);
			return;
		}
		doctor_add(r, DOCTOR_PROBLEM, "reachability", "are both machines in one network? If they are, the machine is off, or a firewall refuses", "%s: no route to that address", addr);
		return;
	case REACH_NO_NAME:
		doctor_add(r, DOCTOR_PROBLEM, "reachability", "use its IP address, or a name that ends in .local where avahi runs", "%s: that name is not known here", addr);
		return;
	default: doctor_add(r, DOCTOR_PROBLEM, "reachability", NULL, "%s: %s", addr, t->text); return;
	}
}

void reach_sample(const char *addr, int32_t n, struct doctor_rtts *out)
{
	struct addrinfo *all = NULL;
	out->n = 0;
	if (!look_up(addr, &all))
		return;
	for (int32_t i = 0; i < n && out->n < (int32_t)ARRAY_LEN(out->ms); i++) {
		int64_t begin_ns = loop_clock_ns();
		if (connect_within(all, SAMPLE_PATIENCE_MS) == 0)
			out->ms[out->n++] = (double)(loop_clock_ns() - begin_ns) / 1e6;
		poll(NULL, 0, PAUSE_MS);
	}
	freeaddrinfo(all);
}

// ---- a link

struct trial {
	struct loop *loop;
	struct link *link; // NULL: over
	struct loop_timer timer;
	bool was_up;
	int32_t n_sent;
	int64_t sent_ns;
	struct doctor_rtts rtts;
	bool has_clock; // ahead_s is set
	double ahead_s;
	char why[REASON_CAP];
};

static void end_trial(struct trial *t)
{
	loop_timer_clear(t->loop, &t->timer);
	if (t->link != NULL)
		link_close(t->link);
}

static double unix_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void ask_clock(struct trial *t)
{
	uint8_t frame[FRAME_CLOCK_BYTES];
	clock_encode(0, frame);
	t->sent_ns = loop_clock_ns();
	if (link_send(t->link, frame, sizeof frame) != OK)
		end_trial(t);
}

// on_clock: the answer was written half a round trip ago.
static void on_clock(struct trial *t, uint64_t theirs_ms)
{
	double half_ms = (double)(loop_clock_ns() - t->sent_ns) / 2e6;
	t->ahead_s = (unix_ms() - half_ms - (double)theirs_ms) / 1e3;
	t->has_clock = true;
	end_trial(t);
}

static void send_ping(void *ctx)
{
	struct trial *t = ctx;
	uint8_t ping[FRAME_PING_BYTES];
	if (t->n_sent == PINGS) {
		ask_clock(t);
		return;
	}
	t->n_sent++;
	t->sent_ns = loop_clock_ns();
	ping_encode(FRAME_PING, (uint64_t)t->n_sent, ping);
	if (link_send(t->link, ping, sizeof ping) != OK)
		end_trial(t);
}

static void on_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct trial *t = ctx;
	(void)link, (void)info;
	t->was_up = true;
	send_ping(t);
}

static void on_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct trial *t = ctx;
	uint64_t cookie;
	(void)link;
	if (clock_decode(frame, len, &cookie) == OK && t->n_sent == PINGS)
		on_clock(t, cookie);
	if (ping_decode(frame, len, &cookie) != OK || frame[0] != FRAME_PONG || cookie != (uint64_t)t->n_sent)
		return;
	if (t->rtts.n < (int32_t)ARRAY_LEN(t->rtts.ms))
		t->rtts.ms[t->rtts.n++] = (double)(loop_clock_ns() - t->sent_ns) / 1e6;
	loop_timer_set(t->loop, &t->timer, loop_clock_ns() + PING_PAUSE_NS);
}

static void on_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct trial *t = ctx;
	(void)link;
	t->link = NULL;
	loop_timer_clear(t->loop, &t->timer);
	text_copy(t->why, sizeof t->why, down->text);
}

static bool is_over(void *ctx)
{
	const struct trial *t = ctx;
	return t->link == NULL;
}

static void tell(const struct trial *t, const char *addr, struct doctor_report *r)
{
	if (t->was_up)
		doctor_add(r, DOCTOR_OK, "membership", NULL, "the coordinator at %s has the key that this machine knows, takes its membership, and fits its version", addr);
	else
		doctor_add(r, DOCTOR_PROBLEM, "membership", "if the cluster was made anew, or this node revoked: remove the file \"membership\" from the state directory and join with a new invite. "
			"If versions differ: install the same Hearth on both", "no link with the coordinator at %s: %s", addr, t->why[0] ? t->why : "no answer");
}

void reach_as_member(struct loop *loop, const struct membership *m, const struct lnk1_keypair *keys, const char *addr, struct doctor_report *r)
{
	struct trial t = {.loop = loop};
	struct lnk1_client_params p;
	struct errmsg em;
	uint8_t boot_id[LNK1_BOOT_ID_LEN];
	const struct link_callbacks callbacks = {.ctx = &t, .on_up = on_up, .on_frame = on_frame, .on_down = on_down};
	randombytes_buf(boot_id, sizeof boot_id);
	loop_timer_init(&t.timer, send_ping, &t);
	link_params_client(&p, keys, LNK1_MEMBER, LNK1_BLOCKS, boot_id, CANON_VERSION);
	memcpy(p.server_pk, m->coordinator_pk, KEY_BYTES);
	memcpy(p.cluster_id, m->grant.cluster_id, CLUSTER_ID_BYTES);
	memcpy(p.psk, m->grant.psk, KEY_BYTES);
	p.member_epoch = m->grant.member_epoch.v;
	enum err e = link_dial(loop, addr, &p, &link_limits_default, &callbacks, &t.link, &em);
	sodium_memzero(&p, sizeof p);
	if (e != OK) {
		doctor_add(r, DOCTOR_PROBLEM, "membership", NULL, "%s: %s", addr, em.text);
		return;
	}
	loop_run_until(loop, is_over, &t, loop_clock_ns() + MEMBER_NS);
	loop_timer_clear(loop, &t.timer);
	if (t.link != NULL)
		link_abort(t.link);
	tell(&t, addr, r);
	doctor_link(addr, &t.rtts, r);
	if (t.has_clock)
		doctor_clock_offset(t.ahead_s, r);
}
