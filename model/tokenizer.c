#include "model/tokenizer.h"

#include "base/limits.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "model/bpe.h"
#include "model/byte_level.h"
#include "model/pretokenize.h"
#include "model/special_tokens.h"
#include "model/vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"
#define WHOLE_PIECE_MAX 256 // bytes of a piece that may be one token against the merges (llama-bpe); its longest token has 128

// Control tokens that end an answer in the models that have them, whether or not the file's eos names them.
static const char *const stop_texts[] = {
	"<|im_end|>",
	"<|endoftext|>",
	"<|eot_id|>",
	"<|eom_id|>",
	"<|end_of_text|>",
	"<|end|>",
	"<|return|>",
	"<|call|>",
	"<end_of_turn>",
	"<end_of_utterance>",
	"</s>",
	"<eos>",
	"<EOT>",
	"[EOT]",
	"[EOS]",
};
static const char *const stop_keys[] = {
	"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

#define STOPS_MAX (ARRAY_LEN(stop_texts) + ARRAY_LEN(stop_keys))

struct tokenizer {
	struct vocab vocab;
	struct pretokenizer pre;
	struct special_tokens special;
	int32_t bos, eos;
	bool adds_bos;
	int32_t stops[STOPS_MAX];
	size_t n_stops;
};

static bool str_is(struct gguf_str s, const char *want)
{
	return s.len == strlen(want) && memcmp(s.data, want, s.len) == 0;
}

// get_id reads a special id; a missing key, or one that says "none" by all ones, gives -1.
static enum err get_id(const struct gguf *g, const char *key, int32_t n_tokens, int32_t *id, struct errmsg *em)
{
	uint64_t v = 0;
	*id = -1;
	if (gguf_find(g, key) == NULL)
		return OK;
	enum err e = gguf_get_u64(g, key, &v, em);
	if (e != OK || v == UINT32_MAX)
		return e;
	if (v >= (uint64_t)n_tokens)
		return errmsg_fail(
			em, ERR_FORMAT, "key %s is %" PRIu64 ", wanted a token id from 0 to %" PRId32, key, v, n_tokens - 1);
	*id = (int32_t)v;
	return OK;
}

static void add_stop(struct tokenizer *t, int32_t id)
{
	if (id >= 0 && !tokenizer_is_stop(t, id))
		t->stops[t->n_stops++] = id;
}

static enum err read_special_ids(const struct gguf *g, struct tokenizer *t, struct errmsg *em)
{
	int32_t n = t->vocab.n_tokens;
	enum err e = get_id(g, "tokenizer.ggml.bos_token_id", n, &t->bos, em);
	if (e == OK)
		e = get_id(g, stop_keys[0], n, &t->eos, em);
	for (size_t i = 0; e == OK && i < ARRAY_LEN(stop_keys); i++) {
		int32_t id = -1;
		e = get_id(g, stop_keys[i], n, &id, em);
		add_stop(t, id);
	}
	for (size_t i = 0; e == OK && i < ARRAY_LEN(stop_texts); i++) {
		int32_t id = vocab_find(&t->vocab, stop_texts[i], strlen(stop_texts[i]));
		if (id >= 0 && vocab_is_special(&t->vocab, id))
			add_stop(t, id);
	}
	t->adds_bos = t->pre.adds_bos;
	if (e == OK && gguf_find(g, "tokenizer.ggml.add_bos_token") != NULL)
		e = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->adds_bos, em);
	t->adds_bos = t->adds_bos && t->bos >= 0;
	return e;
}

static enum err open_pretokenizer(const struct gguf *g, struct pretokenizer *p, struct errmsg *em)
{
	struct gguf_str name = {"default", 7}; // what llama.cpp takes for files older than the key
	if (gguf_find(g, "tokenizer.ggml.pre") != NULL) {
		enum err e = gguf_get_str(g, "tokenizer.ggml.pre", &name, em);
		if (e != OK)
			return e;
	}
	return pretokenizer_open(name.data, name.len, p, em);
}

