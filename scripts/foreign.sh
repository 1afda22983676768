#!/usr/bin/env bash
# The engine's tests, and the loader's of the aarch64 image, as programs of other processors, under QEMU's user emulation with Debian's
# cross compilers: what depends on the width of a page, on atomics without x86's instructions, or on
# a compiler's back end would show. An emulator on x86-64 keeps its stores in order: what a weaker
# order would do is what loom models, and what a machine of that kind would show.
#
#   scripts/foreign.sh [ARGUMENT...]     arguments of cargo test, without any: the whole engine
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(firstlight{,-memory,-frames,-boot,-memmap,-workers,-blocks})
for processor in aarch64 riscv64; do
    case $processor in
    aarch64) target=aarch64-unknown-linux-gnu ;;
    riscv64) target=riscv64gc-unknown-linux-gnu ;;
    esac
    command -v "qemu-$processor-static" >/dev/null || scripts/setup.sh debian qemu-user-static
    command -v "$processor-linux-gnu-gcc" >/dev/null ||
        scripts/setup.sh debian "gcc-$processor-linux-gnu" "libc6-dev-${processor/aarch64/arm64}-cross"
    scripts/setup.sh target "$target"
    name=${target//-/_}
    export "CARGO_TARGET_${name^^}_LINKER=$processor-linux-gnu-gcc"
    export "CARGO_TARGET_${name^^}_RUNNER=qemu-$processor-static -L /usr/$processor-linux-gnu"
    echo "== $processor"
    # Fewer cases: emulation takes ten times as long.
    PROPTEST_CASES=${PROPTEST_CASES:-16} \
        cargo test --quiet "${packages[@]/#/-p}" --target "$target" --target-dir target/foreign "$@"
    if [ "$processor" = aarch64 ]; then
        # The image's file, by a loader that is on aarch64 alone.
        scripts/setup.sh target aarch64-unknown-none
        cargo test --quiet -p firstlight-image --test it --target "$target" --target-dir target/foreign
    fi
done
