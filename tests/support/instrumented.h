// Whether this build is a sanitizer's that keeps books of memory: its malloc tells nothing of itself, and computing takes many times as long.
#ifndef HEARTH_TESTS_SUPPORT_INSTRUMENTED_H
#define HEARTH_TESTS_SUPPORT_INSTRUMENTED_H

#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_INSTRUMENTED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define IS_INSTRUMENTED true
#endif
#endif
#ifndef IS_INSTRUMENTED
#define IS_INSTRUMENTED false
#endif

#endif
