// Errors of the second kind: what the world (a file, memory, a peer, config) does to us.
//
// Our own bugs are ASSERT (base/assert.h). A function that can fail returns `enum err` and gives its outputs by trailing
// pointer; one whose failure a person must understand takes `struct errmsg *em` last, which may be NULL.
// Text is lower case without a full stop: what, got, wanted, prefixed on the way up.
#ifndef HEARTH_BASE_ERR_H
#define HEARTH_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt_idx, args_idx) __attribute__((format(printf, fmt_idx, args_idx)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

// X(name, words): the words are what a person reads when no errmsg travelled with the code.
#define ERR_TABLE(X)                                                                                                   \
	X(OK, "no error")                                                                                                  \
	X(ERR_IO, "input or output failed")                                                                                \
	X(ERR_NOMEM, "out of memory")                                                                                      \
	X(ERR_FORMAT, "malformed input")                                                                                   \
	X(ERR_UNSUPPORTED, "not supported")                                                                                \
	X(ERR_LIMIT, "over a limit")                                                                                       \
	X(ERR_RANGE, "value out of range")                                                                                 \
	X(ERR_NOT_FOUND, "not found")                                                                                      \
	X(ERR_EXISTS, "already exists")                                                                                    \
	X(ERR_STATE, "not possible in this state")                                                                         \
	X(ERR_AUTH, "authentication failed")                                                                               \
	X(ERR_CLOSED, "connection closed")                                                                                 \
	X(ERR_TIMEOUT, "timed out")                                                                                        \
	X(ERR_BUSY, "busy")                                                                                                \
	X(ERR_CANCELLED, "cancelled")                                                                                      \
	X(ERR_NON_FINITE, "a value is not finite")                                                                         \
	X(ERR_NODE_LOST, "a node this request needs was lost")                                                             \
	X(ERR_USAGE, "wrong usage")

enum err {
#define X(name, words) name,
	ERR_TABLE(X)
#undef X
};

#define ERRMSG_CAP 512

struct errmsg {
	char text[ERRMSG_CAP]; // NUL-terminated, cut when too long
};

// err_words returns the static text of `e`; a value outside the table gives "unknown error".
const char *err_words(enum err e);

// errmsg_fail writes the message into `em` (when not NULL) and returns `e`: `return errmsg_fail(em, ERR_IO, "...")`.
enum err errmsg_fail(struct errmsg *em, enum err e, const char *fmt, ...) PRINTF_LIKE(3, 4);

// errmsg_prefix puts "<text>: " before what `em` holds and returns `e`.
enum err errmsg_prefix(struct errmsg *em, enum err e, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
