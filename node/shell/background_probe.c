#include "node/shell/background_probe.h"

#include "base/assert.h"

#include <stdlib.h>

struct background_probe {
	struct worker_job job; // first: a job is its probe
	struct background_probe_params p;
	struct loop_task task;
	struct probe *probe;
	bool is_busy, is_stopping, is_closing, has_more;
	int64_t submit_ns, begin_ns;
	enum err err;
	struct errmsg em;
	struct device_profile profile;
};

static void on_run(struct worker_job *job)
{
	struct background_probe *b = (struct background_probe *)job;
	b->begin_ns = loop_clock_ns();
	if (b->probe == NULL)
		b->err = probe_open(&b->p.config, &b->probe, &b->em);
	b->has_more = b->err == OK && probe_step(b->probe);
	if (b->err == OK && !b->has_more) {
		probe_result(b->probe, &b->profile);
		b->p.complete(b->p.ctx, &b->profile);
	}
}

static void on_ran(struct worker_job *job)
{
	struct background_probe *b = (struct background_probe *)job;
	loop_task_post(b->p.loop, &b->task);
}

static void submit(struct background_probe *b)
{
	b->submit_ns = loop_clock_ns();
	b->job.run = on_run;
	b->job.done = on_ran;
	worker_submit(b->p.worker, &b->job);
}

static void finish(struct background_probe *b, enum err err, const char *text)
{
	probe_close(b->probe);
	b->probe = NULL;
	b->is_busy = false;
	if (!b->is_closing)
		b->p.on_done(b->p.done_ctx, err, text, &b->profile);
}

static void on_slice(void *ctx)
{
	struct background_probe *b = ctx;
	if (b->err != OK) {
		finish(b, b->err, b->em.text);
	} else if (!b->has_more) {
		finish(b, OK, "");
	} else if (b->is_stopping) {
		finish(b, ERR_CANCELLED, "stopped");
	} else {
		probe_note_handover(b->probe, b->begin_ns - b->submit_ns);
		submit(b);
	}
}

enum err background_probe_open(const struct background_probe_params *p, struct background_probe **out, struct errmsg *em)
{
	struct background_probe *b = calloc(1, sizeof *b);
	if (b == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory to measure this machine");
	b->p = *p;
	loop_task_init(&b->task, on_slice, b);
	*out = b;
	return OK;
}

void background_probe_start(struct background_probe *b)
{
	ASSERT(!b->is_busy);
	b->is_busy = true;
	b->is_stopping = false;
	b->err = OK;
	uint64_t room = b->p.room(b->p.ctx);
	b->p.config.bytes_max = room;
	submit(b);
}

void background_probe_stop(struct background_probe *b)
{
	b->is_stopping = true;
}

static bool is_over(void *ctx)
{
	const struct background_probe *b = ctx;
	return !b->is_busy;
}

void background_probe_close(struct background_probe *b)
{
	if (b == NULL)
		return;
	b->is_closing = b->is_stopping = true;
	loop_finish(b->p.loop, is_over, b);
	free(b);
}
