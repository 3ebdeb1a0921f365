#include "proto/invite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/lnk1_fixture.h"

static void make_invite(struct invite *in)
{
	assert_true(sodium_init() >= 0);
	memset(in, 0, sizeof *in);
	lnk1_fill(in->server_pk, sizeof in->server_pk, 1);
	in->server_pk[31] &= 0x7f;
	lnk1_fill(in->token_id, sizeof in->token_id, 2);
	lnk1_fill(in->token_secret, sizeof in->token_secret, 3);
	in->expiry_s = 1700000000;
	in->n_addrs = 2;
	snprintf(in->addrs[0], ADDR_CAP, "192.168.1.10:7433");
	snprintf(in->addrs[1], ADDR_CAP, "[fe80::1%%eth0]:7433");
}

static void make_url(char url[INVITE_URL_CAP])
{
	struct invite in;
	make_invite(&in);
	assert_int_equal(invite_encode(&in, url, NULL), OK);
}

static bool is_all_zero(const struct invite *in)
{
	return sodium_is_zero((const uint8_t *)in, sizeof *in);
}

static void an_invite_comes_back_as_it_went(void **state)
{
	(void)state;
	struct invite in, out;
	char url[INVITE_URL_CAP];
	make_invite(&in);
	assert_int_equal(invite_encode(&in, url, NULL), OK);
	assert_memory_equal(url, "hearth://192.168.1.10:7433,[fe80::1%eth0]:7433/join/1/", 54);
	assert_int_equal(strlen(url), 54 + 112);
	assert_int_equal(invite_parse(url, strlen(url), &out, NULL), OK);
	assert_memory_equal(&in, &out, sizeof in);
}

static void the_longest_invite_fits(void **state)
{
	(void)state;
	struct invite in, out;
	char url[INVITE_URL_CAP];
	make_invite(&in);
	in.n_addrs = ADDRS_MAX;
	for (int i = 0; i < ADDRS_MAX; i++) {
		memset(in.addrs[i], 'a' + i, ADDR_CAP - 1);
		memcpy(in.addrs[i] + ADDR_CAP - 7, ":65535", 7);
	}
	assert_int_equal(invite_encode(&in, url, NULL), OK);
	assert_true(strlen(url) <= INVITE_URL_MAX);
	assert_int_equal(invite_parse(url, strlen(url), &out, NULL), OK);
	assert_memory_equal(&in, &out, sizeof in);
}

static void white_space_around_it_is_skipped(void **state)
{
	(void)state;
	struct invite out;
	char url[INVITE_URL_CAP], text[INVITE_URL_CAP + 16];
	make_url(url);
	int len = snprintf(text, sizeof text, " \t%s\r\n\n", url);
	assert_int_equal(invite_parse(text, (size_t)len, &out, NULL), OK);
	assert_int_equal(out.n_addrs, 2);
}

static void a_cut_invite_is_refused_at_every_length(void **state)
{
	(void)state;
	struct invite out;
	char url[INVITE_URL_CAP];
	make_url(url);
	for (size_t len = 0; len < strlen(url); len++) {
		assert_int_equal(invite_parse(url, len, &out, NULL), ERR_FORMAT);
		assert_true(is_all_zero(&out));
	}
}

// Any other byte anywhere: refused, or an address that a person could have meant (they are readable and not under the check).
static void a_wrong_character_is_refused(void **state)
{
	(void)state;
	char url[INVITE_URL_CAP];
	make_url(url);
	size_t len = strlen(url), payload_at = len - 112;
	for (size_t i = 0; i < len; i++) {
		char was = url[i];
		for (int c = 0; c < 256; c++) {
			if ((char)c == was)
				continue;
			struct invite out;
			url[i] = (char)c;
			enum err e = invite_parse(url, len, &out, NULL);
			bool in_addrs = i >= 9 && i < payload_at - 8;
			if (!in_addrs)
				assert_int_not_equal(e, OK);
			if (e == OK)
				assert_true(c > ' ' && c < 127);
			else
				assert_true(is_all_zero(&out));
		}
		url[i] = was;
	}
}

struct address {
	const char *text;
	bool ok;
};

static const struct address addresses[] = {
	{"a:1", true},
	{"host.example-1.org:65535", true},
	{"my_host:80", true},
	{"[::1]:7433", true},
	{"[fe80::1%wlan0]:7433", true},
	{"[::ffff:10.0.0.1]:1", true},
	{",a:1", false},
	{":", false},
	{"a", false},
	{"a:", false},
	{":1", false},
	{"a:0", false},
	{"a:01", false},
	{"a:65536", false},
	{"a:99999", false},
	{"a:100000", false},
	{"a:-1", false},
	{"a:+1", false},
	{"a:1 ", false},
	{"a b:1", false},
	{"::1:7433", false},
	{"[]:1", false},
	{"[:]:1", false},
	{"[::1:1", false},
	{"[::1]1", false},
	{"[g::1]:1", false},
	{"a@b:1", false},
	{"../x:1", false},
	{"a\x1b[2J:1", false},
	{"\xc3\xa9:1", false},
};

static void addresses_are_host_and_port(void **state)
{
	(void)state;
	char good[INVITE_URL_CAP];
	make_url(good);
	const char *payload = good + strlen(good) - 112;
	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		struct invite in, out;
		char url[INVITE_URL_CAP], again[INVITE_URL_CAP];
		snprintf(url, sizeof url, "hearth://%s/join/1/%s", addresses[i].text, payload);
		assert_int_equal(invite_parse(url, strlen(url), &out, NULL) == OK, addresses[i].ok);
		make_invite(&in);
		in.n_addrs = 1;
		snprintf(in.addrs[0], ADDR_CAP, "%s", addresses[i].text);
		assert_int_equal(invite_encode(&in, again, NULL) == OK, addresses[i].ok);
	}
}

