// LNK1: the handshake and record layer of every link, as a pure machine.
//
// Bytes in, bytes out; keys and randomness are given. No clock, no socket, no allocation, so that the simulator and the
// fuzzers run the very code that the sockets run. It never knows what a record means: a frame's type is inside the plaintext.
//
// The shape is Noise XK with a pre-shared key, from libsodium's crypto_kx, crypto_generichash (BLAKE2b), crypto_secretbox and
// crypto_secretstream_xchacha20poly1305. All integers are little-endian; `h` is the hash of all that was said, `ck` the chain of
// what only the two ends know. With `c` the client (who opened the connection) and S the static key of the server it dialled:
//
//   M1  c->s  72 B  "LNK1" | version 1 | suite 1 | mode | kind | e_c 32 | Seal("m1": cluster_id 16, or token_id 8 | zero 8)
//   M2  s->c  80 B  e_s 32 | Seal("m2": session_id 16 | zero 16)
//   M3  c->s 136 B  Seal("m3s": node_pk 32 | psk_id 8) | Seal("m3p": boot_id 8 | last member_epoch u64 | protocol min u16, max u16 |
//                   CANON_VERSION u32 | header c->s 24 | zero 16)
//   M4  s->c  80 B  Seal("m4": status u16 | chosen version u16 | record_max u32 | member_epoch u64 | header s->c 24 | zero 24)
//
// A record is: u32 length of the plaintext | ciphertext (that length + 17).
//
// How a host drives either side: lnk1_x_room says where the next bytes go and how many are wanted (never more than this
// message needs, so nothing is read beyond it); lnk1_x_received says how many arrived and returns what to do now. What is
// to be sent lies in the machine itself (lnk1_x_out) until the next lnk1_x_room, so a half-open handshake needs no other
// buffer. After LNK1_FAILED the machine holds no secret; it is closed without a reply.
//
// Ownership: the caller provides each struct. `self`, `cfg` and the look-ups are borrowed for the whole handshake. Any state may be
// dropped at any time with lnk1_x_deinit, which wipes it. Threads: one at a time per struct; the tx and rx streams of a
// link are separate structs and may live on two threads.
// sodium_init must have returned 0 or 1 before anything here is called.
#ifndef HEARTH_PROTO_LNK1_H
#define HEARTH_PROTO_LNK1_H

#include <sodium.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define LNK1_KEY_LEN 32
#define LNK1_CLUSTER_ID_LEN 16
#define LNK1_TOKEN_ID_LEN 8
#define LNK1_SESSION_ID_LEN 16
#define LNK1_BOOT_ID_LEN 8
#define LNK1_HEADER_LEN 24 // of a secretstream
#define LNK1_M1_LEN 72
#define LNK1_M2_LEN 80
#define LNK1_M3_LEN 136
#define LNK1_M4_LEN 80
#define LNK1_MSG_MAX LNK1_M3_LEN

enum lnk1_mode {
	LNK1_MEMBER = 0, // the two ends share a psk already; also node to node
	LNK1_JOIN = 1,   // the client holds an invite
};

enum lnk1_kind {
	LNK1_CONTROL = 0,
	LNK1_DATA = 1,
	LNK1_BLOCKS = 2,
};
#define LNK1_N_KINDS 3

enum lnk1_status {
	LNK1_STATUS_OK = 0,
	LNK1_STATUS_VERSION = 1, // no common protocol version
	LNK1_STATUS_CANON = 2,   // the other end computes another canonical arithmetic
};

// X(name, words). Unknown, revoked and wrong psk are one failure on purpose.
#define LNK1_FAILURE_TABLE(X) \
	X(LNK1_OK, "no failure") \
	X(LNK1_NOT_LNK1, "not an LNK1 handshake of a version, suite, mode and kind we take") \
	X(LNK1_BAD_POINT, "a public key of low order or out of range") \
	X(LNK1_BAD_SEAL, "a message does not open: another key pinned, or altered on the way") \
	X(LNK1_BAD_CLUSTER, "another cluster") \
	X(LNK1_BAD_TOKEN, "no such invite outstanding") \
	X(LNK1_BAD_PEER, "the peer did not prove that it is a member, or that it holds the invite") \
	X(LNK1_BAD_FIELD, "a field outside its range") \
	X(LNK1_NO_VERSION, "no common protocol version") \
	X(LNK1_OTHER_CANON, "the other end computes another canonical arithmetic") \
	X(LNK1_OLD_EPOCH, "the coordinator's member epoch is older than ours: was its state directory restored from a copy?") \
	X(LNK1_REFUSED, "refused by this end")

enum lnk1_failure {
#define X(name, words) name,
	LNK1_FAILURE_TABLE(X)
#undef X
};

// lnk1_failure_words returns the static text of `f`; for the log of this end only, never sent.
const char *lnk1_failure_words(enum lnk1_failure f);

