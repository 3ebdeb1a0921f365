// The words of a running relay: command lines in, one line of JSON out; and events as lines of JSON.
//
//   cut A B [reset|blackhole|oneway]   B may be *: everything that passes A. Without a kind: reset. oneway: A is not heard by B.
//   heal A B     ends cuts and slowness of exactly that pair (or of A, with *);  heal alone: of everything
//   slow A B FACTOR                    rates divided, delays multiplied; 1 is as before
//   freeze A [B] SECONDS               what is sent from now on arrives when that is over, together
//   status
//   help
//
// An answer is {"ok": true, "text": ..., ...} or {"ok": false, "error": ...}. `text` is for a person and may have several lines.
// Lines come from whoever may open the control socket; they are checked as if from anybody.
#ifndef HEARTH_SIM_SHELL_EMULATE_WORDS_H
#define HEARTH_SIM_SHELL_EMULATE_WORDS_H

#include "sim/shell/emulate.h"

#include <stddef.h>

#define EMULATE_LINE_MAX 256 // bytes of a command

// emulate_words_do carries out a command; returns the answer, without a line end, which the caller frees. NULL: no memory.
char *emulate_words_do(struct emulate *e, const char *line, size_t len);
// emulate_words_event returns an event as a line of JSON, which the caller frees; wall_ms is the time of day since 1970. NULL: no memory.
char *emulate_words_event(const struct topology *t, const struct emulate_event *ev, int64_t wall_ms);
// emulate_words_addresses returns the addresses of the devices and of all pairs, as JSON, in the same way.
char *emulate_words_addresses(const struct topology *t);

#endif
