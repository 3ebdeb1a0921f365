#include "sim/report.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum err report_open(int32_t n_devices, int32_t requests_cap, size_t intervals_cap, size_t gaps_cap, struct report *out)
{
	ASSERT(n_devices >= 1);
	*out = (struct report){
		.n_devices = n_devices, .requests_cap = requests_cap, .intervals_cap = intervals_cap, .gaps_cap = gaps_cap};
	out->devices = calloc((size_t)n_devices, sizeof *out->devices);
	out->intervals = calloc(intervals_cap + 1, sizeof *out->intervals);
	out->requests = calloc((size_t)requests_cap + 1, sizeof *out->requests);
	out->gaps = calloc(gaps_cap + 1, sizeof *out->gaps);
	if (out->devices && out->intervals && out->requests && out->gaps)
		return OK;
	report_close(out);
	return ERR_NOMEM;
}

void report_close(struct report *r)
{
	free(r->devices);
	free(r->intervals);
	free(r->requests);
	free(r->gaps);
	memset(r, 0, sizeof *r);
}

// extend joins reads that follow each other without a gap: they are thousands.
static bool extend(struct report *r, const struct report_interval *i)
{
	for (size_t k = r->n_intervals; i->kind == REPORT_DISK && k > 0 && r->n_intervals - k < 16; k--) {
		struct report_interval *last = &r->intervals[k - 1];
		if (last->kind != REPORT_DISK || last->device != i->device)
			continue;
		if (last->end_ns != i->begin_ns)
			return false;
		last->end_ns = i->end_ns;
		return true;
	}
	return false;
}

void report_add(struct report *r, const struct report_interval *i)
{
	ASSERT(i->device >= 0 && i->device < r->n_devices);
	ASSERT(i->end_ns >= i->begin_ns);
	struct report_device *d = &r->devices[i->device];
	int64_t begin_ns = i->begin_ns > d->until_ns[i->kind] ? i->begin_ns : d->until_ns[i->kind];
	if (i->end_ns > begin_ns)
		d->sum_ns[i->kind] += i->end_ns - begin_ns;
	if (i->end_ns > d->until_ns[i->kind])
		d->until_ns[i->kind] = i->end_ns;
	if (extend(r, i))
		return;
	if (r->n_intervals == r->intervals_cap)
		r->n_dropped++;
	else
		r->intervals[r->n_intervals++] = *i;
}

int32_t report_submit(struct report *r, int64_t at_ns, int32_t n_prompt)
{
	ASSERT(r->n_requests < r->requests_cap);
	if (r->n_requests == 0 || at_ns < r->begin_ns)
		r->begin_ns = at_ns;
	r->requests[r->n_requests] = (struct report_request){.submit_ns = at_ns, .n_prompt = n_prompt};
	return r->n_requests++;
}

void report_token(struct report *r, int32_t request, int64_t at_ns)
{
	ASSERT(request >= 0 && request < r->n_requests);
	struct report_request *q = &r->requests[request];
	if (q->n_tokens++ == 0)
		q->first_ns = at_ns;
	else if (r->n_gaps < r->gaps_cap)
		r->gaps[r->n_gaps++] = (double)(at_ns - q->last_ns) / 1e9;
	q->last_ns = at_ns;
	if (at_ns > r->end_ns)
		r->end_ns = at_ns;
}

void report_fail(struct report *r, int32_t request)
{
	ASSERT(request >= 0 && request < r->n_requests);
	r->requests[request].failed = true;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

// Nearest rank.
static double rank(const double *sorted, size_t n, int32_t percent)
{
	size_t i = (n * (size_t)percent + 99) / 100;
	return sorted[i > 0 ? i - 1 : 0];
}

struct report_quantiles report_quantiles_of(double *v, size_t n)
{
	double sum = 0;
	if (n == 0)
		return (struct report_quantiles){.p50 = NAN, .p90 = NAN, .p99 = NAN, .mean = NAN};
	qsort(v, n, sizeof *v, compare);
	for (size_t i = 0; i < n; i++)
		sum += v[i];
	return (struct report_quantiles){
		.n = n, .p50 = rank(v, n, 50), .p90 = rank(v, n, 90), .p99 = rank(v, n, 99), .mean = sum / (double)n};
}

enum err report_summarise(struct report *r, struct report_summary *out)
{
	double *v = calloc(2 * (size_t)r->n_requests + 1, sizeof *v);
	if (v == NULL)
		return ERR_NOMEM;
	double *tpot = v + r->n_requests;
	size_t n_ttft = 0, n_tpot = 0;
	*out = (struct report_summary){.span_s = (double)(r->end_ns - r->begin_ns) / 1e9};
	for (int32_t i = 0; i < r->n_requests; i++) {
		const struct report_request *q = &r->requests[i];
		out->n_tokens += q->n_tokens;
		out->n_failed += q->failed;
		if (q->n_tokens > 0)
			v[n_ttft++] = (double)(q->first_ns - q->submit_ns) / 1e9;
		if (q->n_tokens > 1)
			tpot[n_tpot++] = (double)(q->last_ns - q->first_ns) / 1e9 / (q->n_tokens - 1);
	}
	out->ttft = report_quantiles_of(v, n_ttft);
	out->tpot = report_quantiles_of(tpot, n_tpot);
	out->gap = report_quantiles_of(r->gaps, r->n_gaps);
	out->tokens_per_s = out->span_s > 0 ? (double)out->n_tokens / out->span_s : NAN;
	free(v);
	return OK;
}
