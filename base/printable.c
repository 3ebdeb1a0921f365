#include "base/printable.h"

#include "base/assert.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// char_at decodes one UTF-8 character: its length, or 0 when the bytes are none (overlong, surrogate, cut, above U+10FFFF).
static size_t char_at(const uint8_t *s, size_t left, uint32_t *cp)
{
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
	if (c < smallest[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	*cp = c;
	return n;
}

static bool is_harmless(uint32_t c)
{
	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return false;
	if (c == 0x061c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069))
		return false;
	return c != 0xfeff;
}

const char *printable_copy(const char *src, size_t len, char *out, size_t cap)
{
	ASSERT(cap >= 1);
	const uint8_t *s = (const uint8_t *)src;
	size_t o = 0, cut = 0; // cut: the last character boundary that leaves room for "..."
	size_t i = 0;
	while (i < len) {
		uint32_t cp = 0;
		size_t n = char_at(s + i, len - i, &cp);
		bool keep = n > 0 && is_harmless(cp);
		size_t put = keep ? n : 1;
		if (o + put > cap - 1)
			break;
		if (keep)
			memcpy(out + o, s + i, n);
		else
			out[o] = '?';
		i += n > 0 ? n : 1;
		o += put;
		if (o + 4 <= cap)
			cut = o;
	}
	if (i < len && cap >= 4) {
		memcpy(out + cut, "...", 3);
		o = cut + 3;
	}
	out[o] = '\0';
	return out;
}
