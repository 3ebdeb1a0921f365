#include "model/pretokenize.h"

#include "base/printable.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <string.h>

// White space is spelled out, because PCRE2's \s also takes U+180E, which Unicode gave up as white space in 6.3.
#define WS "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACES "[" WS "]"
#define NOT_SPACE "[^" WS "]"
#define NO_WORD "[^" WS "\\p{L}\\p{N}]"

// GPT-2: words, numbers and the rest, each with one blank before it; white space leaves its last character to what follows.
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?" NO_WORD "+|" SPACES "+(?!" NOT_SPACE ")|" SPACES "+"
// Llama 3 and Qwen 2: contractions in any case, any one character before a word, line ends kept with what is before them.
#define CONTRACTIONS "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
#define MODERN(number) \
	CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number "| ?" NO_WORD "+[\\r\\n]*|" SPACES "*[\\r\\n]+|" SPACES \
		     "+(?!" NOT_SPACE ")|" SPACES "+"

struct known {
	const char *name;
	const char *steps[PRETOKENIZE_STEPS_MAX];
	bool ignore_merges;
	bool adds_bos;
};

static const struct known table[] = {
	{"default", {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false},
	{"gpt-2", {GPT2}, false, false},
	{"mpt", {GPT2}, false, false},
	{"smollm", {"\\p{N}", GPT2}, false, false},
	{"starcoder", {"\\p{N}", GPT2}, false, false},
	{"refact", {"\\p{N}", GPT2}, false, false},
	{"command-r", {"\\p{N}", GPT2}, false, false},
	{"llama-bpe", {MODERN("\\p{N}{1,3}")}, true, true},
	{"llama3", {MODERN("\\p{N}{1,3}")}, true, true},
	{"llama-v3", {MODERN("\\p{N}{1,3}")}, true, true},
	{"qwen2", {MODERN("\\p{N}")}, false, false},
};

// The patterns are linear; these bound what a mistake in one could cost (a match of 16 MiB needs as many backtracks).
#define MATCH_LIMIT 100000000u
#define HEAP_LIMIT_KIB (64u * 1024u)

static const struct known *find_known(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
			return &table[i];
	return NULL;
}

static enum err refuse(const char *name, size_t len, struct errmsg *em)
{
	char list[256] = "", shown[64];
	for (size_t i = 0, used = 0; i < ARRAY_LEN(table) && used + strlen(table[i].name) + 3 < sizeof list; i++) {
		const char *parts[] = {i > 0 ? ", " : "", table[i].name};
		for (size_t j = 0; j < ARRAY_LEN(parts); j++) {
			memcpy(list + used, parts[j], strlen(parts[j]) + 1);
			used += strlen(parts[j]);
		}
	}
	return errmsg_fail(em, ERR_UNSUPPORTED, "pre-tokenizer \"%s\" is not supported (tokenizer.ggml.pre; want one of %s)",
		printable_copy(name, len, shown, sizeof shown), list);
}

static enum err compile(struct pretokenizer *p, const char *pattern, struct errmsg *em)
{
	int code = 0;
	PCRE2_SIZE offset = 0;
	pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
	if (re == NULL) {
		char words[128] = "";
		pcre2_get_error_message(code, (PCRE2_UCHAR *)words, sizeof words);
		return errmsg_fail(em, ERR_UNSUPPORTED, "this PCRE2 cannot compile pre-tokenizer \"%s\": %s", p->name, words);
	}
	// Without JIT (not built in, or no executable memory) pcre2_match interprets: slower, same result.
	(void)pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
	p->codes[p->n_steps++] = re;
	return OK;
}

enum err pretokenizer_open(const char *name, size_t len, struct pretokenizer *p, struct errmsg *em)
{
	*p = (struct pretokenizer){0};
	const struct known *k = find_known(name, len);
	if (k == NULL)
		return refuse(name, len, em);
	p->name = k->name;
	p->ignore_merges = k->ignore_merges;
	p->adds_bos = k->adds_bos;
	pcre2_match_context *ctx = pcre2_match_context_create(NULL);
	enum err e = ctx ? OK : errmsg_fail(em, ERR_NOMEM, "no memory for the pre-tokenizer");
	p->match_ctx = ctx;
	for (int i = 0; e == OK && i < PRETOKENIZE_STEPS_MAX && k->steps[i] != NULL; i++)
		e = compile(p, k->steps[i], em);
	if (e != OK) {
		pretokenizer_close(p);
		return e;
	}
	pcre2_set_match_limit(ctx, MATCH_LIMIT);
	pcre2_set_heap_limit(ctx, HEAP_LIMIT_KIB);
	return OK;
}

void pretokenizer_close(struct pretokenizer *p)
{
	for (int i = 0; i < p->n_steps; i++)
		pcre2_code_free(p->codes[i]);
	pcre2_match_context_free(p->match_ctx);
	*p = (struct pretokenizer){0};
}

enum err pretokenize_start(
	struct pretokenize_iter *it, const struct pretokenizer *p, const char *text, size_t len, struct errmsg *em)
{
	void *kept = it->match_data;
	*it = (struct pretokenize_iter){.p = p, .text = text, .match_data = kept, .em = em};
	it->levels[0].end = len;
	if (it->match_data == NULL)
		it->match_data = pcre2_match_data_create(1, NULL);
	return it->match_data ? OK : errmsg_fail(em, ERR_NOMEM, "no memory for the pre-tokenizer");
}

void pretokenize_end(struct pretokenize_iter *it)
{
	pcre2_match_data_free(it->match_data);
	it->match_data = NULL;
}

// look_ahead finds the next match of level l; none is a match at the end, of nothing.
static bool look_ahead(struct pretokenize_iter *it, struct pretokenize_level *l, const pcre2_code *re)
{
	PCRE2_SPTR subject = (PCRE2_SPTR)it->text + l->at;
	size_t len = l->end - l->at;
	pcre2_match_data *md = it->match_data;
	int rc = pcre2_match(re, subject, len, 0, PCRE2_NO_UTF_CHECK, md, it->p->match_ctx);
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
		rc = pcre2_match(re, subject, len, 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, md, it->p->match_ctx);
	l->match_begin = l->match_end = l->end;
	if (rc == PCRE2_ERROR_NOMATCH)
		return true;
	if (rc < 0) {
		char words[128] = "";
		pcre2_get_error_message(rc, (PCRE2_UCHAR *)words, sizeof words);
		it->e = errmsg_fail(it->em, ERR_LIMIT, "pre-tokenizer \"%s\" gives up on this text: %s", it->p->name, words);
		return false;
	}
	const PCRE2_SIZE *found = pcre2_get_ovector_pointer(md);
	if (found[1] > found[0]) {
		l->match_begin = l->at + found[0];
		l->match_end = l->at + found[1];
	}
	return true;
}

// cut takes the next piece off level l: what is before the match ahead, or the match.
static struct pretokenize_level cut(struct pretokenize_level *l)
{
	size_t begin = l->at;
	l->at = begin < l->match_begin ? l->match_begin : l->match_end;
	return (struct pretokenize_level){.at = begin, .end = l->at};
}

bool pretokenize_next(struct pretokenize_iter *it, const char **piece, size_t *len)
{
	for (;;) {
		struct pretokenize_level *l = &it->levels[it->depth];
		if (l->at == l->end) {
			if (it->depth == 0)
				return false;
			it->depth--;
			continue;
		}
		if (l->match_end <= l->at && !look_ahead(it, l, it->p->codes[it->depth]))
			return false;
		struct pretokenize_level next = cut(l);
		if (it->depth + 1 == it->p->n_steps) {
			*piece = it->text + next.at;
			*len = next.end - next.at;
			return true;
		}
		it->levels[++it->depth] = next;
	}
}
