// The inputs of the specification's test vectors, and what drives two machines against each other in memory.
#ifndef HEARTH_TESTS_SUPPORT_LNK1_FIXTURE_H
#define HEARTH_TESTS_SUPPORT_LNK1_FIXTURE_H

#include "proto/lnk1.h"

// lnk1_fill writes F(n, a): byte i = (a + 7 i) mod 256.
void lnk1_fill(uint8_t *out, size_t n, unsigned a);

// Both ends and the server's tables (one member, one invite), with knobs. Must not move: `cfg` points into it.
struct lnk1_fixture {
	struct lnk1_keypair server_keys, node_keys;
	struct lnk1_client_params client;
	struct lnk1_server_config cfg;
	uint8_t member_pk[LNK1_KEY_LEN], member_psk[LNK1_KEY_LEN];
	uint8_t token_id[LNK1_TOKEN_ID_LEN], token_secret[LNK1_KEY_LEN];
	bool has_member, has_token; // false: revoked or unknown; not outstanding
	int n_token_asked, n_member_asked;
};

// lnk1_fixture_init: the inputs of the vectors for this mode and kind.
void lnk1_fixture_init(struct lnk1_fixture *f, enum lnk1_mode mode, enum lnk1_kind kind);

// The vectors' ephemerals, headers and session_id, each turned by `salt` (0: the vectors themselves).
struct lnk1_client_random lnk1_client_randomness(unsigned salt);
struct lnk1_server_random lnk1_server_randomness(unsigned salt);

// The four messages and both machines, paused wherever a test wants them.
struct lnk1_talk {
	struct lnk1_client client;
	struct lnk1_server server;
	uint8_t m1[LNK1_M1_LEN], m2[LNK1_M2_LEN], m3[LNK1_M3_LEN], m4[LNK1_M4_LEN];
	struct lnk1_link client_link, server_link;
};

// Each step asserts that it went well, and keeps the message.
void lnk1_talk_begin(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt); // M1 made
void lnk1_talk_to_m2(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt);
void lnk1_talk_to_m3(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt);
void lnk1_talk_to_m4(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt);
void lnk1_talk_whole(struct lnk1_talk *t, struct lnk1_fixture *f, unsigned salt); // both links set up

// lnk1_feed_x gives one whole message (or its first `len` bytes) and returns the last step.
enum lnk1_step lnk1_feed_server(struct lnk1_server *s, const uint8_t *msg, size_t len);
enum lnk1_step lnk1_feed_client(struct lnk1_client *c, const uint8_t *msg, size_t len);

// A failed machine holds nothing but why.
void lnk1_assert_server_failed(const struct lnk1_server *s, enum lnk1_failure why);
void lnk1_assert_client_failed(const struct lnk1_client *c, enum lnk1_failure why);
// lnk1_answer_to gives a fresh server this M1 and says how that ends: 0 when it answers.
enum lnk1_failure lnk1_answer_to(const struct lnk1_fixture *f, const uint8_t m1[LNK1_M1_LEN]);

#endif
