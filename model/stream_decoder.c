#include "base/utf8.h"
#include "model/tokenizer.h"

#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

static void drop(struct stream_decoder *d, size_t n)
{
	d->n_held -= (uint32_t)n;
	memmove(d->held, d->held + n, d->n_held);
}

static size_t put_replacement(char *out)
{
	memcpy(out, REPLACEMENT, 3);
	return 3;
}

// take_one moves the first character out of what is held; false when it is not all there.
static bool take_one(struct stream_decoder *d, char *out, size_t *out_len)
{
	size_t n;
	enum utf8_kind kind = utf8_next(d->held, d->n_held, &n);
	if (kind == UTF8_CUT)
		return false;
	if (kind == UTF8_CHAR) {
		memcpy(out + *out_len, d->held, n);
		*out_len += n;
	} else {
		*out_len += put_replacement(out + *out_len);
	}
	drop(d, n);
	return true;
}

size_t stream_decoder_push(struct stream_decoder *d, const char *piece, size_t len, char *out)
{
	size_t out_len = 0;
	for (size_t i = 0; i < len; i++) {
		d->held[d->n_held++] = (uint8_t)piece[i];
		while (d->n_held > 0 && take_one(d, out, &out_len))
			;
	}
	return out_len;
}

size_t stream_decoder_finish(struct stream_decoder *d, char *out)
{
	size_t out_len = d->n_held > 0 ? put_replacement(out) : 0;
	d->n_held = 0;
	return out_len;
}
