// How work is shared in words: "3:2:1".
#ifndef HEARTH_CLI_SHARE_WORDS_H
#define HEARTH_CLI_SHARE_WORDS_H

#include "base/err.h"
#include "base/limits.h"

#include <stdint.h>

#define SHARE_MAX 1000000

// share_words_parse reads 2 to GROUP_MEMBERS_MAX shares of 0 to SHARE_MAX, not all 0. ERR_FORMAT names `flag`.
MUST_USE enum err share_words_parse(const char *flag, const char *text, uint32_t shares[GROUP_MEMBERS_MAX], int32_t *n, struct errmsg *em);

#endif
