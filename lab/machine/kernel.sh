#!/usr/bin/env bash
# Finds the lab's kernel and prints the directory that holds it: CACHE/kernel/VERSION, with vmlinuz, lib/modules/VERSION
# and include/ (vmlinux.h). Debian's newest cloud kernel with sched_ext comes from its backports; once fetched it is
# used without a network. `kernel.sh --update` looks for a newer one.
#
# Environment: STEWARD_CACHE (default .cache in the repository), STEWARD_KERNEL_SUITE (default trixie-backports).
set -euo pipefail
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${STEWARD_CACHE:-$here/../../.cache}
mkdir -p "$cache/kernel" && cache=$(cd "$cache" && pwd)
suite=${STEWARD_KERNEL_SUITE:-trixie-backports}
meta=linux-image-cloud-amd64
# shellcheck source=lab/machine/apt.sh
. "$here/apt.sh"

newest() { find "$cache/kernel" -mindepth 2 -maxdepth 2 -name complete -printf '%h\n' | sort -V | tail -n 1; }
fail() {
    echo "kernel.sh: $*" >&2
    exit 1
}

# Two runs that start together fetch it once.
exec 9>"$cache/kernel/lock"
flock 9
present=$(newest)
if [ -n "$present" ] && [ "${1:-}" != --update ]; then
    echo "$present"
    exit
fi

echo "Looking for the newest kernel with sched_ext ($meta in $suite)" >&2
apt_private "$cache/apt/$suite" "$suite"
apt-get "${APT_OPTIONS[@]}" update >&2 || fail "apt-get could not read the suite $suite; is there a network?"

# The meta package names linux-image-VERSION; the kernel proper and its modules are in packages of the same version.
version=$(apt-cache "${APT_OPTIONS[@]}" depends "$meta" | sed -n 's/^ *Depends: linux-image-\(.*\)$/\1/p' | head -n 1)
[ -n "$version" ] || fail "the package $meta of $suite names no kernel; see: apt-cache depends $meta"
directory=$cache/kernel/$version
if [ -e "$directory/complete" ]; then
    echo "$directory"
    exit
fi
packages=()
for package in "linux-binary-$version" "linux-modules-$version" "linux-image-$version-unsigned" linux-bpf-dev; do
    apt-cache "${APT_OPTIONS[@]}" show "$package" >/dev/null 2>&1 && packages+=("$package")
done

echo "Fetching kernel $version: ${packages[*]}" >&2
rm -rf "$directory.new" && mkdir -p "$directory.new/debs" "$directory.new/root"
(cd "$directory.new/debs" && apt-get "${APT_OPTIONS[@]}" download "${packages[@]}" >&2) ||
    fail "downloading ${packages[*]} failed"
for deb in "$directory.new"/debs/*.deb; do dpkg-deb -x "$deb" "$directory.new/root"; done

root=$directory.new/root
for place in "$root/usr/lib/modules/$version/vmlinuz" "$root/boot/vmlinuz-$version"; do
    [ -e "$place" ] && ln "$place" "$directory.new/vmlinuz" && break
done
[ -e "$directory.new/vmlinuz" ] || fail "no vmlinuz in ${packages[*]}"
mkdir -p "$directory.new/lib/modules"
if [ -d "$root/usr/lib/modules/$version" ]; then tree=$root/usr/lib/modules; else tree=$root/lib/modules; fi
mv "$tree/$version" "$directory.new/lib/modules/"
header=$(find "$root" -name vmlinux.h | head -n 1)
[ -n "$header" ] && mkdir "$directory.new/include" && mv "$header" "$directory.new/include/"
rm -rf "$root" "$directory.new/debs"
touch "$directory.new/complete"
mv "$directory.new" "$directory"
echo "$directory"
