// `hearth run --attach`: the coordinator that serves --state computes the answer; this process only shows it.
#ifndef HEARTH_CLI_RUN_ATTACH_H
#define HEARTH_CLI_RUN_ATTACH_H

#include "cli/command.h"

// run_attach is run_main's other half; returns an enum exit_code.
int run_attach(const struct command_ctx *ctx);

#endif
