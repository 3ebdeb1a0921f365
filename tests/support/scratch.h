// A directory of a test's own, and whole files in it. What fails here is the machine's fault, not the tested code's: it aborts, except in
// scratch_open() and scratch_remove(), whose results a fixture can return.
#ifndef HEARTH_TESTS_SUPPORT_SCRATCH_H
#define HEARTH_TESTS_SUPPORT_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCRATCH_CAP 64

// scratch_open makes an empty directory that only this user can enter, and writes its path.
bool scratch_open(char dir[SCRATCH_CAP]);
// scratch_remove removes the directory with all that is in it; it follows no symbolic link. 0, or -1.
int scratch_remove(const char *dir);
// scratch_write makes a new file, of mode 0600, in place of what had the name.
void scratch_write(const char *path, const void *data, size_t len);
// scratch_read returns a file's bytes, which the caller frees.
uint8_t *scratch_read(const char *path, size_t *len);

#endif
