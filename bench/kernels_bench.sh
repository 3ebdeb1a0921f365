#!/bin/sh
# Compiles and runs bench/kernels_bench.c against the built library. Usage: bench/kernels_bench.sh [options of kernels_bench]
set -e
cd "$(dirname "$0")/.."
mkdir -p build/bench
${CC:-gcc} -std=c11 -O3 -D_GNU_SOURCE -I. -ffp-contract=off -o build/bench/kernels_bench bench/kernels_bench.c build/libhearth.a -lm -lpthread
exec build/bench/kernels_bench "$@"
