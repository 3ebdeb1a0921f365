// Threads that read, hash, compress and write blocks, so that the loop does not: a block takes half a millisecond, a slow disk a hundred.
//
// A job is its owner's struct, in place until `done`. Jobs are begun in the order they were submitted; with more than one thread they may end in
// another. The threads are nicer than those that compute: a transfer takes what decoding leaves.
// Thread rule: `run` on a thread of the pool, everything else on the loop's.
#ifndef HEARTH_BLOCKS_SHELL_BLOCK_IO_H
#define HEARTH_BLOCKS_SHELL_BLOCK_IO_H

#include "base/err.h"
#include "blocks/shell/block_zip.h"
#include "net/loop.h"

#include <stdint.h>

struct block_io;

struct block_job {
	void (*run)(struct block_job *job, struct block_zip *zip); // zip: the thread's own
	void (*done)(struct block_job *job);
	struct block_job *next; // the pool's
};

#define BLOCK_IO_THREADS_MAX 4

MUST_USE enum err block_io_open(struct loop *loop, int32_t n_threads, struct block_io **out, struct errmsg *em);
// block_io_close waits for the jobs that run; of what waits, and of what has ended and was not told yet, nothing is heard. NULL is allowed.
void block_io_close(struct block_io *io);
void block_io_submit(struct block_io *io, struct block_job *job);

#endif
