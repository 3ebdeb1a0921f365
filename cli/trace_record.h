// `hearth trace record`: the links of a running cluster, measured into one CSV each (docs/traces.md).
#ifndef HEARTH_CLI_TRACE_RECORD_H
#define HEARTH_CLI_TRACE_RECORD_H

#include "cli/command.h"

// trace_record asks the coordinator of --state for --seconds. ERR_USAGE: no folder was named.
MUST_USE enum err trace_record(const struct command_ctx *ctx, struct errmsg *em);

#endif
