// `hearth emulate`: run the relay of sim/shell/emulate.h, or speak to a running one.
#include "cli/command.h"
#include "sim/shell/emulate.h"
#include "sim/shell/emulate_control.h"
#include "sim/shell/emulate_words.h"
#include "sim/shell/topology.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct emulating {
	const struct command_ctx *ctx;
	struct topology *topology;
	struct emulate *relay;
	struct emulate_control *control;
};

static void print_json(char *line)
{
	if (line == NULL)
		return;
	puts(line);
	fflush(stdout);
	free(line);
}

static const char *name_of(const struct emulating *m, int32_t device)
{
	return device >= 0 ? m->topology->devices[device].name : "?";
}

static void log_event(const struct emulating *m, const struct emulate_event *ev)
{
	const struct log *log = m->ctx->log;
	const char *from = name_of(m, ev->from), *to = name_of(m, ev->to);
	switch (ev->type) {
	case EMULATE_CONNECTED:
		log_line(log, LOG_DEBUG, "connection %llu: %s to %s", (unsigned long long)ev->connection, from, to);
		break;
	case EMULATE_CLOSED:
		log_line(log, LOG_DEBUG, "connection %llu: %s to %s: %s, after %llu bytes there and %llu back", (unsigned long long)ev->connection, from, to,
			ev->text, (unsigned long long)ev->bytes[0], (unsigned long long)ev->bytes[1]);
		break;
	case EMULATE_REFUSED: log_line(log, LOG_WARNING, "refused: %s to %s: %s", from, to, ev->text); break;
	case EMULATE_FAULT: log_line(log, LOG_INFO, "%s", ev->text); break;
	}
}

static void on_event(void *ctx, const struct emulate_event *ev)
{
	const struct emulating *m = ctx;
	struct timespec ts;
	if (!m->ctx->opts->json) {
		log_event(m, ev);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &ts);
	print_json(emulate_words_event(m->topology, ev, (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000));
}

static const char *ip_text(uint32_t ip, char out[INET_ADDRSTRLEN])
{
	struct in_addr in = {htonl(ip)};
	inet_ntop(AF_INET, &in, out, INET_ADDRSTRLEN);
	return out;
}

static void print_addresses(const struct emulating *m)
{
	const struct topology *t = m->topology;
	char at[INET_ADDRSTRLEN], device[INET_ADDRSTRLEN], pair[INET_ADDRSTRLEN];
	if (m->ctx->opts->json) {
		print_json(emulate_words_addresses(t));
		return;
	}
	printf("%-16s %-22s %-22s %s\n", "device", "listens at", "is reached at", "or, without --from, by");
	for (int32_t i = 0; i < t->n_devices; i++) {
		char at_port[32], device_port[32];
		snprintf(at_port, sizeof at_port, "%s:%u", ip_text(t->devices[i].ip, at), t->devices[i].port);
		snprintf(device_port, sizeof device_port, "%s:%u", ip_text(topology_device_ip(t, i), device), t->devices[i].port);
		printf("%-16s %-22s %-22s", t->devices[i].name, at_port, device_port);
		for (int32_t from = 0; from < t->n_devices; from++)
			if (from != i)
				printf(" %s at %s", t->devices[from].name, ip_text(topology_pair_ip(t, from, i), pair));
		putchar('\n');
	}
	fflush(stdout);
}

// ask_for_priority: a relay that waits for its turn behind computing adds milliseconds to what it was told. It works for microseconds at a time; the
// kernel leaves others 5 % of every second even so. Who may not ask goes without: the lateness that is reported tells.
static void ask_for_priority(const struct log *log)
{
	const struct sched_param p = {.sched_priority = 1};
	if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &p) != 0)
		log_line(log, LOG_DEBUG, "no real-time priority: %s", strerror(errno));
}

static enum err open_relay(struct emulating *m, struct errmsg *em)
{
	const struct emulate_callbacks callbacks = {.ctx = m, .on_event = on_event};
	enum err e = emulate_open(&m->relay, m->topology, &callbacks, em);
	if (e == OK)
		e = poller_stop_on_signals(emulate_poller(m->relay), em);
	if (e == OK && m->ctx->opts->control)
		e = emulate_control_open(&m->control, m->relay, m->ctx->opts->control, em);
	return e;
}

static void say_lateness(const struct emulating *m)
{
	struct emulate_lateness l = emulate_lateness_of(m->relay);
	if (l.n > 0)
		log_line(m->ctx->log, LOG_INFO, "%llu pieces left %.3f ms late at the median, %.3f ms at p99, %.3f ms at most", (unsigned long long)l.n,
			(double)l.p50_ns / 1e6, (double)l.p99_ns / 1e6, (double)l.max_ns / 1e6);
}

static int run_relay(const struct command_ctx *ctx)
{
	struct emulating m = {.ctx = ctx, .topology = calloc(1, sizeof *m.topology)};
	struct errmsg em = {0};
	enum err e = m.topology ? OK : errmsg_fail(&em, ERR_NOMEM, "no memory");
	bool has_topology = e == OK && (e = topology_open(ctx->opts->topology, m.topology, &em)) == OK;
	if (e == OK)
		e = open_relay(&m, &em);
	int signo = 0;
	if (e == OK) {
		ask_for_priority(ctx->log);
		print_addresses(&m);
		e = emulate_run(m.relay, &em);
		signo = emulate_poller(m.relay)->signo;
		say_lateness(&m);
	}
	emulate_control_close(m.control);
	emulate_close(m.relay);
	if (has_topology)
		topology_close(m.topology);
	free(m.topology);
	if (e != OK)
		return command_fail(ctx, "%s", em.text);
	return signo == SIGINT ? EXIT_INTERRUPTED : EXIT_DONE;
}

// send_command prints the answer's words, or with --json the answer as it came.
static int send_command(const struct command_ctx *ctx)
{
	const struct options *o = ctx->opts;
	struct errmsg em;
	char *answer;
	enum err e = emulate_control_ask(o->control, o->send, &answer, &em);
	if (e != OK)
		return command_fail(ctx, "%s", em.text);
	json_t *a = json_loads(answer, 0, NULL);
	bool is_ok = json_is_true(json_object_get(a, "ok"));
	const char *words = json_string_value(json_object_get(a, is_ok ? "text" : "error"));
	int code = is_ok ? EXIT_DONE : EXIT_ERROR;
	if (o->json)
		puts(answer);
	else if (words == NULL)
		code = command_fail(ctx, "%s: this is no answer of a relay", o->control);
	else if (is_ok)
		puts(words);
	else
		command_fail(ctx, "%s", words);
	json_decref(a);
	free(answer);
	return fflush(stdout) == 0 ? code : EXIT_ERROR;
}

int emulate_main(const struct command_ctx *ctx)
{
	const struct options *o = ctx->opts;
	if (o->send && o->topology)
		return command_refuse(ctx->command_name, "--send speaks to a relay that runs: without TOPOLOGY");
	if (o->send && !o->control)
		return command_refuse(ctx->command_name, "--send wants --control, the socket of the relay that runs");
	if (!o->send && !o->topology)
		return command_refuse(ctx->command_name, "TOPOLOGY is missing: devices and links, a TOML file");
	return o->send ? send_command(ctx) : run_relay(ctx);
}
