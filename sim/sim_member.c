// A simulated engine as one of a group: from exchange to exchange, as engine/member does it, in each of its modes.
#include "sim/sim_engine.h"

#include "base/assert.h"
#include "base/bytes.h"

size_t sim_engine_part_bytes(const struct sim_model *m)
{
	return (size_t)m->chunk_max * CHAIN_UNITS * CHAIN_UNITS * CHAIN_ROW;
}

// ---- who has what

// gated_of returns the gated columns of a member. Where they are dealt along lanes, each belongs to one.
static struct split_range gated_of(const struct sim_engine *e, int32_t member)
{
	const struct split_part *p = &e->split.parts[member];
	struct split_range r = {0, 0};
	if (!split_has_lanes(e->split.mode))
		return p->ffn;
	while (r.begin < CHAIN_UNITS && r.begin * SPLIT_LANES / CHAIN_UNITS < p->lanes.begin)
		r.begin++;
	for (r.end = r.begin; r.end < CHAIN_UNITS && r.end * SPLIT_LANES / CHAIN_UNITS < p->lanes.end;)
		r.end++;
	return r;
}

// rows_of returns the rows of down whose sums a member completes.
static struct split_range rows_of(const struct sim_engine *e, int32_t member)
{
	return e->split.mode == SPLIT_MIXED ? (struct split_range){0, CHAIN_UNITS} : e->split.parts[member].down_rows;
}

// has_nodes: this exchange is of nodes, and each member gets those of its own rows.
static bool has_nodes(const struct sim_engine *e)
{
	return e->turn->kind == CHAIN_GATED && split_has_lanes(e->split.mode);
}

static struct split_range pieces_of(const struct sim_engine *e, int32_t member)
{
	const struct split_part *p = &e->split.parts[member];
	const struct split_range of[] = {
		[CHAIN_ATTENDED] = p->heads, [CHAIN_O] = p->o_rows, [CHAIN_GATED] = gated_of(e, member), [CHAIN_DOWN] = p->down_rows};
	return of[e->turn->kind];
}

// n_values counts what a member sends another one for one token.
static int32_t n_values(const struct sim_engine *e, int32_t from, int32_t to)
{
	return split_len(pieces_of(e, from)) * (has_nodes(e) ? split_len(rows_of(e, to)) : 1);
}

// ---- out

static uint64_t *kv_at(const struct sim_engine *e, int32_t slot, int32_t layer, int32_t pos)
{
	size_t n_layers = (size_t)layer_spans_count(&e->layers), l = (size_t)layer_spans_find(&e->layers, layer);
	return e->kv + (((size_t)slot * n_layers + l) * (size_t)e->m->ctx_len + (size_t)pos) * CHAIN_UNITS;
}

// piece_of computes one of this member's: of the token at `at` of all, the item's `token`.
static uint64_t piece_of(struct sim_engine *e, const struct sim_rows *it, int32_t token, int32_t at, int32_t unit)
{
	const struct sim_turn *t = e->turn;
	int32_t pos = it->pos + token;
	if (t->kind == CHAIN_DOWN)
		return t->down[at][unit];
	if (t->kind != CHAIN_ATTENDED)
		return chain_piece(t->h[at], t->layer, t->kind, unit, 0);
	uint64_t before = pos > 0 ? kv_at(e, it->slot, t->layer, pos - 1)[unit] : CHAIN_START;
	return kv_at(e, it->slot, t->layer, pos)[unit] = chain_piece(t->h[at], t->layer, CHAIN_ATTENDED, unit, before);
}

// fill writes what one member gets, token after token. Returns where it ends.
static uint8_t *fill(struct sim_engine *e, int32_t to, uint8_t *out)
{
	const struct sim_turn *t = e->turn;
	struct split_range mine = pieces_of(e, e->member), rows = has_nodes(e) ? rows_of(e, to) : (struct split_range){0, 1};
	int32_t at = 0;
	for (int32_t i = 0; i < t->n_items; i++) {
		for (int32_t k = 0; k < t->items[i].n_tokens; k++, at++) {
			for (int32_t u = mine.begin; u < mine.end; u++) {
				uint64_t piece = piece_of(e, &t->items[i], k, at, u);
				for (int32_t r = rows.begin; r < rows.end; r++, out += CHAIN_ROW)
					store_u64(out, has_nodes(e) ? chain_node(piece, r) : piece);
			}
		}
	}
	return out;
}

// contribute fills this member's part of the exchange that comes next, and tells what everybody's takes.
static void contribute(struct sim_engine *e, uint8_t *own, struct sim_exchange *out)
{
	bool differs = has_nodes(e) && e->split.mode != SPLIT_MIXED;
	uint8_t *begin = own, *end = own;
	for (int32_t i = 0; i < e->split.n_members; i++) {
		out->bytes[i] = (uint32_t)(e->turn->n_tokens * n_values(e, i, e->member) * CHAIN_ROW);
		if (i == 0 || differs) {
			begin = end;
			end = fill(e, i, begin);
		}
		out->to[i] = (struct split_sent){(uint32_t)(begin - own), (uint32_t)(end - begin)};
	}
	out->own_at = out->to[e->member].at;
}

// ---- in

