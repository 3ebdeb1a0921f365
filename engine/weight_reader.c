#include "engine/weight_reader.h"

#include "base/assert.h"
#include "base/thread.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TRIAL_NS 150000000 // of measuring one way: a spinning disk has sought ten times by then

enum err weight_reader_open(enum weight_way kind, const struct weight_files *files, struct weight_reader **out, struct errmsg *em)
{
	ASSERT(kind != READER_AUTO);
	return kind == READER_MMAP ? mmap_reader_open(files, out, em) : direct_reader_open(files, out, em);
}

void weight_reader_close(struct weight_reader *r)
{
	if (r != NULL)
		r->ops->close(r);
}

enum weight_way weight_reader_kind(const struct weight_reader *r)
{
	return r->kind;
}

const char *weight_reader_name(enum weight_way kind)
{
	static const char *const names[] = {[READER_AUTO] = "auto", [READER_MMAP] = "mmap", [READER_DIRECT] = "direct"};
	return names[kind];
}

uint64_t weight_reader_unit_bytes(const struct unit *u)
{
	uint64_t bytes = 0;
	for (int32_t i = 0; i < u->n_parts; i++)
		if (u->parts[i].bytes > 0) // a run of bytes may begin and end anywhere in a page
			bytes += (u->parts[i].bytes + 2 * WEIGHT_PAGE - 2) / WEIGHT_PAGE * WEIGHT_PAGE;
	return bytes;
}

uint64_t weight_reader_largest(const struct unit_table *units)
{
	uint64_t largest = 0;
	for (int32_t i = 0; i < units->n; i++) {
		uint64_t b = weight_reader_unit_bytes(&units->units[i]);
		largest = b > largest ? b : largest;
	}
	return largest;
}

uint64_t weight_reader_huge_bytes(const struct unit_table *t)
{
	uint64_t end = 0, n = 0;
	for (int32_t i = 0; i < t->n; i++)
		for (int32_t k = 0; k < t->units[i].n_parts; k++)
			end = t->units[i].parts[k].at + t->units[i].parts[k].bytes > end ? t->units[i].parts[k].at + t->units[i].parts[k].bytes : end;
	uint8_t *is_used = calloc(end / WEIGHT_HUGE + 1, 1);
	for (int32_t i = 0; is_used != NULL && i < t->n; i++)
		for (int32_t k = 0; k < t->units[i].n_parts; k++)
			if (t->units[i].parts[k].bytes > 0)
				memset(is_used + t->units[i].parts[k].at / WEIGHT_HUGE, 1, (t->units[i].parts[k].at + t->units[i].parts[k].bytes - 1) / WEIGHT_HUGE -
					t->units[i].parts[k].at / WEIGHT_HUGE + 1);
	for (uint64_t i = 0; is_used != NULL && i <= end / WEIGHT_HUGE; i++)
		n += is_used[i];
	uint64_t bytes = is_used != NULL ? n * WEIGHT_HUGE : UINT64_MAX;
	free(is_used);
	return bytes;
}

void weight_reader_huge(const void *begin, uint64_t bytes)
{
	uintptr_t first = (uintptr_t)begin / WEIGHT_PAGE * WEIGHT_PAGE;
	(void)madvise((void *)first, (uintptr_t)begin + bytes - first, MADV_HUGEPAGE); // a kernel without them goes on with small ones
}

void weight_reader_leave_map(const struct weight_files *files, const struct unit_table *t)
{
	for (int32_t i = 0; files->map != NULL && i < t->n; i++) {
		for (int32_t k = 0; k < t->units[i].n_parts; k++) {
			const struct unit_part *part = &t->units[i].parts[k];
			uintptr_t begin = (uintptr_t)(files->map + part->at), end = begin + part->bytes;
			begin = (begin + WEIGHT_PAGE - 1) / WEIGHT_PAGE * WEIGHT_PAGE;
			end = end / WEIGHT_PAGE * WEIGHT_PAGE;
			if (begin < end)
				(void)madvise((void *)begin, end - begin, MADV_DONTNEED);
		}
	}
}

uint8_t *weight_reader_memory(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	weight_reader_huge(memory, bytes);
	return memory;
}

void weight_reader_begin(struct weight_reader *r, const struct unit *u, struct weight_place *p)
{
	r->ops->begin(r, u, p);
}

enum err weight_reader_finish(struct weight_reader *r, const struct unit *u, struct weight_place *p, struct errmsg *em)
{
	return r->ops->finish(r, u, p, em);
}

void weight_reader_drop(struct weight_reader *r, const struct unit *u, struct weight_place *p)
{
	r->ops->drop(r, u, p);
}

bool weight_reader_lock(struct weight_reader *r, const struct unit *u, const struct weight_place *p)
{
	return r->ops->lock(r, u, p);
}

// ---- measuring

// forget drops a unit from the page cache, so that both ways read it from the disk.
static void forget(const struct weight_files *files, const struct unit *u)
{
	for (int32_t i = 0; i < u->n_parts; i++) {
		struct weight_piece piece;
		if (u->parts[i].bytes > 0 && weight_files_piece(files, u->parts[i].at, u->parts[i].bytes, &piece, NULL) == OK)
			(void)posix_fadvise(files->files[piece.file].fd, (off_t)piece.offset, (off_t)piece.bytes, POSIX_FADV_DONTNEED);
	}
}

// try_units reads units first, first + step, ..., with the next one begun while one is awaited; returns bytes/s, 0: it failed.
static double try_units(struct weight_reader *r, const struct unit_table *t, int32_t first, uint64_t bytes_max, struct weight_place *places)
{
	uint64_t bytes = 0;
	int64_t begin_ns = thread_clock_ns(), end_ns = begin_ns;
	int32_t i = first;
	weight_reader_begin(r, &t->units[i], &places[0]);
	for (int32_t n = 0;; n++) {
		int32_t next = i + 2;
		bool more = next < t->n && bytes + t->units[next].bytes <= bytes_max && thread_clock_ns() - begin_ns < TRIAL_NS;
		if (more)
			weight_reader_begin(r, &t->units[next], &places[(n + 1) % 2]);
		enum err e = weight_reader_finish(r, &t->units[i], &places[n % 2], NULL);
		end_ns = thread_clock_ns();
		if (e == OK) {
			bytes += t->units[i].bytes;
			weight_reader_drop(r, &t->units[i], &places[n % 2]);
		}
		if (!more)
			break;
		i = next;
	}
	return end_ns > begin_ns ? (double)bytes * 1e9 / (double)(end_ns - begin_ns) : 0;
}

double weight_reader_measure(enum weight_way way, const struct weight_files *files, const struct unit_table *t, uint64_t bytes_max)
{
	struct weight_reader *r;
	if (t->n == 0 || weight_reader_open(way, files, &r, NULL) != OK)
		return 0;
	int32_t first = way == READER_MMAP ? 0 : t->n > 1;
	uint64_t slot = weight_reader_largest(t), sum = 0;
	for (int32_t i = first; i < t->n && sum <= bytes_max; i += 2) {
		sum += t->units[i].bytes;
		forget(files, &t->units[i]);
	}
	uint8_t *memory = weight_reader_memory(2 * slot);
	struct weight_place places[2] = {0};
	double rate = 0;
	if (memory != NULL) {
		places[0].memory = memory;
		places[1].memory = places[0].memory + slot;
		if (way == READER_DIRECT)
			memset(memory, 0, 2 * slot); // the first touch of so much takes a good part of the trial, and comes once in a window's life
		rate = try_units(r, t, first, bytes_max, places);
		munmap(memory, 2 * slot);
	}
	weight_reader_close(r);
	return rate;
}
