// What `hearth doctor` thinks of this machine's network: interfaces, Wi-Fi and its power save, firewalls, ports, discovery; and of one link's figures.
// Each check takes facts and adds findings.
#ifndef HEARTH_CLI_DOCTOR_NETWORK_H
#define HEARTH_CLI_DOCTOR_NETWORK_H

#include "base/network_facts.h"
#include "cli/doctor_report.h"
#include "cli/lan_search.h"

#include <stdbool.h>

// Wi-Fi power save, as the driver says; it is no file, so it comes beside the facts.
enum doctor_saving { SAVING_UNKNOWN, SAVING_OFF, SAVING_ON };
enum doctor_saving doctor_power_save(const char *interface);

void doctor_interfaces(const struct network_facts *f, const enum doctor_saving saving[NETWORK_INTERFACES_MAX], struct doctor_report *r);
void doctor_firewall(const struct network_facts *f, struct doctor_report *r);
// doctor_ports: is_running: a hearth has the state directory, so it may be the one that listens.
void doctor_ports(const char *root, bool is_running, struct doctor_report *r);
// doctor_discovery compares the versions that coordinators announce with ours.
void doctor_discovery(const struct lan_search_result *found, uint32_t protocol_version, uint32_t canon_version, struct doctor_report *r);

// Round trips of one link, in ms. Sorted here.
struct doctor_rtts {
	int32_t n;
	double ms[64];
};
void doctor_link(const char *to, struct doctor_rtts *t, struct doctor_report *r);

#endif
