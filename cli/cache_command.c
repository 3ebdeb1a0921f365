// `hearth cache`: what was fetched of models, and looking after it.
#include "cli/cache_dir.h"
#include "cli/command.h"

#include "base/printable.h"
#include "blocks/shell/block_store.h"
#include "blocks/shell/known_model.h"

#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct looking {
	const struct command_ctx *ctx;
	struct block_cache cache;
	struct block_cache_model models[BLOCK_CACHE_MODELS_MAX];
	struct manifest manifests[BLOCK_CACHE_MODELS_MAX]; // gc: names and sizes of what may be gone then; the rest of it is not there
	size_t n;
	json_t *list; // --json: one object for each model
};

static const char *hash_text(const uint8_t hash[BLOCK_HASH_BYTES], char out[2 * BLOCK_HASH_BYTES + 1])
{
	return sodium_bin2hex(out, 2 * BLOCK_HASH_BYTES + 1, hash, BLOCK_HASH_BYTES);
}

static const char *shown_name(const struct manifest *m, char out[MANIFEST_NAME_MAX + 4])
{
	return printable_copy(m->name, strlen(m->name), out, MANIFEST_NAME_MAX + 4);
}

static json_t *model_json(const struct block_cache_model *m, const struct manifest *manifest)
{
	char hex[2 * BLOCK_HASH_BYTES + 1], name[MANIFEST_NAME_MAX + 4] = "";
	json_t *o = json_pack("{s:s, s:I, s:I, s:b}", "id", hash_text(m->manifest_hash, hex), "bytes", (json_int_t)m->bytes, "used_s", (json_int_t)m->used_s, "in_use",
		m->is_in_use);
	if (manifest != NULL)
		json_object_update_new(o, json_pack("{s:s, s:I, s:s}", "name", shown_name(manifest, name), "file_bytes", (json_int_t)manifest->file_bytes, "model_hash",
			hash_text(manifest->model_hash, hex)));
	return o;
}

// put adds a model's object to the list that --json prints at the end.
static void put(struct looking *l, json_t *o)
{
	json_array_append_new(l->list, o);
}

static int print_list(struct looking *l, const char *key, json_t *more)
{
	json_object_set_new(more, key, json_incref(l->list));
	json_dumpf(more, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(more);
	return fflush(stdout) == 0 ? EXIT_DONE : command_fail(l->ctx, "cannot write to standard output");
}

// ---- ls

static void print_model(const struct block_cache_model *m, const struct manifest *manifest)
{
	char hex[2 * BLOCK_HASH_BYTES + 1], name[MANIFEST_NAME_MAX + 4] = "(its manifest is damaged)", when[32] = "-";
	time_t used = (time_t)m->used_s;
	struct tm tm;
	if (manifest != NULL)
		shown_name(manifest, name);
	if (used > 0 && localtime_r(&used, &tm) != NULL)
		strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm);
	printf("  %.8s %8" PRIu64 " MiB of %8" PRIu64 "  %-16s  %-6s  %s\n", hash_text(m->manifest_hash, hex), m->bytes >> 20, manifest != NULL ? manifest->file_bytes >> 20 : 0,
		when, m->is_in_use ? "in use" : "", name);
}

static int list(struct looking *l)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < l->n; i++) {
		struct block_store *s = NULL;
		struct errmsg em;
		const struct block_cache_model *m = &l->models[i];
		const struct manifest *manifest = block_store_peek(&l->cache, m->manifest_hash, &s, &em) == OK ? block_store_manifest(s) : NULL;
		sum += m->bytes;
		if (l->ctx->opts->json)
			put(l, model_json(m, manifest));
		else
			print_model(m, manifest);
		block_store_close(s);
	}
	if (l->ctx->opts->json)
		return print_list(l, "models", json_pack("{s:s, s:I}", "path", l->cache.path, "bytes", (json_int_t)sum));
	printf("%s: %zu %s, %" PRIu64 " MiB\n", l->cache.path, l->n, l->n == 1 ? "model" : "models", sum >> 20);
	return EXIT_DONE;
}

// ---- gc

// look_inside: peeking takes the cache's lock, which gc holds.
static void look_inside(struct looking *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct block_store *s = NULL;
		struct errmsg em;
		if (block_store_peek(&l->cache, l->models[i].manifest_hash, &s, &em) == OK)
			l->manifests[i] = *block_store_manifest(s);
		block_store_close(s);
	}
}

static int collect(struct looking *l)
{
	look_inside(l);
	uint64_t freed = 0, missing = 1;
	struct errmsg em;
	int lock;
	if (block_cache_lock(&l->cache, &lock, &em) != OK)
		return command_fail(l->ctx, "%s", em.text);
	for (size_t i = 0; i < l->n; i++) {
		const struct block_cache_model *m = &l->models[i];
		if (l->cache.bytes_max != 0 && (block_cache_missing(&l->cache, 0, &missing, &em) != OK || missing == 0))
			break;
		if (m->is_in_use || block_cache_remove(&l->cache, m->manifest_hash, &em) != OK)
			continue;
		freed += m->bytes;
		const struct manifest *manifest = l->manifests[i].file_bytes > 0 ? &l->manifests[i] : NULL;
		if (l->ctx->opts->json)
			put(l, model_json(m, manifest));
		else
			print_model(m, manifest);
	}
	close(lock);
	if (l->ctx->opts->json)
		return print_list(l, "removed", json_pack("{s:s, s:I}", "path", l->cache.path, "bytes_freed", (json_int_t)freed));
	printf("%s: %" PRIu64 " MiB freed\n", l->cache.path, freed >> 20);
	return EXIT_DONE;
}

// ---- verify

struct verdict {
	uint32_t n_good, n_bad, n_dropped;
};

