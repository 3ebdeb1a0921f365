// The words of `hearth serve --place`: who holds which layers, by name, in one chain or several.
//
//     a=15,b=15            one chain: a has layers 0 to 14, b those from 15 on
//     a=15,b=15/c=20,d=10  two chains, each with every layer
//     a=15,b:3+c:1=15      b and c share each of the last 15 layers: three parts of four are b's. Without numbers they have equal parts
//
//     b:3+c:1*+d=15        c passes on what the others of its group send, where it has the best links; not with a mode that has sums
//
// A name is a node's own (--name) or its host's; the node beside the coordinator has the coordinator's. One thread.
#ifndef HEARTH_CLI_PLACEMENT_WORDS_H
#define HEARTH_CLI_PLACEMENT_WORDS_H

#include "base/err.h"
#include "coordinator/coordinator.h"

#include <stdint.h>

struct placement_words {
	int32_t n_chains, n_stages, n_members; // of all chains
	struct placed_chain chains[CHAINS_MAX];
	struct placed_stage stages[SWARM_NODES_MAX];   // the first chain's, then the second's ...
	struct placed_member members[SWARM_NODES_MAX]; // the first stage's, then the second's ...
};

// placement_words_parse checks that each chain holds n_layers and that nobody is named twice. The caller frees *out. ERR_FORMAT, ERR_RANGE, ERR_LIMIT, ERR_NOMEM.
MUST_USE enum err placement_words_parse(const char *text, int32_t n_layers, struct placement_words **out, struct errmsg *em);
// placement_words_hub names the group's machine of the first star; NULL: there is none.
const char *placement_words_hub(const struct placement_words *w);
// placement_words_find returns how many layers a machine is given, alone or with others; 0: it is not named.
int32_t placement_words_find(const struct placement_words *w, const char *name);

#endif
