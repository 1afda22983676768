#!/usr/bin/env bash
# What each feature of the engine costs a kernel, as the rows of a table of docs/kernel-features.md: the least kernel's code with it
# (opt-level z, link-time optimisation; ports/small/run.sh has its limit), a CPU's cell, the tables of a span of 1 GiB,
# and the instructions of an allocation and its free (opt-level 3).
set -euo pipefail
cd "$(dirname "$0")"

bare=x86_64-unknown-none
counted=x86_64-unknown-linux-musl
built=${CARGO_TARGET_DIR:-target}

instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$built/$counted/cost/cost" "$1" "$2" 2>&1 |
        awk '/Collected :/ { print $NF }'
}

# Name of the row, features.
row() {
    local with=(--no-default-features --features "$2") binary text shape more fewer
    cargo build --release --quiet --locked --target $bare --bin small "${with[@]}"
    cargo build --profile cost --quiet --locked --target $counted --bin cost "${with[@]}"
    binary=$built/$bare/release/small
    text=$(size -A "$binary" | awk '$1 == ".text" || $1 == ".rodata" { sum += $2 } END { print sum }')
    symbol() { echo $((16#$(nm -S "$binary" | awk -v name="$1" '$4 ~ name { print $2; exit }'))); }
    printf '| %s | %s | %s | %s |' "$1" "$text" "$(symbol 4CPUS)" "$(symbol 6TABLES)"
    for shape in page shared-page shared-huge; do
        more=$(instructions $shape 3000)
        fewer=$(instructions $shape 1000)
        printf ' %s |' $(((more - fewer) / 2000))
    done
    echo
}

echo '| features | code, bytes | cell, bytes | tables of 1 GiB, bytes | a page of a CPU | of `Frames` | 2 MiB of `Frames` |'
echo '|---|---|---|---|---|---|---|'
row '`small-caches`, the least' small-caches
row 'none' ''
row '`movable`' movable
row '`hotplug`' hotplug
row '`content`' content
row '`check-double-free`' check-double-free
row '`x86_64`' x86_64
row 'default: `content`, `hotplug`, `movable`' content,hotplug,movable
row 'default and `small-caches`' content,hotplug,movable,small-caches
