// A node's membership: what a join gave it, in STATE/membership. With it `hearth join` needs no invite.
//
// The file (base/durable_file): "HEARTHM2" | coordinator's public key 32 | a JoinGrant as it came in its control frame, member_epoch kept current |
// BLAKE2b-256 of all before: a bit that flipped in a key is found here, and not by a coordinator that refuses this machine for ever.
#ifndef HEARTH_NODE_SHELL_MEMBERSHIP_H
#define HEARTH_NODE_SHELL_MEMBERSHIP_H

#include "base/err.h"
#include "base/log.h"
#include "net/link.h"
#include "net/loop.h"
#include "proto/invite.h"
#include "proto/msg.h"

struct membership {
	uint8_t coordinator_pk[KEY_BYTES];
	struct msg_join_grant grant;
};

// membership_load: ERR_NOT_FOUND when this machine is no member of anything yet; ERR_FORMAT: damaged; ERR_AUTH: mode or owner.
MUST_USE enum err membership_load(const char *path, struct membership *out, struct errmsg *em);
MUST_USE enum err membership_save(const char *path, const struct membership *m, struct errmsg *em);
// membership_join uses an invite: tries its addresses in turn, proves it, writes the grant to `path`, acknowledges. Runs the loop until
// that is done or every address has failed (the message names each). `limits` is borrowed until the return.
MUST_USE enum err membership_join(struct loop *loop, const struct invite *invite, const struct lnk1_keypair *keys, const uint8_t boot_id[LNK1_BOOT_ID_LEN],
	const struct link_limits *limits, const char *path, struct membership *out, struct errmsg *em);

#endif
