#!/usr/bin/env bash
# Builds another project's sched_ext scheduler, as it is published in the crate registry, and prints the path of the
# program. Usage: peer.sh NAME (scx_bpfland, scx_flash or scx_cosmos). Once built it is used without a network.
#
# Everything stays in CACHE/peers: the crates' own lock files are obeyed, nothing is installed on this machine, and of
# Debian's libelf-dev, which they need to be built, a copy is unpacked there.
set -euo pipefail
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${STEWARD_CACHE:-$here/../../.cache}
mkdir -p "$cache/peers" && cache=$(cd "$cache" && pwd)
peers=$cache/peers
# shellcheck source=lab/machine/apt.sh
. "$here/apt.sh"

# The versions that the figures in docs/results.md are of.
version=1.1.4
name=${1:-}
fail() {
    echo "peer.sh: ${name:-?} $version: $*" >&2
    exit 1
}
case $name in
scx_bpfland | scx_flash | scx_cosmos) ;;
*) fail "not a scheduler that is known here: give scx_bpfland, scx_flash or scx_cosmos" ;;
esac
program=$peers/$name-$version/bin/$name
# Two runs that start together build it once.
exec 9>"$peers/lock"
flock 9
if [ -x "$program" ]; then
    echo "$program"
    exit
fi
command -v cargo >/dev/null || fail "there is no cargo to build it with"

development=$peers/libelf
if [ ! -e "$development/complete" ]; then
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    apt_private "$cache/apt/$codename" || fail "no libelf-dev to build it with"
    apt-get "${APT_OPTIONS[@]}" update >&2 || fail "apt-get could not read the suite $codename; is there a network?"
    rm -rf "$development" && mkdir -p "$development/debs"
    (cd "$development/debs" && apt-get "${APT_OPTIONS[@]}" download libelf-dev zlib1g-dev >&2) || fail "downloading libelf-dev failed"
    for deb in "$development"/debs/*.deb; do dpkg-deb -x "$deb" "$development"; done
    # The libraries themselves are this machine's: what is built is brought into the guest with them.
    for library in elf z; do
        own=$(/sbin/ldconfig -p | sed -n "s|.*lib$library\.so\.1 (.*x86-64.*) => ||p" | head -n 1)
        [ -n "$own" ] || fail "this machine has no lib$library.so.1 (packages libelf1, zlib1g)"
        ln -sf "$own" "$development/usr/lib/x86_64-linux-gnu/lib$library.so"
    done
    touch "$development/complete"
fi
clang=${CLANG:-$(command -v clang-19 || command -v clang || true)}
[ -n "$clang" ] || fail "there is no clang to build its BPF program with: \`make setup\` installs clang-19"

echo "Building $name $version (several minutes; the log is $peers/$name.log)" >&2
# What runs in user space hardly matters to a scheduler in the kernel: build it quickly.
if ! env BPF_CLANG="$clang" C_INCLUDE_PATH="$development/usr/include" \
    LIBBPF_SYS_EXTRA_CFLAGS="-I$development/usr/include" \
    RUSTFLAGS="-L native=$development/usr/lib/x86_64-linux-gnu" \
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=false \
    cargo install "$name" --version "=$version" --locked --no-track --root "$peers/$name-$version" \
    --target-dir "$peers/target" >"$peers/$name.log" 2>&1; then
    fail "it could not be built: $(grep -m 1 '^error' "$peers/$name.log" || tail -n 1 "$peers/$name.log"); see $peers/$name.log"
fi
echo "$program"
