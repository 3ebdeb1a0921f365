// Prints nothing; writes one seed per control message into the folder given: make the corpus of fuzz_msg anew with it.
#include "tests/support/msg_samples.h"

#include <stdio.h>

int main(int argc, char *argv[])
{
	for (int t = MSG_HELLO; argc == 2 && t <= MSG_PREPARED; t++) {
		char path[512];
		struct msg m;
		uint8_t frame[MSG_ENCODED_MAX];
		msg_sample((enum msg_type)t, &m);
		size_t len = msg_encode(&m, frame);
		snprintf(path, sizeof path, "%s/%s", argv[1], msg_name((enum msg_type)t));
		FILE *f = fopen(path, "wb");
		if (f == NULL || fwrite(frame, 1, len, f) != len || fclose(f) != 0)
			return 1;
	}
	return argc == 2 ? 0 : 2;
}
