#include "cli/lan_search.h"

#include <string.h>

struct search {
	const struct lan_search_params *p;
	struct discovery *d;
	struct found_list list;
};

static bool is_over(void *ctx)
{
	struct search *s = ctx;
	enum discovery_state state = discovery_get_state(s->d, NULL);
	if (state == DISCOVERY_OFF || state == DISCOVERY_SETTLED || s->p->is_interrupted(s->p->ctx))
		return true;
	if (s->p->pinned == NULL)
		return false;
	discovery_get_list(s->d, &s->list);
	return s->list.n > 0;
}

enum err lan_search(const struct lan_search_params *p, struct lan_search_result *out, struct errmsg *em)
{
	struct search s = {.p = p};
	struct discovery_params d = {.loop = p->loop, .backend = p->backend, .want = {.browse = true}};
	*out = (struct lan_search_result){.state = DISCOVERY_OFF};
	if (p->pinned != NULL) {
		d.want.is_pinned = true;
		d.want.pinned = *p->pinned;
	}
	enum err e = discovery_open(&d, &s.d, em);
	if (e != OK)
		return e;
	loop_run_until(p->loop, is_over, &s, loop_clock_ns() + p->patience_ns);
	out->state = discovery_get_state(s.d, out->why);
	discovery_get_list(s.d, &out->list);
	discovery_close(s.d);
	if (out->state == DISCOVERY_STARTING) {
		out->state = DISCOVERY_OFF;
		text_copy(out->why, sizeof out->why, "avahi-daemon does not answer");
	}
	return p->is_interrupted(p->ctx) ? errmsg_fail(em, ERR_CANCELLED, "interrupted") : OK;
}

void lan_search_print(FILE *to, const struct lan_search_result *r)
{
	struct found_coordinator all[FOUND_SHOWN_MAX];
	char fingerprint[FINGERPRINT_TEXT_CAP];
	uint32_t n = found_list_coordinators(&r->list, all);
	if (r->state == DISCOVERY_OFF) {
		fprintf(to, "No look at this network: %s. The invite's addresses are used.\n", r->why);
		return;
	}
	fprintf(to, n > 0 ? "Coordinators that announce themselves on this network:\n" : "No coordinator announces itself on this network.\n");
	for (uint32_t i = 0; i < n; i++) {
		fingerprint_text(&all[i].id, fingerprint);
		fprintf(to, "  %-20s %s  %s\n", all[i].txt.name[0] ? all[i].txt.name : "(no name)", fingerprint, all[i].addrs[0]);
	}
	if (r->list.n_refused > 0)
		fprintf(to, "  (and %llu announcements that are not shown)\n", (unsigned long long)r->list.n_refused);
}

void lan_search_addresses(const struct lan_search_result *r, const struct node_id *id, struct address_list *out)
{
	*out = (struct address_list){0};
	out->n = found_list_addresses(&r->list, id, out->at, LAN_SEARCH_ADDRS);
}
