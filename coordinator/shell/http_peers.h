// The connections of an HTTP server, and which of them are idle: without a request under way, whether new, half a head long, or kept alive.
//
// When they become too many, the one that has been idle longest is closed for each new one. So the queue of the system's listener never
// stands still (a full one loses connections that their clients believe open), and silence keeps nobody out. Thread rule: the server's thread.
#ifndef HEARTH_COORDINATOR_SHELL_HTTP_PEERS_H
#define HEARTH_COORDINATOR_SHELL_HTTP_PEERS_H

#include <stdbool.h>
#include <stdint.h>

struct http_peer {
	int fd; // its socket, not owned
	bool is_idle;
	struct http_peer *next, *prev; // while idle
};

struct http_peers {
	uint32_t n; // connections
	struct http_peer *first, *last; // the idle ones, the longest first
};

// peers_add: a connection came, idle. NULL: no memory; then it is counted all the same, and nothing else is known of it.
struct http_peer *peers_add(struct http_peers *l, int fd);
// peers_remove: it is closed, and *p freed; NULL for one without memory.
void peers_remove(struct http_peers *l, struct http_peer *p);
void peers_set_idle(struct http_peers *l, struct http_peer *p, bool is_idle); // NULL is allowed
// peers_evict shuts the socket of the longest idle one, which its owner then sees closed. False: none is idle.
bool peers_evict(struct http_peers *l);

#endif
