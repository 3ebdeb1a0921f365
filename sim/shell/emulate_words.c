#include "sim/shell/emulate_words.h"

#include "base/printable.h"
#include "base/suggest.h"

#include <arpa/inet.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1e9
#define WORDS_MAX 5
#define WORD_CAP 80
#define TEXT_CAP (64 * 1024) // of a status for people: 64 devices and the pairs with traffic

struct command {
	struct emulate *e;
	const struct topology *t;
	int n;
	char words[WORDS_MAX][WORD_CAP];
	struct errmsg em;
	json_t *out;
	char text[TEXT_CAP];
	size_t text_len;
};

static void add_text(struct command *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void add_text(struct command *c, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(c->text + c->text_len, TEXT_CAP - c->text_len, fmt, ap);
	va_end(ap);
	c->text_len += n > 0 && (size_t)n < TEXT_CAP - c->text_len ? (size_t)n : 0;
}

// ---- Reading

static enum err split(struct command *c, const char *line, size_t len)
{
	if (len > EMULATE_LINE_MAX)
		return errmsg_fail(&c->em, ERR_LIMIT, "a command of %zu bytes, want at most %d", len, EMULATE_LINE_MAX);
	char copy[EMULATE_LINE_MAX + 1], shown[EMULATE_LINE_MAX + 1], *save = NULL;
	memcpy(copy, line, len);
	copy[len] = '\0';
	printable_copy(copy, len, shown, sizeof shown); // a NUL inside becomes '?', as no word is
	for (char *w = strtok_r(shown, " \t\r", &save); w; w = strtok_r(NULL, " \t\r", &save)) {
		if (c->n == WORDS_MAX)
			return errmsg_fail(&c->em, ERR_USAGE, "too many words");
		if (strlen(w) >= WORD_CAP) // cutting it could cut a character
			return errmsg_fail(&c->em, ERR_USAGE, "a word of %zu bytes", strlen(w));
		memcpy(c->words[c->n++], w, strlen(w) + 1);
	}
	return c->n > 0 ? OK : errmsg_fail(&c->em, ERR_USAGE, "an empty command (help lists what there is)");
}

static enum err find_device(struct command *c, const char *name, int32_t *out)
{
	struct suggest s = suggest_init(name);
	*out = topology_find(c->t, name);
	if (*out >= 0)
		return OK;
	for (int32_t i = 0; i < c->t->n_devices; i++)
		suggest_offer(&s, c->t->devices[i].name);
	return errmsg_fail(&c->em, ERR_NOT_FOUND, s.best ? "there is no device %s, did you mean %s?" : "there is no device %s", name, s.best);
}

// read_pair reads words 1 and 2; "*" as the second is EMULATE_ALL.
static enum err read_pair(struct command *c, int32_t *a, int32_t *b)
{
	enum err e = find_device(c, c->words[1], a);
	if (e != OK)
		return e;
	if (strcmp(c->words[2], "*") == 0) {
		*b = EMULATE_ALL;
		return OK;
	}
	e = find_device(c, c->words[2], b);
	if (e == OK && *a == *b)
		e = errmsg_fail(&c->em, ERR_USAGE, "%s and %s are one device", c->words[1], c->words[2]);
	return e;
}

static enum err read_number(struct command *c, const char *word, const char *what, double min, double max, double *out)
{
	char *end;
	*out = word[strspn(word, "0123456789.eE+-")] == '\0' && word[0] ? strtod(word, &end) : -1;
	if (*out >= min && *out <= max && *end == '\0')
		return OK;
	return errmsg_fail(&c->em, ERR_RANGE, "%s: got %s, want a number from %g to %g", what, word, min, max);
}

static const char *pair_name(const struct command *c, char out[2 * NAME_CAP + 8])
{
	snprintf(out, 2 * NAME_CAP + 8, "%.63s %.63s", c->words[1], strcmp(c->words[2], "*") == 0 ? "(everything)" : c->words[2]);
	return out;
}

static void set_touched(struct command *c, int32_t n)
{
	json_object_set_new(c->out, "connections", json_integer(n));
}

// ---- The commands

static enum err do_cut(struct command *c)
{
	static const char *const kinds[] = {"reset", "blackhole", "oneway"};
	char name[2 * NAME_CAP + 8];
	int32_t a, b;
	size_t kind = 0;
	if (c->n < 3 || c->n > 4)
		return errmsg_fail(&c->em, ERR_USAGE, "want: cut A B [reset|blackhole|oneway]");
	enum err e = read_pair(c, &a, &b);
	if (e != OK)
		return e;
	while (c->n == 4 && kind < ARRAY_LEN(kinds) && strcmp(c->words[3], kinds[kind]) != 0)
		kind++;
	if (kind == ARRAY_LEN(kinds))
		return errmsg_fail(&c->em, ERR_USAGE, "%s is no kind of cut, want reset, blackhole or oneway", c->words[3]);
	int32_t n = emulate_cut(c->e, a, b, (enum network_cut)kind);
	add_text(c, "cut %s: %s, %d connections", pair_name(c, name), kinds[kind], n);
	set_touched(c, n);
	return OK;
}

static enum err heal_all(struct command *c)
{
	for (int32_t i = 0; i < c->t->n_devices; i++) {
		emulate_heal(c->e, i, EMULATE_ALL);
		for (int32_t k = i + 1; k < c->t->n_devices; k++)
			emulate_heal(c->e, i, k);
	}
	add_text(c, "healed everything");
	return OK;
}

static enum err do_heal(struct command *c)
{
	char name[2 * NAME_CAP + 8];
	int32_t a, b;
	if (c->n == 1)
		return heal_all(c);
	if (c->n != 3)
		return errmsg_fail(&c->em, ERR_USAGE, "want: heal A B, or heal alone");
	enum err e = read_pair(c, &a, &b);
	if (e != OK)
		return e;
	int32_t n = emulate_heal(c->e, a, b);
	add_text(c, "healed %s: %d connections", pair_name(c, name), n);
	set_touched(c, n);
	return OK;
}

static enum err do_slow(struct command *c)
{
	char name[2 * NAME_CAP + 8];
	int32_t a, b;
	double factor = 1;
	if (c->n != 4)
		return errmsg_fail(&c->em, ERR_USAGE, "want: slow A B FACTOR");
	enum err e = read_pair(c, &a, &b);
	if (e == OK)
		e = read_number(c, c->words[3], "slow", 1 / NETWORK_FACTOR_MAX, NETWORK_FACTOR_MAX, &factor);
	if (e != OK)
		return e;
	int32_t n = emulate_slow(c->e, a, b, factor);
	add_text(c, "slow %s: %g times, %d connections", pair_name(c, name), factor, n);
	set_touched(c, n);
	return OK;
}

static enum err do_freeze(struct command *c)
{
	char name[2 * NAME_CAP + 8];
	int32_t a, b;
	double seconds = 0;
	if (c->n != 3 && c->n != 4)
		return errmsg_fail(&c->em, ERR_USAGE, "want: freeze A [B] SECONDS");
	if (c->n == 3) { // of one device: all its links
		memcpy(c->words[3], c->words[2], WORD_CAP);
		snprintf(c->words[2], WORD_CAP, "*");
	}
	enum err e = read_pair(c, &a, &b);
	if (e == OK)
		e = read_number(c, c->words[3], "freeze", 0, EMULATE_FREEZE_MAX_S, &seconds);
	if (e != OK)
		return e;
	int32_t n = emulate_freeze(c->e, a, b, seconds);
	add_text(c, "froze %s: %g s, %d connections", pair_name(c, name), seconds, n);
	set_touched(c, n);
	return OK;
}

static json_t *fault_json(struct command *c, int32_t a, int32_t b, const char **words)
{
	struct network_fault f = emulate_fault_of(c->e, a, b);
	double frozen_s = (double)(f.stall_until_ns - emulate_now_ns(c->e)) / NS_PER_S;
	*words = f.is_reset ? "cut (reset)" : f.is_silent_out && f.is_silent_in ? "cut (blackhole)" : f.is_silent_out ? "cut (oneway, out)" :
		f.is_silent_in ? "cut (oneway, in)" : frozen_s > 0 ? "frozen" : f.delay_factor != 1 ? "slow" : "";
	return json_pack("{s:b, s:b, s:b, s:f, s:f}", "reset", f.is_reset, "silent_out", f.is_silent_out, "silent_in", f.is_silent_in, "slow", f.delay_factor,
		"frozen_s", frozen_s > 0 ? frozen_s : 0);
}

static void show_devices(struct command *c)
{
	json_t *list = json_array();
	for (int32_t i = 0; i < c->t->n_devices; i++) {
		const char *words;
		json_t *fault = fault_json(c, i, EMULATE_ALL, &words);
		if (words[0])
			add_text(c, "%s: %s\n", c->t->devices[i].name, words);
		json_array_append_new(list, json_pack("{s:s, s:o}", "name", c->t->devices[i].name, "fault", fault));
	}
	json_object_set_new(c->out, "devices", list);
}

// Pairs without traffic and without a fault are left out: there may be thousands.
static void show_pair(struct command *c, int32_t a, int32_t b, json_t *list)
{
	const char *words;
	struct emulate_pair_stats s = emulate_pair_stats_of(c->e, a, b);
	json_t *fault = fault_json(c, a, b, &words);
	if (s.n_connections == 0 && s.n_held == 0 && words[0] == '\0') {
		json_decref(fault);
		return;
	}
	const char *from = c->t->devices[a].name, *to = c->t->devices[b].name;
	add_text(c, "%s to %s: %d open (%llu ever), %llu bytes there, %llu back%s%s", from, to, s.n_open, (unsigned long long)s.n_connections,
		(unsigned long long)s.bytes_there, (unsigned long long)s.bytes_back, words[0] ? "; " : "", words);
	if (s.n_held > 0)
		add_text(c, "; %d wait for the cut to end", s.n_held);
	add_text(c, "\n");
	json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:o}", "from", from, "to", to, "open", s.n_open, "held", s.n_held,
		"connections", (json_int_t)s.n_connections, "bytes_there", (json_int_t)s.bytes_there, "bytes_back", (json_int_t)s.bytes_back, "fault", fault));
}

