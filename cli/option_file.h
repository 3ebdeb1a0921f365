// The file of --config: TOML whose keys are those of the option table.
#ifndef HEARTH_CLI_OPTION_FILE_H
#define HEARTH_CLI_OPTION_FILE_H

#include "cli/options.h"

// option_file_read applies the file to every option that the command line left alone. One file serves all commands: keys of
// other commands are checked and change nothing for this one. Errors begin with file:line.
MUST_USE enum err option_file_read(struct options *o, uint32_t command, const char *path, struct errmsg *em);

// option_file_apply is the same for text in memory; `name` stands for the file in messages.
MUST_USE enum err option_file_apply(struct options *o, uint32_t command, const char *name, const char *text, size_t len,
	struct errmsg *em);

#endif
