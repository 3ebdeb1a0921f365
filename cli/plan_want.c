// Options of `hearth plan` as wants of the solver.
#include "cli/plan_report.h"

#include "base/suggest.h"

#include <stdlib.h>
#include <string.h>

// next_word copies what stands before the next comma; false at the end. An empty word is a word.
static bool next_word(const char **at, char *word, size_t cap)
{
	if (*at == NULL)
		return false;
	size_t n = strcspn(*at, ",");
	snprintf(word, cap, "%.*s", n < cap ? (int)n : (int)cap - 1, *at);
	*at = (*at)[n] == ',' ? *at + n + 1 : NULL;
	return true;
}

static enum err find_device(const struct scenario *s, const char *option, const char *name, int32_t *out, struct errmsg *em)
{
	struct suggest near = suggest_init(name);
	for (int32_t i = 0; i < s->n_devices; i++) {
		if (strcmp(s->devices[i].name, name) == 0) {
			*out = i;
			return OK;
		}
		suggest_offer(&near, s->devices[i].name);
	}
	return near.best ? errmsg_fail(em, ERR_USAGE, "%s: there is no machine %.60s, did you mean %s?", option, name, near.best)
			 : errmsg_fail(em, ERR_USAGE, "%s: there is no machine %.60s", option, name);
}

static enum err read_must(const char *list, struct plan_report *r, struct errmsg *em)
{
	char name[NAME_CAP];
	int32_t d = 0;
	while (next_word(&list, name, sizeof name)) {
		enum err e = find_device(r->cluster, "--must", name, &d, em);
		if (e != OK)
			return e;
		r->limits[d].layers_min = 1;
	}
	return OK;
}

static enum err read_without(const char *list, struct plan_report *r, struct errmsg *em)
{
	char name[NAME_CAP];
	int32_t d = 0;
	while (next_word(&list, name, sizeof name)) {
		enum err e = find_device(r->cluster, "--without", name, &d, em);
		if (e != OK)
			return e;
		if (r->limits[d].layers_min > 0)
			return errmsg_fail(em, ERR_USAGE, "%s must hold layers (--must) and must not (--without)", name);
		r->limits[d].layers_max = 0;
	}
	return OK;
}

// "desk=24,pi=0"
static enum err read_layers(const char *list, struct plan_report *r, struct errmsg *em)
{
	char word[NAME_CAP + 16];
	int32_t d = 0;
	while (next_word(&list, word, sizeof word)) {
		char *equals = strchr(word, '='), *end = NULL;
		long n = equals ? strtol(equals + 1, &end, 10) : -1;
		if (equals == NULL || equals[1] == '\0' || *end != '\0' || n < 0 || n > r->model->shape.n_layers)
			return errmsg_fail(em, ERR_USAGE, "--layers: got %.60s, want NAME=N with 0 to %d layers", word,
				r->model->shape.n_layers);
		*equals = '\0';
		enum err e = find_device(r->cluster, "--layers", word, &d, em);
		if (e != OK)
			return e;
		if ((n > 0 && r->limits[d].layers_max == 0) || (n == 0 && r->limits[d].layers_min > 0))
			return errmsg_fail(em, ERR_USAGE, "--layers gives %s %ld layers, which --must or --without contradicts", word, n);
		r->limits[d].layers_min = r->limits[d].layers_max = (int32_t)n;
	}
	return OK;
}

static enum err read_order(const char *list, struct plan_report *r, struct errmsg *em)
{
	char name[NAME_CAP];
	r->want.n_order = 0;
	while (next_word(&list, name, sizeof name)) {
		if (r->want.n_order == SCENARIO_DEVICES_MAX)
			return errmsg_fail(em, ERR_USAGE, "--order: more than %d machines", SCENARIO_DEVICES_MAX);
		enum err e = find_device(r->cluster, "--order", name, &r->order[r->want.n_order++], em);
		if (e != OK)
			return e;
	}
	r->want.order = r->want.n_order > 0 ? r->order : NULL;
	return OK;
}

