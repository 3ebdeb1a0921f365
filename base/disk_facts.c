#include "base/disk_facts.h"

#include "base/sys_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define LINES_MAX 4096
#define MOUNTS_CAP (256 * 1024) // a machine with hundreds of containers
#define FIELD_CAP 256

const char *disk_kind_words(enum disk_kind k)
{
	static const char *const words[] = {
#define X(name, words) words,
		DISK_KIND_TABLE(X)
#undef X
	};
	return (size_t)k < ARRAY_LEN(words) ? words[k] : words[DISK_UNKNOWN];
}

struct mount {
	char point[FIELD_CAP], fs[DISK_NAME_CAP], source[FIELD_CAP];
	uint64_t major, minor;
};

// take_field copies the next field of a line, with \040 and the like undone; it moves *at behind it. What does not fit is cut.
static void take_field(const char **at, char *out, size_t cap)
{
	const char *s = *at + strspn(*at, " ");
	size_t n = 0;
	while (*s != ' ' && *s != '\n' && *s != '\0') {
		unsigned c = (unsigned char)*s++;
		if (c == '\\' && s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7') {
			c = (unsigned)(s[0] - '0') * 64 + (unsigned)(s[1] - '0') * 8 + (unsigned)(s[2] - '0');
			s += 3;
		}
		if (n + 1 < cap && c != 0)
			out[n++] = (char)c;
	}
	out[n] = '\0';
	*at = s;
}

// parse_mount reads "36 35 98:0 /root /point options [tags] - type source options".
static bool parse_mount(const char *line, struct mount *m)
{
	char word[FIELD_CAP];
	uint64_t id;
	if (!sys_text_u64(line, &id, &line) || !sys_text_u64(line, &id, &line))
		return false;
	if (!sys_text_u64(line, &m->major, &line) || *line != ':' || !sys_text_u64(line + 1, &m->minor, &line))
		return false;
	take_field(&line, word, sizeof word);
	take_field(&line, m->point, sizeof m->point);
	do
		take_field(&line, word, sizeof word);
	while (word[0] != '\0' && strcmp(word, "-") != 0);
	take_field(&line, m->fs, sizeof m->fs);
	take_field(&line, m->source, sizeof m->source);
	return m->point[0] == '/';
}

static bool is_below(const char *path, const char *point)
{
	size_t n = strlen(point);
	return strcmp(point, "/") == 0 || (strncmp(path, point, n) == 0 && (path[n] == '/' || path[n] == '\0'));
}

// find_mount: the longest point above the path; of two with one point, the later one lies over the other.
static bool find_mount(const char *text, const char *path, struct mount *out)
{
	bool found = false;
	const char *line = text;
	for (int i = 0; i < LINES_MAX && line != NULL && *line != '\0'; i++) {
		struct mount m;
		if (parse_mount(line, &m) && is_below(path, m.point) && (!found || strlen(m.point) >= strlen(out->point))) {
			*out = m;
			found = true;
		}
		line = strchr(line, '\n');
		line = line != NULL ? line + 1 : NULL;
	}
	return found;
}

static bool is_one_of(const char *word, const char *const *list)
{
	for (; *list != NULL; list++)
		if (strcmp(word, *list) == 0)
			return true;
	return false;
}

// block_kind looks at the device's directory below /sys; a partition's facts are those of its disk, one directory up.
static enum disk_kind block_kind(const char *root, const char *device)
{
	char path[SYS_PATH_CAP], word[DISK_NAME_CAP];
	uint64_t rotating, removable;
	const char *up = "";
	if (snprintf(path, sizeof path, "%s/partition", device) < (int)sizeof path && sys_file_exists(root, path))
		up = "/..";
	if (snprintf(path, sizeof path, "%s%s/device/type", device, up) < (int)sizeof path && sys_file_word(root, path, word, sizeof word)) {
		if (strcmp(word, "SD") == 0)
			return DISK_SD_CARD;
		if (strcmp(word, "MMC") == 0)
			return DISK_FLASH;
	}
	if (snprintf(path, sizeof path, "%s%s/removable", device, up) < (int)sizeof path && sys_file_u64(root, path, &removable) && removable == 1)
		return DISK_REMOVABLE;
	if (snprintf(path, sizeof path, "%s%s/queue/rotational", device, up) < (int)sizeof path && sys_file_u64(root, path, &rotating))
		return rotating == 0 ? DISK_SOLID : DISK_ROTATING;
	return DISK_UNKNOWN;
}

// find_device: by number, or by name where the file system has a number of its own (btrfs). Only a plain name: it becomes part of a path.
static enum disk_kind find_device(const char *root, const struct mount *m, char device[DISK_NAME_CAP])
{
	char path[SYS_PATH_CAP], text[1024];
	if (m->major != 0) {
		snprintf(path, sizeof path, "/sys/dev/block/%u:%u/uevent", (unsigned)m->major, (unsigned)m->minor);
		const char *name = sys_file_read(root, path, text, sizeof text, NULL) == OK ? sys_text_find(text, "DEVNAME=") : NULL;
		if (name != NULL)
			snprintf(device, DISK_NAME_CAP, "%.*s", (int)strcspn(name, "\n"), name);
		snprintf(path, sizeof path, "/sys/dev/block/%u:%u", (unsigned)m->major, (unsigned)m->minor);
		return block_kind(root, path);
	}
	const char *name = strncmp(m->source, "/dev/", 5) == 0 ? strrchr(m->source, '/') + 1 : "";
	if (name[0] == '\0' || name[0] == '.' || strlen(name) >= DISK_NAME_CAP)
		return DISK_UNKNOWN;
	memcpy(device, name, strlen(name) + 1);
	snprintf(path, sizeof path, "/sys/class/block/%s", name);
	return block_kind(root, path);
}

static enum disk_kind kind_of(const char *root, const struct mount *m, char device[DISK_NAME_CAP])
{
	static const char *const network[] = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "afs", "fuse.sshfs", "fuse.rclone", NULL};
	static const char *const memory[] = {"tmpfs", "ramfs", "devtmpfs", NULL};
	if (is_one_of(m->fs, network))
		return DISK_NETWORK;
	if (is_one_of(m->fs, memory))
		return DISK_MEMORY;
	return find_device(root, m, device);
}

enum err disk_facts_read(const char *root, const char *path, struct disk_facts *out)
{
	struct statvfs room;
	struct mount m;
	*out = (struct disk_facts){.kind = DISK_UNKNOWN};
	if (statvfs(path, &room) != 0)
		return ERR_NOT_FOUND;
	out->free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
	out->total_bytes = (uint64_t)room.f_blocks * room.f_frsize;
	char *text = malloc(MOUNTS_CAP);
	if (text == NULL)
		return OK;
	if (sys_file_read(root, "/proc/self/mountinfo", text, MOUNTS_CAP, NULL) == OK && find_mount(text, path, &m)) {
		memcpy(out->fs, m.fs, sizeof m.fs);
		out->kind = kind_of(root, &m, out->device);
	}
	free(text);
	return OK;
}
