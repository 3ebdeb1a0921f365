// Clients of the simulated coordinator: what they ask, what they must be shown, and how each request may end.
#include "sim/world_state.h"

#include <stdio.h>
#include <stdlib.h>

static struct sim_req *find_req(struct sim_world *w, uint64_t req)
{
	if (req < 1 || req > (uint64_t)w->n_reqs) {
		sim_world_fail(w, "the coordinator names request %llu, which nobody made", (unsigned long long)req);
		return NULL;
	}
	return &w->reqs[req - 1];
}

static void tell(struct sim_world *w, enum sim_record_type type, int32_t request, struct sim_record r)
{
	r.type = type;
	r.begin_ns = r.end_ns = w->now_ns;
	r.request = request;
	r.is_head = true;
	sim_tell(w, &r);
}

// prepare draws the prompt and computes the answer of one machine without faults.
static bool prepare(struct sim_world *w, int32_t request)
{
	struct sim_req *q = &w->reqs[request];
	int32_t room = w->model.ctx_len - q->n_prompt;
	q->n_want = q->ask.n_predict < room ? q->ask.n_predict : room;
	if (q->n_want < 0)
		q->n_want = 0; // the coordinator refuses it
	q->tokens = malloc((size_t)(q->n_prompt + q->n_want) * sizeof *q->tokens);
	if (q->tokens == NULL)
		return false;
	struct rng rng;
	rng_init(&rng, sim_mix(w->config.seed, 1000 + (uint64_t)request));
	for (int32_t i = 0; i < q->n_prompt; i++)
		q->tokens[i] = (int32_t)rng_below(&rng, (uint64_t)w->model.config.vocab_size);
	if (q->n_want == 0)
		return true;
	struct sim_answer a = {.tokens = q->tokens, .n_prompt = q->n_prompt, .n_predict = q->n_want, .sampling = q->ask.sampling,
		.hash_logits = q->ask.hash_logits};
	struct errmsg em;
	if (sim_model_answer(&w->model, &a, &em) != OK) {
		sim_world_fail(w, "the reference answer: %s", em.text);
		return false;
	}
	q->hash = a.hash;
	for (int32_t i = 0; w->head.config.n_stop_ids > 0 && i < q->n_want && !q->stops; i++) {
		if (q->tokens[q->n_prompt + i] != w->head.config.stop_ids[0])
			continue;
		q->n_want = i;
		q->stops = true;
	}
	return true;
}

static void submit(struct sim_world *w, int32_t request)
{
	struct sim_req *q = &w->reqs[request];
	q->state = SIM_REQ_OPEN;
	struct coord_event ev = {.type = COORD_EV_SUBMIT};
	ev.u.submit.req = (uint64_t)request + 1;
	ev.u.submit.tokens = q->tokens;
	ev.u.submit.n_tokens = q->n_prompt;
	ev.u.submit.n_predict = q->ask.n_predict;
	ev.u.submit.sampling = q->ask.sampling;
	ev.u.submit.hash_logits = q->ask.hash_logits;
	sim_head_step(w, &ev);
}

void sim_client_submit(struct sim_world *w, int32_t request)
{
	struct sim_req *q = &w->reqs[request];
	if (q->state != SIM_REQ_PLANNED)
		return;
	q->submit_ns = w->now_ns;
	if (!w->head.is_running) {
		q->state = SIM_REQ_REFUSED;
		q->end_ns = w->now_ns;
		w->n_open--;
		w->counts.n_refused++;
		if (q->ask.must_succeed)
			sim_world_fail(w, "request %d: nobody listens although all is healed", request);
		return;
	}
	if (!prepare(w, request))
		return;
	q->calm = !w->had_fault;
	tell(w, SIM_REC_SUBMIT, request, (struct sim_record){0});
	submit(w, request);
	if (q->ask.cancel_ns > 0 && q->state == SIM_REQ_OPEN)
		sim_at(w, w->now_ns + q->ask.cancel_ns, EV_CANCEL, SIM_HEAD)->arg = request;
}

void sim_client_on_emit(struct sim_world *w, uint64_t req, int32_t token, int32_t pos)
{
	struct sim_req *q = find_req(w, req);
	if (q == NULL)
		return;
	int32_t request = (int32_t)req - 1;
	if (q->state != SIM_REQ_OPEN)
		sim_world_fail(w, "request %d: a token after its end", request);
	else if (pos != q->n_prompt + q->n_got)
		sim_world_fail(w, "request %d: token at position %d, wanted %d", request, pos, q->n_prompt + q->n_got);
	else if (q->n_got >= q->n_want)
		sim_world_fail(w, "request %d: more than its %d tokens", request, q->n_want);
	else if (token != q->tokens[pos])
		sim_world_fail(w, "request %d: token %d at position %d, wanted %d", request, token, pos, q->tokens[pos]);
	if (w->has_failed)
		return;
	int32_t chain = coordinator_chain_of(w->head.core, req);
	q->plan_at_last = chain >= 0 ? w->ledgers[chain].epoch : q->plan_at_last; // its last token ends it
	if (q->n_got == 0)
		q->plan_at_first = q->plan_at_last;
	if (q->n_got++ < q->n_shown)
		return; // computed again after a crash: its client has it
	if (q->n_shown++ == 0)
		q->first_ns = w->now_ns;
	q->last_ns = w->now_ns;
	w->counts.n_tokens++;
	tell(w, SIM_REC_TOKEN, request, (struct sim_record){.index = q->n_got - 1, .token = token});
}

