#include "model/weight_files.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum err weight_files_piece(const struct weight_files *w, uint64_t at, uint64_t bytes, struct weight_piece *piece, struct errmsg *em)
{
	int32_t low = 0, high = w->n_extents; // the last extent that begins at or before `at` is before high
	while (low < high) {
		int32_t mid = low + (high - low) / 2;
		if (w->extents[mid].at <= at)
			low = mid + 1;
		else
			high = mid;
	}
	const struct weight_extent *x = low > 0 ? &w->extents[low - 1] : NULL;
	if (x == NULL || at - x->at >= x->bytes)
		return errmsg_fail(em, ERR_NOT_FOUND, "byte %" PRIu64 " of the model is not on this machine", at);
	uint64_t left = x->bytes - (at - x->at);
	*piece = (struct weight_piece){.file = x->file, .offset = x->offset + (at - x->at), .bytes = bytes < left ? bytes : left};
	return OK;
}

static enum err read_piece(const struct weight_file *f, const struct weight_piece *p, uint8_t *out, struct errmsg *em)
{
	for (uint64_t done = 0; done < p->bytes;) {
		ssize_t n = pread(f->fd, out + done, p->bytes - done, (off_t)(p->offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errmsg_fail(em, ERR_IO, "%s: cannot read at offset %" PRIu64 ": %s", f->path, p->offset + done, strerror(errno));
		if (n == 0)
			return errmsg_fail(em, ERR_IO, "%s: ends at offset %" PRIu64 ", where weights should be", f->path, p->offset + done);
		done += (uint64_t)n;
	}
	return OK;
}

enum err weight_files_read(const struct weight_files *w, uint64_t at, uint64_t bytes, void *out, struct errmsg *em)
{
	uint8_t *to = out;
	while (bytes > 0) {
		struct weight_piece p;
		enum err e = weight_files_piece(w, at, bytes, &p, em);
		if (e == OK)
			e = read_piece(&w->files[p.file], &p, to, em);
		if (e != OK)
			return e;
		to += p.bytes;
		at += p.bytes;
		bytes -= p.bytes;
	}
	return OK;
}
