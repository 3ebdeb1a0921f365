// `hearth invite`: a one-time invite from the running coordinator, as a URL and, on a terminal, as a QR code.
#include "cli/admin_command.h"
#include "cli/command.h"
#include "cli/qr.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int invite_main(const struct command_ctx *ctx)
{
	struct errmsg em;
	json_t *answer;
	if (admin_ask(ctx, json_pack("{s:s}", "cmd", "invite"), &answer, &em) != OK)
		return command_fail(ctx, "%s", em.text);
	const char *url = json_string_value(json_object_get(answer, "invite"));
	long long left = (long long)json_integer_value(json_object_get(answer, "expires_s")) - (long long)time(NULL);
	int code = EXIT_DONE;
	if (url == NULL) {
		code = command_fail(ctx, "the coordinator sent no invite");
	} else if (ctx->opts->json) {
		json_dumpf(answer, stdout, JSON_COMPACT);
		putchar('\n');
	} else {
		if (!ctx->opts->no_qr)
			(void)qr_print(STDOUT_FILENO, getenv("TERM"), url); // where it cannot be drawn, the URL is enough
		printf("%s\n", url);
		fprintf(stderr, "One machine may use it, within %lld minutes. It is a secret: hand it over privately.\n"
						"On that machine: hearth join, and paste it when asked.\n",
			(left + 59) / 60);
	}
	json_decref(answer);
	return code;
}
