#include "cli/hash_progress.h"

#include <stdio.h>
#include <unistd.h>

static bool show(void *ctx, uint64_t done, uint64_t total)
{
	int *last = ctx;
	int percent = total > 0 ? (int)(done * 100 / total) : 100;
	if (percent == *last || !isatty(STDERR_FILENO))
		return true;
	*last = percent;
	fprintf(stderr, "\rreading the model once to know it by its hash: %d %%%s", percent, percent == 100 ? "\n" : "");
	return true;
}

enum err hash_with_progress(const char *path, const char *cache_path, uint8_t out[FILE_HASH_BYTES], struct errmsg *em)
{
	int last = -1;
	return file_hash_cached(path, cache_path, show, &last, out, em);
}
