// How fast a disk gives weights, measured with the readers that will read them (engine/weight_reader): for engine/probe and `hearth doctor`.
//
// Reads pieces of a model file that are spread over it, are no holes and in nobody's memory; where there is no such file or no such piece, a file of
// its own, which has no name, in a folder.
#ifndef HEARTH_ENGINE_PROBE_DISK_H
#define HEARTH_ENGINE_PROBE_DISK_H

#include "engine/weight_reader.h"

#include <stdint.h>

// probe_disk_measure returns bytes/s; 0: it cannot be measured. `files` may be NULL, and `folder`. About 0.2 s, and up to half a second more when a file
// has to be written first.
double probe_disk_measure(enum weight_way way, const struct weight_files *files, const char *folder);

#endif