// ---- ends

static void check_good_end(struct sim_world *w, int32_t request, const struct coord_effect *f)
{
	const struct sim_req *q = &w->reqs[request];
	if (q->n_got != q->n_want)
		sim_world_fail(w, "request %d ended after %d of %d tokens", request, q->n_got, q->n_want);
	else if (f->u.end.end != (q->stops ? COORD_END_STOP : COORD_END_LENGTH))
		sim_world_fail(w, "request %d ended for another reason than it must", request);
	else if (q->ask.hash_logits && !q->stops && sim_engine_hash(w->head.engine, f->u.end.slot) != q->hash)
		sim_world_fail(w, "request %d: the hash of its logits is not that of one machine", request);
	w->counts.n_ended_well++;
	w->counts.n_recovered += q->n_got > 0 && q->plan_at_first != q->plan_at_last;
}

// error_is_allowed: a request may fail by its own fault, or for the loss of a node as long as recovery is not there.
static bool error_is_allowed(const struct sim_world *w, const struct sim_req *q, enum err err, const char *text)
{
	if (q->n_prompt < 1 || q->n_prompt >= w->model.ctx_len)
		return err == ERR_RANGE || err == ERR_LIMIT;
	if (q->ask.must_succeed || (q->calm && !w->had_fault))
		return false;
	switch (err) {
	case ERR_BUSY: return true;
	case ERR_TIMEOUT: return strncmp(text, "no progress", 11) != 0; // nothing here computes that long: a step or a credit was lost
	case ERR_NODE_LOST: return !w->config.recovery;
	default: return false;
	}
}

void sim_client_on_end(struct sim_world *w, const struct coord_effect *f)
{
	struct sim_req *q = find_req(w, f->u.end.req);
	if (q == NULL)
		return;
	int32_t request = (int32_t)f->u.end.req - 1;
	if (q->state != SIM_REQ_OPEN) {
		sim_world_fail(w, "request %d ended twice", request);
		return;
	}
	switch (f->u.end.end) {
	case COORD_END_STOP:
	case COORD_END_LENGTH: check_good_end(w, request, f); break;
	case COORD_END_CANCELLED:
		w->counts.n_cancelled++;
		if (!q->is_cancelled)
			sim_world_fail(w, "request %d ended as cancelled, and nobody cancelled it", request);
		break;
	case COORD_END_ERROR:
		w->counts.n_ended_badly++;
		if (!error_is_allowed(w, q, f->u.end.err, f->u.end.text))
			sim_world_fail(w, "request %d ended with an error it may not have (%s): %s", request, err_words(f->u.end.err), f->u.end.text);
		break;
	}
	q->state = SIM_REQ_ENDED;
	q->end = f->u.end.end;
	q->err = f->u.end.err;
	q->end_ns = w->now_ns;
	w->n_open--;
	tell(w, SIM_REC_END, request, (struct sim_record){.end = q->end, .text = f->u.end.text});
}

void sim_client_lose_all(struct sim_world *w)
{
	for (int32_t i = 0; i < w->n_reqs; i++) {
		struct sim_req *q = &w->reqs[i];
		if (q->state != SIM_REQ_OPEN)
			continue;
		if (w->config.journal && !w->lied_sync) {
			q->state = SIM_REQ_HELD;
			continue;
		}
		q->state = SIM_REQ_LOST;
		q->end_ns = w->now_ns;
		w->n_open--;
		w->counts.n_lost++;
		if (q->ask.must_succeed)
			sim_world_fail(w, "request %d was lost with the coordinator after the last fault", i);
		tell(w, SIM_REC_END, i, (struct sim_record){.end = COORD_END_ERROR, .text = "the coordinator stopped"});
	}
}

void sim_client_take_up(struct sim_world *w)
{
	for (int32_t i = 0; i < w->n_reqs; i++) {
		if (w->reqs[i].state != SIM_REQ_HELD)
			continue;
		w->reqs[i].n_got = 0;
		w->counts.n_taken_up++;
		submit(w, i);
	}
}

// ---- what the scenario asks

int32_t sim_world_submit(struct sim_world *w, const struct sim_request *r)
{
	if (w->n_reqs == w->reqs_cap) {
		sim_world_fail(w, "more than %d requests", w->reqs_cap);
		return w->reqs_cap - 1;
	}
	int32_t i = w->n_reqs++;
	w->reqs[i] = (struct sim_req){.ask = *r, .state = SIM_REQ_PLANNED, .n_prompt = r->n_prompt};
	w->n_open++;
	sim_at(w, r->at_ns > w->now_ns ? r->at_ns : w->now_ns, EV_SUBMIT, SIM_HEAD)->arg = i;
	return i;
}

int32_t sim_world_n_requests(const struct sim_world *w)
{
	return w->n_reqs;
}

int32_t sim_world_n_open(const struct sim_world *w)
{
	return w->n_open;
}

void sim_world_request(const struct sim_world *w, int32_t request, struct sim_request_view *out)
{
	const struct sim_req *q = &w->reqs[request];
	*out = (struct sim_request_view){.state = q->state, .end = q->end, .err = q->err, .submit_ns = q->submit_ns, .first_ns = q->first_ns,
		.last_ns = q->last_ns, .end_ns = q->end_ns, .n_prompt = q->n_prompt, .n_tokens = q->n_shown};
}
