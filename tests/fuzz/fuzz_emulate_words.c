// Any line as a command of a running relay: one line of JSON that says whether it was done, and faults within their limits.
#include "sim/shell/emulate_words.h"

#include "tests/support/fuzz.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct emulate *open_relay(void)
{
	static struct topology t; // borrowed by the relay
	struct emulate *e = NULL;
	struct errmsg em;
	char text[256];
	// Ports by the process: several fuzzers may run at once.
	int n = snprintf(text, sizeof text, "subnet = 99\n[[device]]\nname = \"a\"\nat = \"127.0.0.1:%d\"\n[[device]]\nname = \"b-1\"\nat = \"127.0.0.2:%d\"\n",
		10000 + getpid() % 10000, 10000 + getpid() % 10000);
	require(topology_parse("x", text, (size_t)n, NULL, &t, &em) == OK && emulate_open(&e, &t, NULL, &em) == OK);
	return e;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct emulate *e; // one for all inputs: it opens sockets
	if (e == NULL)
		e = open_relay();
	char *answer = emulate_words_do(e, (const char *)data, size);
	require(answer != NULL && strchr(answer, '\n') == NULL);
	json_t *a = json_loads(answer, 0, NULL);
	bool is_ok = json_is_true(json_object_get(a, "ok"));
	require(json_is_string(json_object_get(a, is_ok ? "text" : "error")));
	for (int32_t i = 0; i < 2; i++) {
		struct network_fault pair = emulate_fault_of(e, i, 1 - i), device = emulate_fault_of(e, i, EMULATE_ALL);
		require(pair.delay_factor >= .001 && pair.delay_factor <= 1000 && device.delay_factor >= .001 && device.delay_factor <= 1000);
		require(pair.stall_until_ns >= 0 && device.stall_until_ns >= 0);
	}
	json_decref(a);
	free(answer);
	return 0;
}
