// One byte stream over NNG's nng_stream (TCP, or a Unix socket), its events brought to the loop's thread.
//
// NNG's callbacks run on NNG's threads and do one thing: queue a task of the loop. A stream, its aios and its socket
// are therefore closed and freed only on the loop's thread, never inside a callback of theirs.
// Reading is asked for, one piece at a time, into the caller's memory; writing is a queue of chunks, bounded in bytes and
// number, that keeps partial sends to itself. No chunk is copied. The stream knows nothing of what the bytes mean.
//
// Ownership: the caller keeps struct stream in place from stream_connect or stream_adopt until stream_close. stream_close may be
// called from inside any of the stream's events, and `s` may be freed right after it: the stream touches nothing then.
// Thread rule: the loop's thread only.
#ifndef HEARTH_NET_STREAM_H
#define HEARTH_NET_STREAM_H

#include "base/err.h"
#include "net/loop.h"

#include <nng/nng.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// X(name, words): why a stream ended.
#define STREAM_END_TABLE(X) \
	X(STREAM_EOF, "the other side closed the connection") \
	X(STREAM_RESET, "the connection was reset") \
	X(STREAM_REFUSED, "connection refused") \
	X(STREAM_UNREACHABLE, "no route to that address") \
	X(STREAM_NO_ADDR, "no such address") \
	X(STREAM_TIMEOUT, "timed out") \
	X(STREAM_FAILED, "connection failed")

enum stream_end {
#define X(name, words) name,
	STREAM_END_TABLE(X)
#undef X
};

const char *stream_end_words(enum stream_end e);

// Who is at the other end, for limits per address and for log lines.
struct stream_peer {
	uint8_t addr[16]; // IPv6, or IPv4 mapped into it (::ffff:a.b.c.d); zero for a Unix socket
	uint16_t port;
	bool is_ip;
};

#define STREAM_PEER_TEXT 64
// stream_peer_text writes "192.168.1.7:41234", "[fe80::1]:41234" or "local", with its NUL.
void stream_peer_text(const struct stream_peer *p, char out[STREAM_PEER_TEXT]);

// stream_peer_of looks at a connection that was accepted; one that is already reset gives an unknown peer (is_ip false).
struct stream_peer stream_peer_of(nng_stream *conn);

struct stream;

// One of these is the last event of a stream: on_end. After it only stream_close may be called.
struct stream_events {
	void (*on_connected)(void *ctx);                // stream_connect succeeded
	void (*on_read)(void *ctx, size_t n);           // n >= 1 bytes arrived where stream_read said
	void (*on_written)(void *ctx);                  // the queue is empty: every byte of it is in the kernel
	void (*on_end)(void *ctx, enum stream_end why); // at most once, never from inside a call of this module
};

struct stream_chunk {
	struct stream_chunk *next;
	uint8_t *data;
	size_t len;
	size_t done;      // bytes already sent
	bool is_borrowed; // data and the chunk are the caller's, valid until on_written; else both are freed when sent
};

struct stream {
	struct loop *loop;
	const struct stream_events *events;
	void *ctx;
	nng_stream_dialer *dialer; // NULL unless connecting
	struct stream_grave *grave; // where the dialer goes; NULL unless connecting
	int n_redials;
	nng_stream *conn;
	nng_aio *dial_aio, *read_aio, *write_aio;
	struct loop_task dial_task, read_task, write_task;
	struct loop_timer dial_timer;
	struct stream_chunk *head, **tail; // chunks not wholly sent
	size_t queued_bytes;               // not yet sent
	uint32_t queued_chunks;
	size_t queued_bytes_max;
	uint32_t queued_chunks_max;
	bool is_reading, is_writing, has_ended;
	struct stream_peer peer;
};

struct stream_limits {
	size_t queued_bytes_max; // a chunk is taken when the queue is below this
	uint32_t queued_chunks_max;
};

// stream_connect dials `url` ("tcp://host:port", tcp4 and tcp6 to insist on a family, "ipc:///path"); names are looked up in the background.
// `from`, an IPv4 or IPv6 address of this machine, is where the connection comes from; NULL or "": the kernel chooses.
// on_connected or on_end follows; the deadline is absolute. ERR_FORMAT: no such URL, or no such address.
MUST_USE enum err stream_connect(struct stream *s, struct loop *loop, const char *url, const char *from, int64_t deadline_ns,
	const struct stream_limits *limits, const struct stream_events *events, void *ctx, struct errmsg *em);

// stream_adopt takes over a connection that a stream_listener accepted; on failure the connection is freed.
MUST_USE enum err stream_adopt(struct stream *s, struct loop *loop, nng_stream *conn, const struct stream_limits *limits,
	const struct stream_events *events, void *ctx);

// stream_read asks for 1 to `len` bytes into `buf`, which stays the stream's until on_read, or until stream_close. One at a time.
void stream_read(struct stream *s, uint8_t *buf, size_t len);

// stream_chunk_new returns a chunk of `len` bytes to be filled and given to stream_push. ERR_LIMIT: the queue is full
// (stream_is_full); ERR_NOMEM. stream_chunk_free is for one that is not pushed.
MUST_USE enum err stream_chunk_new(struct stream *s, size_t len, struct stream_chunk **out);
void stream_chunk_free(struct stream_chunk *c);
// stream_push queues `c`, own or borrowed, and starts sending. After on_end it is dropped.
void stream_push(struct stream *s, struct stream_chunk *c);
bool stream_is_full(const struct stream *s);

// stream_close ends everything at once: no event follows, the other side sees an end of stream. What was queued and is not yet
// in the kernel is lost. Safe on zeroed memory, and twice.
void stream_close(struct stream *s);

// A listening socket. Accepted connections come one at a time.
struct stream_listener {
	struct loop *loop;
	void (*on_accept)(void *ctx, nng_stream *conn); // conn is the callee's: stream_adopt it, or nng_stream_free
	void *ctx;
	nng_stream_listener *listener;
	nng_aio *aio;
	struct loop_task task;
	struct loop_timer retry; // after a failure to accept (no descriptors left): not at once
	bool *gone;
	uint16_t port; // bound; 0 for a Unix socket
	uint64_t n_failed;
};

// stream_listen listens on `url`: "tcp://0.0.0.0:7433" (port 0: any free one, see ->port), "ipc:///path" (mode 0600; a path without
// a living listener is taken over). ERR_EXISTS: somebody listens there; ERR_FORMAT, ERR_IO.
MUST_USE enum err stream_listen(struct stream_listener *l, struct loop *loop, const char *url,
	void (*on_accept)(void *ctx, nng_stream *conn), void *ctx, struct errmsg *em);
// stream_listener_close: safe on zeroed memory, and from inside on_accept.
void stream_listener_close(struct stream_listener *l);

#endif
