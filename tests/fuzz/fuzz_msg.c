// Any bytes as a control message: what is decoded is within its limits, encodes, and decodes to the same struct again.
#include "base/assert.h"
#include "proto/msg.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_addresses(const struct address_list *l)
{
	ASSERT(l->n <= ADDRS_MAX);
	for (uint32_t i = 0; i < l->n; i++)
		ASSERT(text_is_plain(l->at[i], strlen(l->at[i])));
}

static void check_plan(const struct msg_plan *p)
{
	struct msg_plan none = {.epoch = p->epoch};
	if (p->n_stages == 0) { // no part for this node: nothing else is said
		ASSERT(memcmp(p, &none, sizeof none) == 0);
		return;
	}
	ASSERT(p->n_stages <= STAGES_MAX);
	ASSERT(p->stage >= 0 && p->stage < p->n_stages);
	ASSERT(p->layers.n >= 1 && p->layers.n <= (p->n_stages > 1 ? ROUNDS_MAX : 1));
	for (int32_t i = 0, at = 0; i < p->layers.n; at = p->layers.at[i++].end)
		ASSERT(at <= p->layers.at[i].begin && p->layers.at[i].begin <= p->layers.at[i].end && p->layers.at[i].end <= LAYERS_MAX);
	ASSERT(layer_spans_count(&p->layers) > 0);
	ASSERT(p->n_slots >= 1 && p->n_slots <= SESSIONS_MAX);
	ASSERT(p->hop_credits >= 1 && p->hop_credits * p->layers.n <= HOP_CREDITS_MAX);
	ASSERT(p->chunk_max >= 1 && p->chunk_max <= CHUNK_TOKENS_MAX);
	const struct msg_group *g = &p->group;
	ASSERT(g->n_members == 0 || (g->n_members >= 2 && g->n_members <= GROUP_MEMBERS_MAX));
	ASSERT(g->n_members == 0 || (g->self >= 0 && g->self < g->n_members && g->hub >= -1 && g->hub < g->n_members));
	ASSERT(g->self == 0 || (!p->prev.present && !p->next.present));
	for (int32_t i = 0; i < g->n_members; i++)
		check_addresses(&g->members[i].addresses);
	check_addresses(&p->prev.addresses);
	check_addresses(&p->next.addresses);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct msg m, again;
	uint8_t frame[MSG_ENCODED_MAX];
	if (msg_decode(data, size, &m, NULL) != OK)
		return 0;
	if (m.type == MSG_PLAN)
		check_plan(&m.u.plan);
	if (m.type == MSG_HELLO)
		check_addresses(&m.u.hello.addresses);
	size_t len = msg_encode(&m, frame);
	ASSERT(msg_decode(frame, len, &again, NULL) == OK);
	ASSERT(memcmp(&m, &again, sizeof m) == 0);
	return 0;
}
