#!/usr/bin/env bash
# Runs every fuzz target for its part of FUZZ_SECONDS (600), and ends with 1 if one found something.
# What was found is in fuzz/artifacts; `cargo +nightly fuzz run TARGET FILE` shows it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
targets=(api_messages api_calls control_files specifications rules)
seconds=$((${FUZZ_SECONDS:-600} / ${#targets[@]}))

rustup run nightly rustc --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
cargo +nightly fuzz build

failed=()
for target in "${targets[@]}"; do
    options=(-max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1)
    seeds=()
    case $target in
    api_messages) options+=(-dict=dictionaries/api.dict) ;;
    rules) options+=(-dict=dictionaries/rules.dict) seeds=(../crates/steward-core/src/authority) ;;
    specifications) seeds=(../specs) ;;
    esac
    mkdir -p "corpus/$target"
    echo "== $target: $seconds s"
    # Progress goes to a file: a line for every new input is of no use to people.
    if cargo +nightly fuzz run "$target" "corpus/$target" "${seeds[@]}" -- "${options[@]}" >"target/$target.log" 2>&1; then
        grep -E '^(Done|stat::average)' "target/$target.log"
    else
        tail -n 40 "target/$target.log"
        failed+=("$target")
    fi
done
[ ${#failed[@]} -eq 0 ] || {
    echo "make fuzz: ${failed[*]} found something: see fuzz/artifacts" >&2
    exit 1
}
