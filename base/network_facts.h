// What this machine's network looks like from /proc and /sys: interfaces, Wi-Fi, who listens, hints of packet filters, who was heard on the wire.
// `root` is explained in base/sys_file.h. Any thread.
#ifndef HEARTH_BASE_NETWORK_FACTS_H
#define HEARTH_BASE_NETWORK_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#define NETWORK_INTERFACES_MAX 16
#define NETWORK_NAME_CAP 16 // IFNAMSIZ

struct network_interface {
	char name[NETWORK_NAME_CAP];
	bool is_wireless;
	bool is_half_duplex;
	int32_t mbit;       // of a wired link; 0: not told
	int32_t signal_dbm; // of a wireless one; 0: not told
};

struct network_facts {
	int32_t n; // real interfaces that are up: no bridges, containers or loopback
	struct network_interface at[NETWORK_INTERFACES_MAX];
	bool has_ufw;       // Ubuntu's firewall is switched on
	bool has_firewalld; // Fedora's runs
	bool has_filters;   // the kernel has packet filters loaded that something uses; what they let through only root can see
};

void network_facts_read(const char *root, struct network_facts *out);

// network_listens tells whether some program of this machine listens on a TCP port, on any address.
bool network_listens(const char *root, uint16_t port);

enum network_neighbour {
	NEIGHBOUR_UNKNOWN, // not of this network, or not asked for lately
	NEIGHBOUR_SILENT,  // asked for by ARP, and did not answer
	NEIGHBOUR_PRESENT, // answered
};
// network_neighbour_of looks an IPv4 address up in the ARP table.
enum network_neighbour network_neighbour_of(const char *root, const char *ipv4);

#endif
