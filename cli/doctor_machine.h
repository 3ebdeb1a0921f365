// What `hearth doctor` thinks of this machine: memory, processors, power, disks, clock, and the directories that Hearth uses. Each check takes facts
// and adds findings, so that a test can show it any machine.
#ifndef HEARTH_CLI_DOCTOR_MACHINE_H
#define HEARTH_CLI_DOCTOR_MACHINE_H

#include "base/disk_facts.h"
#include "base/memory_facts.h"
#include "base/power_facts.h"
#include "cli/doctor_report.h"

#include <stdbool.h>

void doctor_memory(const struct memory_facts *m, struct doctor_report *r);
// doctor_power: processors, clock rates, battery, heat, load. simd: the fastest kernels that run here.
void doctor_power(const struct power_facts *p, int32_t n_cpus, const char *simd, struct doctor_report *r);
// doctor_disk: `what` is kept there ("state", "cache"); bytes_per_s 0: not measured.
void doctor_disk(const char *what, const char *path, const struct disk_facts *d, double bytes_per_s, struct doctor_report *r);
// doctor_clock: is_set by the network (NTP).
void doctor_clock(bool is_set, struct doctor_report *r);
// doctor_clock_offset: by how much this machine's clock is ahead of the coordinator's.
void doctor_clock_offset(double ahead_s, struct doctor_report *r);
// doctor_directory looks at owner, mode and free room of a directory that Hearth uses, or will make.
void doctor_directory(const char *what, const char *path, struct doctor_report *r);

#endif
