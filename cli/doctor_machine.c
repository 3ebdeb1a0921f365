#include "cli/doctor_machine.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MEMORY_LEAST (512 * MIB)  // less holds no layer of a model anybody wants, beside the program
#define MEMORY_LITTLE (2 * GIB)   // two layers of a 70B model with 4-bit weights, and their cache
#define MEMLOCK_ENOUGH (1 * GIB)
#define PRESSURE_HIGH 1000        // hundredths of a per cent: a tenth of the time somebody waits
#define HEAT_HIGH 85000           // thousandths of a degree: where laptops and Pis slow down
#define CLOCK_NEAR_S 5.0
#define CLOCK_FAR_S 300.0 // half the life of an invite
#define DISK_LEAST (256 * MIB)
#define DISK_LITTLE (5 * GIB)     // a third of an 8B model's layers
#define DISK_SLOW 200e6           // bytes/s; a SATA disk has 500e6, an SD card 40e6 to 90e6

static void check_swap(const struct memory_facts *m, struct doctor_report *r)
{
	char used[24], total[24];
	uint64_t in_use = m->swap_total_bytes > m->swap_free_bytes ? m->swap_total_bytes - m->swap_free_bytes : 0;
	if (m->pressure >= PRESSURE_HIGH)
		doctor_add(r, DOCTOR_WARNING, "memory pressure", "close programs, or give Hearth a smaller cap with --mem",
			"in the last ten seconds programs waited for memory %d %% of the time", m->pressure / 100);
	if (in_use > m->swap_total_bytes / 2)
		doctor_add(r, DOCTOR_WARNING, "swap", "close programs, or give Hearth a smaller cap with --mem: weights that are swapped out are read back for every token",
			"%s of %s swap are in use", doctor_bytes(in_use, used), doctor_bytes(m->swap_total_bytes, total));
	if (m->swap_total_bytes > 0 && m->memlock_bytes < MEMLOCK_ENOUGH)
		doctor_add(r, DOCTOR_OK, "locked memory", NULL, "Hearth may lock %s: under pressure the system may swap weights out. For more: a line \"* - memlock unlimited\" in "
			"/etc/security/limits.conf, then log in again", doctor_bytes(m->memlock_bytes, total));
}

void doctor_memory(const struct memory_facts *m, struct doctor_report *r)
{
	char room[24], total[24];
	uint64_t bytes = memory_facts_room(m);
	doctor_bytes(bytes, room);
	doctor_bytes(m->total_bytes, total);
	if (m->total_bytes == 0) {
		doctor_add(r, DOCTOR_WARNING, "memory", NULL, "the system does not tell how much memory there is");
		return;
	}
	if (bytes < MEMORY_LEAST)
		doctor_add(r, DOCTOR_PROBLEM, "memory", "close programs: this is too little for even a few layers of a model", "%s of %s are free for Hearth", room, total);
	else if (bytes < MEMORY_LITTLE)
		doctor_add(r, DOCTOR_WARNING, "memory", "close programs, or let this machine hold few layers (--mem)", "%s of %s are free for Hearth", room, total);
	else
		doctor_add(r, DOCTOR_OK, "memory", NULL, "%s of %s are free for Hearth", room, total);
	if (m->group_limit_bytes < m->total_bytes)
		doctor_add(r, m->group_limit_bytes < m->total_bytes / 2 ? DOCTOR_WARNING : DOCTOR_OK, "memory limit",
			"start Hearth with a --mem below this limit, or raise the limit: a program that passes it is killed",
			"a container or service limits this program to %s, of which %s are taken", doctor_bytes(m->group_limit_bytes, total),
			doctor_bytes(m->group_used_bytes, room));
	check_swap(m, r);
}

