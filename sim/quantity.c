#include "sim/quantity.h"

#include "base/assert.h"
#include "base/printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_CAP 40

struct unit {
	const char *name;
	double scale;
	int is_printed; // by quantity_print; in rising order
};

static const struct unit bytes_units[] = {{"B", 1, 1}, {"kB", 1e3, 1}, {"MB", 1e6, 1}, {"GB", 1e9, 1}, {"TB", 1e12, 1},
	{"KiB", 1024, 0}, {"MiB", 1048576, 0}, {"GiB", 1073741824, 0}, {"TiB", 1099511627776, 0}, {NULL, 0, 0}};
static const struct unit rate_units[] = {{"B/s", 1, 1}, {"kB/s", 1e3, 1}, {"MB/s", 1e6, 1}, {"GB/s", 1e9, 1}, {"TB/s", 1e12, 1},
	{"MiB/s", 1048576, 0}, {"GiB/s", 1073741824, 0}, {"bit/s", 0.125, 0}, {"kbit/s", 125, 0}, {"Mbit/s", 125e3, 0},
	{"Gbit/s", 125e6, 0}, {NULL, 0, 0}};
static const struct unit time_units[] = {
	{"ns", 1e-9, 1}, {"us", 1e-6, 1}, {"ms", 1e-3, 1}, {"s", 1, 1}, {"min", 60, 0}, {"h", 3600, 0}, {NULL, 0, 0}};
static const struct unit flops_units[] = {
	{"FLOP/s", 1, 1}, {"MFLOP/s", 1e6, 1}, {"GFLOP/s", 1e9, 1}, {"TFLOP/s", 1e12, 1}, {"PFLOP/s", 1e15, 1}, {NULL, 0, 0}};
static const struct unit work_units[] = {{"FLOP", 1, 1}, {"MFLOP", 1e6, 1}, {"GFLOP", 1e9, 1}, {"TFLOP", 1e12, 1}, {NULL, 0, 0}};

static const struct unit *units_of(enum quantity q)
{
	switch (q) {
	case QUANTITY_BYTES:
		return bytes_units;
	case QUANTITY_RATE:
		return rate_units;
	case QUANTITY_TIME:
		return time_units;
	case QUANTITY_FLOPS:
		return flops_units;
	case QUANTITY_WORK:
		return work_units;
	}
	assert_fail("a known quantity", __FILE__, __LINE__);
}

const char *quantity_units(enum quantity q)
{
	switch (q) {
	case QUANTITY_BYTES:
		return "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB";
	case QUANTITY_RATE:
		return "B/s, kB/s, MB/s, GB/s, TB/s, MiB/s, GiB/s, bit/s, kbit/s, Mbit/s, Gbit/s";
	case QUANTITY_TIME:
		return "ns, us, ms, s, min, h";
	case QUANTITY_FLOPS:
		return "FLOP/s, MFLOP/s, GFLOP/s, TFLOP/s, PFLOP/s";
	case QUANTITY_WORK:
		return "FLOP, MFLOP, GFLOP, TFLOP";
	}
	return "";
}

static enum err refuse(enum quantity q, const char *text, struct errmsg *em)
{
	char shown[48];
	return errmsg_fail(em, ERR_FORMAT, "got \"%s\", want a number and one of %s",
		printable_copy(text, strlen(text), shown, sizeof shown), quantity_units(q));
}

enum err quantity_parse(enum quantity q, const char *text, double *out, struct errmsg *em)
{
	char number[NUMBER_CAP], *end;
	size_t n = strspn(text, "0123456789."); // no sign, no exponent, nothing else that strtod takes
	const char *unit = text + n + strspn(text + n, " ");
	if (n == 0 || n >= NUMBER_CAP)
		return refuse(q, text, em);
	memcpy(number, text, n);
	number[n] = '\0';
	double v = strtod(number, &end);
	if (*end != '\0')
		return refuse(q, text, em);
	for (const struct unit *u = units_of(q); u->name; u++) {
		if (strcmp(u->name, unit) == 0) {
			*out = v * u->scale;
			return OK;
		}
	}
	return refuse(q, text, em);
}

struct quantity_text quantity_print(enum quantity q, double v)
{
	struct quantity_text out;
	const struct unit *units = units_of(q), *u = units;
	if (v == 0) // the unit people think in
		u = q == QUANTITY_TIME ? &units[2] : units;
	else
		while (u[1].name && u[1].is_printed && v >= u[1].scale * 0.9995)
			u++;
	v /= u->scale;
	snprintf(out.text, sizeof out.text,
		v == (double)(int)v && v < 1000 ? "%.0f %s"
			: v < 9.995             ? "%.2f %s"
			: v < 99.95             ? "%.1f %s"
						: "%.0f %s",
		v, u->name);
	return out;
}
