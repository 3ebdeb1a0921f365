#include "base/tensor_split.h"

#include "base/assert.h"

#define UNITS_PER_MEMBER 4 // with fewer the cuts are too far from the shares, and are made finer
#define ROWS_AT_ONCE 32    // outputs that a kernel works on together

// block_of returns how many inputs of a product share a scale.
static int32_t block_of(enum dtype type)
{
	uint32_t len = dtype_find((uint32_t)type)->block_len;
	return len == 1 ? 1 : len <= 32 ? 32 : 256;
}

// lanes_of: canonical-arithmetic.md, rules 5 to 8.
static int32_t lanes_of(int32_t block)
{
	return block == 1 ? 32 : block == 32 ? 8 : 4;
}

void split_shape_add(struct split_shape *s, enum dtype o, enum dtype down)
{
	bool is_first = s->o_block == 0;
	int32_t o_block = block_of(o), down_block = s->n_experts > 0 ? 1 : block_of(down);
	int32_t o_lanes = s->n_experts > 0 || o_block == 1 ? 0 : lanes_of(o_block), down_lanes = s->n_experts > 0 ? 0 : lanes_of(down_block);
	s->o_lanes = is_first || o_lanes == s->o_lanes ? o_lanes : 0;
	s->down_lanes = is_first || down_lanes < s->down_lanes ? down_lanes : s->down_lanes;
	s->o_block = o_block > s->o_block ? o_block : s->o_block;
	s->down_block = is_first || down_block > s->down_block ? down_block : s->down_block;
}

// cut gives each member its share of n units: boundaries are rounded, so that an error never adds up.
static void cut(int32_t n_units, const uint32_t *shares, int32_t n, struct split_range *ranges)
{
	uint64_t total = 0, sum = 0;
	int32_t begin = 0;
	for (int32_t i = 0; i < n; i++)
		total += shares[i];
	for (int32_t i = 0; i < n; i++) {
		sum += shares[i];
		int32_t end = (int32_t)(((uint64_t)n_units * sum * 2 + total) / (total * 2));
		ranges[i] = (struct split_range){begin, end};
		begin = end;
	}
}

// scale_range takes a range of units, each `unit` long, of what has n in all.
static struct split_range scale_range(struct split_range r, int32_t unit, int32_t n)
{
	int64_t begin = (int64_t)r.begin * unit, end = (int64_t)r.end * unit;
	return (struct split_range){(int32_t)(begin < n ? begin : n), (int32_t)(end < n ? end : n)};
}

static int32_t n_units_of(int32_t n, int32_t unit)
{
	return n / unit + (n % unit != 0);
}

// row_unit returns the largest of the units in which n rows can be shared by so many members: `best`, or single ones.
static int32_t row_unit(int32_t n, int32_t best, int32_t n_members)
{
	if (best > ROWS_AT_ONCE && n / best < UNITS_PER_MEMBER * n_members)
		best = ROWS_AT_ONCE;
	return n / best < UNITS_PER_MEMBER * n_members ? 1 : best;
}

// head_unit returns how many query heads stay together: a KV head's, or so many that blocks of o's input have one owner; fewer where there are
// more members than that.
static int32_t head_unit(const struct split_shape *s, int32_t n_members)
{
	int32_t per_kv = s->n_heads / s->n_kv_heads, unit = per_kv;
	while (unit < s->n_heads && unit * s->head_dim % s->o_block != 0)
		unit += per_kv;
	if (n_units_of(s->n_heads, unit) >= n_members)
		return unit;
	return s->n_kv_heads >= n_members ? per_kv : 1;
}

// head_lanes returns in how many lanes of o's sum cuts must fall so that every head, and every block of several heads, has one owner; 0: there
// are none.
static int32_t head_lanes(const struct split_shape *s)
{
	if (s->o_lanes == 0 || s->o_block == 1)
		return 0;
	if (s->o_block % s->head_dim == 0)
		return 1;
	int32_t n = s->head_dim / s->o_block;
	return s->head_dim % s->o_block == 0 && n < s->o_lanes && s->o_lanes % n == 0 ? n : 0;
}