static enum err do_status(struct command *c)
{
	if (c->n != 1)
		return errmsg_fail(&c->em, ERR_USAGE, "status takes no words");
	struct emulate_lateness l = emulate_lateness_of(c->e);
	show_devices(c);
	json_t *pairs = json_array();
	for (int32_t a = 0; a < c->t->n_devices; a++)
		for (int32_t b = 0; b < c->t->n_devices; b++)
			if (a != b)
				show_pair(c, a, b, pairs);
	json_object_set_new(c->out, "pairs", pairs);
	add_text(c, "%llu pieces left %.3f ms late at the median, %.3f ms at p99, %.3f ms at most", (unsigned long long)l.n, (double)l.p50_ns / 1e6,
		(double)l.p99_ns / 1e6, (double)l.max_ns / 1e6);
	json_object_set_new(c->out, "late", json_pack("{s:I, s:f, s:f, s:f, s:f}", "pieces", (json_int_t)l.n, "p50_ms", (double)l.p50_ns / 1e6, "p90_ms",
		(double)l.p90_ns / 1e6, "p99_ms", (double)l.p99_ns / 1e6, "max_ms", (double)l.max_ns / 1e6));
	return OK;
}

static enum err do_help(struct command *c)
{
	add_text(c, "cut A B [reset|blackhole|oneway]   B may be *: everything that passes A\n"
		"heal A B                           heal alone: everything\n"
		"slow A B FACTOR                    rates divided, delays multiplied\n"
		"freeze A [B] SECONDS\n"
		"status");
	return OK;
}

