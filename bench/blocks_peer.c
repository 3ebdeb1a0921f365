// The processes of bench/blocks_bench.py: a server and a client of blocks, the same of a plain stream of records, and a relay of a given rate.
//
//   blocks_peer serve MODEL DIR            prints a port; serves the blocks of MODEL, or, asked over a data link, streams as many bytes as it
//                                          gives of blocks
//   blocks_peer blocks PORT DIR N_LAYERS   fetches all layers into the cache DIR; prints bytes and seconds
//   blocks_peer stream PORT BYTES          takes BYTES over one link; prints bytes and seconds
//   blocks_peer relay PORT BITS_PER_S      prints a port; passes connections on to PORT, no faster than that towards who connects
// Keys are fixed: both ends derive them from their roles.
#include "blocks/shell/block_cache.h"
#include "coordinator/shell/coord_blocks.h"
#include "kernels/canonical.h"
#include "net/link_listener.h"
#include "net/link_params.h"
#include "node/shell/node_blocks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME (256 * 1024 + 8) // a block and its header

static const struct log quiet = {.fd = -1};
static const struct log loud = {.fd = 2, .level = LOG_WARNING};

static void require(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "blocks_peer: %s failed\n", what);
	exit(1);
}

static struct lnk1_keypair keys_of(uint8_t role)
{
	uint8_t seed[crypto_kx_SEEDBYTES] = {role};
	struct lnk1_keypair k;
	crypto_kx_seed_keypair(k.pk, k.sk, seed);
	return k;
}

// ---- serving

struct server {
	struct loop loop;
	struct coord_blocks *blocks;
	struct coordinator *core;
	struct link *stream;
	uint64_t left; // bytes of the stream
	uint8_t *frame;
};

static void push_stream(struct server *s)
{
	while (s->left > 0) {
		size_t n = s->left < FRAME ? (size_t)s->left : FRAME;
		if (link_send(s->stream, s->frame, n) != OK)
			return; // full: on_writable
		s->left -= n;
	}
}

static void on_server_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct server *s = ctx;
	if (info->kind == LNK1_BLOCKS)
		coord_blocks_take(s->blocks, link, info);
}

static void on_server_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct server *s = ctx;
	require(len == 8, "a request for a stream");
	s->stream = link;
	s->left = load_u64(frame);
	push_stream(s);
}

static void on_server_writable(void *ctx, struct link *link)
{
	(void)link;
	push_stream(ctx);
}

static void on_server_down(void *ctx, struct link *link, const struct link_down *down)
{
	struct server *s = ctx;
	(void)down;
	if (link == s->stream)
		s->left = 0;
}

static bool find_member(void *ctx, enum lnk1_kind kind, const uint8_t node_pk[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN])
{
	(void)ctx;
	(void)kind;
	struct lnk1_keypair node = keys_of(2);
	memset(psk, 3, LNK1_KEY_LEN);
	return memcmp(node_pk, node.pk, LNK1_KEY_LEN) == 0;
}

static int serve(const char *model_path_, const char *dir)
{
	static struct server s;
	static struct lnk1_server_config cfg;
	struct errmsg em;
	struct lnk1_keypair keys = keys_of(1);
	struct model *model;
	uint8_t cluster_id[CLUSTER_ID_BYTES] = {9};
	char known[1024];
	snprintf(known, sizeof known, "%s/known", dir);
	require(loop_open(&s.loop, &em) == OK && model_open(model_path_, &model, &em) == OK, "opening");
	s.core = calloc(1, coordinator_size(&(struct coordinator_config){.ctx_len = 1})); // without a member: nobody is told of anybody
	s.frame = malloc(FRAME);
	randombytes_buf(s.frame, FRAME);
	struct coord_blocks_params bp = {.loop = &s.loop, .log = &loud, .core = s.core, .model = model, .known_dir = known};
	require(coord_blocks_open(&bp, &s.blocks, &em) == OK, "coord_blocks_open");
	link_params_server(&cfg, &keys, cluster_id, CANON_VERSION);
	cfg.lookup = (struct lnk1_lookup){.member = find_member};
	struct link_listener *listener;
	struct link_listener_params lp = {.addr = "127.0.0.1:0", .cfg = &cfg, .limits = &link_limits_default, .log = &quiet,
		.callbacks = {.ctx = &s, .on_up = on_server_up, .on_frame = on_server_frame, .on_down = on_server_down, .on_writable = on_server_writable}, .ctx = &s};
	require(link_listener_open(&listener, &s.loop, &lp, &em) == OK, "listening");
	printf("%u\n", link_listener_port(listener));
	fflush(stdout);
	loop_run(&s.loop);
	return 0;
}

