// The model that a plan is for: a GGUF file, a shape known by name, or the [model] of a scenario; and the same in another quantisation.
//
// It owns the bytes of its layers; the shape points to them. One thread.
#ifndef HEARTH_SIM_PLAN_MODEL_H
#define HEARTH_SIM_PLAN_MODEL_H

#include "base/err.h"
#include "base/wire_type.h"
#include "model/hparams.h"
#include "partition/cluster.h"
#include "sim/scenario.h"

#include <stdbool.h>
#include <stdint.h>

struct gguf;

struct plan_model {
	char name[NAME_CAP];
	struct model_shape shape;
	int32_t hidden_dim;
	enum wire_type wire;
	bool has_hparams; // false: its bytes were given, not its dimensions
	struct hparams hp;
	uint64_t *bytes_of_layer; // owned: (n_layers); NULL: all are equal
};

// plan_model_of_gguf takes each layer's bytes as they are in the file. ERR_LIMIT, ERR_UNSUPPORTED, ERR_FORMAT: what hparams_read says; ERR_NOT_FOUND:
// it has no output head.
MUST_USE enum err plan_model_of_gguf(const char *name, const struct gguf *g, enum wire_type wire, struct plan_model *out, struct errmsg *em);
// plan_model_of_name finds a known shape, "llama-3.1-8b" or "8B"; all matrices have one type, but for a head of q6_k with the K types below that.
// ERR_NOT_FOUND names the nearest. `type` NULL: q4_k, or q4_0 where rows are no whole blocks of 256.
MUST_USE enum err plan_model_of_name(const char *name, const char *type, enum wire_type wire, struct plan_model *out, struct errmsg *em);
// plan_model_of_scenario copies the model of a scenario, which must have one.
MUST_USE enum err plan_model_of_scenario(const struct scenario *s, struct plan_model *out, struct errmsg *em);
void plan_model_close(struct plan_model *m); // safe on a zeroed struct

// plan_model_in_type is the shape with other weights: computed from the dimensions where they are known, else scaled by the types' bits. It
// owns nothing. ERR_RANGE: rows that are no whole blocks of that type.
MUST_USE enum err plan_model_in_type(const struct plan_model *m, enum dtype type, struct model_shape *out, struct errmsg *em);
// plan_model_type finds a weight type that the kernels compute with by its name. ERR_NOT_FOUND lists them.
MUST_USE enum err plan_model_type(const char *name, enum dtype *out, struct errmsg *em);

// The known names, "llama-3.1-8b": plan_model_name(0) to plan_model_name(n_plan_models() - 1).
size_t n_plan_models(void);
const char *plan_model_name(size_t i);

#endif
