// The best candidates and their neighbours, judged exactly (cost-model.md, section 7, step 6). The closed form is a little kind to windows of
// two or three units and to unequal rounds; moves find what it misses, and layers of unequal sizes their place.
#include "partition/solve_inside.h"

#define WORK_MAX 60000000     // units walked by the judge and layers by the bound, for all candidates together: a fifth of a second
#define WORK_MANY_MAX 1500000 // of more devices than subsets are made of behind one access point, where the tables leave little to find
#define SMALL_RING 4           // stages: every order is tried
#define SMALL_UNITS 96         // of the model: what is near is tried with other streams, too
#define NEAR_ENOUGH 1.05       // times the present plan's time
#define STREAM_STEPS 3
#define STREAM_TRIES 24        // numbers of streamed units of one stage
#define HEADS_MOVED 2 // and back
#define JUDGE_TOKENS 44

struct climb {
	struct solver *s;
	struct solve_candidate at;
	int32_t more_rounds; // -1, 0, 1: moves are tried with so many rounds more, too
	int64_t work_left;
	bool has_moved;
	int32_t n_ends;
	struct cost_plan ends[SOLVE_KEPT + HEADS_MOVED];
};

static int32_t find_stage(const struct cost_plan *p, int32_t device)
{
	for (int32_t i = 0; i < p->n_stages; i++)
		if (p->stages[i].device == device)
			return i;
	return -1;
}

static void remove_stage(struct cost_plan *p, int32_t i)
{
	p->n_stages--;
	for (; i < p->n_stages; i++)
		p->stages[i] = p->stages[i + 1];
	if (p->n_stages == 1)
		p->n_rounds = 1;
}

static bool is_small(const struct climb *c, const struct cost_plan *p)
{
	return p->n_stages <= SMALL_RING && c->s->n_layers * c->s->w->params.units_per_layer <= SMALL_UNITS;
}

// judge_plan spends work on a plan's score; false: no better than cutoff, or not possible.
static bool judge_plan(struct climb *c, const struct cost_plan *p, double cutoff, struct solve_score *out)
{
	int64_t n_judged = c->s->n_judged, layers = c->s->n_layers, hops = 8 * p->n_stages * p->n_rounds;
	bool is_near = solve_judge_plan(c->s, p, cutoff, out);
	c->work_left -= layers + hops;
	c->work_left -= (c->s->n_judged - n_judged) * JUDGE_TOKENS * (layers * c->s->w->params.units_per_layer + hops);
	return is_near;
}

static void take_if_better(struct climb *c, const struct solve_candidate *tried)
{
	if (!solve_is_better(tried, &c->at))
		return;
	c->at = *tried;
	c->has_moved = true;
}

// next_streams walks through numbers of streamed units: all of them, or as many as STREAM_TRIES evenly, and those beside the present one.
static int32_t next_streams(int32_t n, int32_t least, int32_t most, int32_t present)
{
	int32_t step = (most - least) / STREAM_TRIES + 1, next = least + ((n - least) / step + 1) * step;
	if (n + 1 >= present - STREAM_STEPS && n + 1 <= present + STREAM_STEPS)
		return n + 1;
	return n < present - STREAM_STEPS && next > present - STREAM_STEPS ? present - STREAM_STEPS : next;
}

// tune_stage gives a stage the number of streamed units with which the plan is the fastest.
static bool tune_stage(struct climb *c, struct solve_candidate *at, int32_t stage)
{
	const struct cost_stage *st = &at->plan.stages[stage];
	int32_t seat = solve_seat_of(c->s, st->device), least = solve_streams_least(c->s, seat, st->n_layers);
	int32_t most = solve_streams_most(c->s, seat, st->n_layers), present = st->n_streamed;
	bool has_moved = false;
	for (int32_t n = least; least > 0 && n <= most && c->work_left > 0; n = next_streams(n, least, most, present)) {
		struct solve_candidate tried = {.plan = at->plan};
		tried.plan.stages[stage].n_streamed = n;
		if (n == present || !judge_plan(c, &tried.plan, at->score.value, &tried.score) || !solve_is_better(&tried, at))
			continue;
		*at = tried;
		has_moved = true;
	}
	return has_moved;
}

