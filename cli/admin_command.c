#include "cli/admin_command.h"

#include "cli/state_dir.h"
#include "net/admin_socket.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MS 15000 // the slowest answer is one fsync away

static enum err exchange(struct admin_conn *conn, const char *line, json_t **answer, struct errmsg *em)
{
	const char *text;
	size_t len;
	json_error_t bad;
	enum err e = admin_write_line(conn, line, em);
	if (e == OK)
		e = admin_read_line(conn, ANSWER_MS, &text, &len, em);
	if (e != OK)
		return e;
	*answer = json_loadb(text, len, 0, &bad);
	if (*answer == NULL)
		return errmsg_fail(em, ERR_FORMAT, "the coordinator sent what is not JSON");
	if (json_is_true(json_object_get(*answer, "ok")))
		return OK;
	const char *why = json_string_value(json_object_get(*answer, "error"));
	e = errmsg_fail(em, ERR_STATE, "%s", why ? why : "the coordinator refused without a reason");
	json_decref(*answer);
	*answer = NULL;
	return e;
}

static bool has_file(const char *dir, const char *name)
{
	char path[STATE_PATH_CAP + 32];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

enum err admin_reach(const struct command_ctx *ctx, struct admin_conn *conn, struct errmsg *em)
{
	char path[STATE_PATH_CAP];
	enum err e = state_dir_resolve(ctx->opts->state, path, em);
	if (e == OK)
		e = admin_connect(conn, path, em);
	if (e == ERR_NOT_FOUND && has_file(path, "node.key") && !has_file(path, "coordinator.key"))
		return errmsg_fail(em, e, "%s is the state directory of a node: `hearth %s` is for the machine where hearth serve runs", path, ctx->command_name);
	return e;
}

enum err admin_ask(const struct command_ctx *ctx, json_t *request, json_t **answer, struct errmsg *em)
{
	struct admin_conn conn;
	char *line = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	*answer = NULL;
	enum err e = line ? admin_reach(ctx, &conn, em) : errmsg_fail(em, ERR_FORMAT, "the argument is not UTF-8");
	if (e == OK) {
		e = exchange(&conn, line, answer, em);
		admin_disconnect(&conn);
	}
	free(line);
	return e;
}