// ---- fetching

struct client {
	struct loop loop;
	struct node_blocks *nb;
	bool has_model, is_done;
	uint64_t want, have;
	int64_t begin_ns, end_ns;
};

static void on_model(void *ctx, enum err err, const char *text)
{
	struct client *c = ctx;
	require(err == OK, text);
	c->has_model = true;
}

static void on_loaded(void *ctx, enum err err, const char *text)
{
	struct client *c = ctx;
	require(err == OK, text);
	c->is_done = true;
	c->end_ns = loop_clock_ns();
}

static bool has_model(void *ctx)
{
	return ((struct client *)ctx)->has_model;
}

static bool is_done(void *ctx)
{
	return ((struct client *)ctx)->is_done;
}

static int fetch_blocks(const char *port, const char *dir, int32_t n_layers)
{
	static struct client c;
	struct errmsg em;
	struct block_cache cache;
	struct lnk1_keypair keys = keys_of(2), server = keys_of(1);
	require(loop_open(&c.loop, &em) == OK && block_cache_open(dir, 0, &cache, &em) == OK, "opening");
	struct node_blocks_params p = {.loop = &c.loop, .log = &loud, .keys = &keys, .cluster_id = {9}, .limits = &link_limits_default, .cache = &cache, .ctx = &c,
		.on_model = on_model, .addresses = {.n = 1}};
	memcpy(p.coordinator_pk, server.pk, KEY_BYTES);
	memset(p.psk, 3, KEY_BYTES);
	snprintf(p.addresses.at[0], ADDR_CAP, "127.0.0.1:%s", port);
	require(node_blocks_open(&p, &c.nb, &em) == OK && loop_run_until(&c.loop, has_model, &c, loop_clock_ns() + INT64_C(60000000000)), "the model's header");
	struct layer_spans layers = layer_spans_one(0, n_layers);
	c.begin_ns = loop_clock_ns();
	node_blocks_load(c.nb, &layers, false, on_loaded, &c);
	require(loop_run_until(&c.loop, is_done, &c, loop_clock_ns() + INT64_C(300000000000)), "the layers' blocks");
	printf("%llu %.6f\n", (unsigned long long)node_blocks_fetched(c.nb), (double)(c.end_ns - c.begin_ns) / 1e9);
	return 0;
}

static void on_client_up(void *ctx, struct link *link, const struct link_info *info)
{
	struct client *c = ctx;
	uint8_t ask[8];
	(void)info;
	store_u64(ask, c->want);
	c->begin_ns = loop_clock_ns();
	require(link_send(link, ask, sizeof ask) == OK, "asking");
}

static void on_client_frame(void *ctx, struct link *link, const uint8_t *frame, size_t len)
{
	struct client *c = ctx;
	(void)link;
	(void)frame;
	c->have += len;
	c->is_done = c->have >= c->want;
	c->end_ns = loop_clock_ns();
}

static void on_client_down(void *ctx, struct link *link, const struct link_down *down)
{
	(void)ctx;
	(void)link;
	require(false, down->text);
}

