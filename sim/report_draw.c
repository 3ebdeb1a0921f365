// Pictures of a report: a Gantt chart, and a trace for a browser's viewer.
#include "sim/report.h"

#include "base/assert.h"
#include "sim/quantity.h"

#include <string.h>

#define CHART_TOKENS 6 // of the first answer: more would be a comb
#define ROW_HEIGHT 18  // pixels
#define DEVICE_GAP 10
#define LEFT 150
#define WIDTH 1000 // of the time axis
#define TOP 46
#define RECTS_MAX 20000

static const char *const kind_names[REPORT_KINDS] = {"compute", "head", "disk", "link"};
static const char *const kind_colours[REPORT_KINDS] = {"#3b6fb6", "#7a4fa3", "#c98a2b", "#3f9a63"};

static void print_escaped(const char *s, FILE *to)
{
	for (; *s; s++) {
		switch (*s) {
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '&':
			fputs("&amp;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		default:
			fputc((unsigned char)*s < 0x20 ? '?' : *s, to);
		}
	}
}

// What the chart shows: from the first request to a few tokens of its answer.
static int64_t chart_end(const struct report *r)
{
	const struct report_request *q = &r->requests[0];
	if (r->n_requests == 0 || q->n_tokens < 2)
		return r->end_ns;
	int64_t gap_ns = (q->last_ns - q->first_ns) / (q->n_tokens - 1), end_ns = q->first_ns + CHART_TOKENS * gap_ns;
	return end_ns < r->end_ns ? end_ns : r->end_ns;
}

struct chart {
	const struct report *r;
	FILE *to;
	int64_t begin_ns, end_ns;
	int height;
};

static double x_of(const struct chart *c, int64_t t_ns)
{
	int64_t t = t_ns < c->begin_ns ? c->begin_ns : t_ns > c->end_ns ? c->end_ns : t_ns;
	return LEFT + (double)(t - c->begin_ns) / (double)(c->end_ns - c->begin_ns) * WIDTH;
}

// Computing, disk and link have a line each; the head computes on its device's line.
static int y_of(int32_t device, enum report_kind kind)
{
	int line = kind == REPORT_DISK ? 1 : kind == REPORT_LINK ? 2 : 0;
	return TOP + device * (3 * ROW_HEIGHT + DEVICE_GAP) + line * ROW_HEIGHT;
}

static void draw_axis(const struct chart *c)
{
	for (int i = 0; i <= 10; i++) {
		int64_t t = c->begin_ns + (c->end_ns - c->begin_ns) * i / 10;
		double x = x_of(c, t);
		fprintf(c->to,
			"<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>\n<text x=\"%.1f\" y=\"%d\" "
			"text-anchor=\"middle\">%s</text>\n",
			x, TOP - 4, x, c->height - 30, x, TOP - 10,
			quantity_print(QUANTITY_TIME, (double)(t - c->begin_ns) / 1e9).text);
	}
	for (int k = 0; k < REPORT_KINDS; k++)
		fprintf(c->to,
			"<rect x=\"%d\" y=\"%d\" width=\"12\" height=\"12\" fill=\"%s\"/>\n<text x=\"%d\" y=\"%d\">%s</text>\n",
			LEFT + 100 * k, c->height - 22, kind_colours[k], LEFT + 100 * k + 18, c->height - 12, kind_names[k]);
}

static void draw_device(const struct chart *c, int32_t device)
{
	fputs("<text x=\"8\" ", c->to);
	fprintf(c->to, "y=\"%d\">", y_of(device, REPORT_COMPUTE) + 13);
	print_escaped(c->r->devices[device].name, c->to);
	fputs("</text>\n", c->to);
}

static void draw_interval(const struct chart *c, const struct report_interval *i)
{
	double x = x_of(c, i->begin_ns), w = x_of(c, i->end_ns) - x;
	fprintf(c->to, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>", x,
		y_of(i->device, i->kind) + 2, w < 0.4 ? 0.4 : w, ROW_HEIGHT - 4, kind_colours[i->kind]);
	print_escaped(c->r->devices[i->device].name, c->to);
	fprintf(c->to, " %s", kind_names[i->kind]);
	if (i->peer >= 0) {
		fputs(" to ", c->to);
		print_escaped(c->r->devices[i->peer].name, c->to);
	}
	fprintf(c->to, ", %s from %s</title></rect>\n",
		quantity_print(QUANTITY_TIME, (double)(i->end_ns - i->begin_ns) / 1e9).text,
		quantity_print(QUANTITY_TIME, (double)(i->begin_ns - c->begin_ns) / 1e9).text);
}

static void draw_tokens(const struct chart *c)
{
	const struct report *r = c->r;
	for (int32_t i = 0; i < r->n_requests; i++) {
		int64_t first_ns = r->requests[i].first_ns;
		if (r->requests[i].n_tokens == 0 || first_ns < c->begin_ns || first_ns > c->end_ns)
			continue;
		double x = x_of(c, first_ns);
		fprintf(c->to,
			"<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#b03030\" stroke-dasharray=\"4 "
			"3\"><title>first token of request %d</title></line>\n",
			x, TOP - 4, x, c->height - 30, i);
	}
}

int report_svg_height(const struct report *r)
{
	return TOP + r->n_devices * (3 * ROW_HEIGHT + DEVICE_GAP) + 40;
}

void report_svg(const struct report *r, const char *title, FILE *to)
{
	struct chart c = {.r = r, .to = to, .begin_ns = r->begin_ns, .end_ns = chart_end(r)};
	c.height = report_svg_height(r);
	if (c.end_ns <= c.begin_ns)
		c.end_ns = c.begin_ns + 1;
	fprintf(to,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
		"font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"8\" y=\"18\" font-size=\"14\">",
		LEFT + WIDTH + 40, c.height);
	print_escaped(title, to);
	fputs("</text>\n", to);
	draw_axis(&c);
	for (int32_t i = 0; i < r->n_devices; i++)
		draw_device(&c, i);
	size_t n = 0;
	for (size_t i = 0; i < r->n_intervals && n < RECTS_MAX; i++) {
		if (r->intervals[i].end_ns < c.begin_ns || r->intervals[i].begin_ns > c.end_ns)
			continue;
		draw_interval(&c, &r->intervals[i]);
		n++;
	}
	draw_tokens(&c);
	fputs("</svg>\n", to);
}

// Names hold letters, digits, '.', '_' and '-' (sim/scenario): nothing that JSON must escape.
void report_chrome_trace(const struct report *r, FILE *to)
{
	fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", to);
	for (int32_t d = 0; d < r->n_devices; d++) {
		fprintf(to, "%s\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": \"%s\"}}",
			d > 0 ? "," : "", d, r->devices[d].name);
		for (int k = 0; k < REPORT_KINDS; k++)
			fprintf(to,
				",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, \"args\": {\"name\": "
				"\"%s\"}}",
				d, k, kind_names[k]);
	}
	for (size_t i = 0; i < r->n_intervals; i++) {
		const struct report_interval *v = &r->intervals[i];
		fprintf(to,
			",\n{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": \"%s%s%s\", "
			"\"args\": {\"tokens\": %d}}",
			v->device, (int)v->kind, (double)(v->begin_ns - r->begin_ns) / 1e3,
			(double)(v->end_ns - v->begin_ns) / 1e3, kind_names[v->kind], v->peer >= 0 ? " to " : "",
			v->peer >= 0 ? r->devices[v->peer].name : "", v->n_tokens);
	}
	for (int32_t i = 0; i < r->n_requests; i++)
		if (r->requests[i].n_tokens > 0)
			fprintf(to,
				",\n{\"ph\": \"i\", \"s\": \"g\", \"pid\": 0, \"tid\": 0, \"ts\": %.3f, \"name\": \"first token "
				"of request %d\"}",
				(double)(r->requests[i].first_ns - r->begin_ns) / 1e3, i);
	fputs("\n]}\n", to);
}
