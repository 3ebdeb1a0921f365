// "did you mean": the nearest of some words by edit distance (insert, delete, replace, swap of neighbours).
#ifndef HEARTH_BASE_SUGGEST_H
#define HEARTH_BASE_SUGGEST_H

#include <stddef.h>

struct suggest {
	const char *word; // what was typed, borrowed
	const char *best; // borrowed from suggest_offer; NULL: nothing near enough
	size_t distance;  // of `best`; before one is found, the first distance that is too far
};

struct suggest suggest_init(const char *word);
// suggest_offer considers one word; of equally near ones the first stays.
void suggest_offer(struct suggest *s, const char *candidate);
// suggest_distance counts edits between two words of at most 63 bytes; SIZE_MAX for a longer one.
size_t suggest_distance(const char *a, const char *b);

#endif
