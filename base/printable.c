#include "base/printable.h"

#include "base/assert.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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
		size_t n = utf8_decode(s + i, len - i, &cp);
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
