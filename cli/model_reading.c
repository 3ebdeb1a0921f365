#include "cli/model_reading.h"

#include "base/thread.h"
#include "blocks/shell/known_model.h"
#include "cli/home_dir.h"
#include "coordinator/shell/model_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOG_NS INT64_C(5000000000) // between two lines about it

struct reading {
	struct loop *loop;
	const struct log *log;
	const char *dir;
	bool (*is_interrupted)(void *ctx);
	void *ctx;
	struct manifest_source source;
	struct manifest_progress progress;
	struct loop_task task;
	struct loop_timer timer;
	int64_t begin_ns;
	bool is_done;
	uint8_t *bytes;
	size_t len;
	enum err err;
	struct errmsg em;
};

bool known_dir_resolve(const char *cache_flag, char out[KNOWN_DIR_CAP])
{
	static const struct home_dir_kind kind = {"cache", "--cache", "XDG_CACHE_HOME", "/.cache/hearth"};
	struct errmsg em;
	size_t len;
	if (home_dir_resolve(&kind, cache_flag, out, KNOWN_DIR_CAP, &em) != OK || (len = strlen(out)) + sizeof "/known" > KNOWN_DIR_CAP)
		return false;
	snprintf(out + len, KNOWN_DIR_CAP - len, "/known");
	return true;
}

static void *run(void *ctx)
{
	struct reading *r = ctx;
	r->err = known_model_make(r->dir, &r->source, &r->bytes, &r->len, &r->em);
	loop_task_post(r->loop, &r->task);
	return NULL;
}

static void on_done(void *ctx)
{
	((struct reading *)ctx)->is_done = true;
}

static void on_timer(void *ctx)
{
	struct reading *r = ctx;
	manifest_progress_log(r->log, &r->source, r->begin_ns, loop_clock_ns());
	loop_timer_set(r->loop, &r->timer, loop_clock_ns() + LOG_NS);
}

static bool is_over(void *ctx)
{
	struct reading *r = ctx;
	if (r->is_interrupted(r->ctx))
		atomic_store(&r->progress.is_cancelled, true);
	return r->is_done;
}

static enum err read_it(struct reading *r, struct errmsg *em)
{
	pthread_t thread;
	r->begin_ns = loop_clock_ns();
	loop_task_init(&r->task, on_done, r);
	loop_timer_init(&r->timer, on_timer, r);
	if (!thread_start(&thread, run, r))
		return errmsg_fail(em, ERR_NOMEM, "%s: no thread to read it", r->source.path);
	loop_timer_set(r->loop, &r->timer, r->begin_ns + LOG_NS);
	loop_finish(r->loop, is_over, r); // a signal cancels it: the thread then ends within a block
	loop_timer_clear(r->loop, &r->timer);
	pthread_join(thread, NULL);
	*em = r->em;
	return r->err;
}

enum err model_reading_hash(struct loop *loop, const struct log *log, const struct model *m, const char *known_dir, bool (*is_interrupted)(void *ctx), void *ctx,
	uint8_t out[HASH_BYTES], struct errmsg *em)
{
	struct reading r = {.loop = loop, .log = log, .dir = known_dir, .is_interrupted = is_interrupted, .ctx = ctx};
	struct manifest manifest;
	struct errmsg why;
	enum err e = OK;
	if (known_dir == NULL || known_model_find(known_dir, model_path(m), &r.bytes, &r.len, &why) != OK) {
		e = model_source_open(m, &r.source, em);
		r.source.progress = &r.progress;
		if (e == OK)
			e = read_it(&r, em);
	}
	if (e == OK)
		e = manifest_parse(r.bytes, r.len, &manifest, em);
	if (e == OK)
		memcpy(out, manifest.model_hash, HASH_BYTES);
	model_source_close(&r.source);
	free(r.bytes);
	return e;
}
