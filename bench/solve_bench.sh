#!/bin/sh
# How long planning takes (processor time of one thread), and how far from its bound each plan is: compiles and runs bench/solve_bench.c.
set -e
cd "$(dirname "$0")/.."
make -s all
mkdir -p build/bench
${CC:-gcc} -std=c11 -O2 -D_GNU_SOURCE -I. -Wl,--gc-sections -o build/bench/solve_bench bench/solve_bench.c build/libhearth.a -lsodium -lm
exec build/bench/solve_bench
