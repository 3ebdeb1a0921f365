#include "sim/faults.h"

#include "base/assert.h"
#include "sim/sim_mix.h"

#include <string.h>

#define MS INT64_C(1000000)
#define S (1000 * MS)

static const char *const words[] = {
#define X(name, word, words) word,
	SIM_FAULT_TABLE(X)
#undef X
};

static const char *const meanings[] = {
#define X(name, word, words) words,
	SIM_FAULT_TABLE(X)
#undef X
};

const char *fault_word(enum sim_fault_class c)
{
	return (size_t)c < ARRAY_LEN(words) ? words[c] : "?";
}

const char *fault_words(enum sim_fault_class c)
{
	return (size_t)c < ARRAY_LEN(meanings) ? meanings[c] : "?";
}

enum sim_fault_class fault_find(const char *word, size_t len)
{
	int c = 0;
	while (c < SIM_N_FAULTS && (strlen(words[c]) != len || memcmp(words[c], word, len) != 0))
		c++;
	return (enum sim_fault_class)c;
}

// ---- drawing

// duration: short ones that timers forgive, and long ones that they do not (silence is forgiven for 8 s).
static int64_t duration(struct rng *r)
{
	if (rng_below(r, 2) == 0)
		return 50 * MS + (int64_t)rng_below(r, 3000) * MS;
	return 5 * S + (int64_t)rng_below(r, 12000) * MS;
}

static bool is_of_coordinator(enum sim_fault_class c)
{
	return c == FAULT_CLOCK || c == FAULT_HEAD_CRASH || c == FAULT_HEAD_POWER || c == FAULT_HEAD_PAUSE;
}

static bool is_of_disk(enum sim_fault_class c)
{
	return c >= FAULT_DISK_FULL && c <= FAULT_LOST_SYNC;
}

static void add(struct sim_fault_plan *p, struct sim_fault f)
{
	if (p->n == SIM_FAULTS_MAX)
		return;
	if (f.other == f.machine)
		f.other = NETWORK_ALL;
	int32_t i = p->n++;
	while (i > 0 && p->at[i - 1].at_ns > f.at_ns) {
		p->at[i] = p->at[i - 1];
		i--;
	}
	p->at[i] = f;
}

// draw_one draws as many numbers whatever comes out, so that one fault's shape moves no other.
static struct sim_fault draw_one(struct rng *r, const struct fault_params *k)
{
	uint64_t kind = rng_below(r, SIM_N_FAULTS), machine = rng_u64(r), other = rng_u64(r), when = rng_u64(r), draw = rng_u64(r);
	struct rng own;
	rng_init(&own, draw);
	struct sim_fault f = {.kind = (enum sim_fault_class)kind, .for_ns = duration(&own), .draw = draw};
	f.at_ns = k->from_ns + (int64_t)(when % (uint64_t)(k->until_ns - k->from_ns));
	f.machine = k->n_machines > 1 ? 1 + (int32_t)(machine % (uint64_t)(k->n_machines - 1)) : 0;
	f.other = (int32_t)(other % (uint64_t)(k->n_machines + 1)) - 1; // NETWORK_ALL, or a machine
	if (is_of_coordinator(f.kind) || (is_of_disk(f.kind) && machine % 3 != 0) || (f.kind == FAULT_BIT_FLIP && machine % 4 == 0))
		f.machine = 0;
	return f;
}

// write_something: a fault of the coordinator's disk means nothing while nothing is written.
static void write_something(struct sim_fault_plan *p, const struct sim_fault *f, const struct fault_params *k)
{
	struct sim_fault w = *f;
	struct rng r;
	rng_init(&r, f->draw ^ 1);
	w.kind = k->n_strangers > 0 && rng_below(&r, 3) > 0 ? FAULT_JOIN : FAULT_REVOKE;
	w.at_ns = f->at_ns + (int64_t)rng_below(&r, (uint64_t)(f->for_ns / MS)) * MS;
	w.machine = w.kind == FAULT_JOIN ? k->n_machines - 1 : 1 + (int32_t)rng_below(&r, (uint64_t)(k->n_machines - 1));
	w.draw = rng_u64(&r);
	add(p, w);
}

