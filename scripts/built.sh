#!/usr/bin/env bash
# Outside crates as they were built, from one clone to the next.
#
#   scripts/built.sh take    puts them into target/, if nothing was built there yet
#   scripts/built.sh keep    keeps those of target/ that no clone has with the same locks and compilers
#
# Nothing of this repository is among them, and cargo looks at each as at one that it built here itself: profiles, flags
# and features are in a unit's name. They are in
# FIRSTLIGHT_BUILT (~/.cache/firstlight/built); what nobody took for a month goes. With CI_ALL=1 all are built.
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

# One at a time: what is taken is whole.
mkdir -p "$kept"
exec {lock}>"$kept/lock"
flock "$lock"

case $request in
take)
    # Folders of cargo's have the same name everywhere.
    [ -d "$entry" ] && [ -z "$(find "$target" -maxdepth 4 -name .fingerprint 2>/dev/null | head -n 1)" ] || exit 0
    mkdir -p "$target"
    touch "$entry"
    cp -a --reflink=auto "$entry/." "$target/"
    ;;
keep)
    [ -d "$target" ] || exit 0
    find "$kept" -mindepth 1 -maxdepth 1 -type d \( -mtime +30 -o -name 'new.*' \) -exec rm -rf {} +
    # What an end in between leaves is no entry.
    scratch=$kept/new.${entry##*/}
    mkdir "$scratch"
    own=$(git ls-files '*Cargo.toml' | xargs sed -n 's/^name *= *"\(.*\)"/\1/p' | sort -u)
    # NAME-HASH of a unit is that of its folders, and its files' names have the hash.
    find "$target" -maxdepth 4 -name .fingerprint -printf '%P\n' | while read -r prints; do
        folder=$(dirname "$prints")
        mkdir -p "$scratch/$folder"
        (
            cd "$target/$folder"
            mapfile -t units < <(find .fingerprint -mindepth 1 -maxdepth 1 -printf '%f\n' |
                awk 'NR == FNR { own[$0]; next } { name = $0; sub(/-[0-9a-f]+$/, "", name) } !(name in own)' <(echo "$own") -)
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
            done | xargs -r cp -a --reflink=auto --parents -t "$scratch/$folder"
        )
    done
    # Folders of units are whole; files join those that are there.
    if [ -d "$entry" ]; then
        cp -a --reflink=auto "$scratch/." "$entry/"
        rm -rf "$scratch"
    else
        mv -T "$scratch" "$entry"
    fi
    ;;
*)
    echo "built.sh: take or keep is expected, not '$request'" >&2
    exit 2
    ;;
esac
