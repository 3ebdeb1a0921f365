#!/bin/sh
# Compiles and runs bench/lnk1_bench.c against the built library: CPU time of a handshake per side, and of records.
set -e
cd "$(dirname "$0")/.."
mkdir -p build/bench
${CC:-gcc} -std=c11 -O3 -D_GNU_SOURCE -I. -o build/bench/lnk1_bench bench/lnk1_bench.c build/libhearth.a -lsodium
exec build/bench/lnk1_bench
