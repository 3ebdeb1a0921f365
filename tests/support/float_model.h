// A model with its weights as f16: what it computes is not rounded to 8 bits on the way, so that small differences stay small.
#ifndef HEARTH_TESTS_SUPPORT_FLOAT_MODEL_H
#define HEARTH_TESTS_SUPPORT_FLOAT_MODEL_H

#include "model/model.h"

// float_model_write writes a llama without experts, biases and vocabulary to a file; what fails aborts.
// keeps_o: o keeps its type, so that lanes of its sum can be dealt (f16 has none of whole heads).
void float_model_write(const struct model *m, bool keeps_o, const char *path);

#endif
