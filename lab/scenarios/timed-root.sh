#!/bin/sh
# Puts programs with all that they read onto the timed disk, as a root of their own (/timed/root): the machine's own
# root is on a disk of the host's, which has no speed in the machine's time.
# Usage, in the machine: timed-root.sh PROGRAM... -- FILE...    (names in /usr/bin, or paths)
set -eu
root=/timed/root
mkdir -p $root/dev $root/proc $root/tmp $root/root $root/etc $root/usr
for place in bin lib lib64 sbin; do ln -s usr/$place $root/$place; done
copy() { # copy FILE...: with the directories above it
    for file in "$@"; do
        [ ! -e "$file" ] || { mkdir -p "$root${file%/*}" && cp -a "$file" "$root$file"; }
    done
}
# The program, and its libraries by what the loader itself says.
copy_program() {
    copy "$1"
    for library in $(ldd "$1" | grep -o '/[^ ]*'); do
        target=$(readlink -f "$library")
        copy "/usr${library#/usr}" "$target"
        [ -e "$root$library" ] || { mkdir -p "$root${library%/*}" && cp -a "$target" "$root$library"; }
    done
}
for program in bash "$@"; do
    [ "$program" != -- ] || break
    case $program in
    /*) copy_program "$program" ;;
    *) copy_program "/usr/bin/$program" ;;
    esac
done
while [ "$1" != -- ]; do shift; done
shift
copy /usr/share/terminfo /usr/lib/terminfo /etc/terminfo /etc/passwd /etc/nsswitch.conf "$@"
du -sm $root
mount --bind /dev $root/dev
mount --bind /dev/pts $root/dev/pts
mount -t proc proc $root/proc
printf 'export TERM=linux\nPS1="$ "\n' >$root/root/.bashrc
sync
