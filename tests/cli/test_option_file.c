// The file of --config, and the two texts that the option table makes: help and cluster.example.toml.
#include "cli/option_file.h"

#include "base/toml.h"
#include "cli/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct options opts;
static struct errmsg em;

static enum err apply(uint32_t command, const char *text)
{
	options_deinit(&opts);
	options_init(&opts);
	em.text[0] = '\0';
	// The options borrow from their own arena, never from this copy.
	char *copy = strdup(text);
	assert_non_null(copy);
	enum err e = option_file_apply(&opts, command, "home.toml", copy, strlen(copy), &em);
	memset(copy, 'x', strlen(copy));
	free(copy);
	return e;
}

static void assert_refused(const char *text, const char *message)
{
	enum err e = apply(FOR_SERVE, text);
	assert_true(e != OK && e != ERR_USAGE);
	assert_string_equal(em.text, message);
}

static void a_file_sets_options(void **state)
{
	(void)state;
	assert_int_equal(apply(FOR_SERVE, "log = 'debug'\nstate = \"/s\"\n[model]\npath = \"/m.gguf\"\n[compute]\nthreads = 3\n"
					  "[cluster]\nsplit = [10, 12]\nwire = \"q8\"\nno_node = true\nadvertise = ['a:1', '[::1]:2']\n"
					  "[http]\nlisten = '127.0.0.1:0'\n"), OK);
	assert_int_equal(opts.log, LOG_DEBUG);
	assert_string_equal(opts.state, "/s");
	assert_string_equal(opts.model, "/m.gguf");
	assert_int_equal(opts.threads, 3);
	assert_int_equal(opts.split.n, 2);
	assert_int_equal(opts.split.at[1], 12);
	assert_int_equal(opts.wire, WIRE_Q8);
	assert_true(opts.no_node);
	assert_int_equal(opts.advertise.n, 2);
	assert_int_equal(opts.http.port, 0);
	assert_true(options_given(&opts, offsetof(struct options, threads)));
	assert_false(options_given(&opts, offsetof(struct options, ctx)));
}

static void keys_may_be_written_as_toml_allows(void **state)
{
	(void)state;
	assert_int_equal(apply(FOR_RUN, "compute.threads = 0x10\nsampling = {temp = 1, seed = 7}\n\"run\".'max_tokens' = 9"), OK);
	assert_int_equal(opts.threads, 16);
	assert_true(opts.temp == 1.0f);
	assert_true(opts.seed == 7);
	assert_int_equal(opts.max_tokens, 9);
}

static void an_error_carries_file_and_line(void **state)
{
	(void)state;
	assert_refused("a =\n", "home.toml:1:4: got the end of the line, want a value (a text stands in quotes)");
	assert_refused("\n[compute]\ntreads = 1\n", "home.toml:3: unknown key compute.treads, did you mean compute.threads?");
	assert_refused("zzz = 1\n", "home.toml:1: unknown key zzz");
	assert_refused("threads = 1\n", "home.toml:1: unknown key threads, did you mean compute.threads?");
	assert_refused("[cluster]\nkeep_disk = '1G'\n", "home.toml:2: unknown key cluster.keep_disk, did you mean node.keep_disk?");
	assert_refused("lgo = 'info'\n", "home.toml:1: unknown key lgo, did you mean log?");
	assert_refused("\n\n[clustr]\n", "home.toml:3: unknown table clustr, did you mean cluster?");
	assert_refused("[zzzzzzzzzz]\n", "home.toml:1: unknown table zzzzzzzzzz");
	assert_refused("[[cluster]]\n", "home.toml:1: cluster: got an array, want a table");
	assert_refused("compute = 1\n", "home.toml:1: compute: got an integer, want a table");
	assert_refused("[log]\n", "home.toml:1: log: got a table, want one of error, warning, info, debug");
	assert_refused("[compute]\nthreads = 0\n", "home.toml:2: compute.threads: got 0, want an integer from 1 to 256");
	assert_refused("[compute.threads]\n", "home.toml:1: compute.threads: got a table, want an integer from 1 to 256");
	assert_refused("[compute]\nthreads = '8'\n", "home.toml:2: compute.threads: got \"8\", want an integer from 1 to 256");
	assert_refused("[compute]\nthreads = 8.0\n", "home.toml:2: compute.threads: got 8, want an integer from 1 to 256");
	assert_refused("[compute]\nthreads = true\n", "home.toml:2: compute.threads: got true, want an integer from 1 to 256");
	assert_refused("[compute]\nthreads = 2020-01-01\n", "home.toml:2: compute.threads: got a local date, want an integer from 1 to 256");
	assert_refused("[compute]\nthreads = [1]\n", "home.toml:2: compute.threads: got an array, want an integer from 1 to 256");
	assert_refused("[cluster]\nno_node = 1\n", "home.toml:2: cluster.no_node: got 1, want true or false");
	assert_refused("[cluster]\nno_node = 'true'\n", "home.toml:2: cluster.no_node: got \"true\", want true or false");
	assert_refused("[cluster]\nsplit = []\n",
		"home.toml:2: cluster.split: got an empty array, want 1 to 64 numbers of layers, each from 1 to 1024");
	assert_refused("[cluster]\nsplit = ['1']\n",
		"home.toml:2: cluster.split: got a string in the array, want 1 to 64 numbers of layers, each from 1 to 1024");
	assert_refused("[sampling]\nseed = -1\n", "home.toml:2: sampling.seed: got -1, want an integer from 0 to 18446744073709551615");
	assert_refused("[sampling]\ntemp = nan\n", "home.toml:2: sampling.temp: got nan, want a number from 0 to 100");
	assert_refused("[model]\npath = \"a\\u0000b\"\n", "home.toml:2: model.path: got a string with a NUL character, want a file name");
	assert_refused("\"log\\u0000\" = 'info'\n", "home.toml:1: unknown key log?, did you mean log?");
	assert_refused("\"a\\u001b[31m\" = 1\n", "home.toml:1: unknown key a?[31m");
}

