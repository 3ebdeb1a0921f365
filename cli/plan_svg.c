// The picture of `hearth plan --svg`: the ring with who holds what, and below it a few tokens as a Gantt chart.
#include "cli/plan_report.h"

#include "base/fmath.h"
#include "sim/plan_gantt.h"
#include "sim/quantity.h"

#include <inttypes.h>

#define TOKENS 5
#define WIDTH 1190 // of the chart below
#define RADIUS 150.0
#define MARGIN 110 // above and below the ring: labels
#define NODE 9
#define TURN 6.283185307179586

struct place {
	double x, y;
};

// Places go round from the top, clockwise.
static struct place place_of(int32_t i, int32_t n)
{
	double sin, cos;
	fmath_sincos(TURN * i / n, &sin, &cos);
	return (struct place){WIDTH / 2.0 + RADIUS * sin, MARGIN + RADIUS - RADIUS * cos};
}

// A way up has its label below the line: of two machines both ways are one line.
static void draw_hop(FILE *to, const struct plan_report *r, int32_t from, int32_t next, struct place a, struct place b)
{
	struct cost_case c = plan_case(r);
	double s = cost_hop_s(&c, from, next, 1);
	fprintf(to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#3f9a63\" stroke-width=\"2\"/>\n<text x=\"%.1f\" y=\"%.1f\" "
		"text-anchor=\"middle\" fill=\"#3f9a63\">%s</text>\n",
		a.x, a.y, b.x, b.y, (a.x + b.x) / 2, (a.y + b.y) / 2 + (b.y < a.y ? 13 : -4), quantity_print(QUANTITY_TIME, s).text);
}

// draw_group says who else is in a stage, and what their exchanges take.
static void draw_group(FILE *to, const struct plan_report *r, int32_t stage, struct place p)
{
	struct plan_group_figures g;
	bool is_left = p.x < WIDTH / 2.0 - 1;
	double x = is_left ? p.x - 16 : p.x + 16;
	if (!plan_group_fill(r, stage, &g))
		return;
	fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"none\" stroke=\"#3b6fb6\"/>\n<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">together:", p.x, p.y,
		NODE + 4, x, p.y + 24, is_left ? "end" : "start");
	double sent = 0;
	for (int32_t i = 0; i < g.group->n_members; i++) {
		fprintf(to, "%s %s %.0f %%", i > 0 ? "," : "", r->cluster->devices[g.members[i].device].name, 100 * g.members[i].share);
		sent += g.members[i].sent_bytes;
	}
	fprintf(to, "</text>\n<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"#3f9a63\">%s: %" PRId32 " exchanges, %s, %s per token</text>\n", x, p.y + 38,
		is_left ? "end" : "start", plan_group_form(g.group, r).text, g.traffic.n_exchanges, quantity_print(QUANTITY_BYTES, sent).text,
		quantity_print(QUANTITY_TIME, g.traffic.seconds).text);
}

static void draw_machine(FILE *to, const struct plan_report *r, int32_t device, const struct solve_stage_account *s, struct place p)
{
	bool is_left = p.x < WIDTH / 2.0 - 1;
	double x = is_left ? p.x - 16 : p.x + 16;
	fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s%s</text>\n", p.x, p.y, NODE,
		device == r->result.plan.head ? "#7a4fa3" : "#3b6fb6", x, p.y - 4, is_left ? "end" : "start", r->cluster->devices[device].name,
		device == r->result.plan.head ? ", coordinator" : "");
	if (s == NULL)
		return;
	fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%" PRId32 " layers, %s kept", x, p.y + 10, is_left ? "end" : "start", s->n_layers,
		quantity_print(QUANTITY_BYTES, (double)(s->pinned_bytes + s->accel_bytes)).text);
	if (s->streamed_bytes > 0)
		fprintf(to, ", %s read per token", quantity_print(QUANTITY_BYTES, (double)s->streamed_bytes).text);
	fprintf(to, "</text>\n");
}

// The head's device has a place of its own when it holds no layers.
static void draw_ring(FILE *to, const struct plan_report *r)
{
	const struct cost_plan *p = &r->result.plan;
	int32_t first = p->stages[0].device, last = p->stages[p->n_stages - 1].device;
	int32_t extra = first != p->head, n = p->n_stages + extra;
	for (int32_t i = 0; i + 1 < p->n_stages; i++)
		draw_hop(to, r, p->stages[i].device, p->stages[i + 1].device, place_of(i + extra, n), place_of(i + extra + 1, n));
	if (extra)
		draw_hop(to, r, p->head, first, place_of(0, n), place_of(1, n));
	if (n > 1)
		draw_hop(to, r, last, p->head, place_of(n - 1, n), place_of(0, n));
	if (extra)
		draw_machine(to, r, p->head, NULL, place_of(0, n));
	for (int32_t i = 0; i < p->n_stages; i++) {
		draw_machine(to, r, p->stages[i].device, &r->account.stages[i], place_of(i + extra, n));
		draw_group(to, r, i, place_of(i + extra, n));
	}
	fprintf(to, "<text x=\"%.1f\" y=\"24\" text-anchor=\"middle\" font-size=\"14\">%" PRId32 " round%s, %s per token</text>\n", WIDTH / 2.0, p->n_rounds,
		p->n_rounds > 1 ? "s" : "", quantity_print(QUANTITY_TIME, r->result.verdict.token_s).text);
}

enum err plan_print_svg(FILE *to, const struct plan_report *r, struct errmsg *em)
{
	struct cost_case c = plan_case(r);
	struct report chart;
	enum err e = plan_gantt_open(&c, TOKENS, &chart, em);
	if (e != OK)
		return e;
	char title[NAME_CAP + 40];
	int ring_height = 2 * MARGIN + 2 * (int)RADIUS;
	snprintf(title, sizeof title, "%s: a few tokens of an answer under way", r->model->name);
	fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		WIDTH, ring_height + report_svg_height(&chart));
	draw_ring(to, r);
	fprintf(to, "<g transform=\"translate(0,%d)\">\n", ring_height);
	report_svg(&chart, title, to);
	fprintf(to, "</g>\n</svg>\n");
	report_close(&chart);
	return OK;
}
