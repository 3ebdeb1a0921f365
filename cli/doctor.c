// `hearth doctor`: what of this machine, its network and its cluster is not as it should be, and what to do about it.
//
// Alone it looks at this machine and at what announces itself; with --to at the way to a coordinator; with --live at the cluster whose coordinator runs
// here. A machine that is a member tries its membership, unless a node runs that has it in use.
#include "base/sys_file.h"
#include "cli/cache_dir.h"
#include "cli/command.h"
#include "cli/doctor_live.h"
#include "cli/doctor_machine.h"
#include "cli/doctor_network.h"
#include "cli/doctor_reach.h"
#include "cli/home_dir.h"
#include "cli/state_dir.h"
#include "engine/probe_disk.h"
#include "kernels/canonical.h"
#include "kernels/kernels.h"
#include "net/keys.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sodium.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <unistd.h>

#define LOOK_NS INT64_C(2500000000)
#define PATIENCE_MS 3000
#define SAMPLES 12
#define FOUND_TRIED_MAX 3 // of those that announce themselves: each takes two seconds
#define ROOT "" // of /proc and /sys

struct doctor {
	const struct command_ctx *ctx;
	struct loop loop;
	struct doctor_report report;
	struct lan_search_result found;
	char state[STATE_PATH_CAP], cache[STATE_PATH_CAP]; // "": there can be none
	bool is_running; // a coordinator or node has the state directory
	int signo;
};

static void on_signal(void *ctx, int signo)
{
	struct doctor *d = ctx;
	d->signo = signo;
	loop_stop(&d->loop);
}

static bool is_interrupted(void *ctx)
{
	const struct doctor *d = ctx;
	return d->signo != 0;
}

// is_locked looks without making or changing anything.
static bool is_locked(const char *state)
{
	char path[STATE_PATH_CAP + 8];
	snprintf(path, sizeof path, "%s/lock", state);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0;
	close(fd);
	return locked;
}

static void find_places(struct doctor *d)
{
	static const struct home_dir_kind cache = {"cache", "--cache", "XDG_CACHE_HOME", "/.cache/hearth"};
	struct errmsg em;
	if (state_dir_resolve(d->ctx->opts->state, d->state, &em) != OK) {
		doctor_add(&d->report, DOCTOR_PROBLEM, "state directory", NULL, "%s", em.text);
		d->state[0] = '\0';
	}
	if (home_dir_resolve(&cache, d->ctx->opts->cache, d->cache, sizeof d->cache, &em) != OK) {
		doctor_add(&d->report, DOCTOR_PROBLEM, "cache directory", NULL, "%s", em.text);
		d->cache[0] = '\0';
	}
	d->is_running = d->state[0] != '\0' && is_locked(d->state);
}

// ---- this machine

// existing writes the nearest directory above `path` that is there, whose disk it will be on.
static bool existing(const char *path, char out[PATH_MAX])
{
	char at[STATE_PATH_CAP];
	snprintf(at, sizeof at, "%s", path);
	for (;;) {
		if (realpath(at, out) != NULL)
			return true;
		char *slash = strrchr(at, '/');
		if (slash == NULL || slash == at)
			return realpath("/", out) != NULL;
		*slash = '\0';
	}
}

static void look_at_disk(struct doctor *d, const char *what, const char *path, bool measure)
{
	char real[PATH_MAX];
	struct disk_facts f;
	if (path[0] == '\0')
		return;
	doctor_directory(what, path, &d->report);
	if (!existing(path, real) || disk_facts_read(ROOT, real, &f) != OK)
		return;
	doctor_disk(what, path, &f, measure && access(real, W_OK) == 0 ? probe_disk_measure(READER_DIRECT, NULL, real) : 0, &d->report);
}

static void look_at_machine(struct doctor *d)
{
	struct memory_facts m;
	struct power_facts p;
	struct timex t = {0};
	if (memory_facts_read(ROOT, &m) == OK)
		doctor_memory(&m, &d->report);
	power_facts_read(ROOT, &p);
	const struct kernels *k = kernels_find(NULL, NULL);
	doctor_power(&p, options_n_threads(d->ctx->opts), k != NULL ? kernels_name(k) : "portable", &d->report);
	look_at_disk(d, "state", d->state, false);
	look_at_disk(d, "cache", d->cache, true);
	int clock = adjtimex(&t);
	doctor_clock(clock >= 0 && clock != TIME_ERROR && (t.status & STA_UNSYNC) == 0, &d->report);
}

static enum err look_at_network(struct doctor *d, struct errmsg *em)
{
	struct network_facts f;
	enum doctor_saving saving[NETWORK_INTERFACES_MAX] = {SAVING_UNKNOWN};
	network_facts_read(ROOT, &f);
	for (int32_t i = 0; i < f.n; i++)
		saving[i] = f.at[i].is_wireless ? doctor_power_save(f.at[i].name) : SAVING_UNKNOWN;
	doctor_interfaces(&f, saving, &d->report);
	doctor_firewall(&f, &d->report);
	doctor_ports(ROOT, d->is_running, &d->report);
	if (!options_discovery(d->ctx->opts))
		return OK;
	struct lan_search_params p = {&d->loop, &discovery_avahi, NULL, LOOK_NS, is_interrupted, d};
	enum err e = lan_search(&p, &d->found, em);
	if (e == OK)
		doctor_discovery(&d->found, PROTOCOL_VERSION, CANON_VERSION, &d->report);
	return e;
}

