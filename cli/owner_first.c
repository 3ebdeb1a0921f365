#include "cli/owner_first.h"

#include "base/memory_facts.h"

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

// say_memory tells what weights may take from now on, of `full`.
static void say_memory(const struct owner_first *f, const struct memory_look *l, uint64_t hold, uint64_t full)
{
	if (hold == GIVE_MEMORY_ALL)
		log_line(f->log, LOG_INFO, "there is memory again: weights take %.1f MiB", (double)full / 1048576);
	else if (give_memory_is_short(l))
		log_line(f->log, LOG_INFO, "other programs are short of memory (%.1f MiB are available, somebody waited for some %.0f %% of the time): weights take %.1f of "
			"%.1f MiB", (double)l->available_bytes / 1048576, l->pressure > 0 ? l->pressure / 1e2 : 0, (double)hold / 1048576, (double)full / 1048576);
	else
		log_line(f->log, LOG_INFO, "other programs have memory again: weights take %.1f of %.1f MiB", (double)hold / 1048576, (double)full / 1048576);
}

static void look_at_memory(struct owner_first *f)
{
	struct memory_facts m;
	uint64_t full, least, before = f->memory.hold;
	if (f->node == NULL || memory_facts_read("", &m) != OK)
		return;
	node_runtime_weights(f->node, &full, &least);
	give_memory_stage(&f->memory, full, least);
	const struct memory_look l = {.pressure = m.pressure, .available_bytes = m.available_bytes, .total_bytes = m.total_bytes};
	uint64_t hold = give_memory_look(&f->memory, &l);
	if (hold == before)
		return;
	say_memory(f, &l, hold, full);
	node_runtime_hold(f->node, hold);
}

static void on_timer(void *ctx)
{
	struct owner_first *f = ctx;
	struct cpu_use now;
	if (f->has_last && cpu_use_read("", "hearth", &now) == OK) {
		look(f, &now);
		f->last = now;
	}
	look_at_memory(f);
	loop_timer_set(f->loop, &f->timer, loop_clock_ns() + LOOK_NS);
}

void owner_first_start(struct owner_first *f, const struct options *o, struct loop *loop, struct worker *worker, struct node_runtime *node,
	const struct log *log)
{
	*f = (struct owner_first){.log = log, .worker = worker, .node = node};
	if (o->no_give_way)
		return;
	f->loop = loop;
	f->has_last = cpu_use_read("", "hearth", &f->last) == OK;
	give_way_init(&f->way, pool_n_threads(worker_pool(worker)));
	give_memory_init(&f->memory);
	loop_timer_init(&f->timer, on_timer, f);
	loop_timer_set(loop, &f->timer, loop_clock_ns() + LOOK_NS);
}

void owner_first_stop(struct owner_first *f)
{
	if (f->loop != NULL)
		loop_timer_clear(f->loop, &f->timer);
	f->loop = NULL;
}
