// How `hearth run` shows an answer: streamed as text, or as one JSON object at the end. The same whether the answer is computed here or by the
// coordinator that --attach speaks to.
#ifndef HEARTH_CLI_ANSWER_PRINT_H
#define HEARTH_CLI_ANSWER_PRINT_H

#include "base/err.h"
#include "cli/command.h"
#include "cli/weight_report.h"
#include "coordinator/shell/answer.h"

#include <stddef.h>
#include <stdint.h>

struct answer_print {
	const struct options *opts;
	char *prompt; // owned: -p, or standard input
	size_t prompt_len;
	int32_t *prompt_ids; // owned (n_prompt)
	int32_t n_prompt;
	int32_t *output_ids; // owned (n_output)
	int32_t n_output, output_cap;
	char *text; // owned (text_len)
	size_t text_len, text_cap;
	uint64_t seed;
	const char *simd, *wire; // static text
	char attached_simd[16], attached_wire[8];
	int64_t load_ns, begin_ns;
	int64_t token_ns, longest_gap_ns; // when the last token came; the longest time between two
	struct weight_report weights;
	struct tensor_group_stats group; // with --tp
	int32_t n_members;               // of it; 0: none
	bool is_quiet; // nothing more is shown
};

// answer_print_open reads the prompt: -p, else standard input.
MUST_USE enum err answer_print_open(struct answer_print *p, const struct command_ctx *ctx, struct errmsg *em);
void answer_print_close(struct answer_print *p); // safe on zeroed memory
void answer_print_text(struct answer_print *p, int32_t token, const char *text, size_t len);
// answer_print_end shows the end: the JSON object, or the line about speed on standard error, or the error.
void answer_print_end(struct answer_print *p, const struct answer_result *r);
// answer_print_interrupted ends the line that Ctrl-C broke.
void answer_print_interrupted(struct answer_print *p);

#endif
