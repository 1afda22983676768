#!/usr/bin/env bash
# Runs the steps that a file lists, and ends with a table of their seconds.
#
#   scripts/steps.sh FILE                       runs them
#   scripts/steps.sh --inputs FILE [COMMIT...]  a line a commit and step: both names, the hash of all that it depends on
#
# A step whose inputs have the hash of a run that passed here is skipped, and the table says when that was. Inputs are
# the folders of its packages and of what cargo says they need, test data, the recipe, the lock file and the compilers.
# With CI_ALL=1, or changes that are not committed, all steps run. Passed runs are kept in
# FIRSTLIGHT_CI_CACHE (~/.cache/firstlight/steps). CPU_MINUTES (60) of processor time are the most all may take. After a
# failure no step is run, unless KEEP_GOING=1.
set -euo pipefail
# A command that fails within $(...) ends the run, too: the inputs of a step are never a part of them.
shopt -s inherit_errexit
cd "$(dirname "$0")/.."
root=$PWD
cache=${FIRSTLIGHT_CI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/firstlight/steps}
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

# The folders of this repository that a package, or the one in a folder, is built from.
folders_of() {
    local of=(-p "$1")
    [ ! -e "$1/Cargo.toml" ] || of=(--manifest-path "$1/Cargo.toml")
    [ ! -d "$1" ] || echo "$1"
    [ ! -d "$1" ] || [ -e "$1/Cargo.toml" ] || return 0
    cargo tree --quiet "${of[@]}" --locked --edges normal,build,dev --target all --prefix none --format '{p}' |
        sed -n "s|.*(\(.*, \)*$root/\([^) ]*\)).*|\2|p"
}

# The folders that a step with these packages depends on: those of the packages, and what belongs to every step.
folders_of_step() {
    local package
    for package in "$@"; do folders_of "$package"; done | sort -u
    printf '%s\n' testdata scripts Cargo.toml Cargo.lock rust-toolchain.toml .cargo
}

# What is built with.
compilers=$(rustc --version --verbose; rustc +nightly --version 2>/dev/null || true)

# The hash of all that a step depends on: its folders in this commit, its recipe, the compilers.
hash_of() {
    local commit=$1 folders=$2 recipe=$3
    {
        # shellcheck disable=SC2046,SC2001
        git rev-parse $(sed "s|^|$commit:|" <<<"$folders")
        printf '%s\n' "$folders" "$recipe" "$compilers"
    } | sha256sum | cut -c 1-16
}

# Sets `processor` to the seconds of processor time that the processes of this run took until now. Not in a subshell, whose
# own processes these are not.
processor=0
count_processor() {
    times >"$clock"
    processor=$(awk 'END { for (i = 1; i <= 2; i++) { split($i, p, /[ms]/); s += 60 * p[1] + p[2] } print int(s) }' "$clock")
}
clock=$(mktemp)
trap 'rm -f "$clock"' EXIT

only_inputs=""
[ "${1:-}" != --inputs ] || { only_inputs=1; shift; }
list=${1:-}
[ -r "$list" ] || { echo "steps.sh: a file of steps is expected, not '$list'" >&2; exit 2; }
shift
[ $# != 0 ] || set HEAD

rows=()
table() {
    echo
    printf '%-10s %8s %10s  %s\n' step seconds processor "" "${rows[@]}"
}

may_skip=1
[ -z "$(git status --porcelain)" ] || may_skip=""
[ -z "${CI_ALL:-}" ] || may_skip=""
failed=0
while read -r -u 3 name rest; do
    case $name in "" | \#*) continue ;; esac
    # Targets and packages are columns, two blanks apart.
    targets=$(sed 's/   *.*//' <<<"$rest")
    read -r -a packages <<<"$(sed 's/.*   *//' <<<"$rest")"
    hash=always
    if [ "${packages[*]}" != always ]; then
        folders=$(folders_of_step "${packages[@]}")
        # shellcheck disable=SC2086
        recipe=$(make --dry-run --no-print-directory $targets)
        hash=$(hash_of HEAD "$folders" "$recipe")
    fi
    if [ -n "$only_inputs" ]; then
        for commit in "$@"; do
            [ "$hash" = always ] || hash=$(hash_of "$commit" "$folders" "$recipe")
            echo "$commit $name $hash"
        done
        continue
    fi
    if [ "$failed" = 1 ] && [ -z "${KEEP_GOING:-}" ]; then
        rows+=("$name" - - "not run: after a failure")
        continue
    fi
    passed=$cache/$name-$hash
    if [ -n "$may_skip" ] && [ "$hash" != always ] && [ -e "$passed" ]; then
        rows+=("$name" - - "not run: passed with these inputs on $(cat "$passed")")
        continue
    fi
    echo "== $name"
    begin=$SECONDS
    count_processor
    before=$processor
    # shellcheck disable=SC2086
    if make $targets; then
        count_processor
        rows+=("$name" $((SECONDS - begin)) $((processor - before)) "")
        [ "$hash" = always ] || [ -n "$(git status --porcelain)" ] || { mkdir -p "$cache"; date -u +%FT%TZ >"$passed"; }
    else
        count_processor
        rows+=("$name" $((SECONDS - begin)) $((processor - before)) FAILED)
        failed=1
    fi
done 3<"$list"
[ -z "$only_inputs" ] || exit 0
count_processor
rows+=(all "$SECONDS" "$processor" "")
table
[ "$failed" = 0 ] || exit 1
if [ "$processor" -gt $((60 * ${CPU_MINUTES:-60})) ]; then
    echo "the steps took more than ${CPU_MINUTES:-60} minutes of processor time" >&2
    exit 1
fi
