#include "tests/support/made_model.h"

#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void made_model(const char *dir, const char *shape, const char *type, const char *more, char path[MADE_PATH_CAP])
{
	char command[1024];
	snprintf(path, MADE_PATH_CAP, "%s/made.gguf", dir);
	int n = snprintf(command, sizeof command,
		"python3 tools/make_tiny_model.py %s/vocab.gguf && python3 tools/make_model --vocab-from %s/vocab.gguf --shape %s --type %s %s -o %s 2>&1",
		dir, dir, shape, type, more, path);
	ASSERT(n > 0 && (size_t)n < sizeof command);
	int status = system(command);
	ASSERT(status == 0);
}
