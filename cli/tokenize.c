// hearth tokenize: a text's tokens, or those of a conversation with one message.
#include "cli/command.h"

#include "base/limits.h"
#include "cli/read_text.h"
#include "model/chat.h"
#include "model/gguf.h"
#include "model/mapped_file.h"
#include "model/tokenizer.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
	const struct options *opts;
	struct mapped_file file;
	struct gguf gguf;
	struct tokenizer *tokenizer;
	char *stdin_text; // owned; NULL with -p
	const char *text;
	size_t len;
	int32_t *ids; // (n), owned
	size_t n;
};

static enum err open_model(struct job *j, struct errmsg *em)
{
	enum err e = mapped_file_open(j->opts->model, &j->file, em);
	if (e == OK)
		e = gguf_parse(j->file.data, j->file.bytes, &j->gguf, em);
	if (e == OK)
		e = tokenizer_open(&j->gguf, &j->tokenizer, em);
	return e == OK ? OK : errmsg_prefix(em, e, "%s", j->opts->model);
}

static enum err encode_chat(struct job *j, size_t cap, struct errmsg *em)
{
	struct chat chat;
	struct chat_message messages[2];
	size_t n = 0;
	enum err e = chat_init(&chat, &j->gguf, j->tokenizer, em);
	if (e != OK)
		return errmsg_prefix(em, e, "%s", j->opts->model);
	if (j->opts->system)
		messages[n++] = (struct chat_message){"system", j->opts->system, strlen(j->opts->system)};
	messages[n++] = (struct chat_message){"user", j->text, j->len};
	return chat_encode(&chat, messages, n, true, j->ids, cap, &j->n, em);
}

static enum err encode(struct job *j, struct errmsg *em)
{
	size_t system_len = j->opts->system ? strlen(j->opts->system) : 0;
	// What --chat adds: at most a default system message and a few markers.
	size_t cap = TOKENIZE_IDS_MAX(j->len + system_len + CHAT_SYSTEM_CAP + 256);
	if (j->len > TOKENIZE_TEXT_MAX)
		return errmsg_fail(em, ERR_LIMIT, "a text of more than %d bytes", TOKENIZE_TEXT_MAX);
	j->ids = malloc(cap * sizeof *j->ids);
	if (j->ids == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for %zu tokens", cap);
	if (j->opts->chat)
		return encode_chat(j, cap, em);
	struct tokenize_options o = {.add_bos = !j->opts->no_bos, .parse_special = j->opts->special};
	return tokenizer_encode(j->tokenizer, j->text, j->len, o, j->ids, cap, &j->n, em);
}

static void print_quoted(const char *piece, size_t len)
{
	struct stream_decoder whole = {0};
	char *out = malloc(STREAM_DECODER_OUT(len));
	size_t n = out ? stream_decoder_push(&whole, piece, len, out) : 0;
	// Bytes that are no character are shown as such; all others are safe to print once control characters are escaped.
	bool as_bytes = n != len || (n > 0 && memcmp(out, piece, len) != 0);
	free(out);
	putchar('"');
	for (size_t i = 0; i < len; i++) {
		uint8_t c = (uint8_t)piece[i];
		if (c == '\n')
			fputs("\\n", stdout);
		else if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c == 0x7f || (as_bytes && c >= 0x80))
			printf("\\x%02x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void print_lines(const struct job *j)
{
	for (size_t i = 0; i < j->n; i++) {
		size_t len;
		const char *piece = tokenizer_piece(j->tokenizer, j->ids[i], true, &len);
		printf("%7" PRId32 "  ", j->ids[i]);
		print_quoted(piece, len);
		putchar('\n');
	}
}

// piece_json makes a string of one piece: U+FFFD where it is no UTF-8 by itself.
static json_t *piece_json(const char *piece, size_t len)
{
	struct stream_decoder d = {0};
	char *out = malloc(STREAM_DECODER_OUT(len));
	if (out == NULL)
		return NULL;
	size_t n = stream_decoder_push(&d, piece, len, out);
	n += stream_decoder_finish(&d, out + n);
	json_t *s = json_stringn(out, n);
	free(out);
	return s;
}

static enum err print_json(const struct job *j, struct errmsg *em)
{
	json_t *ids = json_array(), *pieces = json_array(), *root = json_object();
	int bad = 0;
	for (size_t i = 0; i < j->n; i++) {
		size_t len;
		const char *piece = tokenizer_piece(j->tokenizer, j->ids[i], true, &len);
		bad |= json_array_append_new(ids, json_integer(j->ids[i]));
		bad |= json_array_append_new(pieces, piece_json(piece, len));
	}
	bad |= json_object_set_new(root, "n_tokens", json_integer((json_int_t)j->n));
	bad |= json_object_set_new(root, "ids", ids);
	bad |= json_object_set_new(root, "pieces", pieces);
	bad = bad || json_dumpf(root, stdout, JSON_COMPACT) != 0;
	putchar('\n');
	json_decref(root);
	return bad ? errmsg_fail(em, ERR_IO, "cannot write the tokens as JSON") : OK;
}

static enum err run(struct job *j, struct errmsg *em)
{
	j->text = j->opts->prompt;
	j->len = j->text ? strlen(j->text) : 0;
	enum err e = open_model(j, em);
	if (e == OK && j->text == NULL) {
		e = read_text("standard input", stdin, TOKENIZE_TEXT_MAX, &j->stdin_text, &j->len, em);
		j->text = j->stdin_text;
	}
	if (e == OK)
		e = encode(j, em);
	if (e == OK && j->opts->json)
		e = print_json(j, em);
	else if (e == OK)
		print_lines(j);
	if (e == OK && fflush(stdout) != 0)
		e = errmsg_fail(em, ERR_IO, "cannot write to standard output");
	return e;
}

int tokenize_main(const struct command_ctx *ctx)
{
	struct job j = {.opts = ctx->opts};
	struct errmsg em;
	enum err e = run(&j, &em);
	free(j.ids);
	free(j.stdin_text);
	tokenizer_close(j.tokenizer);
	gguf_deinit(&j.gguf);
	mapped_file_close(&j.file);
	return e == OK ? EXIT_DONE : command_fail(ctx, "%s", em.text);
}
