// One member's part of a forward in a tensor-parallel group: an engine that was opened with a split computes from one exchange to the next, and its
// caller carries what members owe each other. Bytes in and out, no link, no other engine.
//
//   member_begin, then member_compute again and again: while it says that the engine waits, member_export gives this member's contribution to
//   each other one, and member_import takes each of theirs; when all are there, member_compute goes on. At its end every member holds the
//   same hidden states.
//
// Errors as in engine/engine.h: what a token of one item cannot carry fails that item, and its part travels all the same, so that members stay
// together. A value that a contribution must not have fails the whole call (ERR_FORMAT), as does its length.
#ifndef HEARTH_ENGINE_MEMBER_H
#define HEARTH_ENGINE_MEMBER_H

#include "engine/engine.h"

// Where a forward waits.
struct member_exchange {
	int32_t layer;
	enum split_exchange kind;
	int32_t hop; // of a ring's round, from 0; else 0
};

// member_use says which of n_forwards the calls below are about: while one waits, another one can be computed. One that uses the same slots as an older one
// is member_begin_behind it: it computes a layer when the older one has, ends after it, and fails where that does (ERR_RANGE). Bits depend on no order.
void member_use(struct engine *e, int32_t forward);
// member_begin checks the items as engine_forward_layers does; they and their hidden states stay in place until the forward has ended. A new one forgets
// an unfinished one of its number, and those of its slots, whose positions count as not computed.
MUST_USE enum err member_begin_behind(struct engine *e, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n_items, struct errmsg *em);
MUST_USE enum err member_begin(struct engine *e, int32_t layer_begin, int32_t layer_end, struct engine_item *items, int32_t n_items, struct errmsg *em);
// member_compute computes up to the next exchange (*waits, *at), or to the end, and then returns what engine_forward_layers would.
// Another error than those of a value (ERR_NON_FINITE) ends the forward before its time, for this member.
MUST_USE enum err member_compute(struct engine *e, bool *waits, struct member_exchange *at, struct errmsg *em);
// member_has_failed tells whether a value of an item could not be carried so far. Not every member need see it: keys and values are each one's own.
bool member_has_failed(const struct engine *e, int32_t item);
// member_bytes returns what a member contributes to the exchange that is waited for, to another one; 0: nothing, and no message is due. Only with
// nodes, and in a ring, does it depend on `to`.
size_t member_bytes(const struct engine *e, int32_t from, int32_t to);
// member_bytes_max bounds what a member exports in any exchange of n tokens.
size_t member_bytes_max(const struct engine *e, int32_t n_tokens);
// member_export writes what this member contributes, and says what of it is for whom (to: one for each member; its own is nothing). member_import
// takes what another one contributed.
void member_export(struct engine *e, uint8_t *out, struct split_sent *to);
MUST_USE enum err member_import(struct engine *e, int32_t from, const uint8_t *bytes, size_t len, struct errmsg *em);

#endif
