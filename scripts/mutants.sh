#!/usr/bin/env bash
# Draws mutations of the code by a seed, and says which of them no test notices.
#
#   scripts/mutants.sh SEED [COUNT [PACKAGE...]]     60 of the engine, lab and pool
#
# Of all mutations in order, every so many-th, from one on that the seed says. Each meets the tests that end soon (the
# profile `soon` of .config/nextest.toml) of its package, and of `firstlight` where that is one of the engine's; if they
# pass, the examples in the documentation of its package; then all tests of all packages: what the laboratory shows is
# tested by its command. Fails below 95 %. What does not compile counts for nothing.
# Mutations are made in a copy of this tree, in target/mutants/tree, which keeps what it built.
set -euo pipefail
cd "$(dirname "$0")/.."

seed=$1
count=${2:-60}
shift "$(($# < 2 ? $# : 2))"
[ $# -gt 0 ] || set -- firstlight{-memory,-frames,-boot,-memmap,-workers,-blocks,-lab,-pool}
packages=()
for package in "$@"; do packages+=(-p "$package"); done
out=$(realpath "${CARGO_TARGET_DIR:-target}")/mutants
tree=$out/tree

# New times, so that nothing is used that was built with a mutation.
mkdir -p "$tree"
find "$tree" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference -t "$tree"
unset CARGO_TARGET_DIR
# The copy's own: its tests count boots by it.
kept=$tree/scripts/boots/kept.sh

cargo mutants --dir "$tree" --list "${packages[@]}" >"$out/all.txt"
all=$(wc -l <"$out/all.txt")
step=$(((all + count - 1) / count))
echo "SEED=$seed repeats this sample: from mutation $((seed % step)) on, every $step-th of $all"

# What tests say of a mutation, by its place in the list: caught, timeout, missed or unviable. Where several have one name
# they are one for the tool, too: the place is what is asked.
ask() {
    local place=$1 status=0
    shift
    "$kept" cargo mutants --dir "$tree" --in-place "${packages[@]}" --sharding round-robin --shard "$place/$all" --no-times \
        --colors never --baseline skip --output "$out" "$@" >"$out/said.txt" 2>&1 || status=$?
    # 2: it was not noticed; 3: tests ran into their time, which is noticing, too.
    case $status in 0 | 2 | 3) ;; *) cat "$out/said.txt" >&2; exit "$status" ;; esac
    for verdict in caught timeout missed unviable; do
        [ ! -s "$out/mutants.out/$verdict.txt" ] || { echo "$verdict"; return; }
    done
    echo "mutants.sh: no verdict on mutation $place" >&2
    exit 1
}

echo "the tree without a mutation"
(cd "$tree" && cargo test --quiet "${packages[@]}" --doc && "$kept" cargo nextest run --workspace --status-level fail)

missed=()
noticed=0
for ((place = seed % step; place < all; place += step)); do
    mutation=$(sed -n "$((place + 1))p" "$out/all.txt")
    # The engine's crates are tested together, by the one that has them all.
    near=()
    case $mutation in engine/*) near=(--cargo-test-arg=-pfirstlight) ;; esac
    verdict=$(ask "$place" --timeout 900 --test-tool nextest "${near[@]}" -- --profile soon)
    [ "$verdict" != missed ] || verdict=$(ask "$place" --timeout 900 --test-tool cargo -- --doc)
    [ "$verdict" != missed ] || verdict=$(ask "$place" --timeout 3600 --test-workspace true --test-tool nextest -- --fail-fast)
    echo "$verdict: $mutation"
    case $verdict in
        missed) missed+=("$mutation") ;;
        caught | timeout) noticed=$((noticed + 1)) ;;
    esac
done
echo "noticed $noticed of $((noticed + ${#missed[@]})) (SEED=$seed); not noticed:"
[ ${#missed[@]} -eq 0 ] || printf '%s\n' "${missed[@]}"
[ $((${#missed[@]} * 20)) -le $((noticed + ${#missed[@]})) ]
