// A directory that stands for "/", with what a test wants /proc and /sys to say (base/sys_file.h). What fails here aborts.
#ifndef HEARTH_TESTS_SUPPORT_FAKE_TREE_H
#define HEARTH_TESTS_SUPPORT_FAKE_TREE_H

#include <stddef.h>

// fake_tree_put writes `text` to root/path, and makes the directories above it.
void fake_tree_put(const char *root, const char *path, const char *text);
// fake_tree_put_bytes does the same with any bytes.
void fake_tree_put_bytes(const char *root, const char *path, const void *data, size_t len);

#endif
