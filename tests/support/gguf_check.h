// What the tests of the GGUF container share: a file is built (gguf_build.h), then wanted to be read or to be refused. Header only: it calls cmocka,
// which fuzz targets are not linked with.
#ifndef HEARTH_TESTS_SUPPORT_GGUF_CHECK_H
#define HEARTH_TESTS_SUPPORT_GGUF_CHECK_H

#include "tests/support/gguf_build.h"
#include "tests/support/gguf_exercise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline struct gguf_build gguf_check_begin(void)
{
	struct gguf_build b;
	gguf_build_begin(&b, 3);
	return b;
}

// gguf_check_end ends the header and gives every tensor zeros.
static inline void gguf_check_end(struct gguf_build *b)
{
	gguf_build_begin_data(b);
	gguf_build_zeros(b);
	gguf_build_finish(b);
}

// gguf_check_copy copies to memory that ends where the file ends, so that a sanitizer sees one byte too many. The caller frees it.
static inline uint8_t *gguf_check_copy(const struct gguf_build *b, size_t len)
{
	uint8_t *p = malloc(len > 0 ? len : 1);
	assert_non_null(p);
	if (len > 0)
		memcpy(p, b->data, len);
	return p;
}

// gguf_check_refuse parses b, frees it, and wants error `want` with `word` in its message.
static inline void gguf_check_refuse(struct gguf_build *b, enum err want, const char *word)
{
	struct errmsg em = {""};
	uint8_t *p = gguf_check_copy(b, b->len);
	enum err e = gguf_exercise(p, b->len, &em);
	if (e != want || strstr(em.text, word) == NULL)
		fail_msg("error %d \"%s\", wanted %d with \"%s\"", (int)e, em.text, (int)want, word);
	free(p);
	gguf_build_free(b);
}

// gguf_check_accept parses b, frees it, and wants no error.
static inline void gguf_check_accept(struct gguf_build *b)
{
	struct errmsg em = {""};
	uint8_t *p = gguf_check_copy(b, b->len);
	if (gguf_exercise(p, b->len, &em) != OK)
		fail_msg("refused: %s", em.text);
	free(p);
	gguf_build_free(b);
}

#endif
