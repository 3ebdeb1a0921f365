#include "coordinator/shell/coord_head.h"

#include "base/assert.h"
#include "engine/stage_work.h"

#include <stdlib.h>

struct head_job {
	struct worker_job job;
	struct loop_task task;
	struct coord_head *head;
	uint32_t id;
	bool is_busy;
	int32_t n;
	struct embed_item embed[COORD_ITEMS_MAX];
	enum err errs[COORD_ITEMS_MAX]; // of embed
	const char *texts[COORD_ITEMS_MAX];
	struct sample_item sample[COORD_ITEMS_MAX];
	struct coord_sampled sampled[COORD_ITEMS_MAX];
};

struct coord_head {
	struct coord_head_params p;
	uint8_t *bufs;
	size_t n_bufs, buf_bytes;
	struct stage_work *work;
	struct head_job embed, sample;
	struct logits_hash *hashes; // (n_slots)
};

uint8_t *coord_head_bytes(struct coord_head *h, int32_t buf, size_t off, size_t len)
{
	ASSERT(buf >= 0 && (size_t)buf < h->n_bufs);
	ASSERT(off <= h->buf_bytes && len <= h->buf_bytes - off);
	return h->bufs + (size_t)buf * h->buf_bytes + off;
}

void coord_head_hash(const struct coord_head *h, int32_t slot, char hex[2 * LOGITS_HASH_BYTES + 1])
{
	logits_hash_hex(&h->hashes[slot], hex);
}

// ---- jobs

static void job_done(struct worker_job *job)
{
	struct head_job *j = (struct head_job *)job;
	loop_task_post(j->head->p.loop, &j->task);
}

static void job_start(struct head_job *j, void (*run)(struct worker_job *))
{
	ASSERT(!j->is_busy);
	j->is_busy = true;
	j->job.run = run;
	j->job.done = job_done;
	worker_submit(j->head->p.worker, &j->job);
}

// tell: the job is free for the next batch before the core hears that this one has ended.
static void tell(struct head_job *j, struct coord_event *ev)
{
	j->is_busy = false;
	j->head->p.on_event(j->head->p.ctx, ev);
}

static void run_embed(struct worker_job *job)
{
	struct head_job *j = (struct head_job *)job;
	stage_work_embed(j->head->work, j->embed, j->n);
}

static void on_embedded(void *ctx)
{
	struct head_job *j = ctx;
	for (int32_t i = 0; i < j->n; i++) {
		j->errs[i] = j->embed[i].err;
		j->texts[i] = j->embed[i].em.text;
		if (j->errs[i] != OK)
			log_line(j->head->p.log, LOG_ERROR, "%s", j->texts[i]);
	}
	struct coord_event ev = {.type = COORD_EV_FORWARD_DONE};
	ev.u.forward_done.id = j->id;
	ev.u.forward_done.errs = j->errs;
	ev.u.forward_done.texts = j->texts;
	tell(j, &ev);
}

void coord_head_forward(struct coord_head *h, const struct coord_effect *f)
{
	struct head_job *j = &h->embed;
	j->id = f->u.forward.id;
	j->n = f->u.forward.n_items;
	for (int32_t i = 0; i < j->n; i++) {
		const struct coord_embed_item *it = &f->u.forward.items[i];
		j->embed[i] = (struct embed_item){.tokens = it->tokens, .n_tokens = it->n_tokens, .pos = it->pos,
			.wire = coord_head_bytes(h, it->buf, 0, 0)};
	}
	job_start(j, run_embed);
}

static void run_sample(struct worker_job *job)
{
	struct head_job *j = (struct head_job *)job;
	stage_work_sample(j->head->work, j->sample, j->n);
}

static void on_sampled(void *ctx)
{
	struct head_job *j = ctx;
	for (int32_t i = 0; i < j->n; i++)
		j->sampled[i] = (struct coord_sampled){.token = j->sample[i].token, .err = j->sample[i].err, .text = j->sample[i].em.text};
	struct coord_event ev = {.type = COORD_EV_SAMPLED};
	ev.u.sampled.id = j->id;
	ev.u.sampled.items = j->sampled;
	tell(j, &ev);
}

void coord_head_sample(struct coord_head *h, const struct coord_effect *f)
{
	struct head_job *j = &h->sample;
	j->id = f->u.sample.id;
	j->n = f->u.sample.n_items;
	for (int32_t i = 0; i < j->n; i++) {
		const struct coord_sample_item *it = &f->u.sample.items[i];
		if (it->first)
			logits_hash_init(&h->hashes[it->slot]); // one SAMPLE is under way at a time: the worker does not read it now
		j->sample[i] = (struct sample_item){
			.wire = coord_head_bytes(h, it->buf, 0, 0),
			.n_rows = it->n_rows,
			.want = it->want,
			.hash = it->hash ? &h->hashes[it->slot] : NULL,
			.draw = it->draw,
			.pos = it->pos,
			.sampling = it->sampling,
		};
	}
	job_start(j, run_sample);
}

// ---- opening

static enum err open_work(struct coord_head *h, struct errmsg *em)
{
	struct engine_config c = {
		.model = h->p.model,
		.kernels = worker_kernels(h->p.worker),
		.pool = worker_pool(h->p.worker),
		.has_head = true,
		.embeds_only = h->p.core->has_output,
		.batch_max = h->p.core->chunk_max,
		.wire = h->p.core->wire,
		.weights = h->p.weights,
	};
	return stage_work_open(&c, &h->work, em);
}

static enum err allocate(struct coord_head *h, struct errmsg *em)
{
	h->n_bufs = (size_t)coordinator_n_bufs(h->p.core);
	h->buf_bytes = coordinator_buf_bytes(h->p.core);
	h->bufs = malloc(h->n_bufs * h->buf_bytes);
	h->hashes = calloc((size_t)(coordinator_n_chains(h->p.core) * h->p.core->n_slots), sizeof *h->hashes);
	if (h->bufs && h->hashes)
		return OK;
	return errmsg_fail(em, ERR_NOMEM, "no memory for the coordinator (%zu MiB of buffers)", h->n_bufs * h->buf_bytes >> 20);
}

enum err coord_head_open(const struct coord_head_params *p, struct coord_head **out, struct errmsg *em)
{
	struct coord_head *h = calloc(1, sizeof *h);
	if (h == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the head");
	h->p = *p;
	h->embed.head = h->sample.head = h;
	loop_task_init(&h->embed.task, on_embedded, &h->embed);
	loop_task_init(&h->sample.task, on_sampled, &h->sample);
	enum err e = allocate(h, em);
	if (e == OK)
		e = open_work(h, em);
	if (e != OK) {
		coord_head_close(h);
		return e;
	}
	*out = h;
	return OK;
}

static bool jobs_are_done(void *ctx)
{
	struct coord_head *h = ctx;
	return !h->embed.is_busy && !h->sample.is_busy;
}

void coord_head_close(struct coord_head *h)
{
	if (h == NULL)
		return;
	if (!jobs_are_done(h))
		loop_finish(h->p.loop, jobs_are_done, h); // a batch under way ends within seconds
	stage_work_close(h->work);
	free(h->hashes);
	free(h->bufs);
	free(h);
}

void coord_head_weight_stats(const struct coord_head *h, struct residency_stats *out)
{
	stage_work_weight_stats(h->work, out);
}