static void values_of_other_commands_are_checked_and_left_out(void **state)
{
	(void)state;
	assert_int_equal(apply(FOR_RUN, "[cluster]\nslots = 3\nwire = 'f16'\n[node]\nlisten = '1.1.1.1:1'\n"), OK);
	assert_int_equal(opts.slots, SLOTS_DEFAULT);
	assert_int_equal(opts.wire, WIRE_F16);
	assert_int_equal(opts.link.port, PORT_LINKS_DEFAULT);
	assert_int_equal(apply(FOR_RUN, "[cluster]\nslots = 300\n"), ERR_RANGE);
}

static void write_file(char path[32], const char *text)
{
	strcpy(path, "/tmp/hearth-test-XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static enum err parse(int argc, const char *const *args)
{
	char *argv[16];
	memcpy(argv, args, (size_t)argc * sizeof argv[0]);
	options_deinit(&opts);
	options_init(&opts);
	return options_parse(&opts, FOR_RUN, "run", argc, argv, &em);
}

static void the_command_line_overrides_the_file_wherever_it_stands(void **state)
{
	(void)state;
	char path[32];
	write_file(path, "[model]\npath = 'file.gguf'\n[compute]\nthreads = 3\nctx = 100\n[run]\nchat = true\n");
	assert_int_equal(parse(7, (const char *const[]){"arg.gguf", "--threads", "5", "--config", path, "-n", "1"}), OK);
	assert_string_equal(opts.model, "arg.gguf");
	assert_int_equal(opts.threads, 5);
	assert_int_equal(opts.ctx, 100);
	assert_true(opts.chat);
	assert_int_equal(parse(3, (const char *const[]){"--config", path, "--chat=false"}), OK);
	assert_string_equal(opts.model, "file.gguf");
	assert_false(opts.chat);
	unlink(path);
}

static void a_file_that_cannot_be_read_is_no_usage_error(void **state)
{
	(void)state;
	assert_int_equal(parse(3, (const char *const[]){"m", "--config", "/nonexistent/x.toml"}), ERR_IO);
	assert_string_equal(em.text, "/nonexistent/x.toml: cannot open: No such file or directory");
	assert_int_equal(parse(3, (const char *const[]){"m", "--config", "/"}), ERR_IO);
	assert_int_equal(parse(3, (const char *const[]){"m", "--config", "/dev/zero"}), ERR_LIMIT);
	assert_int_equal(parse(3, (const char *const[]){"m", "--config", "/dev/null"}), OK);
}

static char *captured(void (*print)(FILE *to, uint32_t command), uint32_t command)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	assert_non_null(f);
	print(f, command);
	fclose(f);
	return text;
}

static void print_example(FILE *to, uint32_t command)
{
	(void)command;
	option_example(to);
}

// has_entry tells whether a help text lists an option: a line "  NAME" or "  -x, NAME", then a blank or the line's end.
static bool has_entry(const char *help, const char *name)
{
	size_t n = strlen(name);
	for (const char *line = help; *line; line += strcspn(line, "\n") + 1) {
		const char *at = line + 2;
		if (strncmp(line, "  ", 2) != 0 || *at == ' ')
			continue;
		if (at[0] == '-' && at[1] != '-' && at[1] != ' ' && at[2] == ',')
			at += 4;
		if (strncmp(at, name, n) == 0 && (at[n] == ' ' || at[n] == '\n'))
			return true;
	}
	return false;
}

static bool takes(const struct command *cmd, const char *name)
{
	for (size_t i = 0; i < n_options(); i++)
		if ((option_at(i)->commands & cmd->bit) && strcmp(option_name(option_at(i)), name) == 0)
			return true;
	return false;
}

static void every_option_is_in_the_help_of_its_commands_and_no_other(void **state)
{
	(void)state;
	for (size_t c = 0; c < n_commands(); c++) {
		const struct command *cmd = command_at(c);
		char *help = captured(option_help, cmd->bit);
		for (size_t i = 0; i < n_options(); i++) {
			const char *name = option_name(option_at(i));
			if (has_entry(help, name) != takes(cmd, name))
				fail_msg("%s --help and %s", cmd->name, name);
		}
		free(help);
	}
}

static void no_line_of_a_help_text_is_wider_than_110(void **state)
{
	(void)state;
	for (size_t c = 0; c < n_commands(); c++) {
		char *help = captured(option_help, command_at(c)->bit);
		for (const char *line = help; *line;) {
			size_t n = strcspn(line, "\n");
			assert_true(n <= 110);
			line += n + 1;
		}
		free(help);
	}
}

static void every_option_has_help_and_a_way_to_be_given(void **state)
{
	(void)state;
	for (size_t i = 0; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		assert_true(opt->flag != NULL || opt->placeholder != NULL);
		assert_true(opt->flag == NULL || strncmp(opt->flag, "--", 2) == 0);
		assert_true(opt->commands != 0 && opt->help != NULL && opt->help[0] != '\0' && opt->help[strlen(opt->help) - 1] != '.');
		assert_true(opt->kind == OPTION_BOOL || opt->choices || opt->placeholder);
		for (size_t k = 0; k < i; k++) {
			bool same = opt->flag && option_at(k)->flag && strcmp(opt->flag, option_at(k)->flag) == 0;
			if (same && (opt->commands & option_at(k)->commands))
				fail_msg("%s has two meanings for one command", opt->flag);
		}
	}
}

static void the_example_file_is_the_one_the_table_makes(void **state)
{
	(void)state;
	char *want = captured(print_example, 0), *got = calloc(1, 1 << 16);
	assert_non_null(got);
	FILE *f = fopen("cluster.example.toml", "rb");
	assert_non_null(f);
	assert_true(fread(got, 1, (1 << 16) - 1, f) > 0);
	fclose(f);
	if (strcmp(got, want) != 0)
		fail_msg("cluster.example.toml is out of date: build/bin/hearth example-config > cluster.example.toml");
	free(got);
	free(want);
}

// uncomment takes the '#' off every "#key = value", in place.
static void uncomment(char *text)
{
	char *to = text;
	for (char *line = text; *line;) {
		size_t n = strcspn(line, "\n") + 1;
		bool is_key = line[0] == '#' && line[1] != ' ';
		memmove(to, line + is_key, n - is_key);
		to += n - is_key;
		line += n;
	}
	*to = '\0';
}

static void the_example_file_sets_every_key_when_uncommented(void **state)
{
	(void)state;
	char *text = captured(print_example, 0);
	assert_int_equal(apply(FOR_SERVE, text), OK); // as it is: comments and empty tables only
	for (size_t i = 0; i < n_options(); i++)
		assert_int_equal(opts.origins[i], FROM_DEFAULT);
	uncomment(text);
	for (size_t c = 0; c < n_commands(); c++) {
		uint32_t bit = command_at(c)->bit;
		if (apply(bit, text) != OK)
			fail_msg("%s", em.text);
		for (size_t i = 0; i < n_options(); i++) {
			const struct option *opt = option_at(i);
			bool wanted = opt->key && (opt->commands & bit);
			if ((opts.origins[i] == FROM_FILE) != wanted)
				fail_msg("%s: %s %s", command_at(c)->name, option_name(opt), wanted ? "is not in the example" : "is set");
		}
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_sets_options),
		cmocka_unit_test(keys_may_be_written_as_toml_allows),
		cmocka_unit_test(an_error_carries_file_and_line),
		cmocka_unit_test(values_of_other_commands_are_checked_and_left_out),
		cmocka_unit_test(the_command_line_overrides_the_file_wherever_it_stands),
		cmocka_unit_test(a_file_that_cannot_be_read_is_no_usage_error),
		cmocka_unit_test(every_option_is_in_the_help_of_its_commands_and_no_other),
		cmocka_unit_test(no_line_of_a_help_text_is_wider_than_110),
		cmocka_unit_test(every_option_has_help_and_a_way_to_be_given),
		cmocka_unit_test(the_example_file_is_the_one_the_table_makes),
		cmocka_unit_test(the_example_file_sets_every_key_when_uncommented),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