static void check_clock_rates(const struct power_facts *p, struct doctor_report *r)
{
	if (p->n_held_low > 0)
		doctor_add(r, DOCTOR_WARNING, "processor clock", "for example: echo schedutil | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
			"%d of %d processors are held at their lowest clock (governor \"powersave\")", p->n_held_low, p->n_governed);
	else if (p->allowed_khz > 0 && p->allowed_khz < p->max_khz / 10 * 9)
		doctor_add(r, DOCTOR_WARNING, "processor clock", "a power profile holds it back: choose another one in the desktop's settings (balanced or performance)",
			"limited to %.1f of %.1f GHz", (double)p->allowed_khz / 1e6, (double)p->max_khz / 1e6);
	else if (p->n_governed > 0)
		doctor_add(r, DOCTOR_OK, "processor clock", NULL, "up to %.1f GHz (governor \"%s\")", (double)p->max_khz / 1e6, p->governor);
}

static void check_battery(const struct power_facts *p, struct doctor_report *r)
{
	if (p->is_on_battery && p->battery_percent >= 0)
		doctor_add(r, DOCTOR_WARNING, "power", "plug it in: on battery processors and Wi-Fi are slower, and computing empties it in an hour or two",
			"runs on its battery, %d %% left", p->battery_percent);
	else if (p->is_on_battery)
		doctor_add(r, DOCTOR_WARNING, "power", "plug it in: on battery processors and Wi-Fi are slower", "runs on its battery");
	else if (p->has_battery)
		doctor_add(r, DOCTOR_OK, "power", NULL, "plugged in. A laptop whose lid is closed may sleep: keep it open, or tell its settings not to");
}

void doctor_power(const struct power_facts *p, int32_t n_cpus, const char *simd, struct doctor_report *r)
{
	if (strcmp(simd, "portable") == 0)
		doctor_add(r, DOCTOR_WARNING, "processor", "use it for few layers: Hearth has no fast code for this processor yet", "%d processors, portable code", n_cpus);
	else
		doctor_add(r, DOCTOR_OK, "processor", NULL, "%d processors, %s code", n_cpus, simd);
	check_clock_rates(p, r);
	check_battery(p, r);
	if (p->hottest_millidegrees >= HEAT_HIGH)
		doctor_add(r, DOCTOR_WARNING, "heat", "give it air, clean its fan, or use fewer threads (--threads): a hot processor slows itself down", "%d degrees Celsius",
			p->hottest_millidegrees / 1000);
	if (p->load >= 0 && n_cpus > 0 && p->load > 50 * n_cpus)
		doctor_add(r, DOCTOR_WARNING, "load", "other programs use the processors: end them, or expect fewer tokens per second", "%.1f programs wanted to run on average, on %d processors",
			p->load / 100.0, n_cpus);
}

// kind_advice: a virtual machine's disk often says that it rotates; the state is small enough for any.
static const char *kind_advice(enum disk_kind k, bool is_cache, double bytes_per_s)
{
	switch (k) {
	case DISK_ROTATING:
		if (!is_cache || bytes_per_s >= DISK_SLOW)
			return NULL;
		return "let the layers of this machine fit into memory: weights that do not fit are read for every token, which this disk is too slow for";
	case DISK_SD_CARD: return "it is slow and wears out: put it on a USB 3 solid-state disk (--cache DIR, --state DIR), and leave --keep-disk off";
	case DISK_NETWORK: return "use a directory on a disk of this machine (--cache DIR, --state DIR): locks and speed of network file systems are not to be relied on";
	case DISK_MEMORY: return "it takes memory from the weights and is empty after a restart: use a directory on a disk";
	case DISK_REMOVABLE: return "do not pull it out while Hearth runs";
	default: return NULL;
	}
}

