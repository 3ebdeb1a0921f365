// The control socket of a running relay: a Unix socket of mode 0600; a line in is a command, a line out is its answer (sim/shell/emulate_words.h).
//
// Who may open it may do everything: the mode is the whole access control. A client that sends a longer line than EMULATE_LINE_MAX is told
// so and disconnected. There is room for eight: a ninth takes the place of the one that has been idle longest, so that clients that hang, or do
// not read their answers, keep nobody out.
// The server lives on the relay's poller and thread. The client function blocks.
#ifndef HEARTH_SIM_SHELL_EMULATE_CONTROL_H
#define HEARTH_SIM_SHELL_EMULATE_CONTROL_H

#include "base/err.h"
#include "sim/shell/emulate.h"

struct emulate_control; // from emulate_control_open

// emulate_control_open listens at `path`. A socket file that nobody listens on is replaced. ERR_EXISTS: somebody does, or it is another
// kind of file; ERR_LIMIT: a path longer than a Unix socket's; ERR_IO, ERR_NOMEM.
MUST_USE enum err emulate_control_open(struct emulate_control **out, struct emulate *e, const char *path, struct errmsg *em);
// emulate_control_close removes the file. Before emulate_close. NULL is fine.
void emulate_control_close(struct emulate_control *c);

// emulate_control_ask sends a command to the relay at `path` and returns its answer, which the caller frees. ERR_NOT_FOUND: no relay there;
// ERR_TIMEOUT after ten seconds; ERR_CLOSED, ERR_LIMIT, ERR_IO, ERR_NOMEM.
MUST_USE enum err emulate_control_ask(const char *path, const char *command, char **answer, struct errmsg *em);

#endif
