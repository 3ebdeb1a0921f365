// What kind of disk a directory is on, and how much room it has: mountinfo, and what /sys says of the device behind it.
// `root` is explained in base/sys_file.h. Any thread.
#ifndef HEARTH_BASE_DISK_FACTS_H
#define HEARTH_BASE_DISK_FACTS_H

#include "base/err.h"

#include <stdint.h>

// X(name, words)
#define DISK_KIND_TABLE(X) \
	X(DISK_UNKNOWN, "a disk of unknown kind") \
	X(DISK_SOLID, "a solid-state disk") \
	X(DISK_ROTATING, "a rotating disk") \
	X(DISK_SD_CARD, "an SD card") \
	X(DISK_FLASH, "on-board flash (eMMC)") \
	X(DISK_REMOVABLE, "a removable drive") \
	X(DISK_NETWORK, "a network file system") \
	X(DISK_MEMORY, "memory (tmpfs)")

enum disk_kind {
#define X(name, words) name,
	DISK_KIND_TABLE(X)
#undef X
};

#define DISK_NAME_CAP 64

struct disk_facts {
	enum disk_kind kind;
	char device[DISK_NAME_CAP]; // "nvme0n1p2"; "": not told
	char fs[DISK_NAME_CAP];     // "ext4"
	uint64_t free_bytes;        // for this user
	uint64_t total_bytes;
};

const char *disk_kind_words(enum disk_kind k);
// disk_facts_read looks at an existing absolute path. ERR_NOT_FOUND: there is none. Room is that of the real path, whatever `root` says of its disk.
MUST_USE enum err disk_facts_read(const char *root, const char *path, struct disk_facts *out);

#endif
