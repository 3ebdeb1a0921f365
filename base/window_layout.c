#include "base/window_layout.h"

static uint64_t largest(const uint64_t *unit_bytes, int32_t n_units)
{
	uint64_t most = 0;
	for (int32_t i = 0; i < n_units; i++)
		most = unit_bytes[i] > most ? unit_bytes[i] : most;
	return most;
}

// lay_out fills *l for n streamed units; false when what is pinned leaves no room for WINDOW_MIN slots.
static bool lay_out(const uint64_t *unit_bytes, int32_t n_units, uint64_t bytes, uint64_t slot, int32_t n, struct window_layout *l)
{
	*l = (struct window_layout){.n_units = n_units, .n_streamed = n};
	for (int32_t i = 0; i < n_units; i++) {
		if (window_layout_is_streamed(l, i))
			l->streamed_bytes += unit_bytes[i];
		else
			l->pinned_bytes += unit_bytes[i];
	}
	if (n == 0)
		return l->pinned_bytes <= bytes;
	if (l->pinned_bytes > bytes || slot == 0)
		return false;
	uint64_t q = (bytes - l->pinned_bytes) / slot;
	l->window = q < (uint64_t)n ? (int32_t)q : n; // a slot beyond the streamed units would hold nothing
	l->window_bytes = (uint64_t)l->window * slot;
	return l->window >= (n < WINDOW_MIN ? n : WINDOW_MIN);
}

bool window_layout_fit(const uint64_t *unit_bytes, int32_t n_units, uint64_t bytes, int32_t window_want, int32_t n_streamed_min,
	struct window_layout *out)
{
	uint64_t slot = largest(unit_bytes, n_units);
	struct window_layout best = {0};
	if (n_streamed_min == 0 && lay_out(unit_bytes, n_units, bytes, slot, 0, out))
		return true;
	int32_t from = n_streamed_min < 1 ? 1 : n_streamed_min < n_units ? n_streamed_min : n_units;
	for (int32_t n = from; n <= n_units; n++) {
		if (!lay_out(unit_bytes, n_units, bytes, slot, n, out))
			continue;
		if (out->window >= window_want || out->window == n)
			return true;
		if (out->window > best.window)
			best = *out;
	}
	*out = best;
	return best.window > 0;
}

uint64_t window_layout_least(const uint64_t *unit_bytes, int32_t n_units)
{
	return largest(unit_bytes, n_units) * (uint64_t)(n_units < WINDOW_MIN ? n_units : WINDOW_MIN);
}

int32_t window_layout_streams(const uint64_t *unit_bytes, int32_t n_units, uint32_t share)
{
	uint64_t sum = 0;
	if (share == 0)
		return 0;
	for (int32_t i = 0; i < n_units; i++)
		sum += unit_bytes[i];
	uint64_t want = sum / WINDOW_SHARE_WHOLE * share + (sum % WINDOW_SHARE_WHOLE * share + WINDOW_SHARE_WHOLE - 1) / WINDOW_SHARE_WHOLE;
	want += largest(unit_bytes, n_units) - 1; // what is left of the window beside its whole slots
	for (int32_t n = 1; n < n_units; n++) {
		struct window_layout l;
		(void)lay_out(unit_bytes, n_units, sum, 1, n, &l);
		if (l.streamed_bytes >= want)
			return n;
	}
	return n_units;
}
