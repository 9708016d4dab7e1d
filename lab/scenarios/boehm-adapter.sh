#!/usr/bin/env bash
# Builds the adapter for programs with libgc, which contains libsteward of the release build, and prints where it is.
set -euo pipefail
built=$STEWARD_ROOT/target/boehm
make --silent --directory="$STEWARD_ROOT/adapters/boehm" BUILD="$built" "$built/libsteward-boehm.so" >&2
echo "$built/libsteward-boehm.so"
