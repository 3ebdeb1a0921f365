// The state directory: keys, members, the admin socket. Private to one user, in use by one running program.
//
// It is --state, else $XDG_STATE_HOME/hearth, else ~/.local/state/hearth; made with mode 0700. A directory that others own or
// may enter is refused: whoever can write it can replace keys. One thread.
#ifndef HEARTH_CLI_STATE_DIR_H
#define HEARTH_CLI_STATE_DIR_H

#include "base/err.h"

#include <stddef.h>

#define STATE_PATH_CAP 1024
// sun_path of a Unix socket, with its NUL; the admin socket must fit.
#define STATE_SOCKET_CAP 108

struct state_dir {
	int fd;      // the directory, owned; -1: closed
	int lock_fd; // the held lock, owned; -1: not locked
	char path[STATE_PATH_CAP];
};

#define STATE_DIR_CLOSED ((struct state_dir){.fd = -1, .lock_fd = -1})

// state_dir_resolve writes the directory's path without touching it. `flag` is --state or NULL.
MUST_USE enum err state_dir_resolve(const char *flag, char path[STATE_PATH_CAP], struct errmsg *em);
// state_dir_open makes the directory where it is missing, parents too, and checks owner and mode. For status, invite,
// revoke and whoever locks next.
MUST_USE enum err state_dir_open(const char *flag, struct state_dir *sd, struct errmsg *em);
// state_dir_lock makes this process its one user until state_dir_close. ERR_BUSY names the process that has it.
MUST_USE enum err state_dir_lock(struct state_dir *sd, struct errmsg *em);
void state_dir_close(struct state_dir *sd);

// state_dir_path writes "<directory>/<name>"; ERR_LIMIT when it does not fit `cap` (STATE_SOCKET_CAP for a socket).
MUST_USE enum err state_dir_path(const struct state_dir *sd, const char *name, char *path, size_t cap, struct errmsg *em);

#endif
