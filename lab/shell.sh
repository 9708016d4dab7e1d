#!/usr/bin/env bash
# Runs shell commands in the lab's machine and prints what they print: lab/shell.sh 'uname -r; ls /sys/kernel/sched_ext'
# Options (see lab/machine/examples/boot.rs): --cpus N, --memory MIB, --disk MIB, --icount SHIFT, --package NAME, --file
# HOST:GUEST, --kernel debian|host|PATH, --modules DIR, --timeout SECONDS, --console FILE.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cargo build --quiet --manifest-path "$root/Cargo.toml" -p steward-machine --example boot
exec "${CARGO_TARGET_DIR:-$root/target}/debug/examples/boot" "$@"