// What the host does now.
enum lnk1_step {
	LNK1_MORE,  // receive: lnk1_x_room
	LNK1_SEND,  // send lnk1_x_out, then receive
	LNK1_JUDGE, // server only: the peer is authenticated; lnk1_server_accept or lnk1_server_refuse
	LNK1_DONE,  // client: lnk1_client_finish. Server (from lnk1_server_accept): send lnk1_server_out, then lnk1_server_finish
	LNK1_REJECT, // server only: send lnk1_server_out (an M4 whose status says why), then close
	LNK1_FAILED, // close without a reply; x->failure says why
};

// A static X25519 pair. `sk` is a raw scalar.
struct lnk1_keypair {
	uint8_t pk[LNK1_KEY_LEN];
	uint8_t sk[LNK1_KEY_LEN];
};

// lnk1_node_id puts NodeID = BLAKE2b-256(public key) into `id`.
void lnk1_node_id(const uint8_t pk[LNK1_KEY_LEN], uint8_t id[LNK1_KEY_LEN]);

// The transcript both sides keep.
struct lnk1_symmetric {
	uint8_t h[LNK1_KEY_LEN];  // hash of all that was said
	uint8_t ck[LNK1_KEY_LEN]; // chaining key
};

// ---- Records ----

#define LNK1_RECORD_HEAD 4                          // the length
#define LNK1_RECORD_EXTRA (LNK1_RECORD_HEAD + 17)   // bytes a record is longer than its plaintext
#define LNK1_RECORD_PLAIN_AT (LNK1_RECORD_HEAD + 1) // where in a record its plaintext lies (sealed and opened in place)
#define LNK1_REKEY_RECORDS 65536u
#define LNK1_REKEY_BYTES (UINT64_C(1) << 30)

enum lnk1_stream_state {
	LNK1_STREAM_DEAD,  // never set up, failed, or wiped
	LNK1_STREAM_OPEN,  // between two records
	LNK1_STREAM_BODY,  // rx only: the header was taken, its body is awaited
	LNK1_STREAM_FINAL, // TAG_FINAL was sent or received: an orderly end
};

// One direction of one link.
struct lnk1_stream {
	crypto_secretstream_xchacha20poly1305_state secret;
	uint8_t ad[LNK1_RECORD_HEAD + 2 + LNK1_SESSION_ID_LEN]; // length as sent | kind | direction | session_id
	atomic_bool busy;                                       // a call is inside: two threads on one stream are our bug
	uint8_t state;                                          // enum lnk1_stream_state
	uint32_t record_max;                                    // bytes of plaintext
	uint32_t body_len;                                      // rx: plaintext length of the record whose header was taken
	uint32_t n_records;                                     // tx: since its last TAG_REKEY
	uint64_t n_bytes;                                       // tx: plaintext since its last TAG_REKEY
	uint32_t rekey_records;                                 // tx: LNK1_REKEY_RECORDS; tests set less
	uint64_t rekey_bytes;                                   // tx: LNK1_REKEY_BYTES; tests set less
};

// lnk1_seal makes one record of 1 to record_max bytes: `out` takes len + LNK1_RECORD_EXTRA bytes, all of them to be sent.
// `plain` may be out + LNK1_RECORD_PLAIN_AT (sealed in place), and must not overlap `out` in any other way. Returns
// ERR_RANGE for a length outside that range and ERR_CLOSED after lnk1_seal_final; nothing is written then.
MUST_USE enum err lnk1_seal(struct lnk1_stream *tx, const uint8_t *plain, uint32_t len, uint8_t *out);

// lnk1_seal_final makes the record that ends this direction: the only one of length 0. ERR_CLOSED the second time.
MUST_USE enum err lnk1_seal_final(struct lnk1_stream *tx, uint8_t out[LNK1_RECORD_EXTRA]);

// lnk1_open_head takes a record's first four bytes, checks the length against the link's maximum before anything else, and
// puts the number of bytes that follow (plaintext + 17) into *body_len. ERR_LIMIT: too long; ERR_CLOSED: after FINAL or
// a failure. Any error: close the link.
MUST_USE enum err lnk1_open_head(struct lnk1_stream *rx, const uint8_t head[LNK1_RECORD_HEAD], size_t *body_len);

// lnk1_open_body opens the bytes that lnk1_open_head asked for into `plain` (body_len - 17 bytes; may be body + 1: in
// place, and must not overlap `body` in any other way) and puts the plaintext's length into *len: 0 says TAG_FINAL, the
// orderly end. ERR_AUTH: altered, replayed, out of order, another link's, or a tag we do not take; `plain` holds nothing of it.
// Any error: close the link without a reply.
MUST_USE enum err lnk1_open_body(struct lnk1_stream *rx, const uint8_t *body, uint8_t *plain, uint32_t *len);

