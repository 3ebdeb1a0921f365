#include "cli/weight_report.h"

#include "cli/process_memory.h"

static void add(struct weight_reading *sum, const struct residency_stats *s)
{
	sum->read_bytes += s->read_bytes;
	sum->wasted_bytes += s->wasted_bytes;
	sum->read_ns += s->read_ns;
	sum->stall_ns += s->stall_ns;
}

void weight_report_read(const struct weight_report *w, struct weight_reading *out)
{
	struct residency_stats s;
	*out = (struct weight_reading){0};
	if (w->host == NULL)
		return;
	if (w->host->node != NULL && node_runtime_weight_stats(w->host->node, &s))
		add(out, &s);
	coord_runtime_head_stats(w->host->coord, &s);
	add(out, &s);
}

static struct weight_reading between(const struct weight_reading *from, const struct weight_reading *to)
{
	return (struct weight_reading){.read_bytes = to->read_bytes - from->read_bytes, .wasted_bytes = to->wasted_bytes - from->wasted_bytes,
		.read_ns = to->read_ns - from->read_ns, .stall_ns = to->stall_ns - from->stall_ns};
}

static double rate(const struct weight_reading *r)
{
	return r->read_ns > 0 ? (double)r->read_bytes * 1e9 / (double)r->read_ns : 0;
}

static json_t *reading_json(const struct weight_reading *r, int32_t n_steps)
{
	double n = n_steps > 0 ? n_steps : 1;
	return json_pack("{s:I, s:f, s:f, s:f, s:f, s:I}", "read_bytes", (json_int_t)r->read_bytes, "stall_ms", (double)r->stall_ns / 1e6,
		"read_bytes_per_token", (double)r->read_bytes / n, "stall_ms_per_token", (double)r->stall_ns / 1e6 / n, "read_bytes_per_s", rate(r),
		"wasted_bytes", (json_int_t)r->wasted_bytes);
}

static json_t *place_json(const struct residency_stats *s)
{
	return json_pack("{s:s, s:b, s:i, s:i, s:i, s:I, s:I, s:I}", "reader", weight_reader_name(s->reader), "locked", s->is_locked, "units", s->n_units,
		"streamed_units", s->n_streamed, "window_units", s->window, "pinned_bytes", (json_int_t)s->pinned_bytes, "streamed_bytes",
		(json_int_t)s->streamed_bytes, "window_bytes", (json_int_t)s->window_bytes);
}

static json_t *parts_json(const struct memory_budget *b)
{
	const struct memory_needs *n = &b->needs;
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "program", (json_int_t)(n->program_anon + n->program_file), "frames", (json_int_t)n->frames, "kept",
		(json_int_t)n->kept, "compute", (json_int_t)n->compute, "packed", (json_int_t)n->packed, "kv", (json_int_t)n->kv, "weights", (json_int_t)(b->head.bytes + b->layers.bytes));
}

json_t *weight_report_json(const struct weight_report *w, int32_t n_tokens)
{
	const struct memory_budget *b = &w->host->budget.budget;
	struct weight_reading prefill = between(&w->begin, &w->first), decode = between(&w->first, &w->end);
	struct process_memory now = {0};
	struct residency_stats s;
	json_t *o = json_pack("{s:I, s:i, s:i, s:o, s:o, s:o}", "cap", (json_int_t)b->cap, "ctx", b->ctx_len, "chunk", b->chunk, "parts", parts_json(b), "prefill",
		reading_json(&prefill, 1), "decode", reading_json(&decode, n_tokens - 1));
	if (process_memory_read(&now, NULL) == OK) {
		json_object_set_new(o, "highest_bytes", json_integer((json_int_t)now.highest_bytes));
		json_object_set_new(o, "anon_bytes", json_integer((json_int_t)now.anon_bytes));
	}
	if (w->host->node != NULL && node_runtime_weight_stats(w->host->node, &s))
		json_object_set_new(o, "layers", place_json(&s));
	coord_runtime_head_stats(w->host->coord, &s);
	json_object_set_new(o, "head", place_json(&s));
	return o;
}

void weight_report_line(const struct weight_report *w, int32_t n_tokens, FILE *to)
{
	const struct memory_budget *b = &w->host->budget.budget;
	struct weight_reading r = between(&w->first, &w->end);
	fprintf(to, "context %d tokens within %.1f MiB", b->ctx_len, (double)b->cap / 1048576);
	if (r.read_bytes > 0 && n_tokens > 1)
		fprintf(to, "; per token %.1f MB read from disk at %.0f MB/s, %.1f ms of waiting for it", (double)r.read_bytes / (n_tokens - 1) / 1e6, rate(&r) / 1e6,
			(double)r.stall_ns / (n_tokens - 1) / 1e6);
	fputc('\n', to);
}
