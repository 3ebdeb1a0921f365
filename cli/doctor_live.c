#include "cli/doctor_live.h"

#include "cli/admin_command.h"
#include "cli/doctor_reach.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS 9 // links are measured once a second
#define PAUSE_MS 500
#define PATIENCE_MS 2000
#define LATE_SHARE 50 // of frames: one in 50 late, where 99 of 100 should not be

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s != NULL ? s : "";
}

// ---- watching

static struct doctor_watched *find(struct doctor_watch *w, const char *id)
{
	for (int32_t i = 0; i < w->n; i++)
		if (strcmp(w->at[i].id, id) == 0)
			return &w->at[i];
	if (w->n == DOCTOR_WATCHED_MAX || strlen(id) >= sizeof w->at[0].id || id[0] == '\0')
		return NULL;
	struct doctor_watched *t = &w->at[w->n++];
	*t = (struct doctor_watched){.n_own = 0};
	memcpy(t->id, id, strlen(id) + 1);
	return t;
}

static void take(const json_t *node, const char *ms_key, const char *n_key, json_int_t *last, struct doctor_rtts *out)
{
	json_int_t n = json_integer_value(json_object_get(node, n_key));
	double ms = json_number_value(json_object_get(node, ms_key));
	if (n != *last && n > 0 && ms >= 0 && out->n < (int32_t)ARRAY_LEN(out->ms))
		out->ms[out->n++] = ms;
	*last = n;
}

void doctor_watch_take(struct doctor_watch *w, const json_t *status)
{
	const json_t *nodes = json_object_get(status, "nodes");
	for (size_t i = 0; i < json_array_size(nodes); i++) {
		const json_t *node = json_array_get(nodes, i);
		struct doctor_watched *t = find(w, text(node, "id"));
		if (t == NULL || json_is_true(json_object_get(node, "local")))
			continue;
		take(node, "rtt_ms", "rtt_n", &t->n_own, &t->own);
		take(node, "next_rtt_ms", "next_rtt_n", &t->n_next, &t->next);
	}
}

// ---- judging

static void check_state(const json_t *node, struct doctor_report *r)
{
	const char *state = text(node, "state"), *name = text(node, "name"), *detail = text(node, "detail");
	if (strcmp(state, "ready") == 0 || strcmp(state, "standby") == 0 || strcmp(state, "connected") == 0 || strcmp(state, "fetching") == 0)
		doctor_add(r, DOCTOR_OK, "node", NULL, "%s: %s", name, state);
	else if (strcmp(state, "absent") == 0)
		doctor_add(r, DOCTOR_WARNING, "node", "start hearth join on it; if it runs, hearth doctor on it says what it cannot reach", "%s: is not connected%s%s", name,
			detail[0] ? ": " : "", detail);
	else
		doctor_add(r, DOCTOR_WARNING, "node", "its own log says more", "%s: %s%s%s", name, state, detail[0] ? ": " : "", detail);
}

static void check_relay(const json_t *node, struct doctor_report *r)
{
	const char *way = text(node, "next_link"), *name = text(node, "name");
	if (strcmp(way, "relay") == 0)
		doctor_add(r, DOCTOR_WARNING, "node to node",
			"open TCP port 7434 in the firewalls of both, and switch off the access point's client isolation (guest network): each could reach the other, neither does",
			"%s and the next machine reach each other in neither direction: the coordinator passes on what they send, which costs a hop for every token", name);
	else if (strcmp(way, "direct") == 0)
		doctor_add(r, DOCTOR_OK, "node to node", NULL, "%s sends straight to the next machine", name);
}

static void check_late(const json_t *node, struct doctor_report *r)
{
	json_int_t late = json_integer_value(json_object_get(node, "late")), heard = json_integer_value(json_object_get(node, "heard"));
	if (heard > 1000 && late > heard / LATE_SHARE)
		doctor_add(r, DOCTOR_WARNING, "link", "on Wi-Fi switch power save off (sudo iw dev wlan0 set power_save off), or use a cable", "%s: %lld of %lld frames came late for its link",
			text(node, "name"), (long long)late, (long long)heard);
}

static void check_links(const json_t *node, struct doctor_watch *w, struct doctor_report *r)
{
	char name[NAME_CAP + 32];
	struct doctor_watched *t = find(w, text(node, "id"));
	if (t == NULL)
		return;
	snprintf(name, sizeof name, "%s and the coordinator", text(node, "name"));
	doctor_link(name, &t->own, r);
	snprintf(name, sizeof name, "%s and the next machine", text(node, "name"));
	doctor_link(name, &t->next, r);
	check_late(node, r);
}

void doctor_live_nodes(const json_t *status, struct doctor_watch *w, struct doctor_report *r)
{
	const json_t *nodes = json_object_get(status, "nodes");
	if (json_is_true(json_object_get(status, "ready")))
		doctor_add(r, DOCTOR_OK, "cluster", NULL, "ready: %s", text(status, "model"));
	else
		doctor_add(r, DOCTOR_PROBLEM, "cluster", "hearth status shows who is missing", "cannot answer: %s", text(status, "waiting_for"));
	for (size_t i = 0; i < json_array_size(nodes); i++) {
		const json_t *node = json_array_get(nodes, i);
		check_state(node, r);
		check_relay(node, r);
		if (!json_is_true(json_object_get(node, "local")))
			check_links(node, w, r);
	}
}

bool doctor_live_address(const json_t *node, char out[ADDR_CAP])
{
	const char *host = text(node, "address");
	json_int_t port = json_integer_value(json_object_get(node, "port"));
	if (json_is_true(json_object_get(node, "local")) || host[0] == '\0' || strlen(host) > ADDR_CAP - 10 || port < 1 || port > UINT16_MAX)
		return false;
	bool is_bare_ipv6 = strchr(host, ':') != NULL && host[0] != '[';
	snprintf(out, ADDR_CAP, is_bare_ipv6 ? "[%.*s]:%d" : "%.*s:%d", ADDR_CAP - 10, host, (int)port);
	return true;
}

static void check_reach(const json_t *status, struct doctor_report *r)
{
	const json_t *nodes = json_object_get(status, "nodes");
	for (size_t i = 0; i < json_array_size(nodes); i++) {
		const json_t *node = json_array_get(nodes, i);
		char addr[ADDR_CAP];
		struct reach_result t;
		if (strcmp(text(node, "state"), "absent") == 0 || !doctor_live_address(node, addr))
			continue;
		reach_try("", addr, PATIENCE_MS, &t);
		reach_explain(text(node, "name"), addr, &t, true, r);
	}
}

enum err doctor_live(const struct command_ctx *ctx, struct doctor_report *r, struct errmsg *em)
{
	json_t *status = NULL;
	struct doctor_watch *w = calloc(1, sizeof *w);
	enum err e = w == NULL ? errmsg_fail(em, ERR_NOMEM, "out of memory") : OK;
	for (int i = 0; e == OK && i < LOOKS; i++) {
		json_decref(status);
		status = NULL;
		e = admin_ask(ctx, json_pack("{s:s}", "cmd", "status"), &status, em);
		if (e == OK)
			doctor_watch_take(w, status);
		if (e == OK && i + 1 < LOOKS)
			poll(NULL, 0, PAUSE_MS);
	}
	if (e == OK) {
		doctor_live_nodes(status, w, r);
		check_reach(status, r);
	}
	json_decref(status);
	free(w);
	return e;
}
