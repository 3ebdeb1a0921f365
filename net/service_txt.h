// What a coordinator says of itself on the local network: the TXT record of its DNS-SD service (RFC 6763).
//
// Everybody on the network reads it, and anybody can write one. Nothing in it is a secret, and nothing in it is believed: a name is for the
// person who looks at a list, the fingerprint says which key the handshake must prove, and the versions only save a useless attempt.
//
//   id=<64 hexadecimal digits>  NodeID of the coordinator's key (link-protocol.md): its fingerprint
//   name=<UTF-8>                what the cluster is called
//   proto=<number>              PROTOCOL_VERSION
//   canon=<number>              CANON_VERSION
//
// The record is a sequence of strings, each behind a byte of length. Pure.
#ifndef HEARTH_NET_SERVICE_TXT_H
#define HEARTH_NET_SERVICE_TXT_H

#include "base/err.h"
#include "base/ids.h"
#include "base/limits.h"

#include <stddef.h>
#include <stdint.h>

#define SERVICE_TYPE "_hearth._tcp"
#define SERVICE_TXT_MAX 1024     // bytes of a record that are looked at: ours have some 160
#define SERVICE_TXT_STRINGS_MAX 64
#define SERVICE_SUBTYPE_CAP 48   // of service_subtype
#define FINGERPRINT_TEXT_CAP 20  // of fingerprint_text

struct service_txt {
	struct node_id id;
	char name[NAME_CAP];     // printable; "": it says none
	uint32_t protocol_version; // 0: it does not say
	uint32_t canon_version;
};

// service_txt_encode writes a record of at most SERVICE_TXT_MAX bytes and returns its length. The name is cut to what printable_copy leaves.
size_t service_txt_encode(const struct service_txt *t, uint8_t out[SERVICE_TXT_MAX]);
// service_txt_decode reads any bytes. Of two strings with one key the first counts; keys it does not know are passed over. ERR_FORMAT: a length
// past the end, or no id that could be one; ERR_LIMIT: too long, or too many strings. `out` is zero then.
MUST_USE enum err service_txt_decode(const void *data, size_t len, struct service_txt *out);

// service_subtype writes the DNS-SD type under which only coordinators that claim this key are found, so that a network full of others hides none.
void service_subtype(const struct node_id *id, char out[SERVICE_SUBTYPE_CAP]);
// fingerprint_text writes the first 8 bytes of an id as people compare them: "3f2a-91c0-77de-0b14".
void fingerprint_text(const struct node_id *id, char out[FINGERPRINT_TEXT_CAP]);

#endif
