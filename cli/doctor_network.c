#include "cli/doctor_network.h"

#include "base/limits.h"

#include <linux/wireless.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MBIT_SLOW 100
#define SIGNAL_WEAK (-70) // dBm: below it Wi-Fi repeats itself
#define RTT_SLOW_MS 20.0  // as the median: a token's road has several of them
#define STALL_MS 100.0    // of one round trip; sleeping radios take 50 to 300 ms, roaming longer
#define STALL_TIMES 8.0   // and so many times the median, or it is just a slow link
#define RTTS_ENOUGH 5

// The wireless extensions' question is answered for any user, by every driver of the last fifteen years.
enum doctor_saving doctor_power_save(const char *interface)
{
	struct iwreq q = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return SAVING_UNKNOWN;
	memcpy(q.ifr_name, interface, strnlen(interface, IFNAMSIZ - 1));
	int rc = ioctl(fd, SIOCGIWPOWER, &q);
	close(fd);
	return rc != 0 ? SAVING_UNKNOWN : q.u.power.disabled ? SAVING_OFF : SAVING_ON;
}

static void check_wireless(const struct network_interface *t, enum doctor_saving saving, struct doctor_report *r)
{
	char advice[DOCTOR_TEXT_CAP], signal[32] = "";
	if (t->signal_dbm != 0)
		snprintf(signal, sizeof signal, ", signal %d dBm", t->signal_dbm);
	if (saving == SAVING_ON) {
		snprintf(advice, sizeof advice, "sudo iw dev %s set power_save off: a sleeping radio answers 50 to 300 ms late, for every token. Better still: a cable", t->name);
		doctor_add(r, DOCTOR_WARNING, t->name, advice, "Wi-Fi with power save on%s", signal);
	} else if (t->signal_dbm != 0 && t->signal_dbm < SIGNAL_WEAK) {
		doctor_add(r, DOCTOR_WARNING, t->name, "move nearer to the access point, or use a cable", "Wi-Fi with a weak signal (%d dBm)", t->signal_dbm);
	} else {
		doctor_add(r, DOCTOR_OK, t->name, NULL, "Wi-Fi%s%s. A cable would be faster and steadier", saving == SAVING_OFF ? ", power save off" : "", signal);
	}
}

static void check_wired(const struct network_interface *t, struct doctor_report *r)
{
	if (t->is_half_duplex)
		doctor_add(r, DOCTOR_WARNING, t->name, "change the cable, or the switch's port: one of the two is broken or very old", "wired, %d Mbit/s, half duplex", t->mbit);
	else if (t->mbit > 0 && t->mbit <= MBIT_SLOW)
		doctor_add(r, DOCTOR_WARNING, t->name, "a cable with all eight wires (Cat 5e) and a gigabit switch make it ten times as fast; some Pis have no more",
			"wired, %d Mbit/s", t->mbit);
	else if (t->mbit > 0)
		doctor_add(r, DOCTOR_OK, t->name, NULL, "wired, %d Mbit/s", t->mbit);
	else
		doctor_add(r, DOCTOR_OK, t->name, NULL, "wired; it does not tell how fast");
}

void doctor_interfaces(const struct network_facts *f, const enum doctor_saving saving[NETWORK_INTERFACES_MAX], struct doctor_report *r)
{
	if (f->n == 0)
		doctor_add(r, DOCTOR_WARNING, "network", "connect it; in a container or virtual machine this is as it should be", "no network interface of this machine is up");
	for (int32_t i = 0; i < f->n; i++) {
		if (f->at[i].is_wireless)
			check_wireless(&f->at[i], saving[i], r);
		else
			check_wired(&f->at[i], r);
	}
}

void doctor_firewall(const struct network_facts *f, struct doctor_report *r)
{
	if (f->has_ufw)
		doctor_add(r, DOCTOR_WARNING, "firewall", "sudo ufw allow 7433:7434/tcp, and sudo ufw allow 5353/udp for discovery", "ufw is switched on: it lets nobody in but where it was told to");
	if (f->has_firewalld)
		doctor_add(r, DOCTOR_WARNING, "firewall", "sudo firewall-cmd --permanent --add-port=7433-7434/tcp --add-service=mdns, then sudo firewall-cmd --reload",
			"firewalld runs: it lets nobody in but where it was told to");
	if (f->has_ufw || f->has_firewalld)
		return;
	if (f->has_filters)
		doctor_add(r, DOCTOR_OK, "firewall", NULL, "packet filters are in use (by containers, perhaps); what they let in only root can see: sudo nft list ruleset");
	else
		doctor_add(r, DOCTOR_OK, "firewall", NULL, "no sign of one");
}

