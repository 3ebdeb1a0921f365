#include "engine/probe_stage.h"

#include "base/thread.h"
#include "engine/stage_work.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CTX 512          // positions; attention to them is what a short answer has
#define LAYERS_LEAST 2
#define REST_NS 3000000  // longer than threads of a pool spin

struct probe_stage {
	struct stage_work *work;
	int32_t n_layers, hidden_dim;
	int32_t pos; // of the next token
	uint64_t by_type[DTYPE_ID_MAX + 1];
	size_t row_bytes;
	uint8_t *wire; // (PROBE_BATCH) rows
};

static void add_matrix(const struct tensor_view *t, uint64_t times, uint64_t *bytes, uint64_t *flop, uint64_t *by_type)
{
	uint64_t b = (uint64_t)t->rows * t->row_bytes * times;
	*bytes += b;
	*flop += 2 * (uint64_t)t->rows * (uint64_t)t->cols * times;
	if (by_type != NULL && t->rows > 0)
		by_type[t->type] += b;
}

static void count_layer(const struct model *m, int32_t layer, uint64_t *bytes, uint64_t *flop, uint64_t *by_type)
{
	struct layer_weights w;
	model_layer(m, layer, &w);
	const struct tensor_view *matrices[] = {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down, &w.router};
	for (size_t i = 0; i < ARRAY_LEN(matrices); i++)
		if (matrices[i]->rows > 0)
			add_matrix(matrices[i], 1, bytes, flop, by_type);
	uint64_t n_used = (uint64_t)model_hparams(m)->n_experts_used;
	if (w.experts == NULL)
		return;
	add_matrix(&w.experts[0].gate, n_used, bytes, flop, by_type); // one is as large as another
	add_matrix(&w.experts[0].up, n_used, bytes, flop, by_type);
	add_matrix(&w.experts[0].down, n_used, bytes, flop, by_type);
}

uint64_t probe_stage_layer_bytes(const struct model *m, int32_t layer, uint64_t *by_type)
{
	uint64_t bytes = 0, flop = 0;
	count_layer(m, layer, &bytes, &flop, by_type);
	return bytes;
}

uint64_t probe_stage_layer_flop(const struct model *m, int32_t layer)
{
	uint64_t bytes = 0, flop = 0;
	count_layer(m, layer, &bytes, &flop, NULL);
	return flop;
}

static int32_t choose_layers(const struct model *m, uint64_t bytes, uint64_t *by_type)
{
	int32_t n = 0;
	for (uint64_t sum = 0; n < model_hparams(m)->n_layers && (n < LAYERS_LEAST || sum < bytes); n++)
		sum += probe_stage_layer_bytes(m, n, by_type);
	return n;
}

// fill_rows writes hidden states of f32 that look like any others.
static void fill_rows(struct probe_stage *s)
{
	for (int32_t i = 0; i < PROBE_BATCH * s->hidden_dim; i++) {
		float v = (float)(i % 61 - 30) * 0.02f;
		memcpy(s->wire + (size_t)i * sizeof v, &v, sizeof v);
	}
}

enum err probe_stage_open(const struct model *m, const struct kernels *k, struct pool *pool, uint64_t bytes, struct probe_stage **out, struct errmsg *em)
{
	struct probe_stage *s = calloc(1, sizeof *s);
	if (s == NULL)
		return errmsg_fail(em, ERR_NOMEM, "no memory to measure with");
	s->hidden_dim = model_hparams(m)->hidden_dim;
	s->n_layers = choose_layers(m, bytes, s->by_type);
	s->row_bytes = wire_bytes(WIRE_F32, s->hidden_dim);
	s->wire = malloc(PROBE_BATCH * s->row_bytes);
	const struct engine_config c = {.model = m, .kernels = k, .pool = pool, .layers = layer_spans_one(0, s->n_layers), .n_slots = 1, .ctx_len = CTX,
		.batch_max = PROBE_BATCH, .wire = WIRE_F32};
	enum err e = s->wire != NULL ? stage_work_open(&c, &s->work, em) : errmsg_fail(em, ERR_NOMEM, "no memory to measure with");
	if (e != OK) {
		probe_stage_close(s);
		return e;
	}
	fill_rows(s);
	*out = s;
	return OK;
}

void probe_stage_close(struct probe_stage *s)
{
	if (s == NULL)
		return;
	stage_work_close(s->work);
	free(s->wire);
	free(s);
}

int32_t probe_stage_n_layers(const struct probe_stage *s)
{
	return s->n_layers;
}

const uint64_t *probe_stage_bytes_by_type(const struct probe_stage *s)
{
	return s->by_type;
}

static int64_t run(struct probe_stage *s, int32_t begin, int32_t end, int32_t pos, int32_t n_tokens)
{
	struct stage_item it = {.wire = s->wire, .pos = pos, .n_tokens = n_tokens};
	fill_rows(s); // what layers made of them may grow without end
	int64_t begin_ns = thread_clock_ns();
	stage_work_forward(s->work, begin, end, &it, 1);
	return it.err == OK ? thread_clock_ns() - begin_ns : 0;
}

int64_t probe_stage_warm(struct probe_stage *s, int32_t layer)
{
	return run(s, layer, layer + 1, 0, 1);
}

static int64_t decode(struct probe_stage *s, int32_t n_layers)
{
	int64_t ns = run(s, 0, n_layers, s->pos, 1);
	s->pos = s->pos + 1 < CTX ? s->pos + 1 : 0;
	return ns;
}

int64_t probe_stage_decode(struct probe_stage *s)
{
	return decode(s, s->n_layers);
}

int64_t probe_stage_visit(struct probe_stage *s, bool rested)
{
	const struct timespec rest = {.tv_nsec = REST_NS};
	if (rested)
		nanosleep(&rest, NULL);
	return decode(s, s->n_layers < LAYERS_LEAST ? s->n_layers : LAYERS_LEAST);
}

int64_t probe_stage_prefill(struct probe_stage *s, int32_t layer, int32_t n_tokens)
{
	return run(s, layer, layer + 1, 0, n_tokens);
}
