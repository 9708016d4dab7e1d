#!/usr/bin/env bash
# Finds a QEMU that can emulate several processors (10 or later) and prints the path of its qemu-system-x86_64. The
# machine's own when that is new enough; else Debian's, unpacked into CACHE/qemu/VERSION and run there by its own loader
# with its own libraries, so that nothing of this machine changes. Once fetched it is used without a network. `qemu.sh
# --update` looks for a newer one.
#
# Environment: STEWARD_CACHE (default .cache in the repository), STEWARD_QEMU_SUITE (default trixie).
set -euo pipefail
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${STEWARD_CACHE:-$here/../../.cache}
mkdir -p "$cache/qemu" && cache=$(cd "$cache" && pwd)
suite=${STEWARD_QEMU_SUITE:-trixie}
package=qemu-system-x86
program=qemu-system-x86_64
least=10 # of the major version
# shellcheck source=lab/machine/apt.sh
. "$here/apt.sh"

fail() {
    echo "qemu.sh: $*" >&2
    exit 1
}
newest() { find "$cache/qemu" -mindepth 2 -maxdepth 2 -name complete -printf '%h\n' | sort -V | tail -n 1; }
major() { "$1" --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9]*\)\..*/\1/p'; }

own=$(command -v "$program" || true)
if [ -n "$own" ] && [ "$(major "$own" || echo 0)" -ge "$least" ]; then
    echo "$own"
    exit
fi
# Two runs that start together fetch it once.
exec 9>"$cache/qemu/lock"
flock 9
present=$(newest)
if [ -n "$present" ] && [ "${1:-}" != --update ]; then
    echo "$present/$program"
    exit
fi

echo "Looking for a QEMU of version $least or later ($package in $suite)" >&2
apt_private "$cache/apt/$suite" "$suite"
apt-get "${APT_OPTIONS[@]}" update >&2 || fail "apt-get could not read the suite $suite; is there a network?"
version=$(apt-cache "${APT_OPTIONS[@]}" policy "$package" | sed -n 's/^ *Candidate: //p')
# apt-get update calls it a success when it could not reach the mirror.
[ -n "$version" ] && [ "$version" != "(none)" ] || fail "apt could not be told of a $package in the suite $suite (see above); is there a network?"
upstream=${version#*:}
[ "${upstream%%.*}" -ge "$least" ] 2>/dev/null || fail "the suite $suite has no $package of version $least or later (found $version)"
directory=$cache/qemu/${version//:/_}
if [ -e "$directory/complete" ]; then
    echo "$directory/$program"
    exit
fi

rm -rf "$cache"/qemu/*.new && mkdir -p "$directory.new"/{debs/partial,root/usr,lib}
install=("${APT_OPTIONS[@]}" -o "Dir::Cache::archives=$directory.new/debs" -o APT::Install-Recommends=false)
echo "Fetching QEMU $version and the libraries that it needs (about 40 MB)" >&2
# With an empty list of installed packages, what apt fetches is the complete set.
apt-get "${install[@]}" install --yes --download-only "$package" >"$directory.new/log" 2>&1 ||
    fail "downloading failed: $(tail -n 3 "$directory.new/log")"
root=$directory.new/root
for links in bin sbin lib lib64; do mkdir -p "$root/usr/$links" && ln -s "usr/$links" "$root/$links"; done
for deb in "$directory.new"/debs/*.deb; do
    # tar through the links: dpkg-deb -x would replace them by directories of the package.
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --keep-directory-symlink --no-same-owner -f -
done

# What stays: the program, the loader and the libraries that it names, and the firmware of a machine without devices.
loader=$root/usr/lib64/ld-linux-x86-64.so.2
libraries=$root/usr/lib/x86_64-linux-gnu
[ -e "$loader" ] && [ -e "$root/usr/bin/$program" ] || fail "$package $version has no $program, or its libc no loader"
"$loader" --library-path "$libraries" --list "$root/usr/bin/$program" >"$directory.new/log" 2>&1 ||
    fail "a library of QEMU $version is missing: $(grep 'not found' "$directory.new/log")"
sed -n "s|.* => \($root/[^ ]*\) .*|\1|p" "$directory.new/log" | while read -r library; do
    cp --dereference "$library" "$directory.new/lib/"
done
cp --dereference "$loader" "$directory.new/lib/"
mv "$root/usr/bin/$program" "$directory.new/lib/"
mv "$root/usr/share/qemu" "$directory.new/share"
cp -a "$root"/usr/share/seabios/. "$directory.new/share/"
cat >"$directory.new/$program" <<'SCRIPT'
#!/bin/sh
# QEMU with the loader, the libraries and the firmware that it was built for: see lab/machine/qemu.sh.
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/lib/ld-linux-x86-64.so.2" --library-path "$here/lib" "$here/lib/qemu-system-x86_64" -L "$here/share" "$@"
SCRIPT
chmod 755 "$directory.new/$program"
[ "$(major "$directory.new/$program" || echo 0)" -ge "$least" ] || fail "QEMU $version does not run here: $("$directory.new/$program" --version 2>&1)"
rm -rf "$root" "$directory.new/debs" "$directory.new/log"
touch "$directory.new/complete"
rm -rf "$directory" && mv "$directory.new" "$directory"
echo "$directory/$program"
