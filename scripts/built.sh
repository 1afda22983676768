#!/usr/bin/env bash
# What was built, from one clone to the next.
#
#   scripts/built.sh take    puts it into target/, if nothing was built there yet
#   scripts/built.sh keep    keeps what target/ has
#
# Outside crates serve each clone with the same locks and compilers. This repository's own serve the next clone in the
# same folder, as if that had never gone: a file with the same content gets its former date, any other has that of its
# checkout, and cargo builds again what is older than a file of it. Cargo looks at each unit as at one that it built here
# itself: profiles, flags and features are in its name. All is in FIRSTLIGHT_BUILT (~/.cache/firstlight/built); what was
# not taken for a month goes. With CI_ALL=1 all is built.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -z "${CI_ALL:-}" ] || exit 0
request=${1:-}
target=${CARGO_TARGET_DIR:-target}
kept=${FIRSTLIGHT_BUILT:-${XDG_CACHE_HOME:-$HOME/.cache}/firstlight/built}
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
entry=$kept/$({
    rustc --version --verbose
    rustc +nightly --version 2>/dev/null || true
    git ls-files '*Cargo.lock' | sort | xargs sha256sum
    sha256sum scripts/built.sh
} | sha256sum | cut -c 1-16)
# Units of other features stay until the locks change, up to this size.
own_entry=$entry.$(pwd | sha256sum | cut -c 1-16)
OWN_MIB=8192

# Copies the units whose package a list has (`own`) or has not (`outside`) into a folder, but for files that `entry` has.
copy_units() {
    local which=$1 into=$2 names
    names=$(git ls-files '*Cargo.toml' | xargs sed -n 's/^name *= *"\(.*\)"/\1/p' | sort -u)
    # NAME-HASH of a unit is that of its folders, and its files' names have the hash.
    find "$target" -maxdepth 4 -name .fingerprint -printf '%P\n' | while read -r prints; do
        folder=$(dirname "$prints")
        mkdir -p "$into/$folder"
        (
            cd "$target/$folder"
            mapfile -t units < <(find .fingerprint -mindepth 1 -maxdepth 1 -printf '%f\n' | awk -v own="$which" '
                NR == FNR { names[$0]; next }
                { name = $0; sub(/-[0-9a-f]+$/, "", name) }
                (name in names) == (own == "own")' <(echo "$names") -)
            [ ${#units[@]} != 0 ] || exit 0
            {
                printf '.fingerprint/%s\n' "${units[@]}"
                printf 'build/%s\n' "${units[@]}"
                [ ! -d deps ] || find deps -mindepth 1 -maxdepth 1 -type f | awk '
                    { hash = $0; sub(/.*-/, "", hash); sub(/\..*/, "", hash) }
                    NR == FNR { hashes[hash]; next }
                    hash in hashes' <(printf '%s\n' "${units[@]}") -
            } | while read -r path; do
                [ ! -e "$path" ] || [ -e "$entry/$folder/$path" ] || echo "$path"
            done | xargs -r cp -a --reflink=auto --parents -t "$into/$folder"
        )
    done
}

# One at a time: what is taken is whole.
mkdir -p "$kept"
exec {lock}>"$kept/lock"
flock "$lock"

case $request in
take)
    # Folders of cargo's have the same name everywhere.
    [ -z "$(find "$target" -maxdepth 4 -name .fingerprint 2>/dev/null | head -n 1)" ] || exit 0
    mkdir -p "$target"
    if [ -d "$entry" ]; then
        touch "$entry"
        cp -a --reflink=auto "$entry/." "$target/"
    fi
    if [ -d "$own_entry" ] && [ -z "$(git status --porcelain)" ]; then
        touch "$own_entry"
        cp -a --reflink=auto "$own_entry/units/." "$target/"
        dated=$(awk -F '\t' 'NR == FNR { date[$2, $3] = $1; next } ($1, $2) in date { print date[$1, $2] "\t" $2 }' \
            "$own_entry/files" <(git ls-files --stage))
        cut -f 1 <<<"$dated" | sort -u | while read -r date; do
            sed -n "s/^$date\t//p" <<<"$dated" | xargs -rd '\n' touch --no-dereference --date="@$date"
        done
    fi
    ;;
keep)
    [ -d "$target" ] || exit 0
    find "$kept" -mindepth 1 -maxdepth 1 -type d \( -mtime +30 -o -name 'new.*' \) -exec rm -rf {} +
    # What an end in between leaves is no entry.
    scratch=$kept/new.outside
    mkdir "$scratch"
    copy_units outside "$scratch"
    # Folders of units are whole; files join those that are there.
    if [ -d "$entry" ]; then
        cp -a --reflink=auto "$scratch/." "$entry/"
        rm -rf "$scratch"
    else
        mv -T "$scratch" "$entry"
    fi
    scratch=$kept/new.own
    mkdir -p "$scratch/units"
    copy_units own "$scratch/units"
    # Date, content and name of each file, but of those that no commit has. Dates are rounded up to whole seconds.
    comm -23 <(git ls-files | sort) <(git diff --name-only HEAD | sort) | xargs -d '\n' stat --format '%.9Y %n' |
        awk 'NR == FNR { split($0, file, "\t"); content[file[2]] = file[1]; next }
            { split($1, part, "."); date = part[1] + (part[2] > 0); sub(/^[0-9.]+ /, ""); print date "\t" content[$0] "\t" $0 }' <(git ls-files --stage) - \
            >"$scratch/files"
    rm -rf "$own_entry"
    if [ "$(du -sm "$scratch" | cut -f 1)" -le "$OWN_MIB" ]; then
        mv -T "$scratch" "$own_entry"
    else
        rm -rf "$scratch"
    fi
    ;;
*)
    echo "built.sh: take or keep is expected, not '$request'" >&2
    exit 2
    ;;
esac
