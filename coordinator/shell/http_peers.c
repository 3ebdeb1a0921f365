#include "coordinator/shell/http_peers.h"

#include <stdlib.h>
#include <sys/socket.h>

static void link_last(struct http_peers *l, struct http_peer *p)
{
	p->is_idle = true;
	p->next = NULL;
	p->prev = l->last;
	if (l->last)
		l->last->next = p;
	else
		l->first = p;
	l->last = p;
}

static void unlink_idle(struct http_peers *l, struct http_peer *p)
{
	p->is_idle = false;
	if (p->prev)
		p->prev->next = p->next;
	else
		l->first = p->next;
	if (p->next)
		p->next->prev = p->prev;
	else
		l->last = p->prev;
}

struct http_peer *peers_add(struct http_peers *l, int fd)
{
	struct http_peer *p = calloc(1, sizeof *p);
	l->n++;
	if (p == NULL)
		return NULL;
	p->fd = fd;
	link_last(l, p);
	return p;
}

void peers_remove(struct http_peers *l, struct http_peer *p)
{
	l->n--;
	if (p != NULL && p->is_idle)
		unlink_idle(l, p);
	free(p);
}

void peers_set_idle(struct http_peers *l, struct http_peer *p, bool is_idle)
{
	if (p == NULL || p->is_idle == is_idle)
		return;
	if (is_idle)
		link_last(l, p);
	else
		unlink_idle(l, p);
}

bool peers_evict(struct http_peers *l)
{
	struct http_peer *p = l->first;
	if (p == NULL)
		return false;
	unlink_idle(l, p);
	(void)shutdown(p->fd, SHUT_RDWR); // fails when the client was quicker
	return true;
}
