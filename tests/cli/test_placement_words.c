#include "cli/placement_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void machines_and_chains_are_read_in_order(void **state)
{
	(void)state;
	struct placement_words *w;
	struct errmsg em = {""};
	assert_int_equal(placement_words_parse("a=15,b-2.x_=15/attic=30", 30, &w, &em), OK);
	assert_int_equal(w->n_chains, 2);
	assert_int_equal(w->n_stages, 3);
	assert_int_equal(w->chains[0].n_stages, 2);
	assert_string_equal(w->chains[0].stages[1].members[0].name, "b-2.x_");
	assert_int_equal(w->chains[0].stages[1].n_layers, 15);
	assert_int_equal(w->chains[1].n_stages, 1);
	assert_string_equal(w->chains[1].stages[0].members[0].name, "attic");
	assert_int_equal(placement_words_find(w, "attic"), 30);
	assert_int_equal(placement_words_find(w, "cellar"), 0);
	free(w);
}

static void machines_may_share_layers(void **state)
{
	(void)state;
	struct placement_words *w;
	struct errmsg em = {""};
	assert_int_equal(placement_words_parse("a=15,b:3+c:1=15/d+e+f:0=30", 30, &w, &em), OK);
	assert_int_equal(w->n_stages, 3);
	assert_int_equal(w->n_members, 6);
	const struct placed_stage *st = &w->chains[0].stages[1];
	assert_int_equal(st->n_layers, 15);
	assert_int_equal(st->n_members, 2);
	assert_string_equal(st->members[0].name, "b");
	assert_int_equal(st->members[0].share, 3);
	assert_string_equal(st->members[1].name, "c");
	assert_int_equal(st->members[1].share, 1);
	st = &w->chains[1].stages[0];
	assert_int_equal(st->n_members, 3);
	assert_int_equal(st->members[1].share, 1);
	assert_int_equal(st->members[2].share, 0);
	assert_int_equal(placement_words_find(w, "c"), 15);
	assert_int_equal(placement_words_find(w, "f"), 30);
	free(w);
}

static void a_star_marks_who_passes_on(void **state)
{
	(void)state;
	struct placement_words *w;
	struct errmsg em = {""};
	assert_int_equal(placement_words_parse("a:3+b=10,c:1+d:2*+e=20", 30, &w, &em), OK);
	assert_int_equal(w->stages[0].hub, 0);
	assert_int_equal(w->stages[1].hub, 2);
	assert_int_equal(w->stages[1].n_members, 3);
	assert_string_equal(placement_words_hub(w), "d");
	free(w);
	assert_int_equal(placement_words_parse("a+b*=30", 30, &w, &em), OK);
	assert_int_equal(w->stages[0].hub, 2);
	free(w);
	assert_int_equal(placement_words_parse("a+b=30", 30, &w, &em), OK);
	assert_null(placement_words_hub(w));
	free(w);
}

static void mistakes_are_named(void **state)
{
	(void)state;
	static const struct { const char *text, *words; } bad[] = {
		{"a*=30", "nobody to pass"}, {"a*+b*=30", "two machines of a's group have a star"}, {"a:2*:3+b=30", "NAME=LAYERS"}, {"a+*b=30", "NAME=LAYERS"},
		{"", "does not begin with NAME=LAYERS"}, {"a", "NAME=LAYERS"}, {"a=", "NAME=LAYERS"}, {"=3", "NAME=LAYERS"}, {"a=0", "1 to 1024"},
		{"a=-3", "NAME=LAYERS"}, {"a=1025", "NAME=LAYERS"}, {"a=4294967326", "NAME=LAYERS"}, {"a=15,", "\"\" does not begin"}, {"a=30/", "\"\" does not begin"},
		{"a=15 b=15", "\" b=15\" is not understood"}, {"a=15,b=14", "chain 0 gives out 29 layers, the model has 30"},
		{"a=30/b=31", "chain 1 gives out 31 layers"}, {"a=15,a=15", "a is named twice"}, {"a=30/a=30", "a is named twice"}, {"a b=30", "NAME=LAYERS"},
		{"a+=30", "NAME:SHARE"}, {"+a=30", "NAME:SHARE"}, {"a+b", "NAME:SHARE"}, {"a:=30", "NAME:SHARE"}, {"a:x+b=30", "NAME:SHARE"},
		{"a:1234567+b=30", "NAME:SHARE"}, {"a:-1+b=30", "NAME:SHARE"}, {"a+a=30", "a is named twice"}, {"a=15,b+a=15", "a is named twice"},
		{"a:0+b:0=30", "nobody of a's group has a share"}, {"a:1+b:1=15,c=14", "chain 0 gives out 29 layers"},
		{"a+b+c+d+e+f+g+h+i+j+k+l+m+n+o+p+q=30", "more than 16 machines share the layers of a"}};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct placement_words *w;
		struct errmsg em = {""};
		assert_int_not_equal(placement_words_parse(bad[i].text, 30, &w, &em), OK);
		assert_null(w);
		if (strstr(em.text, bad[i].words) == NULL)
			fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].text, em.text, bad[i].words);
	}
}

// repeat writes `n` machines, from number `first` on, of `layers` each.
static size_t repeat(char *to, int first, int n, int layers)
{
	size_t len = 0;
	for (int i = 0; i < n; i++)
		len += (size_t)sprintf(to + len, "%sm%d=%d", i > 0 ? "," : "", first + i, layers);
	return len;
}

static void no_bound_is_passed(void **state)
{
	(void)state;
	static char text[64 * 1024];
	struct placement_words *w;
	struct errmsg em = {""};
	repeat(text, 0, STAGES_MAX, 1);
	assert_int_equal(placement_words_parse(text, STAGES_MAX, &w, &em), OK);
	free(w);
	repeat(text, 0, STAGES_MAX + 1, 1);
	assert_int_equal(placement_words_parse(text, STAGES_MAX + 1, &w, &em), ERR_LIMIT);
	char *at = text;
	for (int i = 0; i <= STAGES_MAX; i++) // in groups of 13: five stages
		at += sprintf(at, "m%d%s", i, i == STAGES_MAX ? "=13" : i % 13 == 12 ? "=13," : "+");
	assert_int_equal(placement_words_parse(text, STAGES_MAX + 1, &w, &em), ERR_LIMIT);
	assert_non_null(strstr(em.text, "64 machines"));
	size_t len = 0;
	for (int c = 0; c <= CHAINS_MAX; c++)
		len += (size_t)sprintf(text + len, "%s", c > 0 ? "/" : ""), len += repeat(text + len, 100 * c, STAGES_MAX, 1);
	assert_int_equal(placement_words_parse(text, STAGES_MAX, &w, &em), ERR_LIMIT); // 17 chains, and 1,088 machines
	char name[NAME_CAP + 8];
	memset(name, 'n', sizeof name);
	memcpy(name + NAME_CAP, "=30", 4);
	assert_int_equal(placement_words_parse(name, 30, &w, &em), ERR_FORMAT);
	memcpy(name + NAME_CAP - 1, "=30", 4);
	assert_int_equal(placement_words_parse(name, 30, &w, &em), OK);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machines_and_chains_are_read_in_order),
		cmocka_unit_test(machines_may_share_layers),
		cmocka_unit_test(a_star_marks_who_passes_on),
		cmocka_unit_test(mistakes_are_named),
		cmocka_unit_test(no_bound_is_passed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
