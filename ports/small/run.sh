#!/usr/bin/env bash
# How much of the allocator a small kernel links, in bytes; fails beyond the limits.
set -euo pipefail
cd "$(dirname "$0")"

target=x86_64-unknown-none
most_text=$((40 << 10))
most_cpu=$((4 << 10))
most_more=$((64 << 10))

# Code and constants of a program with a feature more.
text_of() {
    local program=$1 feature=${2:-}
    cargo build --release --quiet --locked --target $target --bin "$program" --features "$feature"
    size -A "$binaries/$program" | awk '$1 == ".text" || $1 == ".rodata" { sum += $2 } END { print sum }'
}

binaries=${CARGO_TARGET_DIR:-target}/$target/release
text=$(text_of small)
cell=$((16#$(nm -S "$binaries/small" | awk '/4CPUS/ { print $2 }')))
data=$(size -A "$binaries/small" | awk '$1 == ".data" { print $2 }')
own=$(text_of unikernel own)
ranges=$(text_of unikernel)
start=$(text_of unikernel start)
echo "text and constants  $text bytes (at most $most_text)"
echo "a CPU's data        $cell bytes (at most $most_cpu)"
echo "initialised data    ${data:-0} bytes (none: all is zero at start)"
echo "a unikernel, more than with a list of its own ($own bytes):"
echo "  range by range    $((ranges - own)) bytes (at most $most_more)"
echo "  by \`start\`        $((start - own)) bytes"
[ "$text" -le "$most_text" ] && [ "$cell" -le "$most_cpu" ] && [ "${data:-0}" -eq 0 ] &&
    [ $((ranges - own)) -le "$most_more" ] || {
    echo "too large" >&2
    exit 1
}
