// Values: one checked setter per kind of thing a value can be written as, shared by the command line and the file.
//
// `where` names the place in messages ("--ctx", "home.toml:12: compute.ctx"). Each setter refuses a value that its option's
// kind cannot take, with what was got and what is wanted, and leaves the field as it was.
#ifndef HEARTH_CLI_OPTION_VALUES_H
#define HEARTH_CLI_OPTION_VALUES_H

#include "cli/options.h"

#define OPTION_WANT_CAP 160

// option_set_text reads a value as typed; strings are borrowed.
MUST_USE enum err option_set_text(const struct option *opt, struct options *o, const char *where, const char *text,
	struct errmsg *em);
MUST_USE enum err option_set_bool(const struct option *opt, struct options *o, const char *where, bool v, struct errmsg *em);
MUST_USE enum err option_set_int(const struct option *opt, struct options *o, const char *where, int64_t v, struct errmsg *em);
MUST_USE enum err option_set_float(const struct option *opt, struct options *o, const char *where, double v, struct errmsg *em);

// option_clear_list empties a list before option_set_int or option_set_text_item add to it. True when the option is a list.
bool option_clear_list(const struct option *opt, struct options *o);
// option_add_int, option_add_text append one item to a list.
MUST_USE enum err option_add_int(const struct option *opt, struct options *o, const char *where, int64_t v, struct errmsg *em);
MUST_USE enum err option_add_text(const struct option *opt, struct options *o, const char *where, const char *text,
	struct errmsg *em);

// option_size_text writes bytes as one types them: "3G", "1536M", "1000".
void option_size_text(uint64_t bytes, char out[24]);
// option_want writes what a value must be: "an integer from 1 to 512".
void option_want(const struct option *opt, char want[OPTION_WANT_CAP]);
// option_refuse writes "<where>: got <got>, want ..." and returns ERR_USAGE.
enum err option_refuse(const struct option *opt, const char *where, const char *got, struct errmsg *em);

#endif