// ---- the way to a coordinator

static void try_address(struct doctor *d, const char *who, const char *addr)
{
	struct reach_result t;
	struct doctor_rtts rtts;
	reach_try(ROOT, addr, PATIENCE_MS, &t);
	reach_explain(who, addr, &t, false, &d->report);
	if (t.end != REACH_OK)
		return;
	reach_sample(addr, SAMPLES, &rtts);
	doctor_link(addr, &rtts, &d->report);
}

// try_membership: one address that answers is enough, so those that do not are no problem then.
static void try_membership(struct doctor *d, const struct membership *m)
{
	char path[STATE_PATH_CAP];
	struct keys keys;
	struct errmsg em;
	struct reach_result t = {.end = REACH_NO_NAME};
	const struct address_list *all = &m->grant.addresses;
	uint32_t i = 0;
	for (; i < all->n && d->signo == 0; i++) {
		reach_try(ROOT, all->at[i], PATIENCE_MS, &t);
		if (t.end == REACH_OK)
			break;
	}
	if (t.end != REACH_OK) {
		if (all->n > 0)
			reach_explain("the coordinator", all->at[0], &t, false, &d->report);
		return;
	}
	reach_explain("the coordinator", all->at[i], &t, false, &d->report);
	if (d->is_running) {
		doctor_add(&d->report, DOCTOR_OK, "membership", NULL, "in use by the node that runs here: on the coordinator's machine hearth doctor --live judges its links");
		return;
	}
	snprintf(path, sizeof path, "%s/node.key", d->state);
	if (keys_load(&keys, path, &em) != OK) {
		doctor_add(&d->report, DOCTOR_PROBLEM, "membership", NULL, "%s", em.text);
		return;
	}
	reach_as_member(&d->loop, m, keys.pair, all->at[i], &d->report);
	keys_close(&keys);
}

// look_at_membership: false when this machine is no member of anything.
static bool look_at_membership(struct doctor *d)
{
	char path[STATE_PATH_CAP + 16];
	struct membership *m = malloc(sizeof *m);
	struct errmsg em;
	snprintf(path, sizeof path, "%s/membership", d->state);
	enum err e = m == NULL || d->state[0] == '\0' ? ERR_NOT_FOUND : membership_load(path, m, &em);
	if (e == OK)
		try_membership(d, m);
	else if (e != ERR_NOT_FOUND)
		doctor_add(&d->report, DOCTOR_PROBLEM, "membership", NULL, "%s", em.text);
	if (m != NULL)
		sodium_memzero(m, sizeof *m);
	free(m);
	return e != ERR_NOT_FOUND;
}

// look_at_found tries those that announce themselves, for a machine that may want to join one.
static void look_at_found(struct doctor *d)
{
	struct found_coordinator all[FOUND_SHOWN_MAX];
	uint32_t n = found_list_coordinators(&d->found.list, all);
	for (uint32_t i = 0; i < n && i < FOUND_TRIED_MAX && d->signo == 0; i++)
		try_address(d, "a program", all[i].addrs[0]);
}

static void look_at_coordinator(struct doctor *d)
{
	char addr[HOST_PORT_TEXT_CAP];
	bool is_given = options_given(d->ctx->opts, offsetof(struct options, to));
	if (is_given) {
		host_port_format(&d->ctx->opts->to, addr);
		try_address(d, "a program", addr);
	}
	if (d->signo == 0 && !look_at_membership(d) && !is_given)
		look_at_found(d);
}

// ---- all of it

static enum err examine(struct doctor *d, struct errmsg *em)
{
	find_places(d);
	if (d->ctx->opts->live && doctor_live(d->ctx, &d->report, em) != OK)
		doctor_add(&d->report, DOCTOR_PROBLEM, "cluster", "run this on the machine, and as the user, that hearth serve runs as, with its --state", "%s", em->text);
	look_at_machine(d);
	enum err e = look_at_network(d, em);
	if (e == OK)
		look_at_coordinator(d);
	return d->signo != 0 ? errmsg_fail(em, ERR_CANCELLED, "interrupted") : e;
}

static void show(const struct doctor *d)
{
	if (!d->ctx->opts->json) {
		doctor_print(stdout, &d->report);
		return;
	}
	json_t *o = doctor_json(&d->report);
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

int doctor_main(const struct command_ctx *ctx)
{
	struct errmsg em = {0};
	struct doctor *d = calloc(1, sizeof *d);
	if (d == NULL)
		return command_fail(ctx, "out of memory");
	d->ctx = ctx;
	enum err e = loop_open(&d->loop, &em);
	if (e == OK)
		e = loop_signals(&d->loop, on_signal, d, &em);
	if (e == OK)
		e = examine(d, &em);
	if (e == OK)
		show(d);
	int code = e == ERR_CANCELLED ? EXIT_INTERRUPTED : e != OK ? command_fail(ctx, "%s", em.text) : d->report.n_problems > 0 ? EXIT_ERROR : EXIT_DONE;
	loop_close(&d->loop);
	free(d);
	return code;
}
