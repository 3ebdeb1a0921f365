#include "cli/answer_print.h"

#include "cli/read_text.h"
#include "kernels/canonical.h"
#include "net/loop.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_MAX (512 * 1024) // bytes; a context of 128,000 tokens is about that

enum err answer_print_open(struct answer_print *p, const struct command_ctx *ctx, struct errmsg *em)
{
	*p = (struct answer_print){.opts = ctx->opts, .simd = "", .wire = wire_type_name(ctx->opts->wire)};
	if (ctx->opts->prompt == NULL)
		return read_text("the prompt on standard input", stdin, PROMPT_MAX, &p->prompt, &p->prompt_len, em);
	p->prompt = strdup(ctx->opts->prompt);
	if (p->prompt == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the prompt");
	p->prompt_len = strlen(p->prompt);
	return OK;
}

void answer_print_close(struct answer_print *p)
{
	free(p->prompt);
	free(p->prompt_ids);
	free(p->output_ids);
	free(p->text);
	*p = (struct answer_print){0};
}

static void *grow(void *data, size_t need, size_t *cap, size_t size)
{
	if (need <= *cap)
		return data;
	*cap = need * 2;
	data = realloc(data, *cap * size);
	if (data == NULL) {
		fputs("hearth run: out of memory\n", stderr);
		exit(EXIT_ERROR);
	}
	return data;
}

static void note_time(struct answer_print *p, int64_t now_ns)
{
	if (p->n_output > 0 && now_ns - p->token_ns > p->longest_gap_ns)
		p->longest_gap_ns = now_ns - p->token_ns;
	p->token_ns = now_ns;
}

void answer_print_text(struct answer_print *p, int32_t token, const char *text, size_t len)
{
	if (p->is_quiet)
		return;
	if (token >= 0) {
		note_time(p, loop_clock_ns());
		size_t cap = (size_t)p->output_cap;
		p->output_ids = grow(p->output_ids, (size_t)p->n_output + 1, &cap, sizeof *p->output_ids);
		p->output_cap = (int32_t)cap;
		p->output_ids[p->n_output++] = token;
	}
	if (!p->opts->json) {
		fwrite(text, 1, len, stdout);
		fflush(stdout);
		return;
	}
	p->text = grow(p->text, p->text_len + len, &p->text_cap, 1);
	if (len > 0) // a token may have no text, the first one as well
		memcpy(p->text + p->text_len, text, len);
	p->text_len += len;
}

static const char *end_words(enum answer_end end)
{
	static const char *const words[] = {[ANSWER_STOP] = "stop", [ANSWER_LENGTH] = "length", [ANSWER_CANCELLED] = "cancelled", [ANSWER_ERROR] = "error"};
	return words[end];
}

static json_t *ids_json(const int32_t *ids, int32_t n)
{
	json_t *a = json_array();
	for (int32_t i = 0; i < n; i++)
		json_array_append_new(a, json_integer(ids[i]));
	return a;
}

static double ms(int64_t ns)
{
	return (double)ns / 1e6;
}

static double per_second(int32_t n, int64_t ns)
{
	return ns > 0 ? n * 1e9 / (double)ns : 0;
}

static json_t *counts_json(const uint64_t *counts, int32_t n)
{
	json_t *a = json_array();
	for (int32_t i = 0; i < n; i++)
		json_array_append_new(a, json_integer((json_int_t)counts[i]));
	return a;
}

static json_t *group_json(const struct answer_print *p)
{
	return json_pack("{s:s, s:i, s:I, s:o, s:o, s:I}", "shares", p->opts->tp, "members", p->n_members, "exchanges", (json_int_t)p->group.n_exchanges,
		"received_bytes", counts_json(p->group.received, p->n_members), "received_messages", counts_json(p->group.n_messages, p->n_members), "head_bytes", (json_int_t)p->group.head_bytes);
}

static void print_json(struct answer_print *p, const struct answer_result *r)
{
	bool has_first = r->first_ns > 0;
	int64_t prefill_ns = has_first ? r->first_ns - p->begin_ns : 0, decode_ns = has_first ? r->last_ns - r->first_ns : 0;
	int32_t n_decode = has_first ? r->n_tokens - 1 : 0;
	json_t *timings = json_pack("{s:f, s:f, s:i, s:f, s:f, s:i, s:f, s:f, s:f}", "load_ms", ms(p->load_ns), "ttft_ms", ms(prefill_ns), "prefill_tokens",
		p->n_prompt, "prefill_ms", ms(prefill_ns), "prefill_tps", per_second(p->n_prompt, prefill_ns), "decode_tokens", n_decode, "decode_ms",
		ms(decode_ns), "decode_tps", per_second(n_decode, decode_ns), "longest_gap_ms", ms(p->longest_gap_ns));
	char seed[24];
	snprintf(seed, sizeof seed, "%" PRIu64, p->seed); // as text: JSON numbers above 2^53 do not survive every reader
	json_t *o = json_pack("{s:o, s:o, s:s%, s:s, s:s, s:s, s:s, s:i, s:o}", "prompt_ids", ids_json(p->prompt_ids, p->n_prompt), "output_ids",
		ids_json(p->output_ids, p->n_output), "text", p->text ? p->text : "", p->text_len, "stop_reason", end_words(r->end), "seed", seed, "wire",
		p->wire, "simd", p->simd, "canon_version", CANON_VERSION, "timings", timings);
	json_object_set_new(o, "logits_hash", r->hash[0] ? json_string(r->hash) : json_null());
	json_object_set_new(o, "threads", json_integer(options_n_threads(p->opts)));
	if (p->weights.host != NULL)
		json_object_set_new(o, "memory", weight_report_json(&p->weights, r->n_tokens));
	if (p->n_members > 0)
		json_object_set_new(o, "tp", group_json(p));
	if (r->end == ANSWER_ERROR)
		json_object_set_new(o, "error", json_string(r->text));
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(o);
}

void answer_print_end(struct answer_print *p, const struct answer_result *r)
{
	if (p->is_quiet)
		return;
	if (p->opts->json) {
		print_json(p, r);
	} else {
		if (p->n_output > 0)
			putchar('\n');
		fflush(stdout);
		if (r->n_tokens > 1)
			fprintf(stderr, "%d tokens, first after %.0f ms, then %.1f tokens/s\n", r->n_tokens, ms(r->first_ns - p->begin_ns),
				per_second(r->n_tokens - 1, r->last_ns - r->first_ns));
		if (p->weights.host != NULL)
			weight_report_line(&p->weights, r->n_tokens, stderr);
	}
	if (r->end == ANSWER_ERROR)
		command_print_error("run", r->text);
}

void answer_print_interrupted(struct answer_print *p)
{
	if (!p->opts->json && p->n_output > 0)
		putchar('\n');
	fflush(stdout);
	p->is_quiet = true;
}
