// Any bytes as a kept profile: what decodes is within its limits, encodes, and decodes to the same again.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/probe_cache.h"
#include "tests/support/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct device_profile p, again;
	char key[PROBE_KEY_CAP], found[PROBE_KEY_CAP];
	int64_t when, when_again;
	uint8_t bytes[PROBE_CACHE_BYTES_MAX];
	if (probe_cache_decode(data, size, key, &p, &when) != OK)
		return 0;
	require(device_profile_check(&p, NULL) == OK);
	require(p.n_threads > 0 && strlen(key) < sizeof key);
	size_t len = probe_cache_encode(key, &p, when, bytes);
	require(probe_cache_decode(bytes, len, found, &again, &when_again) == OK);
	require(when == when_again && strcmp(key, found) == 0 && memcmp(&p, &again, sizeof p) == 0);
	return 0;
}
