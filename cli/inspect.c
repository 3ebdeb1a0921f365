// `hearth inspect MODEL`: what a model file holds, and whether Hearth can run it.
#include "cli/command.h"
#include "cli/inspection.h"

#include "base/printable.h"
#include "model/mapped_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct amount {
	char text[32];
};

// bytes_text says "98.9 MB": powers of 1,000, as disks are sold and files are listed.
static struct amount bytes_text(uint64_t bytes)
{
	static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
	struct amount out;
	size_t unit = 0;
	double v = (double)bytes;
	for (; v >= 999.5 && unit + 1 < ARRAY_LEN(units); unit++)
		v /= 1000;
	snprintf(out.text, sizeof out.text, v < 10 && unit > 0 ? "%.2f %s" : v < 100 && unit > 0 ? "%.1f %s" : "%.0f %s", v, units[unit]);
	return out;
}

static struct amount params_text(uint64_t n)
{
	struct amount out;
	if (n >= 1000000000)
		snprintf(out.text, sizeof out.text, "%.2f billion", (double)n / 1e9);
	else if (n >= 1000000)
		snprintf(out.text, sizeof out.text, "%.1f million", (double)n / 1e6);
	else
		snprintf(out.text, sizeof out.text, "%" PRIu64, n);
	return out;
}

static void print_facts(FILE *to, const struct inspection *in)
{
	if (in->n_facts > 0)
		fprintf(to, "\nHyper-parameters\n");
	for (size_t i = 0; i < in->n_facts; i++) {
		const struct inspection_fact *f = &in->facts[i];
		if (!(f->min < f->max)) // NaN as well
			fprintf(to, "  %-16s %.*g\n", f->name, f->is_float ? 7 : 20, f->min); // a float of 32 bits has seven digits
		else
			fprintf(to, "  %-16s %.*g to %.*g, by layer\n", f->name, f->is_float ? 7 : 20, f->min, f->is_float ? 7 : 20, f->max);
	}
}

static void print_types(FILE *to, const struct inspection *in)
{
	fprintf(to, "\nTensor types\n");
	for (uint32_t id = 0; id <= DTYPE_ID_MAX; id++) {
		const struct inspection_type *t = &in->types[id];
		if (t->n_tensors > 0)
			fprintf(to, "  %-16s %6" PRIu64 " tensors  %10s\n", dtype_find(id)->name, t->n_tensors, bytes_text(t->bytes).text);
	}
}

// print_layers joins neighbours of one size: "layers 0 to 29: 3.32 MB each".
static void print_layers(FILE *to, const struct inspection *in)
{
	fprintf(to, "\nBytes by layer\n");
	for (int32_t begin = 0, end; begin < in->n_layers_seen; begin = end) {
		end = begin + 1;
		while (end < in->n_layers_seen && in->layer_bytes[end] == in->layer_bytes[begin])
			end++;
		char which[40];
		if (end - begin == 1)
			snprintf(which, sizeof which, "layer %" PRId32, begin);
		else
			snprintf(which, sizeof which, "layers %" PRId32 " to %" PRId32, begin, end - 1);
		fprintf(to, "  %-16s %s%s\n", which, bytes_text(in->layer_bytes[begin]).text, end - begin > 1 ? " each" : "");
	}
	fprintf(to, "  %-16s %s\n", "outside layers", bytes_text(in->other_bytes).text);
}

static void print_tokenizer(FILE *to, const struct inspection_tokenizer *t)
{
	fprintf(to, "\nTokenizer\n");
	if (t->model[0] == '\0' && t->n_tokens == 0) {
		fprintf(to, "  none\n");
		return;
	}
	fprintf(to, "  %-16s %s%s%s\n", "kind", t->model, t->pre[0] != '\0' ? ", " : "", t->pre);
	fprintf(to, "  %-16s %" PRIu64 " tokens, %" PRIu64 " merges\n", "vocabulary", t->n_tokens, t->n_merges);
	if (t->bos >= 0)
		fprintf(to, "  %-16s %" PRId64 "%s\n", "bos", t->bos, t->adds_bos ? ", put before a prompt" : ", not put before a prompt");
	if (t->eos >= 0)
		fprintf(to, "  %-16s %" PRId64 "\n", "eos", t->eos);
	if (t->chat_template_bytes > 0)
		fprintf(to, "  %-16s %" PRIu64 " bytes\n", "chat template", t->chat_template_bytes);
}

