#!/bin/sh
# The solver against brute force on 10,000 small random clusters (and 2,000 whose layers differ in size); some minutes. Exit code 1: fewer than 99.8 %
# of the former are equal, or one is more than 10 % slower.
set -e
cd "$(dirname "$0")/.."
make -s build/tests/partition/test_solve_brute
exec build/tests/partition/test_solve_brute "${1:-10000}" "${2:-3}"