// lnk1_ended_well says whether the peer's end of stream is an orderly end: TAG_FINAL came. Anything else is a failure event.
bool lnk1_ended_well(const struct lnk1_stream *rx);

// lnk1_stream_deinit wipes it; safe on zeroed memory.
void lnk1_stream_deinit(struct lnk1_stream *s);

// ---- What both sides have at the end ----

struct lnk1_link {
	struct lnk1_stream tx;
	struct lnk1_stream rx;
	enum lnk1_mode mode;
	enum lnk1_kind kind;
	uint8_t peer_pk[LNK1_KEY_LEN];
	uint8_t session_id[LNK1_SESSION_ID_LEN];
	uint8_t token_id[LNK1_TOKEN_ID_LEN]; // join mode; zero else
	uint8_t boot_id[LNK1_BOOT_ID_LEN];   // the client's
	uint64_t member_epoch;               // the server's, as in M4
	uint64_t client_member_epoch;        // the last one the client had stored, as in M3
	uint32_t record_max;                 // bytes of plaintext, both directions
	uint16_t version;                    // of the protocol above, chosen
};

// ---- Client: whoever opened the connection ----

// One fresh draw for one handshake. lnk1_client_init wipes the caller's copy.
struct lnk1_client_random {
	uint8_t e_sk[LNK1_KEY_LEN];
	uint8_t header[LNK1_HEADER_LEN];
};

struct lnk1_client_params {
	const struct lnk1_keypair *self; // borrowed until the handshake ends
	uint8_t server_pk[LNK1_KEY_LEN]; // S: pinned
	enum lnk1_mode mode;
	enum lnk1_kind kind;                     // join: LNK1_CONTROL only
	uint8_t cluster_id[LNK1_CLUSTER_ID_LEN]; // member
	uint8_t psk[LNK1_KEY_LEN];               // member: this link's own
	uint8_t token_id[LNK1_TOKEN_ID_LEN];     // join
	uint8_t token_secret[LNK1_KEY_LEN];      // join
	uint8_t boot_id[LNK1_BOOT_ID_LEN];
	uint64_t member_epoch; // the last one stored; 0 before the first
	uint16_t protocol_min, protocol_max;
	uint32_t canon_version;
	uint32_t record_max; // our own limit for this kind, bytes of plaintext
};

struct lnk1_client {
	const struct lnk1_keypair *self;
	uint64_t member_epoch;
	struct lnk1_symmetric sym;
	uint8_t server_pk[LNK1_KEY_LEN];
	uint8_t e_sk[LNK1_KEY_LEN];
	uint8_t e_pk[LNK1_KEY_LEN];
	uint8_t psk[LNK1_KEY_LEN];
	uint8_t psk_id[LNK1_TOKEN_ID_LEN]; // zero, or the token's id
	uint8_t session_id[LNK1_SESSION_ID_LEN];
	uint8_t boot_id[LNK1_BOOT_ID_LEN];
	uint8_t header_c2s[LNK1_HEADER_LEN];
	uint8_t header_s2c[LNK1_HEADER_LEN];
	uint8_t buf[LNK1_MSG_MAX]; // the message being received, or to be sent
	uint8_t have;              // bytes of it
	uint8_t want;              // bytes it has when complete; 0: nothing is awaited
	uint8_t out_len;
	uint8_t stage;
	uint8_t mode, kind;
	uint8_t failure; // enum lnk1_failure
	uint16_t protocol_min, protocol_max;
	uint16_t version;
	uint32_t canon_version;
	uint32_t record_max;
	uint64_t server_epoch;
};

// lnk1_client_init makes M1, to be sent from lnk1_client_out. Returns LNK1_SEND, or LNK1_FAILED (LNK1_BAD_POINT) when S is
// no usable public key. `p` is not needed afterwards (the caller wipes its own copy), `rnd` is wiped.
MUST_USE enum lnk1_step lnk1_client_init(
	struct lnk1_client *c, const struct lnk1_client_params *p, struct lnk1_client_random *rnd);

// lnk1_client_room returns where the next bytes go and puts how many are wanted, at least 1, into *len. Only when a message
// is awaited: after LNK1_MORE or LNK1_SEND.
uint8_t *lnk1_client_room(struct lnk1_client *c, size_t *len);

// lnk1_client_received takes the first n bytes of the room: LNK1_MORE, LNK1_SEND (M3), LNK1_DONE or LNK1_FAILED.
MUST_USE enum lnk1_step lnk1_client_received(struct lnk1_client *c, size_t n);

// lnk1_client_out returns what LNK1_SEND wants sent; valid until lnk1_client_room.
const uint8_t *lnk1_client_out(const struct lnk1_client *c, size_t *len);

// lnk1_client_finish sets up `link` after LNK1_DONE and wipes `c`.
void lnk1_client_finish(struct lnk1_client *c, struct lnk1_link *link);

