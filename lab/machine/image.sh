#!/usr/bin/env bash
# Builds a disk image with Debian packages installed and prints its path. Usage: image.sh PACKAGE...
#
# No root, no mounts, no maintainer scripts: the packages and everything they depend on are fetched from the machine's
# own suite, unpacked into a tree, the few things that their scripts would do are done here, and mke2fs copies the tree
# into an ext4 image. Cached by the set of packages asked for; the versions are in the .packages file beside the image.
# STEWARD_REFRESH=1 builds it anew with the newest versions; without it, a cached image is used as it is, without a
# network.
set -euo pipefail
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${STEWARD_CACHE:-$here/../../.cache}
mkdir -p "$cache/images" "$cache/debs/partial" && cache=$(cd "$cache" && pwd)
# shellcheck source=lab/machine/apt.sh
. "$here/apt.sh"

# What a person at a shell expects of any Debian machine; these pull in the C library.
always=(base-files base-passwd bash coreutils dash debianutils findutils grep gawk hostname libc-bin mount procps sed tar util-linux)
fail() {
    echo "image.sh: $*" >&2
    exit 1
}
[ $# -gt 0 ] || fail "give the packages to install"
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mapfile -t wanted < <(printf '%s\n' "${always[@]}" "$@" | sort -u)
key=$( (cat "$here/image.sh" && printf '%s\n' "$codename" "${wanted[@]}") | sha256sum | cut -c 1-16)
image=$cache/images/$key.ext4
# Two runs that start together build it once, and do not disturb each other's use of apt.
exec 9>"$cache/images/lock"
flock 9
if [ -e "$image" ] && [ -z "${STEWARD_REFRESH:-}" ]; then
    echo "$image"
    exit
fi

echo "Building a guest disk with: $*" >&2
apt_private "$cache/apt/$codename"
install=("${APT_OPTIONS[@]}" -o "Dir::Cache::archives=$cache/debs" -o APT::Install-Recommends=false -o APT::Install-Suggests=false)
apt-get "${install[@]}" update >&2 || fail "apt-get could not read the suite $codename; is there a network?"
# With an empty list of installed packages, what apt would install is the complete set.
apt-get "${install[@]}" install --yes --simulate "${wanted[@]}" >"$cache/images/$key.log" ||
    fail "apt cannot install these packages together; see $cache/images/$key.log"
awk '$1 == "Inst" { gsub(/[()]/, ""); print $2, $3 }' "$cache/images/$key.log" | sort >"$cache/images/$key.packages.new"
echo "Fetching $(wc -l <"$cache/images/$key.packages.new") packages (those not yet in $cache/debs)" >&2
apt-get "${install[@]}" install --yes --download-only "${wanted[@]}" >"$cache/images/$key.log" 2>&1 ||
    fail "downloading failed; see $cache/images/$key.log"

rm -rf "$cache"/images/work.* # of a build that was killed
work=$(mktemp -d "$cache/images/work.XXXXXX")
trap 'chmod -R u+rwX "$work"; rm -rf "$work"' EXIT
export work cache key here
# Files must belong to root in the image. Who is not root gets that from fakeroot.
as_root=()
[ "$(id -u)" = 0 ] || as_root=(fakeroot)
"${as_root[@]}" bash "$here/image-tree.sh" || fail "building the image failed"
mv "$cache/images/$key.packages.new" "$cache/images/$key.packages"
mv "$work/image.ext4" "$image"
echo "$image"
