#include "cli/placement_words.h"

#include <stdlib.h>
#include <string.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
#define LAYERS_DIGITS 4 // LAYERS_MAX has so many
#define SHARE_DIGITS 6  // more says no more

// read_layers reads a number of 1 to LAYERS_MAX, and returns what follows it; NULL: it is none.
static const char *read_layers(const char *at, int32_t *out)
{
	size_t n = strspn(at, "0123456789");
	*out = 0;
	for (size_t i = 0; i < n && n <= LAYERS_DIGITS; i++)
		*out = *out * 10 + (at[i] - '0');
	return *out >= 1 && *out <= LAYERS_MAX ? at + n : NULL;
}

// read_share reads what may follow a name, ":SHARE", and returns what follows that; NULL: it is none.
static const char *read_share(const char *at, uint32_t *out)
{
	*out = 1;
	if (*at != ':')
		return at;
	size_t n = strspn(++at, "0123456789");
	*out = 0;
	for (size_t i = 0; i < n && i < SHARE_DIGITS; i++)
		*out = *out * 10 + (uint32_t)(at[i] - '0');
	return n >= 1 && n <= SHARE_DIGITS ? at + n : NULL;
}

// read_hub reads the star of the member that passes on what the others of its group send. false: it has one already.
static bool read_hub(struct placed_stage *st, const char **text)
{
	if (**text != '*')
		return true;
	++*text;
	if (st->hub > 0)
		return false;
	st->hub = st->n_members;
	return true;
}

static enum err bad_stage(const char *at, struct errmsg *em)
{
	return errmsg_fail(em, ERR_FORMAT, "--place: \"%.40s\" does not begin with NAME=LAYERS, such as a=15 (1 to %d layers), or NAME:SHARE+NAME:SHARE=LAYERS for "
		"machines that share them", at, LAYERS_MAX);
}

// read_member reads NAME or NAME:SHARE and sets *text behind it.
static enum err read_member(struct placement_words *w, struct placed_stage *st, const char **text, struct errmsg *em)
{
	const char *at = *text;
	size_t n = strspn(at, NAME_CHARS);
	struct placed_member m = {.share = 1};
	if (n == 0 || n >= NAME_CAP || (*text = read_share(at + n, &m.share)) == NULL)
		return bad_stage(at, em);
	memcpy(m.name, at, n);
	for (int32_t i = 0; i < w->n_members; i++)
		if (strcmp(w->members[i].name, m.name) == 0)
			return errmsg_fail(em, ERR_FORMAT, "--place: %s is named twice", m.name);
	if (w->n_members == SWARM_NODES_MAX)
		return errmsg_fail(em, ERR_LIMIT, "--place: more than %d machines", SWARM_NODES_MAX);
	if (st->n_members == GROUP_MEMBERS_MAX)
		return errmsg_fail(em, ERR_LIMIT, "--place: more than %d machines share the layers of %s", GROUP_MEMBERS_MAX, st->members[0].name);
	w->members[w->n_members++] = m;
	st->n_members++;
	if (!read_hub(st, text))
		return errmsg_fail(em, ERR_FORMAT, "--place: two machines of %s's group have a star: one can pass on what the others send", st->members[0].name);
	return OK;
}

// read_stage reads a member or several, and =LAYERS.
static enum err read_stage(struct placement_words *w, const char **text, struct errmsg *em)
{
	const char *begin = *text;
	struct placed_stage st = {.members = &w->members[w->n_members]};
	uint64_t sum = 0;
	do {
		enum err e = read_member(w, &st, text, em);
		if (e != OK)
			return e;
		sum += st.members[st.n_members - 1].share;
	} while (*(*text)++ == '+');
	if ((*text)[-1] != '=' || (*text = read_layers(*text, &st.n_layers)) == NULL)
		return bad_stage(begin, em);
	if (sum == 0)
		return errmsg_fail(em, ERR_RANGE, "--place: nobody of %s's group has a share of its layers: give one of them more than 0", st.members[0].name);
	if (st.hub > 0 && st.n_members == 1)
		return errmsg_fail(em, ERR_FORMAT, "--place: %s has a star, and nobody to pass anything on to", st.members[0].name);
	w->stages[w->n_stages++] = st;
	return OK;
}

static enum err read_chain(struct placement_words *w, const char **text, int32_t n_layers, struct errmsg *em)
{
	struct placed_chain *ch = &w->chains[w->n_chains];
	int64_t sum = 0;
	int32_t n_before = w->n_members;
	ch->stages = &w->stages[w->n_stages];
	for (;;) {
		enum err e = read_stage(w, text, em);
		if (e != OK)
			return e;
		ch->n_stages++;
		if (w->n_members - n_before > STAGES_MAX)
			return errmsg_fail(em, ERR_LIMIT, "--place: chain %d has more than %d machines", w->n_chains, STAGES_MAX);
		sum += w->stages[w->n_stages - 1].n_layers;
		if (**text != ',')
			break;
		++*text;
	}
	w->n_chains++;
	if (**text != '\0' && **text != '/')
		return errmsg_fail(em, ERR_FORMAT, "--place: \"%.40s\" is not understood: stages are parted by a comma, chains by a slash", *text);
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
		for (int32_t k = 0; k < w->stages[i].n_members; k++)
			if (strcmp(w->stages[i].members[k].name, name) == 0)
				return w->stages[i].n_layers;
	return 0;
}

const char *placement_words_hub(const struct placement_words *w)
{
	for (int32_t i = 0; i < w->n_stages; i++)
		if (w->stages[i].hub > 0)
			return w->stages[i].members[w->stages[i].hub - 1].name;
	return NULL;
}
