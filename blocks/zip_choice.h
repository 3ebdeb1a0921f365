// Whether blocks are worth compressing on one link, from what was measured: how far they shrink, how fast, and what the link carries.
// Sending a block as it is takes 1/link of a second a byte; compressing takes the longer of 1/compressor and ratio/link, as the two overlap. Quantised
// weights shrink by a few percent, so that it pays on slow links only, and never by much; a saving below 3 % is left to the processor.
//
// The first blocks of a link are compressed to learn, and one in ZIP_EVERY afterwards: tensors of one file differ. Pure.
#ifndef HEARTH_BLOCKS_ZIP_CHOICE_H
#define HEARTH_BLOCKS_ZIP_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZIP_FIRST 3
#define ZIP_EVERY 64

struct zip_choice {
	uint64_t n_blocks;      // asked about
	double ratio;           // of compressed to plain, smoothed; 0: not known
	double zip_rate;        // plain bytes per second that the compressor takes in
	double link_rate;       // bytes per second that the link carries when it is kept busy
	uint64_t n_zipped;      // sent compressed
};

// zip_choice_next tells whether the next block is to be compressed: because it pays, or to learn.
bool zip_choice_next(struct zip_choice *z);
// zip_choice_pays tells what zip_choice_next goes by once it knows.
bool zip_choice_pays(const struct zip_choice *z);
// zip_choice_note_zip: a block was compressed. Returns whether to send it so: a block that did not shrink goes as it is.
bool zip_choice_note_zip(struct zip_choice *z, size_t plain, size_t zipped, int64_t ns);
// zip_choice_note_link: so many bytes left in that time, with more waiting behind them.
void zip_choice_note_link(struct zip_choice *z, uint64_t bytes, int64_t ns);

#endif