// join_nodes completes the sums of this member's rows.
static void join_nodes(struct sim_engine *e, const uint8_t *const *parts)
{
	struct sim_turn *t = e->turn;
	struct split_range rows = rows_of(e, e->member);
	int32_t n_rows = split_len(rows);
	for (int32_t at = 0; at < t->n_tokens; at++) {
		for (int32_t r = 0; r < n_rows; r++) {
			uint64_t sum = t->h[at];
			for (int32_t i = 0; i < e->split.n_members; i++) {
				int32_t n = split_len(pieces_of(e, i));
				for (int32_t u = 0; u < n; u++)
					sum = chain_join(sum, load_u64(parts[i] + CHAIN_ROW * ((at * n + u) * n_rows + r)));
			}
			t->down[at][rows.begin + r] = sum;
		}
	}
}

// join_gated makes the sums of this member's rows of everybody's columns.
static void join_gated(struct sim_engine *e, const uint8_t *const *parts)
{
	struct sim_turn *t = e->turn;
	struct split_range rows = rows_of(e, e->member);
	for (int32_t at = 0; at < t->n_tokens; at++) {
		for (int32_t r = rows.begin; r < rows.end; r++) {
			uint64_t sum = t->h[at];
			for (int32_t i = 0; i < e->split.n_members; i++) {
				int32_t n = split_len(pieces_of(e, i));
				for (int32_t u = 0; u < n; u++)
					sum = chain_join(sum, chain_node(load_u64(parts[i] + CHAIN_ROW * (at * n + u)), r));
			}
			t->down[at][r] = sum;
		}
	}
}

// join_states makes the next states of everybody's pieces.
static void join_states(struct sim_engine *e, const uint8_t *const *parts)
{
	struct sim_turn *t = e->turn;
	for (int32_t at = 0; at < t->n_tokens; at++) {
		for (int32_t i = 0; i < e->split.n_members; i++) {
			int32_t n = split_len(pieces_of(e, i));
			for (int32_t u = 0; u < n; u++)
				t->h[at] = chain_join(t->h[at], load_u64(parts[i] + CHAIN_ROW * (at * n + u)));
		}
	}
}

// join_down does the same where every member has completed every row.
static void join_down(struct sim_engine *e)
{
	struct sim_turn *t = e->turn;
	for (int32_t at = 0; at < t->n_tokens; at++)
		for (int32_t r = 0; r < CHAIN_UNITS; r++)
			t->h[at] = chain_join(t->h[at], t->down[at][r]);
}

// advance takes in an exchange, and goes to the next.
static void advance(struct sim_engine *e, const uint8_t *const *parts)
{
	struct sim_turn *t = e->turn;
	if (t->kind != CHAIN_GATED)
		join_states(e, parts);
	else if (has_nodes(e))
		join_nodes(e, parts);
	else
		join_gated(e, parts);
	bool is_complete = t->kind == CHAIN_GATED && e->split.mode == SPLIT_MIXED;
	if (is_complete)
		join_down(e);
	t->layer += is_complete || t->kind == CHAIN_DOWN;
	t->kind = is_complete || t->kind == CHAIN_DOWN ? CHAIN_ATTENDED : t->kind + 1;
}

// ---- a forward

// finish hands the states out and counts the positions as computed.
static void finish(struct sim_engine *e, int32_t layer_begin)
{
	const struct sim_turn *t = e->turn;
	int32_t n_layers = layer_spans_count(&e->layers), base = layer_spans_find(&e->layers, layer_begin) - layer_begin, at = 0;
	for (int32_t i = 0; i < t->n_items; i++) {
		const struct sim_rows *it = &t->items[i];
		for (int32_t k = 0; k < it->n_tokens; k++, at++)
			store_u64(it->data + CHAIN_ROW * k, t->h[at]);
		for (int32_t l = layer_begin + base; l < t->layer_end + base; l++)
			e->n_done[(size_t)it->slot * (size_t)n_layers + (size_t)l] = it->pos + it->n_tokens;
	}
}

bool sim_engine_begin(struct sim_engine *e, int32_t layer_begin, int32_t layer_end, struct sim_rows *items, int32_t n, uint8_t *own,
	struct sim_exchange *out)
{
	struct sim_turn *t = e->turn;
	bool is_cut = false;
	ASSERT(n <= NODES_MAX);
	t->kind = CHAIN_ATTENDED;
	t->layer = layer_begin;
	t->layer_end = layer_end;
	t->n_items = n;
	t->n_tokens = 0;
	for (int32_t i = 0; i < n; i++) {
		sim_check_rows(e, layer_begin, layer_end, &items[i]);
		is_cut = is_cut || items[i].err != OK;
		t->items[i] = items[i];
		for (int32_t k = 0; k < items[i].n_tokens; k++)
			t->h[t->n_tokens++] = load_u64(items[i].data + CHAIN_ROW * k);
	}
	if (!is_cut)
		contribute(e, own, out);
	return !is_cut;
}

bool sim_engine_continue(struct sim_engine *e, int32_t layer_begin, const uint8_t *const *parts, uint8_t *own, struct sim_exchange *out)
{
	const struct sim_turn *t = e->turn;
	advance(e, parts);
	if (t->layer == t->layer_end) {
		finish(e, layer_begin);
		return false;
	}
	contribute(e, own, out);
	return true;
}
