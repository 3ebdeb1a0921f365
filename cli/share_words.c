#include "cli/share_words.h"

#include <string.h>

#define DIGITS_MAX 7 // SHARE_MAX has so many

static const char *read_share(const char *at, uint32_t *out)
{
	size_t n = strspn(at, "0123456789");
	*out = 0;
	for (size_t i = 0; i < n && i <= DIGITS_MAX; i++)
		*out = *out * 10 + (uint32_t)(at[i] - '0');
	return n > 0 && n <= DIGITS_MAX && *out <= SHARE_MAX ? at + n : NULL;
}

enum err share_words_parse(const char *flag, const char *text, uint32_t shares[GROUP_MEMBERS_MAX], int32_t *n, struct errmsg *em)
{
	const char *at = text;
	uint32_t sum = 0;
	*n = 0;
	for (;; at++) {
		if (*n == GROUP_MEMBERS_MAX)
			return errmsg_fail(em, ERR_FORMAT, "%s: \"%.60s\" has more than %d shares", flag, text, GROUP_MEMBERS_MAX);
		at = read_share(at, &shares[*n]);
		if (at == NULL)
			return errmsg_fail(em, ERR_FORMAT, "%s: \"%.60s\" is no list of shares such as 3:2:1 (each 0 to %d)", flag, text, SHARE_MAX);
		sum += shares[(*n)++];
		if (*at != ':')
			break;
	}
	if (*at != '\0')
		return errmsg_fail(em, ERR_FORMAT, "%s: \"%.60s\" is no list of shares such as 3:2:1 (each 0 to %d)", flag, text, SHARE_MAX);
	if (*n < 2 || sum == 0)
		return errmsg_fail(em, ERR_FORMAT, "%s: \"%.60s\" shares nothing (want two members or more, and a share that is not 0)", flag, text);
	return OK;
}
