#include "base/dtype.h"

#include "base/assert.h"
#include "base/bytes.h"

const struct dtype_info *dtype_find(uint32_t id)
{
	static const struct dtype_info infos[DTYPE_ID_MAX + 1] = {
#define X(e, id, name, block, bytes) [id] = {name, block, bytes},
		DTYPE_TABLE(X)
#undef X
	};
	if (id > DTYPE_ID_MAX || infos[id].name == NULL)
		return NULL;
	return &infos[id];
}

bool dtype_row_bytes(enum dtype type, uint64_t cols, size_t *out)
{
	const struct dtype_info *info = dtype_find((uint32_t)type);
	ASSERT(info != NULL);
	if (cols % info->block_len != 0)
		return false;
	return mul_size((size_t)(cols / info->block_len), info->block_bytes, out);
}
