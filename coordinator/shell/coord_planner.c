#include "coordinator/shell/coord_planner.h"

#include "base/thread.h"
#include "base/wire_type.h"
#include "coordinator/plan_solve.h"
#include "model/model_bytes.h"

#include <stdlib.h>

// One question, and its answer.
struct question {
	int32_t chain;
	struct plan_solve ask;
	struct arena scratch;
	enum err err;
	struct errmsg em;
	struct plan_answer answer;
};

struct coord_planner {
	struct coord_planner_params p;
	struct model_bytes bytes;
	struct model_shape shape;
	struct question *waiting[CHAINS_MAX]; // the newest of each chain
	struct question *solved[CHAINS_MAX];  // the last of each chain that the solver had an answer to
	struct question *busy;                // whose answer comes next
	bool has_thread;                      // it is being solved
	pthread_t thread;                     // when has_thread
	int32_t turn;                         // the chain that comes next
	struct loop_task done;
};

static void *solve_thread(void *ctx)
{
	struct coord_planner *pl = ctx;
	struct question *q = pl->busy; // until the loop hears of its end
	if (q->err == OK)
		q->err = plan_solve_run(&q->ask, &q->scratch, &q->answer, &q->em);
	loop_task_post(pl->p.loop, &pl->done);
	return NULL;
}

// free_question takes NULL, too.
static void free_question(struct question *q)
{
	if (q != NULL)
		arena_close(&q->scratch);
	free(q);
}

static void tell(struct coord_planner *pl, uint32_t id, enum err err, const char *text, const struct plan_answer *a)
{
	struct coord_event ev = {.type = COORD_EV_PLANNED};
	ev.u.planned.id = id;
	ev.u.planned.err = err;
	ev.u.planned.text = text;
	if (err == OK) {
		ev.u.planned.plan = &a->plan;
		ev.u.planned.groups = a->groups;
		ev.u.planned.token_s = a->token_s;
		ev.u.planned.current_s = a->current_s;
		ev.u.planned.move_s = a->move_s;
	}
	pl->p.on_event(pl->p.ctx, &ev);
}

static struct question *take_next(struct coord_planner *pl)
{
	for (int32_t i = 0; i < CHAINS_MAX; i++) {
		int32_t chain = (pl->turn + i) % CHAINS_MAX;
		struct question *q = pl->waiting[chain];
		if (q == NULL)
			continue;
		pl->waiting[chain] = NULL;
		pl->turn = (chain + 1) % CHAINS_MAX;
		return q;
	}
	return NULL;
}

static void start_next(struct coord_planner *pl)
{
	struct question *q = pl->busy == NULL ? take_next(pl) : NULL;
	if (q == NULL)
		return;
	const struct question *before = pl->solved[q->chain];
	pl->busy = q;
	if (q->err == OK && before != NULL && !plan_solve_is_news(&before->ask, &q->ask)) {
		q->answer = before->answer; // solving takes up to a second of a processor
	} else {
		pl->has_thread = thread_start(&pl->thread, solve_thread, pl);
		if (pl->has_thread)
			return;
		q->err = errmsg_fail(&q->em, ERR_LIMIT, "the system gives no thread for the planner");
	}
	loop_task_post(pl->p.loop, &pl->done);
}

static void end_thread(struct coord_planner *pl)
{
	if (pl->has_thread)
		pthread_join(pl->thread, NULL);
	pl->has_thread = false;
}

// keep remembers what was solved: figures that creep are news once they have gone far enough from those that it was solved with.
static void keep(struct coord_planner *pl, struct question *q)
{
	arena_close(&q->scratch);
	free_question(pl->solved[q->chain]);
	pl->solved[q->chain] = q;
}

static void on_done(void *ctx)
{
	struct coord_planner *pl = ctx;
	struct question *q = pl->busy;
	bool was_solved = pl->has_thread;
	end_thread(pl);
	pl->busy = NULL;
	was_solved = was_solved && q->err == OK;
	if (was_solved)
		keep(pl, q);
	tell(pl, q->ask.id, q->err, q->err != OK ? q->em.text : q->answer.words, &q->answer);
	if (!was_solved)
		free_question(q);
	start_next(pl);
}

// The core is told from the loop, never while it takes a step: a question that cannot be put goes the way of the others.
void coord_planner_ask(struct coord_planner *pl, const struct coord_effect *f)
{
	struct question *q = calloc(1, sizeof *q);
	if (q == NULL)
		abort(); // a few hundred KiB: nothing works any more
	q->chain = f->u.plan.chain;
	q->err = plan_solve_begin(pl->p.core, f, &pl->shape, &q->ask, &q->em);
	q->ask.id = f->u.plan.id;
	size_t bytes = q->err == OK ? plan_solve_scratch_bytes(&q->ask) : 0;
	if (bytes > 0 && arena_open(bytes, &q->scratch) != OK)
		q->err = errmsg_fail(&q->em, ERR_NOMEM, "no memory for the planner (%zu MiB)", bytes >> 20);
	free_question(pl->waiting[q->chain]); // members make a chain ask whenever they come and go
	pl->waiting[q->chain] = q;
	start_next(pl);
}

static enum err read_shape(struct coord_planner *pl, struct errmsg *em)
{
	const struct hparams *hp = model_hparams(pl->p.model);
	model_bytes_of(model_gguf(pl->p.model), hp->n_layers, &pl->bytes);
	enum err e = model_shape_of(hp, DTYPE_F32, DTYPE_F32, wire_bytes(pl->p.config->wire, hp->hidden_dim), &pl->shape, em);
	if (e == OK)
		model_shape_count(&pl->shape, &(struct model_counted){pl->bytes.layers, pl->bytes.head, pl->bytes.experts, pl->bytes.type, pl->bytes.o,
			pl->bytes.down});
	return e;
}

enum err coord_planner_open(const struct coord_planner_params *p, struct coord_planner **out, struct errmsg *em)
{
	struct coord_planner *pl = calloc(1, sizeof *pl);
	if (pl == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory for the planner");
	pl->p = *p;
	loop_task_init(&pl->done, on_done, pl);
	enum err e = read_shape(pl, em);
	if (e != OK) {
		free(pl);
		return e;
	}
	*out = pl;
	return OK;
}

void coord_planner_close(struct coord_planner *pl)
{
	if (pl == NULL)
		return;
	end_thread(pl); // seconds at most
	loop_task_cancel(pl->p.loop, &pl->done);
	free_question(pl->busy);
	for (int32_t i = 0; i < CHAINS_MAX; i++) {
		free_question(pl->waiting[i]);
		free_question(pl->solved[i]);
	}
	free(pl);
}
