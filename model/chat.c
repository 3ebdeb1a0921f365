#include "model/chat.h"

#include "base/bytes.h"
#include "base/printable.h"

#include <stdlib.h>
#include <string.h>

#define START "<|im_start|>"
#define END "<|im_end|>"

static const char *const roles[] = {"system", "user", "assistant"};

static bool text_at(struct gguf_str s, size_t at, const char *what)
{
	return strlen(what) <= s.len - at && memcmp(s.data + at, what, strlen(what)) == 0;
}

static const char *find(struct gguf_str s, size_t from, const char *what)
{
	for (const char *p; from < s.len && (p = memchr(s.data + from, what[0], s.len - from)) != NULL; from++) {
		from = (size_t)(p - s.data);
		if (text_at(s, from, what))
			return p;
	}
	return NULL;
}

// skip_line_end moves past a line end: a real one, or, inside a string of the template, also one written \n.
static bool skip_line_end(struct gguf_str s, size_t *at, char quote)
{
	size_t n = text_at(s, *at, "\n") ? 1 : quote && text_at(s, *at, "\\n") ? 2 : 0;
	*at += n;
	return n > 0;
}

static char unescape(char c)
{
	return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
}

// copy_literal copies the words from `at` up to END; false when the template computes something before that: its string ends, or an
// expression begins.
static bool copy_literal(struct gguf_str s, size_t at, char quote, struct chat *c)
{
	for (size_t n = 0; at < s.len && n < CHAT_SYSTEM_CAP; at++, n++) {
		if (text_at(s, at, END)) {
			c->default_system_len = n;
			return true;
		}
		char ch = s.data[at];
		if (quote ? ch == quote : text_at(s, at, "{{") || text_at(s, at, "{%"))
			return false;
		if (quote && ch == '\\' && at + 1 < s.len)
			ch = unescape(s.data[++at]);
		c->default_system[n] = ch;
	}
	return false;
}

// find_default_system looks for a whole system message written out in the template: that is the one for conversations without.
static void find_default_system(struct gguf_str s, struct chat *c)
{
	static const char head[] = START "system";
	const char *p;
	for (size_t at = 0; !c->has_default_system && (p = find(s, at, head)) != NULL;) {
		at = (size_t)(p - s.data);
		char quote = at > 0 && (s.data[at - 1] == '\'' || s.data[at - 1] == '"') ? s.data[at - 1] : '\0';
		at += strlen(head);
		c->has_default_system = skip_line_end(s, &at, quote) && copy_literal(s, at, quote, c);
	}
}

static enum err find_marker(const struct tokenizer *t, const char *text, int32_t *id, struct errmsg *em)
{
	*id = tokenizer_find(t, text, strlen(text));
	if (*id >= 0 && tokenizer_is_special(t, *id))
		return OK;
	return errmsg_fail(em, ERR_UNSUPPORTED, "the chat template uses %s, which is no special token of the vocabulary", text);
}

enum err chat_init(struct chat *c, const struct gguf *g, const struct tokenizer *t, struct errmsg *em)
{
	static const char *const changes[] = {"trim", "strip("};
	struct gguf_str s;
	*c = (struct chat){.tokenizer = t};
	enum err e = gguf_get_str(g, "tokenizer.chat_template", &s, em);
	if (e != OK)
		return e;
	if (!find(s, 0, START) || !find(s, 0, END))
		return errmsg_fail(em, ERR_UNSUPPORTED,
			"the chat template of this file is not ChatML (%s ... %s), the only kind there is yet", START, END);
	for (size_t i = 0; i < ARRAY_LEN(changes); i++)
		if (find(s, 0, changes[i]))
			return errmsg_fail(em, ERR_UNSUPPORTED,
				"the chat template of this file changes messages (%s): only plain ChatML is there yet",
				changes[i]);
	if ((e = find_marker(t, START, &c->start_id, em)) != OK || (e = find_marker(t, END, &c->end_id, em)) != OK)
		return e;
	find_default_system(s, c);
	return OK;
}

// One conversation being written.
struct chat_out {
	const struct chat *chat;
	int32_t *ids;
	size_t cap;
	size_t n;
	struct errmsg *em;
};

static enum err put_id(struct chat_out *o, int32_t id)
{
	if (o->n == o->cap)
		return errmsg_fail(o->em, ERR_LIMIT, "the conversation has more than %zu tokens", o->cap);
	o->ids[o->n++] = id;
	return OK;
}

static enum err put_text(struct chat_out *o, const char *text, size_t len)
{
	size_t n;
	enum err e = tokenizer_encode(
		o->chat->tokenizer, text, len, (struct tokenize_options){0}, o->ids + o->n, o->cap - o->n, &n, o->em);
	o->n += n;
	return e;
}

// put_head writes the start marker, the role and the content in one text: a merge may join the line end with what follows.
static enum err put_head(struct chat_out *o, const char *role, const char *content, size_t content_len)
{
	size_t role_len = strlen(role), len;
	enum err e = put_id(o, o->chat->start_id);
	if (e != OK)
		return e;
	char *text = add_size(role_len + 1, content_len, &len) ? malloc(len) : NULL;
	if (text == NULL)
		return errmsg_fail(o->em, ERR_NOMEM, "no memory for a message of %zu bytes", content_len);
	memcpy(text, role, role_len);
	text[role_len] = '\n';
	if (content_len > 0)
		memcpy(text + role_len + 1, content, content_len);
	e = put_text(o, text, len);
	free(text);
	return e;
}

static enum err put_message(struct chat_out *o, const char *role, const char *content, size_t content_len)
{
	enum err e = put_head(o, role, content, content_len);
	if (e == OK)
		e = put_id(o, o->chat->end_id);
	return e == OK ? put_text(o, "\n", 1) : e;
}

static enum err check_role(const char *role, struct errmsg *em)
{
	char shown[64];
	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (strcmp(role, roles[i]) == 0)
			return OK;
	return errmsg_fail(em, ERR_UNSUPPORTED, "role \"%s\" is not supported (want system, user or assistant)",
		printable_copy(role, strlen(role), shown, sizeof shown));
}

static enum err put_all(struct chat_out *o, const struct chat_message *messages, size_t n_messages, bool answer)
{
	const struct chat *c = o->chat;
	enum err e = tokenizer_adds_bos(c->tokenizer) ? put_id(o, tokenizer_bos(c->tokenizer)) : OK;
	if (e == OK && n_messages > 0 && c->has_default_system && strcmp(messages[0].role, "system") != 0)
		e = put_message(o, "system", c->default_system, c->default_system_len);
	for (size_t i = 0; e == OK && i < n_messages; i++) {
		e = check_role(messages[i].role, o->em);
		if (e == OK)
			e = put_message(o, messages[i].role, messages[i].content, messages[i].content_len);
	}
	return e == OK && answer ? put_head(o, "assistant", "", 0) : e;
}

enum err chat_encode(const struct chat *c, const struct chat_message *messages, size_t n_messages, bool answer, int32_t *out,
	size_t cap, size_t *n, struct errmsg *em)
{
	struct chat_out o = {.chat = c, .ids = out, .cap = cap, .em = em};
	enum err e = put_all(&o, messages, n_messages, answer);
	*n = e == OK ? o.n : 0;
	return e;
}
