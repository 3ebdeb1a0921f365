#include "cli/option_file.h"

enum err option_file_read(struct options *o, uint32_t command, const char *path, struct errmsg *em)
{
	(void)o;
	(void)command;
	return errmsg_fail(em, ERR_UNSUPPORTED, "%s: config files are not built yet", path);
}

enum err option_file_apply(struct options *o, uint32_t command, const char *name, const char *text, size_t len, struct errmsg *em)
{
	(void)text;
	(void)len;
	return option_file_read(o, command, name, em);
}
