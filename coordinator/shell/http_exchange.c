#include "coordinator/shell/http_exchange.h"

#include "base/assert.h"
#include "net/loop.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct http_exchange *exchange_new(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct http_exchange *x = info ? calloc(1, sizeof *x) : NULL;
	if (x == NULL)
		return NULL;
	pthread_mutex_init(&x->mutex, NULL);
	x->n_holds = 1;
	x->connection = c;
	x->fd = info->connect_fd;
	x->began_ns = loop_clock_ns();
	return x;
}

void http_hold(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	x->n_holds++;
	pthread_mutex_unlock(&x->mutex);
}

void http_release(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	bool is_last = --x->n_holds == 0;
	pthread_mutex_unlock(&x->mutex);
	if (!is_last)
		return;
	ASSERT(x->connection == NULL); // the server lets go of it last, or after the connection
	pthread_mutex_destroy(&x->mutex);
	free(x->body);
	free(x->out);
	free(x->in);
	free(x);
}

static void suspend(struct http_exchange *x)
{
	MHD_suspend_connection(x->connection);
	x->is_suspended = true;
}

static void resume(struct http_exchange *x)
{
	if (!x->is_suspended)
		return;
	x->is_suspended = false;
	MHD_resume_connection(x->connection);
}

enum exchange_state exchange_take(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	enum exchange_state state = x->state;
	if (state == EXCHANGE_WAITING)
		suspend(x);
	pthread_mutex_unlock(&x->mutex);
	return state;
}

void exchange_over(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	x->connection = NULL;
	x->is_suspended = false;
	pthread_mutex_unlock(&x->mutex);
}

// ---- one answer

void http_set_request_id(struct http_exchange *x, const char *id)
{
	pthread_mutex_lock(&x->mutex);
	if (x->state == EXCHANGE_WAITING)
		snprintf(x->request_id, sizeof x->request_id, "%s", id);
	pthread_mutex_unlock(&x->mutex);
}

void http_reply(struct http_exchange *x, int status, char *body, const char *allow)
{
	pthread_mutex_lock(&x->mutex);
	if (x->state == EXCHANGE_WAITING && x->connection != NULL) {
		x->state = EXCHANGE_REPLIED;
		x->status = body ? status : MHD_HTTP_INTERNAL_SERVER_ERROR;
		x->body = body;
		x->allow = allow;
		body = NULL;
		resume(x);
	}
	pthread_mutex_unlock(&x->mutex);
	free(body);
}

char *exchange_take_body(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	char *body = x->body;
	x->body = NULL;
	pthread_mutex_unlock(&x->mutex);
	return body;
}

// ---- a stream

void http_stream_begin(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	if (x->state == EXCHANGE_WAITING && x->connection != NULL) {
		x->state = EXCHANGE_STREAMING;
		resume(x);
	}
	pthread_mutex_unlock(&x->mutex);
}

// append makes room and copies; the caller has the mutex.
static bool append(struct http_exchange *x, const char *text, size_t len)
{
	if (len == 0)
		return true; // of a stream that is read again from its last event on: there may be no buffer yet
	if (x->out_begin > 0 && x->out_len > 0)
		memmove(x->out, x->out + x->out_begin, x->out_len);
	x->out_begin = 0;
	if (x->out_len + len > x->out_cap) {
		size_t cap = x->out_cap ? x->out_cap : 1024;
		while (cap < x->out_len + len)
			cap *= 2;
		char *out = realloc(x->out, cap);
		if (out == NULL)
			return false;
		x->out = out;
		x->out_cap = cap;
	}
	memcpy(x->out + x->out_len, text, len);
	x->out_len += len;
	return true;
}

bool http_stream_push(struct http_exchange *x, const char *text, size_t len)
{
	bool ok = true;
	pthread_mutex_lock(&x->mutex);
	if (x->state == EXCHANGE_STREAMING && x->connection != NULL && !x->is_ended && len > 0) {
		ok = x->out_len + len <= HTTP_STREAM_BACKLOG_MAX && append(x, text, len);
		if (ok)
			resume(x);
	}
	pthread_mutex_unlock(&x->mutex);
	return ok;
}

void http_stream_end(struct http_exchange *x, const char *last)
{
	pthread_mutex_lock(&x->mutex);
	if (x->state == EXCHANGE_STREAMING && x->connection != NULL && !x->is_ended) {
		if (last != NULL && !append(x, last, strlen(last)))
			x->state = EXCHANGE_ABORTED; // without its end it must not look whole
		x->is_ended = true;
		resume(x);
	}
	pthread_mutex_unlock(&x->mutex);
}

ssize_t exchange_read(void *ctx, uint64_t pos, char *buf, size_t max)
{
	struct http_exchange *x = ctx;
	ssize_t n = 0;
	(void)pos;
	pthread_mutex_lock(&x->mutex);
	if (x->state == EXCHANGE_ABORTED) {
		n = MHD_CONTENT_READER_END_WITH_ERROR;
	} else if (x->out_len > 0) {
		size_t part = x->out_len < max ? x->out_len : max;
		memcpy(buf, x->out + x->out_begin, part);
		x->out_begin += part;
		x->out_len -= part;
		n = (ssize_t)part;
	} else if (x->is_ended) {
		n = MHD_CONTENT_READER_END_OF_STREAM;
	} else {
		suspend(x);
	}
	pthread_mutex_unlock(&x->mutex);
	return n;
}

// ---- the client

size_t http_backlog(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	size_t n = x->out_len;
	pthread_mutex_unlock(&x->mutex);
	return n;
}

bool http_is_idle(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	bool is_idle = x->connection == NULL || (x->out_len == 0 && (x->state != EXCHANGE_REPLIED || x->body == NULL));
	pthread_mutex_unlock(&x->mutex);
	return is_idle;
}

bool http_is_gone(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	struct pollfd p = {.fd = x->fd, .events = POLLRDHUP};
	bool is_gone = x->connection == NULL || (poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0);
	pthread_mutex_unlock(&x->mutex);
	return is_gone;
}

void http_abort(struct http_exchange *x)
{
	pthread_mutex_lock(&x->mutex);
	if (x->connection != NULL) {
		x->state = EXCHANGE_ABORTED;
		resume(x);
	}
	pthread_mutex_unlock(&x->mutex);
}
