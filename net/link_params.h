// What every LNK1 side of this program says of itself: versions and limits are the same for all of them. `canon_version` is CANON_VERSION of
// kernels/canonical.h, which net does not know.
#ifndef HEARTH_NET_LINK_PARAMS_H
#define HEARTH_NET_LINK_PARAMS_H

#include "proto/lnk1.h"

// link_params_server fills a server's side but for its look-ups, member_epoch (0) and is_node (false).
void link_params_server(struct lnk1_server_config *out, const struct lnk1_keypair *self, const uint8_t cluster_id[LNK1_CLUSTER_ID_LEN],
	uint32_t canon_version);
// link_params_client fills a client's side but for whom it dials and with which secret; all of that is zero.
void link_params_client(struct lnk1_client_params *out, const struct lnk1_keypair *self, enum lnk1_mode mode, enum lnk1_kind kind,
	const uint8_t boot_id[LNK1_BOOT_ID_LEN], uint32_t canon_version);

#endif
