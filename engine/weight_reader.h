// Two ways to bring weights from a file into memory and let them go again, behind one interface.
//
// mmap maps a unit, asks the kernel to read it ahead and populates it; to let it go it unmaps it, which lowers the resident size at once,
// and then drops it from the page cache. Each unit has a mapping of its own: the kernel maps neighbouring cached pages with every fault,
// and does not go beyond the mapping. direct reads past the page cache (O_DIRECT) into buffers, with several reads under way.
//
// What stays may lie in the mapping of the whole file instead (in_map), where huge pages cover it: a processor computes with them up to a half
// faster, as it looks up fewer pages. What is let go may not: only small pages can be given back exactly.
//
// A place is where one unit lies: the caller's, one for each unit that is in memory. begin, finish and drop of a place are called in this
// order by one thread; between begin and finish other places may begin and finish. What begin was called for finishes, in any order.
#ifndef HEARTH_ENGINE_WEIGHT_READER_H
#define HEARTH_ENGINE_WEIGHT_READER_H

#include "base/err.h"
#include "engine/unit_table.h"
#include "model/weight_files.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIGHT_HUGE (UINT64_C(2) << 20) // of a huge page
#define WEIGHT_PAGE 4096 // what O_DIRECT and mappings are aligned to; a file system that wants more refuses, and mmap is taken

enum weight_way { READER_AUTO, READER_MMAP, READER_DIRECT };

struct weight_reader;

struct weight_place {
	uint8_t *memory;                    // direct: weight_reader_unit_bytes of it, aligned to WEIGHT_PAGE; mmap uses none
	bool in_map;                        // mmap: the caller's: it lies in the mapping of the whole file, of which weight_reader_huge_bytes are resident then
	const void *views[UNIT_PARTS_MAX];  // valid from finish to drop
	void *maps[UNIT_PARTS_MAX];         // the reader's
	size_t map_bytes[UNIT_PARTS_MAX];
};

// weight_reader_open: ERR_UNSUPPORTED when these files cannot be read this way (the message says why). READER_AUTO is not a way.
MUST_USE enum err weight_reader_open(enum weight_way kind, const struct weight_files *files, struct weight_reader **out, struct errmsg *em);
void weight_reader_close(struct weight_reader *r); // NULL is allowed; nothing is begun
enum weight_way weight_reader_kind(const struct weight_reader *r);
const char *weight_reader_name(enum weight_way kind); // "auto", "mmap", "direct"

// weight_reader_unit_bytes returns the memory a unit takes, whole pages.
uint64_t weight_reader_unit_bytes(const struct unit *u);

// weight_reader_largest returns what the largest unit takes.
uint64_t weight_reader_largest(const struct unit_table *units);

// weight_reader_huge_bytes returns what of the file is resident at most when these units lie in the mapping of the whole file: the huge pages that
// have a part of them. UINT64_MAX: there is no memory to count them.
uint64_t weight_reader_huge_bytes(const struct unit_table *units);
// weight_reader_huge asks for huge pages, where the system has them for that.
void weight_reader_huge(const void *begin, uint64_t bytes);
// weight_reader_leave_map gives back what of these units is resident in the mapping of the whole file, where it was computed with while there was no
// limit: beside what is read from now on it would count twice.
void weight_reader_leave_map(const struct weight_files *files, const struct unit_table *units);
// weight_reader_memory maps memory for places, in huge pages where there are any; NULL: there is none. Given back by munmap.
uint8_t *weight_reader_memory(uint64_t bytes);

// begin starts reading and does not wait. finish waits: ERR_IO or ERR_NOMEM, naming file and offset; the place is empty then, as after drop.
void weight_reader_begin(struct weight_reader *r, const struct unit *u, struct weight_place *p);
MUST_USE enum err weight_reader_finish(struct weight_reader *r, const struct unit *u, struct weight_place *p, struct errmsg *em);
void weight_reader_drop(struct weight_reader *r, const struct unit *u, struct weight_place *p);
// weight_reader_lock tries to keep a place in memory (mlock): false when the system does not let us.
bool weight_reader_lock(struct weight_reader *r, const struct unit *u, const struct weight_place *p);

// weight_reader_measure tries a way for a moment on some of the units, from the disk itself: bytes/s, 0 when it is not possible. It reads at most
// bytes_max, one unit at a time; the two ways try different units, so that neither finds what the other has just read.
double weight_reader_measure(enum weight_way way, const struct weight_files *files, const struct unit_table *units, uint64_t bytes_max);

// ---- what a way consists of; for the files that make them

struct weight_reader_ops {
	void (*close)(struct weight_reader *r);
	void (*begin)(struct weight_reader *r, const struct unit *u, struct weight_place *p);
	enum err (*finish)(struct weight_reader *r, const struct unit *u, struct weight_place *p, struct errmsg *em);
	void (*drop)(struct weight_reader *r, const struct unit *u, struct weight_place *p);
	bool (*lock)(struct weight_reader *r, const struct unit *u, const struct weight_place *p);
};

struct weight_reader {
	const struct weight_reader_ops *ops;
	enum weight_way kind;
	const struct weight_files *files;
};

MUST_USE enum err mmap_reader_open(const struct weight_files *files, struct weight_reader **out, struct errmsg *em);
MUST_USE enum err direct_reader_open(const struct weight_files *files, struct weight_reader **out, struct errmsg *em);

#endif
