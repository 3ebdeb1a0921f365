// What is remembered of a model file, as a disk may have damaged it.
#include "blocks/shell/known_model.h"

#include "tests/support/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct known_model k;
	struct manifest_walk walk = {0};
	struct manifest_tensor t;
	if (!known_model_parse(data, size, &k))
		return 0;
	require(memchr(k.path, '\0', sizeof k.path) != NULL);
	require(k.manifest >= data && k.manifest + k.manifest_len == data + size);
	require(k.m.file_bytes == load_u64(k.id + 16));
	while (manifest_next_tensor(&k.m, &walk, &t))
		require(t.offset + t.bytes <= k.m.file_bytes);
	return 0;
}
