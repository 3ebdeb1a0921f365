// What a stage's weights take, and how they give way to programs that are short of memory.
#include "node/shell/runtime_state.h"

#define WEIGHTS_LEAST_SHARE 8 // of a stage's weights: with a smaller window the disk is not kept busy

struct msg_weight_report runtime_weight_report(const struct node_runtime *rt)
{
	struct residency_stats s;
	if (!node_runtime_weight_stats(rt, &s) || s.reader == READER_AUTO)
		return (struct msg_weight_report){0};
	return (struct msg_weight_report){.reader = s.reader == READER_MMAP ? 1 : 2, .locked = s.is_locked, .pinned = s.pinned_bytes, .streamed = s.streamed_bytes,
		.window = s.window_bytes, .read = s.read_bytes, .read_us = (uint64_t)s.read_ns / 1000, .stall_us = (uint64_t)s.stall_ns / 1000,
		.withheld = rt->held < rt->size.whole ? rt->size.whole - rt->held : 0};
}

void runtime_say_loaded(struct node_runtime *rt)
{
	struct residency_stats s;
	char text[RESIDENCY_TEXT_CAP];
	if (!node_runtime_weight_stats(rt, &s) || s.reader == READER_AUTO)
		return;
	residency_describe(&s, text);
	log_line(rt->p.log, LOG_INFO, "weights: %s", text);
}

struct residency_limits runtime_limits_within(const struct node_runtime *rt, const struct residency_limits *l, const struct stage_size *size, uint64_t bytes)
{
	struct residency_limits out = *l;
	uint64_t most = bytes > size->least ? bytes : size->least;
	if (bytes >= size->whole)
		return out;
	if (!out.is_capped) // of a file that is mapped as a whole
		out = (struct residency_limits){.is_capped = true, .bytes = UINT64_MAX, .anon_bytes = UINT64_MAX, .reader = READER_MMAP, .stream_share = l->stream_share,
			.log = rt->p.log};
	out.bytes = most < out.bytes ? most : out.bytes;
	out.anon_bytes = most < out.anon_bytes ? most : out.anon_bytes;
	return out;
}

// fit_profile: what the coordinator plans with while weights may not take all that the cap leaves them.
static struct device_profile fit_profile(const struct node_runtime *rt)
{
	struct device_profile p = rt->profile;
	uint64_t cap = rt->hold < UINT64_MAX ? p.reserved_bytes + rt->size.rest + rt->hold : UINT64_MAX; // those moved away stay away
	if (cap < (p.cap_bytes > 0 ? p.cap_bytes : p.available_bytes))
		p.cap_bytes = cap;
	return p;
}

void runtime_on_probed(void *ctx, enum err err, const char *text, const struct device_profile *profile)
{
	struct node_runtime *rt = ctx;
	struct node_event ev = {.type = NODE_EV_PROBED};
	struct device_profile p = {.n_threads = 0};
	if (err == OK) {
		rt->profile = *profile;
		p = fit_profile(rt);
	}
	ev.u.probed.err = err;
	ev.u.probed.text = text;
	ev.u.probed.profile = &p;
	runtime_step(rt, &ev);
}

// run_hold reads what stays anew: that which lies between streamed units lies elsewhere than before.
static void run_hold(struct worker_job *job)
{
	struct rt_job *j = (struct rt_job *)job;
	const struct node_runtime *rt = j->rt;
	struct residency_limits l = runtime_limits_within(rt, &j->limits, &j->size, j->hold);
	if (j->hold < j->size.whole && rt->before.reader != READER_AUTO)
		l.reader = rt->before.reader; // it is no time to try both
	stage_work_drop_weights(j->work);
	j->err = stage_work_load_weights(j->work, &l, &j->em);
	if (j->err == OK)
		return;
	log_line(rt->p.log, LOG_WARNING, "weights cannot be kept in less memory: %s", j->em.text);
	stage_work_drop_weights(j->work);
	j->err = stage_work_load_weights(j->work, &j->limits, &j->em);
	if (j->err != OK && j->err != ERR_STATE)
		j->err = ERR_IO; // as what cannot be read: the others go on without this machine
}

void runtime_on_hold(void *ctx)
{
	struct rt_job *j = ctx;
	struct node_runtime *rt = j->rt;
	j->is_busy = false;
	j->work = NULL;
	stage_work_close(rt->unloaded);
	rt->unloaded = NULL;
	rt->held = j->hold;
	if (rt->load_waits) {
		runtime_resume_load(rt);
		return;
	}
	struct node_event ev = {.type = NODE_EV_WEIGHTS};
	ev.u.weights = runtime_weight_report(rt);
	runtime_say_loaded(rt);
	runtime_step(rt, &ev);
	runtime_pump_hold(rt);
}

// On the worker it is between two turns of computing: nothing keeps a view of weights from one to the next. A moment in which no forward of a group is
// under way can be long in coming.
void runtime_pump_hold(struct node_runtime *rt)
{
	struct rt_job *j = &rt->holding;
	bool is_other = rt->hold != rt->held && (rt->hold < rt->size.whole || rt->held < rt->size.whole);
	if (!is_other || rt->work == NULL || j->is_busy || rt->load.is_busy || j->err != OK || rt->is_closing)
		return;
	(void)node_runtime_weight_stats(rt, &rt->before);
	j->work = rt->work;
	j->limits = rt->limits;
	j->size = rt->size;
	j->hold = rt->hold;
	runtime_job_start(rt, j, run_hold);
}

void node_runtime_hold(struct node_runtime *rt, uint64_t bytes)
{
	rt->hold = bytes;
	if (rt->profile.n_threads > 0) {
		struct device_profile p = rt->profile;
		runtime_on_probed(rt, OK, "", &p);
	}
	runtime_pump_hold(rt);
}

void node_runtime_weights(const struct node_runtime *rt, uint64_t *full, uint64_t *least)
{
	const struct residency_limits *l = &rt->limits;
	uint64_t room = !l->is_capped ? UINT64_MAX : l->reader == READER_DIRECT && l->anon_bytes < l->bytes ? l->anon_bytes : l->bytes;
	*full = rt->work == NULL ? 0 : rt->size.whole < room ? rt->size.whole : room;
	*least = rt->work == NULL ? 0 : rt->size.least > *full / WEIGHTS_LEAST_SHARE ? rt->size.least : *full / WEIGHTS_LEAST_SHARE;
}

bool node_runtime_weight_stats(const struct node_runtime *rt, struct residency_stats *out)
{
	if (rt->work == NULL)
		return false;
	if (rt->holding.is_busy)
		*out = rt->before;
	else
		stage_work_weight_stats(rt->work, out);
	return true;
}
