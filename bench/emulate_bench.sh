#!/bin/sh
# What `hearth emulate` adds to the links it emulates, and how much it carries: compiles and runs bench/emulate_bench.c.
set -e
cd "$(dirname "$0")/.."
mkdir -p build/bench
${CC:-gcc} -std=c11 -O2 -D_GNU_SOURCE -I. -o build/bench/emulate_bench bench/emulate_bench.c -lpthread
exec build/bench/emulate_bench build/bin/hearth
