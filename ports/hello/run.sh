#!/usr/bin/env bash
# Builds the kernel and boots it in QEMU on two machines: one with memory above 4 GiB and a module, one of 32 MiB.
# The last line is `N passed, N failed`. Within continuous integration lints are left to `make nightly`.
set -euo pipefail
cd "$(dirname "$0")"

target=x86_64-unknown-none
# What the image is built with is built already.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/../../target}
kernel=$CARGO_TARGET_DIR/$target/release/hello
passed=0
failed=0

cargo fmt --check
[ -n "${CI:-}" ] || cargo clippy --release --locked --quiet --target $target -- -D warnings
cargo build --release --locked --quiet --target $target

# Memory, the most of it below 4 GiB, arguments of QEMU. The kernel ends QEMU with 33 if all is well.
boot() {
    local output code=0
    output=$(timeout -k 5 60 qemu-system-x86_64 -accel tcg -cpu max -nodefaults -display none -no-reboot -serial stdio \
        -machine q35,memory-backend=memory,max-ram-below-4g="$2" -m "$1" \
        -object memory-backend-ram,id=memory,size="$1",reserve=off \
        -device isa-debug-exit,iobase=0xf4,iosize=4 -kernel "$kernel" "${@:3}" 2>&1 </dev/null) || code=$?
    sed "s/^/  $1: /" <<<"$output"
    if [[ $output =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
    fi
    if [ $code != 33 ]; then
        echo "  $1: exit code $code, expected 33"
        failed=$((failed + 1))
    fi
}

boot 512M 256M -initrd Cargo.toml
boot 32M 1G
echo "port-hello: $passed passed, $failed failed"
[ $failed = 0 ]