static enum err carry_out(struct command *c)
{
	static const struct {
		const char *name;
		enum err (*run)(struct command *c);
		bool is_fault;
	} table[] = {{"cut", do_cut, true}, {"heal", do_heal, true}, {"slow", do_slow, true}, {"freeze", do_freeze, true}, {"status", do_status, false},
		{"help", do_help, false}};
	struct suggest s = suggest_init(c->words[0]);
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		if (strcmp(table[i].name, c->words[0]) == 0) {
			enum err e = table[i].run(c);
			if (e == OK && table[i].is_fault)
				emulate_note(c->e, c->text);
			return e;
		}
		suggest_offer(&s, table[i].name);
	}
	return errmsg_fail(&c->em, ERR_USAGE, s.best ? "unknown command %s, did you mean %s?" : "unknown command %s (help lists what there is)", c->words[0], s.best);
}

char *emulate_words_do(struct emulate *e, const char *line, size_t len)
{
	struct command *c = calloc(1, sizeof *c);
	char *text = NULL;
	if (c == NULL)
		return NULL;
	c->e = e;
	c->t = emulate_topology(e);
	c->out = json_object();
	enum err err = split(c, line, len);
	if (err == OK)
		err = carry_out(c);
	json_object_set_new(c->out, "t", json_real((double)emulate_now_ns(e) / NS_PER_S));
	json_object_set_new(c->out, "ok", json_boolean(err == OK));
	json_object_set_new(c->out, err == OK ? "text" : "error", json_string(err == OK ? c->text : c->em.text));
	text = json_dumps(c->out, JSON_COMPACT | JSON_REAL_PRECISION(13));
	json_decref(c->out);
	free(c);
	return text;
}

