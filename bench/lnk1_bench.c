// What a link costs in CPU: a whole handshake, each side alone; and sealing and opening records. One thread.
#include "proto/lnk1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HANDSHAKES 300
#define REPEATS 5 // the best of these is shown: the machine may be shared
#define BYTES (64 << 20)

static int64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void require(bool ok)
{
	if (ok)
		return;
	fprintf(stderr, "lnk1_bench: a step failed\n");
	exit(1);
}

struct ends {
	struct lnk1_keypair server, node;
	struct lnk1_client_params client;
	struct lnk1_server_config cfg;
	uint8_t psk[LNK1_KEY_LEN];
	int64_t client_ns, server_ns;
};

static bool find_member(void *ctx, enum lnk1_kind kind, const uint8_t node_pk[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN])
{
	(void)kind;
	const struct ends *e = ctx;
	memcpy(psk, e->psk, LNK1_KEY_LEN);
	return memcmp(node_pk, e->node.pk, LNK1_KEY_LEN) == 0;
}

static void make_ends(struct ends *e)
{
	memset(e, 0, sizeof *e);
	crypto_kx_keypair(e->server.pk, e->server.sk);
	crypto_kx_keypair(e->node.pk, e->node.sk);
	randombytes_buf(e->psk, sizeof e->psk);
	e->client = (struct lnk1_client_params){.self = &e->node,
		.mode = LNK1_MEMBER,
		.kind = LNK1_DATA,
		.protocol_min = 1,
		.protocol_max = 1,
		.record_max = 1 << 20};
	memcpy(e->client.server_pk, e->server.pk, LNK1_KEY_LEN);
	memcpy(e->client.psk, e->psk, LNK1_KEY_LEN);
	e->cfg = (struct lnk1_server_config){.self = &e->server,
		.lookup = {.ctx = e, .member = find_member},
		.protocol_min = 1,
		.protocol_max = 1,
		.record_max = {1 << 20, 1 << 20, 1 << 20}};
}

static void to_server(struct ends *e, struct lnk1_server *s, const struct lnk1_client *c, enum lnk1_step want)
{
	size_t len, room;
	const uint8_t *out = lnk1_client_out(c, &len);
	int64_t begin = now_ns();
	memcpy(lnk1_server_room(s, &room), out, len);
	require(lnk1_server_received(s, len) == want);
	e->server_ns += now_ns() - begin;
}

static void to_client(struct ends *e, struct lnk1_client *c, const struct lnk1_server *s, enum lnk1_step want)
{
	size_t len, room;
	const uint8_t *out = lnk1_server_out(s, &len);
	int64_t begin = now_ns();
	memcpy(lnk1_client_room(c, &room), out, len);
	require(lnk1_client_received(c, len) == want);
	e->client_ns += now_ns() - begin;
}

static void shake_hands(struct ends *e, struct lnk1_link *client_link, struct lnk1_link *server_link)
{
	struct lnk1_client c;
	struct lnk1_server s;
	struct lnk1_client_random c_rnd;
	struct lnk1_server_random s_rnd;
	randombytes_buf(&c_rnd, sizeof c_rnd);
	randombytes_buf(&s_rnd, sizeof s_rnd);
	int64_t t0 = now_ns();
	require(lnk1_client_init(&c, &e->client, &c_rnd) == LNK1_SEND);
	int64_t t1 = now_ns();
	lnk1_server_init(&s, &e->cfg, &s_rnd);
	e->server_ns += now_ns() - t1;
	e->client_ns += t1 - t0;
	to_server(e, &s, &c, LNK1_SEND);
	to_client(e, &c, &s, LNK1_SEND);
	to_server(e, &s, &c, LNK1_JUDGE);
	t0 = now_ns();
	require(lnk1_server_accept(&s) == LNK1_DONE);
	e->server_ns += now_ns() - t0;
	to_client(e, &c, &s, LNK1_DONE);
	t0 = now_ns();
	lnk1_client_finish(&c, client_link);
	t1 = now_ns();
	lnk1_server_finish(&s, server_link);
	e->server_ns += now_ns() - t1;
	e->client_ns += t1 - t0;
}

static void measure_handshakes(void)
{
	int64_t best_client = INT64_MAX, best_server = INT64_MAX;
	for (int k = 0; k < REPEATS; k++) {
		struct ends e;
		struct lnk1_link a, b;
		make_ends(&e);
		for (int i = 0; i < HANDSHAKES; i++)
			shake_hands(&e, &a, &b);
		best_client = e.client_ns < best_client ? e.client_ns : best_client;
		best_server = e.server_ns < best_server ? e.server_ns : best_server;
	}
	printf("handshake: client %.1f us, server %.1f us\n", (double)best_client / HANDSHAKES / 1e3,
		(double)best_server / HANDSHAKES / 1e3);
}

static void measure_records(uint32_t len)
{
	struct ends e;
	struct lnk1_link a, b;
	uint8_t *record = calloc(1, len + LNK1_RECORD_EXTRA);
	int64_t seal = INT64_MAX, open = INT64_MAX;
	require(record != NULL);
	make_ends(&e);
	shake_hands(&e, &a, &b);
	int n = (int)(BYTES / REPEATS / len) < 20000 ? (int)(BYTES / REPEATS / len) : 20000;
	for (int k = 0; k < REPEATS; k++) {
		int64_t seal_ns = 0, open_ns = 0;
		for (int i = 0; i < n; i++) {
			size_t body;
			uint32_t got;
			int64_t t0 = now_ns();
			require(lnk1_seal(&a.tx, record + LNK1_RECORD_PLAIN_AT, len, record) == OK);
			int64_t t1 = now_ns();
			require(lnk1_open_head(&b.rx, record, &body) == OK);
			require(lnk1_open_body(&b.rx, record + LNK1_RECORD_HEAD, record + LNK1_RECORD_PLAIN_AT, &got) == OK);
			open_ns += now_ns() - t1;
			seal_ns += t1 - t0;
		}
		seal = seal_ns < seal ? seal_ns : seal;
		open = open_ns < open ? open_ns : open;
	}
	printf("records of %7u bytes: seal %.2f us, open %.2f us each\n", len, (double)seal / n / 1e3, (double)open / n / 1e3);
	free(record);
}

int main(void)
{
	if (sodium_init() < 0)
		return 1;
	measure_handshakes();
	measure_records(64);
	measure_records(2304 + 32); // a token's hidden state of SmolLM2, f32
	measure_records(65536);
	measure_records(1 << 20);
	return 0;
}
