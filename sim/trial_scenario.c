#include "sim/trial_scenario.h"

#include "sim/quantity.h"

#include <string.h>

#define CTX_MAX_HERE 256       // positions: answers under faults are short
#define LOAD_LAYER_NS 50000000 // from a warm page cache
#define STORE_NS 5000000

static void fill_machine(const struct scenario *s, int32_t device, struct sim_machine *m)
{
	const struct cluster_device *d = &s->devices[device];
	double rate = cluster_cpu_rate(d, s->shape.type), layer_s = (double)s->shape.layer_bytes * model_shape_read_share(&s->shape, 1) / rate;
	m->is_enrolled = true;
	memcpy(m->name, d->name, NAME_CAP);
	m->speed = (struct sim_speed){
		.visit_ns = quantity_ns(d->visit_s),
		.layer_ns = quantity_ns(layer_s),
		.token_layer_ns = quantity_ns(d->cpu_flops > 0 ? model_shape_layer_flops(&s->shape, 0) / d->cpu_flops : layer_s),
		.head_ns = quantity_ns((double)s->shape.head_bytes / rate),
		.load_layer_ns = LOAD_LAYER_NS,
		.store_ns = STORE_NS,
	};
}

void trial_scenario(const struct scenario *s, struct sim_config *c, struct sim_machine *machines, int32_t *devices)
{
	const struct cost_plan *p = &s->plan;
	devices[0] = p->head;
	c->n_machines = 1;
	for (int32_t i = 0; i < p->n_stages; i++) {
		if (p->stages[i].device == p->head)
			c->has_local_node = true;
		else
			devices[c->n_machines++] = p->stages[i].device;
	}
	for (int32_t i = 0; i < c->n_machines; i++)
		fill_machine(s, devices[i], &machines[i]);
	c->machines = machines;
	c->model = (struct sim_model_config){.n_layers = s->shape.n_layers, .hidden_dim = s->hidden_dim, .vocab_size = s->vocab_size};
	c->wire = s->wire;
	c->n_slots = s->n_slots;
	c->ctx_len = s->ctx_len < CTX_MAX_HERE ? s->ctx_len : CTX_MAX_HERE;
	c->chunk_max = s->chunk;
	c->hop_credits = HOP_CREDITS_DEFAULT;
	c->n_nodes_min = c->n_machines > 2 ? (c->n_machines - 1) / 2 : c->n_machines - 1;
}

enum err trial_scenario_network(const struct scenario *s, uint64_t seed, const int32_t *devices, int32_t n, struct arena *a, struct network *out,
	struct errmsg *em)
{
	struct scenario other = *s; // borrowed parts stay the scenario's
	other.seed = seed;
	enum err e = arena_open(scenario_network_bytes(n), a);
	return e == OK ? scenario_network(&other, devices, n, a, out, em) : errmsg_fail(em, e, "no memory for a network of %d machines", n);
}
