#include "coordinator/shell/chains_json.h"

#include "base/printable.h"

#include <string.h>

// add_plan says what the planner predicts, where it was asked.
static void add_plan(json_t *to, const struct coord_chain_status *ch)
{
	char shown[REASON_CAP], groups[REASON_CAP];
	if (to == NULL || ch->predicted_s <= 0)
		return;
	json_object_set_new(to, "plan", json_pack("{s:f, s:i, s:s, s:s}", "predicted_ms_per_token", ch->predicted_s * 1e3, "rounds", (int)ch->n_rounds, "left_out",
		printable_copy(ch->left_out, strlen(ch->left_out), shown, sizeof shown), "groups", printable_copy(ch->groups, strlen(ch->groups), groups, sizeof groups)));
}

static json_t *chain_json(const struct coord_chain_status *ch)
{
	char shown[REASON_CAP];
	json_t *o = json_pack("{s:b, s:i, s:i, s:i, s:i, s:I}", "ready", ch->ready, "stages", (int)ch->n_stages, "machines", (int)ch->n_nodes,
		"active", (int)ch->n_active, "steps", (int)ch->n_steps, "plan_epoch", (json_int_t)ch->plan_epoch.v);
	if (o != NULL && !ch->ready)
		json_object_set_new(o, "waiting_for", json_string(printable_copy(ch->waiting_for, strlen(ch->waiting_for), shown, sizeof shown)));
	add_plan(o, ch);
	return o;
}

void chains_json_add(json_t *to, const struct coord_status *s)
{
	if (to != NULL && s->n_better > 0)
		json_object_set_new(to, "better_plans", json_integer((json_int_t)s->n_better));
	if (to != NULL && s->n_chains < 2)
		add_plan(to, &s->chains[0]);
	if (to == NULL || s->n_chains < 2)
		return;
	json_t *chains = json_array();
	for (int32_t i = 0; i < s->n_chains; i++)
		json_array_append_new(chains, chain_json(&s->chains[i]));
	json_object_update_new(to, json_pack("{s:I, s:i, s:o}", "moved", (json_int_t)s->n_moved, "standing_by", (int)s->n_standing_by, "chains", chains));
}