// ---- Events and addresses

static json_t *device_or_null(const struct topology *t, int32_t device)
{
	return device >= 0 ? json_string(t->devices[device].name) : json_null();
}

char *emulate_words_event(const struct topology *t, const struct emulate_event *ev, int64_t wall_ms)
{
	static const char *const names[] = {"connected", "closed", "refused", "fault"};
	json_t *o = json_pack("{s:f, s:f, s:s}", "t", (double)ev->at_ns / NS_PER_S, "time", (double)wall_ms / 1e3, "event", names[ev->type]);
	if (ev->type != EMULATE_FAULT) {
		json_object_set_new(o, "from", device_or_null(t, ev->from));
		json_object_set_new(o, "to", device_or_null(t, ev->to));
	}
	if (ev->connection > 0)
		json_object_set_new(o, "connection", json_integer((json_int_t)ev->connection));
	if (ev->type == EMULATE_CLOSED) {
		json_object_set_new(o, "bytes_there", json_integer((json_int_t)ev->bytes[0]));
		json_object_set_new(o, "bytes_back", json_integer((json_int_t)ev->bytes[1]));
	}
	if (ev->text != NULL)
		json_object_set_new(o, "text", json_string(ev->text));
	char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(13));
	json_decref(o);
	return text;
}

static json_t *address(uint32_t ip, uint16_t port)
{
	char text[32];
	struct in_addr in = {htonl(ip)};
	snprintf(text, sizeof text, "%s:%u", inet_ntoa(in), port);
	return json_string(text);
}

char *emulate_words_addresses(const struct topology *t)
{
	json_t *devices = json_array(), *o = json_object();
	for (int32_t i = 0; i < t->n_devices; i++) {
		json_t *seen = json_object(), *d = json_object();
		for (int32_t from = 0; from < t->n_devices; from++)
			if (from != i)
				json_object_set_new(seen, t->devices[from].name, address(topology_pair_ip(t, from, i), t->devices[i].port));
		json_object_set_new(d, "name", json_string(t->devices[i].name));
		json_object_set_new(d, "at", address(t->devices[i].ip, t->devices[i].port));
		json_object_set_new(d, "address", address(topology_device_ip(t, i), t->devices[i].port));
		json_object_set_new(d, "seen_from", seen);
		json_array_append_new(devices, d);
	}
	json_object_set_new(o, "event", json_string("listening"));
	json_object_set_new(o, "devices", devices);
	char *text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(13));
	json_decref(o);
	return text;
}
