#include "engine/probe_disk.h"

#include "base/thread.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES (4u << 20)  // about a unit of weights
#define PIECES_LEAST 4          // fewer tell nothing
#define PIECES_MAX 128
#define READ_BYTES_MAX (UINT64_C(256) << 20)
#define FILE_BYTES (64u << 20)  // of a file of our own: little enough for an SD card's patience
#define WRITE_NS 500000000      // after which it is as long as it is

// is_in_memory: pages that somebody has mapped stay in the page cache whatever is asked for; reading them says nothing of the disk.
static bool is_in_memory(int fd, uint64_t offset)
{
	unsigned char pages[PIECE_BYTES / WEIGHT_PAGE];
	void *map = mmap(NULL, PIECE_BYTES, PROT_READ, MAP_SHARED, fd, (off_t)offset);
	if (map == MAP_FAILED)
		return true;
	int n = 0;
	bool ok = mincore(map, PIECE_BYTES, pages) == 0;
	munmap(map, PIECE_BYTES);
	for (size_t i = 0; ok && i < sizeof pages; i++)
		n += pages[i] & 1;
	return !ok || n > (int)(sizeof pages / 16);
}

// is_hole: a piece of a file that was not written holds zeros, which no disk reads.
static bool is_hole(int fd, uint64_t offset)
{
	off_t hole = lseek(fd, (off_t)offset, SEEK_HOLE), data = lseek(fd, (off_t)offset, SEEK_DATA);
	return data != (off_t)offset || (hole >= 0 && hole < (off_t)(offset + PIECE_BYTES));
}

static void add_piece(const struct weight_files *files, uint64_t at, struct unit_table *t)
{
	struct weight_piece piece;
	if (t->n == t->cap || weight_files_piece(files, at, PIECE_BYTES, &piece, NULL) != OK || piece.bytes < PIECE_BYTES)
		return;
	int fd = files->files[piece.file].fd;
	if (piece.offset % WEIGHT_PAGE != 0 || is_hole(fd, piece.offset))
		return;
	(void)posix_fadvise(fd, (off_t)piece.offset, PIECE_BYTES, POSIX_FADV_DONTNEED);
	if (is_in_memory(fd, piece.offset))
		return;
	t->units[t->n++] = (struct unit){.n_parts = 1, .parts = {{.at = at, .bytes = PIECE_BYTES}}, .bytes = PIECE_BYTES};
}

// spread puts pieces of the whole file into the table, as far from each other as their number allows. The first page of a file is not of a piece: an
// extent of a model file begins anywhere, but pieces begin with a page.
static void spread(const struct weight_files *files, struct unit_table *t)
{
	uint64_t bytes = 0;
	for (int32_t i = 0; i < files->n_extents; i++)
		bytes += files->extents[i].bytes;
	uint64_t n = bytes / PIECE_BYTES;
	uint64_t step = n > PIECES_MAX ? n / PIECES_MAX : 1, at = 0;
	for (int32_t i = 0; i < files->n_extents; i++) {
		const struct weight_extent *e = &files->extents[i];
		uint64_t shift = (WEIGHT_PAGE - e->offset % WEIGHT_PAGE) % WEIGHT_PAGE;
		for (at = shift; at + PIECE_BYTES <= e->bytes; at += step * PIECE_BYTES)
			add_piece(files, e->at + at, t);
	}
}

static double measure(enum weight_way way, const struct weight_files *files)
{
	struct unit units[PIECES_MAX];
	struct unit_table t = {.units = units, .cap = PIECES_MAX};
	spread(files, &t);
	return t.n >= PIECES_LEAST ? weight_reader_measure(way, files, &t, READ_BYTES_MAX) : 0;
}

// write_file fills a file without a name for a while; returns its length in whole pieces, on the disk. Its bytes are no zeros, which some file systems
// do not write, and no two pages are alike.
static uint64_t write_file(int fd)
{
	uint8_t *piece = malloc(PIECE_BYTES);
	uint64_t len = 0, word = 0x9e3779b97f4a7c15;
	int64_t begin_ns = thread_clock_ns();
	while (piece != NULL && len < FILE_BYTES && thread_clock_ns() - begin_ns < WRITE_NS) {
		for (size_t i = 0; i < PIECE_BYTES; i += sizeof word) {
			word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
			memcpy(piece + i, &word, sizeof word);
		}
		if (pwrite(fd, piece, PIECE_BYTES, (off_t)len) != (ssize_t)PIECE_BYTES || fdatasync(fd) != 0)
			break;
		len += PIECE_BYTES;
	}
	free(piece);
	return len;
}

static double measure_in(enum weight_way way, const char *folder)
{
	char path[64];
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return 0;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd); // how the direct reader opens it once more
	uint64_t len = write_file(fd);
	const struct weight_file file = {.fd = fd, .path = path};
	const struct weight_extent extent = {.bytes = len};
	const struct weight_files files = {.files = &file, .n_files = 1, .extents = &extent, .n_extents = 1};
	double rate = measure(way, &files);
	close(fd);
	return rate;
}

double probe_disk_measure(enum weight_way way, const struct weight_files *files, const char *folder)
{
	double rate = files != NULL ? measure(way, files) : 0;
	return rate > 0 || folder == NULL ? rate : measure_in(way, folder);
}
