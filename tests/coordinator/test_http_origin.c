#include "coordinator/shell/http_origin.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void this_machine_is_recognised(void **state)
{
	(void)state;
	static const char *const hosts[] = {"localhost", "LocalHost:7430", "127.0.0.1", "127.0.0.1:1", "127.255.1.2:65535", "[::1]", "[::1]:7430",
		"[0:0:0:0:0:0:0:1]:80"};
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
		if (!http_host_is_loopback(hosts[i]))
			fail_msg("%s refused", hosts[i]);
	assert_true(http_origin_is_loopback("http://localhost:3000"));
	assert_true(http_origin_is_loopback("HTTPS://127.0.0.1"));
	assert_true(http_origin_is_loopback("http://[::1]:5"));
}

static void other_names_are_not(void **state)
{
	(void)state;
	static const char *const hosts[] = {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1.", "evil.example:7430",
		"192.168.1.5", "0.0.0.0", "128.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "[::2]", "[::1", "[::1]x", "[::1]:", "[]", "[::ffff:1.2.3.4]", "::1",
		"localhost:", "localhost:x", "localhost:1x", "localhost:123456", "user@localhost", "localhost@evil.example", "localhost, evil.example",
		"localhost evil", "localhost/", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
		if (http_host_is_loopback(hosts[i]))
			fail_msg("%s accepted", hosts[i]);
	static const char *const origins[] = {"", "null", "localhost", "http://", "http://evil.example", "file://localhost", "http://localhost/",
		"http://localhost http://evil.example", "chrome-extension://abc", "http:/localhost"};
	for (size_t i = 0; i < ARRAY_LEN(origins); i++)
		if (http_origin_is_loopback(origins[i]))
			fail_msg("%s accepted", origins[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(this_machine_is_recognised),
		cmocka_unit_test(other_names_are_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
