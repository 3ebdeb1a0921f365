// Any text as an invite: what parses encodes to text that parses to the same.
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/invite.h"
#include "tests/support/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct invite in, again;
	struct errmsg em;
	char url[INVITE_URL_CAP];
	require(sodium_init() >= 0);
	if (invite_parse((const char *)data, size, &in, &em) != OK) {
		require(strlen(em.text) > 0);
		require(sodium_is_zero((const uint8_t *)&in, sizeof in));
		return 0;
	}
	require(invite_encode(&in, url, &em) == OK);
	require(invite_parse(url, strlen(url), &again, &em) == OK);
	require(memcmp(&in, &again, sizeof in) == 0);
	return 0;
}
