// What `hearth doctor --live` thinks of a running cluster: each node as its coordinator sees it, whether this machine reaches the nodes' own ports, and
// the links' round trips, watched for a few seconds.
#ifndef HEARTH_CLI_DOCTOR_LIVE_H
#define HEARTH_CLI_DOCTOR_LIVE_H

#include "cli/command.h"
#include "cli/doctor_network.h"
#include "cli/doctor_report.h"

#include <jansson.h>

// doctor_live asks the coordinator of --state. ERR_*: none runs there; nothing was added then.
MUST_USE enum err doctor_live(const struct command_ctx *ctx, struct doctor_report *r, struct errmsg *em);

// ---- its parts, for tests

#define DOCTOR_WATCHED_MAX 64

// Round trips of each node to the coordinator and to the next stage, taken from one status after the other; each is counted once, by its number.
struct doctor_watch {
	int32_t n;
	struct doctor_watched {
		char id[65];
		json_int_t n_own, n_next;
		struct doctor_rtts own, next;
	} at[DOCTOR_WATCHED_MAX];
};
void doctor_watch_take(struct doctor_watch *w, const json_t *status);
// doctor_live_nodes adds findings about states, relays and round trips of a status.
void doctor_live_nodes(const json_t *status, struct doctor_watch *w, struct doctor_report *r);
// doctor_live_address writes where a node listens, "HOST:PORT"; false: nowhere, or it is this machine.
bool doctor_live_address(const json_t *node, char out[ADDR_CAP]);

#endif
