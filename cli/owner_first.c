#include "cli/owner_first.h"

#define LOOK_NS (GIVE_WAY_LOOK_S * INT64_C(1000000000))

static void look(struct owner_first *f, const struct cpu_use *now)
{
	double others = cpu_use_by_others(&f->last, now);
	if (others < 0)
		return;
	int32_t before = f->way.n_now, n = give_way_look(&f->way, others, now->n_cpus);
	if (n == before)
		return;
	pool_use(worker_pool(f->worker), n);
	if (n < before)
		log_line(f->log, LOG_INFO, "other programs use %.1f of %d processors: computing with %d of %d threads", others, now->n_cpus, n, f->way.n_max);
	else if (n == f->way.n_max)
		log_line(f->log, LOG_INFO, "the processors are free again: computing with all %d threads", n);
}

static void on_timer(void *ctx)
{
	struct owner_first *f = ctx;
	struct cpu_use now;
	if (cpu_use_read("", "hearth", &now) == OK) {
		look(f, &now);
		f->last = now;
	}
	loop_timer_set(f->loop, &f->timer, loop_clock_ns() + LOOK_NS);
}

void owner_first_start(struct owner_first *f, const struct options *o, struct loop *loop, struct worker *worker, const struct log *log)
{
	*f = (struct owner_first){.loop = loop, .log = log, .worker = worker};
	if (o->no_give_way || cpu_use_read("", "hearth", &f->last) != OK) {
		f->loop = NULL;
		return;
	}
	give_way_init(&f->way, pool_n_threads(worker_pool(worker)));
	loop_timer_init(&f->timer, on_timer, f);
	loop_timer_set(loop, &f->timer, loop_clock_ns() + LOOK_NS);
}

void owner_first_stop(struct owner_first *f)
{
	if (f->loop != NULL)
		loop_timer_clear(f->loop, &f->timer);
	f->loop = NULL;
}