void lnk1_client_deinit(struct lnk1_client *c);

// ---- Server: whoever accepted it ----

// Tables the machine reads; pure look-ups without a side effect. Each is asked at most once per handshake.
struct lnk1_lookup {
	void *ctx;
	// token: is this invite outstanding? Then its secret. NULL on a node.
	bool (*token)(void *ctx, const uint8_t token_id[LNK1_TOKEN_ID_LEN], uint8_t secret[LNK1_KEY_LEN]);
	// member: is this key a member now (not revoked)? Then the psk of links of this kind with it; on a node, the pairwise psk.
	bool (*member)(void *ctx, enum lnk1_kind kind, const uint8_t node_pk[LNK1_KEY_LEN], uint8_t psk[LNK1_KEY_LEN]);
};

// What all handshakes of one listener share; borrowed by each of them. The host may raise member_epoch while some are open.
struct lnk1_server_config {
	const struct lnk1_keypair *self;
	struct lnk1_lookup lookup;
	uint8_t cluster_id[LNK1_CLUSTER_ID_LEN];
	bool is_node; // a node's server part: refuses join mode and control links
	uint64_t member_epoch;
	uint16_t protocol_min, protocol_max;
	uint32_t canon_version;
	uint32_t record_max[LNK1_N_KINDS]; // bytes of plaintext, told to the client
};

// One fresh draw for one handshake. lnk1_server_init wipes the caller's copy.
struct lnk1_server_random {
	uint8_t e_sk[LNK1_KEY_LEN];
	uint8_t session_id[LNK1_SESSION_ID_LEN];
	uint8_t header[LNK1_HEADER_LEN];
	uint8_t decoy_psk[LNK1_KEY_LEN]; // stands in for the psk of a key that is no member
};

struct lnk1_server {
	const struct lnk1_server_config *cfg;
	struct lnk1_symmetric sym;
	uint8_t e_sk[LNK1_KEY_LEN];
	uint8_t e_pk[LNK1_KEY_LEN];
	uint8_t psk[LNK1_KEY_LEN]; // the decoy, or in join mode the invite's
	uint8_t node_pk[LNK1_KEY_LEN];
	uint8_t token_id[LNK1_TOKEN_ID_LEN];
	uint8_t session_id[LNK1_SESSION_ID_LEN];
	uint8_t boot_id[LNK1_BOOT_ID_LEN];
	uint8_t header_c2s[LNK1_HEADER_LEN];
	uint8_t header_s2c[LNK1_HEADER_LEN];
	uint8_t buf[LNK1_MSG_MAX];
	uint8_t have, want, out_len;
	uint8_t stage;
	uint8_t mode, kind;
	uint8_t failure;    // enum lnk1_failure
	bool blames_invite; // the failure counts against invite token_id: m3s opened and m3p did not
	uint16_t version;
	uint64_t client_epoch;
	uint64_t member_epoch; // as put into M4
	uint32_t record_max;
};

_Static_assert(sizeof(struct lnk1_server) <= 512, "a half-open handshake costs at most 512 bytes");

// lnk1_server_init awaits M1. `rnd` is wiped.
void lnk1_server_init(struct lnk1_server *s, const struct lnk1_server_config *cfg, struct lnk1_server_random *rnd);

// lnk1_server_room, lnk1_server_out: as for the client.
uint8_t *lnk1_server_room(struct lnk1_server *s, size_t *len);
const uint8_t *lnk1_server_out(const struct lnk1_server *s, size_t *len);

// lnk1_server_received returns LNK1_MORE, LNK1_SEND (M2), LNK1_JUDGE, LNK1_REJECT or LNK1_FAILED. At LNK1_JUDGE the peer owns
// s->node_pk and knows the psk; s->mode, s->kind, s->token_id, s->boot_id and s->client_epoch are authenticated too. In join
// mode the host now checks that the invite still stands and is unbound or bound to this key, writes the binding (fsync), and
// only then accepts: seconds may pass. At LNK1_FAILED s->blames_invite says whether to count it against s->token_id.
MUST_USE enum lnk1_step lnk1_server_received(struct lnk1_server *s, size_t n);

// lnk1_server_accept makes M4 (with the configuration's member_epoch of this moment). Returns LNK1_DONE.
enum lnk1_step lnk1_server_accept(struct lnk1_server *s);

// lnk1_server_refuse wipes `s`: close without a reply. Returns LNK1_FAILED.
enum lnk1_step lnk1_server_refuse(struct lnk1_server *s);

// lnk1_server_finish sets up `link` after LNK1_DONE and wipes `s`. M4 lies in `s`, so send it first, or copy it.
void lnk1_server_finish(struct lnk1_server *s, struct lnk1_link *link);

void lnk1_server_deinit(struct lnk1_server *s);

#endif
