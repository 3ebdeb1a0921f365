// Commands: `hearth NAME ...`. Each lives in a file of its own and is one line of the table in commands.c.
//
// A command's run gets checked options and a log, prints results on standard output and everything else on standard error,
// and returns an exit code. It owns nothing of the context.
#ifndef HEARTH_CLI_COMMAND_H
#define HEARTH_CLI_COMMAND_H

#include "base/log.h"
#include "cli/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HEARTH_VERSION "0.1.0"

enum exit_code {
	EXIT_DONE = 0,
	EXIT_ERROR = 1,         // the world refused
	EXIT_USAGE = 2,         // the command line was wrong
	EXIT_INTERRUPTED = 130, // SIGINT, as shells report it
};

struct command_ctx {
	const char *command_name;
	const struct options *opts;
	const struct log *log; // standard error, at --log
};

struct command {
	const char *name;
	uint32_t bit;        // its FOR_ bit
	const char *args;    // for "usage: hearth NAME <args>"
	const char *summary; // one line of `hearth --help`
	const char *about;   // paragraphs of `hearth NAME --help`, NULL: the summary says it all
	bool hidden;         // not listed: for the program's own tests and tools
	int (*run)(const struct command_ctx *ctx); // returns an enum exit_code
};

// The table: command_at(0) to command_at(n_commands() - 1).
size_t n_commands(void);
const struct command *command_at(size_t i);
// command_find returns the command of that name, or NULL.
const struct command *command_find(const char *name);

// command_fail prints "hearth NAME: <text>" on standard error and returns EXIT_ERROR: `return command_fail(ctx, "%s", em.text)`.
int command_fail(const struct command_ctx *ctx, const char *fmt, ...) PRINTF_LIKE(2, 3);
// command_print_error prints one line, "hearth NAME: <text>"; the name may be NULL.
void command_print_error(const char *command_name, const char *text);
// command_refuse is for a wrong command line: prints that line and where the help is, and returns EXIT_USAGE; the name may be NULL.
int command_refuse(const char *command_name, const char *text);

// One per command, in cli/<name>.c.
int run_main(const struct command_ctx *ctx);
int serve_main(const struct command_ctx *ctx);
int invite_main(const struct command_ctx *ctx);
int join_main(const struct command_ctx *ctx);
int revoke_main(const struct command_ctx *ctx);
int drain_main(const struct command_ctx *ctx);
int status_main(const struct command_ctx *ctx);
int inspect_main(const struct command_ctx *ctx);
int tokenize_main(const struct command_ctx *ctx);
int trace_main(const struct command_ctx *ctx);
int sim_main(const struct command_ctx *ctx); // in cli/sim_command.c; one file per action
int sim_run(const struct command_ctx *ctx);
int sim_check(const struct command_ctx *ctx);
int cache_main(const struct command_ctx *ctx); // in cli/cache_command.c
int probe_main(const struct command_ctx *ctx); // in cli/probe_command.c
int emulate_main(const struct command_ctx *ctx);
int doctor_main(const struct command_ctx *ctx);
int plan_main(const struct command_ctx *ctx); // in cli/plan_command.c
int example_config_main(const struct command_ctx *ctx);

#endif
