// One valid control message of each type, for tests and fuzz seeds.
#ifndef HEARTH_TESTS_SUPPORT_MSG_SAMPLES_H
#define HEARTH_TESTS_SUPPORT_MSG_SAMPLES_H

#include "proto/msg.h"

// msg_sample fills a message of the given type with values that all differ from zero.
void msg_sample(enum msg_type type, struct msg *out);

#endif
