#include "cli/doctor_report.h"

#include "base/printable.h"

#include <stdarg.h>
#include <string.h>

static const char *const level_words[] = {"ok", "warning", "problem"};

void doctor_add(struct doctor_report *r, enum doctor_level level, const char *check, const char *advice, const char *fmt, ...)
{
	char text[DOCTOR_TEXT_CAP];
	va_list ap;
	r->n_warnings += level == DOCTOR_WARNING;
	r->n_problems += level == DOCTOR_PROBLEM;
	if (r->n == DOCTOR_FINDINGS_MAX) {
		r->n_left_out++;
		return;
	}
	struct doctor_finding *f = &r->at[r->n++];
	f->level = level;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	printable_copy(text, strlen(text), f->found, sizeof f->found);
	printable_copy(check, strlen(check), f->check, sizeof f->check);
	printable_copy(advice != NULL ? advice : "", advice != NULL ? strlen(advice) : 0, f->advice, sizeof f->advice);
}

void doctor_print(FILE *to, const struct doctor_report *r)
{
	for (int32_t i = 0; i < r->n; i++) {
		const struct doctor_finding *f = &r->at[i];
		fprintf(to, "%-8s %-16s %s\n", level_words[f->level], f->check, f->found);
		if (f->advice[0] != '\0')
			fprintf(to, "%25s-> %s\n", "", f->advice);
	}
	if (r->n_left_out > 0)
		fprintf(to, "(%d more findings are not shown)\n", r->n_left_out);
	if (r->n_problems + r->n_warnings == 0)
		fprintf(to, "Nothing to complain about.\n");
	else
		fprintf(to, "%d problem%s, %d warning%s.\n", r->n_problems, r->n_problems == 1 ? "" : "s", r->n_warnings, r->n_warnings == 1 ? "" : "s");
}

json_t *doctor_json(const struct doctor_report *r)
{
	json_t *findings = json_array();
	for (int32_t i = 0; i < r->n; i++) {
		const struct doctor_finding *f = &r->at[i];
		json_array_append_new(findings, json_pack("{s:s, s:s, s:s, s:s}", "check", f->check, "level", level_words[f->level], "found", f->found, "advice",
			f->advice));
	}
	return json_pack("{s:b, s:i, s:i, s:o}", "ok", r->n_problems == 0, "problems", (int)r->n_problems, "warnings", (int)r->n_warnings, "findings", findings);
}

const char *doctor_bytes(uint64_t bytes, char out[24])
{
	if (bytes >= UINT64_C(1) << 30)
		snprintf(out, 24, "%.1f GiB", (double)bytes / (1 << 30));
	else
		snprintf(out, 24, "%llu MiB", (unsigned long long)(bytes >> 20));
	return out;
}