enum err tensor_split_make(const struct split_shape *s, enum split_mode mode, const uint32_t *shares, int32_t n, struct tensor_split *out,
	struct errmsg *em)
{
	struct split_range heads[GROUP_MEMBERS_MAX], ffn[GROUP_MEMBERS_MAX], rows[GROUP_MEMBERS_MAX], experts[GROUP_MEMBERS_MAX], lanes[GROUP_MEMBERS_MAX],
		o_lanes[GROUP_MEMBERS_MAX], vocab[GROUP_MEMBERS_MAX];
	bool any = false;
	if (n < 1 || n > GROUP_MEMBERS_MAX)
		return errmsg_fail(em, ERR_RANGE, "a group of %d members (want 1 to %d)", (int)n, GROUP_MEMBERS_MAX);
	for (int32_t i = 0; i < n; i++)
		any = any || shares[i] > 0;
	if (!any)
		return errmsg_fail(em, ERR_RANGE, "a group whose members all have a share of 0");
	if (split_has_lanes(mode) && (s->n_experts > 0 || s->down_lanes == 0))
		return errmsg_fail(em, ERR_RANGE, "experts belong to members whole: only gather will do");
	if (split_has_o_lanes(mode) && head_lanes(s) == 0)
		return errmsg_fail(em, ERR_RANGE, "sums of o cannot be shared: a head of %d values lies in lanes of several members: gather or mixed will do",
			(int)s->head_dim);
	*out = (struct tensor_split){.mode = mode, .n_members = n};
	int32_t head = head_unit(s, n), col = row_unit(s->ffn_dim, s->down_block, n), row = row_unit(s->hidden_dim, ROWS_AT_ONCE, n);
	int32_t token = row_unit(s->vocab_size, ROWS_AT_ONCE, n);
	cut(n_units_of(s->n_heads, head), shares, n, heads);
	cut(n_units_of(s->ffn_dim, col), shares, n, ffn);
	cut(n_units_of(s->hidden_dim, row), shares, n, rows);
	cut(s->n_experts, shares, n, experts);
	cut(n_units_of(s->vocab_size, token), shares, n, vocab);
	cut(split_has_lanes(mode) ? s->down_lanes : 0, shares, n, lanes);
	int32_t unit = split_has_o_lanes(mode) ? head_lanes(s) : 0;
	cut(unit > 0 ? s->o_lanes / unit : 0, shares, n, o_lanes);
	bool is_whole = s->n_experts > 0 || split_has_lanes(mode);
	for (int32_t i = 0; i < n; i++) {
		out->parts[i] = (struct split_part){
			.heads = unit > 0 ? (struct split_range){0, s->n_heads} : scale_range(heads[i], head, s->n_heads),
			.ffn = is_whole ? (struct split_range){0, s->ffn_dim} : scale_range(ffn[i], col, s->ffn_dim),
			.o_rows = scale_range(rows[i], row, s->hidden_dim),
			.down_rows = scale_range(rows[i], row, s->hidden_dim),
			.experts = experts[i],
			.vocab_rows = scale_range(vocab[i], token, s->vocab_size),
		};
		struct split_range star = {i == 0 ? 0 : s->hidden_dim, s->hidden_dim};
		if (split_is_star(mode))
			out->parts[i].down_rows = star;
		if (split_is_star(mode) && unit > 0)
			out->parts[i].o_rows = star;
		if (unit > 0)
			out->parts[i].o_lanes = scale_range(o_lanes[i], SPLIT_LANES / s->o_lanes * unit, SPLIT_LANES);
		if (split_has_lanes(mode))
			out->parts[i].lanes = scale_range(lanes[i], SPLIT_LANES / s->down_lanes, SPLIT_LANES);
	}
	return OK;
}

// follows tells whether a range goes on where the one before it ended, and moves *at.
static bool follows(struct split_range r, int32_t *at)
{
	bool ok = r.begin == *at && r.end >= r.begin;
	*at = r.end;
	return ok;
}

enum err tensor_split_check(const struct split_shape *s, const struct tensor_split *t, struct errmsg *em)
{
	int32_t heads = 0, ffn = 0, lanes = 0, o_lanes = 0, o_rows = 0, down_rows = 0, experts = 0, vocab = 0;
	bool ok = true, has_lanes = split_has_lanes(t->mode), has_o_lanes = split_has_o_lanes(t->mode);
	if (t->n_members < 1 || t->n_members > GROUP_MEMBERS_MAX)
		return errmsg_fail(em, ERR_RANGE, "a group of %d members (want 1 to %d)", (int)t->n_members, GROUP_MEMBERS_MAX);
	if (!split_is_payload(t->payload))
		return errmsg_fail(em, ERR_RANGE, "a group whose sums travel as %d (want f32, bf16 or q8)", (int)t->payload);
	if ((int)t->mode < 0 || t->mode >= N_SPLIT_MODES || (has_lanes && (s->n_experts > 0 || s->down_lanes == 0)) ||
		(has_o_lanes && head_lanes(s) == 0))
		return errmsg_fail(em, ERR_RANGE, "a group of mode %d, which this model cannot have", (int)t->mode);
	for (int32_t i = 0; i < t->n_members; i++) {
		const struct split_part *p = &t->parts[i];
		if (s->n_experts > 0)
			ok = ok && p->ffn.begin == 0 && p->ffn.end == s->ffn_dim && follows(p->experts, &experts);
		else if (has_lanes)
			ok = ok && p->ffn.begin == 0 && p->ffn.end == s->ffn_dim && follows(p->lanes, &lanes) && p->lanes.end % (SPLIT_LANES / s->down_lanes) == 0;
		else
			ok = ok && follows(p->ffn, &ffn);
		ok = ok && (s->n_experts > 0 || follows(p->down_rows, &down_rows));
		if (has_o_lanes)
			ok = ok && p->heads.begin == 0 && p->heads.end == s->n_heads && follows(p->o_lanes, &o_lanes) &&
				p->o_lanes.end % (SPLIT_LANES / s->o_lanes * head_lanes(s)) == 0;
		else
			ok = ok && follows(p->heads, &heads);
		ok = ok && follows(p->o_rows, &o_rows) && follows(p->vocab_rows, &vocab);
	}
	ok = ok && (has_o_lanes ? o_lanes == SPLIT_LANES : heads == s->n_heads) && o_rows == s->hidden_dim && experts == s->n_experts && vocab == s->vocab_size;
	ok = ok && (s->n_experts > 0 || (down_rows == s->hidden_dim && (has_lanes ? lanes == SPLIT_LANES : ffn == s->ffn_dim)));
	ok = ok && (!split_is_star(t->mode) || (t->parts[0].down_rows.end == s->hidden_dim && (!has_o_lanes || t->parts[0].o_rows.end == s->hidden_dim)));
	return ok ? OK : errmsg_fail(em, ERR_RANGE, "a group whose parts do not cover a layer");
}