static void tune(struct climb *c, struct solve_candidate *at)
{
	bool has_moved = true;
	while (has_moved) {
		has_moved = false;
		for (int32_t i = 0; i < at->plan.n_stages; i++)
			has_moved = tune_stage(c, at, i) || has_moved;
	}
}

// try_plan moves there when it is better. Streams of COST_STREAM_LEAST are written out.
static void try_plan(struct climb *c, const struct cost_plan *p)
{
	struct solve_candidate tried = {.plan = *p};
	bool has_near = is_small(c, p);
	if (c->work_left <= 0)
		return;
	for (int32_t i = 0; i < p->n_stages; i++) {
		struct cost_stage *st = &tried.plan.stages[i];
		int32_t seat = solve_seat_of(c->s, st->device);
		if (seat < 0 || st->n_layers > c->s->n_layers)
			return;
		int32_t least = solve_streams_least(c->s, seat, st->n_layers);
		st->n_streamed = least == 0 ? 0 : st->n_streamed < least ? least : st->n_streamed;
	}
	if (!judge_plan(c, &tried.plan, c->at.score.value * (has_near ? NEAR_ENOUGH : 1), &tried.score))
		return;
	if (has_near)
		tune(c, &tried);
	take_if_better(c, &tried);
}

// best_streams is what the closed form likes for a stage at the present T.
static int32_t best_streams(const struct climb *c, int32_t device, int32_t l, int32_t n_rounds)
{
	struct solve_pass q = {.n_rounds = n_rounds,
		.has_disks = true,
		.costs = SOLVE_CLOSED,
		.disk_cap_s = c->at.score.token_s,
		.stage_cap_s = INFINITY};
	int32_t seat = solve_seat_of(c->s, device), n;
	if (seat < 0 || l < 1 || !(solve_stage_s(c->s, &q, seat, l, &n) < INFINITY))
		return COST_STREAM_LEAST;
	return solve_streams_lower(c->s, n_rounds, seat, l, n);
}

// try_layers tries a plan in which two stages have other layers: with the fewest streams, and with those that the closed form likes.
static void try_layers(struct climb *c, const struct cost_plan *p, int32_t a, int32_t b)
{
	for (int32_t kind = 0; kind < 4; kind++) {
		struct cost_plan tried = *p;
		bool differs = kind == 0;
		for (int32_t i = 0; i < 2; i++) {
			struct cost_stage *st = &tried.stages[i == 0 ? a : b];
			st->n_streamed = COST_STREAM_LEAST;
			if (st->n_layers > 0 && (kind >> i & 1)) {
				st->n_streamed = best_streams(c, st->device, st->n_layers, tried.n_rounds);
				differs = differs || st->n_streamed > 0;
			}
		}
		if (!differs)
			continue;
		int32_t gone = tried.stages[a].n_layers == 0 ? a : tried.stages[b].n_layers == 0 ? b : -1;
		if (gone >= 0)
			remove_stage(&tried, gone);
		try_plan(c, &tried);
	}
}

// plan_here is the present plan, with the rounds that moves are tried with.
static struct cost_plan plan_here(const struct climb *c)
{
	struct cost_plan p = c->at.plan;
	int32_t k = p.n_rounds + c->more_rounds;
	p.n_rounds = k < 1 ? 1 : k > SOLVE_ROUNDS_MAX ? SOLVE_ROUNDS_MAX : k;
	return p;
}

static void move_streams(struct climb *c)
{
	struct solve_candidate tried = c->at;
	if (c->more_rounds == 0)
		tune(c, &tried);
	take_if_better(c, &tried);
	for (int32_t a = 0; a < c->at.plan.n_stages; a++) {
		for (int32_t d = -STREAM_STEPS; d <= STREAM_STEPS; d++) {
			struct cost_plan p = plan_here(c);
			if (d == 0 || p.stages[a].n_streamed == 0)
				continue;
			p.stages[a].n_streamed += d;
			try_plan(c, &p);
		}
	}
}

static void move_rounds(struct climb *c)
{
	struct cost_plan p = plan_here(c);
	try_plan(c, &p);
	p = plan_here(c);
	for (int32_t i = 0; i < p.n_stages; i++)
		p.stages[i].n_streamed = best_streams(c, p.stages[i].device, p.stages[i].n_layers, p.n_rounds);
	try_plan(c, &p);
}

