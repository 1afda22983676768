#!/usr/bin/env bash
# Draws mutations of the code by a seed, and says which of them no test notices.
#
#   scripts/mutants.sh SEED [COUNT [PACKAGE...]]     60 of the engine, lab and pool
#
# Of all mutations in order, every so many-th, from one on that the seed says. Each meets the tests that end soon (the
# profile `soon` of .config/nextest.toml); those that pass meet the examples in the documentation of their package, then
# all tests of all packages: what the laboratory shows is tested by its command. Fails below 95 %.
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

mutants() {
    local status=0
    cargo mutants --dir "$tree" --in-place "${packages[@]}" --sharding round-robin --no-times --colors never "$@" ||
        status=$?
    # 2: some were not noticed; 3: some ran into their time, which is noticing, too.
    case $status in 0 | 2 | 3) ;; *) exit "$status" ;; esac
}
# What a run left in one of its lists.
lines() { cat "${@/#/$out/}" | sed '/^$/d'; }

cargo mutants --dir "$tree" --list "${packages[@]}" >"$out/all.txt"
all=$(wc -l <"$out/all.txt")
step=$(((all + count - 1) / count))
echo "SEED=$seed repeats this sample: from mutation $((seed % step)) on, every $step-th of $all"
rm -rf "$out/soon" "$out/whole"
mutants --test-tool nextest --output "$out/soon" --shard "$((seed % step))/$step" --timeout-multiplier 5 -- --profile soon
noticed=$(lines soon/mutants.out/{caught,timeout}.txt | wc -l)
lines soon/mutants.out/missed.txt >"$out/left.txt"

# Whether what was left meets a test of these that fails: of the workspace or of its package, the tool to run them and its
# arguments.
is_noticed() {
    mutants --output "$out/whole" --shard "$1/$all" --baseline skip --timeout 3600 --test-workspace "$2" --test-tool "$3" \
        -- "$4"
    [ ! -s "$out/whole/mutants.out/missed.txt" ]
}

missed=()
if [ -s "$out/left.txt" ]; then
    echo "$(wc -l <"$out/left.txt") meet all tests, after the tree without a mutation"
    (cd "$tree" && cargo test --quiet "${packages[@]}" --doc && cargo nextest run --workspace --status-level fail)
    while IFS= read -r mutation; do
        at=$(grep -nxF -m 1 -- "$mutation" "$out/all.txt" | cut -d: -f1)
        if is_noticed "$((at - 1))" false cargo --doc || is_noticed "$((at - 1))" true nextest --fail-fast; then
            noticed=$((noticed + 1))
        else
            missed+=("$mutation")
        fi
    done <"$out/left.txt"
fi
echo "noticed $noticed of $((noticed + ${#missed[@]})) (SEED=$seed); not noticed:"
[ ${#missed[@]} -eq 0 ] || printf '%s\n' "${missed[@]}"
[ $((${#missed[@]} * 20)) -le $((noticed + ${#missed[@]})) ]
