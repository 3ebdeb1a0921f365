// The command line: which argument belongs to which option. Values are option_values.c's, the file is option_file.c's.
#include "cli/options.h"

#include "base/assert.h"
#include "cli/command.h"
#include "cli/option_file.h"
#include "cli/option_values.h"
#include "base/suggest.h"

#include <sched.h>
#include <stddef.h>
#include <string.h>

struct command_line {
	struct options *o;
	uint32_t command;         // its FOR_ bit
	const char *command_name;
	int argc;
	char *const *argv;
	int next;           // argument to look at
	bool options_ended; // after "--"
	struct errmsg *em;
};

void options_init(struct options *o)
{
	memset(o, 0, sizeof *o);
	for (size_t i = 0; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		if (opt->preset == NULL)
			continue;
		enum err e = option_set_text(opt, o, option_name(opt), opt->preset, NULL);
		ASSERT(e == OK);
	}
}

void options_deinit(struct options *o)
{
	arena_close(&o->config_text);
}

bool options_given(const struct options *o, size_t field_offset)
{
	for (size_t i = 0; i < n_options(); i++)
		if (option_at(i)->offset == field_offset && o->origins[i] != FROM_DEFAULT)
			return true;
	return false;
}

bool options_discovery(const struct options *o)
{
	return o->discovery && !o->no_discovery;
}

static int32_t n_cores(void)
{
	cpu_set_t cores;
	if (sched_getaffinity(0, sizeof cores, &cores) != 0)
		return 1;
	int n = CPU_COUNT(&cores);
	return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : n;
}

int32_t options_n_threads(const struct options *o)
{
	int32_t n = o->threads > 0 ? o->threads : n_cores();
	return o->max_threads > 0 && o->max_threads < n ? o->max_threads : n;
}

// find_flag returns the table index of --name (n bytes of it) for this command; n_options() when it has none.
static size_t find_flag(const struct command_line *c, const char *name, size_t n)
{
	size_t i = 0;
	for (; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		if (opt->flag && (opt->commands & c->command) && strlen(opt->flag) == n && memcmp(opt->flag, name, n) == 0)
			break;
	}
	return i;
}

static size_t find_letter(const struct command_line *c, char letter)
{
	size_t i = 0;
	for (; i < n_options(); i++)
		if (option_at(i)->letter == letter && (option_at(i)->commands & c->command))
			break;
	return i;
}

// takers_of returns the FOR_ bits of the commands that have a flag.
static uint32_t takers_of(const char *flag)
{
	uint32_t takers = 0;
	for (size_t i = 0; i < n_options(); i++)
		if (option_at(i)->flag && strcmp(option_at(i)->flag, flag) == 0)
			takers |= option_at(i)->commands;
	return takers;
}

static enum err refuse_elsewhere(const struct command_line *c, const char *name, uint32_t takers)
{
	char text[200] = "";
	size_t n = 0;
	for (size_t i = 0; i < n_commands() && n < sizeof text; i++)
		if (command_at(i)->bit & takers)
			n += (size_t)snprintf(text + n, sizeof text - n, "%s`hearth %s`", n > 0 ? ", " : "", command_at(i)->name);
	return errmsg_fail(c->em, ERR_USAGE, "`hearth %s` has no option %s: it belongs to %s", c->command_name, name, text);
}

static enum err refuse_flag(const struct command_line *c, const char *arg, size_t n)
{
	char name[64];
	snprintf(name, sizeof name, "%.*s", n < sizeof name ? (int)n : (int)sizeof name - 1, arg);
	uint32_t takers = takers_of(name);
	if (takers != 0)
		return refuse_elsewhere(c, name, takers);
	struct suggest s = suggest_init(name);
	for (size_t i = 0; i < n_options(); i++)
		if (option_at(i)->flag && (option_at(i)->commands & c->command))
			suggest_offer(&s, option_at(i)->flag);
	if (s.best)
		return errmsg_fail(c->em, ERR_USAGE, "unknown option %s, did you mean %s?", name, s.best);
	return errmsg_fail(c->em, ERR_USAGE, "unknown option %s", name);
}

