// The way through the page cache.
#include "engine/weight_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 // Linux 5.14; older headers do not name it
#endif

#define LOOK_BYTES (64 * 1024) // read at once when looking for the place of a failure

static struct weight_piece first_piece(const struct weight_reader *r, const struct unit_part *part)
{
	struct weight_piece p = {0};
	enum err e = weight_files_piece(r->files, part->at, part->bytes, &p, NULL);
	return e == OK ? p : (struct weight_piece){.file = -1};
}

static void begin(struct weight_reader *r, const struct unit *u, struct weight_place *p)
{
	for (int32_t i = 0; i < u->n_parts; i++) {
		if (u->parts[i].bytes == 0 || p->in_map) // what is read so lies in small pages
			continue;
		struct weight_piece piece = first_piece(r, &u->parts[i]);
		if (piece.file >= 0) // the kernel begins to read and does not wait
			(void)posix_fadvise(r->files->files[piece.file].fd, (off_t)piece.offset, (off_t)piece.bytes, POSIX_FADV_WILLNEED);
	}
}

// explain finds what cannot be read: populating only says that something in the range cannot.
static enum err explain(const struct weight_reader *r, const struct unit_part *part, int code, struct errmsg *em)
{
	static const char *const hint = "populating its mapping failed";
	uint8_t *bytes = malloc(LOOK_BYTES);
	enum err e = OK;
	for (uint64_t at = 0; bytes != NULL && at < part->bytes && e == OK; at += LOOK_BYTES) {
		uint64_t left = part->bytes - at;
		e = weight_files_read(r->files, part->at + at, left < LOOK_BYTES ? left : LOOK_BYTES, bytes, em);
	}
	free(bytes);
	if (e != OK)
		return e;
	struct weight_piece piece = first_piece(r, part);
	return errmsg_fail(em, code == ENOMEM ? ERR_NOMEM : ERR_IO, "%s: %s at offset %" PRIu64 ": %s",
		piece.file >= 0 ? r->files->files[piece.file].path : "?", hint, piece.offset, strerror(code));
}

// drop_part lets go of a part: unmapping takes its pages from this process at once, whatever the kernel does next. Then the page cache is told, which
// leaves pages alone that another process maps. Whether it dropped them is not looked up (mincore): nothing would be done otherwise. The other
// way, MADV_PAGEOUT, does nothing for a file that is not ours to write, and a page that stayed is one that another process pays for, or that
// the kernel takes when it needs it, as it is clean.
static void drop_part(struct weight_reader *r, const struct unit_part *part, struct weight_place *p, int32_t i)
{
	if (p->maps[i] == NULL)
		return;
	if (p->in_map) {
		(void)munlock(p->maps[i], p->map_bytes[i]);
		(void)madvise(p->maps[i], p->map_bytes[i], MADV_DONTNEED);
	} else {
		munmap(p->maps[i], p->map_bytes[i]);
	}
	struct weight_piece piece = first_piece(r, part);
	if (piece.file >= 0)
		(void)posix_fadvise(r->files->files[piece.file].fd, (off_t)piece.offset, (off_t)piece.bytes, POSIX_FADV_DONTNEED);
	p->maps[i] = NULL;
	p->views[i] = NULL;
}

static void drop(struct weight_reader *r, const struct unit *u, struct weight_place *p)
{
	for (int32_t i = 0; i < u->n_parts; i++)
		drop_part(r, &u->parts[i], p, i);
}

static enum err finish_part(struct weight_reader *r, const struct unit_part *part, struct weight_place *p, int32_t i, struct errmsg *em)
{
	struct weight_piece piece;
	enum err e = weight_files_piece(r->files, part->at, part->bytes, &piece, em);
	if (e != OK)
		return e;
	uint64_t skip = piece.offset % WEIGHT_PAGE;
	size_t len = (size_t)(skip + piece.bytes + WEIGHT_PAGE - 1) & ~(size_t)(WEIGHT_PAGE - 1);
	const struct weight_file *f = &r->files->files[piece.file];
	void *map = p->in_map ? (void *)((uintptr_t)(r->files->map + part->at) - skip) : mmap(NULL, len, PROT_READ, MAP_SHARED, f->fd, (off_t)(piece.offset - skip));
	if (map == MAP_FAILED)
		return errmsg_fail(em, errno == ENOMEM ? ERR_NOMEM : ERR_IO, "%s: cannot map %" PRIu64 " bytes at offset %" PRIu64 ": %s", f->path, piece.bytes,
			piece.offset, strerror(errno));
	p->maps[i] = map;
	p->map_bytes[i] = len;
	p->views[i] = (uint8_t *)map + skip;
	if (p->in_map)
		weight_reader_huge(map, len);
	while (madvise(map, len, MADV_POPULATE_READ) != 0)
		if (errno != EINTR && errno != EAGAIN)
			return explain(r, part, errno, em);
	return OK;
}

static enum err finish(struct weight_reader *r, const struct unit *u, struct weight_place *p, struct errmsg *em)
{
	enum err e = OK;
	for (int32_t i = 0; i < u->n_parts && e == OK; i++)
		if (u->parts[i].bytes > 0)
			e = finish_part(r, &u->parts[i], p, i, em);
	if (e != OK)
		drop(r, u, p);
	return e;
}

static bool lock(struct weight_reader *r, const struct unit *u, const struct weight_place *p)
{
	(void)r;
	bool ok = true;
	for (int32_t i = 0; i < u->n_parts; i++)
		ok = ok && (p->maps[i] == NULL || mlock(p->maps[i], p->map_bytes[i]) == 0);
	return ok;
}

static void close_reader(struct weight_reader *r)
{
	free(r);
}

static const struct weight_reader_ops ops = {.close = close_reader, .begin = begin, .finish = finish, .drop = drop, .lock = lock};

// check_kernel: without populating, a page that cannot be read would end the process when it is touched.
static enum err check_kernel(struct errmsg *em)
{
	void *page = mmap(NULL, WEIGHT_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool ok = page != MAP_FAILED && madvise(page, WEIGHT_PAGE, MADV_POPULATE_READ) == 0;
	if (page != MAP_FAILED)
		munmap(page, WEIGHT_PAGE);
	return ok ? OK : errmsg_fail(em, ERR_UNSUPPORTED, "reader mmap: this kernel cannot populate a mapping (want Linux 5.14 or newer)");
}

enum err mmap_reader_open(const struct weight_files *files, struct weight_reader **out, struct errmsg *em)
{
	if (files->n_extents != 1)
		return errmsg_fail(em, ERR_UNSUPPORTED, "reader mmap: the model is in %d pieces, want one file", (int)files->n_extents);
	enum err e = check_kernel(em);
	if (e != OK)
		return e;
	struct weight_reader *r = calloc(1, sizeof *r);
	if (r == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a reader");
	*r = (struct weight_reader){.ops = &ops, .kind = READER_MMAP, .files = files};
	*out = r;
	return OK;
}
