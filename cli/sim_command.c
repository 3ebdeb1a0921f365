// `hearth sim ACTION`: one file per action.
#include "cli/command.h"

#include "base/assert.h"

#include <string.h>

int sim_main(const struct command_ctx *ctx)
{
	if (strcmp(ctx->opts->sim_action, "run") == 0)
		return sim_run(ctx);
	ASSERT(strcmp(ctx->opts->sim_action, "check") == 0); // the options take no other word
	return sim_check(ctx);
}
