// A simulated engine as one of a group: from exchange to exchange, as engine/member does it, in each of its modes.
#include "sim/sim_engine.h"

#include "base/assert.h"
#include "base/bytes.h"

size_t sim_engine_part_bytes(const struct sim_model *m)
{
	return (size_t)m->chunk_max * CHAIN_UNITS * CHAIN_UNITS * CHAIN_ROW;
}

// ---- who has what

// has_nodes: this exchange is of nodes, and each member gets those of its own rows.
static bool has_nodes(const struct sim_engine *e)
{
	return !e->turn->at_rows && (e->turn->half == 0 ? split_has_o_lanes : split_has_lanes)(e->split.mode);
}

// is_hop: this exchange is one of a ring's. Nothing is joined on the way: a hop carries all nodes so far.
static bool is_hop(const struct sim_engine *e)
{
	return split_is_ring(e->split.mode) && (e->turn->half == 0 ? split_has_o_lanes : split_has_lanes)(e->split.mode);
}

static bool owns_column(const struct sim_engine *e, int32_t member, int32_t unit)
{
	const struct split_part *p = &e->split.parts[member];
	if (e->turn->half == 0)
		return split_owns_head(&chain_shape, e->split.mode, p, unit);
	if (split_has_lanes(e->split.mode))
		return (split_mask(p->lanes, CHAIN_LANES) >> unit & 1) != 0;
	return unit >= p->ffn.begin && unit < p->ffn.end;
}

static struct split_range columns_of(const struct sim_engine *e, int32_t member)
{
	struct split_range r = {0, 0};
	while (r.begin < CHAIN_UNITS && !owns_column(e, member, r.begin))
		r.begin++;
	for (r.end = r.begin; r.end < CHAIN_UNITS && owns_column(e, member, r.end);)
		r.end++;
	return r;
}

// rows_of returns the rows whose sums a member completes.
static struct split_range rows_of(const struct sim_engine *e, int32_t member)
{
	const struct split_part *p = &e->split.parts[member];
	if (has_nodes(e))
		return split_sums(&chain_shape, &e->split, member, e->turn->half == 0);
	return e->turn->half == 0 ? p->o_rows : p->down_rows;
}

// pieces_of returns which columns or rows a member sends.
static struct split_range pieces_of(const struct sim_engine *e, int32_t member)
{
	return e->turn->at_rows ? rows_of(e, member) : columns_of(e, member);
}

// hop_rows returns the rows that a member passes on in this hop.
static struct split_range hop_rows(const struct sim_engine *e, int32_t member)
{
	const struct sim_turn *t = e->turn;
	return rows_of(e, split_slice(member, t->hop, e->split.n_members, !t->at_rows));
}

// n_columns counts those whose nodes a member passes on in this hop, or 1 of sums.
static int32_t n_columns(const struct sim_engine *e, int32_t member)
{
	int32_t n = 0;
	for (int32_t i = 0; i <= e->turn->hop; i++)
		n += split_len(columns_of(e, split_before(member, i, e->split.n_members)));
	return e->turn->at_rows ? 1 : n;
}