void doctor_disk(const char *what, const char *path, const struct disk_facts *d, double bytes_per_s, struct doctor_report *r)
{
	char room[24], rate[40] = "", check[DOCTOR_CHECK_CAP];
	snprintf(check, sizeof check, "%s disk", what);
	bool is_cache = strcmp(what, "cache") == 0;
	const char *advice = kind_advice(d->kind, is_cache, bytes_per_s);
	doctor_bytes(d->free_bytes, room);
	if (bytes_per_s > 0)
		snprintf(rate, sizeof rate, ", read at %.0f MB/s", bytes_per_s / 1e6);
	if (d->free_bytes < DISK_LEAST)
		doctor_add(r, DOCTOR_PROBLEM, check, "make room, or use another directory (--state DIR, --cache DIR)", "%s: only %s are free on %s", path, room,
			disk_kind_words(d->kind));
	else if (advice != NULL)
		doctor_add(r, DOCTOR_WARNING, check, advice, "%s: on %s%s, %s free", path, disk_kind_words(d->kind), rate, room);
	else if (is_cache && d->free_bytes < DISK_LITTLE)
		doctor_add(r, DOCTOR_WARNING, check, "make room for the layers that this machine will fetch: a 70B model has 40 GB", "%s: on %s%s, %s free", path,
			disk_kind_words(d->kind), rate, room);
	else if (bytes_per_s > 0 && bytes_per_s < DISK_SLOW)
		doctor_add(r, DOCTOR_WARNING, check, "let the layers fit into memory: from a slow disk each token waits for those that do not", "%s: on %s%s, %s free",
			path, disk_kind_words(d->kind), rate, room);
	else
		doctor_add(r, DOCTOR_OK, check, NULL, "%s: on %s%s, %s free", path, disk_kind_words(d->kind), rate, room);
}

void doctor_clock(bool is_set, struct doctor_report *r)
{
	if (is_set)
		doctor_add(r, DOCTOR_OK, "clock", NULL, "set by the network");
	else
		doctor_add(r, DOCTOR_WARNING, "clock", "switch that on: sudo timedatectl set-ntp true. Invites last ten minutes: with wrong clocks they seem to have expired",
			"not set by the network (NTP)");
}

void doctor_clock_offset(double ahead_s, struct doctor_report *r)
{
	double by = ahead_s < 0 ? -ahead_s : ahead_s;
	const char *way = ahead_s < 0 ? "behind" : "ahead of";
	if (by < CLOCK_NEAR_S)
		doctor_add(r, DOCTOR_OK, "clock", NULL, "within %.1f s of the coordinator's", by < 0.1 ? 0.1 : by);
	else
		doctor_add(r, by < CLOCK_FAR_S ? DOCTOR_WARNING : DOCTOR_PROBLEM, "clock", "set both clocks right (sudo timedatectl set-ntp true): invites seem to have expired, and log lines do "
			"not fit together", "%.0f s %s the coordinator's", by, way);
}

void doctor_directory(const char *what, const char *path, struct doctor_report *r)
{
	struct stat st;
	char check[DOCTOR_CHECK_CAP], advice[DOCTOR_TEXT_CAP];
	snprintf(check, sizeof check, "%s directory", what);
	if (lstat(path, &st) != 0) {
		if (errno == ENOENT)
			doctor_add(r, DOCTOR_OK, check, NULL, "%s: will be made when it is needed", path);
		else
			doctor_add(r, DOCTOR_PROBLEM, check, "use another one (--state DIR, --cache DIR)", "%s: %s", path, strerror(errno));
		return;
	}
	if (!S_ISDIR(st.st_mode)) {
		doctor_add(r, DOCTOR_PROBLEM, check, "remove it, or use another one (--state DIR, --cache DIR)", "%s: is no directory", path);
	} else if (st.st_uid != geteuid()) {
		doctor_add(r, DOCTOR_PROBLEM, check, "run Hearth as the user whose it is, or use another one (--state DIR, --cache DIR)", "%s: belongs to another user", path);
	} else if ((st.st_mode & 077) != 0) {
		snprintf(advice, sizeof advice, "chmod 700 %s: Hearth refuses a directory that others can enter", path);
		doctor_add(r, DOCTOR_PROBLEM, check, advice, "%s: others may enter it (mode %03o)", path, st.st_mode & 0777u);
	} else if (access(path, W_OK | X_OK) != 0) {
		doctor_add(r, DOCTOR_PROBLEM, check, "make it writable, or use another one (--state DIR, --cache DIR)", "%s: cannot be written (%s)", path, strerror(errno));
	} else {
		doctor_add(r, DOCTOR_OK, check, NULL, "%s: yours alone", path);
	}
}
