#!/usr/bin/env bash
# Makes this machine able to build Steward and run its lab: `make setup` calls it.
#
# Installs what is missing and nothing else: Debian packages, a Rust compiler when there is none that is new enough, the
# lab's kernel and QEMU, the crates that Cargo.lock names. When all is there it changes nothing and needs no network and
# no root. Debian 12 and 13 are supported; elsewhere it says what is needed.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { echo "setup: $*"; }
fail() {
    echo "setup: $*" >&2
    exit 1
}
# What the BPF program is built with, what builds libbpf, what builds C, what the virtual machine is made of.
packages=(
    clang-19 llvm-19
    autoconf automake libtool gettext autopoint flex bison gawk pkg-config
    gcc make libc6-dev libgc1
    qemu-system-x86 busybox-static cpio zstd xz-utils e2fsprogs util-linux mount dmsetup
    ca-certificates curl git python3
    tmux # the tests of steward top look at it in a terminal
)
[ "$(id -u)" = 0 ] || packages+=(fakeroot) # so that the guest's files belong to root
room_gib=8 # target, the cache and the packages after `make test` in a fresh clone
rust_needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# as_root COMMAND...: runs it as root, or says how to.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    elif command -v sudo >/dev/null; then
        sudo env DEBIAN_FRONTEND=noninteractive "$@"
    else
        fail "these packages are missing, and there is neither root nor sudo to install them. As root, run:
    apt-get update && apt-get install --yes --no-install-recommends ${missing[*]}"
    fi
}

install_packages() { # install_packages PACKAGE...: those that are missing
    missing=()
    local package
    for package in "$@"; do installed "$package" || missing+=("$package"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        fail "this machine has no apt-get. Install the counterparts of these Debian packages yourself: ${missing[*]}"
    say "installing ${missing[*]}"
    as_root apt-get -q update || fail "apt-get update failed (see above); is there a network?"
    as_root apt-get -q -o Dpkg::Use-Pty=0 install --yes --no-remove --no-install-recommends "${missing[@]}" ||
        fail "apt-get could not install ${missing[*]} without removing other packages (see above)"
}

# rust_version: the version of the cargo in PATH, or nothing. rustup's stand-in for cargo may be there with no toolchain
# behind it.
rust_version() { cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p' || true; }
new_enough() { [ -n "$1" ] && [ "$(printf '%s\n' "$rust_needed" "$1" | sort -V | head -n 1)" = "$rust_needed" ]; }
candidate() { apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([0-9.]*\).*/\1/p'; }

# Debian 13 has a Rust that is new enough under its own name; Debian 12 has one beside its old one, made for building
# browsers.
install_rust() {
    local version
    version=$(rust_version)
    if new_enough "$version"; then
        say "Rust $version is there"
        return
    fi
    say "no Rust $rust_needed or later in PATH${version:+ (found $version)}; looking for Debian's"
    command -v apt-cache >/dev/null || fail "install Rust $rust_needed or later, with rustfmt and clippy, and run this again"
    if [ -z "$(candidate rustc)" ]; then as_root apt-get -q update; fi
    if new_enough "$(candidate rustc)"; then
        install_packages rustc cargo rustfmt rust-clippy
    elif new_enough "$(candidate rustc-web)"; then
        install_packages rustc-web cargo-web rustfmt-web rust-web-clippy
    else
        fail "Debian's Rust here is older than $rust_needed; install a newer one (rustup is the usual way) and run this again"
    fi
    hash -r
    new_enough "$(rust_version)" || fail "installed Debian's Rust, but cargo in PATH ($(command -v cargo)) is still older than $rust_needed"
}

# A build that runs out of disk fails in strange words. What is built already needs no room again.
check_room() {
    local free_mib
    free_mib=$(df --output=avail --block-size=1M . | tail -n 1)
    [ -d target ] || [ "$free_mib" -ge $((room_gib * 1024)) ] ||
        say "WARNING: only $free_mib MiB are free in $root; a first build with all tests and the lab's machines needs about $room_gib GiB"
}

[ "$(uname -m)" = x86_64 ] || fail "the lab's machine is x86_64; this one is $(uname -m). \`make build\` may still work."
check_room
say "checking ${#packages[@]} packages"
install_packages "${packages[@]}"
install_rust
kernel=$(bash lab/machine/kernel.sh) || fail "the lab's kernel could not be had (see above)"
say "the lab's kernel: ${kernel##*/}"
if qemu=$(bash lab/machine/qemu.sh); then
    say "the lab's QEMU: $qemu"
else
    say "WARNING: no QEMU 10 could be had (see above): this machine's own is used, and scenarios of several processors cannot run"
fi
say "the crates in Cargo.lock"
cargo fetch --locked --quiet --offline 2>/dev/null || cargo fetch --locked ||
    fail "cargo could not fetch the crates that Cargo.lock names (see above)"
say "done"
