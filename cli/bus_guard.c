#include "cli/bus_guard.h"

#include "cli/command.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// A signal handler reaches nothing else. Written once, before it is installed.
static char line[4608];
static size_t line_len;
static atomic_flag has_written = ATOMIC_FLAG_INIT;

// Only what signal-safety(7) allows. Several compute threads meet the same gap at once: one of them speaks.
static void on_bus(int signo, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_code != BUS_ADRERR) { // a broken memory chip, or another process's kill: not ours to explain
		signal(signo, SIG_DFL);
		raise(signo);
		return;
	}
	while (atomic_flag_test_and_set(&has_written))
		pause();
	ssize_t n = write(STDERR_FILENO, line, line_len);
	(void)n;
	_exit(EXIT_ERROR);
}

void bus_guard_install(const char *command_name, const char *model_path)
{
	snprintf(line, sizeof line, "hearth %s: %.4096s changed while in use: a part of it cannot be read any more (it was made shorter, or its disk failed); "
		"put the whole file back and start again\n", command_name, model_path);
	line_len = strlen(line);
	struct sigaction sa = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
	sigemptyset(&sa.sa_mask);
	(void)sigaction(SIGBUS, &sa, NULL); // fails for no signal that exists
}
