// Who may hold layers, with which figures; and the words for those who do not.
#include "partition/solve_inside.h"

#define TRIED_MAX 64  // devices left out whose time with them is looked for
#define AS_FAST 1e-6  // relative: no person calls that slower

static const struct solve_limit *limit_of(const struct solve_want *w, int32_t device)
{
	static const struct solve_limit none = {.layers_max = LAYERS_MAX, .is_trusted = true};
	return w->limits ? &w->limits[device] : &none;
}

// ---- Figures

// measure_layers finds the mean layer, and the sums of the smallest ones where layers differ. It returns the smallest.
static double measure_layers(struct solver *s)
{
	const struct model_shape *m = s->w->shape;
	double sum = 0, *sorted = s->bytes_least + 1;
	for (int32_t i = 0; i < m->n_layers; i++) {
		double b = (double)model_shape_layer_bytes(m, i);
		int32_t at = i;
		for (; at > 0 && sorted[at - 1] > b; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = b;
		sum += b;
	}
	double least = sorted[0];
	s->layer_mean_bytes = sum / m->n_layers;
	if (least == (double)m->layer_bytes) {
		s->layer_mean_bytes = least;
		s->bytes_least = NULL;
		return least;
	}
	s->bytes_least[0] = 0;
	for (int32_t i = 0; i < m->n_layers; i++)
		sorted[i] += s->bytes_least[i];
	return least;
}

static double layer_s(double bytes, double kv, double rate)
{
	return (bytes + kv) / rate;
}

// chunk_s is a layer's part of one chunk in the middle of the prompt.
static double chunk_s(const struct solver *s, double bytes, double rate, double flops)
{
	const struct solve_goal *g = &s->goal;
	if (g->ttft_weight <= 0)
		return 0;
	int32_t n = g->n_prompt < g->chunk ? g->n_prompt : g->chunk;
	double positions = g->n_prompt / 2.0, kv = (double)s->w->shape->kv_bytes * positions;
	double whole = bytes, work = n * (model_shape_layer_flops(s->w->shape, 0) + positions * s->w->shape->attn_flops);
	bytes = whole * model_shape_read_share(s->w->shape, n);
	double read_s = layer_s(bytes, kv, rate), work_s = flops > 0 ? work / flops : n * (whole * model_shape_read_share(s->w->shape, 1) / rate);
	return n > 1 && work_s > read_s ? work_s : read_s;
}

static void put_figures(const struct solver *s, struct solve_seat *m, double least_bytes)
{
	const struct cluster_device *d = &s->w->cluster->devices[m->device];
	const struct solve_limit *limit = limit_of(s->w, m->device);
	double units = s->w->params.units_per_layer, cpu = cluster_cpu_rate(d, s->w->shape->type), mean = s->layer_mean_bytes;
	double kv = (double)s->w->shape->kv_bytes * (double)s->w->params.kv_read, share = model_shape_read_share(s->w->shape, 1);
	double used = s->w->shape->expert_share > 0 ? model_shape_expert_share(s->w->shape, 1) : 1; // of what is streamed, at least
	int32_t n_chunk = s->goal.n_prompt < s->goal.chunk ? s->goal.n_prompt : s->goal.chunk;
	m->layers_min = limit->layers_min;
	m->layers_max = limit->layers_max < s->n_layers ? limit->layers_max : s->n_layers;
	m->is_trusted = limit->is_trusted;
	m->unit_s = layer_s(mean * share, kv, cpu) / units;
	m->unit_least_s = layer_s(least_bytes * share, kv, cpu) / units;
	m->accel_s = d->accel_bytes > 0 ? layer_s(mean * share, kv, d->accel_rate) : 0;
	m->read_s = d->disk_rate > 0 ? mean / units / d->disk_rate * used : 0;
	m->read_least_s = d->disk_rate > 0 ? least_bytes / units / d->disk_rate * used : 0;
	m->prefill_read_s = s->w->shape->expert_share > 0 ? m->read_s / used * model_shape_expert_share(s->w->shape, n_chunk) : m->read_s;
	m->visit_s = d->visit_s;
	m->prefill_unit_s = chunk_s(s, mean, cpu, d->cpu_flops) / units;
	m->prefill_accel_s = d->accel_bytes > 0 ? chunk_s(s, mean, d->accel_rate, d->accel_flops) : 0;
}

// ---- Hops

static double hop_or_far(const struct solver *s, int32_t from, int32_t to)
{
	double t;
	return cluster_hop(s->w->cluster, from, to, (double)s->w->shape->hop_bytes, &t) ? t : INFINITY;
}

// Devices of the ring: seats, and the head after them when it has none.
static int32_t n_places(const struct solver *s)
{
	return s->n_seats + (s->head_seat < 0);
}

static int32_t device_at(const struct solver *s, int32_t place)
{
	return place < s->n_seats ? s->seats[place].device : s->w->head;
}

static double hop_between(const struct solver *s, int32_t a, int32_t b)
{
	return hop_or_far(s, device_at(s, a), device_at(s, b));
}

// What a place adds to the ring: each hop is its sender's out_s and its receiver's in_s.
struct ends {
	double in_s, out_s;
};

static void put_ends(struct solver *s, int32_t place, struct ends e)
{
	if (place < s->n_seats) {
		s->seats[place].in_s = e.in_s;
		s->seats[place].out_s = e.out_s;
	}
	if (device_at(s, place) == s->w->head)
		s->head_hops_s = e.in_s + e.out_s;
}

// ends_at takes a matrix apart that is such a sum. One place's out_s can be chosen: it cancels in every ring.
static struct ends ends_at(const struct solver *s, int32_t place)
{
	int32_t n = n_places(s);
	if (n < 2)
		return (struct ends){0};
	if (place > 0 && n > 2)
		return (struct ends){.in_s = hop_between(s, 0, place),
			.out_s = hop_between(s, place, place == 1 ? 2 : 1) - hop_between(s, 0, place == 1 ? 2 : 1)};
	if (place > 0)
		return (struct ends){.in_s = hop_between(s, 0, 1)};
	return (struct ends){.in_s = n > 2 ? hop_between(s, 1, 0) - ends_at(s, 1).out_s : hop_between(s, 1, 0)};
}

static bool is_near(double a, double b)
{
	double d = a - b, most = solve_most(a, b);
	return d <= 1e-12 * most && -d <= 1e-12 * most;
}

// attach_s is a device's way to the access point; false: it has none.
static bool attach_s(const struct solver *s, int32_t device, double *t)
{
	const struct cluster_link *l = &s->w->cluster->attach[device];
	*t = l->rate > 0 ? l->delay_s + (double)s->w->shape->hop_bytes / l->rate + l->software_s : 0;
	return l->rate > 0;
}

// find_sums tells whether hops are such sums, as they are through one access point, and puts them down.
static bool find_sums(struct solver *s)
{
	const struct cluster *c = s->w->cluster;
	int32_t n = n_places(s);
	for (int32_t i = 0; i < n; i++) {
		struct ends e = {0};
		if (c->links == NULL) {
			double t = 0;
			if (n > 1 && !attach_s(s, device_at(s, i), &t))
				return false;
			e = (struct ends){t, t};
		} else {
			e = ends_at(s, i);
			for (int32_t j = 0; j < n; j++) {
				double hop_s = hop_between(s, j, i);
				if (i != j && (!(hop_s < INFINITY) || !is_near(hop_s, ends_at(s, j).out_s + e.in_s)))
					return false;
			}
		}
		if (!(e.in_s + e.out_s >= 0))
			return false;
		put_ends(s, i, e);
	}
	return true;
}

// bound_ends puts down what any hop to and from a place costs at least, and on the mean.
static void bound_ends(struct solver *s)
{
	int32_t n = n_places(s);
	for (int32_t i = 0; i < n; i++) {
		struct ends least = {INFINITY, INFINITY}, sum = {0};
		int32_t n_in = 0, n_out = 0;
		for (int32_t j = 0; j < n; j++) {
			double in_s = hop_between(s, j, i), out_s = hop_between(s, i, j);
			if (i == j)
				continue;
			if (in_s < INFINITY) {
				least.in_s = solve_least(least.in_s, in_s / 2); // the other half is the sender's
				sum.in_s += in_s / 2;
				n_in++;
			}
			if (out_s < INFINITY) {
				least.out_s = solve_least(least.out_s, out_s / 2);
				sum.out_s += out_s / 2;
				n_out++;
			}
		}
		put_ends(s, i, least);
		double in_mean_s = n_in > 0 ? sum.in_s / n_in : INFINITY, out_mean_s = n_out > 0 ? sum.out_s / n_out : INFINITY;
		if (i < s->n_seats) {
			s->seats[i].in_mean_s = in_mean_s;
			s->seats[i].out_mean_s = out_mean_s;
		}
		if (device_at(s, i) == s->w->head)
			s->head_hops_mean_s = in_mean_s + out_mean_s;
	}
}

// ---- Seats

// holds_one says whether one layer fits, with the output head in either place.
static bool holds_one(const struct solve_want *w, int32_t device)
{
	for (int32_t on_accel = 0; on_accel < 2; on_accel++) {
		struct cost_plan one = {.head = w->head, .head_on_accel = on_accel, .n_rounds = 1, .n_stages = 1};
		one.stages[0] = (struct cost_stage){.device = device, .n_layers = 1, .n_streamed = COST_STREAM_LEAST};
		struct cost_case c = {.cluster = w->cluster, .shape = w->shape, .plan = &one, .params = w->params};
		struct cost_layout l;
		if ((on_accel == 0 || w->cluster->devices[w->head].accel_bytes > 0) && cost_layout_of(&c, 0, &l, NULL) == OK)
			return true;
	}
	return false;
}

static bool is_in_order(const struct solve_want *w, int32_t device)
{
	for (int32_t i = 0; w->order && i < w->n_order; i++)
		if (w->order[i] == device)
			return true;
	return w->order == NULL;
}

static enum solve_fate fate_of(const struct solve_want *w, int32_t device)
{
	if (limit_of(w, device)->layers_max == 0 || !is_in_order(w, device))
		return SOLVE_FORBIDDEN;
	return holds_one(w, device) ? SOLVE_USED : SOLVE_NO_ROOM;
}

// is_reached: somebody who may hold layers, or the head, can send to it, and it to somebody.
static bool is_reached(const struct solver *s, int32_t device)
{
	bool in = device == s->w->head, out = in;
	for (int32_t i = 0; i < s->w->cluster->n_devices && !(in && out); i++) {
		if (i == device || (i != s->w->head && s->fates[i].fate != SOLVE_USED))
			continue;
		in = in || hop_or_far(s, i, device) < INFINITY;
		out = out || hop_or_far(s, device, i) < INFINITY;
	}
	return in && out;
}

void solve_seats_find(struct solver *s, int32_t subset_devices)
{
	const struct solve_want *w = s->w;
	double least_bytes = measure_layers(s);
	s->head_seat = -1;
	for (int32_t i = 0; i < w->cluster->n_devices; i++)
		s->fates[i].fate = fate_of(w, i);
	for (int32_t i = 0; i < w->cluster->n_devices; i++)
		if (s->fates[i].fate == SOLVE_USED && !is_reached(s, i))
			s->fates[i].fate = SOLVE_NO_LINK;
	for (int32_t i = 0; i < w->cluster->n_devices; i++) {
		if (s->fates[i].fate != SOLVE_USED)
			continue;
		if (i == w->head)
			s->head_seat = s->n_seats;
		struct solve_seat *m = &s->seats[s->n_seats++];
		*m = (struct solve_seat){.device = i};
		put_figures(s, m, least_bytes);
	}
	bool is_sum = find_sums(s);
	if (!is_sum)
		bound_ends(s);
	bool is_more = s->n_seats > s->devices_max || w->head_layers > 0; // of the number of holders and of ends the knapsack knows nothing
	if (is_sum && !(is_more && s->n_seats <= subset_devices))
		s->hops = SOLVE_HOPS_SUM;
	else
		s->hops = s->n_seats <= subset_devices ? SOLVE_HOPS_SUBSETS : SOLVE_HOPS_RULE;
}

bool solve_head_fits(const struct solve_want *w, bool on_accel)
{
	const struct cluster_device *d = &w->cluster->devices[w->head];
	if (on_accel)
		return w->shape->head_bytes > 0 && d->accel_bytes >= w->shape->head_bytes;
	return d->cap_bytes - d->reserved_bytes >= w->shape->head_bytes;
}

int32_t solve_seat_of(const struct solver *s, int32_t device)
{
	for (int32_t i = 0; i < s->n_seats; i++)
		if (s->seats[i].device == device)
			return i;
	return -1;
}

// ---- Words

// layers_most is how many layers a device can hold, streaming or not.
static int32_t layers_most(const struct solver *s, int32_t seat)
{
	for (int32_t l = s->seats[seat].layers_max; l > 0; l--) {
		struct solve_pass q = {.n_rounds = 1, .has_disks = true, .disk_cap_s = INFINITY, .stage_cap_s = INFINITY};
		int32_t n;
		if (solve_stage_s(s, &q, seat, l, &n) < INFINITY)
			return l;
	}
	return 0;
}

static enum err refuse_room(const struct solver *s, int64_t n_layers, struct errmsg *em)
{
	const struct solve_want *w = s->w;
	double layers = s->layer_mean_bytes * s->n_layers / 1e9, kv = (double)w->shape->kv_bytes * (double)w->params.kv_alloc;
	double room = 0;
	int32_t n = 0, n_disks = 0;
	for (int32_t i = 0; i < w->cluster->n_devices; i++) {
		const struct cluster_device *d = &w->cluster->devices[i];
		if (s->fates[i].fate != SOLVE_USED && s->fates[i].fate != SOLVE_NO_ROOM)
			continue;
		room += (double)(d->cap_bytes - d->reserved_bytes + d->accel_bytes) / 1e9;
		n_disks += d->disk_rate > 0;
		n++;
	}
	return errmsg_fail(em, ERR_NOT_FOUND,
		"the model needs %.3f GB (%d layers of %.3f GB, %.3f GB of keys and values, %.3f GB of output head); the %d machines "
		"that may hold layers have %.3f GB free, %d of them can stream from a disk, and together they hold %lld layers",
		layers + kv * s->n_layers / 1e9 + (double)w->shape->head_bytes / 1e9, s->n_layers, s->layer_mean_bytes / 1e9,
		kv * s->n_layers / 1e9, (double)w->shape->head_bytes / 1e9, n, room, n_disks, (long long)n_layers);
}

static enum err refuse_links(const struct solver *s, struct errmsg *em)
{
	const struct cluster_device *d = s->w->cluster->devices;
	for (int32_t i = 0; i < n_places(s); i++)
		for (int32_t j = 0; j < n_places(s); j++)
			if (i != j && !(hop_between(s, i, j) < INFINITY))
				return errmsg_fail(em, ERR_NOT_FOUND,
					"no ring of machines that reach each other holds the model: %s has no link to %s",
					d[device_at(s, i)].name, d[device_at(s, j)].name);
	return errmsg_fail(em, ERR_NOT_FOUND,
		"no plan with %d to %d rounds on at most %d machines keeps all that is wanted: who must hold layers, how many, in which order, "
		"and who reaches whom",
		s->rounds_min, s->rounds_max, s->devices_max);
}

enum err solve_refuse(struct solver *s, struct errmsg *em)
{
	const struct solve_want *w = s->w;
	const struct cluster_device *head = &w->cluster->devices[w->head];
	uint64_t room = head->cap_bytes - head->reserved_bytes;
	int64_t n_layers = 0;
	if (room < w->shape->head_bytes && head->accel_bytes < w->shape->head_bytes)
		return errmsg_fail(em, ERR_NOT_FOUND, "%s: the output head needs %.3f GB, and %.3f GB are free", head->name,
			(double)w->shape->head_bytes / 1e9, (double)room / 1e9);
	for (int32_t i = 0; i < s->n_seats; i++)
		n_layers += layers_most(s, i);
	return n_layers < s->n_layers ? refuse_room(s, n_layers, em) : refuse_links(s, em);
}

// best_with judges the plan with one more device that the bound likes best, with several shares of each stage's layers. INFINITY: none is possible.
static double best_with(struct solver *s, int32_t seat)
{
	struct cost_plan best, p;
	double best_s = INFINITY;
	struct solve_score score;
	for (int32_t a = 0; a < s->kept[0].plan.n_stages; a++) {
		for (int32_t n = 1; n <= s->kept[0].plan.stages[a].n_layers; n *= 2) {
			struct cost_case c = {.cluster = s->w->cluster, .shape = s->w->shape, .plan = &p, .params = s->w->params};
			if (!solve_insert(s, &s->kept[0].plan, a, seat, n, &p) || !solve_is_possible(s, &p))
				continue;
			double t = cost_bound(&c);
			if (t < best_s) {
				best_s = t;
				best = p;
			}
		}
	}
	return best_s < INFINITY && solve_judge_plan(s, &best, INFINITY, &score) ? score.value : INFINITY;
}

void solve_fates(struct solver *s, struct solve_result *out)
{
	const struct cost_plan *p = &s->kept[0].plan;
	int32_t n_tried = 0;
	for (int32_t i = 0; out->fates && i < s->w->cluster->n_devices; i++)
		out->fates[i] = s->fates[i];
	for (int32_t i = 0; out->fates && i < s->n_seats; i++) {
		struct solve_device_fate *f = &out->fates[s->seats[i].device];
		bool is_used = false;
		for (int32_t j = 0; j < p->n_stages; j++)
			is_used = is_used || p->stages[j].device == s->seats[i].device;
		if (is_used)
			continue;
		f->fate = p->n_stages == s->devices_max ? SOLVE_NOT_NEEDED : SOLVE_SLOWER;
		if (f->fate == SOLVE_NOT_NEEDED || n_tried++ >= TRIED_MAX)
			continue;
		double t = best_with(s, i);
		f->with_s = t < INFINITY ? t : 0;
		if (t <= out->value * (1 + AS_FAST))
			*f = (struct solve_device_fate){.fate = SOLVE_NOT_NEEDED};
	}
}
