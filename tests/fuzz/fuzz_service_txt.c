// Any bytes as TXT records of announcements: decoded or refused, and the list that they make stays bounded and printable.
//
// Input: announcements one after the other, each 19 bytes (interface, flags, instance, address), a byte of length, and the record.
#include "net/found_list.h"

#include "base/utf8.h"
#include "tests/support/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// check_text: a NUL within the room, and nothing that moves a terminal.
static void check_text(const char *text, size_t cap)
{
	require(memchr(text, '\0', cap) != NULL);
	for (const char *c = text; *c != '\0'; c++)
		require((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static void check_list(const struct found_list *l)
{
	struct found_coordinator all[FOUND_SHOWN_MAX];
	uint32_t n = found_list_coordinators(l, all);
	require(l->n <= FOUND_MAX && n <= FOUND_SHOWN_MAX && (n > 0) == (l->n > 0));
	for (uint32_t i = 0; i < n; i++) {
		require(all[i].n_addrs >= 1 && all[i].n_addrs <= ADDRS_MAX);
		check_text(all[i].txt.name, sizeof all[i].txt.name);
		for (uint32_t k = 0; k < all[i].n_addrs; k++) {
			check_text(all[i].addrs[k], ADDR_CAP);
			require(strchr(all[i].addrs[k], ':') != NULL);
		}
	}
}

static void check_record(const struct service_txt *t)
{
	uint8_t again[SERVICE_TXT_MAX];
	struct service_txt back;
	size_t len = service_txt_encode(t, again);
	require(service_txt_decode(again, len, &back) == OK && memcmp(&back, t, sizeof back) == 0);
}

static bool take(struct reader *r, struct found_list *l)
{
	uint8_t raw[FUZZ_RAW_MAX];
	struct found f = {.key.interface = reader_u8(r) % 3, .port = 7433, .interface_name = "wlan0"};
	uint8_t flags = reader_u8(r);
	f.key.is_ipv6 = flags & 1;
	f.is_own = (flags & 2) != 0;
	f.key.instance[0] = (char)('a' + reader_u8(r) % 26);
	const uint8_t *addr = reader_take(r, sizeof f.addr);
	if (addr == NULL)
		return false;
	memcpy(f.addr, addr, sizeof f.addr);
	size_t len = take_raw(r, raw);
	uint8_t *record = exact_copy(raw, len);
	enum err e = service_txt_decode(record, len, &f.txt);
	free(record);
	if (e == OK) {
		check_record(&f.txt);
		found_list_put(l, &f);
	} else {
		found_list_remove(l, &f.key);
	}
	return r->left > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct reader r = reader_init(data, size);
	struct found_list l = {0};
	while (take(&r, &l))
		;
	check_list(&l);
	return 0;
}
