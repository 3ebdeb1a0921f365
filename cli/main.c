// hearth: finds the command, reads its options, runs it.
#include "cli/bus_guard.h"
#include "cli/command.h"
#include "base/suggest.h"

#include "kernels/canonical.h"
#include "net/keys.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int print_version(void)
{
	printf("hearth %s\n", HEARTH_VERSION);
	printf("canonical arithmetic %d\n", CANON_VERSION);
	return fflush(stdout) == 0 ? EXIT_DONE : EXIT_ERROR;
}

static int print_help(FILE *to)
{
	fputs("usage: hearth COMMAND [OPTIONS]\n\n"
	      "Hearth pools the machines you have into one that runs language models.\n\n",
		to);
	for (size_t i = 0; i < n_commands(); i++)
		if (!command_at(i)->hidden)
			fprintf(to, "  %-10s %s\n", command_at(i)->name, command_at(i)->summary);
	fputs("\n`hearth COMMAND --help` tells more about one; `hearth --version` prints the version.\n"
	      "Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted.\n",
		to);
	return fflush(to) == 0 ? EXIT_DONE : EXIT_ERROR;
}

static int print_command_help(const struct command *cmd)
{
	printf("usage: hearth %s%s%s\n\n", cmd->name, cmd->args[0] ? " " : "", cmd->args);
	option_text(stdout, cmd->about ? cmd->about : cmd->summary);
	putchar('\n');
	option_help(stdout, cmd->bit);
	return fflush(stdout) == 0 ? EXIT_DONE : EXIT_ERROR;
}

static int refuse_command(const char *name)
{
	struct suggest s = suggest_init(name);
	for (size_t i = 0; i < n_commands(); i++)
		if (!command_at(i)->hidden)
			suggest_offer(&s, command_at(i)->name);
	struct errmsg em;
	errmsg_fail(&em, ERR_USAGE, s.best ? "unknown command %.60s, did you mean %s?" : "unknown command %.60s", name, s.best);
	return command_refuse(NULL, em.text);
}

// help_for is what "hearth help COMMAND" prints.
static int help_for(const char *name)
{
	const struct command *cmd = command_find(name);
	return cmd ? print_command_help(cmd) : refuse_command(name);
}

static int run_command(const struct command *cmd, int argc, char *const argv[])
{
	struct options o;
	struct errmsg em;
	options_init(&o);
	enum err e = options_parse(&o, cmd->bit, cmd->name, argc, argv, &em);
	int code;
	if (e == ERR_USAGE) {
		code = command_refuse(cmd->name, em.text);
	} else if (e != OK) {
		command_print_error(cmd->name, em.text);
		code = EXIT_ERROR;
	} else if (o.help) {
		code = print_command_help(cmd);
	} else {
		if (o.model)
			bus_guard_install(cmd->name, o.model);
		struct log log = {.fd = STDERR_FILENO, .level = o.log};
		struct command_ctx ctx = {.command_name = cmd->name, .opts = &o, .log = &log};
		code = cmd->run(&ctx);
	}
	options_deinit(&o);
	return code;
}

int main(int argc, char *argv[])
{
	const char *first = argc > 1 ? argv[1] : NULL;
	struct errmsg em;
	if (sodium_init() < 0) {
		command_print_error(NULL, "libsodium cannot be used on this machine");
		return EXIT_ERROR;
	}
	if (keys_forbid_core_dumps(&em) != OK) {
		command_print_error(NULL, em.text);
		return EXIT_ERROR;
	}
	if (first == NULL) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0 || strcmp(first, "help") == 0)
		return argc > 2 ? help_for(argv[2]) : print_help(stdout);
	if (strcmp(first, "--version") == 0)
		return print_version();
	const struct command *cmd = command_find(first);
	return cmd ? run_command(cmd, argc - 2, argv + 2) : refuse_command(first);
}
