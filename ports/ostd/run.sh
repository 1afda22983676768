#!/usr/bin/env bash
# Builds the kernels, boots them in QEMU without KVM, and prints `N passed, N failed`.
#
#   ports/ostd/run.sh                  ostd's unit tests, stress, costs
#   MEMORY=512G ports/ostd/run.sh      a larger machine (9.4 GiB of this one's memory, minutes)
#   CPUS=8 ports/ostd/run.sh
#   UNITS= ports/ostd/run.sh           without ostd's unit tests, which are half of what is built
#
# Costs are instructions, counted by QEMU, the same in every run. The kernels' output stays in
# target/ostd/*.log.
set -euo pipefail
cd "$(dirname "$0")"
unset RUSTUP_TOOLCHAIN
: "${MEMORY:=4G}" "${CPUS:=4}" "${UNITS=1}"
features=()
[ "${MEMORY%G}" -le 60 ] || features=(--features large)
target=${CARGO_TARGET_DIR:-$PWD/../../target}/ostd
mkdir -p "$target"
built=$target/x86_64-unknown-none
passed=0
failed=0

# The most instructions a pair of a shape may cost: the aims of the port; for building and adding, a
# tenth more than it does.
limits="one-frame 150
16-frames 250
64-frames 250
3-frames 400
10-frames 600
one-aligned-to-512 3500
bursts-of-order-2 500
build-512-GiB 1700
add-512-GiB 1400"

fail() {
    failed=$((failed + 1))
    echo "FAILED: $*"
}

# Name of the log, kernel, its command line, arguments of QEMU. The kernel ends QEMU with 33 if
# all is well.
boot() {
    local name=$1 kernel=$2 words=$3 code=0
    shift 3
    timeout -k 5 240 qemu-system-x86_64 -accel tcg -machine q35,memory-backend=memory -cpu max \
        -m "$MEMORY" -object "memory-backend-ram,id=memory,size=$MEMORY,reserve=off" \
        -display none -serial "file:$target/$name.log" -no-reboot \
        -device isa-debug-exit,iobase=0xf4,iosize=4 -kernel "$kernel" -append "$words" "$@" \
        </dev/null || code=$?
    # Colours and carriage returns.
    sed -i 's/\x1b\[[0-9;]*m//g; s/\r//g' "$target/$name.log"
    if [ $code != 33 ]; then
        fail "$name: QEMU ended with code $code, expected 33; the end of $target/$name.log:"
        tail -n 20 "$target/$name.log"
    fi
}

# Adds up what a kernel tested: ostd's runner prints sums, ours a line for each.
count() {
    local ok bad
    ok=$(awk '/^test result:/ { n += $4 } /^test stress::.* ok$/ { n++ } END { print n + 0 }' "$target/$1.log")
    bad=$(awk '/^test result:/ { n += $6 } /^test stress::.* FAILED/ { n++ } END { print n + 0 }' "$target/$1.log")
    grep -E '^test .*FAILED|^\[caught panic\]' "$target/$1.log" || true
    passed=$((passed + ok))
    failed=$((failed + bad))
    echo "$1: $ok passed, $bad failed"
    [ "$ok" -ge "$2" ] || fail "$1: $ok tests passed, expected at least $2"
}

cost() {
    awk -v shape="$2" '$1 == "measured" && $2 == shape { print $3 }' "$target/$1.log"
}

cargo build --quiet --locked --target-dir "$target" --release --bin firstlight --bin default "${features[@]}"
if [ -n "$UNITS" ]; then
    # The tests' own configuration: their panics unwind, and they check debug assertions. Of the same profile, so that what
    # runs on the host while both are built is built once.
    cargo build --quiet --locked --target-dir "$target" --release --bin unit-tests "${features[@]}" --config \
        'target.x86_64-unknown-none.rustflags=["--cfg=ktest", "-Cpanic=unwind", "-Copt-level=1", "-Cdebug-assertions=on", "-Coverflow-checks=on"]'
    boot unit-tests "$built/release/unit-tests" "" -smp "$CPUS"
    count unit-tests 222
fi
for name in firstlight default; do
    boot "$name-stress" "$built/release/$name" stress -smp "$CPUS"
    # One instruction a nanosecond.
    boot "$name-costs" "$built/release/$name" measure -smp 1 -icount shift=0,sleep=off
done
count firstlight-stress 6
sed -n 's/^stressed/stress, firstlight:/p' "$target/firstlight-stress.log"
sed -n 's/^stressed/stress, default:/p' "$target/default-stress.log"

echo
printf '%-22s %12s %12s %8s\n' "instructions" default firstlight limit
while read -r shape limit; do
    ours=$(cost firstlight-costs "$shape")
    printf '%-22s %12s %12s %8s\n' "$shape" "$(cost default-costs "$shape")" "$ours" "$limit"
    if [ "${ours:-none}" -le "$limit" ] 2>/dev/null; then
        passed=$((passed + 1))
    else
        fail "$shape costs ${ours:-nothing that was measured}, expected at most $limit instructions"
    fi
done <<<"$limits"
for shape in a-huge-frame add-512-GiB boot; do
    printf '%-22s %12s %12s\n' "$shape" "$(cost default-costs "$shape")" "$(cost firstlight-costs "$shape")"
done

echo
echo "$passed passed, $failed failed"
[ $failed = 0 ]
