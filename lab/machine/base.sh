#!/usr/bin/env bash
# Builds the guest's first file system (an initramfs: busybox, /init and the kernel modules of modules.txt) and prints
# its path.
# Usage: base.sh MODULES_DIRECTORY VERSION     (MODULES_DIRECTORY/VERSION/kernel/...: one kernel's modules)
# Cached by content: a change of the kernel, of init or of modules.txt builds a new one.
set -euo pipefail
umask 022
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${STEWARD_CACHE:-$here/../../.cache}
mkdir -p "$cache/base" && cache=$(cd "$cache" && pwd)
modules=$1/$2
version=$2

key=$(cat "$here/base.sh" "$here/init" "$here/modules.txt" /bin/busybox - <<<"$modules $(stat -c %Y "$modules" 2>/dev/null)" |
    sha256sum | cut -c 1-16)
archive=$cache/base/$version-$key.cpio
if [ -e "$archive" ]; then
    echo "$archive"
    exit
fi
echo "Building the guest's base file system for kernel $version" >&2
tree=$(mktemp -d "$cache/base/tree.XXXXXX")
trap 'rm -rf "$tree" "$tree.cpio"' EXIT

mkdir -p "$tree"/{dev,proc,sys,tmp,run,root,etc,mnt,var,usr/bin,usr/sbin,usr/lib64,"usr/lib/modules/$version"}
for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$tree/$directory"; done
cp /bin/busybox "$tree/usr/bin/busybox"
for applet in $(/bin/busybox --list); do [ "$applet" = busybox ] || ln -s busybox "$tree/usr/bin/$applet"; done
cp "$here/init" "$tree/init"
chmod 755 "$tree/init"
echo 'root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
user:x:1000:1000:user:/tmp:/bin/sh' >"$tree/etc/passwd"
echo 'root:x:0:
nogroup:x:65534:
user:x:1000:' >"$tree/etc/group"
echo 'NAME="Steward lab"' >"$tree/etc/os-release"

# One module and, before it, what it depends on. A module that is not a file is built into the kernel (or this kernel
# lacks it, which shows when it is used).
declare -A index=() done=()
while IFS= read -r path; do
    name=${path##*/}
    name=${name%%.ko*}
    index[${name//-/_}]=$path
done < <(find "$modules/kernel" -name '*.ko*' 2>/dev/null)
read_module() {
    case $1 in
    *.xz) xz -dc "$1" ;;
    *.zst) zstd -dcq "$1" ;;
    *.gz) gzip -dc "$1" ;;
    *) cat "$1" ;;
    esac
}
add_module() {
    local name=${1//-/_} path dependency
    local dependencies=()
    path=${index[$name]:-}
    [ -n "$path" ] && [ -z "${done[$name]:-}" ] || return 0
    done[$name]=1
    read_module "$path" >"$tree/usr/lib/modules/$version/$name.ko"
    IFS=, read -r -a dependencies < <(tr '\0' '\n' <"$tree/usr/lib/modules/$version/$name.ko" | sed -n 's/^depends=//p' | head -n 1) || true
    for dependency in "${dependencies[@]}"; do add_module "$dependency"; done
    closure=("${closure[@]}" "$name")
}
# The format of modules.dep: "module: what it needs", nearest first; each line lists the whole closure.
while IFS= read -r name; do
    case $name in '' | '#'*) continue ;; esac
    done=()
    closure=()
    add_module "$name"
    [ ${#closure[@]} -gt 0 ] || continue
    line="${name//-/_}.ko:"
    for ((i = ${#closure[@]} - 2; i >= 0; i--)); do line+=" ${closure[i]//-/_}.ko"; done
    echo "$line" >>"$tree/usr/lib/modules/$version/modules.dep"
done <"$here/modules.txt"
touch "$tree/usr/lib/modules/$version/modules.dep"

(cd "$tree" && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) >"$tree.cpio"
mv "$tree.cpio" "$archive"
echo "$archive"