// move_order moves each stage to each other place, and swaps each pair. The head stays first.
static void move_order(struct climb *c)
{
	for (int32_t a = 0; a < c->at.plan.n_stages; a++) {
		for (int32_t b = 0; b < c->at.plan.n_stages; b++) {
			struct cost_plan p = plan_here(c);
			bool is_fixed = p.stages[a].device == p.head || p.stages[b].device == p.head || a == b;
			if (is_fixed)
				continue;
			solve_shift(&p, a, b);
			try_plan(c, &p);
			p = plan_here(c);
			if (b < a + 2) // neighbours are swapped by a shift
				continue;
			struct cost_stage t = p.stages[a];
			p.stages[a] = p.stages[b];
			p.stages[b] = t;
			try_plan(c, &p);
		}
	}
}

// try_orders tries a small ring in every order, from stage `at` on; a and b are try_layers' devices.
static void try_orders(struct climb *c, struct cost_plan *p, int32_t at, int32_t a, int32_t b)
{
	if (at + 1 >= p->n_stages) {
		try_layers(c, p, find_stage(p, a), find_stage(p, b));
		return;
	}
	for (int32_t i = at; i < p->n_stages; i++) {
		solve_shift(p, i, at);
		try_orders(c, p, at + 1, a, b);
		solve_shift(p, at, i);
	}
}

// try_layers_anywhere is try_layers in every order that a small ring may have.
static void try_layers_anywhere(struct climb *c, struct cost_plan *p, int32_t a, int32_t b)
{
	if (is_small(c, p) && c->s->w->order == NULL)
		try_orders(c, p, p->stages[0].device == p->head, p->stages[a].device, p->stages[b].device);
	else
		try_layers(c, p, a, b);
}

static void move_layers(struct climb *c)
{
	for (int32_t a = 0; a < c->at.plan.n_stages; a++) {
		for (int32_t b = 0; b < c->at.plan.n_stages; b++) {
			struct cost_plan p = plan_here(c);
			if (a == b || a >= p.n_stages)
				continue;
			p.stages[a].n_layers--;
			p.stages[b].n_layers++;
			try_layers_anywhere(c, &p, a, b);
		}
	}
}

// move_small tries a small ring with every number of rounds in every order.
static void move_small(struct climb *c)
{
	for (int32_t k = c->s->rounds_min; k <= c->s->rounds_max; k++) {
		struct cost_plan p = c->at.plan;
		if (p.n_stages > SMALL_RING || p.n_stages < 2)
			return;
		p.n_rounds = k;
		for (int32_t i = 0; i + 1 < p.n_stages || i == 0; i += 2)
			try_layers_anywhere(c, &p, i, i + 1);
	}
}

// move_devices gives a device's layers to one that has none.
static void move_devices(struct climb *c)
{
	for (int32_t i = 0; i < c->s->n_seats; i++) {
		int32_t device = c->s->seats[i].device;
		for (int32_t a = 0; a < c->at.plan.n_stages; a++) {
			struct cost_plan p = plan_here(c);
			if (find_stage(&p, device) >= 0 || c->work_left <= 0)
				break;
			p.stages[a].device = device;
			solve_shift(&p, a, p.n_stages - 1);
			if (!solve_ring_place(c->s, &p))
				continue;
			int32_t at = find_stage(&p, device);
			try_layers_anywhere(c, &p, at, at);
		}
	}
}

bool solve_insert(struct solver *s, const struct cost_plan *p, int32_t donor, int32_t seat, int32_t n_layers, struct cost_plan *out)
{
	if (n_layers > p->stages[donor].n_layers || p->n_stages == STAGES_MAX)
		return false;
	*out = *p;
	out->stages[donor].n_layers -= n_layers;
	out->stages[out->n_stages++] = (struct cost_stage){
		.device = s->seats[seat].device, .n_layers = n_layers, .n_streamed = COST_STREAM_LEAST};
	if (out->stages[donor].n_layers == 0)
		remove_stage(out, donor);
	return solve_ring_place(s, out);
}

// take_from_others gives a stage one layer more, of each of the others.
static void take_from_others(struct climb *c, const struct cost_plan *p, int32_t stage)
{
	for (int32_t b = 0; b < p->n_stages; b++) {
		struct cost_plan tried = *p;
		if (b == stage || p->stages[b].n_layers < 2)
			continue;
		tried.stages[b].n_layers--;
		tried.stages[stage].n_layers++;
		try_layers_anywhere(c, &tried, stage, b);
	}
}

