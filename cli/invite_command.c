// `hearth invite`: a one-time invite from the running coordinator, as a URL and, on a terminal, as a QR code.
#include "cli/admin_command.h"
#include "cli/command.h"
#include "cli/qr.h"
#include "net/service_txt.h"
#include "proto/invite.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// rewrite reads the fingerprint of the coordinator from the invite, and takes the addresses out of it where that is wanted.
static enum err rewrite(const char *url, bool no_address, char out[INVITE_URL_CAP], char fingerprint[FINGERPRINT_TEXT_CAP], struct errmsg *em)
{
	struct invite invite;
	struct node_id id;
	enum err e = invite_parse(url, strlen(url), &invite, em);
	if (e == OK) {
		lnk1_node_id(invite.server_pk, id.b);
		fingerprint_text(&id, fingerprint);
		if (no_address)
			invite.n_addrs = 0;
		e = invite_encode(&invite, out, em);
	}
	invite_wipe(&invite);
	return e;
}

int invite_main(const struct command_ctx *ctx)
{
	struct errmsg em;
	json_t *answer;
	char shown[INVITE_URL_CAP] = "", fingerprint[FINGERPRINT_TEXT_CAP] = "";
	if (admin_ask(ctx, json_pack("{s:s}", "cmd", "invite"), &answer, &em) != OK)
		return command_fail(ctx, "%s", em.text);
	const char *url = json_string_value(json_object_get(answer, "invite"));
	long long left = (long long)json_integer_value(json_object_get(answer, "expires_s")) - (long long)time(NULL);
	int code = EXIT_DONE;
	if (url == NULL) {
		code = command_fail(ctx, "the coordinator sent no invite");
	} else if (rewrite(url, ctx->opts->no_address, shown, fingerprint, &em) != OK) {
		code = command_fail(ctx, "the coordinator sent an invite that is none: %s", em.text);
	} else if (ctx->opts->json) {
		json_object_set_new(answer, "invite", json_string(shown));
		json_object_set_new(answer, "fingerprint", json_string(fingerprint));
		json_dumpf(answer, stdout, JSON_COMPACT);
		putchar('\n');
	} else {
		if (!ctx->opts->no_qr)
			(void)qr_print(STDOUT_FILENO, getenv("TERM"), shown); // where it cannot be drawn, the URL is enough
		printf("%s\n", shown);
		fprintf(stderr, "One machine may use it, within %lld minutes. It is a secret: hand it over privately.\n"
						"On that machine: hearth join, and paste it when asked. This coordinator's fingerprint: %s\n",
			(left + 59) / 60, fingerprint);
	}
	sodium_memzero(shown, sizeof shown);
	json_decref(answer);
	return code;
}
