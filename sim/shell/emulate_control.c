#include "sim/shell/emulate_control.h"

#include "base/assert.h"
#include "sim/shell/emulate_words.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS_MAX 8
#define ANSWER_MAX (4u << 20)       // a status of 64 devices with traffic between all is 1 MB
#define ASK_TIMEOUT_MS 10000

struct client {
	struct emulate_control *control;
	struct watch watch; // fd -1: free
	char line[EMULATE_LINE_MAX + 2];
	size_t len;
	char *answer; // being written, owned; NULL: none
	size_t answer_len, answer_done;
	bool is_last; // disconnect after this answer
	uint64_t last_use; // of the control's counter: when it was accepted, sent or read something last
};

struct emulate_control {
	struct emulate *e;
	struct watch watch;
	struct client clients[CLIENTS_MAX];
	uint64_t n_uses;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

static void drop(struct client *c)
{
	poller_forget(emulate_poller(c->control->e), &c->watch);
	close(c->watch.fd);
	free(c->answer);
	c->answer = NULL;
	c->watch.fd = -1;
}

static void want(struct client *c)
{
	if (poller_want(emulate_poller(c->control->e), &c->watch, c->answer ? EPOLLOUT : EPOLLIN) != OK)
		drop(c);
}

// write_answer returns false when the client is gone.
static bool write_answer(struct client *c)
{
	while (c->answer_done < c->answer_len) {
		ssize_t n = send(c->watch.fd, c->answer + c->answer_done, c->answer_len - c->answer_done, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0) {
			drop(c);
			return false;
		}
		c->answer_done += (size_t)n;
	}
	free(c->answer);
	c->answer = NULL;
	if (c->is_last)
		drop(c);
	return !c->is_last;
}

static bool answer(struct client *c, const char *line, size_t len)
{
	ASSERT(c->answer == NULL);
	c->answer = emulate_words_do(c->control->e, line, len);
	size_t n = c->answer ? strlen(c->answer) : 0;
	char *with_end = c->answer ? realloc(c->answer, n + 2) : NULL;
	if (with_end == NULL) {
		drop(c);
		return false;
	}
	memcpy(with_end + n, "\n", 2);
	c->answer = with_end;
	c->answer_len = n + 1;
	c->answer_done = 0;
	return write_answer(c);
}

// do_lines carries out whole lines until one answer does not go out at once.
static void do_lines(struct client *c)
{
	char *end;
	while (c->answer == NULL && (end = memchr(c->line, '\n', c->len)) != NULL) {
		char line[sizeof c->line];
		size_t n = (size_t)(end - c->line);
		memcpy(line, c->line, n);
		c->len -= n + 1;
		memmove(c->line, end + 1, c->len);
		if (!answer(c, line, n))
			return;
	}
	if (c->answer == NULL && c->len > EMULATE_LINE_MAX) {
		c->is_last = true;
		if (!answer(c, c->line, c->len))
			return;
	}
	want(c);
}

static void on_client(void *ctx, uint32_t events)
{
	struct client *c = ctx;
	c->last_use = ++c->control->n_uses;
	if (c->answer != NULL) {
		if (write_answer(c))
			do_lines(c);
		return;
	}
	(void)events;
	ssize_t n = recv(c->watch.fd, c->line + c->len, sizeof c->line - c->len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop(c);
		return;
	}
	c->len += (size_t)n;
	do_lines(c);
}

// place returns one that is free, made so by dropping the client that has been idle longest when none is.
static struct client *place(struct emulate_control *control)
{
	struct client *idlest = &control->clients[0];
	for (int i = 0; i < CLIENTS_MAX; i++) {
		struct client *c = &control->clients[i];
		if (c->watch.fd < 0)
			return c;
		idlest = c->last_use < idlest->last_use ? c : idlest;
	}
	drop(idlest);
	return idlest;
}

static void on_accept(void *ctx, uint32_t events)
{
	struct emulate_control *control = ctx;
	(void)events;
	int fd = accept4(control->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	struct client *c = place(control);
	*c = (struct client){.control = control, .last_use = ++control->n_uses};
	poller_watch_init(&c->watch, fd, on_client, c);
	want(c);
}

static enum err fill_address(struct sockaddr_un *sa, const char *path, struct errmsg *em)
{
	*sa = (struct sockaddr_un){.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof sa->sun_path)
		return errmsg_fail(em, ERR_LIMIT, "%.200s: a path of %zu bytes, a socket's may have %zu", path, strlen(path), sizeof sa->sun_path - 1);
	memcpy(sa->sun_path, path, strlen(path) + 1);
	return OK;
}

// remove_dead takes away a socket file without a listener.
static enum err remove_dead(const struct sockaddr_un *sa, struct errmsg *em)
{
	struct stat st;
	if (lstat(sa->sun_path, &st) != 0)
		return OK;
	if (!S_ISSOCK(st.st_mode))
		return errmsg_fail(em, ERR_EXISTS, "%.100s: there is a file of that name", sa->sun_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool is_alive = fd >= 0 && connect(fd, (const struct sockaddr *)sa, sizeof *sa) == 0;
	if (fd >= 0)
		close(fd);
	if (is_alive)
		return errmsg_fail(em, ERR_EXISTS, "%.100s: a relay listens there", sa->sun_path);
	return unlink(sa->sun_path) == 0 ? OK : errmsg_fail(em, ERR_IO, "%.100s: cannot replace it: %s", sa->sun_path, strerror(errno));
}

static enum err listen_at(struct emulate_control *c, const struct sockaddr_un *sa, struct errmsg *em)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	poller_watch_init(&c->watch, fd, on_accept, c);
	mode_t old = umask(0177); // the file is never open to others, not even for a moment
	bool ok = fd >= 0 && bind(fd, (const struct sockaddr *)sa, sizeof *sa) == 0;
	umask(old);
	if (ok)
		memcpy(c->path, sa->sun_path, sizeof c->path); // removed from now on
	if (ok && listen(fd, CLIENTS_MAX) == 0 && poller_want(emulate_poller(c->e), &c->watch, EPOLLIN) == OK)
		return OK;
	return errmsg_fail(em, ERR_IO, "%.100s: cannot listen: %s", sa->sun_path, strerror(errno));
}

enum err emulate_control_open(struct emulate_control **out, struct emulate *e, const char *path, struct errmsg *em)
{
	struct sockaddr_un sa;
	*out = NULL;
	enum err err = fill_address(&sa, path, em);
	if (err == OK)
		err = remove_dead(&sa, em);
	if (err != OK)
		return err;
	struct emulate_control *c = calloc(1, sizeof *c);
	if (c == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the control socket");
	c->e = e;
	for (int i = 0; i < CLIENTS_MAX; i++)
		c->clients[i].watch.fd = -1;
	err = listen_at(c, &sa, em);
	if (err != OK) {
		emulate_control_close(c);
		return err;
	}
	*out = c;
	return OK;
}

void emulate_control_close(struct emulate_control *c)
{
	if (c == NULL)
		return;
	for (int i = 0; i < CLIENTS_MAX; i++)
		if (c->clients[i].watch.fd >= 0)
			drop(&c->clients[i]);
	poller_forget(emulate_poller(c->e), &c->watch);
	if (c->watch.fd >= 0)
		close(c->watch.fd);
	if (c->path[0])
		unlink(c->path);
	free(c);
}

// ---- The client

static enum err read_answer(int fd, char **answer, struct errmsg *em)
{
	size_t len = 0, cap = 0;
	for (;;) {
		if (len == cap) {
			cap = cap ? 2 * cap : 16 * 1024;
			char *bigger = cap <= ANSWER_MAX ? realloc(*answer, cap) : NULL;
			if (bigger == NULL)
				return errmsg_fail(em, ERR_LIMIT, "an answer of more than %zu bytes", len);
			*answer = bigger;
		}
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (poll(&p, 1, ASK_TIMEOUT_MS) == 0)
			return errmsg_fail(em, ERR_TIMEOUT, "the relay does not answer");
		ssize_t n = recv(fd, *answer + len, cap - len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return errmsg_fail(em, ERR_CLOSED, "the relay ended the connection");
		len += (size_t)n;
		if ((*answer)[len - 1] == '\n') {
			(*answer)[len - 1] = '\0';
			return OK;
		}
	}
}

enum err emulate_control_ask(const char *path, const char *command, char **answer, struct errmsg *em)
{
	struct sockaddr_un sa;
	char line[EMULATE_LINE_MAX + 2];
	*answer = NULL;
	enum err e = fill_address(&sa, path, em);
	if (e != OK)
		return e;
	if (strlen(command) > EMULATE_LINE_MAX || strchr(command, '\n') != NULL)
		return errmsg_fail(em, ERR_LIMIT, "a command is one line of at most %d bytes", EMULATE_LINE_MAX);
	int n = snprintf(line, sizeof line, "%s\n", command);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&sa, sizeof sa) != 0)
		e = errmsg_fail(em, ERR_NOT_FOUND, "%.100s: no relay listens there: %s", path, strerror(errno));
	else if (send(fd, line, (size_t)n, MSG_NOSIGNAL) != n)
		e = errmsg_fail(em, ERR_CLOSED, "%.100s: %s", path, strerror(errno));
	else
		e = read_answer(fd, answer, em);
	if (fd >= 0)
		close(fd);
	if (e != OK) {
		free(*answer);
		*answer = NULL;
	}
	return e;
}
