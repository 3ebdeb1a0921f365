// Any bytes as a trace of any format: entries in order and within their limits that can be looked up and written, or an error with words.
//
// Input: a byte that picks the format, then the text.
#include "sim/network.h"
#include "sim/trace_set.h"

#include "tests/support/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES_CHECKED ((64u << 20) / sizeof(struct trace_sample)) // a gap of a few thousand is enough
#define SAMPLES_SHOWN 512 // a gap in icmp_seq makes thousands, which take time to look at one by one

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_samples(const struct trace *t)
{
	char line[TRACE_CSV_LINE_CAP];
	size_t n_lost = 0;
	for (size_t i = 0; i < t->n; i++) {
		const struct trace_sample *s = &t->samples[i];
		require(s->rtt_ns >= -1 && s->rtt_ns <= TRACE_DELAY_MAX_NS);
		require(s->t_ns >= 0 && (i == 0 ? s->t_ns == 0 : s->t_ns >= t->samples[i - 1].t_ns));
		n_lost += s->rtt_ns < 0;
	}
	require(n_lost == t->n_lost && n_lost < t->n);
	for (size_t i = 0; i < t->n && i < SAMPLES_SHOWN; i++) {
		int64_t at_ns = t->samples[i].t_ns;
		require(trace_sample_at(t, at_ns)->t_ns == at_ns % t->period_ns);
		require(trace_csv_line(&t->samples[i], true, line) < TRACE_CSV_LINE_CAP);
	}
}

static void check_opportunities(const struct trace *t)
{
	for (uint64_t k = 1; k < 3 * t->n && k < SAMPLES_SHOWN; k++) {
		int64_t at_ns = trace_opportunity_ns(t, k);
		require(at_ns >= trace_opportunity_ns(t, k - 1));
		uint64_t first = trace_opportunity_from(t, at_ns);
		require(first <= k && trace_opportunity_ns(t, first) == at_ns);
	}
}

// send_some lets messages travel over what was read: arrivals never before they were sent, never out of order.
static void send_some(const struct trace *t)
{
	static const struct network_limits limits = {.machines_max = 2, .links_max = 1, .flows_max = 1};
	struct network_link_params p = {.base_ns = 0};
	struct network net;
	struct arena a;
	struct errmsg em;
	int32_t flow;
	int64_t last_ns = 0, at_ns = 0;
	if (t->kind == TRACE_DELIVERIES)
		p.deliveries = t;
	else
		p.delay = (struct network_delay){.kind = t->kind == TRACE_TABLE ? NETWORK_DELAY_TABLE : NETWORK_DELAY_TRACE, .trace = t, .spread_ns = 1000000};
	require(arena_open(network_arena_bytes(&limits), &a) == OK && network_init(&net, &a, &limits, 1) == OK);
	require(network_link(&net, 0, 1, &p, &em) == OK && network_open_flow(&net, 0, 1, &flow) == OK);
	for (int64_t i = 0; i < 64; i++) {
		if (network_send(&net, flow, NETWORK_FORWARD, (size_t)i * 1000, i * 300000000, &at_ns) == NETWORK_ARRIVES) {
			require(at_ns >= i * 300000000 && at_ns >= last_ns);
			last_ns = at_ns;
		}
	}
	arena_close(&a);
}

static void check_trace(const struct trace *t)
{
	struct trace_summary s;
	int64_t *scratch = t->kind == TRACE_DELAY ? malloc(t->n * sizeof *scratch) : NULL;
	require(t->n >= 1 && (t->kind == TRACE_TABLE || t->period_ns > 0));
	if (t->kind == TRACE_DELAY)
		check_samples(t);
	else if (t->kind == TRACE_DELIVERIES)
		check_opportunities(t);
	if (t->kind != TRACE_DELAY || scratch != NULL)
		trace_summarise(t, scratch, &s);
	require(scratch == NULL || (s.min_ns <= s.p50_ns && s.p50_ns <= s.p999_ns && s.p999_ns <= s.max_ns));
	free(scratch);
	send_some(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0 || size > 16384)
		return 0;
	const char *text = (const char *)data + 1;
	enum trace_format f = (enum trace_format)(data[0] % (TRACE_NETEM + 1));
	struct errmsg em = {""};
	struct arena a;
	struct trace t;
	enum err e = trace_open("x", text, size - 1, f, &a, &t, &em);
	require(e == OK || (em.text[0] != '\0' && (e == ERR_FORMAT || e == ERR_LIMIT)));
	if (e != OK)
		return 0;
	if (t.n <= SAMPLES_CHECKED)
		check_trace(&t);
	arena_close(&a);
	return 0;
}
