#!/usr/bin/env bash
# Draws mutations of the code by a seed, and says which of them no test notices.
#
#   scripts/mutants.sh SEED [COUNT [PACKAGE...]]     60 of engine, lab and pool
#
# Of all mutations in order, every so many-th, from one on that the seed says. Fails below 95 %.
set -euo pipefail
cd "$(dirname "$0")/.."

seed=$1
count=${2:-60}
shift "$(($# < 2 ? $# : 2))"
[ $# -gt 0 ] || set -- firstlight firstlight-lab firstlight-pool
packages=()
for package in "$@"; do packages+=(-p "$package"); done
out=${CARGO_TARGET_DIR:-target}/mutants
mkdir -p "$out"

all=$(cargo mutants --list "${packages[@]}" | wc -l)
step=$(((all + count - 1) / count))
echo "SEED=$seed repeats this sample: from mutation $((seed % step)) on, every $step-th of $all"
status=0
cargo mutants "${packages[@]}" --shard "$((seed % step))/$step" --sharding round-robin --test-tool nextest \
    --output "$out" --timeout-multiplier 5 --no-times --colors never -- --fail-fast || status=$?
# 2: some were not noticed; 3: some ran into their time, which is noticing, too.
case $status in 0 | 2 | 3) ;; *) exit "$status" ;; esac
missed=$(wc -l <"$out/mutants.out/missed.txt")
caught=$(cat "$out/mutants.out/caught.txt" "$out/mutants.out/timeout.txt" | wc -l)
echo "noticed $caught of $((caught + missed)) (SEED=$seed); not noticed:"
cat "$out/mutants.out/missed.txt"
[ $((missed * 20)) -le $((caught + missed)) ]
