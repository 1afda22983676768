#!/usr/bin/env bash
# How much of the allocator a small kernel links, in bytes; fails beyond the limits.
set -euo pipefail
cd "$(dirname "$0")"

target=x86_64-unknown-none
most_text=$((40 << 10))
most_cpu=$((4 << 10))

cargo build --release --quiet --locked --target "$target" --bin small
binary="${CARGO_TARGET_DIR:-target}/$target/release/small"
text=$(size -A "$binary" | awk '$1 == ".text" || $1 == ".rodata" { sum += $2 } END { print sum }')
cell=$((16#$(nm -S "$binary" | awk '/4CELL/ { print $2 }')))
data=$(size -A "$binary" | awk '$1 == ".data" { print $2 }')
echo "text and constants  $text bytes (at most $most_text)"
echo "a CPU's data        $cell bytes (at most $most_cpu)"
echo "initialised data    ${data:-0} bytes (none: all is zero at start)"
[ "$text" -le "$most_text" ] && [ "$cell" -le "$most_cpu" ] && [ "${data:-0}" -eq 0 ] || {
    echo "too large" >&2
    exit 1
}