// lose_power follows what was just written, or only said to be.
static void lose_power(struct sim_fault_plan *p, const struct sim_fault *f, int64_t at_ns)
{
	struct sim_fault w = *f;
	w.kind = FAULT_HEAD_POWER;
	w.machine = 0;
	w.at_ns = at_ns;
	w.for_ns = 500 * MS + (int64_t)(f->draw % 2000) * MS;
	add(p, w);
}

// stall_before: frames of the plan that a loss ends are still on their way when the next one runs.
static void stall_before(struct sim_fault_plan *p, const struct sim_fault *f, const struct fault_params *k)
{
	struct sim_fault w = *f;
	struct rng r;
	rng_init(&r, f->draw ^ 2);
	w.kind = FAULT_FLOW_STALL;
	w.machine = (int32_t)rng_below(&r, (uint64_t)k->n_machines) * (int32_t)rng_below(&r, 2); // most links are the coordinator's
	w.at_ns = f->at_ns - (int64_t)rng_below(&r, 60) * MS;
	w.at_ns = w.at_ns > k->from_ns ? w.at_ns : k->from_ns;
	w.draw = rng_u64(&r) | 4; // five of its connections or more
	add(p, w);
}

void faults_draw(struct sim_fault_plan *p, const struct fault_params *k)
{
	struct rng r;
	rng_init(&r, k->seed);
	p->n = 0;
	for (int32_t i = 0; i < k->n_faults; i++) {
		struct sim_fault f = draw_one(&r, k);
		if (k->n_machines < 2 && !is_of_coordinator(f.kind))
			continue;
		if (f.kind == FAULT_JOIN && k->n_strangers > 0)
			f.machine = k->n_machines - 1 - (int32_t)(f.draw % (uint64_t)k->n_strangers);
		add(p, f);
		if ((f.kind == FAULT_CRASH || f.kind == FAULT_POWER || f.kind == FAULT_RESET) && f.draw % 3 > 0)
			stall_before(p, &f, k);
		if (is_of_disk(f.kind) && f.machine == 0 && k->n_machines > 1)
			write_something(p, &f, k);
		if (f.kind == FAULT_LOST_SYNC && f.machine == 0)
			lose_power(p, &f, f.at_ns + f.for_ns);
		if (f.kind == FAULT_REVOKE && f.draw % 2 == 0)
			lose_power(p, &f, f.at_ns + 100 * MS + (int64_t)(f.draw >> 8) % (3 * S) * (f.draw % 4 == 0));
	}
	int32_t n = 0;
	for (int32_t i = 0; i < p->n; i++)
		if (k->classes >> p->at[i].kind & 1)
			p->at[n++] = p->at[i];
	p->n = n;
}

// ---- doing

static bool cut(const struct sim_fault *f, struct network *n, enum network_cut kind)
{
	return network_cut(n, f->machine, f->other, kind) == OK;
}

static bool revoke(const struct sim_fault *f, struct sim_world *w)
{
	if (!sim_world_is_up(w, 0) || !sim_world_is_member(w, f->machine))
		return false;
	sim_world_revoke(w, f->machine);
	return true;
}

static bool crash(const struct sim_fault *f, struct sim_world *w, bool power)
{
	if (!sim_world_is_up(w, f->machine))
		return false;
	sim_world_crash(w, f->machine, power);
	return true;
}

static bool join(const struct sim_fault *f, struct sim_world *w)
{
	if (!sim_world_is_up(w, 0) || sim_world_is_member(w, f->machine))
		return false;
	sim_world_invite(w, f->machine);
	return true;
}

static bool leave(const struct sim_fault *f, struct sim_world *w)
{
	if (!sim_world_is_up(w, f->machine))
		return false;
	sim_world_leave(w, f->machine);
	return true;
}

// part puts each machine into one of two groups, the coordinator into the first.
static void part(const struct sim_fault *f, struct sim_world *w, struct network *n, bool is_over)
{
	for (int32_t i = 1; i < sim_world_n_machines(w); i++)
		network_set_group(n, i, is_over ? 0 : (int32_t)(sim_mix(f->draw, (uint64_t)i) >> 63));
}

