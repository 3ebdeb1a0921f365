#include "tests/support/gguf_exercise.h"

#include "base/assert.h"
#include "model/gguf.h"
#include "model/hparams.h"
#include "model/model.h"

#include <string.h>

static unsigned touch(const void *data, size_t len)
{
	const unsigned char *p = data;
	return len > 0 ? (unsigned)p[0] + p[len / 2] + p[len - 1] : 0;
}

// visit reads one value in every way there is; a way that does not fit its type must say so.
static unsigned visit(const struct gguf *g, const struct gguf_kv *kv)
{
	uint64_t u = 0;
	double d = 0;
	bool flag = false;
	struct gguf_str s;
	struct gguf_strings it;
	unsigned sum = touch(kv->key.data, kv->key.len) + touch(kv->data, kv->data_bytes);
	for (uint64_t i = 0; i < kv->n_elems && i < 64; i++)
		sum += (unsigned)gguf_elem_u64(kv, i, &u) + (unsigned)gguf_elem_f64(kv, i, &d);
	sum += (unsigned)gguf_elem_u64(kv, kv->n_elems, &u);

	char key[256];
	if (kv->key.len >= sizeof key)
		return sum;
	memcpy(key, kv->key.data, kv->key.len);
	key[kv->key.len] = '\0';
	ASSERT(gguf_find(g, key) == kv);
	struct errmsg em;
	sum += (unsigned)gguf_get_u64(g, key, &u, &em) + (unsigned)gguf_get_f64(g, key, &d, &em) + (unsigned)gguf_get_bool(g, key, &flag, &em);
	if (gguf_get_str(g, key, &s, &em) == OK)
		sum += touch(s.data, s.len);
	if (gguf_strings_init(g, key, &it, &em) == OK)
		while (gguf_strings_next(&it, &s))
			sum += touch(s.data, s.len);
	return sum;
}

enum err gguf_exercise(const void *data, size_t len, struct errmsg *em)
{
	struct gguf g;
	em->text[0] = '\0';
	enum err e = gguf_parse(data, len, &g, em);
	if (e != OK) {
		ASSERT(em->text[0] != '\0');
		ASSERT(g.owned == NULL);
		return e;
	}
	volatile unsigned sum = 0;
	for (uint64_t i = 0; i < g.n_kv; i++)
		sum += visit(&g, &g.kvs[i]);
	for (uint64_t i = 0; i < g.n_tensors; i++)
		sum += touch(g.tensors[i].data, g.tensors[i].bytes) + touch(g.tensors[i].name.data, g.tensors[i].name.len);
	struct hparams hp;
	if (model_check_whole(&g, em) == OK && hparams_read(&g, &hp, em) == OK && hparams_check(&hp, em) == OK)
		sum += (unsigned)model_check_tensors(&g, &hp, em);
	(void)sum; // its only use is to have been read
	gguf_deinit(&g);
	return OK;
}
