// `hearth revoke NODE`.
#include "cli/admin_command.h"
#include "cli/command.h"

#include <stdio.h>

int revoke_main(const struct command_ctx *ctx)
{
	struct errmsg em;
	json_t *answer;
	if (admin_ask(ctx, json_pack("{s:s, s:s}", "cmd", "revoke", "node", ctx->opts->node), &answer, &em) != OK)
		return command_fail(ctx, "%s", em.text);
	json_decref(answer);
	printf("%s is no member any more; its links are closed\n", ctx->opts->node);
	return EXIT_DONE;
}
