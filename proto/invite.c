// The invite URL. The base64 codec is libsodium's, which runs in constant time: the payload is secret.
#include "proto/invite.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "proto/lnk1_symmetric.h"

#define SCHEME "hearth://"
#define MIDDLE "/join/"
#define VERSION "1"
#define CHECK_LEN 4
#define PAYLOAD_LEN (LNK1_KEY_LEN + LNK1_TOKEN_ID_LEN + LNK1_KEY_LEN + 8 + CHECK_LEN)
#define PAYLOAD_CHARS sodium_base64_ENCODED_LEN(PAYLOAD_LEN, sodium_base64_VARIANT_URLSAFE_NO_PADDING)

_Static_assert(PAYLOAD_LEN == 84, "the format of invite.h");
_Static_assert(
	sizeof SCHEME + ADDRS_MAX * ADDR_CAP + sizeof MIDDLE + 2 + PAYLOAD_CHARS <= INVITE_URL_CAP, "the longest URL fits");

static void make_check(const uint8_t *payload, uint8_t check[CHECK_LEN])
{
	static const char label[] = "hearth invite 1";
	crypto_generichash_state st;
	uint8_t hash[LNK1_KEY_LEN];
	crypto_generichash_init(&st, NULL, 0, sizeof hash);
	crypto_generichash_update(&st, (const uint8_t *)label, sizeof label - 1);
	crypto_generichash_update(&st, payload, PAYLOAD_LEN - CHECK_LEN);
	crypto_generichash_final(&st, hash, sizeof hash);
	memcpy(check, hash, CHECK_LEN);
	sodium_memzero(&st, sizeof st);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_name_char(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}

// is_host: a name, an IPv4 address, or [hex digits, colons, dots and a %zone].
static bool is_host(const char *text, size_t len)
{
	if (len == 0)
		return false;
	bool bracketed = text[0] == '[';
	if (bracketed && (len < 4 || text[len - 1] != ']'))
		return false;
	bool in_zone = false;
	for (size_t i = bracketed; i < len - bracketed; i++) {
		char c = text[i];
		in_zone = in_zone || (bracketed && c == '%');
		bool ok = !bracketed ? is_name_char(c)
			: in_zone    ? is_name_char(c) || c == '%'
				     : is_hex(c) || c == ':' || c == '.';
		if (!ok)
			return false;
	}
	return true;
}

// is_port: 1 to 65535, no leading zero.
static bool is_port(const char *text, size_t len)
{
	if (len == 0 || len > 5 || text[0] == '0')
		return false;
	uint32_t port = 0;
	for (size_t i = 0; i < len; i++) {
		if (!is_digit(text[i]))
			return false;
		port = 10 * port + (uint32_t)(text[i] - '0');
	}
	return port <= UINT16_MAX;
}

static bool is_addr(const char *text, size_t len)
{
	const char *colon = len < ADDR_CAP ? memrchr(text, ':', len) : NULL;
	if (!colon)
		return false;
	size_t host_len = (size_t)(colon - text);
	return is_host(text, host_len) && is_port(colon + 1, len - host_len - 1);
}

// check_fields: what encode and parse refuse alike.
static enum err check_fields(const struct invite *in, struct errmsg *em)
{
	if (!lnk1_point_in_range(in->server_pk) || sodium_is_zero(in->server_pk, LNK1_KEY_LEN))
		return errmsg_fail(em, ERR_RANGE, "invite: not a public key");
	if (sodium_is_zero(in->token_id, LNK1_TOKEN_ID_LEN))
		return errmsg_fail(em, ERR_RANGE, "invite: token id is zero");
	if (in->n_addrs > ADDRS_MAX)
		return errmsg_fail(em, ERR_RANGE, "invite: %u addresses (want at most %d)", in->n_addrs, ADDRS_MAX);
	for (uint32_t i = 0; i < in->n_addrs; i++) {
		if (!is_addr(in->addrs[i], strnlen(in->addrs[i], ADDR_CAP)))
			return errmsg_fail(em, ERR_RANGE, "invite: address %u is not host:port", i + 1);
	}
	return OK;
}

enum err invite_encode(const struct invite *in, char url[INVITE_URL_CAP], struct errmsg *em)
{
	url[0] = '\0';
	enum err e = check_fields(in, em);
	if (e != OK)
		return e;
	uint8_t payload[PAYLOAD_LEN];
	struct writer p = writer_init(payload, sizeof payload);
	writer_bytes(&p, in->server_pk, LNK1_KEY_LEN);
	writer_bytes(&p, in->token_id, LNK1_TOKEN_ID_LEN);
	writer_bytes(&p, in->token_secret, LNK1_KEY_LEN);
	writer_u64(&p, in->expiry_s);
	make_check(payload, payload + p.len);

	// The static assertion above says that all of it fits.
	struct writer w = writer_init(url, INVITE_URL_CAP);
	writer_bytes(&w, SCHEME, sizeof SCHEME - 1);
	for (uint32_t i = 0; i < in->n_addrs; i++) {
		if (i > 0)
			writer_u8(&w, ',');
		writer_bytes(&w, in->addrs[i], strlen(in->addrs[i]));
	}
	writer_bytes(&w, MIDDLE VERSION "/", sizeof MIDDLE VERSION "/" - 1);
	sodium_bin2base64(url + w.len, INVITE_URL_CAP - w.len, payload, sizeof payload, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	sodium_memzero(payload, sizeof payload);
	return OK;
}

// What is left of the text; parts are taken from its front.
struct text {
	const char *at;
	size_t left;
};

static bool skip(struct text *t, const char *what)
{
	size_t len = strlen(what);
	if (t->left < len || memcmp(t->at, what, len) != 0)
		return false;
	t->at += len;
	t->left -= len;
	return true;
}

// until takes what stands before `stop`, and `stop` too.
static bool until(struct text *t, char stop, struct text *part)
{
	const char *end = memchr(t->at, stop, t->left);
	if (!end)
		return false;
	*part = (struct text){t->at, (size_t)(end - t->at)};
	t->left -= part->left + 1;
	t->at = end + 1;
	return true;
}

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct text trim(const char *text, size_t len)
{
	while (len > 0 && is_space(text[len - 1]))
		len--;
	while (len > 0 && is_space(text[0])) {
		text++;
		len--;
	}
	return (struct text){text, len};
}

static enum err parse_addrs(struct text list, struct invite *out, struct errmsg *em)
{
	for (bool more = list.left > 0; more;) {
		struct text addr = list;
		more = until(&list, ',', &addr);
		if (out->n_addrs == ADDRS_MAX)
			return errmsg_fail(em, ERR_LIMIT, "invite: more than %d addresses", ADDRS_MAX);
		if (!is_addr(addr.at, addr.left))
			return errmsg_fail(em, ERR_FORMAT, "invite: address %u is not host:port", out->n_addrs + 1);
		memcpy(out->addrs[out->n_addrs++], addr.at, addr.left);
	}
	return OK;
}

static enum err parse_payload(struct text t, struct invite *out, struct errmsg *em)
{
	uint8_t payload[PAYLOAD_LEN], check[CHECK_LEN];
	size_t len = 0;
	enum err e = OK;
	if (t.left != PAYLOAD_CHARS - 1)
		return errmsg_fail(em, ERR_FORMAT, "invite: the part after the last / has %zu characters (want %zu): was it cut?",
			t.left, (size_t)PAYLOAD_CHARS - 1);
	if (sodium_base642bin(
		    payload, sizeof payload, t.at, t.left, NULL, &len, NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
		len != sizeof payload) {
		e = errmsg_fail(em, ERR_FORMAT, "invite: the part after the last / holds a character it cannot");
	} else {
		make_check(payload, check);
		if (sodium_memcmp(check, payload + PAYLOAD_LEN - CHECK_LEN, CHECK_LEN) != 0)
			e = errmsg_fail(em, ERR_FORMAT, "invite: a character is wrong (the check does not fit)");
	}
	if (e == OK) {
		struct reader r = reader_init(payload, sizeof payload);
		memcpy(out->server_pk, reader_take(&r, LNK1_KEY_LEN), LNK1_KEY_LEN);
		memcpy(out->token_id, reader_take(&r, LNK1_TOKEN_ID_LEN), LNK1_TOKEN_ID_LEN);
		memcpy(out->token_secret, reader_take(&r, LNK1_KEY_LEN), LNK1_KEY_LEN);
		out->expiry_s = reader_u64(&r);
	}
	sodium_memzero(payload, sizeof payload);
	return e;
}

static enum err parse(struct text t, struct invite *out, struct errmsg *em)
{
	struct text addrs, version;
	if (t.left > INVITE_URL_MAX)
		return errmsg_fail(em, ERR_LIMIT, "invite: %zu characters (want at most %d)", t.left, INVITE_URL_MAX);
	if (!skip(&t, SCHEME))
		return errmsg_fail(em, ERR_FORMAT, "invite: does not begin with " SCHEME);
	if (!until(&t, '/', &addrs) || !skip(&t, &MIDDLE[1]) || !until(&t, '/', &version))
		return errmsg_fail(em, ERR_FORMAT, "invite: not of the form " SCHEME "HOST:PORT" MIDDLE VERSION "/...");
	if (version.left != sizeof VERSION - 1 || memcmp(version.at, VERSION, version.left) != 0)
		return errmsg_fail(
			em, ERR_UNSUPPORTED, "invite: format version is not " VERSION ": made by another version of hearth");
	enum err e = parse_addrs(addrs, out, em);
	if (e == OK)
		e = parse_payload(t, out, em);
	if (e == OK && check_fields(out, em) != OK)
		e = ERR_FORMAT;
	return e;
}

enum err invite_parse(const char *text, size_t len, struct invite *out, struct errmsg *em)
{
	memset(out, 0, sizeof *out);
	enum err e = parse(trim(text, len), out, em);
	if (e != OK)
		invite_wipe(out);
	return e;
}

bool invite_is_expired(const struct invite *in, uint64_t now_s)
{
	return now_s >= in->expiry_s;
}

void invite_wipe(struct invite *in)
{
	sodium_memzero(in, sizeof *in);
}
