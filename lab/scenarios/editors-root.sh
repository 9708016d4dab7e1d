#!/bin/sh
# Puts the editors with all that they read onto the timed disk, as a root of their own (/timed/root): the machine's own
# root is on a disk of the host's, which has no speed in the machine's time. Usage, in the machine: editors-root.sh
set -eu
root=/timed/root
mkdir -p $root/dev $root/proc $root/tmp $root/root $root/etc $root/usr
for place in bin lib lib64 sbin; do ln -s usr/$place $root/$place; done
copy() { # copy FILE...: with the directories above it
    for file in "$@"; do
        [ ! -e "$file" ] || { mkdir -p "$root${file%/*}" && cp -a "$file" "$root$file"; }
    done
}
copy /usr/bin/bash /usr/bin/vim.tiny /usr/bin/emacs-nox /usr/share/vim /usr/share/emacs /usr/libexec/emacs \
    /usr/lib/emacs /usr/share/terminfo /usr/lib/terminfo /etc/terminfo /etc/emacs /etc/passwd /etc/nsswitch.conf
# Their libraries, by what the loader itself says.
for program in bash vim.tiny emacs-nox; do
    for library in $(ldd /usr/bin/$program | grep -o '/[^ ]*'); do
        target=$(readlink -f "$library")
        copy "/usr${library#/usr}" "$target"
        [ -e "$root$library" ] || { mkdir -p "$root${library%/*}" && cp -a "$target" "$root$library"; }
    done
done
du -sm $root
mount --bind /dev $root/dev
mount --bind /dev/pts $root/dev/pts
mount -t proc proc $root/proc
printf 'export TERM=linux\nPS1="$ "\n' >$root/root/.bashrc
# What cannot start is said now.
chroot $root /usr/bin/bash -c 'emacs-nox -Q --batch --eval "(kill-emacs)" && vim.tiny --version >/dev/null'
sync
