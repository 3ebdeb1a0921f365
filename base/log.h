// Log lines for the person who runs a machine: "12:03:55 warning: node kitchen-pi: link lost (reset), trying again".
//
// A sink is passed to whoever logs; there is no global one. Safe from several threads (one write per line).
// Secrets never reach it: no key, psk, token, prompt or answer.
#ifndef HEARTH_BASE_LOG_H
#define HEARTH_BASE_LOG_H

#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

struct log {
	int fd;               // where lines go, not owned; -1 drops them
	enum log_level level; // lines above it are dropped
};

// log_line writes one line with time of day and level; it is cut at 1,024 bytes, and control characters become '?'.
void log_line(const struct log *log, enum log_level level, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
