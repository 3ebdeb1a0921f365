// What happens when a page of the mapped model file is gone (SIGBUS): somebody made the file shorter, or its disk failed, after
// model_check_unchanged was asked. The process cannot go on; it says which file, and what to do, and exits as with any error.
#ifndef HEARTH_CLI_BUS_GUARD_H
#define HEARTH_CLI_BUS_GUARD_H

// bus_guard_install: from now on. Once, before the file is mapped; both strings are copied.
void bus_guard_install(const char *command_name, const char *model_path);

#endif