static void the_number_of_addresses_is_bounded(void **state)
{
	(void)state;
	char good[INVITE_URL_CAP];
	make_url(good);
	const char *payload = good + strlen(good) - 112;
	for (int n = 0; n <= 200; n++) {
		struct invite out;
		char url[INVITE_URL_CAP] = "hearth://";
		for (int i = 0; i < n; i++)
			strcat(url, i ? ",a:1" : "a:1");
		strcat(url, "/join/1/");
		strcat(url, payload);
		enum err want = n <= ADDRS_MAX ? OK : ERR_LIMIT;
		assert_int_equal(invite_parse(url, strlen(url), &out, NULL), want);
	}
	// An address of ADDR_CAP bytes has no room for its NUL.
	struct invite out;
	char url[INVITE_URL_CAP], host[ADDR_CAP + 1];
	for (int len = ADDR_CAP - 4; len <= ADDR_CAP + 1; len++) {
		memset(host, 'h', sizeof host);
		host[len - 2] = '\0';
		snprintf(url, sizeof url, "hearth://%s:1/join/1/%s", host, payload);
		assert_int_equal(invite_parse(url, strlen(url), &out, NULL) == OK, len < ADDR_CAP);
	}
}

static void another_format_version_is_named(void **state)
{
	(void)state;
	struct invite out;
	struct errmsg em;
	char url[INVITE_URL_CAP];
	make_url(url);
	url[strlen(url) - 114] = '2';
	assert_int_equal(invite_parse(url, strlen(url), &out, &em), ERR_UNSUPPORTED);
	assert_non_null(strstr(em.text, "version"));
}

static void a_long_text_is_refused(void **state)
{
	(void)state;
	static char text[100000];
	struct invite out;
	memset(text, 'A', sizeof text);
	assert_int_equal(invite_parse(text, sizeof text, &out, NULL), ERR_LIMIT);
	memset(text, ' ', sizeof text);
	assert_int_equal(invite_parse(text, sizeof text, &out, NULL), ERR_FORMAT);
}

static void a_bad_field_is_refused_on_both_sides(void **state)
{
	(void)state;
	char url[INVITE_URL_CAP];
	for (int which = 0; which < 4; which++) {
		struct invite in;
		make_invite(&in);
		if (which == 0)
			in.server_pk[31] |= 0x80;
		if (which == 1)
			memset(in.server_pk, 0, sizeof in.server_pk);
		if (which == 2)
			memset(in.token_id, 0, sizeof in.token_id);
		if (which == 3)
			in.n_addrs = ADDRS_MAX + 1;
		assert_int_equal(invite_encode(&in, url, NULL), ERR_RANGE);
		assert_string_equal(url, "");
	}
	// The same payload with a check that fits: "hearth invite 1" and 80 bytes, of which the key has its top bit set.
	uint8_t payload[84] = {0}, hash[32], text[15 + 80] = "hearth invite 1";
	payload[31] = 0x80;
	payload[32] = 1;
	memcpy(text + 15, payload, 80);
	crypto_generichash(hash, sizeof hash, text, sizeof text, NULL, 0);
	memcpy(payload + 80, hash, 4);
	struct invite out;
	strcpy(url, "hearth://a:1/join/1/");
	sodium_bin2base64(url + strlen(url), 200, payload, sizeof payload, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	assert_int_equal(invite_parse(url, strlen(url), &out, NULL), ERR_FORMAT);
	assert_true(is_all_zero(&out));
}

// What is wrong with an invite may land in a log.
static void no_message_quotes_the_secret(void **state)
{
	(void)state;
	struct invite out;
	struct errmsg em;
	char url[INVITE_URL_CAP];
	make_url(url);
	const char *payload = url + strlen(url) - 112;
	char part[9] = {0};
	for (size_t len = 0; len < strlen(url); len++) {
		em.text[0] = '\0';
		assert_int_not_equal(invite_parse(url, len, &out, &em), OK);
		for (size_t i = 0; i + 8 <= 112; i++) {
			memcpy(part, payload + i, 8);
			assert_null(strstr(em.text, part));
		}
	}
}

static void it_expires_at_its_second(void **state)
{
	(void)state;
	struct invite in;
	make_invite(&in);
	assert_false(invite_is_expired(&in, 1699999999));
	assert_true(invite_is_expired(&in, 1700000000));
	invite_wipe(&in);
	assert_true(is_all_zero(&in));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_invite_comes_back_as_it_went),
		cmocka_unit_test(the_longest_invite_fits),
		cmocka_unit_test(white_space_around_it_is_skipped),
		cmocka_unit_test(a_cut_invite_is_refused_at_every_length),
		cmocka_unit_test(a_wrong_character_is_refused),
		cmocka_unit_test(addresses_are_host_and_port),
		cmocka_unit_test(the_number_of_addresses_is_bounded),
		cmocka_unit_test(another_format_version_is_named),
		cmocka_unit_test(a_long_text_is_refused),
		cmocka_unit_test(a_bad_field_is_refused_on_both_sides),
		cmocka_unit_test(no_message_quotes_the_secret),
		cmocka_unit_test(it_expires_at_its_second),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
