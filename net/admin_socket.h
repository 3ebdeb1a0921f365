// The admin socket: STATE/admin.sock, mode 0600, through which the command line speaks to a running coordinator.
//
// Framing only: a request is one line (JSON, by agreement), an answer is any number of lines; the last one is for the caller to recognise.
// Lines end in '\n' and have at most ADMIN_LINE_MAX bytes before it. A client that sends a longer one, or does not read what it
// asked for, is disconnected. Who may open the socket may do everything: the file's mode is the whole access control.
// A lock file beside the socket (kept for the life of the server) says whether a process is alive; a socket file left by a
// dead one is replaced.
//
// The server belongs to the loop's thread. The client functions block and need no loop.
#ifndef HEARTH_NET_ADMIN_SOCKET_H
#define HEARTH_NET_ADMIN_SOCKET_H

#include "base/err.h"
#include "net/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADMIN_LINE_MAX (1024 * 1024) // a status of 64 nodes is 30 KB; a hundredfold margin
#define ADMIN_CLIENTS_MAX 16         // at once: status displays that stay open, and one command
#define ADMIN_SOCKET_NAME "admin.sock"

struct admin_server; // from admin_server_open
struct admin_client; // one connection to it; valid from on_line until on_gone

struct admin_callbacks {
	void *ctx;
	// on_line: a request, without its '\n', NUL-terminated; may hold NULs itself: len counts. Valid during the call.
	void (*on_line)(void *ctx, struct admin_client *c, const char *line, size_t len);
	// on_gone: the client left or was disconnected; the pointer is dead afterwards. Called for each client that has sent a line. May be NULL.
	void (*on_gone)(void *ctx, struct admin_client *c);
};

// admin_server_open listens at STATE_DIR/admin.sock. ERR_EXISTS: a process serves this directory already; ERR_LIMIT: the path is longer than
// a Unix socket's may be; ERR_IO.
MUST_USE enum err admin_server_open(struct admin_server **out, struct loop *loop, const char *state_dir,
	const struct admin_callbacks *callbacks, struct errmsg *em);
// admin_server_close disconnects everybody (no on_gone), removes the socket file. NULL is fine.
void admin_server_close(struct admin_server *s);
uint32_t admin_server_n_clients(const struct admin_server *s);

// admin_send queues one line; '\n' is added, and `line` must hold none. ERR_LIMIT: longer than ADMIN_LINE_MAX; ERR_CLOSED: the client does not
// read (it is being disconnected: on_gone follows) or is gone.
MUST_USE enum err admin_send(struct admin_client *c, const char *line, size_t len);
// admin_finish disconnects after what is queued has been sent: for the end of an answer. on_gone follows.
void admin_finish(struct admin_client *c);
void admin_set_user(struct admin_client *c, void *user);
void *admin_user(const struct admin_client *c);

// The command line's side.
struct admin_conn {
	int fd;
	char *buf; // (ADMIN_LINE_MAX + 1), owned
	size_t used, line_len;
};

// admin_connect. ERR_NOT_FOUND: nobody serves this state directory (the message tells what to do); ERR_LIMIT: path too long; ERR_IO.
MUST_USE enum err admin_connect(struct admin_conn *c, const char *state_dir, struct errmsg *em);
MUST_USE enum err admin_write_line(struct admin_conn *c, const char *line, struct errmsg *em);
// admin_read_line blocks for the next line, NUL-terminated, valid until the next call. ERR_CLOSED: the coordinator ended the connection;
// ERR_TIMEOUT after timeout_ms without a whole line (-1: never).
MUST_USE enum err admin_read_line(struct admin_conn *c, int timeout_ms, const char **line, size_t *len, struct errmsg *em);
void admin_disconnect(struct admin_conn *c);

#endif