void doctor_ports(const char *root, bool is_running, struct doctor_report *r)
{
	static const struct {
		uint16_t port;
		const char *whose, *option;
	} ports[] = {{PORT_NODES_DEFAULT, "hearth serve", "serve --listen"}, {PORT_LINKS_DEFAULT, "hearth join", "join --listen"},
		{PORT_HTTP_DEFAULT, "the HTTP API of hearth serve", "serve --http"}};
	for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
		char check[DOCTOR_CHECK_CAP], advice[DOCTOR_TEXT_CAP];
		snprintf(check, sizeof check, "port %u", ports[i].port);
		snprintf(advice, sizeof advice, "if that is no hearth, or one of another user, choose another port: hearth %s HOST:PORT", ports[i].option);
		if (!network_listens(root, ports[i].port))
			doctor_add(r, DOCTOR_OK, check, NULL, "free for %s", ports[i].whose);
		else
			doctor_add(r, is_running ? DOCTOR_OK : DOCTOR_WARNING, check, is_running ? NULL : advice, "a program of this machine listens there%s",
				is_running ? " (a hearth runs)" : "");
	}
}

static void check_announced(const struct found_coordinator *c, uint32_t protocol_version, uint32_t canon_version, struct doctor_report *r)
{
	char fingerprint[FINGERPRINT_TEXT_CAP];
	fingerprint_text(&c->id, fingerprint);
	bool differs = (c->txt.protocol_version != 0 && c->txt.protocol_version != protocol_version) ||
		(c->txt.canon_version != 0 && c->txt.canon_version != canon_version);
	if (differs)
		doctor_add(r, DOCTOR_PROBLEM, "version", "install the same version of Hearth on both machines",
			"coordinator %s (%s) at %s speaks protocol %u with arithmetic %u, this machine %u and %u", c->txt.name, fingerprint, c->addrs[0],
			c->txt.protocol_version, c->txt.canon_version, protocol_version, canon_version);
	else
		doctor_add(r, DOCTOR_OK, "coordinator", NULL, "%s (%s) announces itself at %s", c->txt.name[0] ? c->txt.name : "one without a name", fingerprint, c->addrs[0]);
}

void doctor_discovery(const struct lan_search_result *found, uint32_t protocol_version, uint32_t canon_version, struct doctor_report *r)
{
	struct found_coordinator all[FOUND_SHOWN_MAX];
	uint32_t n = found_list_coordinators(&found->list, all);
	if (found->state == DISCOVERY_OFF) {
		doctor_add(r, DOCTOR_WARNING, "discovery", "install and start avahi-daemon (Debian: sudo apt install avahi-daemon), or do without: invites name addresses, too",
			"not available: %s", found->why);
		return;
	}
	doctor_add(r, DOCTOR_OK, "discovery", NULL, "avahi-daemon runs; %u coordinator%s announce%s on this network", n, n == 1 ? "" : "s", n == 1 ? "s itself" : " themselves");
	if (found->list.n_refused > 0)
		doctor_add(r, DOCTOR_WARNING, "discovery", "somebody on this network announces more coordinators than a home has: look who, if it is not you",
			"%llu announcements were not looked at", (unsigned long long)found->list.n_refused);
	for (uint32_t i = 0; i < n; i++)
		check_announced(&all[i], protocol_version, canon_version, r);
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

void doctor_link(const char *to, struct doctor_rtts *t, struct doctor_report *r)
{
	if (t->n == 0)
		return;
	qsort(t->ms, (size_t)t->n, sizeof t->ms[0], by_size);
	double median = t->ms[t->n / 2], most = t->ms[t->n - 1];
	if (t->n < RTTS_ENOUGH)
		doctor_add(r, DOCTOR_OK, "link", NULL, "%s: round trip %.1f ms (%d measured)", to, median, t->n);
	else if (most >= STALL_MS && most > STALL_TIMES * median)
		doctor_add(r, DOCTOR_WARNING, "link", "on Wi-Fi switch power save off on both machines (sudo iw dev wlan0 set power_save off), or use a cable",
			"%s: round trip %.1f ms, but one of %d took %.0f: it stalls", to, median, t->n, most);
	else if (median >= RTT_SLOW_MS)
		doctor_add(r, DOCTOR_WARNING, "link", "use a cable, or the 5 GHz band, and keep both machines near the access point: every token waits for several round trips",
			"%s: round trip %.1f ms (median of %d, at most %.0f)", to, median, t->n, most);
	else
		doctor_add(r, DOCTOR_OK, "link", NULL, "%s: round trip %.1f ms (median of %d, at most %.1f)", to, median, t->n, most);
}
