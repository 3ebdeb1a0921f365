#include "proto/msg.h"

#include "base/bytes.h"
#include "base/utf8.h"

#include <string.h>

bool text_is_plain(const char *text, size_t len)
{
	for (size_t i = 0; i < len;) {
		uint32_t cp = 0;
		size_t n = utf8_decode(text + i, len - i, &cp);
		if (n == 0 || cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
			return false;
		i += n;
	}
	return true;
}

void text_copy(char *out, size_t cap, const char *text)
{
	size_t n = strlen(text);
	if (n >= cap) {
		n = cap - 1;
		while (n > 0 && ((uint8_t)text[n] & 0xc0) == 0x80)
			n--;
	}
	memcpy(out, text, n);
	out[n] = '\0';
}

const char *msg_name(enum msg_type t)
{
	static const char *const names[] = {
		[MSG_HELLO] = "Hello", [MSG_WELCOME] = "Welcome", [MSG_REFUSED] = "Refused", [MSG_PLAN] = "Plan",
		[MSG_LOADED] = "Loaded", [MSG_CANCEL] = "Cancel", [MSG_STEP_FAILED] = "StepFailed", [MSG_PEER_LINK] = "PeerLink",
		[MSG_REVOKED] = "Revoked", [MSG_LEAVING] = "Leaving", [MSG_BYE] = "Bye", [MSG_JOIN_GRANT] = "JoinGrant",
		[MSG_JOIN_ACK] = "JoinAck", [MSG_LINK_RTT] = "LinkRtt", [MSG_NODE_REPORT] = "NodeReport",
		[MSG_PROFILE] = "Profile",
		[MSG_PREPARE] = "Prepare", [MSG_PREPARED] = "Prepared",
	};
	return (size_t)t < ARRAY_LEN(names) && names[t] ? names[t] : "unknown";
}
