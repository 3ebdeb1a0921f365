#include "tests/support/fake_tree.h"

#include "tests/support/scratch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_CAP 512

void fake_tree_put_bytes(const char *root, const char *path, const void *data, size_t len)
{
	char full[PATH_CAP];
	int n = snprintf(full, sizeof full, "%s%s", root, path);
	if (n < 0 || n >= (int)sizeof full)
		abort();
	char *last = strrchr(full, '/');
	*last = '\0';
	bool is_there = access(full, F_OK) == 0;
	*last = '/';
	for (char *slash = full + strlen(root) + 1; !is_there && (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		if (mkdir(full, 0700) != 0 && errno != EEXIST)
			abort();
		*slash = '/';
	}
	scratch_write(full, data, len);
}

void fake_tree_put(const char *root, const char *path, const char *text)
{
	fake_tree_put_bytes(root, path, text, strlen(text));
}
