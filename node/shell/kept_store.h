// The rows of hidden states that the node core keeps of what it sent (NODE_FX_KEEP, FETCH, DROP): memory and nothing else. What they are, how long
// they live and how much there may be of them is the core's (node/kept.c). Loop's thread.
#ifndef HEARTH_NODE_SHELL_KEPT_STORE_H
#define HEARTH_NODE_SHELL_KEPT_STORE_H

#include "node/node.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kept_entry {
	uint8_t *rows; // owned
	size_t len, cap;
};

struct kept_store {
	struct kept_entry entries[KEPT_MAX]; // zeroed: empty
};

// kept_store_put writes len bytes at byte off, which is at most the end of what is there. Without memory for them the entry is dropped.
void kept_store_put(struct kept_store *k, int32_t entry, size_t off, const uint8_t *data, size_t len);
// kept_store_get reads them. What is not there reads as bytes of all ones: no finite state in any wire type, so that whoever computes with them
// fails instead of going on with something else.
void kept_store_get(const struct kept_store *k, int32_t entry, size_t off, uint8_t *out, size_t len);
void kept_store_drop(struct kept_store *k, int32_t entry);
void kept_store_close(struct kept_store *k);

#endif
