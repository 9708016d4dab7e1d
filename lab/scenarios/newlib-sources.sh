#!/usr/bin/env bash
# Makes an archive of real C sources with a Makefile and prints its path: parts of newlib, from Debian's package of its
# sources. They need no configuration, and are compiled by the guest's own gcc.
set -euo pipefail
umask 022
cache=$STEWARD_CACHE
archive=$cache/newlib-sources.tar
mkdir -p "$cache/debs/partial"
exec 9>"$cache/newlib-sources.lock"
flock 9
if [ -e "$archive" ] && [ -z "${STEWARD_REFRESH:-}" ] && [ "$archive" -nt "${BASH_SOURCE[0]}" ]; then
    echo "$archive"
    exit
fi

# shellcheck source=lab/machine/apt.sh
. "$STEWARD_ROOT/lab/machine/apt.sh"
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
apt_private "$cache/apt/$codename"
work=$(mktemp -d "$cache/newlib.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "Fetching the package newlib-source" >&2
{
    apt-get "${APT_OPTIONS[@]}" update
    (cd "$work" && apt-get "${APT_OPTIONS[@]}" download newlib-source)
} >&2 || {
    echo "newlib-sources.sh: apt-get could not fetch newlib-source; is there a network?" >&2
    exit 1
}
dpkg-deb -x "$work"/newlib-source_*.deb "$work/package"
tar -xf "$work"/package/usr/src/newlib/newlib-*.tar.* -C "$work"
tree=$(dirname "$(find "$work" -path '*/newlib/libc/include' -type d | head -n 1)")/..
mkdir -p "$work/sources/libc" "$work/sources/libm"
for part in libc/include libc/string libc/stdlib libc/stdio libc/time libm/common libm/math; do
    cp -r "$tree/$part" "$work/sources/$part"
done
cat >"$work/sources/Makefile" <<'MAKEFILE'
# One object for each source; `make -B` compiles them all again.
flags = -O2 -w -fno-builtin -nostdinc -isystem $(shell $(CC) -print-file-name=include) -D_COMPILING_NEWLIB -D_LIBM \
	-Ilibc/include -Ilibc/stdio -Ilibm/common
sources = $(wildcard libm/math/*.c libm/common/*.c libc/string/*.c libc/stdlib/*.c libc/stdio/*.c libc/time/*.c)
unfit = libc/stdlib/mallocr.c libc/time/gettzinfo.c
all: $(patsubst %.c,%.o,$(filter-out $(unfit),$(sources)))
%.o: %.c
	@$(CC) $(flags) -c $< -o $@ && echo compiled $<
MAKEFILE
tar -C "$work" --sort=name --owner=0 --group=0 -cf "$archive.new" sources
mv "$archive.new" "$archive"
echo "$archive"
