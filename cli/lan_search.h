// Looking round on the local network for a moment, for `hearth join` and `hearth doctor`: who announces itself, and where one coordinator is.
// What is found is a place to try, never a reason to trust (net/discovery.h).
#ifndef HEARTH_CLI_LAN_SEARCH_H
#define HEARTH_CLI_LAN_SEARCH_H

#include "base/err.h"
#include "net/discovery.h"
#include "proto/msg.h"

#include <stdio.h>

#define LAN_SEARCH_ADDRS 4 // of one coordinator that are tried: a liar's cost time only, but time it is

struct lan_search_params {
	struct loop *loop;
	const struct discovery_backend *backend;
	const struct node_id *pinned; // only this coordinator, and no longer than until it is found; NULL: everybody
	int64_t patience_ns;
	bool (*is_interrupted)(void *ctx);
	void *ctx;
};

struct lan_search_result {
	struct found_list list;
	enum discovery_state state; // DISCOVERY_OFF: nobody could be found here, and why says why
	char why[ERRMSG_CAP];
};

// lan_search runs the loop until what is there has been seen, at most for the patience. ERR_CANCELLED; else what discovery_open says.
MUST_USE enum err lan_search(const struct lan_search_params *p, struct lan_search_result *out, struct errmsg *em);
// lan_search_print lists coordinators for a person: name, fingerprint, first address.
void lan_search_print(FILE *to, const struct lan_search_result *r);
// lan_search_addresses writes at most LAN_SEARCH_ADDRS places where the coordinator with that fingerprint may be.
void lan_search_addresses(const struct lan_search_result *r, const struct node_id *id, struct address_list *out);

#endif
