// What the admin socket understands: one JSON object per line, answered by one or more lines.
//
//   {"cmd": "status"}                    -> {"ok": true, ...}                       (see admin_status_json)
//   {"cmd": "invite"}                    -> {"ok": true, "invite": TEXT, "expires_s": UNIX SECONDS}
//   {"cmd": "revoke", "node": TEXT}      -> {"ok": true}
//   {"cmd": "drain", "node": TEXT, "undo": BOOL} -> {"ok": true}
//   {"cmd": "generate", "prompt": TEXT, "chat": BOOL, "system": TEXT, "max_tokens": N, "temperature": X, "top_k": N, "top_p": X, "min_p": X,
//    "seed": DECIMAL TEXT, "logits_hash": BOOL}   all but the prompt optional
//                                        -> {"prompt_ids": [...], "seed": TEXT, "wire": TEXT, "simd": TEXT, "threads": N}
//                                           {"token": N, "text": TEXT} ...  (token -1: text that was held back)
//                                           {"ok": BOOL, "end": "stop"|"length"|"error"|"cancelled", "error": TEXT, "logits_hash": TEXT}
//   anything else                        -> {"ok": false, "error": TEXT}
//
// A line with "ok" is the last of its answer. A client that leaves cancels what it asked for. Never reachable over the HTTP API.
// Thread rule: the loop's thread.
#ifndef HEARTH_COORDINATOR_SHELL_ADMIN_API_H
#define HEARTH_COORDINATOR_SHELL_ADMIN_API_H

#include "base/err.h"
#include "base/log.h"
#include "coordinator/shell/coord_runtime.h"
#include "engine/worker.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "net/loop.h"

#include <jansson.h>

struct admin_api;

struct admin_api_params {
	struct loop *loop; // borrowed, like all pointers here
	const struct log *log;
	struct coord_runtime *coord;
	const struct model *model;
	const struct tokenizer *tokenizer;
	const struct worker *worker;
	int32_t n_threads;
	const char *state_dir;
	struct address_list addresses; // put into invites; empty: invites are refused with a reason
	uint16_t http_port;            // shown; 0: no API
};

MUST_USE enum err admin_api_open(const struct admin_api_params *p, struct admin_api **out, struct errmsg *em);
// admin_api_close after coord_runtime_close, which ends its requests. NULL is allowed.
void admin_api_close(struct admin_api *a);
// admin_status_json returns the cluster's state, a new reference: also what /health shows a part of.
json_t *admin_status_json(const struct coord_runtime *coord, const struct model *model);

#endif