// n_values counts what a member sends another one for one token.
static int32_t n_values(const struct sim_engine *e, int32_t from, int32_t to)
{
	if (is_hop(e))
		return from == split_before(to, 1, e->split.n_members) ? n_columns(e, from) * split_len(hop_rows(e, from)) : 0;
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
	if (t->at_rows)
		return t->rows[at][unit];
	if (t->half > 0)
		return chain_column(t->h[at], t->layer, t->half, unit, 0);
	uint64_t before = pos > 0 ? kv_at(e, it->slot, t->layer, pos - 1)[unit] : CHAIN_START;
	return kv_at(e, it->slot, t->layer, pos)[unit] = chain_column(t->h[at], t->layer, 0, unit, before);
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

// hop_value returns where a value that a member passes on lies: the column-th of those of n_columns.
static uint64_t *hop_value(const struct sim_engine *e, int32_t member, int32_t at, int32_t column, int32_t row)
{
	struct sim_turn *t = e->turn;
	if (t->at_rows)
		return &t->rows[at][row];
	for (int32_t i = 0;; i++) {
		struct split_range c = columns_of(e, split_before(member, i, e->split.n_members));
		if (column < split_len(c))
			return &t->nodes[at][c.begin + column][row];
		column -= split_len(c);
	}
}

// make_nodes computes those of this member's columns.
static void make_nodes(struct sim_engine *e)
{
	struct sim_turn *t = e->turn;
	struct split_range mine = columns_of(e, e->member);
	int32_t at = 0;
	for (int32_t i = 0; i < t->n_items; i++) {
		for (int32_t k = 0; k < t->items[i].n_tokens; k++, at++) {
			for (int32_t u = mine.begin; u < mine.end; u++) {
				uint64_t piece = piece_of(e, &t->items[i], k, at, u);
				for (int32_t r = 0; r < CHAIN_UNITS; r++)
					t->nodes[at][u][r] = chain_node(piece, r);
			}
		}
	}
}

// pass_values carries what a member passes on in this hop, out of here or in.
static void pass_values(struct sim_engine *e, int32_t member, uint8_t *out, const uint8_t *in)
{
	struct split_range rows = hop_rows(e, member);
	int32_t n = n_columns(e, member), place = 0;
	for (int32_t at = 0; at < e->turn->n_tokens; at++) {
		for (int32_t c = 0; c < n; c++) {
			for (int32_t r = rows.begin; r < rows.end; r++, place += CHAIN_ROW) {
				uint64_t *value = hop_value(e, member, at, c, r);
				if (out != NULL)
					store_u64(out + place, *value);
				else
					*value = load_u64(in + place);
			}
		}
	}
}

// contribute fills this member's part of the exchange that comes next, and tells what everybody's takes.
static void contribute(struct sim_engine *e, uint8_t *own, struct sim_exchange *out)
{
	bool differs = has_nodes(e) && !split_completes_all(e->split.mode);
	uint8_t *begin = own, *end = own;
	if (is_hop(e) && !e->turn->at_rows && e->turn->hop == 0)
		make_nodes(e);
	if (is_hop(e))
		pass_values(e, e->member, own, NULL);
	for (int32_t i = 0; i < e->split.n_members; i++) {
		out->bytes[i] = (uint32_t)(e->turn->n_tokens * n_values(e, i, e->member) * CHAIN_ROW);
		if (is_hop(e)) {
			end = begin + e->turn->n_tokens * n_values(e, e->member, i) * CHAIN_ROW;
		} else if (i == 0 || differs) {
			begin = end;
			end = fill(e, i, begin);
		}
		out->to[i] = (struct split_sent){(uint32_t)(begin - own), (uint32_t)(end - begin)};
	}
	out->own_at = out->to[e->member].at;
}

// ---- in

// join_row completes a row's sum of everybody's columns, or of the nodes of this row.
static uint64_t join_row(struct sim_engine *e, const uint8_t *const *parts, int32_t at, int32_t row)
{
	uint64_t sum = e->turn->h[at];
	struct split_range rows = rows_of(e, e->member);
	bool is_nodes = has_nodes(e);
	for (int32_t i = 0; i < e->split.n_members; i++) {
		int32_t n = split_len(pieces_of(e, i)), n_rows = split_len(rows);
		for (int32_t u = 0; u < n; u++) {
			int32_t place = is_nodes ? (at * n + u) * n_rows + row - rows.begin : at * n + u;
			uint64_t value = load_u64(parts[i] + CHAIN_ROW * place);
			sum = chain_join(sum, is_nodes ? value : chain_node(value, row));
		}
	}
	return sum;
}

static void join_columns(struct sim_engine *e, const uint8_t *const *parts)
{
	struct split_range rows = rows_of(e, e->member);
	for (int32_t at = 0; at < e->turn->n_tokens; at++)
		for (int32_t r = rows.begin; r < rows.end; r++)
			e->turn->rows[at][r] = join_row(e, parts, at, r);
}

// take_rows takes everybody's rows.
static void take_rows(struct sim_engine *e, const uint8_t *const *parts)
{
	for (int32_t i = 0; i < e->split.n_members; i++) {
		struct split_range r = rows_of(e, i);
		for (int32_t at = 0; at < e->turn->n_tokens; at++)
			for (int32_t u = r.begin; u < r.end; u++)
				e->turn->rows[at][u] = load_u64(parts[i] + CHAIN_ROW * (at * split_len(r) + u - r.begin));
	}
}

// join_nodes completes this member's rows from the nodes of all columns.
static void join_nodes(struct sim_engine *e)
{
	struct sim_turn *t = e->turn;
	struct split_range rows = rows_of(e, e->member);
	for (int32_t at = 0; at < t->n_tokens; at++) {
		for (int32_t r = rows.begin; r < rows.end; r++) {
			t->rows[at][r] = t->h[at];
			for (int32_t u = 0; u < CHAIN_UNITS; u++)
				t->rows[at][r] = chain_join(t->rows[at][r], t->nodes[at][u][r]);
		}
	}
}

// end_half makes the next states of all rows.
static void end_half(struct sim_turn *t)
{
	for (int32_t at = 0; at < t->n_tokens; at++)
		for (int32_t r = 0; r < CHAIN_UNITS; r++)
			t->h[at] = chain_join(t->h[at], t->rows[at][r]);
	t->at_rows = false;
	t->half = 1 - t->half;
	t->layer += t->half == 0;
}

static void advance_hop(struct sim_engine *e, const uint8_t *const *parts)
{
	struct sim_turn *t = e->turn;
	int32_t before = split_before(e->member, 1, e->split.n_members);
	pass_values(e, before, NULL, parts[before]);
	if (++t->hop < split_hops(e->split.n_members))
		return;
	t->hop = 0;
	if (t->at_rows) {
		end_half(t);
		return;
	}
	join_nodes(e);
	t->at_rows = true;
}

// advance takes in an exchange, and goes to the next.
static void advance(struct sim_engine *e, const uint8_t *const *parts)
{
	struct sim_turn *t = e->turn;
	if (is_hop(e)) {
		advance_hop(e, parts);
		return;
	}
	if (t->at_rows) {
		take_rows(e, parts);
		end_half(t);
		return;
	}
	bool is_complete = has_nodes(e) && split_completes_all(e->split.mode);
	join_columns(e, parts);
	if (is_complete)
		end_half(t);
	else
		t->at_rows = true;
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

// is_coming: the forward that an item is behind computes the positions before it.
static bool is_coming(const struct sim_turn *older, const struct sim_rows *it)
{
	for (int32_t i = 0; i < older->n_items; i++)
		if (older->items[i].slot == it->slot)
			return it->pos <= older->items[i].pos + older->items[i].n_tokens;
	return false;
}

bool sim_engine_begin(struct sim_engine *e, int32_t place, bool is_behind, int32_t layer_begin, int32_t layer_end, struct sim_rows *items, int32_t n, uint8_t *own,
	struct sim_exchange *out)
{
	struct sim_turn *t = e->turn = &e->turns[place];
	bool is_cut = false;
	ASSERT(n <= NODES_MAX);
	t->at_rows = false;
	t->hop = t->half = 0;
	t->layer = layer_begin;
	t->layer_end = layer_end;
	t->n_items = n;
	t->n_tokens = 0;
	for (int32_t i = 0; i < n; i++) {
		sim_check_rows(e, layer_begin, layer_end, &items[i]);
		if (is_behind && items[i].err != OK && is_coming(&e->turns[1 - place], &items[i]))
			items[i].err = OK;
		is_cut = is_cut || items[i].err != OK;
		t->items[i] = items[i];
		for (int32_t k = 0; k < items[i].n_tokens; k++)
			t->h[t->n_tokens++] = load_u64(items[i].data + CHAIN_ROW * k);
	}
	if (!is_cut)
		contribute(e, own, out);
	return !is_cut;
}

bool sim_engine_continue(struct sim_engine *e, int32_t place, int32_t layer_begin, const uint8_t *const *parts, uint8_t *own, struct sim_exchange *out)
{
	const struct sim_turn *t = e->turn = &e->turns[place];
	advance(e, parts);
	if (t->layer == t->layer_end) {
		finish(e, layer_begin);
		return false;
	}
	contribute(e, own, out);
	return true;
}
