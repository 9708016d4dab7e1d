#!/usr/bin/env bash
# The part of image.sh that runs as root, or under fakeroot: unpacks the packages of $cache/images/$key.packages.new
# into a tree and makes the file system $work/image.ext4 of it.
set -euo pipefail
: "${work:?} ${cache:?} ${key:?} ${here:?}"
tree=$work/tree

# /bin and the like are links into /usr on every Debian since 12; packages still name both.
mkdir -p "$tree"/usr/{bin,sbin,lib,lib64} "$tree"/{proc,sys,dev,run,tmp,root,mnt,scratch,lab,etc,var/lib,var/tmp}
chmod 1777 "$tree/tmp" "$tree/var/tmp"
for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$tree/$directory"; done

while read -r package version; do
    deb=$(find "$cache/debs" -maxdepth 1 -name "${package%%:*}_${version//:/%3a}_*.deb" | head -n 1)
    [ -n "$deb" ] || {
        echo "image.sh: the package $package $version was not downloaded to $cache/debs" >&2
        exit 1
    }
    # tar through the links: dpkg-deb -x would replace the link /lib by a directory of the package.
    dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tree" --keep-directory-symlink -p -f -
done <"$cache/images/$key.packages.new"

# What the maintainer scripts would do, as far as programs in the lab need it.
[ -e "$tree/etc/passwd" ] || cp "$tree/usr/share/base-passwd/passwd.master" "$tree/etc/passwd"
[ -e "$tree/etc/group" ] || cp "$tree/usr/share/base-passwd/group.master" "$tree/etc/group"
sed -i 's/^root:\*:/root:x:/' "$tree/etc/passwd"
for line in 'messagebus:x:100:101::/nonexistent:/usr/sbin/nologin' 'user:x:1000:1000:user:/home/user:/bin/bash'; do
    grep -q "^${line%%:*}:" "$tree/etc/passwd" || echo "$line" >>"$tree/etc/passwd"
done
for line in 'messagebus:x:101:' 'user:x:1000:'; do
    grep -q "^${line%%:*}:" "$tree/etc/group" || echo "$line" >>"$tree/etc/group"
done
mkdir -p "$tree/home/user" && chown 1000:1000 "$tree/home/user"
echo lab >"$tree/etc/hostname"
printf '127.0.0.1 localhost lab\n::1 localhost\n' >"$tree/etc/hosts"
for shell in bash dash; do [ -e "$tree/usr/bin/sh" ] || ln -s "$shell" "$tree/usr/bin/sh"; done
# mawk, gawk and original-awk share a name through alternatives.
for awk in gawk mawk; do [ -e "$tree/usr/bin/awk" ] || { [ -e "$tree/usr/bin/$awk" ] && ln -s "$awk" "$tree/usr/bin/awk"; } || true; done

# Alternatives that a package registers in its script: a program NAME.basic or a library in a directory of its own. The
# usual command names are linked here when no package owns them; libraries are found through the loader's cache below.
while read -r name target; do
    [ -e "$tree/usr/bin/$name" ] || [ ! -e "$tree/usr/bin/$target" ] || ln -s "$target" "$tree/usr/bin/$name"
done <<'LINKS'
vi vim.basic
vi vim.tiny
vim vim.basic
emacs emacs-nox
emacs emacs-gtk
pager less
editor vim.basic
editor nano
cc gcc
c++ g++
c89 c89-gcc
c99 c99-gcc
which which.debianutils
nc nc.traditional
nc nc.openbsd
x-terminal-emulator xterm
x-window-manager twm
java ../lib/jvm/default-java/bin/java
LINKS
for java in "$tree"/usr/lib/jvm/*/bin/java; do
    [ -e "$java" ] && [ ! -e "$tree/usr/bin/java" ] && ln -s "${java#"$tree"}" "$tree/usr/bin/java"
done
# Configuration that a script would copy from a template (sed and sh in the JVM's and others' packages use /etc as
# shipped).
mkdir -p "$tree/var/lib/dpkg" "$tree/var/lib/dbus" && echo 00000000000000000000000000000001 >"$tree/etc/machine-id"

# Libraries that live in directories of their own, behind alternatives (libblas, liblapack) or not (pulseaudio): the
# loader is to find those that some program needs and the ordinary directories lack.
libraries=$tree/usr/lib/x86_64-linux-gnu
find "$libraries" -mindepth 2 -maxdepth 2 -name 'lib*.so.[0-9]*' \( -type f -o -type l \) -printf '%h %f\n' | sort |
    while read -r directory name; do
        [ -e "$libraries/$name" ] || echo "${directory#"$tree"}"
    done | sort -u >"$tree/etc/ld.so.conf.d/zz-steward-lab.conf"
/sbin/ldconfig -r "$tree" 2>/dev/null || /sbin/ldconfig -r "$tree"

# A quarter and 512 MiB more than what is in it.
used_kib=$(du -sk --apparent-size "$tree" | cut -f 1)
inodes=$(($(find "$tree" | wc -l) + 65536))
# The image is sparse, and takes what is in it; mke2fs alone would say that the image is full where the disk is.
free_kib=$(df --output=avail -k "$work" | tail -n 1)
if [ "$free_kib" -lt $((used_kib + 64 * 1024)) ]; then
    echo "image.sh: the guest's disk needs $((used_kib / 1024 + 64)) MiB, and $((free_kib / 1024)) MiB are free in $cache: make room there," \
        "or have STEWARD_CACHE name a directory elsewhere" >&2
    exit 1
fi
truncate -s "$((used_kib * 5 / 4 + 512 * 1024))K" "$work/image.ext4"
/usr/sbin/mke2fs -q -F -t ext4 -m 0 -L lab -N "$inodes" -E root_owner=0:0,lazy_itable_init=1 -d "$tree" "$work/image.ext4"
