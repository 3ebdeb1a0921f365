#include "net/service_txt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ID "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// record joins strings as a TXT record does; the list ends with NULL.
static size_t record(uint8_t *out, const char *const *strings)
{
	size_t n = 0;
	for (; *strings != NULL; strings++) {
		size_t len = strlen(*strings);
		out[n++] = (uint8_t)len;
		memcpy(out + n, *strings, len);
		n += len;
	}
	return n;
}

static enum err decode(struct service_txt *t, const char *const *strings)
{
	uint8_t data[4096];
	size_t n = record(data, strings);
	uint8_t *exact = malloc(n + 1);
	memcpy(exact, data, n);
	enum err e = service_txt_decode(exact, n, t);
	free(exact);
	return e;
}

static void a_record_reads_as_it_was_written(void **state)
{
	(void)state;
	struct service_txt t = {.name = "kitchen", .protocol_version = 1, .canon_version = 7}, back;
	uint8_t data[SERVICE_TXT_MAX];
	for (int i = 0; i < NODE_ID_BYTES; i++)
		t.id.b[i] = (uint8_t)(i * 7 + 1);
	size_t len = service_txt_encode(&t, data);
	assert_memory_equal(data, "\x09txtvers=1", 10);
	assert_int_equal(service_txt_decode(data, len, &back), OK);
	assert_memory_equal(&back, &t, sizeof t);
	for (size_t cut = 0; cut < len; cut++) { // every cut is an error or a record of its own, and never the whole one
		enum err e = service_txt_decode(data, cut, &back);
		assert_true(e != OK || memcmp(&back, &t, sizeof t) != 0);
	}
}

static void without_an_id_that_can_be_one_it_is_refused(void **state)
{
	(void)state;
	struct service_txt t;
	assert_int_equal(decode(&t, (const char *const[]){"name=x", NULL}), ERR_FORMAT);
	assert_int_equal(decode(&t, (const char *const[]){"id=0011", NULL}), ERR_FORMAT);
	assert_int_equal(decode(&t, (const char *const[]){"id=" ID "00", NULL}), ERR_FORMAT);
	assert_int_equal(decode(&t, (const char *const[]){"id=zz112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", NULL}), ERR_FORMAT);
	assert_int_equal(decode(&t, (const char *const[]){"id=0000000000000000000000000000000000000000000000000000000000000000", NULL}), ERR_FORMAT);
	assert_int_equal(decode(&t, (const char *const[]){"id", NULL}), ERR_FORMAT);
	assert_int_equal(service_txt_decode("", 0, &t), ERR_FORMAT);
	assert_int_equal(decode(&t, (const char *const[]){"ID=" ID, NULL}), OK); // a key has no case
}

static void of_two_strings_with_one_key_the_first_counts(void **state)
{
	(void)state;
	struct service_txt t;
	assert_int_equal(decode(&t, (const char *const[]){"id=" ID, "name=first", "name=second", "id=broken", "proto=2", "proto=3", "unknown=1", "flag", NULL}), OK);
	assert_string_equal(t.name, "first");
	assert_int_equal(t.protocol_version, 2);
	assert_int_equal(t.id.b[1], 0x11);
}

static void a_name_is_made_fit_for_a_terminal(void **state)
{
	(void)state;
	struct service_txt t;
	char longest[256] = "name=";
	assert_int_equal(decode(&t, (const char *const[]){"id=" ID, "name=\x1b[31mred\xff\n\xe2\x80\xae", NULL}), OK);
	assert_string_equal(t.name, "?[31mred???");
	memset(longest + 5, 'x', 250);
	assert_int_equal(decode(&t, (const char *const[]){"id=" ID, longest, NULL}), OK);
	assert_int_equal(strlen(t.name), NAME_CAP - 1);
}

static void versions_that_are_none_are_nought(void **state)
{
	(void)state;
	struct service_txt t;
	const char *const bad[] = {"proto=", "proto=-1", "proto=65536", "proto=99999999999999999999", "proto=1x", "proto= 1"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(decode(&t, (const char *const[]){"id=" ID, bad[i], NULL}), OK);
		assert_int_equal(t.protocol_version, 0);
	}
	assert_int_equal(decode(&t, (const char *const[]){"id=" ID, "proto=65535", NULL}), OK);
	assert_int_equal(t.protocol_version, 65535);
}

static void too_long_a_record_and_too_many_strings_are_refused(void **state)
{
	(void)state;
	struct service_txt t;
	uint8_t data[SERVICE_TXT_MAX + 1] = {0};
	size_t n = record(data, (const char *const[]){"id=" ID, NULL});
	assert_int_equal(service_txt_decode(data, n + SERVICE_TXT_STRINGS_MAX - 1, &t), OK); // empty strings behind it
	assert_int_equal(service_txt_decode(data, n + SERVICE_TXT_STRINGS_MAX, &t), ERR_LIMIT);
	assert_true(t.id.b[1] == 0);
	assert_int_equal(service_txt_decode(data, sizeof data, &t), ERR_LIMIT);
}

static void fingerprints_and_subtypes_are_the_first_eight_bytes(void **state)
{
	(void)state;
	struct node_id id = {{0x3f, 0x2a, 0x91, 0xc0, 0x77, 0xde, 0x0b, 0x14, 0xff}};
	char subtype[SERVICE_SUBTYPE_CAP], text[FINGERPRINT_TEXT_CAP];
	service_subtype(&id, subtype);
	assert_string_equal(subtype, "_k3f2a91c077de0b14._sub._hearth._tcp");
	fingerprint_text(&id, text);
	assert_string_equal(text, "3f2a-91c0-77de-0b14");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_record_reads_as_it_was_written),
		cmocka_unit_test(without_an_id_that_can_be_one_it_is_refused),
		cmocka_unit_test(of_two_strings_with_one_key_the_first_counts),
		cmocka_unit_test(a_name_is_made_fit_for_a_terminal),
		cmocka_unit_test(versions_that_are_none_are_nought),
		cmocka_unit_test(too_long_a_record_and_too_many_strings_are_refused),
		cmocka_unit_test(fingerprints_and_subtypes_are_the_first_eight_bytes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