enum err tokenizer_open(const struct gguf *g, struct tokenizer **out, struct errmsg *em)
{
	struct gguf_str kind;
	char shown[64];
	*out = NULL;
	enum err e = gguf_get_str(g, "tokenizer.ggml.model", &kind, em);
	if (e != OK)
		return e;
	if (!str_is(kind, "gpt2"))
		return errmsg_fail(em, ERR_UNSUPPORTED, "tokenizer \"%s\" is not supported (tokenizer.ggml.model; want gpt2)",
			printable_copy(kind.data, kind.len, shown, sizeof shown));
	struct tokenizer *t = calloc(1, sizeof *t);
	if (t == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for a tokenizer");
	if ((e = open_pretokenizer(g, &t->pre, em)) != OK || (e = vocab_open(g, &t->vocab, em)) != OK ||
		(e = special_tokens_open(&t->vocab, &t->special, em)) != OK || (e = read_special_ids(g, t, em)) != OK) {
		tokenizer_close(t);
		return e;
	}
	*out = t;
	return OK;
}

void tokenizer_close(struct tokenizer *t)
{
	if (t == NULL)
		return;
	special_tokens_close(&t->special);
	vocab_close(&t->vocab);
	pretokenizer_close(&t->pre);
	free(t);
}

int32_t tokenizer_vocab_size(const struct tokenizer *t)
{
	return t->vocab.n_tokens;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
	return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
	return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
	return t->adds_bos;
}

bool tokenizer_is_stop(const struct tokenizer *t, int32_t id)
{
	for (size_t i = 0; i < t->n_stops; i++)
		if (t->stops[i] == id)
			return true;
	return false;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len)
{
	return vocab_find(&t->vocab, text, len);
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && id < t->vocab.n_tokens &&
		(t->vocab.tokens[id].type == TOKEN_CONTROL || t->vocab.tokens[id].type == TOKEN_UNKNOWN);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
	return id >= 0 && id < t->vocab.n_tokens && vocab_is_special(&t->vocab, id);
}

const char *tokenizer_piece(const struct tokenizer *t, int32_t id, bool special, size_t *len)
{
	*len = 0;
	if (id < 0 || id >= t->vocab.n_tokens)
		return "";
	const struct vocab_token *token = &t->vocab.tokens[id];
	if (token->type == TOKEN_UNUSED || (!special && tokenizer_is_control(t, id)))
		return "";
	*len = token->in_bytes ? token->piece_len : token->text_len;
	return token->in_bytes ? t->vocab.pieces + token->piece_offset : token->text;
}

// One call of tokenizer_encode.
struct encoding {
	const struct tokenizer *t;
	struct id_sink sink;
	struct bpe_scratch scratch;
	struct pretokenize_iter pieces;
	struct errmsg *em;
};

static enum err encode_cut(struct encoding *en, const char *piece, size_t len)
{
	while (len > 0) {
		size_t n = len;
		if (n > BPE_PIECE_MAX)
			for (n = BPE_PIECE_MAX; n > BPE_PIECE_MAX - 4 && ((uint8_t)piece[n] & 0xc0) == 0x80;)
				n--;
		enum err e = bpe_encode(&en->t->vocab, piece, n, &en->scratch, &en->sink, en->em);
		if (e != OK)
			return e;
		piece += n;
		len -= n;
	}
	return OK;
}

// find_whole returns the token that a piece is as a whole, or -1.
static int32_t find_whole(const struct vocab *v, const char *piece, size_t len)
{
	uint8_t text[WHOLE_PIECE_MAX * BYTE_LEVEL_CHAR_MAX];
	size_t n = 0;
	if (len > WHOLE_PIECE_MAX)
		return -1;
	for (size_t i = 0; i < len; i++)
		n += byte_level_encode((uint8_t)piece[i], text + n);
	return vocab_find(v, (const char *)text, n);
}

static enum err encode_valid(struct encoding *en, const char *text, size_t len)
{
	const char *piece;
	size_t n;
	enum err e = pretokenize_start(&en->pieces, &en->t->pre, text, len, en->em);
	while (e == OK && pretokenize_next(&en->pieces, &piece, &n)) {
		int32_t whole = en->t->pre.ignore_merges ? find_whole(&en->t->vocab, piece, n) : -1;
		e = whole >= 0 ? id_sink_push(&en->sink, whole, en->em) : encode_cut(en, piece, n);
	}
	return e != OK ? e : en->pieces.e;
}

// encode_invalid encodes bytes that are no UTF-8: each by its own token where the vocabulary has one, so that decoding gives the
// bytes back; U+FFFD stands for the others.
static enum err encode_invalid(struct encoding *en, const char *text, size_t len)
{
	enum err e = OK;
	for (size_t i = 0, n; e == OK && i < len; i += n) {
		bool known = en->t->vocab.byte_ids[(uint8_t)text[i]] >= 0;
		for (n = 1; i + n < len && known == (en->t->vocab.byte_ids[(uint8_t)text[i + n]] >= 0); n++)
			;
		if (known)
			e = encode_cut(en, text + i, n);
		for (size_t j = 0; !known && e == OK && j < n; j++)
			e = encode_cut(en, REPLACEMENT, strlen(REPLACEMENT));
	}
	return e;
}

// run_of returns how many bytes from the start of text are whole characters (or, with `valid` off, how many are none).
static size_t run_of(const char *text, size_t len, bool valid)
{
	size_t at = 0, n;
	while (at < len && (utf8_next(text + at, len - at, &n) == UTF8_CHAR) == valid)
		at += n;
	return at;
}

static enum err encode_text(struct encoding *en, const char *text, size_t len)
{
	enum err e = OK;
	bool valid = true;
	for (size_t i = 0; e == OK && i < len; valid = !valid) {
		size_t n = run_of(text + i, len - i, valid);
		if (n > 0)
			e = valid ? encode_valid(en, text + i, n) : encode_invalid(en, text + i, n);
		i += n;
	}
	return e;
}

static enum err encode_all(struct encoding *en, const char *text, size_t len, struct tokenize_options o)
{
	const struct tokenizer *t = en->t;
	enum err e = OK;
	if (o.add_bos && t->adds_bos)
		e = id_sink_push(&en->sink, t->bos, en->em);
	for (size_t from = 0; e == OK && from < len;) {
		size_t at;
		int32_t id = special_tokens_find(&t->special, text, len, from, o.parse_special, &at);
		e = encode_text(en, text + from, at - from);
		from = at;
		if (e == OK && id >= 0) {
			e = id_sink_push(&en->sink, id, en->em);
			from += t->vocab.tokens[id].text_len;
		}
	}
	return e;
}

enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, struct tokenize_options o, int32_t *out,
	size_t cap, size_t *n, struct errmsg *em)
{
	*n = 0;
	if (len > TOKENIZE_TEXT_MAX)
		return errmsg_fail(em, ERR_LIMIT, "a text of %zu bytes, wanted at most %d", len, TOKENIZE_TEXT_MAX);
	struct encoding en = {.t = t, .sink = {.out = out, .cap = cap}, .em = em};
	enum err e = encode_all(&en, text, len, o);
	pretokenize_end(&en.pieces);
	bpe_scratch_deinit(&en.scratch);
	*n = e == OK ? en.sink.n : 0;
	return e;
}