bool fault_begin(const struct sim_fault *f, struct sim_world *w, struct network *n)
{
	int64_t now_ns = sim_world_now_ns(w);
	sim_world_mark_fault(w, f->machine, fault_word(f->kind));
	switch (f->kind) {
	case FAULT_CRASH:
	case FAULT_HEAD_CRASH: return crash(f, w, false);
	case FAULT_POWER:
	case FAULT_HEAD_POWER: return crash(f, w, true);
	case FAULT_PAUSE:
	case FAULT_HEAD_PAUSE: sim_world_pause(w, f->machine, now_ns + f->for_ns); return true;
	case FAULT_SLOW: sim_world_slow(w, f->machine, 200 + (int32_t)(f->draw % 1800)); return true;
	case FAULT_MEMORY: sim_world_out_of_memory(w, f->machine, true); return true;
	case FAULT_DISK_FULL: sim_world_disk(w, f->machine, SIM_DISK_FULL); return true;
	case FAULT_DISK_EIO: sim_world_disk(w, f->machine, SIM_DISK_EIO); return true;
	case FAULT_TORN_WRITE: sim_world_tear(w, f->machine); return true;
	case FAULT_LOST_SYNC: sim_world_disk(w, f->machine, SIM_DISK_LOST_SYNC); return true;
	case FAULT_BIT_FLIP:
		if (f->draw % 2 == 0 && sim_world_flip_kept(w, f->machine, f->draw))
			return true; // nothing notices before the row is read
		sim_world_flip_disk(w, f->machine);
		return crash(f, w, false);
	case FAULT_CIPHERTEXT: sim_world_flip(w, f->machine, f->draw); return true;
	case FAULT_CLOCK: sim_world_step_clock(w, (int64_t)(f->draw % 14400) - 7200); return true;
	case FAULT_RESET:
		for (uint64_t i = 0; i <= f->draw % 4; i++)
			sim_world_reset(w, f->machine, f->draw >> (8 * i));
		return true;
	case FAULT_FLOW_STALL:
		for (uint64_t i = 0; i <= f->draw % 6; i++)
			sim_world_stall(w, f->machine, f->draw >> (8 * i), (int64_t)(f->draw >> (4 * i + 1)) % (5000 * MS) + 20 * MS);
		return true;
	case FAULT_CUT: return cut(f, n, NETWORK_CUT_RESET);
	case FAULT_BLACK_HOLE: return cut(f, n, NETWORK_CUT_BLACK_HOLE);
	case FAULT_ONE_WAY: return cut(f, n, NETWORK_CUT_ONE_WAY);
	case FAULT_PARTITION: part(f, w, n, false); return true;
	case FAULT_STALL: return network_stall(n, f->machine, f->other, now_ns + f->for_ns) == OK;
	case FAULT_LOSSY: return network_slow(n, f->machine, f->other, 0.1, 10) == OK;
	case FAULT_JOIN: return join(f, w);
	case FAULT_REVOKE: return revoke(f, w);
	case FAULT_LEAVE: return leave(f, w);
	case SIM_N_FAULTS: break;
	}
	return false;
}

void fault_end(const struct sim_fault *f, struct sim_world *w, struct network *n)
{
	switch (f->kind) {
	case FAULT_CRASH:
	case FAULT_HEAD_CRASH:
	case FAULT_POWER:
	case FAULT_HEAD_POWER:
	case FAULT_TORN_WRITE:
	case FAULT_LEAVE: sim_world_start(w, f->machine); break;
	case FAULT_BIT_FLIP:
		sim_world_start(w, f->machine); // refused
		sim_world_restore_disk(w, f->machine);
		sim_world_start(w, f->machine);
		break;
	case FAULT_SLOW: sim_world_slow(w, f->machine, 100); break;
	case FAULT_MEMORY: sim_world_out_of_memory(w, f->machine, false); break;
	case FAULT_DISK_FULL:
	case FAULT_DISK_EIO:
	case FAULT_LOST_SYNC: sim_world_disk(w, f->machine, SIM_DISK_OK); break;
	case FAULT_CUT:
	case FAULT_BLACK_HOLE:
	case FAULT_ONE_WAY:
	case FAULT_LOSSY: {
		enum err e = network_heal(n, f->machine, f->other);
		ASSERT(e == OK); // the pair has a link since the fault began
		sim_world_healed(w);
		break;
	}
	case FAULT_PARTITION:
		part(f, w, n, true);
		sim_world_healed(w);
		break;
	default: break; // over by itself
	}
}
