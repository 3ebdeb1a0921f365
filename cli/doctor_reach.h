// Whether this machine reaches another one's port, and how fast: `hearth doctor` with a coordinator's address, a membership, or a cluster's nodes.
// Names are looked up and connections waited for here, within a deadline each.
#ifndef HEARTH_CLI_DOCTOR_REACH_H
#define HEARTH_CLI_DOCTOR_REACH_H

#include "cli/doctor_network.h"
#include "cli/doctor_report.h"
#include "net/loop.h"
#include "node/shell/membership.h"

#include <stdbool.h>

enum reach {
	REACH_OK,
	REACH_REFUSED,  // the machine is there, and nobody listens
	REACH_SILENT,   // no answer
	REACH_NO_ROUTE,
	REACH_NO_NAME,
	REACH_FAILED,
};

struct reach_result {
	enum reach end;
	double ms;                        // to the connection, with REACH_OK
	enum network_neighbour neighbour; // of an IPv4 address that did not answer
	char text[128];                   // with REACH_FAILED
};

// reach_try connects to "HOST:PORT" once and closes it again.
void reach_try(const char *root, const char *addr, int32_t patience_ms, struct reach_result *out);
// reach_explain adds a finding: what `who` being reached so means. `reverse`: the other way works (it is a member whose link is here).
void reach_explain(const char *who, const char *addr, const struct reach_result *t, bool reverse, struct doctor_report *r);
// reach_sample connects n more times, with pauses in which a radio falls asleep.
void reach_sample(const char *addr, int32_t n, struct doctor_rtts *out);

// reach_as_member makes a link to the coordinator with this machine's membership: proves keys and versions, and measures round trips over it. Only
// while no node runs on the state directory, whose link of the same kind it would replace.
void reach_as_member(struct loop *loop, const struct membership *m, const struct lnk1_keypair *keys, const char *addr, struct doctor_report *r);

#endif
