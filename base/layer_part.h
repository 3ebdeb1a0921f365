// Which part of its layers a machine has: all of each, or what one member of a group has of it (base/tensor_split.h).
#ifndef HEARTH_BASE_LAYER_PART_H
#define HEARTH_BASE_LAYER_PART_H

#include "base/layer_set.h"
#include "base/tensor_split.h"

#include <string.h>

// What is unused is zero.
struct layer_part {
	int32_t n, place; // of a group's members; 0, 0: whole layers
	enum split_mode mode;
	uint32_t shares[GROUP_MEMBERS_MAX]; // (n)
};

// layer_part_of: a group of one has whole layers.
static inline struct layer_part layer_part_of(int32_t n, int32_t place, enum split_mode mode, const uint32_t *shares)
{
	struct layer_part p = {0};
	if (n <= 1)
		return p;
	p.n = n;
	p.place = place;
	p.mode = mode;
	memcpy(p.shares, shares, (size_t)n * sizeof *shares);
	return p;
}

// layer_part_equal tells whether two parts are the same rows, columns, heads and experts, so that what is kept of one (blocks, keys and values) is of use to
// the other. How sums travel does not matter, but for which columns are dealt by lanes; nor in which unit shares are, nor how the others divide the rest.
bool layer_part_equal(const struct layer_part *a, const struct layer_part *b);

// The layers of which a machine without the model file has the blocks that parts of them need: those that its engine runs, and those that it has
// fetched to run them next. Never more than it has: what there is no place for is forgotten, and costs a look at the disk.
#define HELD_PARTS_MAX 2

struct held_layers {
	int32_t n;
	struct {
		struct layer_part part;
		struct layer_set layers;
		bool has_output; // and the output head: all of it, or the part's rows
	} at[HELD_PARTS_MAX]; // in the order in which they came
};

// held_add takes in layers of which that part is here. Where there is no place, what came first goes.
void held_add(struct held_layers *h, const struct layer_part *part, const struct layer_set *layers);
// held_of returns the layers of which that part is here: alone, or within the whole.
struct layer_set held_of(const struct held_layers *h, const struct layer_part *part);

// held_add_output takes in the output head, or that part's rows of it, where layers of that part are here.
void held_add_output(struct held_layers *h, const struct layer_part *part);
bool held_has_output(const struct held_layers *h, const struct layer_part *part); // as held_of

static inline bool held_covers(const struct held_layers *h, const struct layer_part *part, const struct layer_spans *layers)
{
	struct layer_set have = held_of(h, part);
	return layer_set_covers(&have, layers);
}

#endif
