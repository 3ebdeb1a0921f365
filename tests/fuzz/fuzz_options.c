// Any command line and any config file, for any command: options, or an error with words; never a value outside its range.
//
// Input: a byte that picks the command, arguments one per line up to an empty line, then the file.
#include "cli/command.h"
#include "cli/option_file.h"
#include "cli/options.h"

#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_host_port(const struct host_port *hp)
{
	char text[HOST_PORT_TEXT_CAP];
	struct host_port back;
	host_port_format(hp, text);
	require(host_port_parse(text, &back) && strcmp(back.host, hp->host) == 0 && back.port == hp->port);
}

static void check_options(const struct options *o)
{
	require(o->threads >= 0 && o->threads <= THREADS_MAX && o->prefill_chunk >= 1 && o->prefill_chunk <= CHUNK_TOKENS_MAX);
	require(o->ctx >= 0 && o->ctx <= CTX_MAX && o->max_tokens >= 1 && o->top_k >= 0 && o->slots >= 1 && o->slots <= SESSIONS_MAX);
	require(o->temp >= 0 && o->temp <= 100 && o->top_p >= 0 && o->top_p <= 1 && o->min_p >= 0 && o->min_p <= 1);
	require(o->nodes >= 0 && o->nodes <= SWARM_NODES_MAX && o->replicas >= 1 && o->replicas <= CHAINS_MAX && (int)o->wire < N_WIRE_TYPES && (int)o->log <= LOG_DEBUG);
	require(o->split.n >= 0 && o->split.n <= STAGES_MAX && o->advertise.n >= 0 && o->advertise.n <= ADDRS_MAX);
	for (int32_t i = 0; i < o->split.n; i++)
		require(o->split.at[i] >= 1 && o->split.at[i] <= LAYERS_MAX);
	require(o->streams.n >= 0 && o->streams.n <= STAGES_MAX);
	for (int32_t i = 0; i < o->streams.n; i++)
		require(o->streams.at[i] >= 0 && o->streams.at[i] <= 100);
	for (int32_t i = 0; i < o->advertise.n; i++)
		check_host_port(&o->advertise.at[i]);
	check_host_port(&o->listen);
	check_host_port(&o->link);
	check_host_port(&o->http);
	require(host_port_is_loopback(&o->http));
	require(o->name == NULL || (strlen(o->name) >= 1 && strlen(o->name) < NAME_CAP));
	require(o->model == NULL || o->model[0] != '\0');
}

static void check_result(const struct options *o, enum err e, const struct errmsg *em)
{
	if (e == OK)
		check_options(o);
	else
		require(em->text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0 || size > 4096)
		return 0;
	const struct command *cmd = command_at(data[0] % n_commands());
	char *text = malloc(size);
	require(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';

	char *argv[ARGS_MAX];
	int argc = 0;
	char *at = text;
	while (argc < ARGS_MAX && *at != '\n' && *at != '\0') {
		char *end = at + strcspn(at, "\n");
		argv[argc++] = at;
		at = *end ? end + 1 : end;
		*end = '\0';
		if (strstr(argv[argc - 1], "--c") == argv[argc - 1]) // --config would read files of this machine
			argc--;
	}
	struct options o;
	struct errmsg em = {""};
	options_init(&o);
	check_result(&o, options_parse(&o, cmd->bit, cmd->name, argc, argv, &em), &em);
	if (o.config == NULL) {
		em.text[0] = '\0';
		check_result(&o, option_file_apply(&o, cmd->bit, "x", at, (size_t)(text + size - 1 - at), &em), &em);
	}
	options_deinit(&o);
	free(text);
	return 0;
}
