#!/bin/sh
# Checks that every program that specs/*.toml name is a file of a Debian package.
#
#   specs/check-against-debian.sh [--suite NAME] [--deep]
#
# Writes specs/debian-paths.tsv (path, tab, package), which the tests of steward-core read, and exits 1 naming each
# path that no package has. --deep also downloads every package named there and checks that the path is a regular
# ELF file: a symbolic link or a script would never match, because the kernel identifies the program that it ends at.
#
# The file lists come through apt from wherever this machine's own apt fetches its main archive, into a private
# directory: nothing of the machine's apt is touched, and root is not needed.
set -eu

suite=trixie
deep=no
while [ $# -gt 0 ]; do
    case $1 in
    --suite) suite=${2:?"--suite needs the name of a Debian suite"}; shift 2 ;;
    --deep) deep=yes; shift ;;
    *) echo "usage: $0 [--suite NAME] [--deep]" >&2; exit 2 ;;
    esac
done

specs=$(cd "$(dirname "$0")" && pwd)
cache=$(dirname "$specs")/.cache/debian-contents-$suite
mkdir -p "$cache/lists/partial" "$cache/archives/partial" "$cache/debs"

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' |
    grep -v security | head -n 1)
if [ -z "$mirror" ]; then
    echo "$0: apt on this machine knows no Debian archive; run 'apt-get update' and look at /etc/apt" >&2
    exit 1
fi
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ ! -r "$keyring" ]; then
    echo "$0: $keyring is missing; install debian-archive-keyring" >&2
    exit 1
fi
echo "deb [arch=amd64 signed-by=$keyring] $mirror $suite main" >"$cache/sources.list"
cat >"$cache/apt.conf" <<CONFIGURATION
Dir::Etc::SourceList "$cache/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$cache/lists";
Dir::State::status "/dev/null";
Dir::Cache "$cache";
Dir::Cache::archives "$cache/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::IndexTargets::deb::Contents-deb {
    MetaKey "\$(COMPONENT)/Contents-\$(ARCHITECTURE)";
    ShortDescription "Contents-\$(ARCHITECTURE)";
    Description "\$(RELEASE)/\$(COMPONENT) \$(ARCHITECTURE) Contents";
    KeepCompressed "true";
    DefaultEnabled "true";
};
CONFIGURATION
export APT_CONFIG="$cache/apt.conf"

apt-get -q update >"$cache/update.log" 2>&1 || {
    echo "$0: apt-get update for $suite failed:" >&2
    cat "$cache/update.log" >&2
    exit 1
}

sed -n 's/^path *= *"\(\/[^"]*\)".*/\1/p' "$specs"/*.toml | sort >"$cache/paths"

# The lists have one row per file: its path, then section/package[,section/package...]. Packages that were not
# rebuilt since /bin became /usr/bin still say bin/. Reversed, so that programs for this architecture come before
# scripts for all.
apt-get indextargets --format '$(FILENAME)' 'Created-By: Contents-deb' | sort -r |
    while read -r list; do
        [ ! -e "$list" ] || /usr/lib/apt/apt-helper cat-file "$list"
    done |
    awk -v OFS='\t' '
        NR == FNR { wanted[$1] = 1; next }
        {
            path = "/" $1
            if (path ~ /^\/(bin|sbin|lib|lib64)\//) path = "/usr" path
            if (path in wanted && !(path in done)) {
                done[path] = 1
                package = $NF
                sub(/,.*/, "", package)
                sub(/.*\//, "", package)
                print path, package
            }
        }' "$cache/paths" - | sort >"$specs/debian-paths.tsv"

missing=$(cut -f 1 "$specs/debian-paths.tsv" | comm -13 - "$cache/paths" | uniq)
if [ -n "$missing" ]; then
    printf '%s: no package of Debian %s has:\n%s\n' "$0" "$suite" "$missing" >&2
    exit 1
fi
echo "$(wc -l <"$specs/debian-paths.tsv") programs are in Debian $suite"
[ "$deep" = yes ] || exit 0

# Downloads what is not there yet, then asks every package for the kind of each file that it is named for.
cut -f 2 "$specs/debian-paths.tsv" | sort -u >"$cache/packages"
while read -r package; do
    [ -e "$cache/debs/$package.deb" ] && continue
    (cd "$cache/archives/partial" && apt-get -q download "$package" >/dev/null 2>"$cache/download.log") || {
        echo "$0: could not download $package: $(cat "$cache/download.log")" >&2
        exit 1
    }
    mv "$cache/archives/partial/$package"_*.deb "$cache/debs/$package.deb"
done <"$cache/packages"

wrong=0
while IFS='	' read -r path package; do
    # Both complain when head has read enough, and tar of the one of the two spellings that the package lacks.
    start=$({ dpkg-deb --fsys-tarfile "$cache/debs/$package.deb" |
        tar -xO ".$path" ".${path#/usr}" | head -c 4 | tail -c 3; } 2>/dev/null)
    if [ "$start" != ELF ]; then
        echo "$0: $path of $package is not a program but a link or a script" >&2
        wrong=1
    fi
done <"$specs/debian-paths.tsv"
[ "$wrong" = 0 ] && echo "all of them are ELF programs"
exit "$wrong"
