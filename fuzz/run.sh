#!/bin/sh
# Runs fuzz targets: fuzz/run.sh SECONDS [TARGET...]; all targets by default.
#
# Needs a nightly compiler and cargo-fuzz (cargo install cargo-fuzz). The
# engine is safe code where it parses, so no sanitizer is used: what is looked
# for is a panic, an overflow, a failed assertion, a hang (5 s) or too much
# memory (1 GiB). FUZZ_LOGS names a folder for one log a target and a summary.
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 SECONDS [TARGET...]" >&2
    exit 2
fi
seconds=$1
shift
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- $(cargo +nightly fuzz list)
logs=${FUZZ_LOGS:-}
failed=0

for target in "$@"; do
    case $target in
        # Large enough for the largest real input of its kind, no larger.
        kernel_log | boot_linux) max_len=16384 extra=../testdata/machines ;;
        doctor) max_len=16384 extra=../testdata/logs ;;
        srat | slit | madt | fadt | acpi_tables) max_len=6144 extra=../testdata/machines/acpi ;;
        cmdline) max_len=512 extra= ;;
        *) max_len=4096 extra= ;;
    esac
    mkdir -p "corpus/$target"
    log=${logs:+$logs/$target.log}
    echo "== $target, $seconds s"
    status=0
    cargo +nightly fuzz run --sanitizer none "$target" "corpus/$target" "seeds/$target" $extra -- \
        -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=$max_len \
        -print_final_stats=1 >"${log:-/dev/stdout}" 2>&1 || status=$?
    [ $status -eq 0 ] || failed=1
    if [ -n "$log" ]; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        cov=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -1)
        echo "$(date -u +%FT%TZ) $target exit $status, $seconds s, ${runs:-0} executions, $cov" >>"$logs/summary.txt"
    fi
done
exit $failed
