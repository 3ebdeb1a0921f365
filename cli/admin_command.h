// What invite, revoke and status have in common: one request to the coordinator that serves the state directory, one answer.
#ifndef HEARTH_CLI_ADMIN_COMMAND_H
#define HEARTH_CLI_ADMIN_COMMAND_H

#include "base/err.h"
#include "cli/command.h"

#include <jansson.h>

struct admin_conn;

// admin_reach connects to the coordinator of --state. Of a node's directory the error says that it is one.
MUST_USE enum err admin_reach(const struct command_ctx *ctx, struct admin_conn *conn, struct errmsg *em);
// admin_ask sends `request` (its reference is taken) and gives the answer's last line. A refusal becomes an error with the coordinator's words.
MUST_USE enum err admin_ask(const struct command_ctx *ctx, json_t *request, json_t **answer, struct errmsg *em);

#endif