// take_option sets table entry `i` from `attached` ("--flag=value", "-n5") or, when that is NULL, the next argument.
static enum err take_option(struct command_line *c, size_t i, const char *attached)
{
	const struct option *opt = option_at(i);
	const char *value = attached;
	if (c->o->origins[i] == FROM_COMMAND_LINE)
		return errmsg_fail(c->em, ERR_USAGE, "%s is given twice", opt->flag);
	if (value == NULL && opt->kind == OPTION_BOOL)
		value = "true";
	if (value == NULL) {
		if (c->next == c->argc)
			return errmsg_fail(c->em, ERR_USAGE, "%s wants a value: %s %s", opt->flag, opt->flag, opt->placeholder);
		value = c->argv[c->next++];
	}
	c->o->origins[i] = FROM_COMMAND_LINE;
	return option_set_text(opt, c->o, opt->flag, value, c->em);
}

static enum err take_long(struct command_line *c, const char *arg)
{
	size_t n = strcspn(arg, "=");
	size_t i = find_flag(c, arg, n);
	if (i == n_options())
		return refuse_flag(c, arg, n);
	return take_option(c, i, arg[n] == '=' ? arg + n + 1 : NULL);
}

// "-n 5" and "-n5"; several letters in one argument are not taken.
static enum err take_letter(struct command_line *c, const char *arg)
{
	size_t i = find_letter(c, arg[1]);
	if (i == n_options() || (arg[2] != '\0' && option_at(i)->kind == OPTION_BOOL))
		return refuse_flag(c, arg, strlen(arg));
	return take_option(c, i, arg[2] ? arg + 2 : NULL);
}

// take_argument gives `arg` to the first argument entry of this command that has none yet.
static enum err take_argument(struct command_line *c, const char *arg)
{
	bool takes_stdin = false;
	for (size_t i = 0; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		if (opt->flag || !(opt->commands & c->command))
			continue;
		takes_stdin = takes_stdin || opt->kind == OPTION_STDIN;
		if (c->o->origins[i] == FROM_COMMAND_LINE)
			continue;
		c->o->origins[i] = FROM_COMMAND_LINE;
		return option_set_text(opt, c->o, option_name(opt), arg, c->em);
	}
	// What stands after `join -` may be an invite: not repeated.
	return errmsg_fail(c->em, ERR_USAGE, takes_stdin ? "one argument too many" : "one argument too many: %.100s", arg);
}

static enum err take_next(struct command_line *c)
{
	const char *arg = c->argv[c->next++];
	if (c->options_ended || arg[0] != '-' || arg[1] == '\0')
		return take_argument(c, arg);
	if (strcmp(arg, "--") == 0) {
		c->options_ended = true;
		return OK;
	}
	return arg[1] == '-' ? take_long(c, arg) : take_letter(c, arg);
}

static bool is_field_given(const struct options *o, const struct option *opt)
{
	return options_given(o, opt->offset);
}

static enum err refuse_missing(const struct command_line *c, const struct option *opt)
{
	char words[200] = "";
	size_t n = 0;
	for (size_t k = 0; opt->choices != NULL && opt->choices[k] != NULL && n < sizeof words; k++)
		n += (size_t)snprintf(words + n, sizeof words - n, "%s%s", n > 0 ? ", " : "want one of ", opt->choices[k]);
	return errmsg_fail(c->em, ERR_USAGE, "%s is missing: %s", option_name(opt), n > 0 ? words : opt->help);
}

static enum err check_required(const struct command_line *c)
{
	for (size_t i = 0; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		bool is_needed = opt->required && !(c->o->attach && opt->kind == OPTION_PATH); // --attach: the coordinator has the model
		if (is_needed && (opt->commands & c->command) && !is_field_given(c->o, opt))
			return refuse_missing(c, opt);
	}
	return OK;
}

