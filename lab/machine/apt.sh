# shellcheck shell=bash
# Fetching Debian packages without touching the machine's own package lists or needing root.
#
# To be sourced. The mirror's address, its keyring and the proxy come from the machine's own apt configuration,
# whichever of its two formats that is written in; nothing here names a host. All state lives in a directory that
# the caller gives, so that `rm -rf` of that directory undoes everything.

# Prints "URI|SUITE|KEYRING|COMPONENTS" for every enabled binary source of this machine; the keyring may be empty.
apt_sources() {
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -r "$file" ] && awk '
            $1 != "deb" { next }
            {
                line = $0; sub(/#.*/, "", line); options = ""
                if (match(line, /\[[^]]*\]/)) {
                    options = substr(line, RSTART + 1, RLENGTH - 2)
                    line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
                }
                keyring = ""
                if (match(options, /signed-by=[^ ]*/)) keyring = substr(options, RSTART + 10, RLENGTH - 10)
                n = split(line, word, " "); components = ""
                for (i = 4; i <= n; i++) components = components (i > 4 ? " " : "") word[i]
                if (word[2] !~ /^cdrom:/) print word[2] "|" word[3] "|" keyring "|" components
            }' "$file"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -r "$file" ] && awk '
            function flush(   i, j, n, m, uri, suite) {
                if (field["types"] ~ /(^| )deb( |$)/ && tolower(field["enabled"]) != "no") {
                    n = split(field["uris"], uri, " "); m = split(field["suites"], suite, " ")
                    for (i = 1; i <= n; i++) for (j = 1; j <= m; j++)
                        print uri[i] "|" suite[j] "|" field["signed-by"] "|" field["components"]
                }
                split("", field); name = ""
            }
            /^#/ { next }
            /^[ \t]*$/ { flush(); next }
            # An inline key spans lines; a path is all that we can pass on, so the default keyring is used for those.
            /^[ \t]/ { if (name != "signed-by") field[name] = field[name] " " $0; next }
            { name = tolower($0); sub(/:.*/, "", name); value = $0; sub(/^[^:]*:[ \t]*/, "", value); field[name] = value }
            END { flush() }' "$file"
    done
}

# apt_write_sources FILE [SUITE]: writes the Debian archive's sources of this machine to FILE: all of its own suites,
# or, with SUITE, only that suite from the mirror that its own main suite comes from.
apt_write_sources() {
    local file=$1 wanted=${2:-} codename uri suite keyring components found=0
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    : >"$file"
    while IFS='|' read -r uri suite keyring components; do
        case " $components " in *" main "*) ;; *) continue ;; esac
        case $suite in
        "$codename" | stable | testing | unstable) [ -n "$wanted" ] && suite=$wanted ;;
        "$codename"-security | "$codename"-updates) [ -n "$wanted" ] && continue ;;
        *) continue ;;
        esac
        [ -r "$keyring" ] || keyring=/usr/share/keyrings/debian-archive-keyring.gpg
        echo "deb [signed-by=$keyring] $uri $suite main" >>"$file"
        found=1
    done < <(apt_sources)
    if [ "$found" = 0 ]; then
        echo "no Debian mirror found in /etc/apt/sources.list or /etc/apt/sources.list.d (looked for the suite '$codename'," \
            "component main). Add one, or give the lab a kernel with --kernel and use scenarios without packages." >&2
        return 1
    fi
    sort -u -o "$file" "$file"
}

# apt_private DIRECTORY [SUITE]: prepares DIRECTORY and sets the array APT_OPTIONS for apt-get and apt-cache.
apt_private() {
    local directory=$1
    mkdir -p "$directory/lists/partial" "$directory/cache/archives/partial"
    : >"$directory/status" # as if nothing were installed: dependencies come out complete
    apt_write_sources "$directory/sources.list" "${2:-}" || return 1
    # shellcheck disable=SC2034  # for the caller
    APT_OPTIONS=(
        -q -o "Dir::Etc::sourcelist=$directory/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::Etc::preferencesparts=/dev/null -o Dir::Etc::preferences=/dev/null
        -o "Dir::State::lists=$directory/lists" -o "Dir::State::status=$directory/status"
        -o "Dir::State::extended_states=$directory/extended_states" -o "Dir::Cache=$directory/cache"
        -o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Sandbox::User= -o Debug::NoLocking=true
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o Acquire::Retries=3 -o Dpkg::Use-Pty=0
    )
}
