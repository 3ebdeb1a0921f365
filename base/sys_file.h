// Small files of /proc and /sys, and what stands in them: how the system describes itself to a program that is not root.
//
// Each reader takes `root`, a directory that stands for "/": "" is this machine, a test gives a tree of its own. A file is read once, up to a
// limit; it is never waited for (a fifo or device in its place is not found). What a file says is taken as a stranger's word: a number that is
// none, or does not fit, is not there. Any thread.
#ifndef HEARTH_BASE_SYS_FILE_H
#define HEARTH_BASE_SYS_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SYS_PATH_CAP 512 // of root and path together
#define SYS_NAME_CAP 64  // an entry of a directory, with its NUL; a longer one is passed over
#define SYS_TEXT_CAP 16384 // enough for /proc/meminfo, and for mountinfo of a machine that is no server of containers

// sys_file_read reads at most cap - 1 bytes (cap >= 1) and ends them with a NUL; a NUL inside becomes '?'. *len may be NULL. ERR_NOT_FOUND: no
// such file, none that can be read, or the path is too long; out is "" then.
MUST_USE enum err sys_file_read(const char *root, const char *path, char *out, size_t cap, size_t *len);
// sys_file_word reads the first word of a file; false, and "", when there is none.
bool sys_file_word(const char *root, const char *path, char *out, size_t cap);
// sys_file_u64 reads a decimal number that stands at the beginning of a file; false, and 0, when there is none.
bool sys_file_u64(const char *root, const char *path, uint64_t *out);
// sys_file_exists: also a directory.
bool sys_file_exists(const char *root, const char *path);
// sys_file_list writes the names in a directory, sorted, without those that begin with a dot; at most `cap`, the rest is left out. 0 when there is none.
size_t sys_file_list(const char *root, const char *path, char (*names)[SYS_NAME_CAP], size_t cap);

// sys_text_u64 reads a decimal number at `at` after spaces and tabs; *end, which may be NULL, is behind it. False when there is none, or it is past 2^64.
bool sys_text_u64(const char *at, uint64_t *out, const char **end);
// sys_text_find returns what follows `key` in the line that begins with it, or NULL.
const char *sys_text_find(const char *text, const char *key);
// sys_text_pressure reads "avg10=1.23" of the line "some" of a file of /proc/pressure, in hundredths of a per cent; -1 when it is not there.
int32_t sys_text_pressure(const char *text);

#endif
