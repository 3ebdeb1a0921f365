#include "net/service_txt.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/printable.h"

#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ID_DIGITS ((size_t)(2 * NODE_ID_BYTES))
#define SUBTYPE_BYTES 8

// add appends "key=value", which fits a byte of length: the longest is the id's.
static void add(struct writer *w, const char *key, const char *value)
{
	size_t len = strlen(key) + 1 + strlen(value);
	ASSERT(len <= UINT8_MAX);
	writer_u8(w, (uint8_t)len);
	writer_bytes(w, key, strlen(key));
	writer_u8(w, '=');
	writer_bytes(w, value, strlen(value));
}

size_t service_txt_encode(const struct service_txt *t, uint8_t out[SERVICE_TXT_MAX])
{
	char text[ID_DIGITS + 1], name[NAME_CAP];
	struct writer w = writer_init(out, SERVICE_TXT_MAX);
	add(&w, "txtvers", "1"); // RFC 6763, 6.7: first
	sodium_bin2hex(text, sizeof text, t->id.b, NODE_ID_BYTES);
	add(&w, "id", text);
	add(&w, "name", printable_copy(t->name, strnlen(t->name, sizeof t->name), name, sizeof name));
	snprintf(text, sizeof text, "%u", t->protocol_version);
	add(&w, "proto", text);
	snprintf(text, sizeof text, "%u", t->canon_version);
	add(&w, "canon", text);
	ASSERT(!w.failed);
	return w.len;
}

// value_of returns the value when the string is "key=value" with this key, whose case does not matter.
static const char *value_of(const char *string, size_t len, const char *key, size_t *value_len)
{
	size_t n = strlen(key);
	if (len <= n || string[n] != '=' || strncasecmp(string, key, n) != 0)
		return NULL;
	*value_len = len - n - 1;
	return string + n + 1;
}

static bool read_id(const char *value, size_t len, struct node_id *out)
{
	size_t n;
	return len == ID_DIGITS && sodium_hex2bin(out->b, NODE_ID_BYTES, value, len, NULL, &n, NULL) == 0 && n == NODE_ID_BYTES && !sodium_is_zero(out->b, n);
}

// read_version: 0 for what is no number, or none that a version could be.
static uint32_t read_version(const char *value, size_t len)
{
	uint32_t v = 0;
	for (size_t i = 0; i < len; i++) {
		if (value[i] < '0' || value[i] > '9' || v > UINT16_MAX)
			return 0;
		v = v * 10 + (uint32_t)(value[i] - '0');
	}
	return v <= UINT16_MAX ? v : 0;
}

struct seen {
	bool id, name, protocol, canon;
};

// take_string: false when an id is none.
static bool take_string(const char *s, size_t len, struct seen *seen, struct service_txt *out)
{
	size_t n;
	const char *value;
	if (!seen->id && (value = value_of(s, len, "id", &n)) != NULL) {
		seen->id = true;
		return read_id(value, n, &out->id);
	}
	if (!seen->name && (value = value_of(s, len, "name", &n)) != NULL) {
		seen->name = true;
		printable_copy(value, n, out->name, sizeof out->name);
	} else if (!seen->protocol && (value = value_of(s, len, "proto", &n)) != NULL) {
		seen->protocol = true;
		out->protocol_version = read_version(value, n);
	} else if (!seen->canon && (value = value_of(s, len, "canon", &n)) != NULL) {
		seen->canon = true;
		out->canon_version = read_version(value, n);
	}
	return true;
}

enum err service_txt_decode(const void *data, size_t len, struct service_txt *out)
{
	struct reader r = reader_init(data, len);
	struct seen seen = {0};
	enum err e = len > SERVICE_TXT_MAX ? ERR_LIMIT : OK;
	*out = (struct service_txt){0};
	for (int i = 0; e == OK && r.left > 0; i++) {
		size_t n = reader_u8(&r);
		const uint8_t *s = reader_take(&r, n);
		if (i == SERVICE_TXT_STRINGS_MAX)
			e = ERR_LIMIT;
		else if (s == NULL || !take_string((const char *)s, n, &seen, out))
			e = ERR_FORMAT;
	}
	if (e == OK && !seen.id)
		e = ERR_FORMAT;
	if (e != OK)
		*out = (struct service_txt){0};
	return e;
}

void service_subtype(const struct node_id *id, char out[SERVICE_SUBTYPE_CAP])
{
	char digits[2 * SUBTYPE_BYTES + 1];
	sodium_bin2hex(digits, sizeof digits, id->b, SUBTYPE_BYTES);
	snprintf(out, SERVICE_SUBTYPE_CAP, "_k%s._sub." SERVICE_TYPE, digits);
}

void fingerprint_text(const struct node_id *id, char out[FINGERPRINT_TEXT_CAP])
{
	const uint8_t *b = id->b;
	snprintf(out, FINGERPRINT_TEXT_CAP, "%02x%02x-%02x%02x-%02x%02x-%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]);
}