static int take_stream(const char *port, uint64_t bytes)
{
	static struct client c;
	struct errmsg em;
	char addr[64];
	struct lnk1_keypair keys = keys_of(2), server = keys_of(1);
	struct lnk1_client_params p;
	uint8_t boot_id[LNK1_BOOT_ID_LEN] = {1};
	struct link *link;
	require(loop_open(&c.loop, &em) == OK, "opening");
	link_params_client(&p, &keys, LNK1_MEMBER, LNK1_DATA, boot_id, CANON_VERSION);
	p.cluster_id[0] = 9;
	memcpy(p.server_pk, server.pk, KEY_BYTES);
	memset(p.psk, 3, KEY_BYTES);
	c.want = bytes;
	snprintf(addr, sizeof addr, "tcp://127.0.0.1:%s", port);
	const struct link_callbacks callbacks = {.ctx = &c, .on_up = on_client_up, .on_frame = on_client_frame, .on_down = on_client_down};
	require(link_dial(&c.loop, addr, &p, &link_limits_default, &callbacks, &link, &em) == OK, "dialling");
	require(loop_run_until(&c.loop, is_done, &c, loop_clock_ns() + INT64_C(300000000000)), "the stream");
	printf("%llu %.6f\n", (unsigned long long)c.have, (double)(c.end_ns - c.begin_ns) / 1e9);
	return 0;
}

// ---- the relay: one connection at a time

static int tcp(uint16_t port, bool is_listening, uint16_t *got)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 256 * 1024;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof a;
	require(fd >= 0, "a socket");
	// Buffers as a network has them: else the kernel holds all of it at once.
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	require((is_listening ? bind(fd, (struct sockaddr *)&a, sizeof a) : connect(fd, (struct sockaddr *)&a, sizeof a)) == 0, "bind or connect");
	if (is_listening)
		require(listen(fd, 4) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0, "listen");
	if (got != NULL)
		*got = ntohs(a.sin_port);
	return fd;
}

static bool pass(int from, int to, uint8_t *buf, size_t max, size_t *n)
{
	ssize_t got = read(from, buf, max);
	*n = got > 0 ? (size_t)got : 0;
	for (size_t done = 0; done < *n;) {
		ssize_t w = write(to, buf + done, *n - done);
		if (w <= 0)
			return false;
		done += (size_t)w;
	}
	return got > 0;
}

// pump passes at most `bps` from b to a, in steps of a millisecond.
static void pump(int a, int b, double bps, uint8_t *buf)
{
	int64_t filled_ns = loop_clock_ns();
	double tokens = 0, burst = bps / 8 * 0.002;
	for (;;) {
		struct pollfd fds[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = tokens >= 1460 ? POLLIN : 0}};
		size_t n = 0;
		if (poll(fds, 2, tokens >= 1460 ? 100 : 1) < 0)
			return;
		int64_t now_ns = loop_clock_ns();
		tokens += bps / 8 * (double)(now_ns - filled_ns) / 1e9;
		tokens = tokens < burst ? tokens : burst;
		filled_ns = now_ns;
		if ((fds[0].revents & (POLLIN | POLLHUP)) != 0 && !pass(a, b, buf, 65536, &n))
			return;
		if ((fds[1].revents & (POLLIN | POLLHUP)) == 0)
			continue;
		if (!pass(b, a, buf, (size_t)(tokens < 65536 ? tokens : 65536), &n))
			return;
		tokens -= (double)n;
	}
}

static int relay(uint16_t port, double bps)
{
	uint16_t own;
	signal(SIGPIPE, SIG_IGN); // a client ends, and its connection with it
	int listener = tcp(0, true, &own);
	uint8_t *buf = malloc(65536);
	printf("%u\n", own);
	fflush(stdout);
	for (;;) {
		int a = accept(listener, NULL, NULL);
		if (a < 0)
			return 1;
		int b = tcp(port, false, NULL);
		pump(a, b, bps, buf);
		close(a);
		close(b);
	}
}

int main(int argc, char **argv)
{
	require(sodium_init() >= 0 && argc >= 3, "usage");
	if (strcmp(argv[1], "serve") == 0 && argc == 4)
		return serve(argv[2], argv[3]);
	if (strcmp(argv[1], "blocks") == 0 && argc == 5)
		return fetch_blocks(argv[2], argv[3], atoi(argv[4]));
	if (strcmp(argv[1], "stream") == 0 && argc == 4)
		return take_stream(argv[2], strtoull(argv[3], NULL, 10));
	if (strcmp(argv[1], "relay") == 0 && argc == 4)
		return relay((uint16_t)atoi(argv[2]), atof(argv[3]));
	require(false, "usage");
}
