#!/usr/bin/env bash
# Finds the lab's kernel and prints the directory that holds it: CACHE/kernel/VERSION, with vmlinuz, lib/modules/VERSION
# and include/ (vmlinux.h), and vmlinux where vmlinuz can be unpacked here. Debian's newest cloud kernel with sched_ext
# comes from its backports; once fetched it is used without a network. `kernel.sh --update` looks for a newer one;
# `kernel.sh --configuration` prints the path of the file that says how the kernel was configured, which a kernel
# fetched by an older version of this script lacks: it is fetched then.
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
# unpacked DIRECTORY PACKAGE...: downloads the packages and unpacks them into DIRECTORY/root.
unpacked() {
    local directory=$1 deb
    shift
    rm -rf "$directory" && mkdir -p "$directory/debs" "$directory/root"
    (cd "$directory/debs" && apt-get "${APT_OPTIONS[@]}" download "$@" >&2) || fail "downloading $* failed"
    for deb in "$directory"/debs/*.deb; do dpkg-deb -x "$deb" "$directory/root"; done
}
if [ "${1:-}" = --configuration ] && [ -n "$present" ]; then
    version=${present##*/}
    if [ ! -e "$present/config" ]; then
        echo "Fetching how the kernel $version was configured" >&2
        apt_private "$cache/apt/$suite" "$suite"
        apt-get "${APT_OPTIONS[@]}" update >&2 || fail "apt-get could not read the suite $suite; is there a network?"
        for package in "linux-base-$version" "linux-image-$version-unsigned"; do
            apt-cache "${APT_OPTIONS[@]}" show "$package" >/dev/null 2>&1 || continue
            unpacked "$cache/kernel/$version.new" "$package"
            config=$(find "$cache/kernel/$version.new/root" -name "config-$version" -o -name config -path "*/$version/*" | head -n 1)
            [ -z "$config" ] || { mv "$config" "$present/config" && break; }
        done
        rm -rf "$cache/kernel/$version.new"
        [ -e "$present/config" ] || fail "no package of the kernel $version in $suite has its configuration"
    fi
    echo "$present/config"
    exit
fi
# unpack_image DIRECTORY: makes DIRECTORY/vmlinux of vmlinuz, which a guest would otherwise unpack itself at each boot:
# two of the seven CPU seconds that a boot took. Where that does not work out there is none, and vmlinuz is booted.
unpack_image() {
    local image=$1/vmlinuz setup offset length
    [ ! -e "$1/vmlinux" ] || return 0
    # Where the packed kernel is (Documentation/arch/x86/boot.rst): behind the setup code, setup_sects and one more
    # sectors of 512 bytes, payload_offset bytes on.
    field() { od -A n -j "$1" -N "$2" -t "u$2" "$image" | tr -d ' '; }
    setup=$((($(field 0x1f1 1) + 1) * 512))
    offset=$(field 0x248 4)
    length=$(field 0x24c 4)
    # Behind what was packed is its length, which the tools take for the beginning of more and complain of.
    dd if="$image" of="$1/payload" iflag=skip_bytes,count_bytes skip=$((setup + offset)) count=$((length - 4)) status=none
    case $(od -A n -N 4 -t x1 "$1/payload" | tr -d ' ') in
    28b52ffd) zstd -dcq "$1/payload" >"$1/vmlinux.new" ;;
    fd377a58) xz -dc "$1/payload" >"$1/vmlinux.new" ;;
    1f8b*) gzip -dc "$1/payload" >"$1/vmlinux.new" ;;
    esac && [ "$(head -c 4 "$1/vmlinux.new" | tail -c 3)" = ELF ] && mv "$1/vmlinux.new" "$1/vmlinux"
    rm -f "$1/payload" "$1/vmlinux.new"
}
if [ -n "$present" ] && [ "${1:-}" != --update ]; then
    unpack_image "$present"
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
for package in "linux-binary-$version" "linux-modules-$version" "linux-base-$version" "linux-image-$version-unsigned" linux-bpf-dev; do
    apt-cache "${APT_OPTIONS[@]}" show "$package" >/dev/null 2>&1 && packages+=("$package")
done

echo "Fetching kernel $version: ${packages[*]}" >&2
unpacked "$directory.new" "${packages[@]}"

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
config=$(find "$root" "$directory.new/lib" -name "config-$version" -o -name config -path "*/$version/*" | head -n 1)
[ -z "$config" ] || mv "$config" "$directory.new/config"
rm -rf "$root" "$directory.new/debs"
unpack_image "$directory.new"
touch "$directory.new/complete"
mv "$directory.new" "$directory"
echo "$directory"
