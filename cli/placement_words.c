#include "cli/placement_words.h"

#include <stdlib.h>
#include <string.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#define LAYERS_DIGITS 4 // LAYERS_MAX has so many

// read_layers reads a number of 1 to LAYERS_MAX, and returns what follows it; NULL: it is none.
static const char *read_layers(const char *at, int32_t *out)
{
	size_t n = strspn(at, "0123456789");
	*out = 0;
	for (size_t i = 0; i < n && n <= LAYERS_DIGITS; i++)
		*out = *out * 10 + (at[i] - '0');
	return *out >= 1 && *out <= LAYERS_MAX ? at + n : NULL;
}

// read_stage reads NAME=LAYERS and sets *text behind it.
static enum err read_stage(struct placement_words *w, const char **text, struct errmsg *em)
{
	const char *at = *text;
	size_t n = strspn(at, NAME_CHARS);
	struct placed_stage st = {.n_layers = 0};
	if (n == 0 || n >= NAME_CAP || at[n] != '=' || (*text = read_layers(at + n + 1, &st.n_layers)) == NULL)
		return errmsg_fail(em, ERR_FORMAT, "--place: \"%.40s\" does not begin with NAME=LAYERS, such as a=15 (1 to %d layers)", at, LAYERS_MAX);
	memcpy(st.name, at, n);
	if (placement_words_find(w, st.name) > 0)
		return errmsg_fail(em, ERR_FORMAT, "--place: %s is named twice", st.name);
	if (w->n_stages == SWARM_NODES_MAX)
		return errmsg_fail(em, ERR_LIMIT, "--place: more than %d machines", SWARM_NODES_MAX);
	w->stages[w->n_stages++] = st;
	return OK;
}

static enum err read_chain(struct placement_words *w, const char **text, int32_t n_layers, struct errmsg *em)
{
	struct placed_chain *ch = &w->chains[w->n_chains];
	int64_t sum = 0;
	ch->stages = &w->stages[w->n_stages];
	for (;;) {
		enum err e = read_stage(w, text, em);
		if (e != OK)
			return e;
		if (++ch->n_stages > STAGES_MAX)
			return errmsg_fail(em, ERR_LIMIT, "--place: chain %d has more than %d machines", w->n_chains, STAGES_MAX);
		sum += w->stages[w->n_stages - 1].n_layers;
		if (**text != ',')
			break;
		++*text;
	}
	w->n_chains++;
	if (**text != '\0' && **text != '/')
		return errmsg_fail(em, ERR_FORMAT, "--place: \"%.40s\" is not understood: machines are parted by a comma, chains by a slash", *text);
	if (sum != n_layers)
		return errmsg_fail(em, ERR_RANGE, "--place: chain %d gives out %lld layers, the model has %d", w->n_chains - 1, (long long)sum, n_layers);
	return OK;
}

static enum err read_chains(struct placement_words *w, const char *text, int32_t n_layers, struct errmsg *em)
{
	for (;;) {
		if (w->n_chains == CHAINS_MAX)
			return errmsg_fail(em, ERR_LIMIT, "--place: more than %d chains", CHAINS_MAX);
		enum err e = read_chain(w, &text, n_layers, em);
		if (e != OK || *text == '\0')
			return e;
		text++; // the slash
	}
}

enum err placement_words_parse(const char *text, int32_t n_layers, struct placement_words **out, struct errmsg *em)
{
	struct placement_words *w = calloc(1, sizeof *w);
	*out = NULL;
	if (w == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for --place");
	enum err e = read_chains(w, text, n_layers, em);
	if (e == OK)
		*out = w;
	else
		free(w);
	return e;
}

int32_t placement_words_find(const struct placement_words *w, const char *name)
{
	for (int32_t i = 0; i < w->n_stages; i++)
		if (strcmp(w->stages[i].name, name) == 0)
			return w->stages[i].n_layers;
	return 0;
}
