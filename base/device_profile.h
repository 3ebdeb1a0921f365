// What a machine can do, as measured (engine/probe): how fast it decodes and reads prompts per weight type, what memory and disk it has, and
// how it was when it was measured. What `hearth probe` prints, a node tells its coordinator (proto: Profile), and the planner is given.
//
// Whole numbers in bytes, bytes/s, FLOP/s and nanoseconds; a figure that is 0 was not measured. Pure.
#ifndef HEARTH_BASE_DEVICE_PROFILE_H
#define HEARTH_BASE_DEVICE_PROFILE_H

#include "base/dtype.h"
#include "base/err.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define PROFILE_RATES_MAX 16                        // weight types of one profile; 12 have kernels
#define PROFILE_RATE_MAX UINT64_C(1000000000000000) // bytes/s or FLOP/s, as partition/cluster.h has it
#define PROFILE_BYTES_MAX (UINT64_C(1) << 50)       // of one memory, likewise
#define PROFILE_VISIT_NS_MAX UINT64_C(60000000000)  // nobody's engine needs a minute to begin
#define PROFILE_HEAT_MAX 200000                     // thousandths of a degree: above it a sensor lies
#define PROFILE_LOAD_MAX 100000000                  // thousandths of a running task
#define PROFILE_CPU_CAP 64

struct device_rate {
	enum dtype type;
	uint64_t decode_bps;    // weight bytes/s of one token's products, over memory larger than the caches
	uint64_t prefill_flops; // FLOP/s of a long prompt's products
};

// Which of the conditions the system told.
enum {
	PROFILE_HAS_BATTERY = 1 << 0,
	PROFILE_HAS_HEAT = 1 << 1,
	PROFILE_HAS_LOAD = 1 << 2,
	PROFILE_HAS_PRESSURE = 1 << 3,
	PROFILE_CONDITIONS = (1 << 4) - 1,
};

struct device_conditions {
	uint32_t has;              // PROFILE_HAS_ bits; what is not there is 0
	bool on_battery;           // no mains
	uint32_t battery_percent;
	uint32_t heat_mc;          // the hottest sensor, thousandths of a degree Celsius
	uint32_t load_milli;       // running tasks over a minute, in thousandths; Hearth's own among them
	uint32_t cpu_pressure;     // of the last ten seconds, in hundredths of a percent: some task waited for a CPU
	uint32_t memory_pressure;  // likewise, for memory
};

struct device_profile {
	char cpu[PROFILE_CPU_CAP]; // its model, for a person
	uint32_t n_threads;        // the rates are with so many threads: those the node computes with, or the best
	uint32_t n_threads_best;   // 0: not measured
	uint32_t n_cpus;           // that the process may use
	uint64_t visit_ns;         // fixed cost of one visit of the engine
	uint64_t memory_bytes;     // of the machine
	uint64_t available_bytes;  // of it, for a new program
	uint64_t cap_bytes;        // what Hearth may take: its cap, else what was available; 0: nobody said
	uint64_t reserved_bytes;   // of that, for everything but weights and the KV cache
	uint64_t disk_mmap_bps;    // reading weights as they will be read; 0: not measured, or there is nothing to read from
	uint64_t disk_direct_bps;
	uint32_t reader;           // which of the two is used: 1: mmap, 2: direct, 0: the faster
	int32_t n_rates;
	struct device_rate rates[PROFILE_RATES_MAX]; // each type once; first that of most of the model's weights, where a model was given
	struct device_conditions at; // the conditions when this was sent or printed
};

// device_profile_check refuses what no machine has, naming the figure. ERR_RANGE.
MUST_USE enum err device_profile_check(const struct device_profile *p, struct errmsg *em);
// device_profile_find returns the rates of a type, or NULL.
const struct device_rate *device_profile_find(const struct device_profile *p, enum dtype type);
// device_profile_reads_direct tells whether weights that do not fit are read past the page cache, into memory of the program's own.
bool device_profile_reads_direct(const struct device_profile *p);
// device_profile_disk_bps returns the rate of the reader that is used.
uint64_t device_profile_disk_bps(const struct device_profile *p);

#endif
