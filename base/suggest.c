#include "base/suggest.h"

#include <stdint.h>
#include <string.h>

#define WORD_CAP 64

struct suggest suggest_init(const char *word)
{
	// A third of the letters may be wrong, at least one: "--treads" finds "--threads", "-x" finds nothing far away.
	size_t letters = strlen(word);
	return (struct suggest){.word = word, .distance = letters / 3 + 2};
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

// Optimal string alignment: three rows of the table, as a swap looks two rows back.
size_t suggest_distance(const char *a, const char *b)
{
	size_t a_len = strlen(a), b_len = strlen(b);
	if (a_len >= WORD_CAP || b_len >= WORD_CAP)
		return SIZE_MAX;
	uint8_t rows[3][WORD_CAP];
	for (size_t j = 0; j <= b_len; j++)
		rows[0][j] = (uint8_t)j;
	for (size_t i = 1; i <= a_len; i++) {
		uint8_t *now = rows[i % 3], *before = rows[(i - 1) % 3], *twice = rows[(i + 1) % 3];
		now[0] = (uint8_t)i;
		for (size_t j = 1; j <= b_len; j++) {
			size_t d = before[j - 1] + (size_t)(a[i - 1] != b[j - 1]);
			d = min_size(d, min_size(before[j], now[j - 1]) + 1u);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				d = min_size(d, twice[j - 2] + 1u);
			now[j] = (uint8_t)d;
		}
	}
	return rows[a_len % 3][b_len];
}

void suggest_offer(struct suggest *s, const char *candidate)
{
	size_t d = suggest_distance(s->word, candidate);
	if (d < s->distance) {
		s->distance = d;
		s->best = candidate;
	}
}
