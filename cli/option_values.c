#include "cli/option_values.h"

#include "base/assert.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void *field(struct options *o, const struct option *opt)
{
	return (char *)o + opt->offset;
}

static void want_choices(const struct option *opt, char want[OPTION_WANT_CAP])
{
	size_t n = 0;
	for (size_t i = 0; opt->choices[i] && n < OPTION_WANT_CAP; i++)
		n += (size_t)snprintf(want + n, OPTION_WANT_CAP - n, "%s%s", i == 0 ? "one of " : ", ", opt->choices[i]);
}

void option_want(const struct option *opt, char want[OPTION_WANT_CAP])
{
	const char *words = "";
	switch (opt->kind) {
	case OPTION_BOOL: words = "true or false"; break;
	case OPTION_U64: words = "an integer from 0 to 18446744073709551615"; break;
	case OPTION_STRING: words = "a text that is not empty"; break;
	case OPTION_PATH: words = "a file name"; break;
	case OPTION_NAME: words = "1 to 63 letters, digits, '.', '_' or '-'"; break;
	case OPTION_STDIN: words = "-"; break;
	case OPTION_ADDRESS: words = "an IPv4 or IPv6 address"; break;
	case OPTION_ENUM:
	case OPTION_WORD: want_choices(opt, want); return;
	case OPTION_INT:
		snprintf(want, OPTION_WANT_CAP, "an integer from %lld to %lld", (long long)opt->min, (long long)opt->max);
		return;
	case OPTION_SIZE: {
		char min[24], max[24];
		option_size_text((uint64_t)opt->min, min);
		option_size_text((uint64_t)opt->max, max);
		snprintf(want, OPTION_WANT_CAP, "a size such as 3G or 900M, from %s to %s", min, max);
		return;
	}
	case OPTION_FLOAT: snprintf(want, OPTION_WANT_CAP, "a number from %g to %g", opt->f_min, opt->f_max); return;
	case OPTION_SPLIT:
		snprintf(want, OPTION_WANT_CAP, "1 to %d %s, each from %lld to %lld", STAGES_MAX, opt->items, (long long)opt->min, (long long)opt->max);
		return;
	case OPTION_HOST_PORT:
		words = opt->min ? "HOST:PORT or [IPV6]:PORT, a port from 1 to 65535" : "HOST:PORT or [IPV6]:PORT";
		break;
	case OPTION_HOST_PORT_LIST:
		snprintf(want, OPTION_WANT_CAP, "1 to %d of HOST:PORT or [IPV6]:PORT, ports from 1 to 65535", ADDRS_MAX);
		return;
	}
	snprintf(want, OPTION_WANT_CAP, "%s", words);
}

enum err option_refuse(const struct option *opt, const char *where, const char *got, struct errmsg *em)
{
	char want[OPTION_WANT_CAP];
	option_want(opt, want);
	return errmsg_fail(em, ERR_USAGE, "%.200s: got %.100s, want %s", where, got[0] ? got : "an empty text", want);
}

void option_size_text(uint64_t bytes, char out[24])
{
	static const char units[] = "KMGTP";
	int i = -1;
	while (bytes >= 1024 && bytes % 1024 == 0 && i < (int)sizeof units - 2) {
		bytes /= 1024;
		i++;
	}
	snprintf(out, 24, "%llu%.1s", (unsigned long long)bytes, i < 0 ? "" : &units[i]);
}

// parse_size reads "3G", "1.5g", "900MiB", "2048": steps of 1,024, and a fraction where a unit follows.
static bool parse_size(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMGTP";
	size_t n = strspn(text, "0123456789"), f = 0;
	uint64_t whole = 0, scale = 1;
	double fraction = 0, place = 0.1;
	if (n == 0 || n > 16)
		return false;
	for (size_t i = 0; i < n; i++)
		whole = whole * 10 + (uint64_t)(text[i] - '0');
	text += n;
	if (*text == '.') {
		f = strspn(++text, "0123456789");
		for (size_t i = 0; i < f; i++, place /= 10)
			fraction += place * (text[i] - '0');
		text += f;
		if (f == 0)
			return false;
	}
	for (size_t i = 0; i < sizeof units - 1; i++)
		if ((*text | 0x20) == (units[i] | 0x20) && *text != '\0')
			scale = UINT64_C(1) << (10 * (i + 1));
	text += scale > 1;
	if (scale == 1 && f > 0)
		return false;
	if (strcmp(text, "iB") == 0)
		text += 2;
	else if (strcmp(text, "B") == 0)
		text++;
	if (*text != '\0' || whole > UINT64_MAX / 2 / scale)
		return false;
	*bytes = whole * scale + (uint64_t)(fraction * (double)scale);
	return true;
}

