// The table of commands. A new one is a FOR_ bit in options.h, its run in command.h and a line here.
#include "cli/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct command table[] = {
	{"run", FOR_RUN, "MODEL -p TEXT [OPTIONS] | --attach -p TEXT [OPTIONS]", "continue a text on this machine",
		"Loads MODEL here and prints what it generates. The prompt is TEXT, or standard input without -p.", false, run_main},
	{"serve", FOR_SERVE, "MODEL [OPTIONS]", "be the coordinator: plan the cluster and answer requests",
		"Gives the model's layers to this machine and to the nodes that join, and answers on an OpenAI-compatible HTTP API.", false,
		serve_main},
	{"invite", FOR_INVITE, "[OPTIONS]", "print a one-time invite for a new node",
		"Asks the running coordinator for an invite: one node, ten minutes. Hand it over privately: it is a secret.", false, invite_main},
	{"join", FOR_JOIN, "[-] [--model FILE] [OPTIONS]", "be a node of a cluster",
		"Fetches what it needs of the model from the cluster and keeps it, unless --model names the file. The first time, the invite is asked for without echo, or read from standard input (-) or --invite-file. Later the membership "
		"in the state directory is enough. The coordinator that made the invite is looked for on the local network first; then its addresses are tried.",
		false, join_main},
	{"revoke", FOR_REVOKE, "NODE [OPTIONS]", "shut a node out",
		"Asks the running coordinator to delete the node's key: its links close at once, those with other nodes too, and it is refused until it "
		"joins with a new invite.",
		false, revoke_main},
	{"drain", FOR_DRAIN, "NODE [OPTIONS]", "move a node's layers to the others",
		"Asks the running coordinator to go on without the node, also in the middle of answers: its layers move to the others, it stays connected and a member. "
		"Lasts until --undo, or until the coordinator ends.",
		false, drain_main},
	{"status", FOR_STATUS, "[OPTIONS]", "show the cluster: nodes, links, layers, requests",
		"Asks the running coordinator, on its own machine: which nodes are here, which layers each holds and what it streams, how its links are, what is missing for "
		"answers, and how many requests are under way.",
		false, status_main},
	{"inspect", FOR_INSPECT, "MODEL [OPTIONS]", "show what a model file holds, and whether Hearth can run it",
		"Prints the model's shape, tokenizer and sizes and, where Hearth cannot run it, why not.", false, inspect_main},
	{"tokenize", FOR_TOKENIZE, "MODEL -p TEXT [OPTIONS]", "show the tokens of a text",
		"Prints one token a line: its id, then the bytes it stands for, quoted. The text is TEXT, or standard input without -p. With --json a "
		"piece that is no UTF-8 has U+FFFD in it.",
		false, tokenize_main},
	{"trace", FOR_TRACE, "generate PROFILE | show FILE | record FOLDER [OPTIONS]", "make, look at and measure traces of links, for the simulator",
		"generate writes the round trips that probes meet on a link of a profile, as CSV:\n"
		"  W0 wired   W1 good 5 GHz   W2 typical Wi-Fi   W3 Raspberry Pi, 2.4 GHz   W4 congested\n"
		"  W5 Pi with power save   W5b laptop with power save   W6 W1 that scans   W7 W1 that roams\n"
		"  W8 W2 whose access point restarts   W9 a home of W1 with one W5\n"
		"show reads such a CSV, the output of ping -D, a mahimahi trace or a tc-netem table, and prints its quantiles and losses.\n"
		"record measures the links of the cluster whose coordinator runs here, for --seconds, and writes a CSV for each into FOLDER.",
		false, trace_main},
	{"sim", FOR_SIM, "run SCENARIO | check [SCENARIO] [OPTIONS]", "simulate clusters: the real code in virtual time",
		"run predicts how fast a set of machines would be: it reads a scenario, runs its requests over simulated links, and prints the time to the first token "
		"(TTFT), the time per token (TPOT) and what each machine does meanwhile. sim/scenarios/ has examples.\n"
		"check runs small clusters, or the one of SCENARIO, with faults drawn from a seed, and checks after every event what must always hold, and after the "
		"last fault that the cluster serves again. It ends with a summary; a failure prints its seed and the command that runs it again.",
		false, sim_main},
	{"emulate", FOR_EMULATE, "TOPOLOGY [OPTIONS]", "put links of a given quality between processes of this machine",
		"Relays connections between processes of this machine, in real time, with the delays, rates, losses and faults that TOPOLOGY, a TOML file, "
		"describes. With --send it tells a running relay what to do: `hearth emulate --control SOCKET --send \"cut a b\"`; \"help\" lists "
		"the commands.",
		false, emulate_main},
	{"cache", FOR_CACHE, "ls | gc | verify [OPTIONS]", "look after what was fetched of models",
		"ls lists the models of which something is kept. gc makes room: down to --cache-max if there is one, else it removes every model that no node uses. "
		"verify compares every block with its hash, frees what is damaged, which is fetched again when it is needed, and fails when there was any.",
		false, cache_main},
	{"probe", FOR_PROBE, "[MODEL] [OPTIONS]", "measure how fast this machine is",
		"Measures in less than ten seconds what a plan is made from: how fast this machine decodes and reads prompts for each weight type, how many threads are best, "
		"what one visit of a token costs, memory and disk, and shows how the machine is. With MODEL, whose layers are run, the figures are those of that model. "
		"What was measured is kept, and shown the next time; nodes use it, too.",
		false, probe_main},
	{"plan", FOR_PLAN, "[MODEL] --cluster FILE | --live [OPTIONS]", "find the fastest split of a model over machines, and say why",
		"Says which machine should hold which layers, how fast that would be, what limits it, who is left out and why, and what more memory, a cable, another machine or "
		"another quantisation would change. Nothing needs to be running, or even bought: FILE describes the machines. With --live it is the running cluster, as it has measured itself.",
		false, plan_main},
	{"doctor", FOR_DOCTOR, "[--to HOST:PORT | --live] [OPTIONS]", "find out what is wrong, and what to do about it",
		"Looks at this machine (memory, disks, power, clock, directories), its network (Wi-Fi, firewalls, ports, discovery), and the way to the coordinator whose member it is, or "
		"that --to names. With --live, on the coordinator's machine, also at every node and link of the running cluster. It changes nothing and needs no root. Each "
		"finding is ok, a warning (works, but worse than it could) or a problem; with a problem the exit status is 1.",
		false, doctor_main},
	{"example-config", FOR_CONFIG, "", "print cluster.example.toml", NULL, true, example_config_main},
};

