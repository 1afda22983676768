#!/usr/bin/env bash
# Where the instructions of one row of `make counts` are: by function as it was compiled, then by line of the source.
#
#   TARGET=TRIPLE scripts/profile.sh ROW
set -euo pipefail
cd "$(dirname "$0")/.."

row=${1:?usage: make profile ROW=page_pairs}
profile=$(mktemp)
trap 'rm -f "$profile"' EXIT
export CARGO_PROFILE_COUNTS_DEBUG=line-tables-only
cargo run --quiet --profile counts --target "$TARGET" -p firstlight-bench --bin counts -- profile "$row" "$profile"

# Lines of callgrind's file: fl=, fi= and fe= say the file, fn= the function; `line cost`, but after calls= that of the callee.
most() {
    awk -v by="$1" -v here="$PWD/" '
        /^f[lie]=/ { file = substr($0, 4); sub(here, "", file); sub(/^\/rustc\/[^\/]*\//, "", file) }
        /^fn=/ { name = substr($0, 4) }
        /^calls=/ { getline; next }
        /^[0-9]+ [0-9]+$/ { cost[by == "line" ? file ":" $1 : name] += $2 }
        END { for (of in cost) print cost[of], of }' "$profile" | sort -rn | head -40
}
most function | cut -c-160
echo
most line | while read -r cost at; do
    file=${at%:*} line=${at##*:} text=
    [ ! -f "$file" ] || [ "$line" -eq 0 ] || text=$(sed -n "$line{s/^ *//;p}" "$file")
    printf '%8d  %-52s  %s\n' "$cost" "${at#engine/}" "$text"
done
