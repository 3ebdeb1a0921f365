// Any bytes as a file of the journal: a request within its limits, which gives the same bytes again, or an error with words. As they are, and with the
// digest that fits them, so that what stands behind it is reached. Also the two texts that a client who comes back sends: an id, an event's number.
#include "coordinator/shell/http_api.h"
#include "coordinator/shell/request_record.h"
#include "engine/sampler.h"

#include "tests/support/fuzz.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct request_record *r, const uint8_t *data, size_t size)
{
	size_t len;
	uint8_t *again = request_record_encode(r, &len);
	require(again != NULL && len == size && memcmp(again, data, len) == 0);
	free(again);
	require(r->n_predict >= 1 && r->n_prompt_ids >= 1 && r->n_stops <= STOP_STRINGS_MAX && sampler_check(&r->sampling, NULL) == OK);
	for (int32_t i = 0; i < r->n_stops; i++)
		require(r->stops[i][0] != '\0' && strlen(r->stops[i]) < STOP_STRING_CAP);
	for (int32_t i = 0; i < r->n_prompt_ids; i++)
		require(r->prompt_ids[i] >= 0);
}

static void decode(const uint8_t *data, size_t size)
{
	struct request_record r;
	struct errmsg em = {0};
	enum err e = request_record_decode(data, size, &r, &em);
	if (e == OK)
		check(&r, data, size);
	else
		require(r.prompt_ids == NULL && em.text[0] != '\0' && (e == ERR_FORMAT || e == ERR_UNSUPPORTED));
	request_record_deinit(&r);
}

static void check_texts(const uint8_t *data, size_t size)
{
	uint8_t id[REQUEST_ID_BYTES];
	char hex[REQUEST_ID_HEX + 1], *text = malloc(size + 1);
	int64_t n = -1;
	require(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	if (request_id_parse(text, id)) {
		request_id_hex(id, hex);
		require(strcmp(hex, text) == 0);
	}
	require(http_api_event_number(text, &n) ? n >= 0 && n <= INT32_MAX : n == -1);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 65536)
		return 0;
	uint8_t *whole = malloc(size + HASH_BYTES); // of its own size: a read past its end is seen
	require(whole != NULL);
	if (size > 0)
		memcpy(whole, data, size);
	crypto_generichash(whole + size, HASH_BYTES, whole, size, NULL, 0);
	decode(data, size);
	decode(whole, size + HASH_BYTES);
	check_texts(data, size);
	free(whole);
	return 0;
}
