// When this machine is measured, and that the coordinator hears of it. A machine that computes is not measured: both would be wrong and slow.
#include "node/node_state.h"

#include "base/log.h"

#define FAILURES_MAX 3 // after which it is as it is: the coordinator plans with what it observes

void node_probe_tell(struct node *n, struct node_effects *fx)
{
	if (!n->welcomed || n->profile.n_threads == 0)
		return;
	struct msg m = {.type = MSG_PROFILE, .u.profile = n->profile};
	node_send_msg(n, fx, &m);
}

void node_probe_on_probed(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	n->is_probing = n->probe_is_stopped = false;
	if (ev->u.probed.err == OK) {
		n->profile = *ev->u.probed.profile;
		node_probe_tell(n, fx);
		return;
	}
	if (ev->u.probed.err == ERR_CANCELLED)
		return; // it begins anew when there is nothing to do again
	n->n_probes_failed++;
	node_log(fx, LOG_WARNING, "this machine could not be measured: %s", ev->u.probed.text);
}

static bool is_wanted(const struct node *n)
{
	return n->config.may_probe && n->profile.n_threads == 0 && n->n_probes_failed < FAILURES_MAX && n->welcomed && !n->leaving;
}

// begin_ns returns when it may begin if nothing happens: who has just joined gets layers in a moment.
static int64_t begin_ns(const struct node *n)
{
	int64_t joined_ns = n->welcomed_ns + (node_links_calm_ns(n) - n->last_step_ns), calm_ns = node_links_calm_ns(n);
	return joined_ns > calm_ns ? joined_ns : calm_ns;
}

void node_probe_pump(struct node *n, struct node_effects *fx)
{
	bool is_free = n->load_id == 0 && n->prepare_id == 0 && node_links_has_calm(n);
	if (n->is_probing && !n->probe_is_stopped && !is_free) {
		n->probe_is_stopped = true;
		node_fx(fx, NODE_FX_STOP_PROBE);
	}
	if (n->is_probing || !is_free || !is_wanted(n) || n->now_ns < begin_ns(n))
		return;
	n->is_probing = true;
	node_fx(fx, NODE_FX_PROBE);
}

int64_t node_probe_deadline_ns(const struct node *n)
{
	// With something under way, its end is an event.
	bool may_begin = is_wanted(n) && !n->is_probing && n->load_id == 0 && n->prepare_id == 0 && !stage_has_forward(n) && n->queue.n == 0;
	int64_t at = begin_ns(n);
	return may_begin && at > n->now_ns ? at : INT64_MAX;
}
