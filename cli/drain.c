// `hearth drain NODE`.
#include "cli/admin_command.h"
#include "cli/command.h"

#include <stdio.h>

int drain_main(const struct command_ctx *ctx)
{
	struct errmsg em;
	json_t *answer;
	bool undo = ctx->opts->undo;
	if (admin_ask(ctx, json_pack("{s:s, s:s, s:b}", "cmd", "drain", "node", ctx->opts->node, "undo", undo), &answer, &em) != OK)
		return command_fail(ctx, "%s", em.text);
	json_decref(answer);
	if (undo)
		printf("%s may hold layers again; it gets some when no answer is under way\n", ctx->opts->node);
	else
		printf("%s is drained: hearth status shows when its layers have moved\n", ctx->opts->node);
	return EXIT_DONE;
}