static void insert_devices(struct climb *c)
{
	for (int32_t i = 0; i < c->s->n_seats; i++) {
		int32_t device = c->s->seats[i].device;
		for (int32_t a = 0; a < c->at.plan.n_stages; a++) {
			for (int32_t n = 1; n <= c->s->n_layers; n = n < 4 ? n + 1 : 2 * n) {
				struct cost_plan p, here = plan_here(c);
				if (find_stage(&here, device) >= 0 || a >= here.n_stages || c->work_left <= 0)
					break;
				int32_t donor = here.stages[a].device;
				if (n > here.stages[a].n_layers || !solve_insert(c->s, &here, a, i, n, &p))
					break;
				int32_t left = find_stage(&p, donor), at = find_stage(&p, device);
				try_layers_anywhere(c, &p, at, left >= 0 ? left : at);
				if (n == 1 && is_small(c, &p))
					take_from_others(c, &p, at);
			}
		}
	}
}

// was_here: an earlier climb ended at this plan: nothing near it is better.
static bool was_here(const struct climb *c)
{
	for (int32_t i = 0; i < c->n_ends; i++)
		if (solve_is_same(&c->ends[i], &c->at.plan))
			return true;
	return false;
}

// drop_devices divides a stage's layers between two others of a small ring.
static void drop_devices(struct climb *c)
{
	for (int32_t a = 0; a < c->at.plan.n_stages; a++) {
		for (int32_t i = 0; i < c->at.plan.n_stages * c->at.plan.n_stages; i++) {
			struct cost_plan p = plan_here(c);
			int32_t b = i / p.n_stages, d = i % p.n_stages, n = a < p.n_stages ? p.stages[a].n_layers : 0;
			if (n < 2 || b >= p.n_stages || b == a || d == a || !is_small(c, &p))
				continue;
			p.stages[b].n_layers += (n + 1) / 2;
			p.stages[d].n_layers += n / 2;
			remove_stage(&p, a);
			try_layers_anywhere(c, &p, b - (b > a), d - (d > a));
		}
	}
}

static void climb_from(struct climb *c)
{
	static const int32_t more[] = {0, -1, 1};
	solve_seats_place(c->s, c->at.plan.head_on_accel);
	if (was_here(c))
		return;
	do {
		c->has_moved = false;
		for (int32_t i = 0; i < (int32_t)ARRAY_LEN(more); i++) {
			c->more_rounds = more[i];
			move_streams(c);
			move_rounds(c);
			move_layers(c);
			if (c->s->w->order == NULL)
				move_order(c);
			insert_devices(c);
			move_devices(c);
			drop_devices(c);
		}
		move_small(c);
	} while (c->has_moved && c->work_left > 0 && !was_here(c));
	if (c->n_ends < SOLVE_KEPT + HEADS_MOVED)
		c->ends[c->n_ends++] = c->at.plan;
}

// move_head climbs from a plan with its output head in the other memory of its machine.
static void move_head(struct climb *c, const struct cost_plan *p)
{
	struct cost_plan tried = *p;
	tried.head_on_accel = !p->head_on_accel;
	if (!solve_head_fits(c->s->w, tried.head_on_accel))
		return;
	solve_seats_place(c->s, tried.head_on_accel);
	c->at = (struct solve_candidate){.score.value = INFINITY, .score.token_s = INFINITY};
	try_plan(c, &tried);
	if (c->at.score.value < INFINITY)
		climb_from(c);
}

void solve_moves(struct solver *s)
{
	struct solve_candidate best = s->kept[0];
	bool has_many = s->hops == SOLVE_HOPS_SUM && s->n_seats > SOLVE_SUBSET_DEVICES;
	struct climb c = {.s = s, .work_left = has_many ? WORK_MANY_MAX : WORK_MAX};
	for (int32_t i = 0; i < s->n_kept + HEADS_MOVED; i++) {
		if (i >= s->n_kept) {
			move_head(&c, &best.plan);
		} else {
			c.at = s->kept[i];
			climb_from(&c);
		}
		if (c.at.score.value < INFINITY && solve_is_better(&c.at, &best))
			best = c.at;
	}
	s->kept[0] = best;
}