static enum err read_objective(const char *text, struct plan_report *r, struct errmsg *em)
{
	struct solve_goal *g = &r->want.goal;
	static const char many[] = "throughput:";
	if (strcmp(text, "tpot") == 0) {
		g->tpot_weight = 1;
	} else if (strcmp(text, "ttft") == 0) {
		g->ttft_weight = 1;
		g->n_prompt = r->n_prompt;
		g->chunk = r->chunk;
	} else if (strncmp(text, many, sizeof many - 1) == 0) {
		char *end;
		long n = strtol(text + sizeof many - 1, &end, 10);
		if (end == text + sizeof many - 1 || *end != '\0' || n < 1 || n > SESSIONS_MAX)
			return errmsg_fail(em, ERR_USAGE, "--objective: got %.60s, want throughput:N with 1 to %d answers at once", text,
				SESSIONS_MAX);
		g->streams_weight = 1;
		g->n_streams = (int32_t)n;
	} else {
		return errmsg_fail(em, ERR_USAGE, "--objective: got %.60s, want tpot, ttft or throughput:N", text);
	}
	return OK;
}

// put_params: room for the context of every answer at once; a token looks at the prompt and half of what may follow, of at most as much again.
static enum err put_params(const struct options *o, struct plan_report *r, struct errmsg *em)
{
	const struct scenario *s = r->cluster;
	r->ctx_len = o->plan_context > 0 ? o->plan_context : s->ctx_len;
	bool is_given = options_given(o, offsetof(struct options, plan_prompt));
	r->n_prompt = !is_given && o->plan_prompt > r->ctx_len / 2 ? r->ctx_len / 2 : o->plan_prompt;
	r->chunk = s->chunk;
	if (r->n_prompt > r->ctx_len)
		return errmsg_fail(em, ERR_USAGE, "--prompt: %d tokens, and the context has room for %d: see --context", r->n_prompt, r->ctx_len);
	int32_t answer = r->ctx_len - r->n_prompt < r->n_prompt ? r->ctx_len - r->n_prompt : r->n_prompt;
	r->want.params = s->params;
	r->want.params.kv_read = (uint64_t)(r->n_prompt + answer / 2);
	return OK;
}

static void put_slots(struct plan_report *r)
{
	int32_t n = r->cluster->n_slots, streams = r->want.goal.n_streams;
	r->want.params.kv_alloc = (uint64_t)r->ctx_len * (uint64_t)(streams > n ? streams : n);
}

enum err plan_want_fill(const struct options *o, struct plan_report *r, struct errmsg *em)
{
	const struct scenario *s = r->cluster;
	r->want = (struct solve_want){
		.cluster = &s->cluster,
		.shape = &r->model->shape,
		.head = s->plan.head,
		.devices_max = o->plan_devices_max,
		.rounds_min = o->plan_rounds,
		.rounds_max = o->plan_rounds,
		.head_layers = o->plan_head_layers,
		.limits = r->limits,
		.allow_groups = !o->no_groups,
	};
	for (int32_t i = 0; i < s->n_devices; i++)
		r->limits[i] = (struct solve_limit){.layers_max = LAYERS_MAX, .is_trusted = !s->stations[i].is_untrusted};
	enum err e = o->plan_head ? find_device(s, "--coordinator", o->plan_head, &r->want.head, em) : OK;
	if (e == OK && s->head_holds_none && r->want.head == s->plan.head)
		r->limits[r->want.head].layers_max = 0;
	if (e == OK)
		e = put_params(o, r, em);
	if (e == OK)
		e = read_objective(o->plan_objective, r, em);
	if (e == OK && o->plan_must)
		e = read_must(o->plan_must, r, em);
	if (e == OK && o->plan_without)
		e = read_without(o->plan_without, r, em);
	if (e == OK && o->plan_layers)
		e = read_layers(o->plan_layers, r, em);
	if (e == OK && o->plan_order)
		e = read_order(o->plan_order, r, em);
	put_slots(r);
	return e;
}
