// Drives everything that reads a GGUF container, and touches every byte range it hands out: what the fuzz target and the sweeps of
// tests/model share. A sanitizer sees what is wrong.
#ifndef HEARTH_TESTS_SUPPORT_GGUF_EXERCISE_H
#define HEARTH_TESTS_SUPPORT_GGUF_EXERCISE_H

#include "base/err.h"

#include <stddef.h>

// gguf_exercise parses data[0..len), reads every key, tensor, string, the hyper-parameters and checks the tensors. Returns what the
// parser said; `em` holds the message of whatever failed first, hyper-parameters and tensors included.
enum err gguf_exercise(const void *data, size_t len, struct errmsg *em);

#endif