// action_of returns the word of this command's ACTION, or NULL when it has none.
static const char *action_of(const struct command_line *c)
{
	for (size_t i = 0; i < n_options(); i++) {
		const struct option *opt = option_at(i);
		if ((opt->commands & c->command) && opt->flag == NULL && opt->kind == OPTION_WORD)
			return *(const char *const *)((const char *)c->o + opt->offset);
	}
	return NULL;
}

static bool has_word(const char *words, const char *word)
{
	size_t n = strlen(word);
	for (; words[0] != '\0'; words += strcspn(words, " "), words += strspn(words, " "))
		if (strcspn(words, " ") == n && memcmp(words, word, n) == 0)
			return true;
	return false;
}

static enum err refuse_action(const struct command_line *c, const struct option *opt)
{
	char text[200] = "";
	size_t n = 0;
	for (const char *word = opt->action; word[0] != '\0' && n < sizeof text; word += strcspn(word, " "), word += strspn(word, " "))
		n += (size_t)snprintf(text + n, sizeof text - n, "%s`hearth %s %.*s`", n > 0 ? " and " : "", c->command_name, (int)strcspn(word, " "), word);
	return errmsg_fail(c->em, ERR_USAGE, "%s is for %s", opt->flag, text);
}

// check_actions refuses what the action would pass over without a word.
static enum err check_actions(const struct command_line *c)
{
	const char *action = action_of(c);
	for (size_t i = 0; i < n_options() && action != NULL; i++) {
		const struct option *opt = option_at(i);
		if (c->o->origins[i] == FROM_COMMAND_LINE && opt->action != NULL && !has_word(opt->action, action))
			return refuse_action(c, opt);
	}
	return OK;
}

static bool is_typed(const struct command_line *c, size_t field_offset)
{
	for (size_t i = 0; i < n_options(); i++)
		if ((option_at(i)->commands & c->command) && option_at(i)->offset == field_offset && c->o->origins[i] == FROM_COMMAND_LINE)
			return true;
	return false;
}

// check_pairs refuses what would be passed over without a word beside another option; of a file it may be.
static enum err check_pairs(const struct command_line *c)
{
	if (c->o->attach && is_typed(c, offsetof(struct options, model)))
		return errmsg_fail(c->em, ERR_USAGE, "--attach asks the coordinator, which has its model: leave MODEL out");
	if (!c->o->chat && is_typed(c, offsetof(struct options, system)))
		return errmsg_fail(c->em, ERR_USAGE, "--system is a turn of a conversation: want --chat, too");
	bool says_how = is_typed(c, offsetof(struct options, tp_mode)) || is_typed(c, offsetof(struct options, tp_payload));
	if (c->o->attach && (says_how || is_typed(c, offsetof(struct options, tp))))
		return errmsg_fail(c->em, ERR_USAGE, "--attach asks the coordinator, whose --place says which machines share layers: leave out --tp and what is about it");
	bool has_group = c->command == FOR_RUN ? c->o->tp != NULL : c->o->place != NULL && strchr(c->o->place, '+') != NULL;
	if (says_how && !has_group)
		return errmsg_fail(c->em, ERR_USAGE, "--tp-mode and --tp-payload are for layers that are shared: want %s, too",
			c->command == FOR_RUN ? "--tp" : "--place with a group, such as b+c=30");
	return OK;
}

enum err options_parse(struct options *o, uint32_t command, const char *command_name, int argc, char *const argv[],
	struct errmsg *em)
{
	struct command_line c = {
		.o = o, .command = command, .command_name = command_name, .argc = argc, .argv = argv, .em = em};
	while (c.next < c.argc) {
		enum err e = take_next(&c);
		if (e != OK || o->help)
			return e;
	}
	if (o->config) {
		enum err e = option_file_read(o, command, o->config, em);
		if (e != OK)
			return e;
	}
	enum err e = check_required(&c);
	if (e == OK)
		e = check_pairs(&c);
	return e == OK ? check_actions(&c) : e;
}
