#!/usr/bin/env bash
# Runs the tests that boot the machine (`make test-kernel`), two at a time, and says at the end what each cost: seconds
# of the host's CPU, which depend little on what else the host does, and seconds. Arguments are parts of names: only
# those tests run. What a test prints is shown when it fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# In one build: the tests, and what they bring into the machine.
cargo build --workspace --all-targets --locked
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

# The programs with tests: for each its crate's directory, in which cargo would run it, and its path.
programs() {
    cargo test --workspace --tests --locked --no-run --quiet --message-format json |
        sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*|\1 \2|p' |
        sort
}

# How the names of the tests begin that take the CPU for more than a minute. They come first, so that none of them is
# left over at the end, when there is no other to run beside it.
long='faults:: shares_ disk::a_ promises_ rules_ what_stands disk::interactive background_ systemd:: stall:: fits:: pinned_'

# For each test: the directory, the program, and the name.
tests() {
    while read -r directory program; do
        "$program" --ignored --list --format terse "$@" | sed -n "s|^\(.*\): test\$|$directory $program \1|p"
    done | awk -v long="$long" '
        BEGIN { count = split(long, begins, " ") }
        { rank = 1; while (rank <= count && index($3, begins[rank]) != 1) rank++; print rank, $0 }' |
        sort -s -n -k 1,1 | cut -d ' ' -f 2-
}

# Runs one test, and notes its cost.
run_one() {
    local directory=$1 program=$2 name=$3 outcome=ok TIMEFORMAT='%U %S %R'
    local result=$results/${program##*/}.$name
    cd "$directory"
    { time "$program" --ignored --exact "$name" --nocapture >"$result.log" 2>&1; } 2>"$result.time" || outcome=FAILED
    awk -v outcome="$outcome" -v name="$name" '{ printf "%5.0f %5.0f  %s %s\n", $1 + $2, $3, outcome, name }' \
        "$result.time" | tee "$result.line"
    [ $outcome = ok ] || sed 's/^/    /' "$result.log"
}
export results
export -f run_one

echo "CPU s     s"
programs | tests "$@" | xargs -r -P 2 -L 1 bash -c 'run_one "$@"' run_one
compgen -G "$results/*.line" >/dev/null || { echo "no kernel test has such a name: $*" >&2; exit 1; }
echo "CPU s     s  from the longest to the shortest"
sort -rn "$results"/*.line
! grep -q FAILED "$results"/*.line
