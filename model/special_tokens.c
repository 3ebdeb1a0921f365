#include "model/special_tokens.h"

#include <stdlib.h>
#include <string.h>

static const struct vocab_token *token_at(const struct special_tokens *s, int32_t i)
{
	return &s->vocab->tokens[s->entries[i].id];
}

static int compare_texts(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t n = a_len < b_len ? a_len : b_len;
	int c = n > 0 ? memcmp(a, b, n) : 0;
	return c != 0 ? c : (a_len > b_len) - (a_len < b_len);
}

static int by_text(const void *a, const void *b, void *tokens)
{
	const struct vocab_token *all = tokens;
	const struct vocab_token *ta = &all[((const struct special_entry *)a)->id],
				 *tb = &all[((const struct special_entry *)b)->id];
	return compare_texts(ta->text, ta->text_len, tb->text, tb->text_len);
}

static bool begins(const struct vocab_token *prefix, const struct vocab_token *t)
{
	return prefix->text_len <= t->text_len && memcmp(prefix->text, t->text, prefix->text_len) == 0;
}

// collect counts the special tokens that can be found, and writes them to `out` when it is not NULL. Of two with one text the hash knows one.
static int32_t collect(const struct vocab *v, struct special_entry *out)
{
	int32_t n = 0;
	for (int32_t id = 0; id < v->n_tokens; id++) {
		const struct vocab_token *t = &v->tokens[id];
		if (!vocab_is_special(v, id) || vocab_find(v, t->text, t->text_len) != id)
			continue;
		if (out)
			out[n].id = id;
		n++;
	}
	return n;
}

enum err special_tokens_open(const struct vocab *v, struct special_tokens *s, struct errmsg *em)
{
	*s = (struct special_tokens){.vocab = v};
	s->n = collect(v, NULL);
	if (s->n == 0)
		return OK;
	s->entries = calloc((size_t)s->n, sizeof *s->entries);
	if (s->entries == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for %d special tokens", (int)s->n);
	collect(v, s->entries);
	// qsort_r's last argument has no const; by_text only reads it.
	union {
		const struct vocab_token *in;
		void *out;
	} tokens = {.in = v->tokens};
	qsort_r(s->entries, (size_t)s->n, sizeof *s->entries, by_text, tokens.out);
	for (int32_t i = 0; i < s->n; i++) {
		int32_t p = i - 1;
		while (p >= 0 && !begins(token_at(s, p), token_at(s, i)))
			p = s->entries[p].prefix;
		s->entries[i].prefix = p;
		s->starts[(uint8_t)token_at(s, i)->text[0]] = true;
	}
	return OK;
}

void special_tokens_close(struct special_tokens *s)
{
	free(s->entries);
	*s = (struct special_tokens){0};
}

// last_not_after returns the index of the last text that sorts at or before text[0..len), or -1.
static int32_t last_not_after(const struct special_tokens *s, const char *text, size_t len)
{
	int32_t low = 0, high = s->n; // the answer is low - 1 in the end
	while (low < high) {
		int32_t mid = low + (high - low) / 2;
		const struct vocab_token *t = token_at(s, mid);
		if (compare_texts(t->text, t->text_len, text, len) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low - 1;
}

static int32_t longest_here(const struct special_tokens *s, const char *text, size_t len, bool control)
{
	int32_t i = last_not_after(s, text, len);
	if (i < 0)
		return -1;
	size_t common = 0;
	const struct vocab_token *t = token_at(s, i);
	while (common < len && common < t->text_len && t->text[common] == text[common])
		common++;
	for (; i >= 0; i = s->entries[i].prefix) {
		t = token_at(s, i);
		if (t->text_len <= common && (control || t->type == TOKEN_USER_DEFINED))
			return s->entries[i].id;
	}
	return -1;
}

int32_t special_tokens_find(const struct special_tokens *s, const char *text, size_t len, size_t from, bool control, size_t *at)
{
	for (*at = from; *at < len; (*at)++) {
		if (!s->starts[(uint8_t)text[*at]])
			continue;
		int32_t id = longest_here(s, text + *at, len - *at, control);
		if (id >= 0)
			return id;
	}
	return -1;
}
