#include "net/link_params.h"

#include "base/limits.h"
#include "net/link.h"

#include <string.h>

void link_params_server(struct lnk1_server_config *out, const struct lnk1_keypair *self, const uint8_t cluster_id[LNK1_CLUSTER_ID_LEN],
	uint32_t canon_version)
{
	*out = (struct lnk1_server_config){
		.self = self, .protocol_min = PROTOCOL_VERSION, .protocol_max = PROTOCOL_VERSION, .canon_version = canon_version};
	memcpy(out->cluster_id, cluster_id, LNK1_CLUSTER_ID_LEN);
	for (int kind = 0; kind < LNK1_N_KINDS; kind++)
		out->record_max[kind] = link_record_max((enum lnk1_kind)kind);
}

void link_params_client(struct lnk1_client_params *out, const struct lnk1_keypair *self, enum lnk1_mode mode, enum lnk1_kind kind,
	const uint8_t boot_id[LNK1_BOOT_ID_LEN], uint32_t canon_version)
{
	*out = (struct lnk1_client_params){.self = self,
		.mode = mode,
		.kind = kind,
		.protocol_min = PROTOCOL_VERSION,
		.protocol_max = PROTOCOL_VERSION,
		.canon_version = canon_version,
		.record_max = link_record_max(kind)};
	memcpy(out->boot_id, boot_id, LNK1_BOOT_ID_LEN);
}
