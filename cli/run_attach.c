#include "cli/run_attach.h"

#include "cli/admin_command.h"
#include "cli/answer_print.h"
#include "net/admin_socket.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static enum err send_request(struct admin_conn *conn, const struct answer_print *p, const struct options *o, struct errmsg *em)
{
	json_t *q = json_pack("{s:s, s:s%, s:b, s:i, s:f, s:i, s:f, s:f, s:b}", "cmd", "generate", "prompt", p->prompt, p->prompt_len, "chat", o->chat,
		"max_tokens", (int)o->max_tokens, "temperature", (double)o->temp, "top_k", (int)o->top_k, "top_p", (double)o->top_p, "min_p", (double)o->min_p,
		"logits_hash", o->json && !o->no_logits_hash);
	if (q == NULL)
		return errmsg_fail(em, ERR_FORMAT, "the prompt is not UTF-8");
	char seed[24];
	snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
	if (options_given(o, offsetof(struct options, seed)))
		json_object_set_new(q, "seed", json_string(seed));
	if (o->system)
		json_object_set_new(q, "system", json_string(o->system));
	char *line = json_dumps(q, JSON_COMPACT);
	json_decref(q);
	if (line == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the request");
	enum err e = admin_write_line(conn, line, em);
	free(line);
	return e;
}

static void take_begin(struct answer_print *p, const json_t *o)
{
	const json_t *ids = json_object_get(o, "prompt_ids");
	size_t n = json_array_size(ids);
	p->prompt_ids = calloc(n ? n : 1, sizeof *p->prompt_ids);
	for (size_t i = 0; p->prompt_ids && i < n; i++)
		p->prompt_ids[p->n_prompt++] = (int32_t)json_integer_value(json_array_get(ids, i));
	const char *seed = json_string_value(json_object_get(o, "seed")), *simd = json_string_value(json_object_get(o, "simd"));
	enum wire_type wire;
	p->seed = seed ? strtoull(seed, NULL, 10) : 0;
	snprintf(p->attached_simd, sizeof p->attached_simd, "%s", simd ? simd : "");
	p->simd = p->attached_simd;
	const char *wire_name = json_string_value(json_object_get(o, "wire"));
	if (wire_name && wire_type_find(wire_name, &wire) == OK)
		p->wire = wire_type_name(wire);
}

static enum answer_end end_find(const char *name)
{
	if (name && strcmp(name, "stop") == 0)
		return ANSWER_STOP;
	if (name && strcmp(name, "length") == 0)
		return ANSWER_LENGTH;
	return name && strcmp(name, "cancelled") == 0 ? ANSWER_CANCELLED : ANSWER_ERROR;
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

// take_line handles one line of the answer; true when it was the last.
static bool take_line(struct answer_print *p, const json_t *o, struct answer_result *r)
{
	const json_t *token = json_object_get(o, "token"), *text = json_object_get(o, "text");
	if (json_is_integer(token) && json_is_string(text)) {
		int32_t id = (int32_t)json_integer_value(token);
		if (id >= 0) {
			r->last_ns = loop_clock_ns();
			if (r->n_tokens++ == 0)
				r->first_ns = r->last_ns;
		}
		answer_print_text(p, id, json_string_value(text), json_string_length(text));
		return false;
	}
	if (json_object_get(o, "prompt_ids")) {
		take_begin(p, o);
		return false;
	}
	r->end = end_find(json_string_value(json_object_get(o, "end")));
	r->err = r->end == ANSWER_ERROR ? ERR_STATE : OK;
	r->text = text_of(o, "error");
	r->hash = text_of(o, "logits_hash");
	answer_print_end(p, r);
	return true;
}

static enum err show_answer(struct admin_conn *conn, struct answer_print *p, struct answer_result *r, struct errmsg *em)
{
	for (;;) {
		const char *line;
		size_t len;
		enum err e = admin_read_line(conn, -1, &line, &len, em);
		if (e != OK)
			return e;
		json_error_t bad;
		json_t *o = json_loadb(line, len, 0, &bad);
		if (o == NULL)
			return errmsg_fail(em, ERR_FORMAT, "the coordinator sent what is not JSON");
		bool is_last = take_line(p, o, r);
		json_decref(o);
		if (is_last)
			return OK;
	}
}

int run_attach(const struct command_ctx *ctx)
{
	struct answer_print p = {0};
	struct admin_conn conn = {.fd = -1};
	struct answer_result r = {.end = ANSWER_ERROR, .text = "", .hash = ""};
	struct errmsg em = {0};
	enum err e = answer_print_open(&p, ctx, &em);
	if (e == OK)
		e = admin_reach(ctx, &conn, &em);
	p.begin_ns = loop_clock_ns();
	if (e == OK) {
		e = send_request(&conn, &p, ctx->opts, &em);
		if (e == OK)
			e = show_answer(&conn, &p, &r, &em);
		admin_disconnect(&conn);
	}
	answer_print_close(&p);
	if (e != OK)
		return command_fail(ctx, "%s", em.text);
	return r.end == ANSWER_ERROR ? EXIT_ERROR : EXIT_DONE;
}
