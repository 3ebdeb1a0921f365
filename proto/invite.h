// The invite: what `hearth invite` prints and `hearth join` reads. It holds a secret: never in logs, argv or the environment.
//
// As text it is a URL of at most INVITE_URL_MAX characters:
//
//   hearth://[ADDR[,ADDR...]]/join/1/PAYLOAD
//
// ADDR is host:port (a DNS name, an IPv4 address, or an IPv6 address in brackets), at most ADDRS_MAX of them, readable on purpose: a
// person may correct one. With none the coordinator is to be discovered on the local network. 1 is the format version. PAYLOAD is base64url without padding of 84 bytes:
//
//   server's public key 32 | token_id 8 | token_secret 32 | expiry u64 (Unix seconds) | check 4
//
// where check is the first 4 bytes of BLAKE2b-256("hearth invite 1" | the 80 bytes before): against slips of the hand and a
// cut line, not against malice (the handshake is). One use, ten minutes, eight outstanding: the coordinator's business, not ours.
// Pure; the caller owns all memory and wipes it.
#ifndef HEARTH_PROTO_INVITE_H
#define HEARTH_PROTO_INVITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/limits.h"
#include "proto/lnk1.h"

#define INVITE_URL_CAP 1280 // eight addresses of ADDR_CAP, the payload's 112, and the rest; with the NUL
#define INVITE_URL_MAX (INVITE_URL_CAP - 1)

struct invite {
	uint8_t server_pk[LNK1_KEY_LEN];
	uint8_t token_id[LNK1_TOKEN_ID_LEN]; // never all zero
	uint8_t token_secret[LNK1_KEY_LEN];
	uint64_t expiry_s; // Unix seconds
	uint32_t n_addrs;
	char addrs[ADDRS_MAX][ADDR_CAP]; // "host:port"
};

// invite_encode writes the URL with its NUL. ERR_RANGE: a field that invite_parse would refuse.
MUST_USE enum err invite_encode(const struct invite *in, char url[INVITE_URL_CAP], struct errmsg *em);

// invite_parse reads `len` bytes of anything (white space around the URL is skipped). ERR_FORMAT, ERR_UNSUPPORTED (a newer format
// version) or ERR_LIMIT; `out` is all zero then, and the message never quotes the secret part.
MUST_USE enum err invite_parse(const char *text, size_t len, struct invite *out, struct errmsg *em);

// invite_is_expired: at `now_s` (Unix seconds) the invite is of no use any more.
bool invite_is_expired(const struct invite *in, uint64_t now_s);

void invite_wipe(struct invite *in);

#endif
