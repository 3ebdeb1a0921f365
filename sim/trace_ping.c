// What `ping -D` of iputils prints: "[1700000000.123456] 64 bytes from 10.0.0.1: icmp_seq=7 ttl=64 time=2.34 ms".
// With -O lines like "[...] no answer yet for icmp_seq=8" stand between.
#include "sim/trace_parser.h"

#include "base/printable.h"

#include <string.h>

#define T_MAX_NS INT64_C(4000000000000000000)
#define SEQ_MAX 65535 // 16 bits in the packet; it wraps
#define SHOWN_CAP 64

struct ping {
	struct trace_parser *p;
	uint16_t last_seq; // of the newest sample
	size_t n_replies; // to packets that have a sample
};

// number_after reads the decimal that follows `word`, up to a blank or the end.
static const char *number_after(struct trace_text line, const char *word, int scale, int64_t max, int64_t *out)
{
	const char *at = trace_find(line, word);
	if (at == NULL)
		return "is missing";
	at += strlen(word);
	const char *end = at;
	while (end < line.end && *end != ' ' && *end != '\t')
		end++;
	return trace_decimal((struct trace_text){at, end}, scale, max, out);
}

static enum err bad_part(const struct ping *g, struct trace_text line, const char *what, const char *wrong)
{
	char shown[SHOWN_CAP];
	return trace_bad(g->p, ERR_FORMAT, "%s %s: %s", what, wrong, printable_copy(line.at, (size_t)(line.end - line.at), shown, sizeof shown));
}

// on_old takes what belongs to a sample that exists: a late reply fills its gap, anything else repeats what is known.
static void on_old(struct ping *g, size_t behind, int64_t t_ns, int64_t rtt_ns)
{
	struct trace_parser *p = g->p;
	if (rtt_ns < 0)
		return;
	g->n_replies += behind < p->n;
	if (p->samples == NULL)
		return;
	if (behind < p->n && p->samples[p->n - 1 - behind].rtt_ns < 0)
		p->samples[p->n - 1 - behind] = (struct trace_sample){t_ns, rtt_ns, 0};
	else
		p->n_duplicates++;
}

// on_packet takes what is said about packet `seq`: its reply, or (rtt_ns -1) that there is none.
static enum err on_packet(struct ping *g, uint16_t seq, int64_t t_ns, int64_t rtt_ns)
{
	struct trace_parser *p = g->p;
	uint16_t ahead = (uint16_t)(seq - g->last_seq);
	if (p->n > 0 && (ahead == 0 || ahead > SEQ_MAX / 2)) {
		on_old(g, (uint16_t)(g->last_seq - seq), t_ns, rtt_ns);
		return OK;
	}
	enum err e = OK;
	g->n_replies += rtt_ns >= 0;
	for (uint16_t i = 1; p->n > 0 && i < ahead && e == OK; i++)
		e = trace_add_sample(p, t_ns, -1, 0);
	g->last_seq = seq;
	return e == OK ? trace_add_sample(p, t_ns, rtt_ns, 0) : e;
}

static enum err read_stamped(struct ping *g, struct trace_text line)
{
	int64_t received_ns, seq, rtt_ns;
	struct trace_text rest = {line.at + 1, line.end}, stamp;
	(void)trace_split(&rest, ']', &stamp);
	const char *wrong = rest.at == NULL ? "has no end" : trace_decimal(stamp, 9, T_MAX_NS, &received_ns);
	if (wrong != NULL)
		return bad_part(g, line, "the time stamp", wrong);
	if (trace_find(rest, "icmp_seq=") == NULL)
		return OK;
	wrong = number_after(rest, "icmp_seq=", 0, SEQ_MAX, &seq);
	if (wrong != NULL)
		return bad_part(g, line, "icmp_seq", wrong);
	if (trace_find(rest, " bytes from ") == NULL)
		return on_packet(g, (uint16_t)seq, received_ns, -1);
	wrong = number_after(rest, "time=", 6, TRACE_DELAY_MAX_NS, &rtt_ns);
	if (wrong != NULL)
		return bad_part(g, line, "time", wrong);
	return on_packet(g, (uint16_t)seq, received_ns - rtt_ns, rtt_ns);
}

// spread_lost puts lost packets between two answered ones at equal distances: only the answered have a time of their own.
static void spread_lost(struct trace_sample *s, size_t n)
{
	size_t known = n; // the answered one before, n: none yet
	for (size_t i = 0; i < n; i++) {
		if (s[i].rtt_ns < 0)
			continue;
		for (size_t k = known + 1; known < n && k < i; k++)
			s[k].t_ns = s[known].t_ns + (s[i].t_ns - s[known].t_ns) / (int64_t)(i - known) * (int64_t)(k - known);
		known = i;
	}
	// The clock may have been set back.
	for (size_t i = 1; i < n; i++)
		s[i].t_ns = s[i].t_ns > s[i - 1].t_ns ? s[i].t_ns : s[i - 1].t_ns;
}

enum err trace_read_ping(struct trace_parser *p)
{
	struct ping g = {.p = p};
	struct trace_text line;
	enum err e = OK;
	while (e == OK && trace_next_line(p, &line)) {
		if (!trace_is_empty(line) && *line.at == '[')
			e = read_stamped(&g, line);
		else if (trace_find(line, "icmp_seq=") != NULL)
			e = trace_bad(p, ERR_FORMAT, "no [time stamp] (ping writes them with -D)");
	}
	if (e == OK && g.n_replies == 0)
		return trace_bad(p, ERR_FORMAT, "no reply in this ping output");
	if (e == OK && p->samples != NULL)
		spread_lost(p->samples, p->n);
	return e;
}
