#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void assert_fail(const char *what, const char *file, int line)
{
	fprintf(stderr, "hearth: internal error: %s:%d: %s\n", file, line, what);
	abort();
}