_Static_assert(1u << ARRAY_LEN(table) == FOR_END, "each command has its bit");

size_t n_commands(void)
{
	return ARRAY_LEN(table);
}

const struct command *command_at(size_t i)
{
	return &table[i];
}

const struct command *command_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (strcmp(table[i].name, name) == 0)
			return &table[i];
	return NULL;
}

int command_fail(const struct command_ctx *ctx, const char *fmt, ...)
{
	char text[ERRMSG_CAP];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	command_print_error(ctx->command_name, text);
	return EXIT_ERROR;
}

// Control characters of a file name or an argument must not reach the terminal as such.
void command_print_error(const char *command_name, const char *text)
{
	fprintf(stderr, "hearth%s%s: ", command_name ? " " : "", command_name ? command_name : "");
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		fputc(*c < 0x20 || *c == 0x7f ? '?' : *c, stderr);
	fputc('\n', stderr);
}

int command_refuse(const char *command_name, const char *text)
{
	command_print_error(command_name, text);
	fprintf(stderr, "try `hearth %s%s--help`\n", command_name ? command_name : "", command_name ? " " : "");
	return EXIT_USAGE;
}

int example_config_main(const struct command_ctx *ctx)
{
	option_example(stdout);
	return fflush(stdout) == 0 ? EXIT_DONE : command_fail(ctx, "cannot write to standard output");
}
