// Raw sockets for tests of net/: what a stranger does who does not use our code. Blocking calls have short time limits.
#ifndef HEARTH_TESTS_SUPPORT_SOCKETS_H
#define HEARTH_TESTS_SUPPORT_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// socket_listen listens on 127.0.0.1 at any free port; *port says which.
int socket_listen(int backlog, uint16_t *port);
// socket_listen_full listens with a queue that is full: *fill is the connection in it, and a further one is neither taken nor refused.
int socket_listen_full(int *fill, uint16_t *port);
// socket_connect connects to 127.0.0.1:port from `from` (127.x.y.z; NULL: any). The connection needs nobody to accept it.
int socket_connect(const char *from, uint16_t port);
void socket_send(int fd, const void *data, size_t len);
// socket_reset closes with RST.
void socket_reset(int fd);
// socket_is_closed: has the other side closed it? Does not block; drops what it reads.
bool socket_is_closed(int fd);
// open_descriptors counts this process's.
int open_descriptors(void);
// resident_kb returns VmRSS.
long resident_kb(void);

#endif