struct split_range split_kv_heads(const struct split_shape *s, const struct split_part *p)
{
	int32_t per_kv = s->n_heads / s->n_kv_heads;
	if (split_len(p->heads) == 0)
		return (struct split_range){0, 0};
	return (struct split_range){p->heads.begin / per_kv, (p->heads.end - 1) / per_kv + 1};
}

struct split_columns split_columns_of(struct split_range columns, int32_t block)
{
	if (block == 1)
		return (struct split_columns){.front = columns};
	int32_t first = n_units_of(columns.begin, block), last = columns.end / block;
	if (first >= last) // all of it lies in blocks that others share
		return (struct split_columns){.front = columns};
	return (struct split_columns){
		.front = {columns.begin, first * block},
		.blocks = {first, last},
		.back = {last * block, columns.end},
	};
}

size_t split_columns_bytes(const struct split_columns *c, int32_t block)
{
	size_t values = (size_t)split_len(c->front) + (size_t)split_len(c->back);
	return values * sizeof(float) + (size_t)split_len(c->blocks) * ((size_t)block + sizeof(float));
}

int32_t split_nodes(int32_t n_lanes, uint32_t mask)
{
	ASSERT(n_lanes > 0);
	ASSERT(n_lanes <= SPLIT_LANES);
	ASSERT((n_lanes & (n_lanes - 1)) == 0);
	uint32_t all = UINT32_MAX >> (SPLIT_LANES - n_lanes);
	ASSERT((mask & ~all) == 0);
	if (mask == 0 || mask == all)
		return mask != 0;
	return split_nodes(n_lanes / 2, mask & (all >> n_lanes / 2)) + split_nodes(n_lanes / 2, mask >> n_lanes / 2);
}

bool split_owns_head(const struct split_shape *s, enum split_mode mode, const struct split_part *p, int32_t head)
{
	if (!split_has_o_lanes(mode))
		return head >= p->heads.begin && head < p->heads.end;
	int32_t block = (int32_t)((int64_t)head * s->head_dim / s->o_block);
	return (split_mask(p->o_lanes, s->o_lanes) >> block % s->o_lanes & 1) != 0;
}

struct split_range split_sums(const struct split_shape *s, const struct tensor_split *t, int32_t member, bool of_o)
{
	if (!split_has_lanes(t->mode) || (of_o && !split_has_o_lanes(t->mode)))
		return (struct split_range){0, 0};
	if (split_completes_all(t->mode))
		return (struct split_range){0, s->hidden_dim};
	return of_o ? t->parts[member].o_rows : t->parts[member].down_rows;
}

size_t split_payload_bytes(enum wire_type t, int32_t n)
{
	return t == WIRE_Q8 ? (size_t)n + 2 * (size_t)n_units_of(n, SPLIT_Q8_BLOCK) : wire_bytes(t, n);
}

size_t split_bytes(const struct split_shape *s, const struct split_part *p, enum split_exchange x, int32_t block)
{
	struct split_range heads = {p->heads.begin * s->head_dim, p->heads.end * s->head_dim};
	struct split_columns c = split_columns_of(x == EXCHANGE_ATTENDED ? heads : p->ffn, block);
	switch (x) {
	case EXCHANGE_ATTENDED:
	case EXCHANGE_GATED: return split_columns_bytes(&c, block);
	case EXCHANGE_O: return (size_t)split_len(p->o_rows) * sizeof(float);
	case EXCHANGE_DOWN: return (size_t)split_len(p->down_rows) * sizeof(float);
	case EXCHANGE_O_NODES:
	case EXCHANGE_NODES:
	case EXCHANGE_EXPERTS: return (size_t)s->hidden_dim * sizeof(float);
	case N_EXCHANGES: break;
	}
	return 0;
}
