#include "coordinator/shell/prompt.h"

#include "model/chat.h"

#include <stdlib.h>
#include <string.h>

static enum err encode_chat(const struct tokenizer *t, const struct gguf *g, const struct prompt_text *p, int32_t *out, size_t cap, size_t *n,
	struct errmsg *em)
{
	struct chat chat;
	enum err e = chat_init(&chat, g, t, em);
	if (e != OK)
		return e;
	struct chat_message messages[2];
	size_t n_messages = 0;
	if (p->system != NULL)
		messages[n_messages++] = (struct chat_message){.role = "system", .content = p->system, .content_len = strlen(p->system)};
	messages[n_messages++] = (struct chat_message){.role = "user", .content = p->text, .content_len = p->len};
	return chat_encode(&chat, messages, n_messages, true, out, cap, n, em);
}

enum err prompt_encode(const struct tokenizer *t, const struct gguf *g, const struct prompt_text *p, int32_t *out, size_t cap, size_t *n,
	struct errmsg *em)
{
	if (p->is_chat)
		return encode_chat(t, g, p, out, cap, n, em);
	return tokenizer_encode(t, p->text, p->len, (struct tokenize_options){.add_bos = true, .parse_special = true}, out, cap, n, em);
}
