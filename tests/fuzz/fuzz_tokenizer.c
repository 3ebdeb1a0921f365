// Any text against the tiny vocabulary, in which every byte has a token: decoding gives the text back, and the streaming decoder only
// whole characters. A first byte below 16 makes the rest a vocabulary file of its own instead: opening it must not crash, nor using it.
#include "base/assert.h"
#include "base/utf8.h"
#include "model/chat.h"
#include "model/gguf.h"
#include "model/tokenizer.h"
#include "tests/support/gguf_build.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode_and_back(const struct tokenizer *t, const char *text, size_t len, bool special)
{
	size_t cap = TOKENIZE_IDS_MAX(len), n, at = 0;
	int32_t *ids = malloc(cap * sizeof *ids);
	ASSERT(ids != NULL);
	struct stream_decoder d = {0};
	ASSERT(tokenizer_encode(t, text, len, (struct tokenize_options){.parse_special = special}, ids, cap, &n, NULL) == OK);
	for (size_t i = 0; i < n; i++) {
		size_t piece_len;
		const char *piece = tokenizer_piece(t, ids[i], true, &piece_len);
		ASSERT(piece_len <= len - at && memcmp(piece, text + at, piece_len) == 0);
		at += piece_len;
		char *out = malloc(STREAM_DECODER_OUT(piece_len));
		ASSERT(out != NULL);
		ASSERT(utf8_valid(out, stream_decoder_push(&d, piece, piece_len, out)));
		free(out);
		ASSERT(special || !tokenizer_is_control(t, ids[i]));
	}
	ASSERT(at == len);
	free(ids);
}

// open_tiny opens the tiny vocabulary once and never closes it: a fuzzer is one thread, and building it would be nearly all of a run.
static const struct tokenizer *open_tiny(void)
{
	static struct gguf_build b;
	static struct gguf g;
	static struct tokenizer *t;
	struct tiny_llama shape = tiny_llama_default(1);
	if (t != NULL)
		return t;
	gguf_build_tiny_llama(&b, &shape);
	ASSERT(gguf_parse(b.data, b.len, &g, NULL) == OK);
	ASSERT(tokenizer_open(&g, &t, NULL) == OK);
	return t;
}

static void fuzz_text(const uint8_t *data, size_t size)
{
	// A heap copy of the very size, so that a read past the end is seen.
	char *text = malloc(size > 0 ? size : 1);
	ASSERT(text != NULL);
	if (size > 0)
		memcpy(text, data, size);
	encode_and_back(open_tiny(), text, size, false);
	encode_and_back(open_tiny(), text, size, true);
	free(text);
}

static void fuzz_vocab(const uint8_t *data, size_t size)
{
	struct gguf g = {0};
	struct tokenizer *t = NULL;
	struct errmsg em;
	static const char text[] = "Hello, w\xc3\xb6rld 12\n<|im_start|>\xff ab";
	int32_t ids[TOKENIZE_IDS_MAX(sizeof text)];
	size_t n;
	if (gguf_parse(data, size, &g, &em) == OK && tokenizer_open(&g, &t, &em) == OK) {
		struct tokenize_options o = {.add_bos = true, .parse_special = true};
		ASSERT(tokenizer_encode(t, text, strlen(text), o, ids, sizeof ids / sizeof ids[0], &n, &em) == OK);
		for (int32_t id = -1; id <= tokenizer_vocab_size(t); id++) {
			size_t len;
			(void)tokenizer_piece(t, id, true, &len);
		}
		struct chat c;
		struct chat_message m = {"user", text, strlen(text)};
		if (chat_init(&c, &g, t, &em) == OK)
			(void)chat_encode(&c, &m, 1, true, ids, sizeof ids / sizeof ids[0], &n, &em);
	}
	tokenizer_close(t);
	gguf_deinit(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0 && data[0] < 16)
		fuzz_vocab(data + 1, size - 1);
	else
		fuzz_text(data, size);
	return 0;
}
