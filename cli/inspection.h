// What `hearth inspect` knows about a model file: gathered once, printed as text (cli/inspect.c) or JSON (cli/inspect_json.c).
//
// Works on any valid container, also of an architecture this program does not run. Everything borrowed lives as long as the
// gguf. All text is fit for printing (base/printable.h): the file is a stranger's.
#ifndef HEARTH_CLI_INSPECTION_H
#define HEARTH_CLI_INSPECTION_H

#include "base/dtype.h"
#include "base/err.h"
#include "base/limits.h"
#include "model/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define INSPECTION_PROBLEMS_MAX 48 // a reason for each tensor type, four features, and a few more
#define INSPECTION_FACTS 16

// A hyper-parameter as the file states it. An array of one value per layer has min and max.
struct inspection_fact {
	const char *name; // ours
	bool is_float;
	double min, max;
};

struct inspection_type {
	uint64_t n_tensors, bytes;
};

struct inspection_tokenizer {
	char model[64], pre[64]; // "" when the file does not say
	uint64_t n_tokens, n_merges, chat_template_bytes;
	int64_t bos, eos; // -1 when the file does not say
	bool adds_bos;
};

struct inspection {
	const struct gguf *gguf; // borrowed
	char name[128];
	char arch[64];           // "" when the file does not say
	uint64_t n_params;       // elements of all tensors
	struct inspection_fact facts[INSPECTION_FACTS];
	size_t n_facts;
	struct inspection_type types[DTYPE_ID_MAX + 1];
	uint64_t layer_bytes[LAYERS_MAX]; // of tensors "blk.N."
	int32_t n_layers_seen;            // 1 + the highest N below LAYERS_MAX
	uint64_t other_bytes;             // of all others
	struct inspection_tokenizer tokenizer;
	struct errmsg problems[INSPECTION_PROBLEMS_MAX]; // why Hearth cannot run it; none: it can
	size_t n_problems;
};

// inspection_fill looks at everything. `path` gives the name when the file has none.
void inspection_fill(const struct gguf *g, const char *path, struct inspection *in);

// inspect_print writes it for a person; with `tensors`, one line for each tensor as well.
void inspect_print(FILE *to, const struct inspection *in, const char *path, bool tensors);
// inspect_print_json writes one JSON object and a newline; ERR_NOMEM, ERR_IO.
MUST_USE enum err inspect_print_json(FILE *to, const struct inspection *in, const char *path, bool tensors);

#endif
