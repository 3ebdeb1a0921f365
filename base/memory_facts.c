#include "base/memory_facts.h"

#include "base/sys_file.h"

#include <stdio.h>
#include <string.h>

#define GROUP_LEVELS_MAX 32
#define V1_UNLIMITED (UINT64_C(1) << 60) // version 1 says "no limit" with a number near 2^63
#define GROUP_PATH_CAP 256

static uint64_t kib(const char *text, const char *key)
{
	uint64_t v;
	const char *at = sys_text_find(text, key);
	return at != NULL && sys_text_u64(at, &v, NULL) && v <= UINT64_MAX / 1024 ? v * 1024 : 0;
}

struct group_files {
	const char *mount, *limit, *used;
};

static const struct group_files version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"};
static const struct group_files version2 = {"/sys/fs/cgroup", "memory.max", "memory.current"};

// look_at reads one group; "max", and what is no number, is no limit.
static void look_at(const char *root, const struct group_files *f, const char *group, struct memory_facts *m)
{
	char path[SYS_PATH_CAP];
	uint64_t limit;
	if (snprintf(path, sizeof path, "%s%s/%s", f->mount, group, f->limit) >= (int)sizeof path || !sys_file_u64(root, path, &limit))
		return;
	if (limit >= V1_UNLIMITED || limit >= m->group_limit_bytes)
		return;
	m->group_limit_bytes = limit;
	if (snprintf(path, sizeof path, "%s%s/%s", f->mount, group, f->used) >= (int)sizeof path || !sys_file_u64(root, path, &m->group_used_bytes))
		m->group_used_bytes = 0;
}

// walk looks at the group and at every one above it: each of them limits. Inside a container the path may mean nothing; its root always does.
static void walk(const char *root, const struct group_files *f, const char *at, struct memory_facts *m)
{
	char group[GROUP_PATH_CAP];
	size_t n = strcspn(at, "\n");
	if (n < sizeof group && at[0] == '/') {
		memcpy(group, at, n);
		group[n] = '\0';
		if (strstr(group, "..") != NULL)
			group[0] = '\0';
		for (int level = 0; level < GROUP_LEVELS_MAX && group[0] != '\0'; level++) {
			if (strcmp(group, "/") != 0)
				look_at(root, f, group, m);
			*strrchr(group, '/') = '\0';
		}
	}
	look_at(root, f, "", m);
}

// "0::/path" is version 2; "7:memory:/path" version 1, perhaps with other controllers beside it.
static void read_groups(const char *root, struct memory_facts *m)
{
	char text[4096];
	if (sys_file_read(root, "/proc/self/cgroup", text, sizeof text, NULL) != OK)
		return;
	const char *at = sys_text_find(text, "0::");
	if (at != NULL)
		walk(root, &version2, at, m);
	const char *memory = strstr(text, ":memory:");
	if (memory != NULL)
		walk(root, &version1, memory + strlen(":memory:"), m);
}

static uint64_t read_memlock(const char *root)
{
	char text[4096];
	uint64_t v;
	if (sys_file_read(root, "/proc/self/limits", text, sizeof text, NULL) != OK)
		return MEMORY_UNLIMITED;
	const char *at = sys_text_find(text, "Max locked memory");
	return at != NULL && sys_text_u64(at, &v, NULL) ? v : MEMORY_UNLIMITED;
}

enum err memory_facts_read(const char *root, struct memory_facts *out)
{
	char text[SYS_TEXT_CAP];
	*out = (struct memory_facts){.group_limit_bytes = MEMORY_UNLIMITED, .memlock_bytes = MEMORY_UNLIMITED, .pressure = -1};
	if (sys_file_read(root, "/proc/meminfo", text, sizeof text, NULL) != OK)
		return ERR_NOT_FOUND;
	out->total_bytes = kib(text, "MemTotal:");
	out->available_bytes = kib(text, "MemAvailable:");
	out->swap_total_bytes = kib(text, "SwapTotal:");
	out->swap_free_bytes = kib(text, "SwapFree:");
	read_groups(root, out);
	out->memlock_bytes = read_memlock(root);
	if (sys_file_read(root, "/proc/pressure/memory", text, sizeof text, NULL) == OK)
		out->pressure = sys_text_pressure(text);
	return OK;
}

uint64_t memory_facts_room(const struct memory_facts *m)
{
	if (m->group_limit_bytes == MEMORY_UNLIMITED)
		return m->available_bytes;
	uint64_t left = m->group_used_bytes < m->group_limit_bytes ? m->group_limit_bytes - m->group_used_bytes : 0;
	return left < m->available_bytes ? left : m->available_bytes;
}
