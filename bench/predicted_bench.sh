#!/bin/sh
# What `hearth sim run` predicts against what real processes behind `hearth emulate` take: compiles bench/calibrate.c, runs bench/predicted_bench.py.
set -e
cd "$(dirname "$0")/.."
mkdir -p build/bench
${CC:-gcc} -std=c11 -O2 -D_GNU_SOURCE -I. -o build/bench/calibrate bench/calibrate.c build/libhearth.a -lpcre2-8 -lsodium -lpthread -lm
python=build/venv/bin/python
[ -x $python ] || python=python3
exec $python bench/predicted_bench.py "$@"
