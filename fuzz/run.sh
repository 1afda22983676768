#!/usr/bin/env bash
# Runs fuzz targets: fuzz/run.sh SECONDS [TARGET...]; all targets by default.
#
# Needs a nightly compiler and cargo-fuzz (cargo install cargo-fuzz). The
# engine is safe code where it parses, so no sanitizer is used: what is looked
# for is a panic, an overflow, a failed assertion, a hang (5 s) or too much
# memory (1 GiB). One line for each target goes to standard output, and at the end the
# names of those that failed; what a target itself says goes to standard error,
# or to a log of its own in the folder that FUZZ_LOGS names.
set -eu

if [ $# -lt 1 ]; then
    echo "usage: $0 SECONDS [TARGET...]" >&2
    exit 2
fi
seconds=$1
shift
cd "$(dirname "$0")"
if [ $# -eq 0 ]; then
    mapfile -t all < <(cargo +nightly fuzz list)
    set -- "${all[@]}"
fi
logs=${FUZZ_LOGS:-}
[ -z "$logs" ] || mkdir -p "$logs"
failed=()

for target in "$@"; do
    case $target in
        # Large enough for the largest real input of its kind, no larger.
        kernel_log | boot_linux) max_len=16384 extra=../testdata/machines ;;
        doctor) max_len=16384 extra=../testdata/logs ;;
        srat | slit | madt | fadt | cedt | serial_ports | acpi_tables) max_len=6144 extra=../testdata/machines/acpi ;;
        fdt) max_len=10240 extra=../testdata/machines/trees ;;
        cmdline) max_len=512 extra= ;;
        *) max_len=4096 extra= ;;
    esac
    mkdir -p "corpus/$target"
    log=$(mktemp)
    status=0
    # The log is written by `tee`, so that a file behind standard output is not opened again.
    { cargo +nightly fuzz run --sanitizer none "$target" "corpus/$target" "seeds/$target" $extra -- \
        -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=$max_len \
        -print_final_stats=1 2>&1 || echo "exit status $?"; } | tee "$log" >&2
    status=$(sed -n 's/^exit status \([0-9]*\)$/\1/p' "$log" | tail -1)
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cov=$(grep -o 'cov: [0-9]* ft: [0-9]*' "$log" | tail -1 || true)
    verdict=ok
    if [ -n "$status" ]; then
        verdict="FAILED, exit $status"
        failed+=("$target")
    fi
    echo "$(date -u +%FT%TZ) $target: $verdict, $seconds s, ${runs:-0} executions, ${cov:-no coverage}"
    if [ -n "$logs" ]; then
        mv "$log" "$logs/$target.log"
    else
        rm -f "$log"
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
echo "all $# targets passed"
