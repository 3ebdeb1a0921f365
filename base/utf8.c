#include "base/utf8.h"

#include "base/assert.h"

bool utf8_is_scalar(uint32_t cp)
{
	return cp <= 0x10ffff && (cp < 0xd800 || cp > 0xdfff);
}

size_t utf8_decode(const void *src, size_t left, uint32_t *cp)
{
	const uint8_t *s = src;
	if (s[0] < 0x80) {
		*cp = s[0];
		return 1;
	}
	size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
	if (s[0] < 0xc2 || s[0] > 0xf4 || n > left)
		return 0;
	uint32_t c = s[0] & (0xffu >> (n + 1));
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	if (c < smallest[n] || !utf8_is_scalar(c))
		return 0;
	*cp = c;
	return n;
}

size_t utf8_encode(uint32_t cp, char out[UTF8_MAX])
{
	ASSERT(utf8_is_scalar(cp));
	if (cp < 0x80) {
		out[0] = (char)cp;
		return 1;
	}
	size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i > 0; i--, cp >>= 6)
		out[i] = (char)(0x80 | (cp & 0x3f));
	static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
	out[0] = (char)(lead[n] | cp);
	return n;
}

// follow_of returns how many bytes follow `lead`, or -1, and the range of the first of them; the later ones are 80 to BF.
static int follow_of(uint8_t lead, uint8_t *low, uint8_t *high)
{
	*low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	*high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
	if (lead < 0x80)
		return 0;
	if (lead < 0xc2 || lead > 0xf4)
		return -1;
	return lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
}

enum utf8_kind utf8_next(const void *src, size_t left, size_t *n)
{
	const uint8_t *s = src;
	uint8_t low, high;
	int n_follow = follow_of(s[0], &low, &high);
	*n = 1;
	if (n_follow < 0)
		return UTF8_BAD;
	for (int i = 0; i < n_follow; i++) {
		if (*n == left)
			return UTF8_CUT;
		if (s[*n] < low || s[*n] > high)
			return UTF8_BAD;
		low = 0x80;
		high = 0xbf;
		(*n)++;
	}
	return UTF8_CHAR;
}

bool utf8_valid(const void *src, size_t len)
{
	const uint8_t *s = src;
	size_t n;
	for (size_t i = 0; i < len; i += n)
		if (utf8_next(s + i, len - i, &n) != UTF8_CHAR)
			return false;
	return true;
}