// compare reads every block that is here.
static enum err compare(struct looking *l, const struct block_store *s, struct verdict *v, struct errmsg *em)
{
	const struct manifest *m = block_store_manifest(s);
	uint64_t *words = calloc(2 * block_set_words(m->n_blocks), sizeof *words);
	uint8_t *buf = malloc(m->block_bytes);
	struct block_set present, bad;
	enum err e = words != NULL && buf != NULL ? OK : errmsg_fail(em, ERR_NOMEM, "no memory to read a block");
	if (e == OK) {
		block_set_init(&present, words, m->n_blocks);
		block_set_init(&bad, words + block_set_words(m->n_blocks), m->n_blocks);
		e = block_store_present(s, &present, em);
	}
	for (uint32_t i = e == OK ? block_set_next(&present, 0) : m->n_blocks; i < m->n_blocks; i = block_set_next(&present, i + 1)) {
		struct errmsg why;
		if (block_store_read(s, i, buf, &why) == OK) {
			v->n_good++;
			continue;
		}
		block_set_add(&bad, i);
		v->n_bad++;
		log_line(l->ctx->log, LOG_WARNING, "%s", why.text);
	}
	// Another process that uses the model finds it by itself when it begins; its blocks are not taken away.
	if (e == OK && v->n_bad > 0 && block_store_drop(s, &bad, em) == OK)
		v->n_dropped = v->n_bad;
	free(buf);
	free(words);
	return e;
}

static void say_verdict(struct looking *l, const struct block_cache_model *m, const struct manifest *manifest, const struct verdict *v)
{
	char name[MANIFEST_NAME_MAX + 4];
	if (!l->ctx->opts->json) {
		printf("  %s: %" PRIu32 " blocks good, %" PRIu32 " damaged%s\n", shown_name(manifest, name), v->n_good, v->n_bad,
			v->n_bad == 0 ? "" : v->n_dropped > 0 ? ", freed" : ", left because the model is in use");
		return;
	}
	json_t *o = model_json(m, manifest);
	json_object_update_new(o, json_pack("{s:i, s:i, s:i}", "blocks_good", (int)v->n_good, "blocks_damaged", (int)v->n_bad, "blocks_freed", (int)v->n_dropped));
	put(l, o);
}

struct files {
	struct looking *l;
	json_t *list; // --json
	bool is_good;
};

// say_file tells of a model file of this machine's own, which was read again and compared with what was known of it.
static void say_file(void *ctx, const struct known_model_check *c)
{
	struct files *f = ctx;
	char path[KNOWN_MODEL_PATH_CAP + 4];
	printable_copy(c->path, strlen(c->path), path, sizeof path);
	f->is_good = f->is_good && c->n_bad == 0;
	if (f->l->ctx->opts->json)
		json_array_append_new(f->list, json_pack("{s:s, s:I, s:b, s:i, s:i}", "path", path, "bytes", (json_int_t)c->file_bytes, "gone", c->is_gone, "blocks_good",
			(int)c->n_good, "blocks_damaged", (int)c->n_bad));
	else if (c->is_gone)
		printf("  %s: not there any more, or another file: forgotten\n", path);
	else
		printf("  %s: %" PRIu32 " blocks good, %" PRIu32 " differ from what was read%s\n", path, c->n_good, c->n_bad, c->n_bad > 0 ? ": forgotten" : "");
}

// verify_files reads again what hearth knows of model files that were not fetched.
static bool verify_files(struct files *f)
{
	char dir[BLOCK_CACHE_PATH_CAP + 8];
	struct errmsg em;
	snprintf(dir, sizeof dir, "%s/known", f->l->cache.path);
	if (known_model_verify(dir, say_file, f, &em) == OK)
		return f->is_good;
	command_print_error(f->l->ctx->command_name, em.text);
	return false;
}

static int verify(struct looking *l)
{
	bool is_good = true;
	for (size_t i = 0; i < l->n; i++) {
		struct block_store *s = NULL;
		struct verdict v = {0};
		struct errmsg em;
		enum err e = block_store_peek(&l->cache, l->models[i].manifest_hash, &s, &em);
		if (e == OK)
			e = compare(l, s, &v, &em);
		if (e == OK)
			say_verdict(l, &l->models[i], block_store_manifest(s), &v);
		else
			command_print_error(l->ctx->command_name, em.text);
		is_good = is_good && e == OK && v.n_bad == 0;
		block_store_close(s);
	}
	if (l->n == 0 && !l->ctx->opts->json)
		printf("%s: 0 models\n", l->cache.path);
	struct files files = {.l = l, .list = json_array(), .is_good = true};
	is_good = verify_files(&files) && is_good;
	int code = EXIT_DONE;
	if (l->ctx->opts->json)
		code = print_list(l, "models", json_pack("{s:s, s:b, s:O}", "path", l->cache.path, "good", is_good, "files", files.list));
	json_decref(files.list);
	return is_good ? code : EXIT_ERROR;
}

int cache_main(const struct command_ctx *ctx)
{
	struct errmsg em;
	struct looking *l = calloc(1, sizeof *l);
	if (l == NULL || (l->list = json_array()) == NULL) {
		free(l);
		return command_fail(ctx, "out of memory");
	}
	l->ctx = ctx;
	int code;
	if (cache_dir_open(ctx->opts, &l->cache, &em) != OK || block_cache_list(&l->cache, l->models, BLOCK_CACHE_MODELS_MAX, &l->n, &em) != OK)
		code = command_fail(ctx, "%s", em.text);
	else if (strcmp(ctx->opts->cache_action, "ls") == 0)
		code = list(l);
	else
		code = strcmp(ctx->opts->cache_action, "gc") == 0 ? collect(l) : verify(l);
	json_decref(l->list);
	free(l);
	return code;
}
