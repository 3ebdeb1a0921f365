#include "engine/residency.h"

#include "base/assert.h"

#include <stdlib.h>

struct views {
	const void *parts[UNIT_PARTS_MAX];
};

struct residency {
	struct residency_config c;
	struct views *views; // (n units)
};

enum err residency_open(const struct residency_config *c, struct residency **out, struct errmsg *em)
{
	ASSERT(c->files->map != NULL);
	struct residency *r = calloc(1, sizeof *r);
	if (r == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the table of weights");
	r->c = *c;
	r->views = calloc((size_t)c->units->n + 1, sizeof *r->views);
	if (r->views == NULL) {
		residency_close(r);
		return errmsg_fail(em, ERR_NOMEM, "no memory for a table of %d weights", (int)c->units->n);
	}
	for (int32_t i = 0; i < c->units->n; i++) {
		const struct unit *u = &c->units->units[i];
		for (int32_t p = 0; p < u->n_parts; p++)
			if (u->parts[p].bytes > 0)
				r->views[i].parts[p] = c->files->map + u->parts[p].at;
	}
	*out = r;
	return OK;
}

void residency_close(struct residency *r)
{
	if (r == NULL)
		return;
	free(r->views);
	free(r);
}

enum err residency_acquire(struct residency *r, int32_t unit, struct errmsg *em)
{
	(void)em;
	ASSERT(unit >= 0 && unit < r->c.units->n);
	return OK;
}

void residency_release(struct residency *r, int32_t unit)
{
	ASSERT(unit >= 0 && unit < r->c.units->n);
}

const void *residency_view(const struct residency *r, int32_t unit, int32_t part)
{
	return r->views[unit].parts[part];
}
