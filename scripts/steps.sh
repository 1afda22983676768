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
# failure no step begins, unless KEEP_GOING=1. STEPS_AT_ONCE (1) run beside each other; what each says comes when it ends.
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

work=$(mktemp -d)
# Each step is a group of processes, which ends with this.
declare -A running=()
set -m
trap 'for pid in "${!running[@]}"; do kill -- "-$pid" 2>/dev/null || true; done; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# The seconds of processor time in what `times` said of the processes that a shell waited for.
seconds_in() {
    awk 'END { for (i = 1; i <= 2; i++) { split($i, p, /[ms]/); s += 60 * p[1] + p[2] } print int(s) }' "$1"
}

# Makes the targets of a step, in a process of its own: whether they passed, their seconds, and those of processor time.
run_step() {
    local name=$1 begin=$SECONDS outcome=passed
    shift
    make "$@" || outcome=FAILED
    times >"$work/$name.times"
    echo "$outcome $((SECONDS - begin)) $(seconds_in "$work/$name.times")" >"$work/$name.result"
}

only_inputs=""
[ "${1:-}" != --inputs ] || { only_inputs=1; shift; }
list=${1:-}
[ -r "$list" ] || { echo "steps.sh: a file of steps is expected, not '$list'" >&2; exit 2; }
shift
[ $# != 0 ] || set HEAD

# Of each step, by its place in the list; what runs is a place by its process.
rows=()
names=()
hashes=()
processor=0
failed=0

# Waits for a step that runs, and tells what it said and what came of it.
end_one() {
    local pid at name outcome seconds spent
    wait -n -p pid "${!running[@]}" || true
    at=${running[$pid]}
    unset "running[$pid]"
    name=${names[at]}
    # One that was ended has no result.
    read -r outcome seconds spent <"$work/$name.result" || { outcome=FAILED seconds=- spent=0; }
    [ "$at_once" = 1 ] || { echo "== $name"; cat "$work/$name.said"; }
    processor=$((processor + spent))
    if [ "$outcome" = passed ]; then
        rows[at]=$(row "$name" "$seconds" "$spent" "")
        if [ "${hashes[at]}" != always ] && [ -z "$(git status --porcelain)" ]; then
            mkdir -p "$cache"
            date -u +%FT%TZ >"$cache/$name-${hashes[at]}"
        fi
    else
        rows[at]=$(row "$name" "$seconds" "$spent" FAILED)
        failed=1
    fi
}

row() {
    printf '%-10s %8s %10s  %s' "$@"
}

at_once=${STEPS_AT_ONCE:-1}
may_skip=1
[ -z "$(git status --porcelain)" ] || may_skip=""
[ -z "${CI_ALL:-}" ] || may_skip=""
at=-1
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
    at=$((at + 1))
    names[at]=$name
    hashes[at]=$hash
    passed=$cache/$name-$hash
    if [ -n "$may_skip" ] && [ "$hash" != always ] && [ -e "$passed" ]; then
        rows[at]=$(row "$name" - - "not run: passed with these inputs on $(cat "$passed")")
        continue
    fi
    while [ ${#running[@]} -ge "$at_once" ]; do end_one; done
    if [ "$failed" = 1 ] && [ -z "${KEEP_GOING:-}" ]; then
        rows[at]=$(row "$name" - - "not run: after a failure")
        continue
    fi
    if [ "$at_once" = 1 ]; then
        echo "== $name"
        # shellcheck disable=SC2086
        run_step "$name" $targets </dev/null &
    else
        echo "== $name begins"
        # shellcheck disable=SC2086
        run_step "$name" $targets </dev/null >"$work/$name.said" 2>&1 &
    fi
    running[$!]=$at
done 3<"$list"
while [ ${#running[@]} != 0 ]; do end_one; done
[ -z "$only_inputs" ] || exit 0
echo
row step seconds processor ""
printf '\n%s' "${rows[@]}" "$(row all "$SECONDS" "$processor" "")"
echo
[ "$failed" = 0 ] || exit 1
if [ "$processor" -gt $((60 * ${CPU_MINUTES:-60})) ]; then
    echo "the steps took more than ${CPU_MINUTES:-60} minutes of processor time" >&2
    exit 1
fi
