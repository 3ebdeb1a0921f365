// Any bytes as a scenario: a description that the cost model accepts, or an error with its place. What is accepted is also run, when it is
// small: no assertion may fall.
#include "sim/prediction.h"

#include "tests/support/fuzz.h"

#include <string.h>

#define TOKENS_MAX 64
#define LAYERS_RUN_MAX 128

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// A trace is whatever its name says: "1 2 3" are milliseconds of deliveries.
static enum err load(void *ctx, const char *path, const char **text, size_t *len, struct errmsg *em)
{
	(void)ctx;
	(void)em;
	*text = path;
	*len = strlen(path);
	return OK;
}

static bool is_small(const struct scenario *s)
{
	int64_t tokens = 0;
	for (int32_t i = 0; i < s->n_requests; i++)
		tokens += s->requests[i].n_prompt + s->requests[i].n_predict;
	return tokens <= TOKENS_MAX && s->shape.n_layers <= LAYERS_RUN_MAX && s->n_devices <= 4 && s->duration_s <= 7200;
}

static void run(const struct scenario *s)
{
	struct errmsg em = {""};
	struct prediction p;
	enum err e = prediction_run(s, &p, &em);
	require(e == OK || em.text[0] != '\0');
	if (e == OK)
		prediction_close(&p);
}

// The same bytes as the machines that a planner is given: whoever reaches whom, figures are ones that machines have.
static void open_cluster(const char *text, size_t len, const struct trace_loader *loader)
{
	struct scenario s;
	struct errmsg em = {""};
	enum err e = scenario_open_cluster("x", text, len, loader, &s, &em);
	if (e != OK) {
		require(em.text[0] == 'x' && (e == ERR_FORMAT || e == ERR_LIMIT || e == ERR_RANGE));
		return;
	}
	require(cluster_check(&s.cluster, NULL) == OK);
	require(s.plan.head >= 0 && s.plan.head < s.n_devices);
	for (int32_t i = 0; i < s.n_devices; i++) {
		double seconds;
		if (cluster_hop(&s.cluster, s.plan.head, i, 1000, &seconds))
			require(seconds >= 0 && seconds < 1e9);
	}
	scenario_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scenario s;
	struct errmsg em = {""};
	const struct trace_loader loader = {.load = load};
	if (size > 8192)
		return 0;
	open_cluster(size ? (const char *)data : "", size, &loader);
	enum err e = scenario_open("x", size ? (const char *)data : "", size, &loader, &s, &em);
	if (e != OK) {
		require(em.text[0] == 'x' && (e == ERR_FORMAT || e == ERR_LIMIT || e == ERR_RANGE));
		return 0;
	}
	struct cost_case c = scenario_case(&s);
	require(s.group.exchange != EXCHANGE_NONE || cost_check(&c, NULL) == OK);
	require(s.n_devices >= 1 && s.n_requests >= 1);
	if (is_small(&s))
		run(&s);
	scenario_close(&s);
	return 0;
}
