// Prospective parts: layers that are fetched before a plan counts on them.
//
// One PREPARE at a time, of the newest Prepare; the load of a plan goes before it. What was fetched stays, so that one that begins again after a
// load, or for other layers, goes on where it was.
#include "node/node_state.h"

// is_newest: what is being fetched is what was asked for last.
static bool is_newest(const struct node *n)
{
	return layer_spans_equal(&n->preparing, &n->prepare_layers) && layer_part_equal(&n->preparing_part, &n->prepare_part) &&
		n->preparing_output == n->prepare_output;
}

// add_engine: what the engine runs is here.
static void add_engine(struct node *n)
{
	struct layer_set layers = layer_set_of(&n->engine.layers);
	struct layer_part part = node_part_of(&n->engine.group);
	held_add(&n->held, &part, &layers);
	if (n->engine.has_output && n->engine.stage == n->engine.n_stages - 1)
		held_add_output(&n->held, &part);
}

static void answer(struct node *n, const char *error, struct node_effects *fx)
{
	struct msg m = {.type = MSG_PREPARED};
	m.u.prepared.serial = n->prepare_serial;
	text_copy(m.u.prepared.error, sizeof m.u.prepared.error, error);
	n->prepare_serial = 0;
	node_send_msg(n, fx, &m);
}

void prepare_on_message(struct node *n, const struct msg *m, struct node_effects *fx)
{
	const struct layer_spans *layers = &m->u.prepare.layers;
	if (m->u.prepare.serial <= n->prepare_newest)
		return; // crossed on the way
	n->prepare_newest = n->prepare_serial = m->u.prepare.serial;
	n->prepare_layers = *layers;
	n->prepare_part = m->u.prepare.part;
	n->prepare_output = m->u.prepare.has_output;
	if (layers->n > 0 && layers->at[layers->n - 1].end > n->config.n_layers)
		answer(n, "the part names layers that the model does not have", fx);
	else if (layers->n > 0 && !n->config.fetches)
		answer(n, "", fx); // it has them all
}

void prepare_lose(struct node *n)
{
	n->prepare_serial = n->prepare_newest = 0;
}

void prepare_on_loaded(struct node *n, enum err err)
{
	if (!n->config.fetches)
		return;
	n->held.n = 0; // to make room for a load, blocks of other layers may have gone
	if (err == OK)
		add_engine(n);
}

void prepare_on_done(struct node *n, const struct node_event *ev, struct node_effects *fx)
{
	if (ev->u.prepared.id != n->prepare_id)
		return;
	bool is_asked = n->prepare_serial != 0 && is_newest(n);
	bool was_stopped = n->prepare_stops && ev->u.prepared.err != OK;
	n->prepare_id = 0;
	n->prepare_stops = false;
	if (ev->u.prepared.err == OK) {
		struct layer_set fetched = layer_set_of(&n->preparing);
		n->held.n = 0;
		if (n->engine.epoch.v != 0)
			add_engine(n);
		held_add(&n->held, &n->preparing_part, &fetched);
		if (n->preparing_output)
			held_add_output(&n->held, &n->preparing_part);
	}
	if (is_asked && !was_stopped)
		answer(n, ev->u.prepared.err == OK ? "" : ev->u.prepared.text, fx);
	if (n->load_waits)
		node_load(n, fx);
}

// is_wanted: what is being fetched may go on.
static bool is_wanted(const struct node *n)
{
	bool is_other = n->prepare_serial != 0 && !is_newest(n);
	return !is_other && !n->load_waits;
}

void prepare_pump(struct node *n, struct node_effects *fx)
{
	if (n->prepare_id != 0) {
		if (!n->prepare_stops && !is_wanted(n)) {
			n->prepare_stops = true;
			node_fx(fx, NODE_FX_STOP_PREPARE);
		}
		return;
	}
	if (n->prepare_serial != 0 && n->prepare_layers.n == 0)
		n->prepare_serial = 0; // nothing is wanted, and nothing is under way
	if (n->prepare_serial == 0 || n->load_id != 0 || n->has_next)
		return;
	n->prepare_id = ++n->next_id;
	n->preparing = n->prepare_layers;
	n->preparing_part = n->prepare_part;
	n->preparing_output = n->prepare_output;
	struct node_effect *f = node_fx(fx, NODE_FX_PREPARE);
	f->u.prepare.id = n->prepare_id;
	f->u.prepare.layers = n->preparing;
	f->u.prepare.part = n->preparing_part;
	f->u.prepare.has_output = n->preparing_output;
}
