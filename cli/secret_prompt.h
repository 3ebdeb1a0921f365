// Reading an invite without showing it: from --invite-file, from standard input (`hearth join -`), or from a prompt without echo.
#ifndef HEARTH_CLI_SECRET_PROMPT_H
#define HEARTH_CLI_SECRET_PROMPT_H

#include "base/err.h"
#include "cli/options.h"
#include "proto/invite.h"

// secret_prompt_invite reads and parses one. ERR_NOT_FOUND when there is no terminal to ask at, and no other source; ERR_CANCELLED: the
// interrupt key; ERR_LIMIT, ERR_FORMAT, ERR_UNSUPPORTED: it is none. No message quotes what was read.
MUST_USE enum err secret_prompt_invite(const struct options *o, struct invite *out, struct errmsg *em);

#endif
