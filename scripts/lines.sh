#!/usr/bin/env bash
# Lines of Rust code below each folder: without tests, comments and blank lines.
# Usage: scripts/lines.sh FOLDER..., by default the allocator's.
set -euo pipefail
for folder in "${@:-engine/frames/src/frames}"; do
    find "$folder" -name '*.rs' -not -path '*/tests/*' -not -path '*loom_tests*' -not -name 'tests.rs' -print0 |
        xargs -0 awk '
            FNR == 1 { in_tests = 0 }
            # The tests of a file are its end.
            /^#\[cfg\((all\()?test/ { held = 1; next }
            held && /^mod [a-z_]+ \{/ { in_tests = 1 }
            { held = 0 }
            in_tests || /^[ \t]*(\/\/|$)/ { next }
            { lines++ }
            END { print lines }' |
        awk -v folder="$folder" '{ lines += $1 } END { print lines, folder }'
done
