// Who gets a slot, and in which chain. A session belongs to a chain from its slot on; it leaves it only when that chain has no plan for longer than
// another one would take to compute the session again from its tokens.
#include "coordinator/coord_state.h"

#include "base/log.h"

// How long a session waits for its chain at least, and, of session_wait, at most. Between them it waits as long as it would take to compute it
// again: whatever the chain does then, that is at most twice the shorter of waiting and moving.
#define MOVE_AFTER_NS INT64_C(3000000000)
#define MOVE_BEFORE_PART 2

static struct session *longest_waiting(struct coordinator *c)
{
	struct session *best = NULL;
	for (int32_t i = 0; i < c->n_sessions; i++) {
		struct session *s = &c->sessions[i];
		if (s->state == SESSION_WAITING && (best == NULL || s->order < best->order))
			best = s;
	}
	return best;
}

// has_suspect: a machine of the ring may be gone. What is under way waits for it; nothing new does, until it is heard or lost.
static bool has_suspect(const struct coordinator *c, const struct chain *ch)
{
	for (struct plan_seat s = {0}; plan_has_seat(&ch->plan, s); s = plan_seat_after(&ch->plan, s))
		if (coord_links_is_suspect(c, member_of_seat(c, ch, s)))
			return true;
	return false;
}

static int32_t free_slot(const int32_t *owners, int32_t n)
{
	int32_t slot = 0;
	while (slot < n && owners[slot] >= 0)
		slot++;
	return slot;
}

uint32_t admission_n_steps(const struct coordinator *c, const struct chain *ch)
{
	uint32_t n = 0;
	for (int32_t slot = 0; slot < c->config.n_slots; slot++) {
		const struct session *s = ch->slot_owner[slot] >= 0 ? &c->sessions[ch->slot_owner[slot]] : NULL;
		n += s != NULL ? s->seq_sent - s->seq_back : 0;
	}
	return n;
}

// least_loaded returns the chain that a session goes to: of those that let somebody in, the one with the fewest sessions, then with the fewest steps
// under way, then the first. A plan that must change lets nobody in, so that it can. NULL: none.
static struct chain *least_loaded(struct coordinator *c)
{
	struct chain *best = NULL;
	int32_t best_active = 0;
	for (int32_t i = 0; i < c->n_chains; i++) {
		struct chain *ch = &c->chains[i];
		int32_t n = sessions_count_active(c, ch);
		if (ch->plan_state != PLAN_READY || ch->plan_dirty || n == c->config.n_slots)
			continue;
		bool is_less = best == NULL || n < best_active || (n == best_active && admission_n_steps(c, ch) < admission_n_steps(c, best));
		if (!is_less || has_suspect(c, ch))
			continue;
		best = ch;
		best_active = n;
	}
	return best;
}

static void take_slot(struct coordinator *c, struct session *s, struct chain *ch)
{
	s->chain = ch->index;
	s->slot = free_slot(ch->slot_owner, c->config.n_slots);
	s->id.v = ++c->last_session;
	ch->slot_owner[s->slot] = (int32_t)(s - c->sessions);
}

static void admit(struct coordinator *c)
{
	struct session *s;
	struct chain *ch;
	while ((s = longest_waiting(c)) != NULL && (ch = least_loaded(c)) != NULL) {
		s->state = SESSION_ACTIVE;
		s->kv_epoch = ch->plan.epoch;
		s->head_slot = free_slot(c->head_owner, c->n_head_slots);
		c->head_owner[s->head_slot] = (int32_t)(s - c->sessions);
		take_slot(c, s, ch);
	}
}

// is_stranded: its chain has no plan, and it has waited for one.
static bool is_stranded(const struct coordinator *c, const struct session *s)
{
	return s->state == SESSION_ACTIVE && c->chains[s->chain].plan_state != PLAN_READY && c->now_ns >= s->move_ns;
}

void admission_note_halt(const struct coordinator *c, struct session *s)
{
	int64_t most_ns = c->config.session_wait_ns / MOVE_BEFORE_PART, wait_ns = s->pass_ns > 0 ? c->now_ns - s->pass_ns : 0;
	if (s->position_ns > 0 && s->replay_to > 0)
		wait_ns = s->position_ns < most_ns / s->replay_to ? s->position_ns * s->replay_to : most_ns;
	s->pass_ns = 0;
	wait_ns = wait_ns > MOVE_AFTER_NS ? wait_ns : MOVE_AFTER_NS;
	s->move_ns = c->now_ns + (wait_ns < most_ns ? wait_ns : most_ns);
}

// move takes a halted session to another chain. Nothing there knows it: everything is computed again from its tokens, and the bits are the same.
static void move(struct coordinator *c, struct session *s, struct chain *to, struct coord_effects *fx)
{
	coord_log(fx, LOG_INFO, "an answer goes on in chain %d: chain %d waits (%s)", to->index, s->chain, c->chains[s->chain].waiting_for);
	c->chains[s->chain].slot_owner[s->slot] = -1;
	take_slot(c, s, to);
	s->kv_epoch = to->plan.epoch;
	s->layer_begin = s->layer_end = 0;
	c->n_moved++;
}

void admission_pump(struct coordinator *c, struct coord_effects *fx)
{
	for (int32_t i = 0; c->n_chains > 1 && i < c->n_sessions; i++) {
		struct chain *to = is_stranded(c, &c->sessions[i]) ? least_loaded(c) : NULL;
		if (to != NULL)
			move(c, &c->sessions[i], to, fx);
	}
	admit(c);
}

int64_t admission_deadline_ns(const struct coordinator *c)
{
	int64_t deadline = INT64_MAX;
	for (int32_t i = 0; c->n_chains > 1 && i < c->n_sessions; i++) {
		const struct session *s = &c->sessions[i];
		if (s->state == SESSION_ACTIVE && c->chains[s->chain].plan_state != PLAN_READY && s->move_ns > c->now_ns && s->move_ns < deadline)
			deadline = s->move_ns;
	}
	return deadline;
}