static enum err set_size(const struct option *opt, struct options *o, const char *where, const char *text, struct errmsg *em)
{
	uint64_t bytes;
	if (!parse_size(text, &bytes) || bytes < (uint64_t)opt->min || bytes > (uint64_t)opt->max)
		return option_refuse(opt, where, text, em);
	*(uint64_t *)field(o, opt) = bytes;
	return OK;
}

static enum err refuse_int(const struct option *opt, const char *where, int64_t v, struct errmsg *em)
{
	char got[24];
	snprintf(got, sizeof got, "%lld", (long long)v);
	return option_refuse(opt, where, got, em);
}

// parse_i64, parse_u64, parse_double read all of `text`; strtoll alone would take white space, and strtod "nan" and hex.
static bool parse_i64(const char *text, int64_t *v)
{
	size_t sign = text[0] == '-' || text[0] == '+';
	if (text[sign] == '\0' || text[sign + strspn(text + sign, "0123456789")] != '\0')
		return false;
	errno = 0;
	*v = strtoll(text, NULL, 10);
	return errno == 0;
}

static bool parse_u64(const char *text, uint64_t *v)
{
	if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0')
		return false;
	errno = 0;
	*v = strtoull(text, NULL, 10);
	return errno == 0;
}

static bool parse_double(const char *text, double *v)
{
	if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
		return false;
	char *end;
	*v = strtod(text, &end);
	return *end == '\0';
}

enum err option_set_bool(const struct option *opt, struct options *o, const char *where, bool v, struct errmsg *em)
{
	if (opt->kind != OPTION_BOOL)
		return option_refuse(opt, where, v ? "true" : "false", em);
	*(bool *)field(o, opt) = v;
	return OK;
}

enum err option_set_int(const struct option *opt, struct options *o, const char *where, int64_t v, struct errmsg *em)
{
	switch (opt->kind) {
	case OPTION_INT:
		if (v < opt->min || v > opt->max)
			return refuse_int(opt, where, v, em);
		*(int32_t *)field(o, opt) = (int32_t)v;
		return OK;
	case OPTION_U64:
		if (v < 0)
			return refuse_int(opt, where, v, em);
		*(uint64_t *)field(o, opt) = (uint64_t)v;
		return OK;
	case OPTION_FLOAT: return option_set_float(opt, o, where, (double)v, em);
	case OPTION_SIZE:
		if (v < opt->min || v > opt->max)
			return refuse_int(opt, where, v, em);
		*(uint64_t *)field(o, opt) = (uint64_t)v;
		return OK;
	default: return refuse_int(opt, where, v, em);
	}
}

enum err option_set_float(const struct option *opt, struct options *o, const char *where, double v, struct errmsg *em)
{
	if (opt->kind != OPTION_FLOAT || !(v >= opt->f_min && v <= opt->f_max)) { // the negation refuses NaN
		char got[32];
		snprintf(got, sizeof got, "%g", v);
		return option_refuse(opt, where, got, em);
	}
	*(float *)field(o, opt) = (float)v;
	return OK;
}

bool option_clear_list(const struct option *opt, struct options *o)
{
	if (opt->kind == OPTION_SPLIT)
		((struct split *)field(o, opt))->n = 0;
	else if (opt->kind == OPTION_HOST_PORT_LIST)
		((struct host_port_list *)field(o, opt))->n = 0;
	else
		return false;
	return true;
}

enum err option_add_int(const struct option *opt, struct options *o, const char *where, int64_t v, struct errmsg *em)
{
	if (opt->kind != OPTION_SPLIT)
		return refuse_int(opt, where, v, em);
	struct split *split = field(o, opt);
	if (split->n == STAGES_MAX)
		return option_refuse(opt, where, "more", em);
	if (v < opt->min || v > opt->max) {
		char got[64];
		snprintf(got, sizeof got, "%lld for stage %d", (long long)v, split->n);
		return option_refuse(opt, where, got, em);
	}
	split->at[split->n++] = (int32_t)v;
	return OK;
}

static enum err parse_address(const struct option *opt, const char *where, const char *text, struct host_port *out,
	struct errmsg *em)
{
	struct host_port hp;
	if (!host_port_parse(text, &hp) || hp.port < opt->min)
		return option_refuse(opt, where, text, em);
	if (opt->loopback_only && !host_port_is_loopback(&hp))
		return errmsg_fail(em, ERR_USAGE,
			"%.200s: got %.100s, want a loopback address such as 127.0.0.1:%d: the API has no passwords, so that it serves this machine "
			"only (reach it from another through ssh -L)",
			where, text, PORT_HTTP_DEFAULT);
	*out = hp;
	return OK;
}

