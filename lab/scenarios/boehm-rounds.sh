#!/usr/bin/env bash
# Builds the benchmark of programs with libgc, which needs libgc1 on this machine, and prints where it is.
set -euo pipefail
built=$STEWARD_ROOT/target/boehm
make --silent --directory="$STEWARD_ROOT/adapters/boehm" BUILD="$built" "$built/rounds" >&2
echo "$built/rounds"
