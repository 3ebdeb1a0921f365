#include "base/cpu_use.h"

#include "base/sys_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES_MAX 8192
#define STAT_CAP 65536 // /proc/stat: a line for each of some hundred processors stands before what is long
#define FIELDS 8       // user nice system idle iowait irq softirq steal; guests' time is in user

static bool read_totals(const char *text, struct cpu_use *out)
{
	const char *at = strncmp(text, "cpu ", 4) == 0 ? text + 4 : NULL;
	if (at == NULL)
		return false;
	for (int i = 0; i < FIELDS; i++) {
		uint64_t ticks;
		if (!sys_text_u64(at, &ticks, &at))
			return i >= 4; // older kernels tell less
		bool is_idle = i == 3 || i == 4;
		out->total += ticks;
		out->busy += is_idle ? 0 : ticks;
	}
	return true;
}

static int32_t count_cpus(const char *text)
{
	int32_t n = 0;
	for (const char *line = strchr(text, '\n'); line != NULL && strncmp(line + 1, "cpu", 3) == 0; line = strchr(line + 1, '\n'))
		n++;
	return n;
}

// ticks_of reads utime and stime of "PID (NAME) STATE ...": the 14th and 15th field. 0 for another name, or what is no such line.
static uint64_t ticks_of(const char *stat, const char *name)
{
	const char *open = strchr(stat, '('), *close = strrchr(stat, ')');
	size_t len = strlen(name) < 15 ? strlen(name) : 15;
	if (open == NULL || close == NULL || (size_t)(close - open) != len + 1 || memcmp(open + 1, name, len) != 0)
		return 0;
	const char *at = close + 1;
	for (int spaces = 0; spaces < 12; at++) {
		if (*at == '\0')
			return 0;
		spaces += *at == ' ';
	}
	uint64_t user, system;
	return sys_text_u64(at, &user, &at) && sys_text_u64(at, &system, &at) ? user + system : 0;
}

static uint64_t read_own(const char *root, const char *name)
{
	uint64_t sum = 0;
	char (*entries)[SYS_NAME_CAP] = malloc((size_t)PROCESSES_MAX * sizeof *entries);
	size_t n = entries != NULL ? sys_file_list(root, "/proc", entries, PROCESSES_MAX) : 0;
	for (size_t i = 0; i < n; i++) {
		char path[SYS_NAME_CAP + 16], stat[1024];
		if (entries[i][0] < '0' || entries[i][0] > '9')
			continue;
		snprintf(path, sizeof path, "/proc/%s/stat", entries[i]);
		if (sys_file_read(root, path, stat, sizeof stat, NULL) == OK)
			sum += ticks_of(stat, name);
	}
	free(entries);
	return sum;
}

enum err cpu_use_read(const char *root, const char *name, struct cpu_use *out)
{
	*out = (struct cpu_use){.busy = 0};
	char *text = malloc(STAT_CAP);
	enum err e = text != NULL ? sys_file_read(root, "/proc/stat", text, STAT_CAP, NULL) : ERR_NOMEM;
	if (e == OK && !read_totals(text, out))
		e = ERR_NOT_FOUND;
	if (e == OK)
		out->n_cpus = count_cpus(text);
	free(text);
	if (e == OK)
		out->own = read_own(root, name);
	return e;
}

double cpu_use_by_others(const struct cpu_use *before, const struct cpu_use *after)
{
	if (after->total <= before->total || after->busy < before->busy || after->n_cpus < 1)
		return -1;
	double passed = (double)(after->total - before->total) / after->n_cpus;
	double busy = (double)(after->busy - before->busy);
	double own = after->own > before->own ? (double)(after->own - before->own) : 0; // less: one of them has ended
	return busy > own ? (busy - own) / passed : 0;
}