static void print_tensors(FILE *to, const struct gguf *g)
{
	fprintf(to, "\nTensors (columns x rows)\n");
	for (uint64_t i = 0; i < g->n_tensors; i++) {
		const struct gguf_tensor *t = &g->tensors[i];
		char name[4 * GGUF_NAME_MAX + 1], shape[96];
		int n = 0;
		for (uint32_t d = 0; d < t->n_dims; d++)
			n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRIu64, d > 0 ? " x " : "", t->dims[d]);
		fprintf(to, "  %-28s %-8s %-20s %10s at %" PRIu64 "\n", printable_copy(t->name.data, t->name.len, name, sizeof name),
			dtype_find(t->type)->name, shape, bytes_text(t->bytes).text, g->data_offset + t->offset);
	}
}

void inspect_print(FILE *to, const struct inspection *in, const char *path, bool tensors)
{
	const struct gguf *g = in->gguf;
	char shown[512];
	fprintf(to, "%s\n", printable_copy(path, strlen(path), shown, sizeof shown));
	fprintf(to, "  %-16s %s\n", "name", in->name);
	fprintf(to, "  %-16s %s\n", "architecture", in->arch[0] != '\0' ? in->arch : "not said");
	fprintf(to, "  %-16s %s\n", "parameters", params_text(in->n_params).text);
	fprintf(to, "  %-16s %s, of which header %s (GGUF %" PRIu32 ", %" PRIu64 " keys, %" PRIu64 " tensors)\n", "size",
		bytes_text(g->file_bytes).text, bytes_text(g->data_offset).text, g->version, g->n_kv, g->n_tensors);
	print_facts(to, in);
	print_types(to, in);
	print_layers(to, in);
	print_tokenizer(to, &in->tokenizer);
	if (tensors)
		print_tensors(to, g);
	if (in->n_problems == 0) {
		fprintf(to, "\nHearth can run it.\n");
		return;
	}
	fprintf(to, "\nHearth cannot run it:\n");
	for (size_t i = 0; i < in->n_problems && i < INSPECTION_PROBLEMS_MAX; i++)
		fprintf(to, "  - %s\n", in->problems[i].text);
}

static enum err inspect(const struct options *o, const struct mapped_file *f, struct inspection *in, struct errmsg *em)
{
	struct gguf g;
	enum err e = gguf_parse(f->data, f->bytes, &g, em);
	if (e != OK)
		return e;
	inspection_fill(&g, o->model, in);
	if (o->json)
		e = inspect_print_json(stdout, in, o->model, o->tensors);
	else
		inspect_print(stdout, in, o->model, o->tensors);
	if (e == OK && fflush(stdout) != 0)
		e = ERR_IO;
	if (e != OK)
		errmsg_fail(em, e, "cannot write to standard output");
	gguf_deinit(&g);
	return e;
}

int inspect_main(const struct command_ctx *ctx)
{
	struct errmsg em;
	struct mapped_file f;
	struct inspection *in = malloc(sizeof *in);
	if (in == NULL)
		return command_fail(ctx, "out of memory");
	enum err e = mapped_file_open(ctx->opts->model, &f, &em);
	if (e == OK)
		e = inspect(ctx->opts, &f, in, &em);
	mapped_file_close(&f);
	free(in);
	return e == OK ? EXIT_DONE : command_fail(ctx, "%s: %s", ctx->opts->model, em.text);
}
