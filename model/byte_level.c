#include "model/byte_level.h"

#include "base/utf8.h"

#include <string.h>

// Rank of the bytes that do not stand for themselves: 00 to 20 are 0 to 32, 7F to A0 are 33 to 66, AD is 67.
#define FIRST_SHIFTED 0x100
#define N_SHIFTED 68

static bool stands_for_itself(uint32_t c)
{
	return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xff && c != 0xad);
}

size_t byte_level_encode(uint8_t b, uint8_t out[BYTE_LEVEL_CHAR_MAX])
{
	uint32_t c = b;
	if (!stands_for_itself(b))
		c = FIRST_SHIFTED + (b <= 0x20 ? b : b <= 0xa0 ? 33u + b - 0x7f : 67u);
	char full[UTF8_MAX];
	size_t n = utf8_encode(c, full); // at most two bytes: c is below U+0800
	memcpy(out, full, n);
	return n;
}

// byte_of returns the byte that `c` stands for, or -1.
static int byte_of(uint32_t c)
{
	if (stands_for_itself(c))
		return (int)c;
	if (c < FIRST_SHIFTED || c >= FIRST_SHIFTED + N_SHIFTED)
		return -1;
	uint32_t rank = c - FIRST_SHIFTED;
	return rank < 33 ? (int)rank : rank < 67 ? (int)(rank - 33 + 0x7f) : 0xad;
}

bool byte_level_decode(const char *text, size_t len, char *out, size_t *out_len)
{
	size_t n, n_out = 0;
	for (size_t i = 0; i < len; i += n) {
		uint32_t c;
		n = utf8_decode(text + i, len - i, &c);
		int b = n > 0 ? byte_of(c) : -1;
		if (b < 0)
			return false;
		out[n_out++] = (char)b;
	}
	*out_len = n_out;
	return true;
}
