// A machine short of memory on command, for test_give_way.py: preloaded, it gives the file SHORT_MEMORY_PRESSURE for /proc/pressure/memory.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

int open(const char *path, int flags, ...)
{
	int (*next)(const char *, int, mode_t) = (int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, "open");
	const char *instead = getenv("SHORT_MEMORY_PRESSURE");
	va_list args;
	va_start(args, flags);
	mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
	va_end(args);
	return next(instead != NULL && strcmp(path, "/proc/pressure/memory") == 0 ? instead : path, flags, mode);
}
