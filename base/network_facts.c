#include "base/network_facts.h"

#include "base/sys_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAMES_MAX 64
#define PROCESSES_MAX 4096
#define SOCKETS_CAP (1 << 20) // of /proc/net/tcp: seven thousand connections
#define MBIT_MAX 1000000
#define LISTENING "0A"

static bool file_says(const char *root, const char *interface, const char *file, const char *word)
{
	char path[SYS_PATH_CAP], got[32];
	snprintf(path, sizeof path, "/sys/class/net/%s/%s", interface, file);
	return sys_file_word(root, path, got, sizeof got) && strcmp(got, word) == 0;
}

static bool has_entry(const char *root, const char *interface, const char *name)
{
	char path[SYS_PATH_CAP];
	snprintf(path, sizeof path, "/sys/class/net/%s/%s", interface, name);
	return sys_file_exists(root, path);
}

// read_signal finds "wlan0: 0000   54.  -56.  -256 ..." and takes the level, which is in dBm when it is negative.
static int32_t read_signal(const char *text, const char *interface)
{
	uint64_t v;
	for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *at = line + strspn(line, " ");
		size_t n = strlen(interface);
		if (strncmp(at, interface, n) != 0 || at[n] != ':')
			continue;
		at += n + 1;
		for (int field = 0; field < 2; field++) { // status, quality
			at += strspn(at, " ");
			at += strcspn(at, " \n");
		}
		at += strspn(at, " ");
		return at[0] == '-' && sys_text_u64(at + 1, &v, NULL) && v > 0 && v < 200 ? -(int32_t)v : 0;
	}
	return 0;
}

static void read_interfaces(const char *root, struct network_facts *f)
{
	char names[NAMES_MAX][SYS_NAME_CAP], wireless[4096], path[SYS_PATH_CAP];
	size_t n = sys_file_list(root, "/sys/class/net", names, NAMES_MAX);
	if (sys_file_read(root, "/proc/net/wireless", wireless, sizeof wireless, NULL) != OK)
		wireless[0] = '\0';
	for (size_t i = 0; i < n && f->n < NETWORK_INTERFACES_MAX; i++) {
		uint64_t mbit;
		bool is_wireless = has_entry(root, names[i], "wireless") || has_entry(root, names[i], "phy80211");
		if (strlen(names[i]) >= NETWORK_NAME_CAP || !file_says(root, names[i], "operstate", "up") || (!is_wireless && !has_entry(root, names[i], "device")))
			continue;
		struct network_interface *t = &f->at[f->n++];
		*t = (struct network_interface){.is_wireless = is_wireless, .is_half_duplex = file_says(root, names[i], "duplex", "half")};
		memcpy(t->name, names[i], strlen(names[i]) + 1);
		snprintf(path, sizeof path, "/sys/class/net/%s/speed", names[i]);
		if (!is_wireless && sys_file_u64(root, path, &mbit) && mbit <= MBIT_MAX)
			t->mbit = (int32_t)mbit;
		if (is_wireless)
			t->signal_dbm = read_signal(wireless, names[i]);
	}
}

// runs tells whether a process of that name does, whoever owns it.
static bool runs(const char *root, const char *name)
{
	char path[SYS_PATH_CAP], comm[32];
	bool found = false;
	char(*names)[SYS_NAME_CAP] = malloc((size_t)PROCESSES_MAX * SYS_NAME_CAP);
	size_t n = names != NULL ? sys_file_list(root, "/proc", names, PROCESSES_MAX) : 0;
	for (size_t i = 0; i < n && !found; i++) {
		if (!isdigit((unsigned char)names[i][0]))
			continue;
		snprintf(path, sizeof path, "/proc/%s/comm", names[i]);
		found = sys_file_word(root, path, comm, sizeof comm) && strcmp(comm, name) == 0;
	}
	free(names);
	return found;
}

// has_filters: "nf_tables 303104 56 nft_ct,..." with a user count above nought, or the older one.
static bool has_filters(const char *root)
{
	static const char *const modules[] = {"nf_tables ", "iptable_filter ", "ip6table_filter "};
	bool found = false;
	char *text = malloc(SOCKETS_CAP);
	if (text != NULL && sys_file_read(root, "/proc/modules", text, SOCKETS_CAP, NULL) == OK)
		for (size_t i = 0; i < ARRAY_LEN(modules); i++) {
			uint64_t bytes, users;
			const char *at = sys_text_find(text, modules[i]);
			found = found || (at != NULL && sys_text_u64(at, &bytes, &at) && sys_text_u64(at, &users, NULL) && users > 0);
		}
	free(text);
	return found;
}

void network_facts_read(const char *root, struct network_facts *out)
{
	char text[4096];
	*out = (struct network_facts){0};
	read_interfaces(root, out);
	const char *at = sys_file_read(root, "/etc/ufw/ufw.conf", text, sizeof text, NULL) == OK ? sys_text_find(text, "ENABLED=") : NULL;
	out->has_ufw = at != NULL && strncasecmp(at, "yes", 3) == 0;
	out->has_firewalld = runs(root, "firewalld");
	out->has_filters = has_filters(root);
}

// A line is "  1: 0100007F:1D09 00000000:0000 0A ...": number, own address and port, the other's, state.
static bool listens_in(const char *root, const char *path, uint16_t port)
{
	char want[8];
	bool found = false;
	char *text = malloc(SOCKETS_CAP);
	if (text == NULL || sys_file_read(root, path, text, SOCKETS_CAP, NULL) != OK) {
		free(text);
		return false;
	}
	snprintf(want, sizeof want, "%04X", port);
	for (const char *line = text; !found && line != NULL && *line != '\0'; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		char row[160], own[64], other[64], state[8];
		snprintf(row, sizeof row, "%.*s", (int)strcspn(line, "\n"), line); // sscanf looks for the end of all the text first
		if (sscanf(row, " %*63[^: ]: %63s %63s %7s", own, other, state) != 3)
			continue;
		const char *colon = strrchr(own, ':');
		found = colon != NULL && strcmp(colon + 1, want) == 0 && strcmp(state, LISTENING) == 0;
	}
	free(text);
	return found;
}

bool network_listens(const char *root, uint16_t port)
{
	return listens_in(root, "/proc/net/tcp", port) || listens_in(root, "/proc/net/tcp6", port);
}

// "192.168.1.7  0x1  0x2  aa:bb:cc:dd:ee:ff  *  eth0": the third field has 2 in it when the answer came.
enum network_neighbour network_neighbour_of(const char *root, const char *ipv4)
{
	char text[SYS_TEXT_CAP], key[64];
	unsigned flags;
	if (sys_file_read(root, "/proc/net/arp", text, sizeof text, NULL) != OK)
		return NEIGHBOUR_UNKNOWN;
	snprintf(key, sizeof key, "%s ", ipv4);
	const char *at = sys_text_find(text, key);
	char line[80];
	snprintf(line, sizeof line, "%.*s", at != NULL ? (int)strcspn(at, "\n") : 0, at != NULL ? at : "");
	if (sscanf(line, " %*15s 0x%x", &flags) != 1)
		return NEIGHBOUR_UNKNOWN;
	return flags & 2 ? NEIGHBOUR_PRESENT : NEIGHBOUR_SILENT;
}
