// After a loss: what of a session must be computed again, and from whose states.
//
// A layer's keys and values are there when its machine held it under the plan the session ran under, and has held it since; of a group, when each
// member did, and the same part of it. The layers from the
// first one that lacks them to the last are run again, over every position that was done. What goes into them is what the nearest stage
// before them has kept of what it sent; before the first layer, the embedding of the tokens.
#include "coordinator/coord_state.h"

#include "base/assert.h"
#include "base/log.h"

// stage_holds tells which of a stage's layers have everything of a session of this epoch.
static struct layer_set stage_holds(const struct coordinator *c, const struct chain *ch, int32_t stage, struct plan_epoch epoch)
{
	const struct plan_group *g = &ch->plan.stages[stage].who;
	struct layer_set all = layer_set_of(&ch->plan.stages[stage].layers);
	for (int32_t k = 0; k < g->n; k++) {
		static const struct layer_set none;
		const struct member *m = &c->members[member_of_seat(c, ch, (struct plan_seat){stage, k})];
		struct layer_part part = plan_part_of(&ch->plan.stages[stage], k);
		layer_set_keep(&all, m->kv_epoch.v == epoch.v && layer_part_equal(&part, &m->kv_part) ? &m->kv : &none);
	}
	return all;
}

// find_lost returns the range of layers from the first to the last that has nothing of the session; false: none has not.
static bool find_lost(const struct coordinator *c, const struct chain *ch, struct plan_epoch epoch, int32_t *begin, int32_t *end)
{
	struct layer_set held = {0};
	for (int32_t i = 0; i < ch->plan.n_stages; i++) {
		struct layer_set here = stage_holds(c, ch, i, epoch);
		layer_set_join(&held, &here);
	}
	*begin = *end = -1;
	for (int32_t layer = 0; layer < ch->plan.n_layers; layer++) {
		if (layer_set_has(&held, layer))
			continue;
		*begin = *begin < 0 ? layer : *begin;
		*end = layer + 1;
	}
	return *begin >= 0;
}

// find_source returns the last layer boundary, at or before `layer`, that a stage has kept the states of; 0: the tokens.
static int32_t find_source(const struct coordinator *c, const struct chain *ch, struct plan_epoch epoch, int32_t layer)
{
	int32_t best = 0;
	for (int32_t i = 0; i < plan_n_spans(&ch->plan); i++) {
		const struct layer_span *span = plan_span(&ch->plan, i);
		const struct member *m = &c->members[member_of_stage(c, ch, i % ch->plan.n_stages)];
		for (int32_t at = span->begin + 1; m->kv_epoch.v == epoch.v && at <= span->end && at <= layer; at++)
			best = layer_set_has(&m->sent, at) ? at : best;
	}
	return best;
}

static void resume(struct coordinator *c, const struct chain *ch, struct session *s)
{
	int32_t begin, end;
	s->layer_begin = s->layer_end = 0;
	if (s->kv_epoch.v == 0 || s->replay_to == 0)
		return; // from its tokens
	if (!find_lost(c, ch, s->kv_epoch, &begin, &end)) {
		s->n_embedded = s->pos_back = s->replay_to; // only what was on its way is lost
		return;
	}
	begin = find_source(c, ch, s->kv_epoch, begin);
	if (begin == 0 && end == c->config.n_layers)
		return;
	s->layer_begin = begin;
	s->layer_end = end;
}

static void log_resume(const struct session *s, struct coord_effects *fx)
{
	if (s->replay_to == 0)
		coord_log(fx, LOG_INFO, "an answer begins again: nothing of it was done yet");
	else if (s->n_embedded > 0)
		coord_log(fx, LOG_INFO, "an answer goes on at position %d: nothing but what was on its way is lost", s->replay_to);
	else if (s->layer_end > 0)
		coord_log(fx, LOG_INFO, "an answer goes on: layers %d to %d are computed again for %d positions%s", s->layer_begin, s->layer_end - 1,
			s->replay_to, s->layer_begin > 0 ? ", from states that were kept" : "");
	else
		coord_log(fx, LOG_INFO, "an answer goes on: every layer is computed again for %d positions", s->replay_to);
}

void recovery_note_ready(struct coordinator *c, struct chain *ch, struct coord_effects *fx)
{
	for (int32_t i = 0; i < c->n_sessions; i++) {
		struct session *s = &c->sessions[i];
		if (s->state != SESSION_ACTIVE || s->chain != ch->index)
			continue;
		resume(c, ch, s);
		log_resume(s, fx);
		s->kv_epoch = ch->plan.epoch;
		c->n_recovered++;
	}
	for (struct plan_seat s = {0}; plan_has_seat(&ch->plan, s); s = plan_seat_after(&ch->plan, s)) {
		const struct plan_stage *st = &ch->plan.stages[s.stage];
		struct member *m = &c->members[member_of_seat(c, ch, s)];
		m->kv_epoch = ch->plan.epoch;
		m->kv = layer_set_of(&st->layers);
		memset(&m->sent, 0, sizeof m->sent);
		for (int32_t r = 0; s.place == 0 && r < ch->plan.n_rounds; r++)
			if (r * ch->plan.n_stages + s.stage + 1 < plan_n_spans(&ch->plan))
				layer_set_add(&m->sent, st->layers.at[r].end);
	}
}

void recovery_note_part(struct member *m, const struct plan_stage *st, int32_t place)
{
	struct layer_set layers = layer_set_of(&st->layers);
	struct layer_part part = plan_part_of(st, place);
	if (!layer_part_equal(&part, &m->kv_part))
		memset(&m->kv, 0, sizeof m->kv);
	m->kv_part = part;
	layer_set_keep(&m->kv, &layers);
}
