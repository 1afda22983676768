#!/usr/bin/env bash
# What the tests were and are: their number, that of their assertions, and which names are gone.
#
#   scripts/tests.sh BASE [COMMIT]     between two commits; the second one is HEAD
set -euo pipefail
cd "$(dirname "$0")/.."
base=${1:?a commit to compare with is expected}
now=${2:-HEAD}

# The names of tests: functions below the attribute, with the tests of property models among them.
names() {
    git grep -h -A 6 -E '^\s*#\[test\]' "$1" -- '*.rs' |
        awk '/#\[test\]/ { wanted = 1 } wanted && match($0, /fn [a-z0-9_]+/) { print substr($0, RSTART + 3, RLENGTH - 3); wanted = 0 }'
}
assertions() { git grep -hoE '\b(prop_)?assert(_eq|_ne)?!' "$1" -- '*.rs' | wc -l; }

for commit in "$base" "$now"; do
    echo "$commit: $(names "$commit" | wc -l) tests, $(assertions "$commit") assertions"
done
echo "names of $base that are gone, of tests that were renamed, joined or replaced:"
comm -23 <(names "$base" | sort -u) <(names "$now" | sort -u)
