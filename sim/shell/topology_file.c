// A topology from the disk: its file, and the traces it names.
#include "sim/shell/topology.h"

#include "base/toml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The loader's state: one text at a time.
struct files {
	char folder[TRACE_PATH_CAP];
	char *text;
};

// read_file fills *text, which the caller frees. A file is read to its end, so that a pipe is fine.
static enum err read_file(const char *path, size_t max, char **text, size_t *len, struct errmsg *em)
{
	*text = NULL;
	*len = 0;
	FILE *f = fopen(path, "rbe");
	if (f == NULL)
		return errmsg_fail(em, ERR_IO, "%.300s: cannot open: %s", path, strerror(errno));
	size_t cap = 0;
	enum err e = OK;
	while (e == OK && !feof(f)) {
		if (*len == cap) {
			cap = cap ? 2 * cap : 64 * 1024;
			char *bigger = realloc(*text, cap);
			e = bigger ? OK : errmsg_fail(em, ERR_NOMEM, "%.300s: no memory", path);
			*text = bigger ? bigger : *text;
		}
		if (e == OK)
			*len += fread(*text + *len, 1, cap - *len, f);
		if (e == OK && ferror(f))
			e = errmsg_fail(em, ERR_IO, "%.300s: cannot read: %s", path, strerror(errno));
		if (e == OK && *len > max)
			e = errmsg_fail(em, ERR_LIMIT, "%.300s: more than %zu bytes", path, max);
	}
	fclose(f);
	if (e != OK) {
		free(*text);
		*text = NULL;
	}
	return e;
}

static enum err load(void *ctx, const char *path, const char **text, size_t *len, struct errmsg *em)
{
	struct files *f = ctx;
	char full[2 * TRACE_PATH_CAP];
	snprintf(full, sizeof full, "%s%s", path[0] == '/' ? "" : f->folder, path);
	free(f->text);
	enum err e = read_file(full, TRACE_BYTES_MAX, &f->text, len, em);
	*text = f->text;
	return e;
}

enum err topology_open(const char *path, struct topology *out, struct errmsg *em)
{
	struct files files = {.text = NULL};
	const struct trace_loader loader = {.ctx = &files, .load = load};
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) + 1 : 0, len;
	char *text;
	if (n >= sizeof files.folder)
		return errmsg_fail(em, ERR_LIMIT, "a path of %zu bytes, want at most %d", strlen(path), TRACE_PATH_CAP - 1);
	memcpy(files.folder, path, n);
	enum err e = read_file(path, TOML_BYTES_MAX, &text, &len, em);
	if (e == OK)
		e = topology_parse(path, text, len, &loader, out, em);
	free(text);
	free(files.text);
	return e;
}
