// Any bytes as a GGUF file: container, typed reads, hyper-parameters, tensor checks.
#include "tests/support/gguf_exercise.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct errmsg em;
	(void)gguf_exercise(data, size, &em);
	return 0;
}
