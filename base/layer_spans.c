#include "base/layer_spans.h"

#include <stdio.h>

void layer_spans_print(const struct layer_spans *s, char out[LAYER_SPANS_CAP])
{
	size_t len = 0;
	out[0] = '\0';
	for (int32_t i = 0; i < s->n; i++) {
		const struct layer_span *at = &s->at[i];
		const char *comma = len > 0 ? ", " : "";
		int n = 0;
		if (at->end - at->begin == 1)
			n = snprintf(out + len, LAYER_SPANS_CAP - len, "%s%d", comma, (int)at->begin);
		else if (at->end > at->begin)
			n = snprintf(out + len, LAYER_SPANS_CAP - len, "%s%d to %d", comma, (int)at->begin, (int)at->end - 1);
		len += (size_t)n;
	}
}
