#include "tests/support/sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	abort();
}

static struct sockaddr_in loopback(const char *addr, uint16_t port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port)};
	if (inet_pton(AF_INET, addr, &sa.sin_addr) != 1)
		die(addr);
	return sa;
}

int socket_listen(int backlog, uint16_t *port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in sa = loopback("127.0.0.1", 0);
	socklen_t len = sizeof sa;
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) != 0 || listen(fd, backlog) != 0 ||
		getsockname(fd, (struct sockaddr *)&sa, &len) != 0)
		die("socket_listen");
	*port = ntohs(sa.sin_port);
	return fd;
}

int socket_connect(const char *from, uint16_t port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die("socket");
	if (from != NULL) {
		struct sockaddr_in self = loopback(from, 0);
		if (bind(fd, (struct sockaddr *)&self, sizeof self) != 0)
			die("bind");
	}
	struct sockaddr_in sa = loopback("127.0.0.1", port);
	if (connect(fd, (struct sockaddr *)&sa, sizeof sa) != 0)
		die("connect");
	return fd;
}

int socket_listen_full(int *fill, uint16_t *port)
{
	int fd = socket_listen(0, port);
	*fill = socket_connect(NULL, *port);
	struct pollfd queued = {.fd = fd, .events = POLLIN}; // connect returns before the listener has seen the last packet of the handshake
	if (poll(&queued, 1, 20000) != 1)
		die("socket_listen_full");
	return fd;
}

void socket_send(int fd, const void *data, size_t len)
{
	// A peer that closed meanwhile is what many tests are about: not an error here.
	ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
	(void)n;
}

void socket_reset(int fd)
{
	struct linger hard = {.l_onoff = 1, .l_linger = 0};
	if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard) != 0)
		die("linger");
	close(fd);
}

bool socket_is_closed(int fd)
{
	char buf[4096];
	ssize_t n;
	do
		n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
	while (n > 0);
	return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

int open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	if (d == NULL)
		die("/proc/self/fd");
	int n = 0;
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

long resident_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	if (f == NULL)
		die("/proc/self/status");
	char line[256];
	long kb = 0;
	while (fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "VmRSS: %ld", &kb) == 1)
			break;
	fclose(f);
	return kb;
}
