// Measured profiles on disk, so that a machine is measured once: a small file for each combination of what the figures depend on, its key.
//
// A key is a line of text: versions of program, arithmetic and operating system's kernel, processor, kernels, threads, the model's shape, and the
// file system that was read. The file (little-endian):
//
//     "HPROBE" u16 version | u16 length, key | u64 unix seconds | u32 threads, best threads, cpus | u64 visit_ns, disk_mmap, disk_direct |
//     u16 length, cpu | u8 n, then each: u8 type, u64 decode, u64 prefill
//
// What is read is checked like what a stranger sends; another version, or another key, is not there. Memory and conditions are not kept: they are read
// anew (probe_refresh). A folder holds at most PROBE_CACHE_FILES of them. Any thread; two writers of one file: the last one wins.
#ifndef HEARTH_ENGINE_PROBE_CACHE_H
#define HEARTH_ENGINE_PROBE_CACHE_H

#include "engine/probe.h"

#include <stddef.h>
#include <stdint.h>

#define PROBE_KEY_CAP 384
#define PROBE_CACHE_FILES 64
#define PROBE_CACHE_BYTES_MAX 1024

// probe_cache_key writes the key of what a probe of this config would measure. version: of this program.
void probe_cache_key(const struct probe_config *c, const char *version, char key[PROBE_KEY_CAP]);

// probe_cache_load: ERR_NOT_FOUND: none with this key. *when_s: unix seconds. It refreshes memory and conditions.
MUST_USE enum err probe_cache_load(const char *folder, const char *key, struct device_profile *out, int64_t *when_s);
// probe_cache_save makes the folder where it is missing.
MUST_USE enum err probe_cache_save(const char *folder, const char *key, const struct device_profile *p, int64_t when_s, struct errmsg *em);

// The file's bytes. Encode returns the length. Decode: ERR_FORMAT; what it does not keep is zero in *out.
size_t probe_cache_encode(const char *key, const struct device_profile *p, int64_t when_s, uint8_t out[PROBE_CACHE_BYTES_MAX]);
MUST_USE enum err probe_cache_decode(const uint8_t *data, size_t len, char key[PROBE_KEY_CAP], struct device_profile *out, int64_t *when_s);

#endif
