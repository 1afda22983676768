#!/usr/bin/env bash
# Boots two kernels, or takes two folders of records; judges, annotates, summarizes, reports.
# All inputs come as environment variables: action.yml names them.
set -euo pipefail

mkdir -p "${OUTPUT:?}"
for folder in "$A" "$B"; do
    case $(realpath -m -- "${folder:-/}")/ in "$(realpath -- "$OUTPUT")"/*)
        echo "::error::$folder is below the output $OUTPUT, which begins empty; expected it outside"
        exit 2
        ;;
    esac
done
# What an earlier use left tells of other boots.
records=$OUTPUT/records
rm -rf -- "$records" "$OUTPUT/boots"
rm -f -- "$OUTPUT"/{matrix.toml,summary.md,annotations,gate.xml,gate.txt,report.html}
mkdir -p "$records"
if [ -n "$KERNEL_A$KERNEL_B" ]; then
    if [ -z "$KERNEL_A" ] || [ -z "$KERNEL_B" ]; then
        echo "::error::kernel-a and kernel-b belong together"
        exit 2
    fi
    quoted() { realpath -- "$1" | sed 's/\\/\\\\/g; s/"/\\"/g; s/.*/"&"/'; }
    cat >"$OUTPUT/matrix.toml" <<END
runs = $RUNS
clocks = ["$CLOCK"]
[[kernel]]
name = "a"
path = $(quoted "$KERNEL_A")
[[kernel]]
name = "b"
path = $(quoted "$KERNEL_B")
[[shape]]
memory_mib = $MEMORY_MIB
cpus = $CPUS
END
    # A boot that failed leaves its reason, which the gate names.
    "$FIRSTLIGHT" matrix "$OUTPUT/matrix.toml" -o "$OUTPUT/boots" || [ $? -eq 6 ]
    for side in a b; do
        mkdir -p "$records/$side"
        find "$OUTPUT/boots" -maxdepth 1 -name "$side-*" -exec mv -t "$records/$side" {} +
        # A cell is called the same on both sides.
        find "$records/$side" -name '*.failed' -exec sed -i "s/\"cell\":\"$side-/\"cell\":\"/" {} +
    done
else
    for side in a b; do
        folder=$A
        [ $side = a ] || folder=$B
        [ -d "$folder" ] || {
            echo "::error::$side: ${folder:-nothing} is no folder of records"
            exit 2
        }
        mkdir -p "$records/$side"
        cp -Rp -- "$folder/." "$records/$side/"
    done
fi

code=0
# The options are words of a command line.
# shellcheck disable=SC2086
"$FIRSTLIGHT" gate "$records/a" "$records/b" $OPTIONS \
    --export "markdown=$OUTPUT/summary.md" --export "github=$OUTPUT/annotations" \
    --export "junit=$OUTPUT/gate.xml" >"$OUTPUT/gate.txt" || code=$?
"$FIRSTLIGHT" report "$records" -o "$OUTPUT/report.html" || true
cat "$OUTPUT/gate.txt"
if [ -f "$OUTPUT/annotations" ]; then
    cat "$OUTPUT/annotations"
    cat "$OUTPUT/summary.md" >>"$GITHUB_STEP_SUMMARY"
fi
case $code in
0) verdict=$(sed -n '1s/^### Boot time: //p' "$OUTPUT/summary.md") ;;
7) verdict=regressed ;;
11) verdict=unclear ;;
*) verdict=error ;;
esac
echo "verdict=$verdict" >>"$GITHUB_OUTPUT"
exit "$code"