enum err option_add_text(const struct option *opt, struct options *o, const char *where, const char *text, struct errmsg *em)
{
	int64_t v;
	if (opt->kind == OPTION_SPLIT)
		return parse_i64(text, &v) ? option_add_int(opt, o, where, v, em) : option_refuse(opt, where, text, em);
	if (opt->kind != OPTION_HOST_PORT_LIST)
		return option_refuse(opt, where, text, em);
	struct host_port_list *list = field(o, opt);
	if (list->n == ADDRS_MAX)
		return option_refuse(opt, where, "more", em);
	enum err e = parse_address(opt, where, text, &list->at[list->n], em);
	if (e == OK)
		list->n++;
	return e;
}

// set_list reads "10,12,8": items between commas, none empty.
static enum err set_list(const struct option *opt, struct options *o, const char *where, const char *text, struct errmsg *em)
{
	option_clear_list(opt, o);
	for (;;) {
		size_t n = strcspn(text, ",");
		char item[HOST_PORT_TEXT_CAP];
		if (n >= sizeof item)
			return option_refuse(opt, where, text, em);
		memcpy(item, text, n);
		item[n] = '\0';
		enum err e = option_add_text(opt, o, where, item, em);
		if (e != OK || text[n] == '\0')
			return e;
		text += n + 1;
	}
}

static enum err set_choice(const struct option *opt, struct options *o, const char *where, const char *text, struct errmsg *em)
{
	for (int i = 0; opt->choices[i]; i++) {
		if (strcmp(opt->choices[i], text) != 0)
			continue;
		if (opt->kind == OPTION_ENUM)
			memcpy(field(o, opt), &i, sizeof i);
		else
			*(const char **)field(o, opt) = opt->choices[i];
		return OK;
	}
	return option_refuse(opt, where, text, em);
}

static bool is_name(const char *text)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
	return n > 0 && n < NAME_CAP && text[n] == '\0' && text[0] != '-';
}

static bool is_address(const char *text)
{
	struct in6_addr a;
	return inet_pton(AF_INET, text, &a) == 1 || inet_pton(AF_INET6, text, &a) == 1;
}

// set_invite_argument: an argument of join may only be "-". Its text is kept out of the message: it may be the secret.
static enum err set_invite_argument(const struct option *opt, struct options *o, const char *text, struct errmsg *em)
{
	if (strcmp(text, "-") != 0)
		return errmsg_fail(em, ERR_USAGE,
			"an invite is a secret and is not taken as an argument: every user of this machine can read the arguments of running "
			"programs, and the shell keeps them in its history; start `hearth join` and paste the invite when asked, or give it on "
			"standard input (`hearth join -`) or in a file (--invite-file); a model file goes with --model");
	*(bool *)field(o, opt) = true;
	return OK;
}

enum err option_set_text(const struct option *opt, struct options *o, const char *where, const char *text, struct errmsg *em)
{
	int64_t i;
	double f;
	switch (opt->kind) {
	case OPTION_BOOL:
		if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
			return option_refuse(opt, where, text, em);
		return option_set_bool(opt, o, where, text[0] == 't', em);
	case OPTION_INT: return parse_i64(text, &i) ? option_set_int(opt, o, where, i, em) : option_refuse(opt, where, text, em);
	case OPTION_U64:
		return parse_u64(text, (uint64_t *)field(o, opt)) ? OK : option_refuse(opt, where, text, em);
	case OPTION_SIZE: return set_size(opt, o, where, text, em);
	case OPTION_FLOAT:
		return parse_double(text, &f) ? option_set_float(opt, o, where, f, em) : option_refuse(opt, where, text, em);
	case OPTION_NAME:
		if (!is_name(text))
			return option_refuse(opt, where, text, em);
		break;
	case OPTION_STRING:
	case OPTION_PATH:
		if (text[0] == '\0')
			return option_refuse(opt, where, text, em);
		break;
	case OPTION_ADDRESS:
		if (!is_address(text))
			return option_refuse(opt, where, text, em);
		break;
	case OPTION_ENUM:
	case OPTION_WORD: return set_choice(opt, o, where, text, em);
	case OPTION_SPLIT:
	case OPTION_HOST_PORT_LIST: return set_list(opt, o, where, text, em);
	case OPTION_HOST_PORT: return parse_address(opt, where, text, (struct host_port *)field(o, opt), em);
	case OPTION_STDIN: return set_invite_argument(opt, o, text, em);
	}
	*(const char **)field(o, opt) = text;
	return OK;
}
