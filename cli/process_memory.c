#include "cli/process_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum err process_memory_read(struct process_memory *out, struct errmsg *em)
{
	char line[256];
	int n_found = 0;
	struct {
		const char *format;
		uint64_t kib;
	} fields[] = {{"RssAnon: %" SCNu64, 0}, {"RssFile: %" SCNu64, 0}, {"RssShmem: %" SCNu64, 0}, {"VmHWM: %" SCNu64, 0}};
	FILE *f = fopen("/proc/self/status", "r");
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		for (size_t i = 0; i < ARRAY_LEN(fields); i++)
			n_found += sscanf(line, fields[i].format, &fields[i].kib) == 1;
	if (f != NULL)
		fclose(f);
	if (n_found != (int)ARRAY_LEN(fields))
		return errmsg_fail(em, ERR_IO, "/proc/self/status does not tell what this process takes: --mem cannot be kept");
	*out = (struct process_memory){
		.anon_bytes = (fields[0].kib + fields[2].kib) * 1024, .file_bytes = fields[1].kib * 1024, .highest_bytes = fields[3].kib * 1024};
	return OK;
}
