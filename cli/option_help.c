// Help texts and the example file, both read off the option table.
#include "cli/options.h"

#include "base/assert.h"
#include "cli/option_values.h"

#include <string.h>

#define HELP_COLUMN 30 // where sentences start
#define HELP_WIDTH 110 // where they are broken
#define OPTION_TEXT_CAP 1024 // of a paragraph

static void print_spaces(FILE *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fputc(' ', to);
}

// print_wrapped prints words from column `at` on, breaking to `indent`.
static void print_wrapped(FILE *to, const char *text, size_t at, const char *line_start, size_t indent)
{
	for (bool first = true; *text; first = false) {
		size_t n = strcspn(text, " ");
		if (!first && at + 1 + n > HELP_WIDTH) {
			fprintf(to, "\n%s", line_start);
			print_spaces(to, indent);
			at = strlen(line_start) + indent;
		} else if (!first) {
			fputc(' ', to);
			at++;
		}
		fwrite(text, 1, n, to);
		at += n;
		text += n + strspn(text + n, " ");
	}
	fputc('\n', to);
}

// "--threads N", "--simd portable|avx2|avx512", "MODEL"
static void write_synopsis(const struct option *opt, char *text, size_t cap)
{
	size_t n = 0;
	if (opt->letter)
		n = (size_t)snprintf(text, cap, "-%c, ", opt->letter);
	n += (size_t)snprintf(text + n, cap - n, "%s", option_name(opt));
	if (opt->choices) {
		for (size_t i = 0; opt->choices[i] && n < cap; i++)
			n += (size_t)snprintf(text + n, cap - n, "%c%s", i == 0 ? ' ' : '|', opt->choices[i]);
	} else if (opt->flag && opt->placeholder) {
		snprintf(text + n, cap - n, " %s", opt->placeholder);
	}
}

// "generate, record: ", or nothing for an option of every action.
static size_t write_actions(const struct option *opt, char *text, size_t cap)
{
	size_t n = 0;
	for (const char *word = opt->action; word != NULL && n < cap; word = strchr(word, ' ') ? strchr(word, ' ') + 1 : NULL)
		n += (size_t)snprintf(text + n, cap - n, "%.*s%s", (int)strcspn(word, " "), word, strchr(word, ' ') ? ", " : ": ");
	return n < cap ? n : cap - 1;
}

// The sentence, then what holds without the option and which numbers it takes: "compute threads (1 to 256; default every core)".
static void write_sentence(const struct option *opt, char *text, size_t cap)
{
	char range[64] = "";
	if (opt->kind == OPTION_INT && opt->max < INT32_MAX)
		snprintf(range, sizeof range, "%lld to %lld", (long long)opt->min, (long long)opt->max);
	else if (opt->kind == OPTION_FLOAT)
		snprintf(range, sizeof range, "%g to %g", opt->f_min, opt->f_max);
	const char *preset = opt->preset_words ? opt->preset_words : opt->preset;
	size_t n = write_actions(opt, text, cap);
	if (preset)
		snprintf(text + n, cap - n, "%s (%s%sdefault: %s)", opt->help, range, range[0] ? "; " : "", preset);
	else
		snprintf(text + n, cap - n, "%s", opt->help);
}

static void print_option(FILE *to, const struct option *opt)
{
	char text[400];
	write_synopsis(opt, text, sizeof text);
	size_t at = (size_t)fprintf(to, "  %s", text);
	if (at + 2 > HELP_COLUMN) {
		fputc('\n', to);
		at = 0;
	}
	print_spaces(to, HELP_COLUMN - at);
	write_sentence(opt, text, sizeof text);
	print_wrapped(to, text, HELP_COLUMN, "", HELP_COLUMN);
}

void option_text(FILE *to, const char *text)
{
	char line[OPTION_TEXT_CAP];
	for (; *text != '\0'; text += strspn(text, "\n")) {
		size_t n = strcspn(text, "\n");
		ASSERT(n < sizeof line);
		snprintf(line, sizeof line, "%.*s", (int)n, text);
		if (line[0] == ' ')
			fprintf(to, "%s\n", line);
		else
			print_wrapped(to, line, 0, "", 0);
		text += n;
	}
}

void option_help(FILE *to, uint32_t command)
{
	for (size_t i = 0; i < n_options(); i++)
		if (option_at(i)->commands & command)
			print_option(to, option_at(i));
}

static bool is_first_of_key(size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (option_at(k)->key && strcmp(option_at(k)->key, option_at(i)->key) == 0)
			return false;
	return true;
}

// The value in TOML: the table's example, else the default, quoted where its kind is a text.
static void print_toml_value(FILE *to, const struct option *opt)
{
	if (opt->example)
		fputs(opt->example, to);
	else if (opt->kind == OPTION_BOOL)
		fputs(opt->preset ? opt->preset : "false", to);
	else if (opt->kind == OPTION_INT || opt->kind == OPTION_FLOAT)
		fputs(opt->preset, to);
	else
		fprintf(to, "\"%s\"", opt->preset);
}

static void print_key(FILE *to, const struct option *opt, const char *name)
{
	char text[400];
	write_sentence(opt, text, sizeof text);
	fputs("# ", to);
	print_wrapped(to, text, 2, "# ", 0);
	fprintf(to, "#%s = ", name);
	print_toml_value(to, opt);
	fputc('\n', to);
}

// Keys without a table come first, as TOML wants; then each table where it first appears.
void option_example(FILE *to)
{
	fputs("# Options of Hearth, for --config. Every key is shown with its default, or with an example where it has none.\n"
	      "# What is given on the command line overrides this file. Made by `hearth example-config`: do not edit.\n",
		to);
	for (size_t i = 0; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		if (opt->key && !strchr(opt->key, '.') && is_first_of_key(i)) {
			fputc('\n', to);
			print_key(to, opt, opt->key);
		}
	}
	char current[32] = "";
	for (size_t i = 0; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		const char *dot = opt->key ? strchr(opt->key, '.') : NULL;
		if (dot == NULL || !is_first_of_key(i))
			continue;
		char tab[32];
		snprintf(tab, sizeof tab, "%.*s", (int)(dot - opt->key), opt->key);
		fputc('\n', to);
		if (strcmp(tab, current) != 0)
			fprintf(to, "[%s]\n", tab);
		memcpy(current, tab, sizeof current);
		print_key(to, opt, dot + 1);
	}
}
