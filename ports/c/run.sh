#!/usr/bin/env bash
# Builds the library, and proves it in C: tests on this host and a kernel in QEMU, by gcc and by
# clang, warnings as errors. The last line is `N passed, N failed`; `make port-c` installs what is
# needed and calls this.
set -euo pipefail
cd "$(dirname "$0")"

target=${CARGO_TARGET_DIR:-$PWD/../../target}/c
out=$target/out
mkdir -p "$out"
export CARGO_TARGET_DIR=$target

warnings=(-std=c11 -pedantic -Wall -Wextra -Wconversion -Wno-sign-conversion -Werror -O2 -g -I.
    -I"$out")
freestanding=(-ffreestanding -fno-pic -fno-pie -mno-red-zone -mgeneral-regs-only
    -fno-stack-protector -fno-asynchronous-unwind-tables)
# An image at fixed addresses, without what no code calls.
fixed=(-nostdlib -static -Wl,-T,kernel/link.ld -Wl,--gc-sections -Wl,-z,noexecstack)
# 2 GiB below 4 GiB and 1 GiB above; nothing of it is reserved on the host.
machine=(-machine q35,memory-backend=memory -cpu max -accel tcg,thread=multi -smp 4 -m 3G
    -object memory-backend-ram,id=memory,size=3G,reserve=off -nodefaults -display none
    -no-reboot -serial stdio -device isa-debug-exit,iobase=0xf4,iosize=4)

passed=0
failed=0

# Counts what the last line of a program's output says, or a failure if it says nothing.
#   tally NAME EXPECTED_EXIT_CODE COMMAND...
tally() {
    local name=$1 expected=$2 seen=0 output
    shift 2
    output=$("$@" 2>&1) || seen=$?
    sed "s/^/  $name: /" <<<"$output"
    if [[ $output =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
    fi
    if [ "$seen" != "$expected" ]; then
        echo "  $name: exit code $seen, expected $expected"
        failed=$((failed + 1))
    fi
}

# Counts one check.
#   one NAME COMMAND...
one() {
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "  $name: failed"
        failed=$((failed + 1))
    fi
}

cargo build --locked --release --quiet -p firstlight-c
cargo build --locked --release --quiet -p firstlight-c --target x86_64-unknown-none
hosted=$target/release/libfirstlight.a
bare=$target/x86_64-unknown-none/release/libfirstlight.a

one "header" cargo run --locked --quiet -p header -- --check
one "format" cargo fmt --all --check
one "lints" cargo clippy --locked --quiet --workspace -- -D warnings

# The code of README.md is a part of the tests.
sed -n '/^```c$/,/^```$/{//!p}' README.md >"$out/readme.h"

for compiler in gcc clang; do
    # gcc brings its sanitizers along.
    sanitize=()
    [ $compiler = clang ] || sanitize=(-fsanitize=address,undefined -fno-sanitize-recover=all)
    $compiler "${warnings[@]}" "${sanitize[@]}" -o "$out/host-$compiler" tests/*.c "$hosted" -pthread
    tally "host, $compiler" 0 "$out/host-$compiler"

    $compiler "${warnings[@]}" "${freestanding[@]}" "${fixed[@]}" -o "$out/kernel-$compiler" \
        kernel/start.S kernel/kernel.c "$bare"
    tally "kernel, $compiler" 33 timeout 120 qemu-system-x86_64 "${machine[@]}" \
        -kernel "$out/kernel-$compiler"
done

echo "port-c: $passed passed, $failed failed"
[ $failed = 0 ]
